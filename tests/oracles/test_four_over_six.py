"""four_over_six: every block by the steps, the choice between the maps, and refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from quantized import assert_refused, assert_same, codes

from harness.errors import ContractError
from harness.inputs import draw
from harness.oracles import four_over_six, layout, nvfp4
from harness.oracles.layout import ROWWISE, Slab
from harness.verify.torch_calls import to_torch

SHAPES = [(48, 80), (304, 272), (16, 16)]
F32 = np.float32
MEASURES = [
    {"error": error, "e4m3_max": e4m3_max, "error_math": math}
    for error, e4m3_max, math in itertools.product(("mae", "mse"), (256, 448), ("exact", "fp16"))
]
SIX, FOUR = 0x38, 0x3C  # the scales 1 and 1.5, which a block amax of 6 gets under S_enc = 1


def run(case, x):
    return four_over_six.numpy_oracle(case, four_over_six.inputs(case, x))


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


@pytest.mark.parametrize("measure", MEASURES, ids=lambda m: "-".join(map(str, m.values())))
@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16"}, {"row_scaled": True, "outputs": "rowwise"}], ids=str)
def test_every_block_by_the_steps(make_case, tensor, flags, measure):
    """One block at a time, with the scalar chain written out; errors to the bit, not only the choice."""
    x, rng = tensor(32, 48), np.random.default_rng(1)
    x[16:32, 32:48] = rng.choice([3, 2.25, 1.125], (16, 16)) * rng.uniform(0.99, 1, (16, 16))  # made for the map to 4
    case = make_case("four_over_six", 32, 48, **flags, **measure)
    given = run(case, x)
    chosen = set()
    for direction in layout.DIRECTIONS.values():
        if f"{direction.name}_data" not in given:
            continue
        v = np.ascontiguousarray(x.T if direction.transposed else x).astype(F32)
        amax = given[f"{direction.name}_amax"][:, None] if case.flags.row_scaled else np.abs(v).max()
        four, six = four_over_six.candidates(case, Slab(direction, slice(0, len(v)), v), amax)
        height = 16 if case.flags.block == "block_16x16" else 1
        for r, c in itertools.product(range(0, len(v), height), range(0, v.shape[1], 16)):
            part, b = (slice(r, r + height), slice(c, c + 16)), c // 16
            granule = np.abs(v[r]).max() if case.flags.row_scaled else np.abs(v).max()
            maps = both_maps(case.flags, v[part], granule)
            assert (four.error[r, b], six.error[r, b]) == (maps[0][2], maps[1][2])
            to_four = maps[0][2] < maps[1][2]
            scale_inv, code, _ = maps[0 if to_four else 1]
            assert (given[f"{direction.name}_scale_inv"][part[0], b] == scale_inv).all()
            np.testing.assert_array_equal(codes(given, direction.name)[part], code)
            chosen.add(bool(to_four))
    assert chosen == {False, True}


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"dtype": "fp16", "block": "block_16x16", "outputs": "columnwise"},
        {"dtype": "fp32", "row_scaled": True, "outputs": "rowwise"},
        {"stage": "amax"},
        {"stage": "encode", "e4m3_max": 448, "error": "mse", "error_math": "fp16"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_are_what_the_fields_say(make_case, tensor, shape, flags):
    case = make_case("four_over_six", *shape, **flags)
    fields = four_over_six.outputs(case)
    given = run(case, tensor(*shape, case.flags.dtype))
    assert list(given) == list(fields)
    for name, field in fields.items():
        assert (given[name].shape, given[name].dtype) == (field.shape, field.dtype)
        assert given[name].flags.c_contiguous
    if case.flags.stage != "encode":
        expected = (shape[0],) if case.flags.row_scaled else (1,)
        assert {a.shape for name, a in given.items() if name.endswith("amax")} == {expected}


@pytest.mark.parametrize(
    "change",
    [{"error": "mse"}, {"e4m3_max": 448}, {"error_math": "fp16"}, {"block": "block_16x16"}, {"row_scaled": True}],
)
def test_every_flag_changes_bytes(make_case, tensor, change):
    x = tensor(304, 272)
    plain, changed = (run(make_case("four_over_six", 304, 272, outputs="rowwise", **f), x) for f in ({}, change))
    assert (plain["rowwise_data"] != changed["rowwise_data"]).any()
    assert (plain["rowwise_scale_inv"] != changed["rowwise_scale_inv"]).any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16", "error": "mse"}], ids=str)
def test_columnwise_is_rowwise_of_the_transpose(make_case, tensor, shape, flags):
    x = tensor(*shape)
    there = run(make_case("four_over_six", *shape, outputs="columnwise", **flags), x)
    back = run(make_case("four_over_six", *shape[::-1], outputs="rowwise", **flags), x.T)
    assert_same({name.replace("columnwise", "rowwise"): a for name, a in there.items()}, back)


@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16"}], ids=str)
def test_one_direction_and_one_stage_are_that_part_of_the_whole(make_case, tensor, flags):
    x = tensor(304, 272)
    case = make_case("four_over_six", 304, 272, **flags)
    both = run(case, x)
    for outputs in ("rowwise", "columnwise"):
        part = run(replace(case, flags=case.flags.replace(outputs=outputs)), x)
        assert_same(part, {name: a for name, a in both.items() if name.startswith(outputs)})
    amaxes = run(replace(case, flags=case.flags.replace(stage="amax")), x)
    encode = replace(case, flags=case.flags.replace(stage="encode"))
    assert_same(amaxes | four_over_six.numpy_oracle(encode, {"input": x, **amaxes}), both)


@pytest.mark.parametrize("measure", MEASURES[::3], ids=str)
def test_with_row_scaled_a_row_is_a_tensor_of_its_own(make_case, tensor, measure):
    """The row's amax is in S_enc and in the error alike."""
    x = tensor(48, 80)
    given = run(make_case("four_over_six", 48, 80, row_scaled=True, outputs="rowwise", **measure), x)
    case = make_case("four_over_six", 16, 80, outputs="rowwise", **measure)
    for r in range(48):
        alone = run(case, np.tile(x[r], (16, 1)))
        np.testing.assert_array_equal(given["rowwise_data"][r], alone["rowwise_data"][0])
        np.testing.assert_array_equal(given["rowwise_scale_inv"][r], alone["rowwise_scale_inv"][0])
        assert given["rowwise_amax"][r] == alone["rowwise_amax"]


