"""`harness.triton_on`: the emulator's, which tests/ptx_emulator/triton_driver tests, with the errors of the harness."""

from __future__ import annotations

import pytest

import harness
from harness.errors import LaunchError, UsageError

triton = pytest.importorskip("triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it")
torch = pytest.importorskip("torch")

import triton.language as tl  # noqa: E402


@triton.jit
def copy(x, out, n, FACTOR: tl.constexpr):
    at = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(out + at, tl.load(x + at, at < n) * FACTOR)


@triton.jit
def product(x, out):
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(x + at)))


@triton.jit
def quantize_nvfp4(x, amax, codes, scales, columns, TILES: tl.constexpr):
    """Rowwise per_tensor of NUMERICS 3, in its steps: blocks of 16 to e2m1 codes, two in a byte, and e4m3 scales."""
    row, block = tl.program_id(0), tl.arange(0, TILES)
    at = block[:, None] * 16 + tl.arange(0, 16)
    values = tl.load(x + row * columns + at, at < columns, other=0.0).to(tl.float32)
    whole = tl.load(amax)
    encode = tl.where(whole == 0.0, 1.0, tl.minimum(tl.div_rn(2688.0, whole), 3.4028234663852886e38))
    scale = (tl.max(tl.abs(values), 1) * (encode * (1.0 / 6.0))).to(tl.float8e4nv)
    factor = tl.div_rn(1.0, scale.to(tl.float32) * tl.div_rn(1.0, encode))
    scaled = values * tl.minimum(factor, 3.4028234663852886e38)[:, None]
    size = tl.abs(scaled)
    code = (size > 0.25).to(tl.uint8) + (size >= 0.75) + (size > 1.25) + (size >= 1.75)
    code = code + (size > 2.5) + (size >= 3.5) + (size > 5.0)
    code = code | ((scaled.to(tl.uint32, bitcast=True) >> 31) << 3).to(tl.uint8)
    low, high = tl.split(tl.reshape(code, (TILES, 8, 2)))
    pairs = block[:, None] * 8 + tl.arange(0, 8)
    tl.store(codes + row * (columns // 2) + pairs, low | (high << 4), pairs < columns // 2)
    tl.store(scales + row * (columns // 16) + block, scale, block < columns // 16)


def test_errors_are_those_of_the_harness():
    with harness.triton_on("sm_100a") as run:
        with pytest.raises(harness.AccessError, match="of buffer 'out', which has 400 bytes") as raised:
            copy[(1,)](torch.ones(100), torch.empty(100), 100, FACTOR=2)
        assert raised.value.kind == "out_of_bounds" and raised.value.where.startswith("test_triton_on.py:")
        with pytest.raises(harness.NotEmulated, match=r"product: not emulated: mma\.sync\S*s8"):
            product[(1,)](torch.ones(64, 64, dtype=torch.int8), torch.zeros(64, 64, dtype=torch.int32))
        with pytest.raises(UsageError, match="'x' is on meta"):
            copy[(1,)](torch.empty(128, device="meta"), torch.empty(128), 128, FACTOR=2)
        with pytest.raises(LaunchError, match="programs"):
            copy[(-1,)](torch.ones(128), torch.empty(128), 128, FACTOR=2)
        with pytest.raises(harness.AccessError, match="which nothing wrote before"):
            copy[(1,)](torch.empty(128), torch.empty(128), 128, FACTOR=2)
        assert run.launches == []


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("columns", [16, 80])
def test_nvfp4_as_our_oracle_has_it(columns: int, target: str):
    x = torch.randn(16, columns, generator=torch.Generator().manual_seed(7)).bfloat16()
    x *= torch.tensor([0, 1e-30, 1e-3, 0.1, 1, 3, 1e4, 1e30] * 2)[:, None].bfloat16()
    right = harness.quantize(x, "per_tensor", outputs="rowwise")
    codes = torch.empty(16, columns // 2, dtype=torch.uint8)
    scales = torch.empty(16, columns // 16, dtype=torch.float8_e4m3fn)
    with harness.triton_on(target):
        quantize_nvfp4[(16,)](x, x.float().abs().amax().reshape(1), codes, scales, columns, TILES=8)
    assert codes.equal(right["rowwise_data"].view(torch.uint8))
    assert scales.view(torch.uint8).equal(right["rowwise_scale_inv"].view(torch.uint8)[:16, : columns // 16])
