"""Kernels of Triton on the emulator, as sm_90a and as sm_100a code: their results are right to the last bit."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import ptx_emulator
from ptx_emulator.process_order import given_order
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

triton = pytest.importorskip("triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it")
torch = pytest.importorskip("torch")

import kernels as k  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

BF16, F16, F32, I32 = torch.bfloat16, torch.float16, torch.float32, torch.int32


@pytest.fixture(autouse=True, scope="module", params=["sm_90a", "sm_100a"])
def on(request: pytest.FixtureRequest) -> Iterator[object]:
    with ptx_emulator.triton_on(request.param) as run:
        yield run


def drawn(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def whole(*shape: int, dtype: torch.dtype = I32, most: int = 9) -> torch.Tensor:
    return torch.randint(-most, most, shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def same(got: torch.Tensor, right: torch.Tensor) -> None:
    assert (got.dtype, got.shape) == (right.dtype, right.shape)
    assert got.contiguous().view(torch.uint8).equal(right.contiguous().view(torch.uint8))


def test_masks():
    x, y, out = drawn(1000), drawn(1000).flip(0).contiguous(), torch.full((1003,), -1.0)
    k.add[(4,)](x, y, out, 1000, BLOCK=256)
    same(out, torch.cat([x + y, torch.full((3,), -1.0)]))


def test_reductions_of_strided_rows():
    x, out = drawn(7, 130, dtype=BF16)[:, :100], torch.empty(7)
    k.row_amax[(7,)](x, out, 100, x.stride(0), BLOCK=128)
    same(out, x.float().abs().amax(1))


def test_atomics():
    x, counts, amax = whole(3000).abs() % 5, torch.zeros(5, dtype=I32), torch.zeros(1)
    k.histogram[(12,)](x, counts, 3000, BLOCK=256)
    same(counts, torch.bincount(x, minlength=5).to(I32))
    k.global_amax[(12,)](drawn(3000), amax, 3000, BLOCK=256)
    same(amax, drawn(3000).abs().amax().reshape(1))


@pytest.mark.parametrize("dtype, tile, options", [
    (BF16, (16, 16, 32), {}),  # several threads of a tile have the same values
    (F16, (32, 32, 32), {"num_stages": 3}),
    (F32, (16, 16, 16), {"num_warps": 2}),
])  # fmt: skip
def test_dot(dtype: torch.dtype, tile: tuple[int, int, int], options: dict[str, int]):
    a, b, out = whole(40, 100, dtype=dtype), whole(100, 48, dtype=dtype), torch.empty(40, 48)
    k.matmul[(triton.cdiv(40, tile[0]), triton.cdiv(48, tile[1]))](a, b, out, 40, 48, 100, *tile, **options)
    same(out, a.float() @ b.float())


@pytest.mark.parametrize("dtype, rows, options", [
    (BF16, 64, {}),
    (F16, 128, {"num_warps": 8, "num_stages": 3}),  # two warpgroups, and copies that run ahead
])  # fmt: skip
def test_dot_of_warpgroups(dtype: torch.dtype, rows: int, options: dict[str, int]):
    """`wgmma`, whose B lies in shared memory along its rows."""
    a, b, out = whole(rows, 128, dtype=dtype), whole(128, 64, dtype=dtype), torch.empty(rows, 64)
    args = (a, b, out, rows, 64, 128, rows, 64, 64)
    with ptx_emulator.triton_on("sm_90a"):
        ptx = k.matmul.warmup(*args, grid=(1, 1), **options).asm["ptx"]
        assert "wgmma.mma_async" in ptx
        if "fence.proxy.async" not in ptx:  # Triton 3.6 and 3.7.0 leave it out; pull request 9610 mended that
            with pytest.raises(ptx_emulator.Fault, match="reads shared bytes that .* with no fence.proxy.async"):
                k.matmul[(1, 1)](*args, **options)
            return
        k.matmul[(1, 1)](*args, **options)
    same(out, a.float() @ b.float())


@pytest.mark.slow
@pytest.mark.parametrize("dtype, rows, columns, options", [
    (BF16, 64, 64, {}),
    (F16, 128, 64, {"num_warps": 8, "num_stages": 3}),  # two warpgroups, and copies that run ahead
    (BF16, 128, 256, {"num_stages": 4}),
])  # fmt: skip
def test_dot_in_tensor_memory(dtype: torch.dtype, rows: int, columns: int, options: dict[str, int]):
    """`tcgen05.mma`, whose accumulator lies in tensor memory."""
    m, n = 2 * rows - 5, columns + 3
    a, b, out = whole(m, 256, dtype=dtype), whole(256, n, dtype=dtype), torch.empty(m, n)
    with ptx_emulator.triton_on("sm_100a"):
        compiled = k.matmul[(2, 2)](a, b, out, m, n, 256, rows, columns, 64, **options)
    assert "tcgen05.mma" in compiled.asm["ptx"]
    same(out, a.float() @ b.float())


@pytest.mark.parametrize("dtype, kind", [
    (torch.float8_e4m3fn, "f8f6f4"), (torch.float8_e5m2, "f8f6f4"), (F32, "tf32"),
])  # fmt: skip
def test_dot_of_other_floats(dtype: torch.dtype, kind: str):
    a, b, out = whole(64, 64, dtype=dtype, most=4), whole(64, 64, dtype=dtype, most=4), torch.empty(64, 64)
    with ptx_emulator.triton_on("sm_100a"):
        compiled = k.product[(1,)](a, b, out, 64, 64, 64)
    assert f"tcgen05.mma.cta_group::1.kind::{kind}" in compiled.asm["ptx"]
    same(out, a.float() @ b.float())


@pytest.mark.parametrize("rows", [64, 128])
def test_dot_of_a_dot(rows: int):
    """The first product, rounded to bf16, is A of the second, and stays in tensor memory."""
    q, key, v = (whole(*shape, dtype=BF16) for shape in ((rows, 64), (64, 64), (64, 64)))
    out = torch.empty(rows, 64)
    with ptx_emulator.triton_on("sm_100a"):
        compiled = k.attention_without_softmax[(1,)](q, key, v, out, rows, 64, 64)
    assert re.search(r"tcgen05\.mma.*\[.*\], \[", compiled.asm["ptx"])
    same(out, (q.float() @ key.float()).to(BF16).float() @ v.float())


@pytest.mark.parametrize("block", [16, 32])
def test_scaled_dot(block: int):
    """NVFP4 (e4m3 scales of 16) and MXFP4 (ue8m0 scales of 32), 64 deep for each instruction."""
    draw = torch.Generator().manual_seed(7)
    codes = [torch.randint(0, 256, (128, 64), generator=draw, dtype=torch.uint8) for _ in "ab"]
    low, high = (0, 0x7F) if block == 16 else (120, 135)
    scales = [torch.randint(low, high, (128, 128 // block), generator=draw, dtype=torch.uint8) for _ in "ab"]
    if block == 16:
        scales = [each.view(torch.float8_e4m3fn) for each in scales]
    out = torch.empty(128, 128)
    with ptx_emulator.triton_on("sm_100a"):
        compiled = k.scaled_matmul[(1,)](codes[0], scales[0], codes[1], scales[1], out, 128, 128, 128, block)
    assert f"kind::mxf4{'nvf4' if block == 16 else ''}.block_scale" in compiled.asm["ptx"]
    a, b = (decoded(*each, block) for each in zip(codes, scales, strict=True))
    first = (a[:, :64] @ b[:, :64].T).float()
    same(out, (first.double() + a[:, 64:] @ b[:, 64:].T).float())


def decoded(codes: torch.Tensor, scales: torch.Tensor, block: int) -> torch.Tensor:
    """What e2m1 codes and their scales stand for, float64, in which sums of these are exact."""
    half = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    values = torch.cat([half, -half])[torch.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).long()]
    factors = scales.double() if block == 16 else 2.0 ** (scales.double() - 127)
    return values * factors.repeat_interleave(block, 1)


def test_autotune_and_heuristics():
    for n in (1024, 1000):
        x, out = drawn(n), torch.empty(n)
        k.scale[lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, 3.0)
        same(out, x * 3)


def test_descriptors_of_the_host():
    x, out = drawn(50, 72, dtype=BF16), torch.zeros(50, 72, dtype=BF16)
    made = [TensorDescriptor.from_tensor(each, [16, 32]) for each in (x, out)]
    k.copy_by_descriptor[(4, 3)](*made, 16, 32)  # the last boxes reach beyond the tensor
    same(out, x)


def test_descriptors_without_tensor_maps():
    x, out = drawn(50, 72, dtype=BF16), torch.zeros(50, 72, dtype=BF16)
    made = [TensorDescriptor.from_tensor(each, [16, 32]) for each in (x, out)]
    with ptx_emulator.triton_on("sm_80"):
        k.copy_by_descriptor[(4, 3)](*made, 16, 32)
    same(out, x)


def test_descriptors_of_the_kernel():
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    x, out = drawn(50, 72, dtype=BF16), torch.zeros(50, 72, dtype=BF16)
    k.copy_by_own_descriptor[(4, 3)](x, out, 50, 72, 16, 32)
    same(out, x)


def test_a_pipeline_of_descriptors_and_dot():
    a, b, c = whole(64, 128, dtype=BF16), whole(128, 64, dtype=BF16), torch.zeros(64, 64, dtype=BF16)
    made = [TensorDescriptor.from_tensor(each, [32, 32]) for each in (a, b, c)]
    k.matmul_by_descriptor[(2, 2)](*made, 128, 32, 32, 32, num_stages=3)
    same(c, (a.float() @ b.float()).to(BF16))


def test_scans():
    x, out = whole(6, 100), torch.empty(6, 100, dtype=I32)
    k.running_sum[(6,)](x, out, 100, BLOCK=128)
    same(out, x.cumsum(1).to(I32))
    y, out = drawn(6, 128), torch.empty(6, 128)
    k.running_max[(6,)](y, out, 128, BLOCK=128)
    same(out, y.cummax(1).values)


def test_a_persistent_grid():
    x, out = whole(3000), torch.empty(24, dtype=I32)
    k.persistent_sum[(4,)](x, out, 24, 3000, BLOCK=128)
    same(out, torch.nn.functional.pad(x, (0, 72)).reshape(24, 128).sum(1).to(I32))


def test_a_pipeline_of_loads():
    x, out = drawn(20, 100), torch.empty(20, 100)
    k.pipelined_rows[(4,)](x, out, 20, 100, 128, 3)
    same(out, x * 2)


@pytest.mark.parametrize("source, target", [
    (torch.int8, F32), (torch.int64, F16), (torch.uint8, BF16), (F32, torch.int16), (torch.float64, BF16),
    (F32, torch.float8_e4m3fn), (F16, torch.float8_e5m2), (torch.float8_e4m3fn, BF16), (torch.float8_e5m2, F32),
    (BF16, torch.float64), (BF16, torch.float8_e4m3fn),
])  # fmt: skip
def test_conversions(source: torch.dtype, target: torch.dtype):
    x = (drawn(300) * 20).to(source) if source is not torch.uint8 else whole(300, most=200).abs().to(source)
    out = torch.empty(300, dtype=target)
    k.convert[(2,)](x, out, 300, BLOCK=256)
    same(out, x.to(target))


def test_stochastic_rounding_by_inline_ptx():
    x, bits, out = drawn(700), whole(700, most=1 << 30), torch.empty(700, dtype=BF16)
    k.round_stochastically[(3,)](x, bits, out, 700, BLOCK=256)
    raised = x.numpy().view(np.uint32) + (bits.numpy().view(np.uint32) & 0xFFFF)
    same(out.view(torch.int16), torch.from_numpy((raised >> 16).astype(np.uint16).view(np.int16)))


def test_arguments_of_every_kind():
    out, x = torch.zeros(1, dtype=torch.float64), torch.tensor([5])
    k.mixed_arguments[(1,)](out, (x, (3, 1)), True, 0.5, None, 1 << 40, 1, 7)
    assert out.item() == 5 + 3 + 1 + (1 << 40) + 1 + 7 + 0.5
    k.mixed_arguments[(1,)](out, (x, (-3, 1)), False, -0.25, x, (1 << 63) - 20, 1, FACTOR=7)
    assert out.item() == float((1 << 63) - 20 + 5 - 3 + 1 + 1 + 1) - 0.25


def test_sort():
    x, out = drawn(3, 64), torch.empty(3, 64)
    k.sort_rows[(3,)](x, out, 64)
    same(out, x.sort(1).values)


def test_a_lock():
    lock, out = torch.zeros(1, dtype=I32), torch.zeros(1, dtype=I32)
    k.add_under_a_lock[(5,)](lock, out)
    assert (out.item(), lock.item()) == (5, 0)


@pytest.mark.parametrize("order", [ASCENDING, DESCENDING, *(Schedule(seed=seed) for seed in range(4))])
def test_a_lock_in_every_order_that_a_judge_gives(order: Schedule):
    lock, out = torch.zeros(1, dtype=I32), torch.zeros(1, dtype=I32)
    with given_order(order), ptx_emulator.triton_on("sm_100a"):
        k.add_under_a_lock[(5,)](lock, out)
    assert (out.item(), lock.item()) == (5, 0)


@pytest.mark.parametrize("size", [16, 256])
def test_in_place(size: int):
    x = drawn(2 * size)
    out = x.clone()
    k.double_in_place[(2,)](out, size)
    same(out, x * 2)


def test_pointers_in_memory(on: object):
    x, out = [drawn(16), drawn(32)[16:]], torch.empty(32)
    k.gather[(2,)](torch.tensor([on.address(each) for each in x]), out, 16)
    same(out, torch.cat(x))


def test_clusters():
    x, out = whole(64, 32), torch.empty(64, dtype=I32)
    k.row_sums[(2,)](x, out, 32, 32, num_ctas=2)
    same(out, x.sum(1).to(I32))


def test_no_programs(on: object):
    before = len(on.launches)
    k.add[(0,)](torch.empty(0), torch.empty(0), torch.empty(0), 0, BLOCK=256)
    assert len(on.launches) == before
