"""Every distribution must hit what it aims at, in every dtype and, where blocks matter, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from harness.contract.dtypes import DTYPES, MANTISSA_BITS
from harness.inputs.draw import make
from harness.oracles import nvfp4

F32 = np.float32
TIES_SEEDS = [0, 1, 4, 11]  # one for each of the four amaxes


def wide(name: str, rows: int = 256, cols: int = 256, dtype: str = "bf16", seed: int = 1) -> np.ndarray:
    return make(name, rows, cols, dtype, seed).astype(F32)


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.itemsize}")


def rowwise(x: np.ndarray, amax: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(S_enc, scale bytes, reciprocal multipliers) of the 1x16 blocks along axis 1."""
    s_enc = nvfp4.global_encode_scale(nvfp4.amax(x) if amax is None else amax)
    scale_inv = nvfp4.scale_inv_multiply(nvfp4.block_amax(x), s_enc)
    return s_enc, scale_inv, nvfp4.multiplier_reciprocal(scale_inv, nvfp4.global_decode_scale(s_enc))


def test_spike_pushes_scales_into_the_subnormals():
    x = wide("outlier_spike")
    assert (np.abs(x) > 100).sum() == 1
    scale = nvfp4.decode_e4m3(rowwise(x)[1])
    assert ((scale > 0) & (scale < 2**-6)).mean() > 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_spikes_leave_the_other_blocks_next_to_nothing(dtype):
    x = wide("spike_1e6", dtype=dtype)
    spikes = np.abs(x) > 1e4
    assert 100 < spikes.sum() <= 131
    assert np.unique(np.abs(x[spikes])).size == 1
    assert np.unique(np.sign(x[spikes])).size == 2
    assert np.abs(x).max() == (65504 if dtype == "fp16" else F32(1e6).astype(DTYPES[dtype]).astype(F32))
    if dtype != "fp16":
        scale = nvfp4.decode_e4m3(rowwise(x)[1])[~spikes.reshape(256, 16, 16).any(-1)]
        assert set(np.unique(scale)) == {0, 2.0**-9}


@pytest.mark.parametrize(("dtype", "largest"), [("bf16", 20), ("fp16", 10), ("fp32", 20)])
def test_row_scales_span_their_range(dtype, largest):
    spread = np.log2(wide("row_scales", dtype=dtype).std(axis=1))
    exponents = np.rint(spread)
    assert (np.abs(spread - exponents) < 0.35).all()
    assert (exponents.min(), exponents.max()) == (-largest, largest)
    assert np.unique(exponents).size > largest


def test_heavy_tail_fills_blocks_with_zeros_and_sixes():
    x = wide("heavy_tail")
    code = nvfp4.e2m1(nvfp4.scaled(x, rowwise(x)[2])) & 7
    assert (code == 0).mean() > 0.3
    assert np.unique(code).size == 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("seed", TIES_SEEDS)
def test_ties_hit_and_straddle_every_midpoint(dtype, transposed, seed):
    x = wide("ties", dtype=dtype, seed=seed)
    x = np.ascontiguousarray(x.T) if transposed else x
    product = np.abs(nvfp4.scaled(x, rowwise(x)[2]))
    for middle in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5):
        near = product[np.abs(product / F32(middle) - 1) < 2.0**-6]
        assert (near < middle).sum() > 1000
        assert (near > middle).sum() > 1000
        assert (near == middle).sum() > 100
    off = np.min([np.abs(product / F32(m) - 1) for m in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5)], axis=0)
    assert (off < 2.0**-6).mean() > 0.9


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", TIES_SEEDS)
def test_ties_tell_the_multipliers_apart(dtype, seed):
    x = wide("ties", dtype=dtype, seed=seed)
    s_enc, scale_inv, reciprocal = rowwise(x)
    assert int(x.view(np.uint32)[np.unravel_index(np.abs(x).argmax(), x.shape)]) & 0x10000  # all 8 bits of bf16
    direct = nvfp4.multiplier_direct(scale_inv, s_enc)
    differs = nvfp4.e2m1(nvfp4.scaled(x, reciprocal)) != nvfp4.e2m1(nvfp4.scaled(x, direct))
    assert differs.mean() > 0.003


def test_ties_seeds_reach_every_amax():
    assert {float(np.abs(wide("ties", 16, 16, seed=s)).max()) * 32 for s in TIES_SEEDS} == {133, 217, 231, 245}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_maps_to_4_and_6_tie(dtype, transposed, seed):
    """Worked out in float64 from S_enc = 6 * bound / amax, a power of two for one of the bounds."""
    x = wide("four_over_six_ties", dtype=dtype, seed=seed)
    x = np.ascontiguousarray(x.T) if transposed else x
    s_enc = next(s for s in (2688 / np.abs(x).max(), 1536 / np.abs(x).max()) if np.frexp(s)[0] == 0.5)
    blocks = np.abs(x).reshape(-1, 16).astype(np.float64) * s_enc
    six = blocks.max(axis=1, keepdims=True) / 6
    blocks, six = blocks[six[:, 0] > 0], six[six[:, 0] > 0]
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    away = [np.abs(blocks[..., None] - grid * scale[..., None]).min(-1) for scale in (six, six * 1.5)]
    for power in (1, 2):
        gain = (away[0] ** power - away[1] ** power).sum(-1)
        assert (gain == 0).mean() > 0.4
        assert (gain > 0).mean() > 0.02
        assert (gain < 0).mean() > 0.02
    assert (np.abs(x).max(axis=1) == np.abs(x).max()).all() or transposed


def test_four_over_six_ties_serve_both_bounds():
    amaxes = [np.abs(wide("four_over_six_ties", 16, 16, seed=s)).max() for s in range(8)]
    assert {float(np.frexp(amax)[0]) for amax in amaxes} == {0.65625, 0.75}  # 2688 and 1536


