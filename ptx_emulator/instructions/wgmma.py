"""`wgmma`: matrix products of a warpgroup (128 threads), with B, and A unless in registers, in shared memory.

A and the accumulator lie in registers as those of `mma`, warp w of the four holding rows 16w to 16w + 15 (PTX ISA,
"Asynchronous Warpgroup Level Matrix Instructions"). The sum is that of `mma`: in Hopper's
order (see `hopper_product`) of f16, exact (see `matrix_product`) of bf16.

Reads of shared memory are not counted as traffic, because they have no lanes and bank conflicts of their own kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic import hopper_product as hopper
from ptx_emulator.arithmetic import matrix_product as products
from ptx_emulator.compiled.layout import IN_ONE_WARP
from ptx_emulator.instructions import descriptors
from ptx_emulator.instructions.descriptors import CHUNK
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import items_of
from ptx_emulator.instructions.mma import gather, registers_of_c, rows_of_a, rows_of_c, scatter
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Immediate, Instruction, Kernel, Name, Vector
from ptx_emulator.races.block_order import agents_of
from ptx_emulator.races.wgmma_reads import OperandRead, WgmmaShadow
from ptx_emulator.registers import U16, U32, U64, WARPGROUP, Bits

_MULTIPLY = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(bf16|f16)\.\2$")
_COLUMNS = range(8, 257, 8)
_ROWS, _WARP_ROWS, _DEPTH = 64, 16, 16
_SIGN = U16(0x8000)
_NO_CHUNKS = np.zeros((0, 0), np.int64)
_ROOM = np.empty(1 << 13)


class _Compiled(NamedTuple):
    start: Callable[..., bool]
    multiply: Callable[..., int]


@cache
def _compiled() -> _Compiled:
    # Numba takes a second to load, and a run on a GPU does not need it.
    from ptx_emulator.compiled import warpgroup

    return _Compiled(warpgroup.start, warpgroup.multiply)


def fragments(emitter: Emitter, kernel: Kernel) -> frozenset[int]:
    """The slots of accumulators and fragments of a kernel's `wgmma`s, and of registers moved there."""
    names = {
        item.text
        for instruction in kernel.instructions
        if instruction.mnemonic.startswith("wgmma.mma_async")
        for operand in instruction.operands
        if isinstance(operand, Vector)
        for item in operand.items
        if isinstance(item, Name)
    }
    moves = [instruction.operands for instruction in kernel.instructions if instruction.mnemonic.startswith("mov.")]
    moves = (
        [(to.text, what.text) for to, what in moves if isinstance(to, Name) and isinstance(what, Name)] if names else []
    )
    before = 0
    while before < len(names):
        before = len(names)
        names |= {what for to, what in moves if to in names}
    found = (emitter.named(name) for name in names if name in kernel.registers)
    return frozenset(slot for slot, _ in found)


def active_warpgroups(batch: Batch, instruction: Instruction, mask: np.ndarray | None) -> np.ndarray:
    """The warpgroups that execute an instruction, (blocks, warpgroups) bool. Raises Fault if a thread is missing."""
    lanes = batch.under(mask)
    whole = batch.threads // WARPGROUP * WARPGROUP
    by_group = lanes[:, :whole].reshape(batch.blocks, -1, WARPGROUP)
    every = by_group.all(axis=2)
    wrong = by_group.any(axis=2) & ~every
    takes = f"{instruction.mnemonic} takes all {WARPGROUP} threads of a warpgroup"
    if wrong.any():
        block, group = (int(at) for at in np.argwhere(wrong)[0])
        active, absent = (group * WARPGROUP + int(find(by_group[block, group])) for find in (np.argmax, np.argmin))
        problem = "does not execute it" if batch.live[block, absent] else "exited or never was"
        sentence = f"{takes}, and thread {batch.launch.thread_at[absent]} {problem}"
        batch.fault("inactive_shuffle", instruction, block * batch.threads + active, sentence)
    if lanes[:, whole:].any():
        lane = int(np.argmax(lanes & (np.arange(batch.threads) >= whole)))
        sentence = f"{takes}, and thread {lane % batch.threads} is not in one: the block has {batch.launch.threads}"
        batch.fault("inactive_shuffle", instruction, lane, sentence)
    return every


