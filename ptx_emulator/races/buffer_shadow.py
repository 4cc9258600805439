"""The accesses to one buffer in global memory: the last one to each cell by kind, and atomics by address.

A tag holds, from the top, the epoch of a block, the block + 1, and an agent of it; or 0 without an access. All blocks
that read a cell are kept: the last by its tag, those before in a list. Of strong accesses, a tag says that there are
some, and `StrongAccesses` who made them and when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ptx_emulator.compiled import layout
from ptx_emulator.memory import OF_BLOCK, OF_GRID, Access, Buffer
from ptx_emulator.races.block_order import AGENT_MASK, WARPS_OF, agents_of
from ptx_emulator.races.shared_memory import join_in_one_instruction
from ptx_emulator.registers import U32, U64, WARP, Bits

_FIRST = 1 << 12


class Readers:
    """A list of readers in rows: a tag, the number of its access, and the row of the previous reader, or 0.

    table: address and length of the rows and the first free one, for the compiled interpreter, which also adds rows
    """

    def __init__(self) -> None:
        self._rows = np.zeros((_FIRST, 3), U64)
        self.table = np.array([self._rows.ctypes.data, _FIRST, 1], np.int64)

    def add(self, tags: Bits, numbers: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """Add readers and return their rows; all (n,)."""
        free = int(self.table[layout.READERS_FREE])
        end = free + len(tags)
        while end + _FIRST > len(self._rows):  # leaves room for the compiled interpreter
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[free:end] = np.stack([tags, numbers.astype(U64), earlier.astype(U64)], axis=1)
        self.table[:] = self._rows.ctypes.data, len(self._rows), end
        return np.arange(free, end)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return self._rows[rows]


BLOCK_SHIFT = U64(layout.AGENT_BITS)
EPOCH_SHIFT = U64(layout.AGENT_BITS + layout.GLOBAL_BLOCK_BITS)
BLOCK_MASK = SEVERAL_BLOCKS = U64((1 << layout.GLOBAL_BLOCK_BITS) - 1)
WHO_MASK = (U64(1) << EPOCH_SHIFT) - U64(1)
WIDEST = 32  # bytes of the widest access

WRITES, READS, UPDATES = range(3)


class BufferShadows:
    """The shadows of all writable buffers of a launch. cell: bytes of the narrowest access

    rows: one for each buffer, for the compiled interpreter
    tags, numbers: (3, cells) by kind, the tag and the number of the access; earlier: (cells,), the row in `readers`
    of the previous reader, of another block, or 0
    """

    def __init__(self, cell: int, rows: np.ndarray, memory: list[Buffer]):
        self.readers = Readers()
        self._rows, self._made = rows, dict[int, BufferShadow]()
        # Rounded up, so that the widest access fits at the end of any buffer.
        sizes = [-(-len(buffer.data) // WIDEST) * WIDEST // cell if buffer.writable else 0 for buffer in memory]
        ends = np.cumsum(sizes)
        starts, cells = ends - sizes, int(ends[-1])
        # Three arrays for all, because a launch may have a hundred small buffers and touch a few.
        self._tags, self._numbers = np.zeros((3, cells), U64), np.zeros((3, cells), U32)
        self._earlier = np.zeros(cells, U32)
        for kind in range(3):
            rows[:, layout.WRITES + kind] = self._tags[kind].ctypes.data + starts * 8
            rows[:, layout.WRITE_NUMBERS + kind] = self._numbers[kind].ctypes.data + starts * 4
        rows[:, layout.EARLIER] = self._earlier.ctypes.data + starts * 4
        places = zip(memory, starts.tolist(), ends.tolist(), strict=True)
        self._places = {id(buffer): (row, slice(start, end)) for row, (buffer, start, end) in enumerate(places)}

    def of(self, identity: int) -> BufferShadow | None:
        """The shadow of the buffer with this `id`; None if it does not exist or is not writable."""
        made = self._made.get(identity)
        row, cells = self._places.get(identity, (0, slice(0, 0)))
        if made is None and cells.stop > cells.start:
            of_cells = self._tags[:, cells], self._numbers[:, cells], self._earlier[cells]
            made = self._made[identity] = BufferShadow(self._rows[row], *of_cells, self.readers)
        return made


class BufferShadow:
    """The shadow of a buffer, as in `BufferShadows`.

    constant: (cells,), 1 + the number of an access that read it as constant; None if none did
    """

    def __init__(self, row: np.ndarray, tags: Bits, numbers: np.ndarray, earlier: np.ndarray, readers: Readers):
        self.row, self.tags, self.numbers, self.earlier, self.readers = row, tags, numbers, earlier, readers
        self.constant: np.ndarray | None = None

    def has(self, kind: int) -> bool:
        """Whether there was an access of this kind."""
        return bool(self.row[layout.HAS_WRITES + kind])

    def found(self, kind: int, cells: np.ndarray) -> tuple[Bits, np.ndarray, np.ndarray]:
        """All tags of cells, (n, width), all readers among them, with the numbers of their accesses and their rows."""
        tags, numbers = self.tags[kind][cells].reshape(-1), self.numbers[kind][cells].reshape(-1)
        rows = np.repeat(np.arange(len(cells)), cells.shape[1])
        all_tags, all_numbers, all_rows = [tags], [numbers], [rows]
        if kind == READS:
            replaced = self.earlier[cells].reshape(-1)
            while replaced.any():
                rows, replaced = rows[replaced != 0], replaced[replaced != 0]
                tags, numbers, replaced = self.readers[replaced].T
                all_tags.append(tags), all_numbers.append(numbers), all_rows.append(rows)
        return np.concatenate(all_tags), np.concatenate(all_numbers), np.concatenate(all_rows)

    def write(self, cells: np.ndarray, tags: Bits, number: int) -> np.ndarray:
        """Leave tags of weak stores. Returns a mask of the ones that another lane of the instruction overwrote."""
        self.row[layout.HAS_WRITES] = 1
        self.tags[WRITES][cells], self.numbers[WRITES][cells] = tags, number
        return self.tags[WRITES][cells] != tags

    def update(self, cells: np.ndarray, tags: Bits, number: int) -> None:
        """Leave tags of strong stores and atomics.

        Several threads at a cell leave one tag, of several blocks; `StrongAccesses` tells them apart.
        """
        self.row[layout.HAS_UPDATES] = 1
        shadow = self.tags[UPDATES]
        several = tags | SEVERAL_BLOCKS << BLOCK_SHIFT
        new = np.where((shadow[cells] == 0) | (shadow[cells] & WHO_MASK == tags & WHO_MASK), tags, several)
        shadow[cells], self.numbers[UPDATES][cells] = new, number
        lost = shadow[cells] != new
        shadow[cells[lost]] = several[lost]

    def read(self, cells: np.ndarray, tags: Bits, number: int, joins: np.ndarray) -> None:
        """Leave tags of weak loads by one block. joins: where the old tag is this block's, too, and counts as well"""
        self.row[layout.HAS_READS] = 1
        shadow, numbers = self.tags[READS], self.numbers[READS]
        prior = shadow[cells]
        foreign = (prior != 0) & (prior >> BLOCK_SHIFT & BLOCK_MASK != tags >> BLOCK_SHIFT & BLOCK_MASK)
        if foreign.any():
            replaced = np.unique(cells[foreign])
            self.earlier[replaced] = self.readers.add(shadow[replaced], numbers[replaced], self.earlier[replaced])
        new = tags
        if joins.any():
            new = tags.copy()
            warps = WARPS_OF[prior[joins] & AGENT_MASK] | WARPS_OF[tags[joins] & AGENT_MASK]
            new[joins] = np.minimum(prior[joins], tags[joins]) & ~AGENT_MASK | agents_of(warps)
        shadow[cells], numbers[cells] = new, number
        if (shadow[cells] != new).any():
            join_in_one_instruction(shadow, cells, new)

    def read_as_constant(self, cells: np.ndarray, number: int) -> None:
        """Record loads through the non-coherent cache."""
        if self.constant is None:
            self.constant = np.zeros(self.tags.shape[1], U32)
            self.row[layout.CONSTANT] = 1
        self.constant[cells] = number + 1


