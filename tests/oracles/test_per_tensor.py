"""per_tensor by both oracles: blocks worked by hand, tiles, the rotation, random bits, fast_math, NaN and inf."""

from __future__ import annotations

import numpy as np
import pytest
from quantized import BOTH, SIDES, assert_same, codes, run

from harness.oracles import layout, nvfp4, per_tensor

F32 = np.float32
BF16 = nvfp4.DTYPES["bf16"]


@pytest.fixture
def one_block(make_case):
    """`one_block(ask, *values, amax)`: codes and decoded scale of a block, where another block holds the amax."""

    def made(ask, *values, amax):
        x = np.zeros((16, 32), BF16)
        x[0, : len(values)], x[15, 31] = values, amax
        given = run(ask, make_case("per_tensor", 16, 32, outputs="rowwise"), x)
        return codes(given)[0, : len(values)].tolist(), nvfp4.decode_e4m3(given["rowwise_scale_inv"][0, 0])

    return made


@BOTH
def test_blocks_by_hand(one_block, ask):
    """amax 2688 makes S_enc = S_dec = 1; block amax 6 gives RN(6 * RN(1/6)) = 1, so codes are the e2m1 cast of x."""
    values = (6, -6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.0, 0.0, -0.125, 0.26171875, 4.96875, 5.03125, -2)
    assert one_block(ask, *values, amax=2688) == ([7, 15, 0, 2, 2, 4, 4, 6, 6, 8, 0, 8, 1, 6, 7, 12], 1)
    assert one_block(ask, np.nan, 6, -np.nan, amax=2688) == ([7, 7, 7], 1)
    assert one_block(ask, -np.inf, 448 * 3, 448, np.nan, amax=1) == ([15, 5, 2, 7], 448)


def test_fields_of_tiles(make_case):
    fields = per_tensor.outputs(make_case("per_tensor", 48, 80, block="block_16x16", scale_layout="swizzled"))
    data, scale_inv = fields["columnwise_data"], fields["columnwise_scale_inv"]
    assert (data.shape, data.block, data.transposed, data.valid) == ((80, 24), (1, 2), True, None)
    assert (scale_inv.shape, scale_inv.valid, scale_inv.block) == ((128, 4), (80, 3), (16, 16))
    assert scale_inv.swizzled and scale_inv.transposed


@BOTH
def test_a_tile_has_one_byte_and_the_same_codes_in_both_directions(make_case, tensor, ask):
    given = run(ask, make_case("per_tensor", 48, 80, block="block_16x16"), tensor(48, 80))
    rowwise = given["rowwise_scale_inv"][:48, :5].reshape(3, 16, 5)
    columnwise = given["columnwise_scale_inv"][:80, :3].reshape(5, 16, 3)
    assert (rowwise == rowwise[:, :1]).all()
    np.testing.assert_array_equal(columnwise[:, 0], rowwise[:, 0].T)
    np.testing.assert_array_equal(codes(given, "columnwise").T, codes(given))
    assert len(np.unique(rowwise)) > 3


@BOTH
def test_both_scale_fields_are_swizzled(make_case, tensor, ask):
    x = tensor(272, 304)
    compact = run(ask, make_case("per_tensor", 272, 304), x)
    swizzled = run(ask, make_case("per_tensor", 272, 304, scale_layout="swizzled"), x)
    for side in SIDES:
        compact[f"{side}_scale_inv"] = layout.swizzle(compact[f"{side}_scale_inv"])
    assert_same(swizzled, compact)


@BOTH
def test_rht_rotates_only_the_columnwise_output(make_case, tensor, ask):
    x = tensor(48, 80)
    plain = run(ask, make_case("per_tensor", 48, 80), x)
    given = run(ask, make_case("per_tensor", 48, 80, rht=True), x)
    for name in ("data", "scale_inv", "amax"):
        np.testing.assert_array_equal(given[f"rowwise_{name}"], plain[f"rowwise_{name}"])
    rotated = nvfp4.rht(np.ascontiguousarray(x.astype(F32).T), 0xD7E8)
    assert given["columnwise_amax"] == np.abs(rotated).max() != given["rowwise_amax"]
    expected = run(ask, make_case("per_tensor", 80, 48, outputs="rowwise"), rotated.astype(BF16))
    for name in ("data", "scale_inv", "amax"):
        np.testing.assert_array_equal(given[f"columnwise_{name}"], expected[f"rowwise_{name}"])
    other = run(ask, make_case("per_tensor", 48, 80, rht=True, sign_mask=0xACE1), x)
    assert (other["columnwise_data"] != given["columnwise_data"]).any()
    assert_same(*(run(ask, make_case("per_tensor", 48, 80, outputs="rowwise", rht=rht), x) for rht in (True, False)))


