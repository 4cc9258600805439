"""`tcgen05.ld` and `st` against the manual's figures, register by register: every shape, number and packing.

Also allocation, waits and fences, without which none of them runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault

pytestmark = pytest.mark.covers("tcgen05.")

COLUMNS = 512
NUMBERS = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
EACH = {"16x128b": 2, "16x256b": 4}  # registers of x1, where it is not one
SPLIT = 64  # columns between the halves of 16x32bx2
FORMS = [(shape, packed) for shape in NUMBERS for packed in (False, True) if not (packed and shape == "16x32bx2")]


def place(shape: str, thread: int, register: int) -> tuple[int, int]:
    """Lane, from the first on, and column of 32 bits, from the manual's figure of each shape."""
    quad, of_quad = divmod(thread, 4)
    if shape == "32x32b":
        return thread, register
    if shape == "16x64b":  # two threads of a quad have a row, the other two the row 8 below
        return quad + (8 if of_quad in (1, 3) else 0), 2 * register + of_quad // 2
    if shape == "16x128b":
        pair, lower = divmod(register, 2)
        return quad + 8 * lower, 4 * pair + of_quad
    if shape == "16x256b":
        four, within = divmod(register, 4)
        return quad + (0, 0, 8, 8)[within], 8 * four + 2 * of_quad + (0, 1, 0, 1)[within]
    return thread % 16, register + (SPLIT if thread > 15 else 0)


def begin(columns: int = COLUMNS) -> str:
    """Allocate, and put the address, with the lane of each warp, in %r1; %rd1 is the thread's row of the output."""
    return f""" .shared .align 4 .b8 where[4]; .reg .b32 v<128>;
 mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32;
 @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], {columns};
 @%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
 tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
 ld.shared.u32 %r2, [where]; shr.u32 %r3, %r0, 5; shl.b32 %r4, %r3, 21; add.u32 %r1, %r2, %r4;
"""


def end(columns: int = COLUMNS) -> str:
    return f" bar.sync 0;\n @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, {columns};\n"


def registers(count: int) -> str:
    return "{" + ", ".join(f"v{i}" for i in range(count)) + "}"


def to_global(count: int, parameter: int, start: int, stride: int) -> str:
    """Store registers in a thread's row of a parameter, rows of `stride` words, from word `start` on."""
    lines = [f" ld.param.u64 %rd0, [p{parameter}]; mad.wide.u32 %rd1, %r0, {4 * stride}, %rd0;"]
    lines += [f" st.global.u32 [%rd1+{4 * (start + i)}], v{i};" for i in range(count)]
    return "\n".join(lines)


def from_global(count: int, parameter: int, start: int, stride: int) -> str:
    lines = [f" ld.param.u64 %rd0, [p{parameter}]; mad.wide.u32 %rd1, %r0, {4 * stride}, %rd0;"]
    lines += [f" ld.global.u32 v{i}, [%rd1+{4 * (start + i)}];" for i in range(count)]
    return "\n".join(lines)


FILL = "".join(
    f"{from_global(128, 0, start, COLUMNS)}\n"
    f" tcgen05.st.sync.aligned.32x32b.x128.b32 [%r1+{start}], {registers(128)};\n"
    for start in range(0, COLUMNS, 128)
)
FILL += " tcgen05.wait::st.sync.aligned;\n"
DUMP = "".join(
    f" tcgen05.ld.sync.aligned.32x32b.x128.b32 {registers(128)}, [%r1+{start}];\n tcgen05.wait::ld.sync.aligned;\n"
    f"{to_global(128, 1, start, COLUMNS)}\n"
    for start in range(0, COLUMNS, 128)
)
SHAPED = " and.b32 %r5, %r3, 1; shl.b32 %r5, %r5, {shift}; add.u32 %r6, %r1, %r5;\n"  # odd warps take lanes from 16 on


def counts(shape: str) -> list[int]:
    return [1 << i for i in range(NUMBERS[shape].bit_length())]


def first_lane(shape: str, warp: int) -> int:
    return 32 * warp + (16 * (warp % 2) if shape != "32x32b" else 0)


def address(shape: str) -> str:
    return " mov.u32 %r6, %r1;\n" if shape == "32x32b" else SHAPED.format(shift=20)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "packed"), FORMS)