@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16"}, {"row_scaled": True, "outputs": "rowwise"}], ids=str)
def test_slabs_do_not_show(make_case, tensor, monkeypatch, flags):
    case, x = make_case("four_over_six", 304, 272, **flags), tensor(304, 272)
    whole = run(case, x)
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 1)
    assert_same(run(case, x), whole)


def test_the_scale_is_the_divide_form(make_case):
    """A witness of NUMERICS 2: the scale of the map to 6 is 160, where the multiply form gives 176."""
    x = np.zeros((16, 32), F32)
    x[0, [0, 16]] = amax, block_amax = F32([8.125, 3.046875])
    case = make_case("four_over_six", 16, 32, e4m3_max=448, outputs="rowwise")
    _, six = four_over_six.candidates(case, Slab(ROWWISE, slice(0, 16), x), np.full(1, amax))
    assert nvfp4.decode_e4m3(six.scale_inv[0, 1]) == 160
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

    @pytest.fixture(params=MEASURES, ids=lambda m: "-".join(map(str, m.values())))
    def chosen(self, make_case, request):
        """`chosen(*rows)`: scale byte and first codes of the block at (0, 0) if its rows start with these."""

        def run_with(*rows, block="block_1x16"):
            x = np.zeros((32, 32), F32)
            for r, row in enumerate(rows):
                x[r, : len(row)] = row
            x[31, 31] = 6 * request.param["e4m3_max"]
            flags = {"dtype": "fp32", "block": block, "outputs": "rowwise", **request.param}
            given = run(make_case("four_over_six", 32, 32, **flags), x)
            return given["rowwise_scale_inv"][0, 0], codes(given)[0, : len(rows[0])].tolist()

        return run_with

    def test_each_map_wins_on_its_own_values(self, chosen):
        assert chosen([6, 4, -2, 0.5]) == (SIX, [7, 6, 0xC, 1])
        assert chosen([6, 4.5, -2.25, 0.75]) == (FOUR, [6, 5, 0xB, 1])

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

    def test_zeros_keep_their_sign(self, make_case):
        x = np.zeros((16, 16), nvfp4.DTYPES["bf16"])
        x[:, 1::2] = -0.0
        given = run(make_case("four_over_six", 16, 16), x)
        for direction, expected in (("rowwise", [0, 8] * 8), ("columnwise", [0] * 16)):
            assert not given[f"{direction}_scale_inv"].any()
            assert codes(given, direction)[0].tolist() == expected
            assert not given[f"{direction}_amax"].view(np.uint32).any()


