"""`tcgen05.ld` and `st`, between a warp's registers and tensor memory, and `tcgen05.cp`, from shared memory to there.

From the PTX ISA, "Tensor Memory and Register Load/Store Instructions" and "Data Movement Shape", checked against
CUTLASS's include/cute/atom/copy_traits_sm100.hpp.
"""

from __future__ import annotations

import re

import numpy as np

from ptx_emulator.instructions.descriptors import Operands
from ptx_emulator.instructions.emitter import Emitter, Unsupported
from ptx_emulator.instructions.load_store import Place, items_of
from ptx_emulator.instructions.mbarrier import each_lane
from ptx_emulator.instructions.mma import gather, scatter
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.tensor_memory import QUARTER
from ptx_emulator.ptx.syntax import Address, Immediate, Instruction, Operand
from ptx_emulator.registers import U16, U32, WARP, Bits

# Registers per thread for each step of `.num`, and the largest `.num`.
_SHAPES = {"16x64b": (1, 128), "16x128b": (2, 64), "16x256b": (4, 32), "32x32b": (1, 128), "16x32bx2": (1, 128)}
_MOVE = re.compile(r"tcgen05\.(ld|st)\.sync\.aligned\.(\w+)\.x(\d+)(\.pack::16b|\.unpack::16b)?\.b32$")
GROUPS = ("cta_group::1", "cta_group::2")  # a block alone, and a pair of blocks
_COPIES = {"128x256b": (128, 2, 1), "128x128b": (128, 1, 1), "32x128b.warpx4": (32, 1, 4)}  # rows, chunks, repeats