def test_every_load(shape: str, packed: bool) -> None:
    each = EACH.get(shape, 1)
    offset = sum(number * each for number in counts(shape))
    body, start = begin() + FILL + address(shape), 0
    for number in counts(shape):
        split = f", {SPLIT}" if shape == "16x32bx2" else ""
        name = f"tcgen05.ld.sync.aligned.{shape}.x{number}{'.pack::16b' * packed}.b32"
        body += f" {name} {registers(number * each)}, [%r6]{split};\n tcgen05.wait::ld.sync.aligned;\n"
        body += to_global(number * each, 1, start, offset) + "\n"
        start += number * each
    memory = np.random.default_rng(1).integers(0, 1 << 32, (128, COLUMNS), np.uint32)
    out = np.zeros((128, offset), np.uint32)
    run(kernel(body + end(), 2), {"in": memory, "out": out}, block=128)
    for thread in range(128):
        at = 0
        for number in counts(shape):
            for register in range(number * each):
                lane, column = place(shape, thread % 32, register)
                lane += first_lane(shape, thread // 32)
                right = memory[lane, column]
                if packed:
                    low, high = memory[lane, 2 * column] & 0xFFFF, memory[lane, 2 * column + 1] & 0xFFFF
                    right = low | high << np.uint32(16)
                assert out[thread, at] == right, (thread, number, register)
                at += 1


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "packed"), FORMS)
def test_every_store(shape: str, packed: bool) -> None:
    """The numbers in descending order, each over the last, so that a number shows where it wrote last."""
    each, most = EACH.get(shape, 1), NUMBERS[shape] * EACH.get(shape, 1)
    body = begin() + FILL + address(shape)
    for number in counts(shape)[::-1]:
        split = f", {SPLIT}" if shape == "16x32bx2" else ""
        name = f"tcgen05.st.sync.aligned.{shape}.x{number}{'.unpack::16b' * packed}.b32"
        body += from_global(number * each, 2, 0, most) + f"\n add.u32 v0, v0, {number};"
        body += f" {name} [%r6]{split}, {registers(number * each)};\n tcgen05.wait::st.sync.aligned;\n"
    rng = np.random.default_rng(2)
    memory, given = (rng.integers(0, 1 << 32, (128, n), np.uint32) for n in (COLUMNS, most))
    out = np.zeros((128, COLUMNS), np.uint32)
    run(kernel(body + DUMP + end(), 3), {"in": memory, "out": out, "given": given}, block=128)
    wanted = memory.copy()
    for number in counts(shape)[::-1]:
        for thread in range(128):
            for register in range(number * each):
                lane, column = place(shape, thread % 32, register)
                lane += first_lane(shape, thread // 32)
                value = int(given[thread, register]) + (number if register == 0 else 0) & 0xFFFFFFFF
                if packed:
                    wanted[lane, 2 * column : 2 * column + 2] = value & 0xFFFF, value >> 16
                else:
                    wanted[lane, column] = value
    assert (out == wanted).all()


# ---- faults ---------------------------------------------------------------------------------------------------------

READ = " tcgen05.ld.sync.aligned.32x32b.x1.b32 {v0}, [%r1];\n tcgen05.wait::ld.sync.aligned;\n"
LOAD = READ.split("\n")[0]
WRITE = " mov.u32 v0, 7; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {v0};\n"
WAIT = " tcgen05.wait::st.sync.aligned;\n"
ALLOCATE = " @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], "


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (begin(32) + READ + end(32), "unwritten_read", "reads lane 0, column 0 of tensor memory, which nothing wrote"),
        (begin(32) + WRITE + READ + end(32), "race",
         r"reads lane 0, column 0 of tensor memory that the tcgen05.st of the warp of thread \(0, 0, 0\) at ptx:\d+ "
         "may still write: no tcgen05.wait::st of its warp"),
        (begin(32) + WRITE + WAIT + READ.replace("[%r1]", "[%r1+32]") + end(32), "out_of_bounds",
         r"reads column 32 of tensor memory, which is not allocated: allocated are 0 to 31 at ptx:\d+"),
        (begin(32) + end(32) + " bar.sync 0;\n" + WRITE, "out_of_bounds", r"column 0 .* which was freed at ptx:\d+"),
        (begin(32) + WRITE.replace("[%r1]", "[%r2]"), "out_of_bounds",
         "writes lanes 0 to 31 of tensor memory, and a warp of this rank in its warpgroup reaches lanes 32 to 63"),
        (begin(32) + WRITE.replace("32x32b", "16x64b").replace("[%r1]", "[%r1+524288]"), "misaligned",
         "from lane 8 on, which is not a multiple of 16"),
        (begin(32) + " bar.sync 0;\n" + ALLOCATE + "32;\n", "tensor_memory",
         r"after its block gave up the right to, at ptx:\d+"),
        (begin(32), "tensor_memory", "columns 0 to 31 of tensor memory, and its block exits without a tcgen05.dealloc"),
        (begin(48) + end(48), "tensor_memory", "allocates 48 columns .* power of two from 32 to 512"),
        (begin(64) + end(32), "tensor_memory", "frees 32 columns .* allocated are 0 to 63"),
        (begin(32) + end(32) + end(32), "tensor_memory", r"none is allocated, and column 0 was freed at ptx:\d+"),
        (begin(512).replace(" @%p0 tcgen05.relinq", ALLOCATE + "32;\n @%p0 tcgen05.relinq"), "deadlock",
         r"waits for 32 columns .* allocated are 0 to 511 at ptx:\d+"),
        (begin(32) + WRITE + end(32), "race", "frees lane 0, column 0 of tensor memory that the tcgen05.st"),
        (begin(32) + WRITE + WAIT + LOAD + " mov.u32 v0, 1; bar.sync 0;\n" + end(32), "race",
         r"mov.u32 writes a register that the tcgen05.ld at ptx:\d+ may still write: it was not read since, and no"),
        (begin(32) + WRITE + WAIT + LOAD + LOAD.strip() + "\n" + end(32), "race",
         "tcgen05.ld.* writes a register that the tcgen05.ld at"),
        (begin(32) + WRITE + WAIT + LOAD + " @!%p0 add.u32 v1, v0, 1; mov.u32 v0, 1;\n" + end(32), "race",
         "mov.u32 writes a register"),
    ],
)  # fmt: skip
def test_faults(body: str, kind: str, says: str) -> None:
    with pytest.raises(Fault, match=says) as found:
        run(kernel(body, 0), {}, block=128)
    assert found.value.kind == kind


