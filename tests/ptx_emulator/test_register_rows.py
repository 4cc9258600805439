"""Registers that take turns in one row of a file: no two that live at once, and no lane loses what it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from both_paths import both
from cuda_source import ptx
from ptx_snippets import kernel
from test_compiled_launches import EXCHANGE
from test_kernels import QUANTIZE, TRANSPOSE
from test_tensor_core_kernel import GEMM
from test_wgmma_hazards import source

from ptx_emulator import allocation
from ptx_emulator.launches import Module
from ptx_emulator.machine.basic_blocks import Block, DecodedStep, Terminator

# Lanes below 32 wait at their barrier with a 32-bit value in a row; the others use it for a narrower register.
WAITING = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mul.wide.u32 %rd2, %r0, 4;
 add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2; ld.global.u32 %r1, [%rd3]; cvt.u16.u32 %rs1, %r0; mov.u16 %rs2, 3;
 setp.lt.u32 %p1, %r0, 40; setp.ge.u32 %p0, %r0, 32; @%p0 bra $others;
 add.u32 %r5, %r1, 1;
 bar.sync 1, 64;
 st.global.u32 [%rd4], %r5; bra $end;
$others:
 NARROW
 bar.arrive 1, 64;
 st.global.u32 [%rd4], %r9;
$end:
"""
NARROW = {
    "numpy, 16 bits": ("%rs5", "add.u16 %rs5, %rs1, %rs2; cvt.u32.u16 %r9, %rs5;"),
    "numpy, 16 bits, guarded": ("%rs5", "mov.u16 %rs5, 0; @%p1 add.u16 %rs5, %rs1, %rs2; cvt.u32.u16 %r9, %rs5;"),
    "numpy, 8 bits": ("byte", "cvt.sat.u8.u16 byte, %rs1; cvt.u32.u8 %r9, byte;"),
    "numpy, a predicate": ("%p5", "setp.eq.and.u16 %p5, %rs1, %rs2, %p1; selp.u32 %r9, 5, 6, %p5;"),
    "compiled, 16 bits": ("%rs5", "cvt.u16.u32 %rs5, %r1; cvt.u32.u16 %r9, %rs5;"),
    "compiled, a predicate": ("%p5", "setp.lt.u32 %p5, %r1, %r0; selp.u32 %r9, 5, 6, %p5;"),
    "a load of 16 bits": ("%rs5", "ld.global.u16 %rs5, [%rd3]; cvt.u32.u16 %r9, %rs5;"),
    "a load of a byte by numpy": ("byte", "ld.volatile.global.b8 byte, [%rd3]; cvt.u32.u8 %r9, byte;"),
}


@pytest.mark.parametrize("name", NARROW)
def test_a_narrow_register_leaves_the_row_to_lanes_that_hold_a_wide_one(name: str) -> None:
    narrow, line = NARROW[name]
    text = Module(kernel(" .reg .b8 byte;\n" + WAITING.replace("NARROW", line), 2))
    code = text.code("k")
    (wide, _), (slot, _) = map(code.emitter.named, ("%r5", narrow))
    assert code.resources.rows[wide] == code.resources.rows[slot], "the case needs both in one row"
    values = np.random.default_rng(0).integers(1 << 31, 1 << 32, 64, dtype=np.uint32)
    got = both(text, {"in": values, "out": np.zeros(64, np.uint32)})
    assert got.fault is None
    np.testing.assert_array_equal(got.arrays["out"][:32], values[:32] + np.uint32(1))


def test_a_branch_to_the_next_instruction_has_one_successor() -> None:
    """A loop around it visits it again whenever a register turns out to be live."""
    branch = """ mov.u32 %r1, 0; mov.u32 %r2, 3; setp.eq.u32 %p0, %r1, 0;
$loop:
 @%p0 bra $next;
$next:
 add.u32 %r1, %r1, %r2; setp.lt.u32 %p1, %r1, 9; @%p1 bra $loop;
 ld.param.u64 %rd0, [p0]; st.global.u32 [%rd0], %r1;
"""
    got = both(Module(kernel(branch, 1)), {"out": np.zeros(32, np.uint32)}, block=32)
    assert got.fault is None
    assert got.arrays["out"][0] == 9