def active_warps(batch: Batch, instruction: Instruction, mask: np.ndarray | None) -> np.ndarray:
    """The warps that execute an instruction, by number in the batch. Raises Fault if a lane is missing."""
    warps = batch.whole_warps(instruction, mask)
    return np.arange(batch.blocks * batch.threads // WARP) if warps is None else warps


def uniform(batch: Batch, instruction: Instruction, slot: int, warps: np.ndarray, what: str) -> Bits:
    """The values (n,) of an operand that must be the same in all lanes of a warp."""
    values = batch.full(batch.registers[slot]).reshape(-1, WARP)[warps]
    differ = values != values[:, :1]
    if differ.any():
        row, lane = divmod(int(np.argmax(differ)), WARP)
        sentence = f"{instruction.mnemonic} gets another {what} than the first lane of its warp"
        batch.fault("inactive_shuffle", instruction, int(warps[row]) * WARP + lane, sentence)
    return values[:, 0]


def tensor_place(emitter: Emitter, operand: Operand) -> Place:
    """The slot of the register that holds an address in tensor memory."""
    if not isinstance(operand, Address) or operand.base is None:
        raise Unsupported
    return Place(emitter.source(operand.base, "b32"), operand.offset)


def fragment(shape: str, registers: int, split: int) -> tuple[np.ndarray, np.ndarray]:
    """The place of each lane's registers in tensor memory, (32, registers): lane and column."""
    t, i = np.arange(WARP)[:, None], np.arange(registers)[None, :]
    lane, column = {
        "32x32b": (t, i),
        "16x64b": (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * i),
        "16x128b": (t // 4 + 8 * (i % 2), t % 4 + 4 * (i // 2)),
        "16x256b": (t // 4 + 8 * (i // 2 % 2), 2 * (t % 4) + i % 2 + 8 * (i // 4)),
        "16x32bx2": (t % 16, i + split * (t // 16)),
    }[shape]
    return np.broadcast_to(lane, (WARP, registers)), np.broadcast_to(column, (WARP, registers))


class _Move:
    """`ld` or `st`. packed: two columns of 16 bits in each register"""

    def __init__(self, emitter: Emitter, instruction: Instruction):
        match = _MOVE.match(instruction.mnemonic)
        if not match or match[2] not in _SHAPES:
            raise Unsupported
        self.instruction, self.loads, self.shape, number = instruction, match[1] == "ld", match[2], int(match[3])
        each, most = _SHAPES[self.shape]
        self.packed = match[4] is not None
        if number & number - 1 or not 1 <= number <= most or match[4] not in (None, self._packing()):
            raise Unsupported
        registers, where, split = self._operands(number * each)
        self.where = tensor_place(emitter, where)
        self.row, self.column = fragment(self.shape, number * each, split)
        if self.packed:
            if self.shape == "16x32bx2":
                raise Unsupported
            halves = 2 * self.column[:, :, None] + np.arange(2)
            self.row, self.column = np.repeat(self.row, 2, axis=1), halves.reshape(WARP, -1)
        take = emitter.target if self.loads else emitter.source
        self.registers = [take(item, "b32") for item in registers]
        self.rewritten = emitter.rewritten.intersection(self.registers) if self.loads else frozenset()
        # Lanes that take no part keep what a register holds.
        reads = [self.where.slot, *self.registers]
        emitter.emit(self.run, reads, self.registers if self.loads else ())

    def _packing(self) -> str:
        return ".pack::16b" if self.loads else ".unpack::16b"

    def _operands(self, count: int) -> tuple[tuple[Operand, ...], Operand, int]:
        """The registers, the address, and where the second half of `16x32bx2` lies."""
        operands = list(self.instruction.operands)
        registers = operands.pop(0 if self.loads else -1)
        where, *rest = operands
        halved = self.shape == "16x32bx2"
        if len(rest) != halved or not all(isinstance(each, Immediate) for each in rest):
            raise Unsupported
        return items_of(registers, count), where, rest[0].bits if halved else 0

    def run(self, batch: Batch, mask: np.ndarray | None) -> None:
        memory, instruction = batch.tensor_memory, self.instruction
        warps = active_warps(batch, instruction, mask)
        if not len(warps):
            return
        addresses = uniform(batch, instruction, self.where.slot, warps, "address").astype(np.int64) + self.where.offset
        values = np.ascontiguousarray(gather(batch, self.registers, warps).transpose(1, 2, 0))
        for i, (warp, address) in enumerate(zip(warps.tolist(), addresses.tolist(), strict=True)):
            self._require_own(batch, warp, address)
            region = self.row + (address >> 16), self.column + (address & 0xFFFF)
            use = memory.issue_of_warp(instruction, warp, self.loads)
            block = warp * WARP // batch.threads
            if self.loads:
                found = memory.read(instruction, warp * WARP, region)
                memory.start(use, block, [region], [])
                values[i] = self._joined(found)
            else:
                memory.require_allocated(instruction, warp * WARP, "writes", region[1])
                memory.start(use, block, [], [region])
                memory.write(instruction, warp * WARP, region, self._parted(values[i]))
        if self.loads:
            chosen = np.zeros(batch.blocks * batch.threads // WARP, bool)
            chosen[warps] = True
            memory.load(instruction, self.rewritten, chosen)
            every = None if len(warps) == len(chosen) else warps
            scatter(batch, self.registers, np.ascontiguousarray(values.transpose(2, 0, 1)), every)

    def _joined(self, found: Bits) -> Bits:
        if not self.packed:
            return found
        low, high = found[:, ::2] & U32(0xFFFF), found[:, 1::2] & U32(0xFFFF)
        return low | high << U32(16)

    def _parted(self, values: Bits) -> Bits:
        return np.ascontiguousarray(values).view(U16).astype(U32) if self.packed else values

    def _require_own(self, batch: Batch, warp: int, address: int) -> None:
        lane, own = address >> 16, QUARTER * batch.tensor_memory.rank(warp)
        verb = "reads" if self.loads else "writes"
        last = lane + (31 if self.shape == "32x32b" else 15)
        if not own <= lane <= last < own + QUARTER:
            sentence = f"{verb} lanes {lane} to {last} of tensor memory, and a warp of this rank in its warpgroup "
            sentence += f"reaches lanes {own} to {own + QUARTER - 1}"
            batch.fault("out_of_bounds", self.instruction, warp * WARP, sentence)
        if lane % (QUARTER if self.shape == "32x32b" else 16):
            sentence = f"{verb} tensor memory from lane {lane} on, which is not a multiple of 16"
            batch.fault("misaligned", self.instruction, warp * WARP, sentence)


def move(emitter: Emitter, instruction: Instruction) -> None:
    """`tcgen05.ld` and `st`."""
    _Move(emitter, instruction)


def copy(emitter: Emitter, instruction: Instruction) -> None:
    """`tcgen05.cp`: rows of a matrix in shared memory to lanes; `warpx4` repeats 32 of them in every 32 lanes.

    With `cta_group::2` each block of the pair gets those at the same place in its own shared memory: in CUTLASS each
    keeps the scales of its own rows there (sm100_blockscaled_mma_warpspecialized.hpp).
    """
    _, _, group, name = instruction.mnemonic.split(".", 3)
    if group not in GROUPS or name not in _COPIES:
        raise Unsupported
    paired = group == GROUPS[1]
    rows, chunks, repeats = _COPIES[name]
    where, described = tensor_place(emitter, instruction.operands[0]), emitter.source(instruction.operands[1], "b64")
    operands = Operands(emitter, instruction)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        memory = batch.tensor_memory
        for lane, address, descriptor in each_lane(batch, mask, where.of(batch), batch.registers[described]):
            use = memory.issue(instruction, lane)
            operands.require_first_lane(batch, lane, address, "writes", (0,))
            region = np.arange(rows * repeats)[:, None], (address & 0xFFFF) + np.arange(4 * chunks)[None, :]
            for block in memory.pairs.blocks(instruction, lane, paired):
                content = operands.read(batch, lane, use, descriptor, rows, chunks, block=block)
                values = np.tile(np.ascontiguousarray(content).reshape(rows, -1).view(U32), (repeats, 1))
                memory.require_allocated(instruction, lane, "writes", region[1], block)
                memory.start(use, block, [], [region])
                memory.write(instruction, lane, region, values, block)

    emitter.emit(step, (where.slot, described), ())


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    names = []
    for shape, (_, most) in _SHAPES.items():
        numbers = [1 << i for i in range(most.bit_length())]
        names += [f"tcgen05.{verb}.sync.aligned.{shape}.x{number}.b32" for verb in ("ld", "st") for number in numbers]
        if shape != "16x32bx2":
            for verb, packing in (("ld", "pack"), ("st", "unpack")):
                names += [f"tcgen05.{verb}.sync.aligned.{shape}.x{number}.{packing}::16b.b32" for number in numbers]
    return names + [f"tcgen05.cp.{group}.{shape}" for group in GROUPS for shape in _COPIES]