def test_an_address_may_be_stored_through_a_generic_one() -> None:
    generic = " mov.u64 %rd2, where; cvta.shared.u64 %rd2, %rd2;\n @%p0 tcgen05.alloc"
    body = begin(32).replace(" @%p0 tcgen05.alloc", generic)
    body = body.replace("shared::cta.b32 [where]", "b32 [%rd2]") + WRITE + WAIT + READ + to_global(1, 0, 0, 1) + "\n"
    out = np.zeros((128, 1), np.uint32)
    run(kernel(body + end(32), 1), {"out": out}, block=128)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("between", "wanted"),
    [
        (" mov.u32 v1, v0;", 7),
        (" add.u32 v1, v0, 1;", 8),
        (" mov.u32 v2, v0; xor.b32 v1, v2, 1;", 6),
        (" add.u32 v0, v0, 1; mov.u32 v1, v0; mov.u32 v0, 7;", 8),
        (" mov.u32 v1, 0; @%p0 add.u32 v1, v0, 1; @%p0 mov.u32 v0, 7;", 8),
        (" bar.sync 0; add.u32 v1, v0, 1;" + LOAD, 8),
    ],
    ids=["copied", "added to", "copied and used", "read and written", "read by some lanes", "loaded again"],
)
def test_a_loaded_register_may_be_read_before_the_wait(between: str, wanted: int) -> None:
    """The PTX ISA keeps the order of a load and of what reads its register, "register dependencies, same thread"."""
    body = begin(32) + WRITE + WAIT + LOAD + between + " tcgen05.wait::ld.sync.aligned;\n" + to_global(2, 0, 0, 2)
    out = np.zeros((128, 2), np.uint32)
    run(kernel(body + "\n" + end(32), 1), {"out": out}, block=128)
    assert (out[:, 0] == 7).all()
    assert (out[:32, 1] == wanted).all()
