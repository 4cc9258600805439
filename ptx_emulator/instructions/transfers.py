"""Carry out a bulk copy: check both ends, start it in the shadows, move the bytes, and count them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic.atomics import ATOMICS, GLOBAL_ADD_F32
from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.instructions.emitter import Emitter, Unsupported
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.mbarrier_state import Mbarrier
from ptx_emulator.memory import CLUSTER_RANK_BITS, PENDING, WINDOW_BITS, WRITTEN, Access, Buffer, Resolved, in_block
from ptx_emulator.ptx.syntax import SIZES, Instruction
from ptx_emulator.races.borne import EQUAL_STORES
from ptx_emulator.races.global_memory import Who
from ptx_emulator.registers import UNSIGNED, Compute
from ptx_emulator.tensor_map import loaded


class Transfers:
    """The copies of one instruction. unit: bytes of the narrowest part of global memory that it writes"""

    def __init__(self, emitter: Emitter, instruction: Instruction, unit: int, reduction: Reduction | None = None):
        self.instruction, self.reduction, self.unit = instruction, reduction, unit
        self.reads = emitter.access(instruction, "global", "reads", min(unit, 8), max(1, unit // 8))
        kind, strong = ("updates", True) if reduction else ("writes", False)
        self.writes = emitter.access(instruction, "global", kind, min(unit, 8), max(1, unit // 8), strong=strong)
        emitter.cells["global"] = min(emitter.cells["global"], unit)
        emitter.cells["shared"] = min(emitter.cells["shared"], 16)

    # ---- checks -----------------------------------------------------------------------------------------------------

    def require_size(self, batch: Batch, lane: int, count: int, multiple: int) -> None:
        if count % multiple or not count:
            sentence = f"copies {count} bytes, where a multiple of {multiple} is allowed"
            batch.fault("misaligned", self.instruction, lane, sentence)

    def require_global(self, batch: Batch, lane: int, address: int, align: int) -> None:
        if address % align:
            sentence = f"copies at global address {address:#x}, which is not a multiple of {align}"
            batch.fault("misaligned", self.instruction, lane, sentence)

    # ---- to shared memory -------------------------------------------------------------------------------------------

    def to_shared(
        self, batch: Batch, lane: int, blocks: list[int | None], to: int, shared: np.ndarray, sources: np.ndarray,
        width: int, barrier: int, total: int, align: int, inside: np.ndarray | None = None, fill: bytes = b"",
        tensor: tuple[Buffer, int] | None = None, kind: str = "uint8", paired: bool = False,
    ) -> None:  # fmt: skip
        """Copy units of `width` bytes from global addresses `sources` to offsets `shared` of the address `to`.

        blocks: ranks in the cluster that receive them, None for what the address says; barrier: address, of the same
        total: bytes that the mbarrier counts; inside: (n,) bool, the units that exist, others get `fill`
        tensor: the buffer with the tensor map, and its offset there; kind: of its elements
        paired: `cta_group::2`, by which the mbarrier may lie in the peer of the block that receives them; that of each
            block of several is in the even or the odd one of its pair, as `barrier` is
        """
        proxy, instruction = batch.asynchronous, self.instruction
        exist = np.ones(len(sources), bool) if inside is None else inside
        buffer, offsets = proxy.in_global(instruction, lane, sources[exist], width, "reads")
        content = np.empty((len(sources), width), np.uint8)
        content[:] = np.frombuffer(fill or bytes(width), np.uint8)
        if buffer is not None:
            self._require_initialised(batch, lane, buffer, offsets, width)
            content[exist] = loaded(buffer.data[offsets[:, None] + np.arange(width)], kind)
            self._record(batch, self.reads, buffer, offsets, width, lane)
            batch.launch.traffic.global_bytes_read += len(offsets) * width
        for rank in blocks:
            there, at = to, barrier
            if rank is not None:
                signalled = rank & ~1 | barrier >> CLUSTER_RANK_BITS & 1 if paired else rank
                there, at = in_block(to, rank), in_block(barrier, signalled)
            block, start = proxy.in_shared(instruction, lane, there, total, align, "copies to")
            found = proxy.mbarrier(instruction, lane, at, copies=True)
            if found.block != block and not (paired and found.block == block ^ 1):
                sentence = "counts its bytes at an mbarrier of another block than that of its target"
                batch.fault("mbarrier", instruction, lane, f"{sentence}{', or its peer' if paired else ''}")
            if proxy.shadow:
                self._start(batch, lane, "writes", found, block, start + shared, width)
                for where, bytes_, size in ((buffer, offsets, width), (*(tensor or (None, 0)), 128)):
                    if where is not None and where.writable:
                        other = proxy.copy(instruction, lane, "reads", found.counter, found.phase, _wait(found))
                        what = "copies with a tensor map in global bytes" if size == 128 and tensor else ""
                        proxy.globals.start(other, where, np.atleast_1d(bytes_), size, lane, what)
            self._require_no_copy(batch, block, start + shared, width, lane)
            self._put(batch, block, start + shared, content)
            proxy.mbarriers.copied(instruction, lane, found, total)

    def _start(
        self, batch: Batch, lane: int, kind: str, found: Mbarrier, block: int, bytes_: np.ndarray, width: int,
        fenced: bool = False,
    ) -> None:  # fmt: skip
        """Start a copy in the shadow of shared memory, which is complete when its mbarrier's phase is."""
        proxy = batch.asynchronous
        number = proxy.copy(self.instruction, lane, kind, found.counter, found.phase, _wait(found))
        proxy.shadow.start_copy(number, proxy.cells(block, bytes_, width), lane, fenced=fenced)
        proxy.by_mbarrier.append((found, number))

    def _require_no_copy(self, batch: Batch, block: int, bytes_: np.ndarray, width: int, lane: int) -> None:
        memory = batch.addressing.shared
        every = block * memory.stride + bytes_[:, None] + np.arange(width)
        if memory.written is not None and (memory.written[every] == PENDING).any():
            sentence = (
                f"{self.instruction.mnemonic} to shared memory, where a cp.async not yet waited for may still write"
            )
            batch.fault("race", self.instruction, lane, sentence)

    def _put(self, batch: Batch, block: int, bytes_: np.ndarray, content: np.ndarray) -> None:
        memory = batch.addressing.shared
        every = block * memory.stride + bytes_[:, None] + np.arange(content.shape[1])
        memory.data[every] = self._reduced(memory.data[every], content)
        if memory.written is not None:
            memory.written[every] = WRITTEN

    def put(self, batch: Batch, lane: int, to: int, content: bytes, barrier: int, fenced: bool = True) -> None:
        """Store a few bytes to shared memory of the cluster. fenced: they need no proxy fence"""
        proxy, instruction, count = batch.asynchronous, self.instruction, len(content)
        block, start = proxy.in_shared(instruction, lane, to, count, count, "stores to")
        found = proxy.mbarrier(instruction, lane, barrier)
        if proxy.shadow:
            self._start(batch, lane, "writes", found, block, np.array([start]), count, fenced)
        self._put(batch, block, np.array([start]), np.frombuffer(content, np.uint8)[None, :])
        proxy.mbarriers.copied(instruction, lane, found, count)

    def _reduced(self, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        if not self.reduction:
            return new
        kind = self.reduction.kind
        before, after = (np.ascontiguousarray(each).reshape(-1).view(kind) for each in (old, new))
        return np.ascontiguousarray(self.reduction.compute(before, after)).view(np.uint8).reshape(new.shape)

    def between_blocks(self, batch: Batch, lane: int, to: int, source: int, count: int, barrier: int) -> None:
        """Copy from one block's shared memory to another block's in its cluster."""
        proxy, instruction = batch.asynchronous, self.instruction
        mine, first = proxy.in_shared(instruction, lane, source, count, 16, "copies from")
        block, start = proxy.in_shared(instruction, lane, to, count, 16, "copies to")
        found = proxy.mbarrier(instruction, lane, barrier, copies=True)
        proxy.require_written(instruction, lane, mine, np.array([first]), count)
        if proxy.shadow:
            for kind, of, byte in (("reads", mine, first), ("writes", block, start)):
                self._start(batch, lane, kind, found, of, np.array([byte]), count)
        memory = batch.addressing.shared
        at = mine * memory.stride + first
        self._put(batch, block, np.array([start]), memory.data[at : at + count][None, :].copy())
        proxy.mbarriers.copied(instruction, lane, found, count)

    # ---- to global memory -------------------------------------------------------------------------------------------

    def to_global(
        self, batch: Batch, lane: int, source: int, shared: np.ndarray, targets: np.ndarray, width: int, align: int,
        tensor: tuple[Buffer, int] | None = None, total: int | None = None, padding: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Copy units of `width` bytes from offsets `shared` of the address `source` to global addresses `targets`.

        padding: (n,) bool, the units behind the end of a tensor's row, which are written as the others are, but may
        hold anything
        """
        meant = np.ones(len(targets), bool) if padding is None else ~padding
        proxy, instruction = batch.asynchronous, self.instruction
        block, start = proxy.in_shared(instruction, lane, source, total or width, align, "copies from")
        if len(targets) == 1:
            self.require_global(batch, lane, int(targets[0]), 16)
        self._require_room(batch, lane, targets, width, meant)
        buffer, offsets = proxy.in_global(instruction, lane, targets, width, "writes")
        proxy.require_written(instruction, lane, block, start + shared[meant], width)
        queue = proxy.queue(lane)
        memory = batch.addressing.shared
        content = memory.data[block * memory.stride + start + shared[:, None] + np.arange(width)]
        every = offsets[:, None] + np.arange(width)
        repeats = self._repeats(batch, lane, buffer, offsets, content)
        if proxy.shadow:
            wait = "no cp.async.bulk.wait_group.read of the thread that issued it, and then a barrier, comes between"
            number = proxy.copy(instruction, lane, "reads", queue.read, queue.committed, wait)
            proxy.shadow.start_copy(number, proxy.cells(block, start + shared, width), lane)
            queue.copies.append((queue.committed, number))
            wait = "no cp.async.bulk.wait_group (without .read) of the thread that issued it comes between"
            if tensor and tensor[0].writable:
                other = proxy.copy(instruction, lane, "reads", queue.done, queue.committed, wait)
                what = "copies with a tensor map in global bytes"
                proxy.globals.start(other, tensor[0], np.array([tensor[1]]), 128, lane, what)
            if buffer is not None and not repeats:
                kind = "updates" if self.reduction else "writes"
                other = proxy.copy(instruction, lane, kind, queue.done, queue.committed, wait)
                proxy.globals.start(other, buffer, offsets, width, lane)
        if buffer is None:
            return
        if not repeats:
            record = partial(self._record, batch, self.writes, buffer, offsets, width, lane)
            record()
            if proxy.order:
                queue.stored.append((queue.committed, record))
        batch.launch.traffic.global_bytes_written += len(offsets) * width
        if self.reduction:
            self._require_initialised(batch, lane, buffer, offsets, width)
        buffer.data[every] = self._reduced(buffer.data[every], content)
        if buffer.written is not None:
            buffer.written[every[meant]] = WRITTEN

    def _repeats(
        self, batch: Batch, lane: int, buffer: Buffer | None, offsets: np.ndarray, content: np.ndarray
    ) -> bool:
        """Whether a copy brings what another copy of the block has brought there, which no byte can tell (`borne`)."""
        proxy, size = batch.asynchronous, content.shape[1]
        if buffer is None or not proxy.shadow or self.reduction or EQUAL_STORES in batch.launch.strict:
            return False
        if not proxy.globals.repeats(buffer, offsets, size, lane // batch.threads):
            return False
        return bool((buffer.data[offsets[:, None] + np.arange(size)] == content).all())

    def _require_room(self, batch: Batch, lane: int, targets: np.ndarray, width: int, meant: np.ndarray) -> None:
        """Raise Fault unless the padding behind a row, which a store writes, lies in the row's own buffer."""
        if meant.all() or not meant.any():
            return
        buffer = batch.launch.memory.get(int(targets[np.argmax(meant)]) >> WINDOW_BITS)
        if buffer is None:
            return
        ends = targets[~meant] + width - buffer.address
        if (ends > len(buffer.data)).any():
            sentence = (
                f"stores rows that end within 16 bytes, of which a GPU writes all: byte {int(ends.max()) - 1} of "
            )
            sentence += f"buffer {buffer.name!r} is behind the end of the last row, and of the buffer, which has "
            batch.fault("out_of_bounds", self.instruction, lane, f"{sentence}{len(buffer.data)} bytes")

    # ---- global memory ----------------------------------------------------------------------------------------------

    def _require_initialised(self, batch: Batch, lane: int, buffer: Buffer, offsets: np.ndarray, width: int) -> None:
        if buffer.written is None:
            return
        missing = (buffer.written[offsets[:, None] + np.arange(width)] != WRITTEN).any(axis=1)
        if missing.any():
            byte = int(offsets[np.argmax(missing)])
            sentence = f"copies {width} bytes at byte {byte} of buffer {buffer.name!r}, {buffer.missing}"
            batch.fault("unwritten_read", self.instruction, lane, sentence)

    def _record(self, batch: Batch, access: Access, buffer: Buffer, offsets: np.ndarray, width: int, lane: int) -> None:
        """Record a copy in the shadow of global memory, as the thread that issued it, in whole units."""
        shadow = batch.launch.shadow
        batch.check_launches(access, buffer, offsets, width, np.full(len(offsets), lane))
        if not shadow or not buffer.writable:
            return
        if width >= self.unit:
            index = (offsets[:, None] // self.unit + np.arange(width // self.unit)).reshape(-1)
        else:
            index, counts = np.unique(offsets // self.unit, return_counts=True)
            index = index[counts * width == self.unit]
        block, thread = (np.full(len(index), each) for each in divmod(lane, batch.threads))
        batch.addressing.report_here()
        if len(index):
            shadow.record(access, Resolved(buffer, index), Who(index, block, thread))


def _wait(found: Mbarrier) -> str:
    """The wait that orders a copy before what follows, in words."""
    mbarrier = f"phase {found.phase} of its mbarrier (byte {found.byte} of shared memory)"
    return f"no thread that waited for {mbarrier} let this one know"


# ---- reductions -----------------------------------------------------------------------------------------------------

# An H200 adds float32 elements of a tensor map without flushing subnormals, and float32_ftz with.
_OF_TENSOR = {
    "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float32_ftz": "f32", "float64": "f64",
}  # fmt: skip


class Reduction(NamedTuple):
    """How `cp.reduce.async.bulk` combines an element in memory with one that arrives.

    compute: (old, new) → new; kind: of an element
    """

    compute: Compute
    kind: type


def reduction(words: list[str], in_global: bool) -> Reduction:
    """Find a reduction by operation and type, such as `["add", "noftz", "bf16"]`. Raises Unsupported."""
    name, kind = ".".join(words), words[-1]
    if name == "add.f32" and in_global:
        compute = GLOBAL_ADD_F32.apply
    elif name in ATOMICS and words[0] not in ("exch", "cas"):
        compute = ATOMICS[name].apply
    elif words[0] in ("min", "max") and kind in ("f16", "bf16"):
        compute = _flat(FLOATING[name].compute)
    else:
        raise Unsupported
    return Reduction(compute, UNSIGNED[SIZES[kind]])


def of_elements(operation: str, kind: str) -> Reduction:
    """Find a reduction by operation and a tensor map's element type; only `_ftz` types flush. Raises Unsupported."""
    if kind not in _OF_TENSOR:
        raise Unsupported
    element = _OF_TENSOR[kind]
    if operation in ("and", "or", "xor"):
        element = f"b{element[1:]}"
    noftz = ["noftz"] if operation == "add" and element in ("f16", "bf16") else []
    return reduction([operation, *noftz, element], kind == "float32_ftz")


def _flat(compute: Compute) -> Compute:
    return lambda old, new: compute(old[None, :], new[None, :])[0]
