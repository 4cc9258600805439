"""What a kernel of Triton does wrong is an exception that names the line of its `.py`, and the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ptx_emulator
from ptx_emulator.errors import LaunchError, UsageError

triton = pytest.importorskip("triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it")
torch = pytest.importorskip("torch")

import kernels as k  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

LINES = Path(k.__file__).read_text().splitlines()


@pytest.fixture(autouse=True)
def on(request: pytest.FixtureRequest) -> Iterator[object]:
    with ptx_emulator.triton_on("sm_100a") as run:
        yield run


def found(call: Callable[[], object], kind: str, kernel: str, line: str, *words: str) -> None:
    """line: how it ends"""
    with pytest.raises(ptx_emulator.Fault) as raised:
        call()
    number = next(number for number, text in enumerate(LINES, 1) if text.endswith(line))
    assert (raised.value.kind, raised.value.where) == (kind, f"kernels.py:{number}")
    for word in (f"; {kernel}, grid (", *words):
        assert word in str(raised.value)


def test_out_of_bounds():
    x, out = torch.ones(1000), torch.zeros(1000)
    found(lambda: k.store_out_of_bounds[(4,)](x, out, 1000, BLOCK=256), "out_of_bounds", "store_out_of_bounds",
          "# no mask", "writes 8 bytes at byte 4000 of buffer 'out', which has 4000 bytes")  # fmt: skip


def test_bounds_are_those_of_the_storage():
    whole, x = torch.zeros(1024), torch.ones(1000)
    k.store_out_of_bounds[(4,)](x, whole[:1000], 1000, BLOCK=256)
    assert whole[:1000].equal(x)


def test_a_line_of_a_helper_and_who_called_it():
    call = next(number for number, text in enumerate(LINES, 1) if text.endswith("# calls it"))
    found(lambda: k.store_out_of_bounds_in_a_helper[(1,)](torch.zeros(8), 16), "out_of_bounds",
          "store_out_of_bounds_in_a_helper", "# of a helper", f"inlined at kernels.py:{call}")  # fmt: skip


def test_a_race_of_programs():
    found(lambda: k.store_race[(4,)](torch.ones(1000), torch.zeros(1), 1000, BLOCK=256), "race", "store_race",
          "# each program's", "global bytes that block (", ", 0, 0) wrote at kernels.py")  # fmt: skip


def test_a_race_of_threads():
    found(lambda: k.shift_in_place[(1,)](torch.ones(129), 128), "race", "shift_in_place",
          "# what another thread still loads", "read at kernels.py")  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
def test_what_the_compiler_does_is_reported_if_asked(strict: bool):
    with ptx_emulator.triton_on("sm_100a", strict=strict):
        for call, kind in (
            (lambda: k.double_in_place[(1,)](torch.ones(16), 16), "race"),
            (lambda: k.copy_by_descriptor[(1, 1)](*described(torch.ones(16, 32), torch.zeros(16, 32)), 16, 32), "race"),
            (lambda: k.matmul[(1, 1)](*torch.ones(3, 16, 16).bfloat16(), 16, 16, 16, 16, 16, 16), "race"),
        ):
            if strict:
                with pytest.raises(ptx_emulator.Fault) as raised:
                    call()
                assert raised.value.kind == kind
            else:
                call()


def described(*tensors: torch.Tensor) -> list[TensorDescriptor]:
    return [TensorDescriptor.from_tensor(each, [16, 32]) for each in tensors]


def test_misaligned():
    found(
        lambda: k.misalign[(1,)](torch.zeros(256)), "misaligned", "misalign", "# 8 bytes at byte 4", "of buffer 'out'"
    )


def test_an_assertion():
    found(lambda: k.asserts[(1,)](torch.tensor([3]), 3, debug=True), "assertion", "asserts",
          '"x is too large")', "`x is too large` is false")  # fmt: skip
    k.asserts[(1,)](torch.tensor([3]), 4, debug=True)


def test_what_is_printed_can_be_taken():
    lines: list[str] = []
    with ptx_emulator.triton_on("sm_90a", echo=lines.append):
        k.prints[(1,)](torch.tensor([3]), num_warps=1)
    assert len(lines) == 32 and all(line.endswith("x is: 3\n") for line in lines)


def read(partial: torch.Tensor) -> torch.Tensor:
    out = torch.empty(1000)
    k.read_unwritten[(4,)](torch.ones(1000), partial, out, 1000, BLOCK=256)
    return out


def unwritten(partial: torch.Tensor) -> None:
    found(lambda: read(partial), "unwritten_read", "read_unwritten", "# perhaps of nobody", "buffer 'partial'")


@pytest.mark.parametrize("make", [
    lambda: torch.empty(1000),
    lambda: torch.empty_like(torch.ones(1000)),
    lambda: torch.ones(3).new_empty(1000),
    lambda: torch.empty_strided((1000,), (1,)),
    lambda: torch.empty(2000)[1000:],
])  # fmt: skip
def test_what_torch_has_not_written_may_not_be_read(make: Callable[[], torch.Tensor]):
    unwritten(make())


def test_a_part_that_torch_wrote_may_be_read():
    partial = torch.empty(1000)
    partial[:998] = 1
    unwritten(partial)
    partial[998:].copy_(torch.ones(2))
    assert read(partial).equal(torch.full((1000,), 2.0))


@pytest.mark.parametrize("write", [
    lambda x: x.fill_(1),
    lambda x: torch.add(torch.zeros(1000), 1, out=x),
    lambda x: x.numpy().fill(1),
    lambda x: torch.from_dlpack(x).fill_(1),
    lambda x: torch._foreach_add_([x.zero_()], 1),
    lambda x: x.index_put_((torch.arange(1000),), torch.ones(1000)),
])  # fmt: skip
def test_whatever_wrote_it(write: Callable[[torch.Tensor], object]):
    partial = torch.empty(1000)
    write(partial)
    assert read(partial).equal(torch.full((1000,), 2.0))


def test_what_a_kernel_wrote_may_be_read(on: object):
    partial, x = torch.empty(1000), torch.ones(1000)
    k.add[(3,)](x, x, partial, 700, BLOCK=256)
    assert (on.unwritten(partial), on.unwritten(partial[:700]), on.unwritten(x)) == (1200, 0, 0)
    unwritten(partial)
    k.add[(4,)](x, x, partial, 1000, BLOCK=256)
    assert read(partial).equal(torch.full((1000,), 3.0))


def test_memory_that_is_used_again_is_new():
    for _ in range(3):
        partial = torch.empty(1000)
        unwritten(partial)
        partial.fill_(1)
        read(partial)
        del partial


def test_nothing_is_followed_if_not_asked():
    with ptx_emulator.triton_on("sm_100a", unwritten=False):
        read(torch.empty(1000))  # of the block within
    read(torch.zeros(1000))


def test_what_the_emulator_lacks_is_named():
    a, c = torch.ones(64, 64, dtype=torch.int8), torch.zeros(64, 64, dtype=torch.int32)
    with pytest.raises(ptx_emulator.NotEmulated, match=r"product: not emulated: mma\.sync\S*s8\S* at kernels\.py:\d+"):
        k.product[(1,)](a, a, c, 64, 64, 64)


def test_too_much_shared_memory_is_tritons_own_error():
    a, c = torch.ones(128, 128).half(), torch.zeros(128, 128)
    with pytest.raises(triton.runtime.errors.OutOfResources):
        k.matmul[(1, 1)](a, a, c, 128, 128, 128, 128, 128, 128, num_stages=5)


def test_memory_of_its_own_needs_an_allocator():
    triton.set_allocator(triton.runtime._allocation.NullAllocator())
    with pytest.raises(LaunchError, match="call triton.set_allocator"):
        k.copy_by_own_descriptor[(1, 1)](torch.ones(16, 32), torch.zeros(16, 32), 16, 32, 16, 32)


@pytest.mark.parametrize("make, sentence", [
    (lambda: torch.empty(9, device="meta"), "'x' is on meta; triton_on runs kernels on tensors of the CPU"),
    (lambda: torch.frombuffer(bytearray(8011), dtype=torch.uint8, offset=3, count=8000), None),
])  # fmt: skip
def test_memory_that_cannot_be_lent(make: Callable[[], torch.Tensor], sentence: str | None):
    x = make()
    if sentence is None:
        if x.untyped_storage().data_ptr() % 16 == 0:
            pytest.skip("this allocator put byte 3 at a multiple of 16")
        sentence = "the memory of 'x' does not begin at a multiple of 16 bytes; clone it"
    with pytest.raises(UsageError, match=sentence):
        k.double_in_place[(1,)](x, 8)


def test_a_launch_that_may_begin_early_is_refused():
    x = torch.ones(4)
    with pytest.raises(ptx_emulator.NotEmulated, match="launch_pdl lets a kernel begin before the one ahead has ended"):
        k.add[(1,)](x, x, torch.zeros(4), 4, BLOCK=16, launch_pdl=True)


def test_a_cooperative_grid_that_no_gpu_holds_is_refused():
    x, out = torch.ones(4), torch.zeros(4)
    k.add[(1,)](x, x, out, 4, BLOCK=16, launch_cooperative_grid=True)
    assert out.tolist() == [2, 2, 2, 2]
    with pytest.raises(ptx_emulator.LaunchError, match="a cooperative launch of 9,999 CTAs of .* threads is too large"):
        k.add[(9999,)](x, x, out, 4, BLOCK=16, launch_cooperative_grid=True)