@BOTH
def test_sr_lands_on_a_neighbour_and_directions_draw_apart(make_case, ask):
    square = np.random.default_rng(7).standard_normal((64, 64))
    x = (square + square.T).astype(BF16)
    nearest = run(ask, make_case("per_tensor", 64, 64), x)
    given = run(ask, make_case("per_tensor", 64, 64, rounding="sr"), x)
    np.testing.assert_array_equal(given["rowwise_scale_inv"], nearest["rowwise_scale_inv"])
    np.testing.assert_array_equal(given["rowwise_scale_inv"], given["columnwise_scale_inv"])
    magnitude, reference = codes(given).astype(int) & 7, codes(nearest).astype(int) & 7
    assert np.abs(magnitude - reference).max() == 1
    assert (codes(given) >> 3 == codes(nearest) >> 3).all()
    assert (given["rowwise_data"] != given["columnwise_data"]).any()
    np.testing.assert_array_equal(nearest["rowwise_data"], nearest["columnwise_data"])


@BOTH
def test_sr_keeps_the_mean(make_case, ask):
    """Decoded values average to the scaled input within five standard errors; half a step would be 40 of them."""
    x = np.full((256, 256), 0.3125, BF16)
    x[:, ::16] = 1
    q = nvfp4.decode_e2m1(codes(run(ask, make_case("per_tensor", 256, 256, rounding="sr"), x)))[x != 1]
    assert set(np.unique(q)) == {1.5, 2}
    assert abs(q.mean() - 6 * 0.3125) < 5 * q.std() / np.sqrt(q.size)


@BOTH
def test_seed_moves_the_random_bits(make_case, tensor, ask):
    one, other = (
        run(ask, make_case("per_tensor", 48, 80, input=name, rounding="sr"), tensor(48, 80))
        for name in ("normal", "ties")
    )
    assert (one["rowwise_data"] != other["rowwise_data"]).any()


@BOTH
def test_random_bits_of_one_element(make_case, tensor, ask):
    """Element (r, c) of the columnwise output is drawn from block (r * length + c) / 16 of direction 1."""
    x = tensor(304, 272)
    case = make_case("per_tensor", 304, 272, rounding="sr")
    given = run(ask, case, x)
    line, b = 201, 7
    m = nvfp4.multiplier_reciprocal(
        given["columnwise_scale_inv"][line, b],
        nvfp4.global_decode_scale(nvfp4.global_encode_scale(given["columnwise_amax"])),
    )
    random = nvfp4.random_bytes(np.array([line * (304 // 16) + b], np.uint64), 1, case.offset, case.seed)[0]
    block = slice(16 * b, 16 * b + 16)
    expected = nvfp4.e2m1_stochastic(x[block, line].astype(F32) * m, random)
    np.testing.assert_array_equal(codes(given, "columnwise")[line, block], expected)


@BOTH
def test_fast_math_moves_codes_and_no_scale(make_case, tensor, ask):
    x = tensor(304, 272)
    plain, fast = (run(ask, make_case("per_tensor", 304, 272, fast_math=f), x) for f in (False, True))
    np.testing.assert_array_equal(fast["rowwise_scale_inv"], plain["rowwise_scale_inv"])
    assert (fast["rowwise_data"] != plain["rowwise_data"]).any()


@BOTH
@pytest.mark.parametrize("rounding", ["rne", "sr"])
@pytest.mark.parametrize("sign", [1, -1])
def test_nan_is_code_7_and_otherwise_absent(make_case, tensor, ask, rounding, sign):
    x = tensor(16, 32)
    x[3, 5] = 0
    case = make_case("per_tensor", 16, 32, rounding=rounding)
    absent = run(ask, case, x)
    x[3, 5] = np.copysign(np.nan, sign)
    given = run(ask, case, x)
    for side, at in (("rowwise", (3, 5)), ("columnwise", (5, 3))):
        expected = codes(absent, side)
        expected[at] = 7
        np.testing.assert_array_equal(codes(given, side), expected)
        np.testing.assert_array_equal(given[f"{side}_scale_inv"], absent[f"{side}_scale_inv"])
        np.testing.assert_array_equal(given[f"{side}_amax"], absent[f"{side}_amax"])


@BOTH
def test_inf(make_case, ask):
    x = np.full((16, 32), 1000, BF16)
    x[0, 0] = -np.inf
    given = run(ask, make_case("per_tensor", 16, 32, outputs="rowwise"), x)
    assert given["rowwise_amax"] == np.inf
    assert given["rowwise_scale_inv"][0, 0] == 0x7E
    assert codes(given)[0, 0] == 0xF
    np.testing.assert_array_equal(codes(given)[0, 1:16], np.full(15, nvfp4.e2m1(np.full(1, 1000 / 448, F32))))
    assert nvfp4.decode_e4m3(given["rowwise_scale_inv"][0, 1]) == 160  # 1000/6 under S_enc = 1