# Plain tuples, because there are many and Python's garbage collector soon stops tracking tuples.
Thread = tuple[int, int]  # block of the grid, thread of the block


class StrongAccesses:
    """The strong accesses of a launch. Blocks count in the grid, and `when` counts accesses.

    cluster: blocks of a cluster; narrow: whether an update has a scope within the grid
    """

    def __init__(self, cluster: int) -> None:
        self._count, self._cluster, self.narrow = 0, cluster, False
        self._narrowest = self._widest = 1  # bytes of the narrowest and the widest update; addresses are aligned
        # address → thread → its last update: time, epoch of its block, bytes, whether it is a gathering atomic, scope
        self._updates: dict[int, dict[Thread, tuple[int, int, int, bool, int]]] = defaultdict(dict)
        # block, address → thread → time and epoch of its last access
        self._seen: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)

    def record(
        self, access: Access, addresses: np.ndarray, blocks: np.ndarray, threads: np.ndarray, epochs: np.ndarray
    ) -> None:
        """Record accesses by threads, one after another; all (n,)."""
        size, gathers = access.bytes, access.gathers
        every = list(
            zip(
                range(self._count, self._count + len(addresses)),
                addresses.tolist(),
                blocks.tolist(),
                threads.tolist(),
                epochs.tolist(),
                strict=True,
            )
        )
        self._count += len(addresses)
        if not gathers:  # an atomic that gathers has not seen earlier updates: their order is chance
            for when, address, block, thread, epoch in every:
                self._seen[block, address][thread] = when, epoch
        if access.kind != "reads":
            self._narrowest = min(size, self._narrowest) if self._updates else size
            self._widest = max(size, self._widest)
            self.narrow |= access.scope < OF_GRID
            for when, address, block, thread, epoch in every:
                self._updates[address][block, thread] = when, epoch, size, gathers, access.scope

    def unseen(self, access: Access, address: int, by: Thread, known: list[int]) -> Iterator[tuple[int, Thread]]:
        """Yield updates that may race with a thread's access, because neither it nor its block has seen them.

        known: the epochs that its warp knows of each warp. Yields each update's epoch and thread.
        """
        block, thread = by
        for start in range(address - address % self._widest, address + access.bytes, self._narrowest):
            if start not in self._updates:
                continue
            seen = -1  # time of the last access to the address that this thread knows of
            for other, (when, epoch) in self._seen.get((block, start), {}).items():
                if when > seen and (other == thread or epoch < known[other // WARP]):
                    seen = when
            for who, (when, epoch, size, gathers, scope) in self._updates[start].items():
                races = not access.strong or (access.takes and gathers) or self._apart(block, who[0], access, scope)
                if races and when >= seen and who != by and start + size > address:
                    yield epoch, who

    def _apart(self, block: int, other: int, access: Access, scope: int) -> bool:
        """Whether one of two strong accesses by threads of these blocks has a scope without the other's thread."""
        scope = min(scope, access.scope)
        if scope == OF_GRID or block == other:
            return False
        return scope == OF_BLOCK or block // self._cluster != other // self._cluster

    def of_blocks(self, address: int) -> set[int]:
        """The blocks whose threads updated an address by strong accesses."""
        return {block for block, _ in self._updates[address]} if address in self._updates else set()
