"""Decode a kernel: cut it into basic blocks, decode instructions, branches and barriers, and give registers their rows.

Instructions with a compiled form become rows of one program, cut into segments of straight-line code; their NumPy steps
are decoded again when one is wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from ptx_emulator import allocation
from ptx_emulator.compiled import layout
from ptx_emulator.instructions import (
    bulk_copy,
    calls,
    cluster,
    cluster_launch,
    cp_async,
    load_store,
    mbarrier,
    mma,
    moves,
    tcgen05,
    tensormap,
    terminators,
    warp_sync,
    wgmma,
    wmma,
)
from ptx_emulator.instructions.arithmetic import arithmetic
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.steps import unsupported
from ptx_emulator.machine.basic_blocks import (
    WHOLE_WARPGROUP,
    Block,
    Code,
    DecodedStep,
    Fast,
    Jump,
    Origin,
    Segment,
    Step,
    Terminator,
)
from ptx_emulator.machine.launch_state import Hazard, Resources
from ptx_emulator.ptx import targets
from ptx_emulator.ptx.limits import UNREADABLE
from ptx_emulator.ptx.syntax import Instruction, Kernel, Name, Variable, Vector
from ptx_emulator.stored import pack, unpack

DECODERS: dict[str, Decoder] = {
    head: decoder
    for family in (
        calls,
        moves,
        load_store,
        cp_async,
        warp_sync,
        mma,
        wgmma,
        wmma,
        mbarrier,
        bulk_copy,
        cluster,
        cluster_launch,
        cluster_launch,
        tensormap,
        tcgen05,
    )  # fmt: skip
    for head, decoder in family.DECODERS.items()
}
# Kernels with one of these need clocks for each thread, and leave memory and warps to NumPy.
_ASYNCHRONOUS = (
    "mbarrier.",
    "cp.async.bulk.",
    "cp.reduce.",
    "barrier.cluster.",
    "mapa",
    "getctarank",
    "st.async",
    "red.async",
    "tensormap.",
    "tcgen05.",
    "clusterlaunchcontrol.",
)
# Words of the instructions that may use shared memory of another block, so that addresses need the block's rank.
_REACHES = ("cluster", "mapa", "getctarank", "cta_group::2")
TOGETHER = 256  # instructions that are unpacked together
_LEFT_TO_NUMPY = ("ld.", "st.", "atom.", "red.", "shfl.", "vote.", "redux.", "match.", "bar.", "elect.")
_COMPILED = ("ld.param", "ld.const", "ld.local", "st.local")

# Operand counts of the instructions whose decoders only look at the first operands.
_OPERANDS = {
    **dict.fromkeys(("ret", "exit", "trap", "membar"), 0), **dict.fromkeys(("bra", "activemask"), 1),
    **dict.fromkeys(("ld", "ldu", "brx", "elect", "ldmatrix", "stmatrix"), 2), **dict.fromkeys(("vote", "match"), 3),
    "bar.warp.sync": 1,
}  # fmt: skip


class Decoded(Code):
    """A kernel, ready to run, that decodes an instruction again if its NumPy step is wanted.

    origins: (n, 2) int32, of each instruction of the program; emitter: for decoding again, pruned
    wanted: instructions that NumPy does; all are in `packed`, pickled and compressed, and so is the emitter: few of
    them are ever read, and to make thousands of objects takes longer than many a launch
    """

    def __init__(self, resources: Resources, blocks: list[Block], program: np.ndarray, constants: np.ndarray,
                 hazards: np.ndarray, origins: np.ndarray, emitter: Emitter,
                 instructions: list[Instruction]):  # fmt: skip
        super().__init__(resources, blocks, program, constants, hazards)
        self.origins, self.packed_emitter = origins, pack(emitter)
        numbers = {origin.instruction for block in blocks for origin in block.steps if isinstance(origin, Origin)}
        self.wanted = {number: instructions[number] for number in numbers}
        self.packed = [pack(instructions[start : start + TOGETHER]) for start in range(0, len(instructions), TOGETHER)]
        self.leading = {block.first for block in blocks if block.membermask is not None}
        self._steps: dict[Origin, Step] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**{name: value for name, value in self.__dict__.items() if name != "emitter"}, "_steps": {}}

    @cached_property
    def emitter(self) -> Emitter:
        return unpack(self.packed_emitter).filled(self.resources)

    def instruction(self, number: int) -> Instruction:
        if number not in self.wanted:
            start = number // TOGETHER * TOGETHER
            self.wanted = dict(enumerate(unpack(self.packed[number // TOGETHER]), start)) | self.wanted
        return self.wanted[number]

    def slow(self, number: int) -> Step:
        return self.step(Origin(*self.origins[number].tolist()))

    def step(self, origin: Origin) -> Step:
        if origin not in self._steps:
            number = origin.instruction
            decoded = _instruction(self.emitter, number, self.instruction(number), number in self.leading)
            self._steps |= {Origin(number, i): step.run for i, step in enumerate(decoded.steps)}
        return self._steps[origin]


class _Instruction(NamedTuple):
    """A decoded instruction. jump: makes its terminator, if it has one, from the next block and the labels"""

    steps: list[DecodedStep]
    jump: Callable[[int, dict[str, int]], Terminator] | None = None
    membermask: int | None = None


def decode(kernel: Kernel, variables: dict[str, Variable], addresses: dict[str, int], architecture: str = "") -> Code:
    """Decode a kernel. addresses: of the module's variables in global memory; architecture: its target, `sm_90a`"""
    emitter = Emitter(kernel, variables, dict(addresses), architecture)
    emitter.fragments = wgmma.fragments(emitter, kernel)
    fragments = tuple(sorted(emitter.fragments))
    emitter.in_flight = _in_flight(emitter, kernel)
    emitter.rewritten = frozenset().union(*(used for used, _ in emitter.in_flight.values()))
    asynchronous = any(
        each.mnemonic.startswith(_ASYNCHRONOUS) or "shared::cluster" in each.mnemonic for each in kernel.instructions
    )
    emitter.ranked = asynchronous and any(
        word in name for name in {each.mnemonic for each in kernel.instructions} for word in _REACHES
    )
    starts = _leaders(kernel)
    number = {start: i for i, start in enumerate(starts)}
    labels = {label: number.get(at, len(starts)) for label, at in kernel.labels.items()}
    blocks, steps = [], []
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(kernel.instructions)
        block = Block(start, end - start, Counter(each.mnemonic for each in kernel.instructions[start:end]))
        block.terminator = Jump(i + 1)
        steps.append([])
        for at in range(start, end):
            instruction = kernel.instructions[at]
            decoded = _instruction(emitter, at, instruction, at == start and warp_sync.is_warp_wide(instruction))
            slow = asynchronous and instruction.mnemonic.startswith(_LEFT_TO_NUMPY)
            slow = slow and not instruction.mnemonic.startswith(_COMPILED)
            found = [step._replace(fast=None) for step in decoded.steps] if slow else decoded.steps
            steps[-1] += [(Origin(at, k), step) for k, step in enumerate(found)]
            if at == start and mbarrier.is_wait(instruction):
                block.wait = mbarrier.wait_of(emitter, instruction)
            if decoded.jump:
                block.terminator = decoded.jump(i + 1, labels)
            if decoded.membermask is not None:
                block.membermask = decoded.membermask
                block.takes_warpgroup = instruction.mnemonic.startswith(WHOLE_WARPGROUP)
        blocks.append(block)
    blocks.append(Block(len(kernel.instructions), 0, {}))  # execution falls off the end
    steps.append([])
    rows, row_counts, entry = allocation.rows(blocks, [[step for _, step in each] for each in steps], emitter.kinds)
    program, origins = _compile(blocks, steps, emitter, rows)
    resources = Resources(
        kernel=replace(kernel, instructions=[], registers={}),
        kinds=emitter.kinds,
        rows=rows,
        row_counts=row_counts,
        constants=emitter.constants,
        # A special register that only instructions that are not emulated use has no row.
        specials={name: slot for name, slot in emitter.specials.items() if slot in entry},
        undefined=tuple(sorted(entry - set(emitter.specials.values()))),
        accesses=emitter.accesses,
        shared_size=emitter.shared_size,
        local_size=emitter.local_size,
        parameter_offsets=emitter.parameter_offsets,
        parameter_size=emitter.parameter_size,
        cell_shared=emitter.cells["shared"],
        cell_global=emitter.cells["global"],
        fragments=fragments,
        hazards=emitter.hazards,
        asynchronous=asynchronous,
        ranked=emitter.ranked,
        relaxed=any(
            each.mnemonic.startswith(("mbarrier.", "barrier.cluster.")) and ".relaxed" in each.mnemonic
            for each in kernel.instructions
        ),
        lacking=targets.lacking(kernel, architecture),
    )
    constants = np.array([int(value.item()) for value in emitter.constants], np.uint64)
    hazards = _hazards(emitter.hazards, fragments)
    return Decoded(resources, blocks, program, constants, hazards, origins, emitter.prune(), kernel.instructions)


