"""Load matrices from shared memory by the 64-bit descriptors of `wgmma`, in chunks of 16 bytes.

From the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout" (canonical layouts, strides,
descriptor format), checked against CUTLASS's include/cute/arch/mma_sm90_desc.hpp and atom/mma_traits_sm90_gmma.hpp.

A descriptor holds, each as (x & 0x3FFFF) >> 4: the start address in bits 0-13, the leading dimension byte offset in
16-29, the stride dimension byte offset in 32-45; the base offset in 49-51; the swizzling mode in 62-63. A matrix whose
rows run along K lies in groups of 8 rows, a stride apart, and a chunk is 8 elements of a row. Without swizzling a group
is core matrices of 8 rows by 16 bytes, a leading offset apart along K. With swizzling its rows are contiguous, 128, 64
or 32 bytes apart, the leading offset is unused, and in every absolute address the bits from 4 on are XORed with those
from 7 on; a matrix that does not start at a multiple of 8 rows of the pattern would need a base offset, which is not
emulated.

A transposed matrix runs along M or N: a chunk is 8 rows of one k. Without swizzling a core matrix is 8 k by 16 bytes, a
stride apart along the rows and a leading offset along K. With swizzling 8 k are contiguous, 128, 64 or 32 bytes apart,
each 64, 32 or 16 rows; a leading offset leads to the next as many rows, and a stride to the next 8 k.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions.emitter import Emitter
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.tensor_memory import KIND
from ptx_emulator.memory import SHARED_BASE, Access
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_agents import Copy
from ptx_emulator.races.tensor_shadow import Use
from ptx_emulator.registers import U32, U64, Bits

CHUNK = 16  # bytes
DEPTH = 16  # of a matrix along K
_PITCH = {1: 128, 2: 64, 3: 32}
_ACROSS = "with a row of A or B across the end of a swizzled row"


def _field(descriptors: Bits, low: int) -> Bits:
    return (descriptors >> U64(low) & U64(0x3FFF)).astype(U32) << U32(4)


def chunks(descriptors: Bits, rows: int, transposed: bool, what: str, width: int = 2) -> Bits:
    """Addresses of the 16 bytes of each row and half of K, (n, rows, 2) uint32; of each 16 bytes of rows and k if
    transposed.

    descriptors: (n,) uint64, of matrices of rows of 32 bytes; what: the instruction and its location
    width: bytes of an element

    Raises NotEmulated for a base offset, and for a row that crosses the end of a swizzled row.
    """
    start, leading, stride = (_field(descriptors, low)[:, None, None] for low in (0, 16, 32))
    if (descriptors >> U64(49) & U64(7)).any():
        raise NotEmulated(f"not emulated: {what} with a matrix base offset")
    mode = (descriptors >> U64(62)).astype(int)
    if transposed:
        return _transposed(start, leading, stride, mode, (rows * width // CHUNK, 2 * CHUNK // width), what)
    row, half = np.arange(rows, dtype=U32)[None, :, None], np.arange(2, dtype=U32)[None, None, :]
    out = start + (row & U32(7)) * U32(CHUNK) + (row >> U32(3)) * stride + half * leading
    for number, pitch in _PITCH.items():
        which = mode == number
        if not which.any():
            continue
        if (start[which] % U32(pitch) > pitch - 2 * CHUNK).any():
            raise NotEmulated(f"not emulated: {what} {_ACROSS}")
        plain = (start + (row & U32(7)) * U32(pitch) + (row >> U32(3)) * stride + half * U32(CHUNK))[which]
        out[which] = _swizzled(plain, pitch)
    return out


def _transposed(
    start: Bits, leading: Bits, stride: Bits, mode: np.ndarray, extents: tuple[int, int], what: str
) -> Bits:
    """`chunks` for a transposed matrix. extents: chunks in a run of all rows (8 rows each, if of 16 bits), and K"""
    eights, depth = extents
    eight, k = np.arange(eights, dtype=U32)[None, :, None], np.arange(depth, dtype=U32)[None, None, :]
    out = start + eight * stride + (k & U32(7)) * U32(CHUNK) + (k >> U32(3)) * leading
    for number, pitch in _PITCH.items():
        which = mode == number
        if not which.any():
            continue
        width = pitch // CHUNK
        if (start[which] % U32(pitch) > pitch - CHUNK * min(eights, width)).any():
            raise NotEmulated(f"not emulated: {what} {_ACROSS}")
        place = start + eight % U32(width) * U32(CHUNK) + eight // U32(width) * leading
        out[which] = _swizzled((place + (k & U32(7)) * U32(pitch) + (k >> U32(3)) * stride)[which], pitch)
    return out


def _swizzled(addresses: Bits, pitch: int) -> Bits:
    return addresses ^ (addresses >> U32(7) & U32(pitch // CHUNK - 1)) << U32(4)


def rows(batch: Batch, access: Access, addresses: Bits, lanes: np.ndarray) -> np.ndarray:
    """The rows of shared memory, of 16 bytes, of chunks, (n, count).

    access: reads 16 bytes; addresses: (n, rows, 2) or (n, rows / 8, 16); lanes: (n, count), for faults

    Raises Fault for bytes outside shared memory or never written.
    """
    index = batch.addressing.shared_rows(access, addresses.reshape(-1), lanes.reshape(-1))
    batch.require_written(access, index)
    return index.reshape(lanes.shape)


def load(batch: Batch, index: np.ndarray, transposed: bool) -> Bits:
    """Matrices (n, rows, 16) uint16. index: (n, chunks) rows of shared memory"""
    found = shared(batch)[index]
    if transposed:
        found = found.reshape(len(index), -1, DEPTH, CHUNK // 2).swapaxes(2, 3)
    return found.reshape(len(index), -1, DEPTH)


def shared(batch: Batch) -> Bits:
    """Shared memory as chunks, (n, 8) uint16."""
    return batch.addressing.shared.elements(2, CHUNK // 2)


# ---- matrices of tcgen05 --------------------------------------------------------------------------------------------


_MODES = {0: 0, 2: 1, 4: 2, 6: 3}
_KEPT = (1 << 46) - 1 | 7 << 49
_WAIT = "no thread that waited for the mbarrier of a tcgen05.commit behind it let this one know"


class Operands:
    """The matrices in shared memory of one instruction."""

    def __init__(self, emitter: Emitter, instruction: Instruction):
        self.instruction = instruction
        emitter.cells["shared"] = min(emitter.cells["shared"], CHUNK)

    def read(
        self, batch: Batch, lane: int, use: Use | None, descriptor: int, rows: int, count: int = 2, across: int = 0,
        block: int | None = None,
    ) -> np.ndarray:  # fmt: skip
        """The chunks of 16 bytes of a matrix, (rows, count, 16) uint8.

        block: in whose shared memory, that of the lane for None
        across: 0, or bytes of an element of a matrix that lies across K: (rows * across / 16, 32 / across, 16) uint8
        """
        instruction, proxy, shared = self.instruction, batch.asynchronous, batch.addressing.shared
        as_wgmma = self._as_wgmma(batch, lane, descriptor)
        addresses = chunks(as_wgmma, rows, across > 0, self._what(), across or 2)[0]
        if not across:
            addresses = addresses[:, :count]
        bytes_ = addresses.astype(np.int64).reshape(-1) - SHARED_BASE
        outside = (bytes_ < 0) | (bytes_ > shared.size - CHUNK)
        if outside.any():
            sentence = f"reads {CHUNK} bytes at byte {int(bytes_[np.argmax(outside)])} of shared memory, which has "
            batch.fault("out_of_bounds", instruction, lane, f"{sentence}{shared.size} bytes")
        block = lane // batch.threads if block is None else block
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