def reads_of(terminator: Terminator) -> set[int]:
    """Every slot that ends a block or is needed there, the result of a `bar.red` among them."""
    named = {getattr(terminator, name, None) for name in ("predicate", "register", "number", "count")}
    return (named | set((getattr(terminator, "reduction", None) or ())[1:])) - {None}


def targets_of(terminator: Terminator) -> set[int]:
    single = {getattr(terminator, name, None) for name in ("target", "otherwise")}
    return (single | set(getattr(terminator, "targets", ()))) - {None}


def live_sets(blocks: list[Block], steps: list[list[DecodedStep]]) -> Iterator[tuple[DecodedStep | None, set[int]]]:
    """Each step with the slots that are read later on some path, and None with those at a block's entry."""
    entry: dict[int, set[int]] = defaultdict(set)
    while True:
        found: list[tuple[DecodedStep | None, set[int]]] = []
        before = {number: set(live) for number, live in entry.items()}
        for number, block in enumerate(blocks):
            live = reads_of(block.terminator).union(*(entry[target] for target in targets_of(block.terminator)))
            for step in reversed(steps[number]):
                found.append((step, set(live)))
                live = (live - step.writes) | step.reads
            entry[number] = live | ({block.membermask} - {None})
            found.append((None, set(entry[number])))
        if entry == before:
            yield from found
            return


def clashes(monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[int, list[str]]:
    """How many slots share rows in the kernel `k`, and which do though both are needed."""
    seen: list[tuple] = []
    rows = allocation.rows

    def noted(blocks: list[Block], steps: list[list[DecodedStep]], kinds: list[np.dtype]):
        seen.append((blocks, steps, kinds, rows(blocks, steps, kinds)))
        return seen[-1][-1]

    monkeypatch.setattr(allocation, "rows", noted)
    Module(text).code("k")
    ((blocks, steps, kinds, (row_of, counts, _)),) = seen
    found = []
    for step, live in live_sets(blocks, steps):
        together = [live, (live | step.writes), (step.reads | step.writes)] if step else [live]
        for slots in together:
            places = [(kinds[slot].itemsize == 8, row_of[slot]) for slot in slots if slot >= 0]
            if len(set(places)) < len(places):
                found.append(f"{step}: {sorted(slots)}")
    return len(kinds) - sum(counts), found


KERNELS = {"quantize": QUANTIZE, "transpose": TRANSPOSE, "gemm": GEMM, "exchange": EXCHANGE, "wgmma": source()}


@pytest.mark.parametrize("name", KERNELS)
def test_registers_that_live_at_once_have_rows_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing, found = clashes(monkeypatch, ptx(KERNELS[name]))
    assert not found
    assert sharing > 0


def test_a_loop_keeps_the_row_of_what_it_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """%r3 is written behind the last use of %r1 in the text, and %r1 is read again in the next round."""
    body = """ mov.u32 %r0, 0; mov.u32 %r1, 5;
$again: add.u32 %r2, %r1, %r0; mov.u32 %r3, %r2; add.u32 %r0, %r3, 1; setp.lt.u32 %p0, %r0, 50; @%p0 bra $again;
 ld.param.u64 %rd0, [p0]; st.global.u32 [%rd0], %r0;"""
    assert clashes(monkeypatch, kernel(body, 1))[1] == []
    got = both(Module(kernel(body, 1)), {"out": np.zeros(1, np.uint32)}, block=32, sanitize=False)
    assert got.arrays["out"][0] == 54


def test_a_special_register_of_an_instruction_that_is_not_emulated_takes_no_row() -> None:
    body = """ mov.u32 %r0, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r0, %r1, %r2, %r0;
 ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r0;
 setp.ne.u64 %p0, %rd0, 0; @%p0 bra $end; sub.f32 %f1, %laneid, 5;
$end:"""
    text = Module(kernel(body, 1))
    assert "%laneid" not in text.code("k").resources.specials
    got = both(text, {"out": np.zeros(128, np.uint32)}, grid=2)
    np.testing.assert_array_equal(got.arrays["out"], np.arange(128))