def test_ties_hold_in_a_16x16_block():
    x = wide("ties")
    tiles = np.abs(x).reshape(16, 16, 16, 16).max(axis=(1, 3))
    lines = np.abs(x).reshape(16, 16, 16, 16).max(axis=3)
    assert (lines == tiles[:, None, :]).mean() > 0.99


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_scale_edges_surround_every_rounding_edge(dtype, transposed):
    x = wide("scale_edges", 512, 512, dtype)
    x = np.ascontiguousarray(x.T) if transposed else x
    s_enc, scale_inv, _ = rowwise(x)
    exact = nvfp4.block_amax(x) * (s_enc * nvfp4.ONE_SIXTH)
    assert np.unique(scale_inv).size == 0x7F
    values = nvfp4.decode_e4m3(np.arange(0x7F, dtype=np.uint8))
    ulp = {"bf16": 2.0**-7, "fp16": 2.0**-10, "fp32": 2.0**-23}[dtype]
    for middle in (values[:-1] + values[1:]) / 2:
        near = exact[np.abs(exact / middle - 1) <= 3 * ulp]
        assert (near < middle).any(), middle
        assert (near > middle).any(), middle
    assert ((scale_inv == 0) & (nvfp4.block_amax(x) > 0)).any()
    assert (scale_inv == 0x7E).any()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sr_edges_lie_where_the_rounding_of_a_sum_decides(dtype, transposed):
    x = wide("sr_edges", dtype=dtype)
    x = np.ascontiguousarray(x.T) if transposed else x
    multiplier = np.repeat(rowwise(x)[2], 16, axis=1)
    assert (multiplier == 1).mean() > 0.99
    a = np.abs(x)[(multiplier == 1) & (np.abs(x) < 0.25)]
    k = np.ceil(a * 512)
    assert set(k) == set(range(1, 128))
    below = k / 512 - a.astype(np.float64)
    for little in [0, 2.0**-27, 2.0**-26, 2.0**-25] if dtype == "fp32" else [0]:
        assert (below == little).mean() > 0.1
    code = nvfp4.e2m1_stochastic(a, (256 - k).astype(np.uint8))
    np.testing.assert_array_equal(code, below < 2.0**-25)
    assert 0.2 < code.mean() < 0.8


def test_signed_zero():
    x = wide("signed_zero")
    product = nvfp4.scaled(x, rowwise(x)[2])
    code = nvfp4.e2m1(product)
    for byte in (0x0, 0x8):
        assert ((code == byte) & (x == 0)).sum() > 1000
        assert ((code == byte) & (x != 0)).sum() > 1000
    empty = ~x.reshape(256, 16, 16).any(axis=2)
    assert (np.signbit(x).reshape(256, 16, 16).any(axis=2) & empty).sum() > 100


@pytest.mark.parametrize("dtype", DTYPES)
def test_specials_nan(dtype):
    x = make("specials_nan", 256, 256, dtype, 1)
    nan = np.isnan(x.astype(F32))
    assert 256 < nan.sum() < 1000
    assert nan.reshape(16, 16, 16, 16).all(axis=(1, 3)).sum() == 1
    payloads = bits(x)[nan]
    assert np.unique(payloads).size > 50
    quiet = 1 << MANTISSA_BITS[dtype] - 1
    sign = 1 << 8 * x.itemsize - 1
    for bit in (quiet, sign):
        assert 0.2 < ((payloads & payloads.dtype.type(bit)) != 0).mean() < 0.8


def test_specials_nan_in_one_tile():
    assert 0 < np.isnan(wide("specials_nan", 16, 16)).sum() < 16


@pytest.mark.parametrize("mask", [0xD7E8, 0xACE1])
def test_rht_adversarial(mask):
    """Some column blocks rotate to one element, some to sixteen equal ones, some almost to one."""
    columns = np.ascontiguousarray(wide("rht_adversarial").T)
    r = np.abs(nvfp4.hadamard(columns, mask)).reshape(-1, 16)
    alone = (r != 0).sum(axis=1) == 1
    flat = (r == r[:, :1]).all(axis=1)
    almost = (np.sort(r, axis=1)[:, -2] < 0.05 * r.max(axis=1)) & ~alone
    for kind in (alone, flat, almost):
        assert kind.mean() > 0.05


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_exhaustive_holds_every_value(dtype):
    x = make("exhaustive", 256, 256, dtype, 1)
    np.testing.assert_array_equal(np.sort(bits(x), axis=None), np.arange(1 << 16))
    np.testing.assert_array_equal(bits(make("exhaustive", 512, 256, dtype, 1))[256:], bits(x))


def test_exhaustive_blocks_span_four_binades():
    blocks = np.abs(wide("exhaustive")).reshape(-1, 16)
    normal = np.isfinite(blocks).all(axis=1) & (blocks.min(axis=1) >= 2.0**-126)
    span = blocks[normal].max(axis=1) / blocks[normal].min(axis=1)
    assert normal.mean() > 0.9
    assert ((span > 8) & (span < 32)).all()


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_tiny_amax_caps_the_encode_scale(dtype):
    x = wide("tiny_amax", dtype=dtype)
    assert nvfp4.global_encode_scale(nvfp4.amax(x)) == nvfp4.FLT_MAX
    assert np.abs(x).max() > 2.0**-126


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_near_floor_has_amaxes_on_both_sides_of_it(axis, dtype):
    amax = np.abs(wide("near_floor", dtype=dtype)).max(axis=axis)
    assert ((amax > 1e-13) & (amax < 1.6e-11)).mean() > 0.8
    assert 0.2 < (amax < 1e-12).mean() < 0.8
