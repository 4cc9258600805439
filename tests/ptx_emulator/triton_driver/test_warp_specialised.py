"""`tl.range(..., warp_specialize=True)`: Triton parts the warps, and hands them work through barriers by number."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import kernels as k  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

import ptx_emulator  # noqa: E402
from ptx_emulator.launches import Module  # noqa: E402
from ptx_emulator.triton_driver import driver  # noqa: E402

ROWS, COLUMNS, DEPTH, STEP = 128, 64, 320, 64


def product(target: str, of_host: bool, rows: int = ROWS) -> tuple[bool, int]:
    """Whether a product of small integers is exact, and the threads of its launch."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, (n, DEPTH), generator=generator).half() for n in (2 * rows, COLUMNS))
    c = torch.empty(2 * rows, COLUMNS, dtype=torch.float16)
    with ptx_emulator.triton_on(target) as run:
        if of_host:
            boxes = ((a, [rows, STEP]), (b, [COLUMNS, STEP]), (c, [rows, COLUMNS]))
            descriptors = [TensorDescriptor.from_tensor(tensor, box) for tensor, box in boxes]
            k.parted_matmul[(2, 1)](*descriptors, DEPTH, rows, COLUMNS, STEP)
        else:
            triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
            args = (a, b, c, 2 * rows, COLUMNS, DEPTH, rows, COLUMNS, STEP)
            ptx = k.parted_matmul_of_pointers.warmup(*args, grid=(2, 1)).asm["ptx"]
            # Before Triton 3.7, copies on sm_100a lie where the descriptors were made, and no fence is between.
            if target == "sm_100a" and ptx.count("fence.proxy.async") < 2:
                with pytest.raises(
                    ptx_emulator.Fault, match="copies to shared bytes that .* with no fence.proxy.async"
                ):
                    k.parted_matmul_of_pointers[(2, 1)](*args)
                pytest.skip("this Triton leaves a fence out, which the emulator reports; Triton 3.7 has it")
            k.parted_matmul_of_pointers[(2, 1)](*args)
    return c.double().equal(a.double() @ b.double().T), run.launches[0].threads


@pytest.mark.parametrize(("target", "of_host", "rows", "threads"), [
    ("sm_100a", True, 128, 256), ("sm_100a", False, 128, 256), ("sm_90a", False, 128, 384),
    ("sm_90a", True, 64, 384),  # two warpgroups store the same tile
])  # fmt: skip
def test_a_product(target: str, of_host: bool, rows: int, threads: int):
    assert product(target, of_host, rows) == (True, threads)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_pipeline_without_a_product(target: str):
    x, out = torch.randn(4, 512), torch.empty(4, 512)
    with ptx_emulator.triton_on(target):
        k.parted_scale[(4,)](TensorDescriptor.from_tensor(x, [1, 128]), out, 512, 128)
    assert out.equal(x * 2 + 1)


_WAIT = r"waitLoop:\s*mbarrier\.try_wait[^;]*;\s*@!complete bra\.uni waitLoop;"


@pytest.mark.parametrize(("of", "pattern", "to", "kinds"), [
    (3, _WAIT, "", {"race", "unwritten_read"}),
    (2, _WAIT, "", {"race", "unwritten_read"}),  # the products wait for no load
    (4, _WAIT, "", {"race", "mbarrier"}),  # the loads wait for no product that still reads their buffer
    (0, r"(mbarrier\.arrive\.expect_tx\S+ _, \[%r\d+\], )(\d+);", r"\g<1>64;", {"mbarrier"}),
    (0, r"fence\.proxy\.async\.shared::cta;", "", {"race"}),
    (1, r"barrier\.sync \t1;", "barrier.sync 2;", {"divergent_barrier"}),
])  # fmt: skip
def test_a_broken_twin(of: int, pattern: str, to: str, kinds: set[str], monkeypatch: pytest.MonkeyPatch):
    """Triton's PTX with one synchronisation gone. of: which of the places that match is changed"""

    def edited(text: str, cache: object) -> Module:
        found = list(re.finditer(pattern, text))[of]
        return Module(text[: found.start()] + found.expand(to) + text[found.end() :], cache)

    def forget(function: Callable) -> None:
        function.device_caches.clear()

    forget(k.parted_matmul)
    monkeypatch.setattr(driver, "Module", edited)
    with pytest.raises(ptx_emulator.Fault) as raised:
        product("sm_100a", True)
    forget(k.parted_matmul)
    assert raised.value.kind in kinds
