"""`wgmma` of matrices that lie in shared memory along M and N, against the manual's layouts and exact sums."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, module
from ptx_snippets import kernel
from ptx_snippets import run as run_ptx
from test_mma import exact_sums, finite_edges
from test_wgmma import PRODUCT, integers
from wgmma_source import (
    PITCH,
    descriptor,
    device_functions,
    from_fragments,
    image,
    image_across,
    place_of_a,
    place_of_d,
    to_fragments,
)

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.launches import launch

pytestmark = pytest.mark.covers("wgmma.")


def laid_out(matrix: np.ndarray, mode: int, across: bool) -> tuple[np.ndarray, int, int, int]:
    """The bytes of a matrix, its leading and stride offsets, and the bytes from 16 k to the next 16."""
    rows, depth = matrix.shape
    if not across:  # only its core matrices
        leading, stride = rows * 16 + 128, 144
        return image(matrix, 0, leading, stride), leading, stride, 2 * leading
    if mode == 0:
        stride = 144
        leading = rows // 8 * stride + 32
        return image_across(matrix, 0, leading, stride), leading, stride, 2 * leading
    stride = 8 * PITCH[mode]
    leading = (depth // 8 + 1) * stride
    return image_across(matrix, mode, leading, stride), leading, stride, 2 * stride


def multiply(
    a: np.ndarray, b: np.ndarray, d: np.ndarray, kind: str, left: str, right: str, mode: int, **options: object
) -> np.ndarray:
    """D (n, 64, columns) patterns of float32. left, right: where A and B lie, registers, along (K) or across"""
    n, columns, depth = b.shape
    made_b = [laid_out(matrix, mode, right == "across") for matrix in b]
    images_b, (_, lead_b, stride_b, step_b) = np.stack([each[0] for each in made_b]), made_b[0]
    images_b = np.pad(images_b, ((0, 0), (0, -images_b.shape[1] % 1024)))
    size_a, lead_a, stride_a, step_a = 0, 0, 0, 0
    if left == "registers":
        images_a = np.stack([to_fragments(one[:, i : i + 16], 8, place_of_a) for one in a for i in range(0, depth, 16)])
    else:
        made_a = [laid_out(matrix, mode, left == "across") for matrix in a]
        images_a, (_, lead_a, stride_a, step_a) = np.stack([each[0] for each in made_a]), made_a[0]
        images_a = np.pad(images_a, ((0, 0), (0, -images_a.shape[1] % 1024)))
        size_a = images_a.shape[1]
    out = np.stack([to_fragments(matrix, columns // 2, place_of_d) for matrix in d])
    source = device_functions(columns, kind, across=(int(left == "across"), int(right == "across"))) + PRODUCT
    source = source.replace("REGISTERS", str(int(left == "registers")))
    source = source.replace("A_OPERAND", "r" if left == "registers" else "from_a + i * (step_a >> 4)")
    from_a = descriptor(0, lead_a, stride_a, mode if left == "across" else 0)
    from_b = descriptor(0, lead_b, stride_b, mode if right == "across" else 0)
    args = [
        buffer("a", images_a, writable=False), size_a // 16, buffer("b", images_b, writable=False),
        images_b.shape[1] // 16, buffer("out", out), from_a.to_bytes(8, "little"), from_b.to_bytes(8, "little"), step_a,
        step_b, depth // 16, 1,
    ]  # fmt: skip
    shared = size_a + images_b.shape[1]
    launch(module(source), "k", (n, 1, 1), (128, 1, 1), args, dynamic_shared=shared, **options)
    return np.stack([from_fragments(held) for held in out])


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("kind, columns, left", [
    ("bf16", 64, "registers"), ("f16", 256, "registers"), ("bf16", 128, "across"), ("f16", 64, "along"),
])  # fmt: skip
def test_b_lies_along_n(kind: str, columns: int, left: str, mode: int) -> None:
    a, b, d, wanted = integers(2, columns, 32, kind)
    got = multiply(a, b, d, kind, left, "across", mode)
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_a_lies_along_m(mode: int) -> None:
    a, b, d, wanted = integers(2, 16, 48, "bf16")
    got = multiply(a, b, d, "bf16", "across", "along", mode)
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode, columns", [(0, 8), (0, 120), (1, 8), (1, 72), (2, 40), (3, 24)])
def test_columns_that_fill_no_run(mode: int, columns: int) -> None:
    a, b, d, wanted = integers(1, columns, 16, "bf16")
    got = multiply(a, b, d, "bf16", "registers", "across", mode)
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_without_checks(mode: int) -> None:
    """Other code finds the chunks then."""
    a, b, d, wanted = integers(2, 64, 32, "bf16")
    got = multiply(a, b, d, "bf16", "across", "across", mode, sanitize=False)
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode", [0, 1])
def test_sums_that_no_float64_holds(mode: int) -> None:
    """Other code multiplies them."""
    rng = np.random.default_rng(5)
    pool = finite_edges("bf16")
    a, b = (rng.choice(pool, (1, rows, 16)).astype(np.uint16) for rows in (64, 8))
    d = rng.choice(finite_edges("f32"), (1, 64, 8)).astype(np.uint32)
    got = multiply(a, b, d, "bf16", "across", "across", mode)
    assert got.tolist() == exact_sums("bf16", a, b.swapaxes(1, 2), d).tolist()


D, A = "{%f0, %f1, %f2, %f3}", "{%r0, %r1, %r2, %r3}"


@pytest.mark.parametrize("bits, problem", [
    (descriptor(1024, 0, 1024, 1) | 1 << 49, "with a matrix base offset"),
    (descriptor(1024 + 112, 0, 1024, 1), "with a row of A or B across the end of a swizzled row"),
])  # fmt: skip
def test_other_descriptors_are_refused(bits: int, problem: str) -> None:
    body = f" .shared .align 1024 .b8 s[4096];\n mov.u64 %rd0, {bits}; wgmma.fence.sync.aligned;\n"
    wide = f"{D[:-1]}, %f4, %f5, %f6, %f7}}"
    body += f" wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {wide}, {A}, %rd0, 1, 1, 1, 1;"
    with pytest.raises(NotEmulated, match=f"not emulated: wgmma.mma_async.* at ptx:\\d+ {problem}"):
        run_ptx(kernel(body, 0), {}, block=128)


def test_bytes_outside_of_shared_memory() -> None:
    """The second half of K lies beyond the end."""
    body = " .shared .align 1024 .b8 s[1024]; .reg .u32 a;\n"
    body += " mov.u32 a, s; cvt.u64.u32 %rd0, a; shr.u64 %rd0, %rd0, 4;\n"
    body += f" add.u64 %rd0, %rd0, {descriptor(0, 1024, 128)}; mov.u32 %r0, %tid.x; mad.lo.u32 %r1, %r0, 8, a;\n"
    body += " mov.u64 %rd1, 0; st.shared.u64 [%r1], %rd1; fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;\n"
    body += f" wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, {A}, %rd0, 1, 1, 1, 1;"
    with pytest.raises(Fault, match="reads 16 bytes at byte 1024 of shared memory, which has 1024 bytes"):
        run_ptx(kernel(body, 0), {}, block=128)
