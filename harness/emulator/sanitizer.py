"""Races, which lock-step execution would hide: a shadow of memory that remembers who touched each cell last, and when.

A cell is as many bytes as the narrowest access of the kernel. Time counts memory instructions and synchronisations. A tag is one integer, time above agent, so that "after the
last barrier" is one comparison and the line of an earlier access is a look-up by its time. Shared memory: agents are threads, ordered by barriers of their block
and, within a warp, by `bar.warp.sync`, shuffles and votes. Global memory: agents are blocks, ordered only by what a block published (fence, then atomic) and another
took over (atomic on the same address).

Two accesses race if they touch the same cell, come from different agents, are not ordered, and one of them writes; two strong accesses (atomic, volatile,
acquire, release) do not race. Storing the same value twice is still a race.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.emulator.memory import Access, Storage
from harness.emulator.operation import U32, U64, Bits

# Who read a cell since the last barrier: a thread of a block, several threads of warp w, or threads of several warps.
AGENT_BITS = 11
AGENT_MASK = U32((1 << AGENT_BITS) - 1)
IN_ONE_WARP = 1024
IN_SEVERAL_WARPS = 1024 + 32
WARP_OF = np.concatenate([np.arange(1024) // 32, np.arange(32), [99]]).astype(U32)
LAST_TICK = (1 << 32 - AGENT_BITS) - 2

SEVERAL_BLOCKS = U64(0xFFFFFFFF)
BLOCK_MASK = U64(0xFFFFFFFF)

Report = Callable[[Access, int, Access, int | None], None]
"""Raises the fault: the access, its lane among those it executes for, the earlier access, and its thread or block if it is known."""


def _cells(shadow: np.ndarray, width: int) -> np.ndarray:
    return shadow.reshape(-1, width) if width > 1 else shadow


def _columns(values: np.ndarray, width: int) -> np.ndarray:
    return values[..., None] if width > 1 else values


class SharedShadow:
    """The shadow of one batch's shared memory.

    blocks, threads: extents of the batch; stride: bytes of shared memory a block has; cell: bytes of a cell
    """

    def __init__(self, blocks: int, threads: int, stride: int, cell: int, report: Report):
        self.blocks, self.threads, self.cell, self.report = blocks, threads, cell, report
        count = blocks * stride // cell
        self.writes, self.reads, self.updates = (np.zeros(count, U32) for _ in range(3))
        self.thread = np.arange(threads, dtype=U32)[None, :]
        self.restart()

    def restart(self) -> None:
        """Forget every access. Time starts over, at 1: a tag of 0 is older than any floor."""
        for shadow in (self.writes, self.reads, self.updates):
            shadow[:] = 0
        self.now, self.events, self.has_updates = 1, [None, None], False
        self.block_floor = np.full((self.blocks, 1), 1 << AGENT_BITS, U32)
        self.warp_floor = np.full((self.blocks, self.threads), 1 << AGENT_BITS, U32)

    def _tick(self, event: Access | None) -> int:
        if self.now >= LAST_TICK:
            self.restart()
        self.now += 1
        self.events.append(event)
        return self.now << AGENT_BITS

    def block_barrier(self, blocks: np.ndarray | None) -> None:
        """All threads of these blocks met. blocks: (blocks,) bool, None for all."""
        floor = U32(self._tick(None))
        if blocks is None:
            self.block_floor[:] = floor
        else:
            self.block_floor[blocks] = floor

    def warp_barrier(self, lanes: np.ndarray | None) -> None:
        """The warps of these lanes converged. lanes: (blocks, threads) bool, None for all."""
        floor = U32(self._tick(None))
        if lanes is None:
            self.warp_floor[:] = floor
        else:
            warps = lanes.reshape(self.blocks, -1, 32).any(axis=2)
            self.warp_floor[np.repeat(warps, 32, axis=1)] = floor

    def touch(self, access: Access, index: np.ndarray, positions: np.ndarray | None) -> None:
        """Check one instruction and remember it.

        index: rows of the access's width, (blocks, threads) by broadcasting, or (n,) for the lanes at `positions` of the flattened batch
        """
        time = self._tick(access)
        width = access.bytes // self.cell
        if positions is None:
            index = np.broadcast_to(index, (self.blocks, self.threads))
            agent = _Agent(self.thread, self.block_floor, self.warp_floor, width)
        else:
            block, thread = np.divmod(positions, self.threads)
            agent = _Agent(
                thread.astype(U32), self.block_floor[block, 0], self.warp_floor.reshape(-1)[positions], width
            )
        mine = np.broadcast_to(
            _columns(U32(time) | agent.thread, width), (*index.shape, width) if width > 1 else index.shape
        )
        writes, reads, updates = (_cells(shadow, width) for shadow in (self.writes, self.reads, self.updates))
        self._against(writes[index], agent, access)
        if access.kind != "reads":
            self._against(reads[index], agent, access)
        if self.has_updates and access.kind != "updates":
            self._against(updates[index], agent, access)
        if access.kind == "reads":
            self._join(reads, index, mine, agent)
        elif access.kind == "updates":
            self.has_updates = True
            self._join(updates, index, mine, agent)
        else:
            writes[index] = mine
            lost = writes[index] != mine
            if lost.any():
                lane = int(np.argwhere(lost.reshape(index.size, -1).any(axis=1))[0, 0])
                winner = writes[index].reshape(index.size, -1)[lane]
                self.report(
                    access, lane, access, int(winner[winner != mine.reshape(index.size, -1)[lane]][0] & AGENT_MASK)
                )

    def _against(self, prior: Bits, agent: _Agent, access: Access) -> None:
        recent = prior >= agent.block_floor
        if not recent.any():
            return
        who = prior & AGENT_MASK
        elsewhere = WARP_OF[who] != agent.warp
        clash = recent & (elsewhere | ((prior >= agent.warp_floor) & (who != agent.column)))
        if clash.any():
            rows = clash.reshape(-1, agent.width)
            lane = int(np.argmax(rows.any(axis=1)))
            tag = int(prior.reshape(-1, agent.width)[lane, int(np.argmax(rows[lane]))])
            thread = tag & int(AGENT_MASK)
            self.report(access, lane, self.events[tag >> AGENT_BITS], thread if thread < IN_ONE_WARP else None)

    def _join(self, shadow: np.ndarray, index: np.ndarray, mine: Bits, agent: _Agent) -> None:
        """Add readers (or atomics) to cells that may have some since the last barrier."""
        prior = shadow[index]
        recent = prior >= agent.block_floor
        new = mine
        if recent.any():
            who = prior & AGENT_MASK
            time = mine & ~AGENT_MASK
            here = WARP_OF[who] == agent.warp
            shared = recent & here & (prior >= agent.warp_floor) & (who != agent.column)
            new = np.where(shared, time | U32(IN_ONE_WARP) + agent.warp, new)
            new = np.where(recent & ~here, time | U32(IN_SEVERAL_WARPS), new)
        shadow[index] = new
        back = shadow[index]
        lost = back != new
        if not lost.any():
            return
        time = mine & ~AGENT_MASK
        same = (WARP_OF[back & AGENT_MASK] == agent.warp) & (WARP_OF[new & AGENT_MASK] == agent.warp)
        cells = index * agent.width if agent.width == 1 else index[..., None] * agent.width + np.arange(agent.width)
        flat = shadow.reshape(-1)
        in_one = lost & same
        flat[cells[in_one]] = (time | U32(IN_ONE_WARP) + agent.warp)[in_one]
        in_several = lost & ~same
        flat[cells[in_several]] = (time | U32(IN_SEVERAL_WARPS))[in_several]


class _Agent:
    """The threads of one access, with what each is ordered behind; shaped to compare with rows of `width` cells."""

    def __init__(self, thread: Bits, block_floor: Bits, warp_floor: Bits, width: int):
        self.thread, self.width = thread, width
        self.column = _columns(thread, width)
        self.warp = self.column >> U32(5)
        self.block_floor = _columns(block_floor, width)
        self.warp_floor = _columns(warp_floor, width)


@dataclass
class _Cells:
    """Shadow of one buffer; each array made at its first use."""

    count: int
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def of(self, kind: str) -> np.ndarray:
        if kind not in self.arrays:
            self.arrays[kind] = np.zeros(self.count, U64)
        return self.arrays[kind]


class GlobalShadow:
    """The shadow of all writable buffers over one launch. cell: bytes of a cell; blocks: of the whole grid"""

    def __init__(self, cell: int, blocks: int, report: Report):
        self.cell, self.report = cell, report
        self.now = 0
        self.events: list[Access | None] = [None]
        self.buffers: dict[int, _Cells] = {}
        self.published = Publications(blocks)

    def touch(
        self, access: Access, storage: Storage, index: np.ndarray, block: np.ndarray, positions: np.ndarray | None
    ) -> None:
        """Check one instruction and remember it. block: of each index, by broadcasting; positions: of the lanes, to report them."""
        self.now += 1
        self.events.append(access)
        cells = self.buffers.get(id(storage))
        if cells is None:
            padded = -(-len(storage.data) // 32) * 32
            cells = self.buffers[id(storage)] = _Cells(padded // self.cell)
        width = access.bytes // self.cell
        shape = np.broadcast_shapes(index.shape, block.shape)
        index = np.broadcast_to(index, shape)
        agent = np.broadcast_to(_columns(block.astype(U64) + U64(1), width), (*shape, width) if width > 1 else shape)
        mine = agent | U64(self.now << 32)
        for kind in ("writes", "reads", "updates"):
            harmless = (kind == "reads" and access.kind == "reads") or (kind == "updates" and access.strong)
            if kind in cells.arrays and not harmless:
                self._against(_cells(cells.arrays[kind], width)[index], agent, access, positions)
        if access.strong or access.kind == "reads":
            self._join(_cells(cells.of("updates" if access.strong else "reads"), width), index, mine, agent)
            return
        shadow = _cells(cells.of("writes"), width)
        shadow[index] = mine
        self._against(shadow[index], agent, access, positions)

    def _against(self, prior: Bits, agent: Bits, access: Access, positions: np.ndarray | None) -> None:
        clash = (prior != 0) & (prior & BLOCK_MASK != agent)
        if not clash.any():
            return
        pairs = np.unique(np.stack([prior[clash], np.broadcast_to(agent, prior.shape)[clash]]), axis=1)
        for tag, me in pairs.T.tolist():
            time, other = tag >> 32, tag & int(BLOCK_MASK)
            if not self.published.ordered(time, other, me):
                where = clash & (prior == U64(tag)) & (agent == U64(me))
                lanes = where.reshape(where.shape[0], -1) if positions is not None else where
                row = int(np.argmax(lanes.any(axis=-1) if positions is not None else lanes.reshape(-1)))
                if positions is None and where.ndim == 3:
                    row //= where.shape[2]
                known = None if other == int(SEVERAL_BLOCKS) else other - 1
                self.report(access, row, self.events[time], known)

    def _join(self, shadow: np.ndarray, index: np.ndarray, mine: Bits, agent: Bits) -> None:
        prior = shadow[index]
        several = mine | SEVERAL_BLOCKS
        new = np.where((prior != 0) & (prior & BLOCK_MASK != agent), several, mine)
        shadow[index] = new
        lost = shadow[index] != new
        if lost.any():
            cells = index[..., None] * shadow.shape[1] + np.arange(shadow.shape[1]) if shadow.ndim > 1 else index
            shadow.reshape(-1)[cells[lost]] = several[lost]


class Publications:
    """Which blocks are ordered behind which: block A fenced and then did an atomic on an address; later B did one on the same address."""

    def __init__(self, grid_blocks: int):
        self.grid_blocks = grid_blocks
        self.fenced: dict[int, int] = {}
        self._atomics: dict[int, dict[int, tuple[int, int]]] = defaultdict(
            dict
        )  # address → block → time, fence before it
        self._taken: dict[int, dict[int, int]] = defaultdict(dict)  # block → address → time

    def fence(self, blocks: np.ndarray, now: int) -> None:
        """These blocks fenced."""
        for block in blocks.tolist():
            self.fenced[block + 1] = now

    def atomic(self, addresses: np.ndarray, blocks: np.ndarray, now: int) -> None:
        """These blocks did an atomic on these addresses."""
        for block, address in dict.fromkeys(zip((blocks + 1).tolist(), addresses.tolist(), strict=True)):
            self._atomics[address][block] = (now, self.fenced.get(block, 0))
            self._taken[block][address] = now

    def ordered(self, time: int, earlier: int, later: int) -> bool:
        """Whether what block `earlier` did at `time` happened before what block `later` does now."""
        for address, taken in self._taken[later].items():
            if earlier == int(SEVERAL_BLOCKS):
                # Whose accesses they were is forgotten: ordered if every block of the grid arrived at this address first.
                if len(self._atomics[address]) == self.grid_blocks:
                    return True
                continue
            at, fence = self._atomics[address].get(earlier, (0, 0))
            if at and at <= taken and (time <= fence or time == at):
                return True
        return False