class _Product:
    """One `wgmma.mma_async`.

    accumulators, fragments: slots of D and A; left, right: slots of the descriptors of A (if not in registers) and B
    scale: slot of `scale-d`, whether D is added; signs: XORed with the elements of A and of B
    across: whether A, and B, lie in shared memory along their rows and not along K
    """

    def __init__(self, emitter: Emitter, instruction: Instruction):
        match = _MULTIPLY.match(instruction.mnemonic)
        if not match or int(match[1]) not in _COLUMNS:
            raise Unsupported
        self.instruction, self.columns, self.kind = instruction, int(match[1]), match[2]
        self.as_hopper = hopper.is_measured(emitter.architecture, self.kind, _DEPTH)
        self.access = emitter.access(instruction, "shared", "reads", 2, CHUNK // 2)
        result, a, b, scale, *immediates = instruction.operands
        in_registers = isinstance(a, Vector)
        if len(immediates) != 4 - in_registers or not all(isinstance(item, Immediate) for item in immediates):
            raise Unsupported
        sign_a, sign_b, *transposes = (item.bits for item in immediates)
        if not {sign_a, sign_b} <= {1, -1} or not {*transposes} <= {0, 1}:
            raise Unsupported
        self.across = (not in_registers and transposes[0] == 1), transposes[-1] == 1
        self.signs = tuple(U16(0) if sign == 1 else _SIGN for sign in (sign_a, sign_b))
        self.accumulators = [emitter.target(item, "f32") for item in items_of(result, self.columns // 2)]
        self.fragments = [emitter.source(item, "b32") for item in items_of(a, 4)] if in_registers else []
        self.held = frozenset(self.accumulators), frozenset(self.fragments)
        self.left = None if in_registers else emitter.source(a, "b64")
        self.right, self.scale = emitter.source(b, "b64"), emitter.source(scale, "pred")
        reads = [*self.accumulators, *self.fragments, self.right, self.scale]
        emitter.emit(self.run, reads if in_registers else [*reads, self.left], self.accumulators)

    def run(self, batch: Batch, mask: np.ndarray | None) -> None:
        active = active_warpgroups(batch, self.instruction, mask)
        blocks, groups = np.nonzero(active)
        first = blocks * batch.threads + groups * WARPGROUP
        reads: list[OperandRead] = []
        a_index = _NO_CHUNKS
        if self.left is not None:
            a_index = self._chunks(batch, self.left, np.arange(_ROWS) // _WARP_ROWS, self.across[0], first, reads)
        b_index = self._chunks(batch, self.right, np.full(self.columns, -1), self.across[1], first, reads)
        if batch.wgmma:
            batch.wgmma.start(self.instruction, *self.held, reads, active)
        added = np.array(self._uniform(batch, self.scale, first, "scale-d"))
        done = self._multiply_exactly(batch, first, a_index, b_index, added)
        if done < len(first):
            self._multiply(batch, first[done:], a_index[done:], b_index[done:], added[done:])

    def _multiply_exactly(
        self, batch: Batch, first: np.ndarray, a_index: np.ndarray, b_index: np.ndarray, added: np.ndarray
    ) -> int:
        """Multiply with the compiled function; returns the first warpgroup that it leaves to NumPy, or their number."""
        if min(self.fragments, default=0) < 0:
            return 0
        registers = batch.registers
        targets, fragments = (
            np.array([registers.rows[slot] for slot in slots], np.int32)
            for slots in (self.accumulators, self.fragments)
        )
        chunks = descriptors.shared(batch)
        signs = (int(sign) for sign in self.signs)
        return _compiled().multiply(
            self.kind == "f16", self.as_hopper, registers.narrow, chunks, first, targets, fragments, a_index, b_index,
            added, *signs, *self.across, _ROOM,
        )  # fmt: skip

    def _multiply(
        self, batch: Batch, first: np.ndarray, a_index: np.ndarray, b_index: np.ndarray, added: np.ndarray
    ) -> None:
        warps = (first[:, None] // 32 + np.arange(WARPGROUP // 32)).reshape(-1)
        if self.left is None:
            a = rows_of_a(gather(batch, self.fragments, warps)).reshape(-1, _ROWS, _DEPTH)
        else:
            a = descriptors.load(batch, a_index, self.across[0])
        b = descriptors.load(batch, b_index, self.across[1])
        a, b = (matrix ^ sign if sign else matrix for matrix, sign in zip((a, b), self.signs, strict=True))
        c = rows_of_c(gather(batch, self.accumulators, warps)).reshape(-1, _ROWS, self.columns)
        c = np.where(added[:, None, None], c, U32(0))
        b = b.swapaxes(1, 2)
        rows = hopper.multiply_add(a, b, c) if self.as_hopper else products.multiply_add(self.kind, a, b, c)
        scatter(batch, self.accumulators, registers_of_c(rows.reshape(-1, _WARP_ROWS, self.columns)), warps)

    def _chunks(
        self, batch: Batch, slot: int, warps: np.ndarray, across: bool, first: np.ndarray, reads: list[OperandRead]
    ) -> np.ndarray:
        """The rows of shared memory of a matrix for each warpgroup, (n, chunks), and record the reads.

        warps: (rows,), the warp of the warpgroup that reads each row, -1 for all; first: (n,), its first thread
        """
        described = np.array(self._uniform(batch, slot, first, "matrix descriptor"))
        index = np.empty((len(first), 2 * len(warps)), np.int64)
        readers = np.repeat(warps, 2)  # also across K: a chunk then covers 8 rows, all read by one warp
        plain = isinstance(batch.shadow, WgmmaShadow) and self._start_plainly(batch, described, across, first, index)
        if not plain:
            what = f"{self.instruction.mnemonic} at {self.instruction.location}"
            addresses = descriptors.chunks(described, len(warps), across, what)
            lanes = first[:, None] + np.maximum(readers, 0) * 32
            index = descriptors.rows(batch, self.access, addresses, lanes)
        if batch.wgmma:
            block, thread = np.divmod(first, batch.threads)
            group = block * (batch.threads // WARPGROUP) + thread // WARPGROUP
            of_warp = (IN_ONE_WARP + (thread // 32)[:, None] + readers).astype(U64)
            of_group = agents_of((U64(0xF) << (thread // 32).astype(U64)).astype(U32))
            reader = np.where(readers < 0, of_group[:, None], of_warp)
            reads.append(OperandRead(self.access, index, group, reader))
            if not plain:
                batch.shadow.start(reads[-1], lanes)
            batch.shadow.in_flight.append(reads[-1])
        return index

    def _start_plainly(self, batch: Batch, described: Bits, across: bool, first: np.ndarray, index: np.ndarray) -> bool:
        """Find the rows and start the reads with the compiled function; False if it leaves that to NumPy."""
        shadow, shared = batch.shadow, batch.addressing.shared
        return _compiled().start(
            described, across, first, shared.size, shared.stride, shared.written_rows(CHUNK), shadow.writes,
            shadow.updates, shadow.has_updates, shadow.wgmma_reads, shadow.cell, shadow.order.epoch, shadow.order.known,
            shadow.fenced, shadow.seen, self.access.number, index,
        )  # fmt: skip

    def _uniform(self, batch: Batch, slot: int, first: np.ndarray, what: str) -> Bits:
        """The values (n,) of an operand that must be the same for all threads of a warpgroup."""
        values = batch.registers[slot]
        if values.size == 1:
            return np.broadcast_to(values.reshape(1), first.shape)
        values = batch.full(values).reshape(-1)[first[:, None] + np.arange(WARPGROUP)]
        differ = values != values[:, :1]
        if differ.any():
            row, thread = divmod(int(np.argmax(differ)), WARPGROUP)
            sentence = f"{self.instruction.mnemonic} gets a {what} that is not that of its warpgroup's first thread"
            batch.fault("inactive_shuffle", self.instruction, int(first[row]) + thread, sentence)
        return values[:, 0]


def _control(emitter: Emitter, instruction: Instruction) -> None:
    """`wgmma.fence`, `commit_group` and `wait_group`."""
    head, _, tail = instruction.mnemonic.partition(".sync.aligned")
    what = head.removeprefix("wgmma.")
    if tail or what not in ("fence", "commit_group", "wait_group"):
        raise Unsupported
    keep = instruction.operands[0].bits if what == "wait_group" else 0

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        groups = active_warpgroups(batch, instruction, mask)
        if not batch.wgmma:
            return
        if what == "wait_group":
            batch.wgmma.wait(keep, groups)
        else:
            getattr(batch.wgmma, what.removesuffix("_group"))(groups)

    emitter.emit(step, (), ())


def _warpgroup(emitter: Emitter, instruction: Instruction) -> None:
    if instruction.mnemonic.startswith("wgmma.mma_async"):
        _Product(emitter, instruction)
    else:
        _control(emitter, instruction)


DECODERS: dict[str, Decoder] = {"wgmma": _warpgroup}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    names = [f"wgmma.{what}.sync.aligned" for what in ("fence", "commit_group", "wait_group")]
    shapes = [f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32" for columns in _COLUMNS]
    return names + [f"{shape}.{kind}.{kind}" for shape in shapes for kind in products.FACTORS]
