"""Resolve addresses to rows of memory: check bounds, alignment and permission, count traffic, record accesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from ptx_emulator.machine.lanes import Lanes
from ptx_emulator.memory import (
    CLUSTER_RANK_BITS,
    IN_BLOCK,
    LOCAL_BASE,
    LOCAL_WINDOW,
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW_BITS,
    Access,
    BlockMemory,
    Buffer,
    Resolved,
)
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.global_memory import Earlier, Who
from ptx_emulator.races.shared_memory import SharedShadow
from ptx_emulator.registers import U64, Bits

# A listener for accesses by lanes, (n,), to bytes of a buffer, (n,).
OnGlobal = Callable[[Access, Buffer, np.ndarray, np.ndarray], None]

LONGEST = 1 << 12  # characters of a text that the host reads
PAST = {"reads": "read", "writes": "wrote", "updates": "updated"}


class Addressing:
    """The memory of one batch.

    positions: of the current instruction's active lanes in the flattened batch; None for all
    on_global: other listeners for global accesses: the checks against bulk copies and against earlier launches
    """

    def __init__(self, lanes: Lanes, shared: BlockMemory, local: BlockMemory, shadow: SharedShadow | None):
        self.lanes, self.shared, self.local, self.shadow = lanes, shared, local, shadow
        self.ranked = lanes.launch.cluster_size > 1 and lanes.launch.resources.ranked
        self.positions: np.ndarray | None = None
        self.on_global: list[OnGlobal] = []
        self.block_index = np.arange(lanes.blocks, dtype=np.int64)[:, None]

    def resolve(self, access: Access, address: Bits, mask: np.ndarray | None, counted: bool = True) -> list[Resolved]:
        """The rows that active lanes access. Raises Fault for an access that is not allowed. counted: as traffic"""
        active = self.lanes.active(mask)
        positions = self.positions = None if active is None else np.flatnonzero(active)
        space = access.space
        if space == "generic":
            space, address = self._from_generic(address)
        elif space == "shared" and address.dtype == U64:
            # Hardware also accepts a generic address of shared memory; Transformer Engine's rotation relies on it.
            generic = address >> U64(WINDOW_BITS) == U64(SHARED_WINDOW >> WINDOW_BITS)
            address = np.where(generic, address - U64(SHARED_WINDOW), address)
        if access.kind != "reads":
            address = np.broadcast_to(address, self.lanes.shape)
        if counted and self.lanes.launch.counts_traffic:
            self._count(access, space, address, active)
        if positions is not None:
            address = np.broadcast_to(address, self.lanes.shape).reshape(-1)[positions]
        if space in ("global", "constant"):
            found = self._in_buffers(access, address)
            if self.lanes.launch.shadow:
                self._record_global(access, found)
            return found
        memory, base = (self.shared, SHARED_BASE) if space == "shared" else (self.local, LOCAL_BASE)
        owners = self._owners(space)
        if space == "shared" and self.ranked:
            address, owners = self._in_cluster(access, address, owners)
        offset = address - address.dtype.type(base)
        self._check_bounds(access, offset, memory.size, f"{space} memory")
        self._check_alignment(access, offset, f"{space} memory")
        index = _rows(offset, access.bytes) + owners * (memory.stride // access.bytes)
        if self.shadow and space == "shared":
            self.shadow.record(access, index, positions)
        return [Resolved(memory, index)]

    def shared_rows(self, access: Access, address: Bits, lanes: np.ndarray) -> np.ndarray:
        """Rows of shared memory for each lane's block. address, lanes: (n,)"""
        self.positions = lanes
        offset = address - address.dtype.type(SHARED_BASE)
        self._check_bounds(access, offset, self.shared.size, "shared memory")
        return _rows(offset, access.bytes) + self._owners("shared") * (self.shared.stride // access.bytes)

    def lane_of(self, row: int) -> int:
        """The lane of active lane number `row`."""
        return row if self.positions is None else int(self.positions[row])

    def lane_at(self, resolved: Resolved, row: int) -> int:
        """The lane of element `row` of the index."""
        return self._lane(row, resolved.index.shape, resolved.which)

    def _lane(self, row: int, shape: tuple[int, ...], which: np.ndarray | None = None) -> int:
        if which is not None:
            row = int(np.flatnonzero(which)[row])
        elif len(shape) > 1:
            row = self.lanes.first_with(row, shape)
        return self.lane_of(row)

    def _owners(self, space: str) -> np.ndarray:
        """The block, or for local memory the lane, that owns each active lane's memory."""
        lanes, positions = self.lanes, self.positions
        if space == "shared":
            return self.block_index if positions is None else positions // lanes.threads
        return np.arange(lanes.blocks * lanes.threads).reshape(lanes.shape) if positions is None else positions

    def _in_cluster(self, access: Access, address: Bits, owners: np.ndarray) -> tuple[Bits, np.ndarray]:
        """Addresses in the shared memory of the blocks of a cluster, and these blocks."""
        kind, size = address.dtype.type, self.lanes.launch.cluster_size
        rank = (address >> kind(CLUSTER_RANK_BITS)).astype(np.int64)
        if (rank >= size).any():
            row = int(np.argmax(rank >= size))
            sentence = f"{access.what} of shared memory of block {int(rank.flat[row])} of a cluster of {size}"
            self.lanes.fault("out_of_bounds", access.instruction, self._lane(row, rank.shape), sentence)
        return address & kind(IN_BLOCK), owners // size * size + rank

    def _from_generic(self, address: Bits) -> tuple[str, Bits]:
        """The space of generic addresses, and the addresses in it."""
        active = address
        if self.positions is not None:
            active = np.broadcast_to(address, self.lanes.shape).reshape(-1)[self.positions]
        windows = np.unique(active >> U64(WINDOW_BITS))
        for space, base in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
            if (windows == U64(base >> WINDOW_BITS)).all():
                return space, address - U64(base)
        return "global", address

    def _count(self, access: Access, space: str, address: Bits, active: np.ndarray | None) -> None:
        traffic, shape = self.lanes.launch.traffic, self.lanes.shape
        if space == "shared":
            traffic.count_shared(address, active, access.bytes, *shape)
        elif space == "global":
            size = access.bytes * (shape[0] * shape[1] if self.positions is None else len(self.positions))
            traffic.global_bytes_read += size if access.kind != "writes" else 0
            traffic.global_bytes_written += size if access.kind != "reads" else 0
            traffic.count_global(address, active, *shape)

    def _in_buffers(self, access: Access, address: Bits) -> list[Resolved]:
        address = address.astype(U64, copy=False)
        memory = self.lanes.launch.memory
        buffer = memory.get(int(address.flat[0]) >> WINDOW_BITS)
        if buffer is not None:
            offset = address - U64(buffer.address)
            if int(offset.max()) <= len(buffer.data) - access.bytes:
                return [self._in_buffer(access, buffer, offset, None)]
        if address.ndim > 1:
            address = np.broadcast_to(address, self.lanes.shape).reshape(-1)
        windows = address >> U64(WINDOW_BITS)
        found = []
        for window in np.unique(windows).tolist():
            which = windows == U64(window)
            buffer = memory.get(window)
            if buffer is None:
                row = int(np.argmax(which))
                sentence = f"{access.what} at address {int(address[row]):#x}, which lies in no buffer"
                self.lanes.fault("out_of_bounds", access.instruction, self.lane_of(row), sentence)
            found.append(self._in_buffer(access, buffer, address[which] - U64(buffer.address), which))
        return found

    def _in_buffer(self, access: Access, buffer: Buffer, offset: Bits, which: np.ndarray | None) -> Resolved:
        name = f"buffer {buffer.name!r}"
        self._check_bounds(access, offset, len(buffer.data), name, which)
        self._check_alignment(access, offset, name, which)
        if access.kind != "reads" and not buffer.writable:
            self._fault_permission(access, offset, which, f"{name}, which is read-only")
        if access.kind != "writes" and not buffer.readable:
            self._fault_permission(access, offset, which, f"{name}, which is write-only")
        return Resolved(buffer, _rows(offset, access.bytes), which)

    def _fault_permission(self, access: Access, offset: Bits, which: np.ndarray | None, what: str) -> NoReturn:
        sentence = f"{access.what} at byte {int(offset.flat[0])} of {what}"
        self.lanes.fault("out_of_bounds", access.instruction, self._lane(0, offset.shape, which), sentence)

    def _check_bounds(
        self, access: Access, offset: Bits, size: int, name: str, which: np.ndarray | None = None
    ) -> None:
        limit = size - access.bytes
        if limit >= 0 and int(offset.max()) <= limit:
            return
        row = int(np.argmax(offset > offset.dtype.type(limit))) if limit >= 0 else 0
        bits = 8 * offset.itemsize
        byte = int(offset.flat[row])
        byte -= (1 << bits) if byte >> bits - 1 else 0
        sentence = f"{access.what} at byte {byte} of {name}, which has {size} bytes"
        self.lanes.fault("out_of_bounds", access.instruction, self._lane(row, offset.shape, which), sentence)

    def _check_alignment(self, access: Access, offset: Bits, name: str, which: np.ndarray | None = None) -> None:
        if access.bytes == 1:
            return
        rest = offset & offset.dtype.type(access.bytes - 1)
        if rest.any():
            row = int(np.argmax(rest != 0))
            multiple = f"which is not a multiple of {access.bytes}"
            sentence = f"{access.what} at byte {int(offset.flat[row])} of {name}, {multiple}"
            self.lanes.fault("misaligned", access.instruction, self._lane(row, offset.shape, which), sentence)

    def _record_global(self, access: Access, found: list[Resolved]) -> None:
        """Record the access in the shadow of global memory."""
        lanes, shadow = self.lanes, self.lanes.launch.shadow
        self.report_here()
        for resolved in found:
            if resolved.storage.writable:
                every = np.arange(lanes.blocks * lanes.threads) if self.positions is None else self.positions
                chosen = every if resolved.which is None else every[resolved.which]
                index = resolved.index
                index = np.broadcast_to(index, lanes.shape).reshape(-1) if index.ndim > 1 else index
                shadow.record(access, resolved, Who(index, *np.divmod(chosen, lanes.threads)))
                for hears in self.on_global:
                    hears(access, resolved.storage, index * access.bytes, chosen)

    def report_here(self) -> None:
        """From now on, report races in global memory as this batch's."""
        self.lanes.launch.shadow.report = self._report_global

    def _report_global(self, access: Access, block: int, thread: int, earlier: Earlier) -> NoReturn:
        launch = self.lanes.launch
        other = launch.resources.accesses[earlier.number]
        at, past = other.instruction.location, PAST[other.kind]
        who = f"thread {launch.thread_name(earlier.thread)}" if earlier.thread is not None else "several threads"
        if earlier.as_constant and access.constant:
            problem = f"reads as constant (ld.global.nc) {access.bytes} global bytes that this launch {past} at {at}"
        elif earlier.as_constant:
            problem = f"{access.what} that this launch read as constant (ld.global.nc) at {at}"
        elif earlier.block != self.lanes.first + block:
            who = f"block {launch.block_name(earlier.block)}"
            problem = (
                f"{access.kind} {access.bytes} global bytes that {who} {past} at {at} with nothing that orders them"
            )
        elif earlier.number == access.number and access.kind == "writes":
            problem = f"writes {access.bytes} global bytes while {who} writes the same in the same instruction"
        else:
            same_warp = earlier.thread is not None and earlier.thread // 32 == thread // 32
            needed = "__syncwarp" if same_warp else "__syncthreads"
            problem = f"{access.kind} {access.bytes} global bytes that {who} of its block {past} at {at}"
            problem += f" with no {needed} between"
        self.lanes.fault("race", access.instruction, block * self.lanes.threads + thread, problem)

    def report_shared(self, access: Access, row: int, number: int, other: int | None) -> NoReturn:
        """Raise Fault for a race between threads of a block. number: of the earlier access"""
        earlier = self.lanes.launch.resources.accesses[number]
        lane = self.lane_of(row)
        who = f"thread {self.lanes.launch.thread_name(other)}" if other is not None else "several threads"
        same_warp = other is not None and other // 32 == lane % self.lanes.threads // 32
        at = earlier.instruction.location
        if number == access.number:
            problem = f"{who} writes the same shared bytes in the same instruction"
        elif earlier.instruction.mnemonic.startswith("wgmma"):
            problem = f"the wgmma at {at} reads them, with no wgmma.wait_group and then __syncthreads between"
        else:
            same_warp &= not access.instruction.mnemonic.startswith("wgmma")
            needed = "__syncwarp" if same_warp else "__syncthreads"
            problem = f"{who} {PAST[earlier.kind]} the same shared bytes at {at} with no {needed} between"
        sentence = f"{access.kind} {access.bytes} shared bytes while {problem}"
        self.lanes.fault("race", access.instruction, lane, sentence)

    def report_unequal(self, access: Access, resolved: Resolved, index: np.ndarray, row: int) -> NoReturn:
        """Raise Fault for a thread whose store and another's, by the same instruction, are of different bytes.

        index: the rows of all lanes that store now, of which one may be the other
        """
        others = [other for other in np.flatnonzero(index == index[row]).tolist() if other != row]
        thread = self.lane_at(resolved, others[-1]) % self.lanes.threads if others else None
        if resolved.storage is self.shared:
            self.report_shared(access, row, access.number, thread)
        block, mine = divmod(self.lane_at(resolved, row), self.lanes.threads)
        self._report_global(access, block, mine, Earlier(access.number, self.lanes.first + block, thread))

    def report_unfenced(self, access: Access, row: int, number: int, thread: int) -> NoReturn:
        """Raise Fault for a `wgmma` that reads shared memory written without a proxy fence."""
        who = self.lanes.launch.thread_name(thread)
        at = self.lanes.launch.resources.accesses[number].instruction.location
        sentence = f"reads shared bytes that thread {who} wrote at {at} with no fence.proxy.async between"
        self.lanes.fault("race", access.instruction, self.lane_of(row), sentence)

    def text_at(self, instruction: Instruction, lane: int, address: int) -> str:
        """The text of a `printf`, up to its first NUL. Raises Fault for an address that no memory has."""
        found = self._from(instruction, lane, address)[:LONGEST].tobytes()
        return found.partition(b"\0")[0].decode(errors="replace")

    def bytes_at(self, instruction: Instruction, lane: int, address: int, size: int) -> bytes:
        """Arguments of a `printf`. Raises Fault if they are not all in one memory."""
        found = self._from(instruction, lane, address)[:size].tobytes()
        if len(found) < size:
            self.lanes.fault(
                "out_of_bounds", instruction, lane, f"printf reads {size} bytes, and {len(found)} are there"
            )
        return found

    def _from(self, instruction: Instruction, lane: int, address: int) -> np.ndarray:
        """The bytes from a generic address to the end of the memory that it lies in."""
        window, own = address >> WINDOW_BITS, lane // self.lanes.threads
        rank = own % self.lanes.launch.cluster_size if self.ranked else 0
        for base, first, memory, owner in (
            (LOCAL_WINDOW, LOCAL_BASE, self.local, lane),
            (SHARED_WINDOW + (rank << CLUSTER_RANK_BITS), SHARED_BASE, self.shared, own),
        ):
            if window == base >> WINDOW_BITS and 0 <= address - base - first < memory.size:
                start = owner * memory.stride
                return memory.data[start + address - base - first : start + memory.size]
        buffer = self.lanes.launch.memory.get(window)
        if buffer is None or not 0 <= address - buffer.address < len(buffer.data):
            self.lanes.fault("out_of_bounds", instruction, lane, f"printf reads at {address:#x}, where no memory is")
        return buffer.data[address - buffer.address :]


def _rows(offset: Bits, size: int) -> np.ndarray:
    """Byte offsets to numbers of rows of `size` bytes."""
    return (offset >> offset.dtype.type(size.bit_length() - 1)).astype(np.int64)