def _in_flight(emitter: Emitter, kernel: Kernel) -> dict[int, tuple[frozenset[int], frozenset[int]]]:
    """`tcgen05.registers_in_flight`, as slots."""

    def slots(names: frozenset[str]) -> frozenset[int]:
        return frozenset(emitter.named(name)[0] for name in names if name in kernel.registers)

    found = tcgen05.registers_in_flight(kernel)
    return {number: (slots(names.used), slots(names.written)) for number, names in found.items()}


def _hazards(hazards: list[Hazard], fragments: tuple[int, ...]) -> np.ndarray:
    """One row for each; see `compiled.layout`."""
    number = {slot: i for i, slot in enumerate(fragments)}
    most = max((len(hazard.reads) + len(hazard.writes) for hazard in hazards), default=0)
    table = np.zeros((len(hazards), layout.USED + most), np.int32)
    for row, (_, copies, reads, writes) in zip(table, hazards, strict=True):
        row[layout.COPIES], row[layout.READ_COUNT], row[layout.WRITTEN_COUNT] = copies, len(reads), len(writes)
        row[layout.USED : layout.USED + len(reads) + len(writes)] = [number[slot] for slot in (*reads, *writes)]
    return table


def _compile(
    blocks: list[Block], steps: list[list[tuple[Origin, DecodedStep]]], emitter: Emitter, rows: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Set the steps of every block, and return the program of all segments with the origin of each instruction."""
    program: list[list[int]] = []
    origins: list[Origin] = []
    wide = [kind.itemsize == 8 for kind in emitter.kinds]
    wide_constants = [value.dtype.itemsize == 8 for value in emitter.constants]
    for block, decoded in zip(blocks, steps, strict=True):
        for origin, step in decoded:
            if step.fast is None:
                block.steps.append(origin)
                continue
            if block.steps and isinstance(block.steps[-1], Segment):
                block.steps[-1] = Segment(block.steps[-1].start, len(program) + 1)
            else:
                block.steps.append(Segment(len(program), len(program) + 1))
            program.append(_row(step.fast, rows, wide, wide_constants))
            origins.append(origin)
    shape = (len(program), layout.COLUMNS)
    return np.array(program, np.int32).reshape(shape), np.array(origins, np.int32).reshape(-1, 2)


def _row(fast: Fast, rows: list[int], wide: list[bool], wide_constants: list[bool]) -> list[int]:
    """An instruction of the compiled program; see `compiled.layout`. wide: whether a slot has 64 bits"""
    row = [0] * layout.COLUMNS
    row[layout.OPCODE], row[layout.IMMEDIATE], row[layout.ACCESS] = fast.opcode, fast.immediate, fast.access
    row[layout.SIZE], row[layout.COUNT] = fast.size, fast.count
    row[layout.GUARD], row[layout.HAZARD] = -1, fast.hazard
    if fast.guard is not None:
        row[layout.GUARD], row[layout.NEGATED] = rows[fast.guard[0]], fast.guard[1]
    widths, target, sources = 0, fast.target, fast.sources
    if target is not None:
        row[layout.TARGET] = rows[target]
        widths |= layout.TARGET_WIDE * wide[target]
    if sources:
        # Operands that an opcode lacks are as wide as the last, so that 64-bit opcodes see 64-bit operands alone.
        last = len(sources) - 1
        for i in range(3):
            slot = sources[min(i, last)]
            row[layout.X + i] = slot if slot < 0 else rows[slot]
            widths |= (wide_constants[~slot] if slot < 0 else wide[slot]) << i + 1
    row[layout.WIDE] = widths
    for i, slot in enumerate(fast.data):
        row[layout.DATA + i] = -1 if slot is None else slot if slot < 0 else rows[slot]
    return row


def _leaders(kernel: Kernel) -> list[int]:
    """Indices of the first instructions of basic blocks."""
    begins, ends = {}, {}  # whether an instruction of a name begins a block, and whether it ends one
    for instruction in kernel.instructions:
        name = instruction.mnemonic
        if name not in begins:
            # Lanes may wait at its entry or at its end, so it has a block of its own.
            waits = mbarrier.is_wait(instruction) or terminators.meets(name)
            begins[name], ends[name] = waits or warp_sync.is_warp_wide(instruction), terminators.terminates(name)
    starts = {0, *kernel.labels.values()}
    for i, instruction in enumerate(kernel.instructions):
        if begins[instruction.mnemonic]:
            starts.add(i)
        if ends[instruction.mnemonic]:
            starts.add(i + 1)
    return sorted(start for start in starts if start < len(kernel.instructions))


class _Form(NamedTuple):
    """How an instruction of some name is decoded.

    operands: how many it must have, None if its decoder says; hinted: an access to memory with a cache policy
    """

    operands: int | None
    hinted: bool
    terminates: bool
    decoder: Decoder


@cache
def _form(mnemonic: str) -> _Form:
    head = mnemonic.split(".")[0]
    hinted = ".L2::cache_hint." in f"{mnemonic}." and mnemonic.startswith(("ld.", "st.", "atom.", "red."))
    wanted = _OPERANDS.get(mnemonic, _OPERANDS.get(head))
    return _Form(wanted, hinted, terminators.terminates(mnemonic), DECODERS.get(head, arithmetic))


def _instruction(emitter: Emitter, number: int, instruction: Instruction, leads: bool) -> _Instruction:
    """Decode one instruction. leads: a basic block, and is warp-wide"""
    form = _form(instruction.mnemonic)
    if form.hinted and instruction.operands and isinstance(instruction.operands[-1], Name):
        # The cache policy behind the operands changes no value.
        instruction = instruction._replace(operands=instruction.operands[:-1])
    emitter.begin(number, instruction.mnemonic)
    try:
        if form.operands not in (None, len(instruction.operands)):
            raise Unsupported
        for operand in instruction.operands:
            if isinstance(operand, Vector):
                emitter.require_one_type(operand)
        membermask = warp_sync.membermask(emitter, instruction) if leads else None
        if form.terminates:
            jump = terminators.terminator(emitter, instruction)
            return _Instruction(emitter.finish(), jump, membermask)
        guard = None
        if instruction.guard:
            guard = emitter.source(Name(instruction.guard.text), "pred"), instruction.guard.negated
        form.decoder(emitter, instruction)
        return _Instruction(emitter.finish(guard, instruction), None, membermask)
    except (Unsupported, *UNREADABLE) as error:
        # A decoder may fail on operands of a form that it does not know.
        emitter.discard()
        why = str(error) if isinstance(error, Unsupported) else ""
        return _Instruction([DecodedStep(unsupported(instruction, why), frozenset(), frozenset())])
