"""four_over_six by both oracles: every block by the steps, and the choice between the maps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from quantized import BOTH, SIDES, assert_same, by, codes, run

from harness.expected.torch_calls import to_torch
from harness.inputs import draw
from harness.oracles import four_over_six, nvfp4, torch_source
from harness.oracles.layout import DIRECTIONS, ROWWISE, Slab
from harness.oracles.torch_four_over_six import choose

F32 = np.float32
MEASURES = [
    {"error": error, "e4m3_max": e4m3_max, "error_math": math}
    for error, e4m3_max, math in itertools.product(("mae", "mse"), (256, 448), ("exact", "fp16"))
] + [{"e4m3_max": 288}, {"error": "mse", "e4m3_max": 320}]
SIX, FOUR = 0x38, 0x3C  # the scales 1 and 1.5, which a block amax of 6 gets under S_enc = 1


T = 3 * 2.0**-26  # beside 0.5 it counts as 2^-24, beside 1 it is lost
ORDERED = (6, 4, 4, T, T, T, T, 5, 0.75, 0.75, 0, 0, 0, 0, 0, 0)


def candidates(ask, case, direction, x, amax):
    """[(scale bytes (lines, blocks), errors)] of one direction of `x`, mapped to 4 and to 6. amax: of each line"""
    if ask == "numpy":
        v = np.ascontiguousarray(x.T if direction.transposed else x).astype(F32)
        both = four_over_six.candidates(case, Slab(direction, slice(0, len(v)), v), amax)
        return [(one.scale_inv, one.error) for one in both]
    granularity = "row" if case.flags.row_scaled else "tensor"
    source = torch_source.sources(case, to_torch(x), granularity)[direction.name]
    blocks = source.matrix.contiguous().unflatten(1, (-1, 16))
    both = choose(source, blocks, torch.from_numpy(np.broadcast_to(amax, (len(blocks), 1)).copy()))[:2]
    return [(one.scale.view(torch.uint8).numpy(), one.error.numpy()) for one in both]


def error_of_line(flags, line, scale_inv, code, amax, s_enc):
    """Step 6 for 16 elements, one float32 operation at a time."""
    error, sf = F32(0), nvfp4.decode_e4m3(scale_inv)
    for x, q in zip(line, nvfp4.decode_e2m1(code), strict=True):
        if flags.error_math == "exact":
            value = q * sf
            value = value * amax
            value = value / F32(6 * flags.e4m3_max)
            d = value - x
        else:
            d = q * sf - x * s_enc
        error = error + (np.abs(d) if flags.error == "mae" else d * d)
    return error


def both_maps(flags, lines, amax):
    """[(scale byte, codes, error)] of a block (1, 16) or tile (16, 16): mapped to 4, mapped to 6."""
    s_enc = F32(6 * flags.e4m3_max) / amax
    base = np.abs(lines).max() / F32(6) * s_enc
    found = []
    for factor in (F32(1.5), F32(1)):
        scale_inv = nvfp4.e4m3(np.minimum(base * factor, F32(448)))
        m = F32(1) / (nvfp4.decode_e4m3(scale_inv) * (F32(1) / s_enc))
        code = nvfp4.e2m1(lines * m)
        errors = [error_of_line(flags, x, scale_inv, q, amax, s_enc) for x, q in zip(lines, code, strict=True)]
        while len(errors) > 1:
            half = len(errors) // 2
            errors = [a + b for a, b in zip(errors[:half], errors[half:], strict=True)]
        found.append((scale_inv, code, errors[0]))
    return found


@pytest.mark.sweep
@BOTH
@pytest.mark.parametrize("measure", MEASURES, ids=lambda m: "-".join(map(str, m.values())))
@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16"}, {"row_scaled": True, "outputs": "rowwise"}], ids=str)
def test_every_block_by_the_steps(make_case, tensor, ask, flags, measure):
    """One block at a time, with the scalar chain written out; errors to the bit, not only the choice."""
    x, rng = tensor(32, 48), np.random.default_rng(1)
    x[16:32, 32:48] = rng.choice([3, 2.25, 1.125], (16, 16)) * rng.uniform(0.99, 1, (16, 16))  # made for the map to 4
    case = make_case("four_over_six", 32, 48, **flags, **measure)
    given = run(ask, case, x)
    chosen = set()
    for direction in (DIRECTIONS[side] for side in SIDES if f"{side}_data" in given):
        v = np.ascontiguousarray(x.T if direction.transposed else x).astype(F32)
        amax = given[f"{direction.name}_amax"][:, None] if case.flags.row_scaled else np.abs(v).max().reshape(1)
        errors = [error for _, error in candidates(ask, case, direction, x, amax)]
        height = 16 if case.flags.block == "block_16x16" else 1
        for r, c in itertools.product(range(0, len(v), height), range(0, v.shape[1], 16)):
            part, b = (slice(r, r + height), slice(c, c + 16)), c // 16
            granule = np.abs(v[r]).max() if case.flags.row_scaled else np.abs(v).max()
            maps = both_maps(case.flags, v[part], granule)
            assert [error[r, b] for error in errors] == [maps[0][2], maps[1][2]]
            to_four = maps[0][2] < maps[1][2]
            scale_inv, code, _ = maps[0 if to_four else 1]
            assert (given[f"{direction.name}_scale_inv"][part[0], b] == scale_inv).all()
            np.testing.assert_array_equal(codes(given, direction.name)[part], code)
            chosen.add(bool(to_four))
    assert chosen == {False, True}


@BOTH
@pytest.mark.parametrize(
    "change",
    [{"error": "mse"}, {"e4m3_max": 448}, {"error_math": "fp16"}, {"block": "block_16x16"}, {"row_scaled": True}],
)
def test_every_flag_changes_bytes(make_case, tensor, ask, change):
    x = tensor(304, 272)
    plain, changed = (run(ask, make_case("four_over_six", 304, 272, outputs="rowwise", **f), x) for f in ({}, change))
    assert (plain["rowwise_data"] != changed["rowwise_data"]).any()
    assert (plain["rowwise_scale_inv"] != changed["rowwise_scale_inv"]).any()


@BOTH
def test_the_scale_is_the_divide_form(make_case, ask):
    """A witness of NUMERICS 2: the scale of the map to 6 is 160, where the multiply form gives 176."""
    x = np.zeros((16, 32), F32)
    x[0, [0, 16]] = amax, block_amax = F32([8.125, 3.046875])
    case = make_case("four_over_six", 16, 32, e4m3_max=448, outputs="rowwise")
    _, (scale_inv, _) = candidates(ask, case, ROWWISE, x, np.full(1, amax))
    assert nvfp4.decode_e4m3(scale_inv[0, 1]) == 160
    multiplied = nvfp4.scale_inv_multiply(np.full(1, block_amax), nvfp4.global_encode_scale(np.full(1, amax)))
    assert nvfp4.decode_e4m3(multiplied) == 176


@pytest.mark.parametrize("error", ["mae", "mse"])
def test_fp16_is_about_the_product_alone(make_case, tensor, error):
    """Everything but q * sf is float32: rounding x * S_enc or d to fp16, too, would choose otherwise somewhere."""
    x = tensor(304, 272).astype(F32)
    case = make_case("four_over_six", 304, 272, dtype="fp32", outputs="rowwise", error=error, error_math="fp16")
    slab, amax = Slab(ROWWISE, slice(0, 304), x), np.abs(x).max().reshape(1)
    four, six = four_over_six.candidates(case, slab, amax)
    original = (x * (F32(1536) / amax)).reshape(304, 17, 16)

    def halves(v):
        return v.astype(np.float16).astype(F32)

    def choice(rounded_original, rounded_difference):
        errors = []
        for candidate in (four, six):
            c = nvfp4.scaled(nvfp4.decode_e2m1(candidate.codes), nvfp4.decode_e4m3(candidate.scale_inv))
            np.testing.assert_array_equal(halves(c), c)
            d = rounded_difference(c.reshape(original.shape) - rounded_original(original))
            total = F32(0)
            for term in np.moveaxis(np.abs(d) if error == "mae" else d * d, -1, 0):
                total = total + term
            errors.append(total)
        return errors[0] < errors[1]

    np.testing.assert_array_equal(choice(F32, F32), four.error < six.error)
    assert (choice(halves, F32) != choice(F32, F32)).any()
    assert (choice(F32, halves) != choice(F32, F32)).any()


class TestChoice:
    """Under S_enc = 1, in a block whose amax is 6.

    The map to 6 has 0, .5, 1, 1.5, 2, 3, 4, 6; the map to 4 has 0, .75, 1.5, 2.25, 3, 4.5, 6.
    """

    @pytest.fixture(params=["numpy", "torch"])
    def first(self, make_case, request):
        """`first(*rows, **flags)`: scale byte and first codes of the block at (0, 0) if its rows start with these."""

        def run_with(*rows, **flags):
            x = np.zeros((32, 32), F32)
            for r, row in enumerate(rows):
                x[r, : len(row)] = row
            x[31, 31] = 6 * flags.get("e4m3_max", 256)
            case = make_case("four_over_six", 32, 32, **{"dtype": "fp32", "outputs": "rowwise", **flags})
            given = run(request.param, case, x)
            return given["rowwise_scale_inv"][0, 0], codes(given)[0, : len(rows[0])].tolist()

        return run_with

    @pytest.fixture(params=MEASURES, ids=lambda m: "-".join(map(str, m.values())))
    def chosen(self, first, request):
        return lambda *rows, **flags: first(*rows, **request.param, **flags)

    def test_each_map_wins_on_its_own_values(self, chosen):
        assert chosen([6, 4, -2, 0.5, -0.0]) == (SIX, [7, 6, 0xC, 1, 8])
        assert chosen([6, 4.5, -2.25, 0.75]) == (FOUR, [6, 5, 0xB, 1])
        # 5 is 1 from either neighbour of the coarse end, and 1/2 from 4.5.
        assert chosen([6, 5, -5, 4.5, -0.0]) == (FOUR, [6, 5, 13, 5, 8])

    @pytest.mark.parametrize(
        "values", [(6, 3, -1.5), (6, 5.5), (6, 2.125, -4.25), (6, 0.5, 0.75), (6, 0.75, 0.5), (-6, 5.25, 3.25, 1.25)]
    )
    def test_a_tie_goes_to_6(self, chosen, values):
        assert chosen(values)[0] == SIX

    def test_one_ulp_beside_a_tie(self, chosen):
        """2.125 is an eighth away from 2 and from 2.25."""
        up, down = np.nextafter(F32(2.125), F32(3)), np.nextafter(F32(2.125), F32(0))
        assert chosen([6, up])[0] == FOUR
        assert chosen([6, down])[0] == SIX

    @pytest.mark.parametrize("block", ["block_1x16", "block_16x16"])
    def test_a_nan_goes_to_6_and_is_otherwise_absent(self, chosen, block):
        assert chosen([6, 4.5, 0, 4.5], block=block) == (FOUR, [6, 5, 0, 5])
        assert chosen([6, 4.5, np.nan, 4.5], block=block) == (SIX, [7, 6, 7, 6])

    def test_a_tile_sums_its_lines(self, chosen):
        """The first line loses a half under the map to 6; the second loses a half twice under the map to 4."""
        assert chosen([6, 4.5], [0, 4, 4])[0] == FOUR
        assert chosen([6, 4.5], [0, 4, 4], block="block_16x16")[0] == SIX

    def test_the_two_errors_weigh_one_large_and_several_small_differently(self, first):
        """4 is 1/2 away on the one grid, each 3/4 is 1/4 away on the other."""
        block = (6, 4, 0.75, 0.75, 0.75)
        assert [first(block, error=error)[0] for error in ("mae", "mse")] == [FOUR, SIX]
        # A half from 5 and a half from 4 is one from 5, but not squared.
        assert [first((6, 5, 4), error=error)[0] for error in ("mae", "mse")] == [SIX, FOUR]

    def test_the_scale_of_map_to_4_is_half_as_much_again(self, first):
        """4.75 / 4 = 1.1875 lies between 1.125 and 1.25, and 1.25 is even."""
        assert first((4.75, 3.75, 3.75, 3.75)) == (0x3A, [6, 5, 5, 5])

    def test_the_error_is_summed_in_the_order_of_the_elements(self, first):
        """In order, the four T are lost in err4, which is 1 by then, and kept in err6, which is 0; backwards, not."""
        assert first(ORDERED)[0] == FOUR
        assert first(ORDERED[::-1])[0] == SIX


@BOTH
def test_line_errors_of_a_tile_are_added_as_a_tree(make_case, ask):
    """A 16x16 tile that only the tree of offsets 8, 4, 2, 1 maps to 4.

    err6 is 1 in line 0, err4 is 1 in line 15, and both are T in the odd lines below 15. The tree adds all T together
    before they meet the 1 of err6, and piece by piece to the 1 of err4. From line to line err6 loses every T, and a
    tree of neighbours makes the sums equal.
    """
    x = np.zeros((16, 32), F32)
    x[0, :4], x[15, :2], x[1:15:2, 0], x[2, 0] = 0.75, 4, T, 6
    x[0, 31] = 6 * 256
    flags = {"dtype": "fp32", "block": "block_16x16"}
    rowwise = run(ask, make_case("four_over_six", 16, 32, outputs="rowwise", **flags), x)
    columnwise = run(ask, make_case("four_over_six", 32, 16, outputs="columnwise", **flags), np.ascontiguousarray(x.T))
    for scale_inv in (rowwise["rowwise_scale_inv"], columnwise["columnwise_scale_inv"]):
        assert scale_inv[:16, 0].tolist() == [FOUR] * 16


def test_the_two_directions_of_a_tile_decide_independently(make_case):
    """Rowwise the elements are added in order; columnwise each of them is a line, and the tree prefers 6."""
    x = torch.zeros(16, 32)
    x[0, : len(ORDERED)], x[0, 31] = torch.tensor(ORDERED), 6 * 256
    chosen = four_over_six.map4(make_case("four_over_six", 16, 32, dtype="fp32", block="block_16x16"), x)
    assert chosen["rowwise"][:, 0].all() and not chosen["columnwise"][:16].any()


@BOTH
@pytest.mark.parametrize("error", ["mae", "mse"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_directions_choose_independently(make_case, ask, dtype, error):
    """Lines of the other direction add up in another order; in tiles that all but tie, that decides."""
    case = make_case("four_over_six", 256, 256, dtype=dtype, block="block_16x16", error=error)
    differing = 0
    for seed in range(6):
        given = run(ask, case, draw.make("four_over_six_ties", 256, 256, dtype, seed))
        rowwise, columnwise = (given[f"{side}_scale_inv"] for side in SIDES)
        assert (rowwise.reshape(16, 16, 16) == rowwise[::16].reshape(16, 1, 16)).all()
        differing += np.count_nonzero(rowwise[::16] != columnwise[::16].T)
    assert 0 < differing < 0.1 * 6 * 256


@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16"}, {"row_scaled": True, "outputs": "rowwise"}], ids=str)
def test_the_choice_is_what_the_bytes_hold(make_case, tensor, monkeypatch, flags):
    x = tensor(320, 448, "fp32")
    x[:, 16:32] = np.random.default_rng(0).uniform(0, 3, (320, 16))  # of which some tiles map to 4
    case = make_case("four_over_six", 320, 448, dtype="fp32", **flags)
    given, chosen = run("torch", case, x), four_over_six.map4(case, to_torch(x))
    for side, found in chosen.items():
        reach = codes(given, side).reshape(*found.shape, 16) & 7
        scale = nvfp4.decode_e4m3(given[f"{side}_scale_inv"][: found.shape[0], : found.shape[1]])
        height = 16 if "block" in flags else 1
        reach = reach.max(axis=2).reshape(-1, height, found.shape[1]).max(axis=1).repeat(height, axis=0)
        normal = scale > 1  # where e4m3 has all its bits, so that the block amax does land on 4 or on 6
        np.testing.assert_array_equal((reach == 6)[normal], found.numpy()[normal])
        assert found.numpy()[normal].any() and (reach == 7)[normal].any()
    monkeypatch.setattr(torch_source, "SLAB_ELEMENTS", 1)
    for side, found in four_over_six.map4(case, to_torch(x)).items():
        assert torch.equal(found, chosen[side])


@BOTH
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_narrow_input_is_its_float32_value(make_case, tensor, ask, dtype):
    x = tensor(32, 48, dtype)
    narrow, wide = (make_case("four_over_six", 32, 48, dtype=name) for name in (dtype, "fp32"))
    assert_same(run(ask, narrow, x), run(ask, wide, x.astype(F32)))


@BOTH
@pytest.mark.parametrize(
    ("e4m3_max", "scales"), [(256, (384, 256)), (288, (448, 288)), (320, (448, 320)), (448, (448, 448))]
)
def test_the_block_of_the_amax_and_the_cap(make_case, ask, e4m3_max, scales):
    """448 caps both scales; at 256 and 288 the map to 4 has room. A given amax of a quarter asks for 1,024 or more."""
    x = np.full((16, 16), 3.25, F32)
    flags = {"dtype": "fp32", "e4m3_max": e4m3_max, "outputs": "rowwise"}
    both = candidates(ask, make_case("four_over_six", 16, 16, **flags), ROWWISE, x, np.full(1, 3.25, F32))
    assert tuple(nvfp4.decode_e4m3(scale_inv[0, 0]) for scale_inv, _ in both) == scales
    case = make_case("four_over_six", 16, 16, stage="encode", **flags)
    given = by(ask, case, {"input": x, "rowwise_amax": np.full(1, 0.8125, F32)})
    assert (given["rowwise_scale_inv"][:16, 0] == 0x7E).all()


@BOTH
@pytest.mark.parametrize("error", ["mae", "mse"])
def test_an_infinity_maps_everything_to_6_by_its_exact_error(make_case, tensor, ask, error):
    """S_enc is 1. Decoded by an infinite amax both candidates are infinitely wrong, and no block maps to 4."""
    x = tensor(48, 80)
    x[0, 0] = -np.inf
    case = make_case("four_over_six", 48, 80, outputs="rowwise", error=error)
    given = run(ask, case, x)
    assert given["rowwise_amax"] == np.inf
    _, (six, _) = candidates(ask, case, ROWWISE, x, given["rowwise_amax"])
    np.testing.assert_array_equal(given["rowwise_scale_inv"][:48, :5], six)
    assert given["rowwise_scale_inv"][0, 0] == 0x7E
    assert codes(given)[0, 0] == 0xF


@BOTH
def test_an_infinity_leaves_a_choice_before_decoding(make_case, ask):
    x = np.zeros((16, 32), nvfp4.DTYPES["bf16"])
    x[0, :2], x[1, :2], x[0, 16:18] = [-np.inf, 448 * 3], [6, 5], [6, 4.5]
    given = run(ask, make_case("four_over_six", 16, 32, outputs="rowwise", error_math="fp16"), x)
    assert given["rowwise_scale_inv"][:2, :2].tolist() == [[0x7E, FOUR], [FOUR, 0]]
    assert codes(given)[0, :3].tolist() == [15, 5, 0]
