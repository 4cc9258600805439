"""The state of a batch of blocks while a kernel runs: registers, shared and local memory, who is alive; and every access to memory.

Lanes are (blocks, threads) with threads padded to whole warps; padding lanes have exited from the start. A mask is such an array of bools, or None for all lanes that live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.emulator import atomics, warp
from harness.emulator.atomics import Atomic
from harness.emulator.copies import Copies
from harness.emulator.counters import Traffic
from harness.emulator.emit import LOCAL_BASE, Code
from harness.emulator.memory import (
    LOCAL_WINDOW,
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW_BITS,
    Access,
    BlockMemory,
    Buffer,
    Storage,
    all_written,
    index_of,
    mark_written,
)
from harness.emulator.operation import U32, U64, UNSIGNED, Bits
from harness.emulator.ptx import Instruction
from harness.emulator.sanitizer import GlobalShadow, SharedShadow
from harness.errors import AccessError

Extent = tuple[int, int, int]


@dataclass
class Grid:
    """One launch, as far as its batches share it.

    memory: window of addresses → buffer; parameters: (size,) uint8; shadow: None without the sanitizer, or with one block
    """

    code: Code
    grid: Extent
    block: Extent
    memory: Mapping[int, Buffer]
    parameters: np.ndarray
    traffic: Traffic
    counts_traffic: bool
    sanitize: bool
    shadow: GlobalShadow | None = None

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


def coordinates(index: int, extent: Extent) -> Extent:
    """Position number `index` of a grid or block, x fastest."""
    return index % extent[0], index // extent[0] % extent[1], index // (extent[0] * extent[1])


class Batch:
    """Blocks `first` to `first + blocks` of a launch."""

    def __init__(self, launch: Grid, first: int, blocks: int, shared_size: int, specials: Mapping[str, Bits]):
        self.launch, self.first, self.blocks = launch, first, blocks
        self.threads = -(-launch.threads // 32) * 32
        self.shape = (blocks, self.threads)
        self.block_index = np.arange(blocks, dtype=np.int64)[:, None]
        self.live = np.zeros(self.shape, bool)
        self.live[:, : launch.threads] = True
        self.everyone = launch.threads == self.threads
        self.registers = list(launch.code.initial)
        for name, slot in launch.code.specials.items():
            self.registers[slot] = specials[name]
        self.shared = BlockMemory(blocks, shared_size, tracked=launch.sanitize)
        self.local = BlockMemory(blocks * self.threads, launch.code.local_size, tracked=False)
        self.copies = Copies()
        self.shadow: SharedShadow | None = None
        if launch.sanitize and shared_size:
            self.shadow = SharedShadow(
                blocks, self.threads, self.shared.stride, launch.code.cell_shared, self._report_shared
            )
        self._positions: np.ndarray | None = None  # of the lanes of the access at hand, for reports

    # ---- lanes ------------------------------------------------------------------------------------------------------

    def full(self, values: np.ndarray) -> np.ndarray:
        """A register with one value for every lane."""
        return values if values.shape == self.shape else np.ascontiguousarray(np.broadcast_to(values, self.shape))

    def acting(self, mask: np.ndarray | None) -> np.ndarray | None:
        """The lanes that act under a mask; None if it is all of the batch."""
        return mask if mask is not None else (None if self.everyone else self.live)

    def participants(
        self, instruction: Instruction, members: Bits, mask: np.ndarray | None, always: bool = False
    ) -> Bits | None:
        """For each lane the lanes of its warp it exchanges with, as bits; None for all 32, unless `always`.

        Raises AccessError if a mask names a live lane that is not here, or not the lane itself.
        """
        lanes = self.acting(mask)
        if self.shadow:
            self.shadow.warp_barrier(lanes)
        if lanes is None and (
            members.item() == 0xFFFFFFFF if members.size == 1 else bool((members == warp.FULL).all())
        ):
            return np.broadcast_to(warp.FULL, self.shape) if always else None
        here = warp.ballot(self.live if lanes is None else lanes)
        missing = members & warp.ballot(self.live) & ~here
        own = members >> (np.arange(self.threads, dtype=U32)[None, :] & U32(31)) & U32(1)
        wrong = ((missing != 0) | (own == 0)) & (True if lanes is None else lanes)
        if wrong.any():
            lane = int(np.argmax(wrong))
            mask_value = int(np.broadcast_to(members, self.shape).flat[lane])
            absent = int(np.broadcast_to(missing, self.shape).flat[lane])
            problem = (
                f"names lane {(absent & -absent).bit_length() - 1}, which does not execute it"
                if absent
                else f"does not name lane {lane % 32}, which executes it"
            )
            self.fault(
                "inactive_shuffle",
                instruction,
                lane,
                f"the mask {mask_value:#010x} of {instruction.mnemonic} {problem}",
            )
        return self.full(here & members)

    def require_source(
        self, instruction: Instruction, reached: np.ndarray, source: np.ndarray, mask: np.ndarray | None
    ) -> None:
        """Raise AccessError if a lane of a shuffle reads one that does not take part."""
        wrong = ~reached & (self.live if mask is None else mask)
        if wrong.any():
            lane = int(np.argmax(wrong))
            other = int(np.broadcast_to(source, self.shape).flat[lane])
            sentence = f"{instruction.mnemonic} reads lane {other}, which does not take part or has exited"
            self.fault("inactive_shuffle", instruction, lane, sentence)

    # ---- faults -----------------------------------------------------------------------------------------------------

    def name_lane(self, lane: int) -> str:
        """`block (1, 0, 0), thread (5, 0, 0)`."""
        block, thread = divmod(lane, self.threads)
        return (
            f"block {coordinates(self.first + block, self.launch.grid)}, "
            f"thread {coordinates(thread, self.launch.block)}"
        )

    def fault(self, kind: str, instruction: Instruction, lane: int, sentence: str) -> None:
        """Raise AccessError for one lane of the flattened batch."""
        where = instruction.location
        kernel = self.launch.code.kernel.name
        raise AccessError(kind, str(where), f"{sentence}; {kernel}, {self.name_lane(lane)}{where.chain()}")

    def _lane_of(self, row: int, positions: np.ndarray | None) -> int:
        return row if positions is None else int(positions[row])

    def _report_shared(self, access: Access, row: int, earlier: Access, other: int | None) -> None:
        lane = self._lane_of(row, self._positions)
        who = f"thread {coordinates(other, self.launch.block)}" if other is not None else "other threads"
        thread = lane % self.threads
        same_warp = other is not None and other // 32 == thread // 32
        if earlier is access:
            problem = f"{who} writes the same shared bytes in the same instruction"
        else:
            verb = {"reads": "read", "writes": "wrote", "updates": "updated"}[earlier.kind]
            needed = "__syncwarp" if same_warp else "__syncthreads"
            problem = f"{who} {verb} the same shared bytes at {earlier.instruction.location} with no {needed} between"
        self.fault("race", access.instruction, lane, f"{access.kind} {access.bytes} shared bytes while {problem}")

    def report_global(self, access: Access, row: int, earlier: Access, other: int | None) -> None:
        """The sanitizer's report of a race between blocks."""
        lane = self._lane_of(row, self._positions)
        who = f"block {coordinates(other, self.launch.grid)}" if other is not None else "several blocks"
        verb = {"reads": "read", "writes": "wrote", "updates": "updated"}[earlier.kind]
        problem = f"{who} {verb} at {earlier.instruction.location} with nothing that orders them"
        self.fault("race", access.instruction, lane, f"{access.kind} {access.bytes} global bytes that {problem}")

    # ---- memory -----------------------------------------------------------------------------------------------------

    def parameter(self, offset: int, size: int) -> Bits:
        """A kernel parameter, as a register that all lanes share."""
        return self.launch.parameters[offset : offset + size].view(UNSIGNED[size]).reshape(1, 1)

    def fence(self, mask: np.ndarray | None) -> None:
        """The blocks of these lanes publish what they did."""
        shadow = self.launch.shadow
        if shadow:
            lanes = self.live if mask is None else mask
            shadow.published.fence(self.first + np.flatnonzero(lanes.any(axis=1)), shadow.now)

    def read(self, access: Access, address: Bits, mask: np.ndarray | None) -> list[Bits]:
        """Load a vector for each lane; one array per element."""
        places, positions = self._places(access, address, mask)
        parts = []
        for storage, index, which in places:
            if storage.written is not None:
                unwritten = all_written(storage, index, access.bytes)
                if unwritten is not None:
                    self._fault_unwritten(access, storage, index, unwritten, which)
            values = storage.elements(access.size, access.count)[index]
            parts.append((values, which))
        values = parts[0][0]
        if len(parts) > 1:
            total = sum(len(index) for _, index, _ in places)
            values = np.empty((total, *values.shape[1:]), values.dtype)
            for part, which in parts:
                values[which] = part
        if positions is not None or len(parts) > 1:
            values = self._scatter(values, positions)
        return [values] if access.count == 1 else [np.ascontiguousarray(values[..., i]) for i in range(access.count)]

    def _scatter(self, values: np.ndarray, positions: np.ndarray | None) -> np.ndarray:
        """Values of the lanes at `positions` as an array for all lanes, 0 elsewhere."""
        tail = values.shape[1:]
        if positions is None:
            return values.reshape(*self.shape, *tail)
        out = np.zeros((self.blocks * self.threads, *tail), values.dtype)
        out[positions] = values
        return out.reshape(*self.shape, *tail)

    def write(self, access: Access, address: Bits, values: Sequence[Bits], mask: np.ndarray | None) -> None:
        """Store a vector from each lane; of two lanes that store to one place the later one wins."""
        places, positions = self._places(access, address, mask)
        flat = [self.full(value).reshape(-1) for value in values]
        if positions is not None:
            flat = [value[positions] for value in flat]
        rows = flat[0] if access.count == 1 else np.stack(flat, axis=1)
        for storage, index, which in places:
            storage.elements(access.size, access.count)[index.reshape(-1)] = rows if which is None else rows[which]
            if storage.written is not None:
                mark_written(storage, index.reshape(-1), access.bytes)

    def update(
        self,
        access: Access,
        operation: Atomic,
        in_global: Atomic,
        address: Bits,
        operand: Bits,
        second: Bits | None,
        mask: np.ndarray | None,
    ) -> Bits:
        """Do an atomic for each lane in ascending order; what each found."""
        places, positions = self._places(access, address, mask)
        flat = [None if value is None else self.full(value).reshape(-1) for value in (operand, second)]
        if positions is not None:
            flat = [None if value is None else value[positions] for value in flat]
        found = np.empty_like(flat[0])
        for storage, index, which in places:
            index = index.reshape(-1)
            if storage.written is not None:
                unwritten = all_written(storage, index, access.bytes)
                if unwritten is not None:
                    self._fault_unwritten(access, storage, index, unwritten, which)
            here = slice(None) if which is None else which
            operation = in_global if isinstance(storage, Buffer) else operation
            other = None if flat[1] is None else flat[1][here]
            found[here] = atomics.run(operation, storage.elements(access.size, 1), index, flat[0][here], other)
        return self._scatter(found, positions)

    def _fault_unwritten(
        self, access: Access, storage: Storage, index: np.ndarray, unwritten: np.ndarray, which: np.ndarray | None
    ) -> None:
        row = int(np.argmax(unwritten))
        offset = int(index.reshape(-1)[row]) * access.bytes
        if which is not None:
            row = int(np.flatnonzero(which)[row])
        elif index.ndim > 1:
            row = self._widen(row, index.shape)
        name, offset = self._name_place(storage, offset)
        sentence = f"{access.kind} {access.bytes} bytes at byte {offset} of {name}, which nothing wrote before"
        self.fault("unwritten_read", access.instruction, self._lane_of(row, self._positions), sentence)

    def _widen(self, row: int, shape: tuple[int, ...]) -> int:
        """The first lane of the batch that holds element `row` of an array of a smaller shape."""
        block, thread = divmod(row, shape[1])
        return block * self.threads + thread

    def _name_place(self, storage: Storage, offset: int) -> tuple[str, int]:
        if isinstance(storage, Buffer):
            return f"buffer {storage.name!r}", offset
        return "shared memory", offset % storage.stride

    def _places(
        self, access: Access, address: Bits, mask: np.ndarray | None
    ) -> tuple[list[tuple[Storage, np.ndarray, np.ndarray | None]], np.ndarray | None]:
        """Where the lanes of an access fall, checked, remembered and counted.

        Returns pieces (storage, rows of the access's width, which lanes these are or None for all of them), and the positions of
        the acting lanes in the flattened batch, None for all.
        """
        lanes = self.acting(mask)
        space = access.space
        positions = None if lanes is None else np.flatnonzero(lanes)
        if space == "generic":
            space, address = self._specific(access, address, positions)
        if access.kind != "reads":
            address = np.broadcast_to(address, self.shape)
        if self.launch.counts_traffic:
            self._count(access, space, address, lanes)
        if positions is not None:
            address = np.broadcast_to(address, self.shape).reshape(-1)[positions]
        self._positions = positions
        if space == "global":
            places = self._global_places(access, address)
            if self.launch.shadow:
                self._remember_global(access, places, positions)
            return places, positions
        memory, base = (self.shared, SHARED_BASE) if space == "shared" else (self.local, LOCAL_BASE)
        offset = address - address.dtype.type(base)
        limit = memory.size - access.bytes
        if limit < 0 or int(offset.max()) > limit:
            self._fault_bounds(access, offset, limit, space)
        if access.bytes > 1 and (offset & offset.dtype.type(access.bytes - 1)).any():
            self._fault_alignment(access, offset, f"{space} memory")
        index = index_of(offset, access.bytes) + self._owners(space, positions) * (memory.stride // access.bytes)
        if self.shadow and space == "shared":
            self.shadow.touch(access, index, positions)
        return [(memory, index, None)], positions

    def _owners(self, space: str, positions: np.ndarray | None) -> np.ndarray:
        if space == "shared":
            return self.block_index if positions is None else positions // self.threads
        return np.arange(self.blocks * self.threads).reshape(self.shape) if positions is None else positions

    def _specific(self, access: Access, address: Bits, positions: np.ndarray | None) -> tuple[str, Bits]:
        """The space that generic addresses lie in, and the addresses in that space."""
        acting = address if positions is None else np.broadcast_to(address, self.shape).reshape(-1)[positions]
        windows = np.unique(acting >> U64(WINDOW_BITS))
        for space, base in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
            if (windows == U64(base >> WINDOW_BITS)).all():
                return space, address - U64(base)
        return "global", address

    def _count(self, access: Access, space: str, address: Bits, lanes: np.ndarray | None) -> None:
        traffic = self.launch.traffic
        if space == "shared":
            traffic.count_shared(address, lanes, access.bytes, *self.shape)
        elif space == "global":
            count = self.blocks * self.threads if lanes is None else int(np.count_nonzero(lanes))
            if access.kind != "writes":
                traffic.global_bytes_read += count * access.bytes
            if access.kind != "reads":
                traffic.global_bytes_written += count * access.bytes
            traffic.count_global(address, lanes, *self.shape)

    # ---- global memory ----------------------------------------------------------------------------------------------

    def _global_places(self, access: Access, address: Bits) -> list[tuple[Storage, np.ndarray, np.ndarray | None]]:
        if address.itemsize < 8:
            address = address.astype(U64)
        buffer = self.launch.memory.get(int(address.flat[0]) >> WINDOW_BITS)
        if buffer is not None:
            offset = address - U64(buffer.address)
            if int(offset.max()) <= len(buffer.data) - access.bytes:
                self._check(access, buffer, offset)
                return [(buffer, index_of(offset, access.bytes), None)]
        flat = np.broadcast_to(address, self.shape).reshape(-1) if address.ndim > 1 else address
        windows = flat >> U64(WINDOW_BITS)
        places = []
        for window in np.unique(windows).tolist():
            which = windows == U64(window)
            buffer = self.launch.memory.get(window)
            if buffer is None:
                row = int(np.argmax(which))
                sentence = f"{access.kind} {access.bytes} bytes at address {int(flat[row]):#x}, which lies in no buffer"
                self.fault("out_of_bounds", access.instruction, self._lane_of(row, self._positions), sentence)
            offset = flat[which] - U64(buffer.address)
            outside = (offset > U64(max(0, len(buffer.data) - access.bytes))) | (len(buffer.data) < access.bytes)
            if outside.any():
                first = int(np.argmax(outside))
                signed = int(offset[first].view(np.int64))
                row = int(np.flatnonzero(which)[first])
                sentence = (
                    f"{access.kind} {access.bytes} bytes at byte {signed} of buffer {buffer.name!r}, "
                    f"which has {len(buffer.data)} bytes"
                )
                self.fault("out_of_bounds", access.instruction, self._lane_of(row, self._positions), sentence)
            self._check(access, buffer, offset, which)
            places.append((buffer, index_of(offset, access.bytes), which))
        return places

    def _check(self, access: Access, buffer: Buffer, offset: Bits, which: np.ndarray | None = None) -> None:
        """Alignment of offsets within a buffer, and whether the buffer may be used so."""
        if access.bytes > 1 and (offset & U64(access.bytes - 1)).any():
            self._fault_alignment(access, offset, f"buffer {buffer.name!r}", which)
        if access.kind != "reads" and not buffer.writable:
            self._fault_permission(access, buffer, offset, which, "read-only")
        if access.kind != "writes" and not buffer.readable:
            self._fault_permission(access, buffer, offset, which, "write-only")

    def _row(self, row: int, offset: Bits, which: np.ndarray | None) -> int:
        """The lane of the batch behind element `row` of `offset`."""
        if which is not None:
            row = int(np.flatnonzero(which)[row])
        elif offset.ndim > 1:
            return self._widen(row, offset.shape)
        return self._lane_of(row, self._positions)

    def _fault_permission(
        self, access: Access, buffer: Buffer, offset: Bits, which: np.ndarray | None, what: str
    ) -> None:
        lane = self._row(0, offset, which)
        sentence = f"{access.kind} {access.bytes} bytes at byte {int(offset.flat[0])} of buffer {buffer.name!r}, which is {what}"
        self.fault("out_of_bounds", access.instruction, lane, sentence)

    def _fault_alignment(self, access: Access, offset: Bits, name: str, which: np.ndarray | None = None) -> None:
        row = int(np.argmax(offset & offset.dtype.type(access.bytes - 1)))
        sentence = f"{access.kind} {access.bytes} bytes at byte {int(offset.flat[row])} of {name}, which is not a multiple of {access.bytes}"
        self.fault("misaligned", access.instruction, self._row(row, offset, which), sentence)

    def _fault_bounds(self, access: Access, offset: Bits, limit: int, space: str) -> None:
        outside = offset > max(limit, 0) if limit >= 0 else np.ones(offset.shape, bool)
        row = int(np.argmax(outside))
        bits = 8 * offset.itemsize
        value = int(offset.flat[row])
        value -= (1 << bits) if value >> bits - 1 else 0
        sentence = f"{access.kind} {access.bytes} bytes at byte {value} of {space} memory, which has {limit + access.bytes} bytes"
        self.fault("out_of_bounds", access.instruction, self._row(row, offset, None), sentence)

    def _remember_global(
        self, access: Access, places: list[tuple[Storage, np.ndarray, np.ndarray | None]], positions: np.ndarray | None
    ) -> None:
        shadow = self.launch.shadow
        for storage, index, which in places:
            if not storage.writable:
                continue
            if index.ndim > 1:
                block = self.first + self.block_index
                index = np.broadcast_to(index, (self.blocks, index.shape[1]))
            else:
                flat = np.arange(self.blocks * self.threads) if positions is None else positions
                block = self.first + (flat if which is None else flat[which]) // self.threads
            shadow.touch(access, storage, index, block, positions)
            if access.strong:
                rows = np.broadcast_to(index, np.broadcast_shapes(index.shape, block.shape))
                owners = np.broadcast_to(block, rows.shape)
                addresses = storage.address + rows.reshape(-1) * access.bytes
                shadow.published.atomic(addresses, owners.reshape(-1), shadow.now)
