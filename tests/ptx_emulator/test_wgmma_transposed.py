"""`wgmma` of matrices that lie in shared memory along M and N, against the manual's layouts and exact sums."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_snippets import kernel
from ptx_snippets import run as run_ptx
from test_mma import exact_sums, finite_edges
from test_wgmma import A, D, integers, multiply
from wgmma_source import descriptor

from ptx_emulator.errors import Fault

pytestmark = pytest.mark.covers("wgmma.")


@pytest.mark.sweep
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("kind, columns, left", [
    ("bf16", 64, "registers"), ("f16", 256, "registers"), ("bf16", 128, "across"), ("f16", 64, "along"),
])  # fmt: skip
def test_b_lies_along_n(kind: str, columns: int, left: str, mode: int) -> None:
    a, b, d, wanted = integers(2, columns, 32, kind)
    got, _ = multiply(a, b, d, kind, left, "across", (mode if left == "across" else 0, mode))
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_a_lies_along_m(mode: int) -> None:
    a, b, d, wanted = integers(2, 16, 48, "bf16")
    got, _ = multiply(a, b, d, "bf16", "across", "along", (mode, 0))
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode, columns", [(0, 8), (0, 120), (1, 8), (1, 72), (2, 40), (3, 24)])
def test_columns_that_fill_no_run(mode: int, columns: int) -> None:
    a, b, d, wanted = integers(1, columns, 16, "bf16")
    got, _ = multiply(a, b, d, "bf16", "registers", "across", (0, mode))
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_without_checks(mode: int) -> None:
    """Other code finds the chunks then."""
    a, b, d, wanted = integers(2, 64, 32, "bf16")
    got, _ = multiply(a, b, d, "bf16", "across", "across", (mode, mode), sanitize=False)
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("mode", [0, 1])
def test_sums_that_no_float64_holds(mode: int) -> None:
    """Other code multiplies them."""
    rng = np.random.default_rng(5)
    pool = finite_edges("bf16")
    a, b = (rng.choice(pool, (1, rows, 16)).astype(np.uint16) for rows in (64, 8))
    d = rng.choice(finite_edges("f32"), (1, 64, 8)).astype(np.uint32)
    got, _ = multiply(a, b, d, "bf16", "across", "across", (mode, mode))
    assert got.tolist() == exact_sums("bf16", a, b.swapaxes(1, 2), d).tolist()


def test_bytes_outside_of_shared_memory() -> None:
    """The second half of K lies beyond the end."""
    body = " .shared .align 1024 .b8 s[1024]; .reg .u32 a;\n"
    body += " mov.u32 a, s; cvt.u64.u32 %rd0, a; shr.u64 %rd0, %rd0, 4;\n"
    body += f" add.u64 %rd0, %rd0, {descriptor(0, 1024, 128)}; mov.u32 %r0, %tid.x; mad.lo.u32 %r1, %r0, 8, a;\n"
    body += " mov.u64 %rd1, 0; st.shared.u64 [%r1], %rd1; fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;\n"
    body += f" wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, {A}, %rd0, 1, 1, 1, 1;"
    with pytest.raises(Fault, match="reads 16 bytes at byte 1024 of shared memory, which has 1024 bytes"):
        run_ptx(kernel(body, 0), {}, block=128)
