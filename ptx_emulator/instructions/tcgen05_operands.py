"""Matrices in shared memory, by the 64-bit descriptors of `tcgen05`, as the matrix unit reads them.

From the PTX ISA, "Shared Memory Descriptor" and "Canonical Layouts", checked against CUTLASS's
include/cute/arch/mma_sm100_desc.hpp. The layouts, and the fields but for the swizzling mode, are those of `wgmma`
(see `wgmma_descriptors`). Bits 46-48 are 1, and bits 61-63 hold the mode: 0 for none, 2 for 128, 4 for 64, 6 for 32.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions import wgmma_descriptors as descriptors
from ptx_emulator.instructions.emitter import Emitter
from ptx_emulator.instructions.wgmma_descriptors import CHUNK
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.tensor_memory import KIND
from ptx_emulator.memory import SHARED_BASE
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_agents import Copy
from ptx_emulator.races.tensor_shadow import Use
from ptx_emulator.registers import U64

_MODES = {0: 0, 2: 1, 4: 2, 6: 3}
_KEPT = (1 << 46) - 1 | 7 << 49
_WAIT = "no thread that waited for the mbarrier of a tcgen05.commit behind it let this one know"


class Operands:
    """The matrices in shared memory of one instruction."""

    def __init__(self, emitter: Emitter, instruction: Instruction):
        self.instruction = instruction
        emitter.cells["shared"] = min(emitter.cells["shared"], CHUNK)

    def read(
        self, batch: Batch, lane: int, use: Use | None, descriptor: int, rows: int, chunks: int = 2, across: int = 0
    ) -> np.ndarray:
        """The chunks of 16 bytes of a matrix, (rows, chunks, 16) uint8.

        across: 0, or bytes of an element of a matrix that lies across K: (rows * across / 16, 32 / across, 16) uint8
        """
        instruction, proxy, shared = self.instruction, batch.asynchronous, batch.addressing.shared
        as_wgmma = self._as_wgmma(batch, lane, descriptor)
        addresses = descriptors.chunks(as_wgmma, rows, across > 0, self._what(), across or 2)[0]
        if not across:
            addresses = addresses[:, :chunks]
        bytes_ = addresses.astype(np.int64).reshape(-1) - SHARED_BASE
        outside = (bytes_ < 0) | (bytes_ > shared.size - CHUNK)
        if outside.any():
            sentence = f"reads {CHUNK} bytes at byte {int(bytes_[np.argmax(outside)])} of shared memory, which has "
            batch.fault("out_of_bounds", instruction, lane, f"{sentence}{shared.size} bytes")
        block = lane // batch.threads
        proxy.require_written(instruction, lane, block, bytes_, CHUNK)
        if use and proxy.shadow:
            copy = Copy(instruction, "reads", use.cluster, int(use.rows[0]), use.counter, use.number, _WAIT)
            proxy.shadow.start_copy(proxy.shadow.new_copy(copy), proxy.cells(block, np.unique(bytes_), CHUNK), lane)
        found = shared.data[block * shared.stride + bytes_[:, None] + np.arange(CHUNK)]
        return found.reshape(*addresses.shape, CHUNK)

    def _as_wgmma(self, batch: Batch, lane: int, descriptor: int) -> np.ndarray:
        mode, version = descriptor >> 61, descriptor >> 46 & 3
        if version != 1:
            sentence = f"gets the matrix descriptor {descriptor:#018x}, whose bits 46 and 47 are {version}, where 1 is "
            batch.fault(KIND, self.instruction, lane, f"{sentence}demanded")
        if mode not in _MODES or descriptor >> 52 & 1:
            raise NotEmulated(f"not emulated: {self._what()} with the matrix descriptor {descriptor:#018x}")
        return np.array([descriptor & _KEPT | _MODES[mode] << 62], U64)

    def _what(self) -> str:
        return f"{self.instruction.mnemonic} at {self.instruction.location}"

    def require_first_lane(self, batch: Batch, lane: int, address: int, verb: str, allowed: tuple[int, ...]) -> int:
        """The lane of an address in tensor memory. Raises Fault for one that is not allowed."""
        first = address >> 16
        if first not in allowed:
            sentence = f"{verb} tensor memory from lane {first} on, where {' or '.join(map(str, allowed))} is allowed"
            batch.fault("misaligned", self.instruction, lane, sentence)
        return first