@pytest.mark.parametrize("error", ["mae", "mse"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_directions_choose_independently(make_case, dtype, error):
    """Lines of the other direction add up in another order; in tiles that all but tie, that decides."""
    case = make_case("four_over_six", 256, 256, dtype=dtype, block="block_16x16", error=error)
    differing = 0
    for seed in range(6):
        given = run(case, draw.make("four_over_six_ties", 256, 256, dtype, seed))
        rowwise, columnwise = (given[f"{d}_scale_inv"][::16] for d in ("rowwise", "columnwise"))
        differing += np.count_nonzero(rowwise != columnwise.T)
    assert 0 < differing < 0.1 * 6 * 256


class TestBound:
    @pytest.mark.parametrize(("e4m3_max", "scales"), [(256, (384, 256)), (448, (448, 448))])
    def test_the_block_of_the_amax(self, make_case, e4m3_max, scales):
        """448 caps both; at 256 the map to 4 has room."""
        x = np.full((16, 16), 3.25, F32)
        case = make_case("four_over_six", 16, 16, dtype="fp32", e4m3_max=e4m3_max)
        both = four_over_six.candidates(case, Slab(ROWWISE, slice(0, 16), x), np.full(1, 3.25, F32))
        assert tuple(nvfp4.decode_e4m3(candidate.scale_inv[0, 0]) for candidate in both) == scales

    @pytest.mark.parametrize("e4m3_max", [256, 448])
    def test_the_cap_is_448_in_both_modes(self, make_case, e4m3_max):
        """A given amax of a quarter of the real one: the scale would be 1,024 or more."""
        x = np.full((16, 16), 4, F32)
        case = make_case("four_over_six", 16, 16, dtype="fp32", e4m3_max=e4m3_max, stage="encode", outputs="rowwise")
        given = four_over_six.numpy_oracle(case, {"input": x, "rowwise_amax": np.ones(1, F32)})
        assert (given["rowwise_scale_inv"][:16, 0] == 0x7E).all()


class TestInfinity:
    """An infinite amax gives S_enc 1. Exact errors are then inf or NaN, and no block maps to 4."""

    @pytest.mark.parametrize("error", ["mae", "mse"])
    def test_exact_maps_everything_to_6(self, make_case, tensor, error):
        x = tensor(48, 80)
        x[0, 0] = -np.inf
        case = make_case("four_over_six", 48, 80, outputs="rowwise", error=error)
        given = run(case, x)
        assert given["rowwise_amax"] == np.inf
        six = [four_over_six.candidates(case, slab, given["rowwise_amax"])[1].scale_inv for slab in ROWWISE.slabs(x)]
        np.testing.assert_array_equal(given["rowwise_scale_inv"][:48, :5], np.concatenate(six))
        assert given["rowwise_scale_inv"][0, 0] == 0x7E
        assert codes(given)[0, 0] == 0xF

    def test_fp16_still_chooses(self, make_case):
        x = np.zeros((16, 32), nvfp4.DTYPES["bf16"])
        x[0, 0], x[0, 16:18] = np.inf, [6, 4.5]
        given = run(make_case("four_over_six", 16, 32, outputs="rowwise", error_math="fp16"), x)
        assert given["rowwise_scale_inv"][0, :2].tolist() == [0x7E, FOUR]


@pytest.mark.parametrize(
    ("shape", "flags", "word"),
    [
        ((48, 80), {"scale_layout": "swizzled"}, "scale_layout must be compact"),
        ((48, 80), {"rht": True}, "rht must be false"),
        ((48, 80), {"rounding": "sr"}, "rounding must be rne"),
        ((48, 80), {"row_scaled": True}, "outputs must be rowwise, not both"),
        ((48, 80), {"row_scaled": True, "outputs": "columnwise"}, "outputs must be rowwise"),
        ((48, 80), {"row_scaled": True, "outputs": "rowwise", "block": "block_16x16"}, "block must be block_1x16"),
        ((48, 80), {"e4m3_max": 240}, "256 or 448, not 240"),
        ((48, 80), {"error": "max"}, "mae or mse, not max"),
        ((48, 80), {"error_math": "fp64"}, "exact or fp16, not fp64"),
        ((40, 80), {}, "40x80"),
        ((48, 0), {}, "48x0"),
    ],
)
def test_a_refusal_says_what_is_wrong(make_case, shape, flags, word):
    assert_refused(four_over_six, make_case("four_over_six", *shape, **flags), word)


@pytest.mark.parametrize(("row_scaled", "shape"), [(False, (48,)), (True, (1,))])
def test_an_amax_of_another_granularity_is_refused(make_case, tensor, row_scaled, shape):
    case = make_case("four_over_six", 48, 80, stage="encode", outputs="rowwise", row_scaled=row_scaled)
    tensors = {"input": tensor(48, 80), "rowwise_amax": np.ones(shape, F32)}
    as_torch = {name: to_torch(array) for name, array in tensors.items()}
    for oracle, given in ((four_over_six.numpy_oracle, tensors), (four_over_six.torch_oracle, as_torch)):
        with pytest.raises(ContractError, match="one amax per " + ("row" if row_scaled else "tensor")):
            oracle(case, given)
