"""The state of asynchronous copies and mbarriers in a batch: addresses, groups of copies, and copies in flight.

A copy is carried out when it is issued. `races` checks that nothing relies on it too early:
as long as no thread knows that the copy is complete, an access to its bytes is a race with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ptx_emulator.machine.addressing import Addressing
from ptx_emulator.machine.cluster_barrier import ClusterBarrier
from ptx_emulator.machine.lanes import Lanes, RegisterFile
from ptx_emulator.machine.launch_state import Wait
from ptx_emulator.machine.mbarrier_state import Mbarrier, Semantics
from ptx_emulator.machine.mbarriers import Mbarriers
from ptx_emulator.memory import (
    CLUSTER_RANK_BITS,
    IN_BLOCK,
    OF_CLUSTER,
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW_BITS,
    WRITTEN,
    Access,
    Buffer,
)
from ptx_emulator.ptx.syntax import UNKNOWN, Instruction
from ptx_emulator.races.async_agents import Copy
from ptx_emulator.races.async_global import AsyncGlobal
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.races.async_shadow import AsyncShadow
from ptx_emulator.races.block_order import BlockOrder
from ptx_emulator.races.borne import EXIT_READS
from ptx_emulator.races.shared_memory import SharedShadow

_NOBODY = Instruction("barrier.cluster", (), None, UNKNOWN)


class Queue:
    """The bulk groups of one thread.

    committed: how many; read, done: counters of groups that have read their source, and that are complete
    """

    def __init__(self, order: AsyncOrder | None):
        self.committed = 0
        self.read, self.done = (order.counter(), order.counter()) if order else (0, 0)
        self.copies: list[tuple[int, int]] = []  # group, number of a copy that reads shared memory
        self.stored: list[tuple[int, Callable[[], None]]] = []  # group, records a copy's writes to global memory


class AsyncProxy:
    """The asynchronous side of one batch. on_wait: called with the lanes, flat, that waited for an mbarrier"""

    def __init__(
        self, batch: Lanes, registers: RegisterFile, addressing: Addressing, order: BlockOrder | None,
        shadow: SharedShadow | None,
    ):  # fmt: skip
        self.batch, self.registers, self.addressing = batch, registers, addressing
        self.order = order if isinstance(order, AsyncOrder) else None
        self.shadow = shadow if isinstance(shadow, AsyncShadow) else None
        self.cluster = batch.launch.cluster_size
        self.mbarriers = Mbarriers(batch, self.order)
        self.cluster_barriers: dict[int, ClusterBarrier] = {}
        self.on_wait: Callable[[np.ndarray], None] = lambda lanes: None
        self.queues: dict[int, Queue] = {}
        # The blocks that learnt that a request for another cluster failed: by which instruction, and of which.
        self.refused: dict[int, tuple[Instruction, Instruction]] = {}
        self._looked: dict[int, np.ndarray] = {}  # by instruction that waits, the lanes that have been there
        self.by_mbarrier: list[tuple[Mbarrier, int]] = []  # an mbarrier, a copy to shared memory
        launch = batch.launch
        self.globals: AsyncGlobal | None = None
        if self.order:
            first = batch.first // self.cluster
            self.globals = AsyncGlobal(self.order, launch.resources.cell_global, launch.copies, first)
            self.globals.name = launch.in_cluster_name
        if self.shadow:
            self.shadow.fault, self.shadow.accesses = batch.fault, batch.launch.resources.accesses
            self.shadow.name = self.mbarriers._thread
            every = (each.instruction.mnemonic for each in self.shadow.accesses.values())
            self.shadow.ends = any(mnemonic.startswith("mbarrier.inval") for mnemonic in every)
            self.globals.fault, self.globals.shadow = batch.fault, self.shadow
            addressing.on_global.append(self.globals.record)
            if self.cluster > 1:
                addressing.on_global.append(self._see_begun)

    def in_shared(
        self, instruction: Instruction, lane: int, address: int, size: int, align: int, verb: str
    ) -> tuple[int, int]:
        """The block in the batch, and the byte of its shared memory, of an address; checks bounds and alignment."""
        batch, block = self.batch, lane // self.batch.threads
        if address >> WINDOW_BITS == SHARED_WINDOW >> WINDOW_BITS:
            address -= SHARED_WINDOW
        rank, address = address >> CLUSTER_RANK_BITS, address & IN_BLOCK
        byte = address - SHARED_BASE
        if rank >= self.cluster:
            sentence = f"{verb} {size} bytes of shared memory of block {rank} of a cluster of {self.cluster}"
            batch.fault("out_of_bounds", instruction, lane, sentence)
        if self.addressing.ranked:
            block = block // self.cluster * self.cluster + rank
        total = self.addressing.shared.size
        if not 0 <= byte <= total - size:
            sentence = f"{verb} {size} bytes at byte {byte} of shared memory, which has {total} bytes"
            batch.fault("out_of_bounds", instruction, lane, sentence)
        if address % align:
            sentence = f"{verb} shared memory at address {address:#x}, which is not a multiple of {align}"
            batch.fault("misaligned", instruction, lane, sentence)
        return block, byte

    def mbarrier(self, instruction: Instruction, lane: int, address: int, copies: bool = False) -> Mbarrier:
        """The mbarrier at an address."""
        place = self.in_shared(instruction, lane, address, 8, 8, "uses an mbarrier in")
        return self.mbarriers.find(instruction, lane, *place, copies)

    def in_global(
        self, instruction: Instruction, lane: int, addresses: np.ndarray, size: int, verb: str
    ) -> tuple[Buffer | None, np.ndarray]:
        """The buffer, and its bytes, of units of `size` bytes in global memory; checks bounds and permission."""
        batch = self.batch
        if not len(addresses):
            return None, addresses
        window = int(addresses[0]) >> WINDOW_BITS
        buffer = batch.launch.memory.get(window)
        what = f"{verb} {size * len(addresses)} bytes"
        if buffer is None:
            sentence = f"{what} at address {int(addresses[0]):#x}, which lies in no buffer"
            batch.fault("out_of_bounds", instruction, lane, sentence)
        offsets = addresses - buffer.address
        wrong = (offsets < 0) | (offsets > len(buffer.data) - size)
        if wrong.any():
            sentence = f"{what}, of which one is byte {int(offsets[np.argmax(wrong)])} of buffer {buffer.name!r}"
            batch.fault("out_of_bounds", instruction, lane, f"{sentence}, which has {len(buffer.data)} bytes")
        if verb == "reads" and not buffer.readable or verb == "writes" and not buffer.writable:
            other = "write-only" if verb == "reads" else "read-only"
            batch.fault("out_of_bounds", instruction, lane, f"{what} of buffer {buffer.name!r}, which is {other}")
        return buffer, offsets

    def waits(
        self, instruction: Instruction, wait: Wait, mask: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, Mbarrier | ClusterBarrier, bool]]:
        """The lanes that wait, flat, together with all that wait for the same; whether their phase is complete."""
        batch = self.batch
        lanes = np.flatnonzero(batch.under(mask))
        if wait.of_cluster:
            for found, members in self._by_cluster(lanes):
                complete = found.complete(members)
                for state in np.unique(complete).tolist():
                    yield members[complete == state], found, state
            return
        address = batch.full(self.registers[wait.slot]).reshape(-1)[lanes].astype(np.int64) + wait.offset
        state = batch.full(self.registers[wait.state]).reshape(-1)[lanes].astype(np.int64)
        block = lanes // batch.threads
        for at in np.unique(np.stack([block, address, state]), axis=1).T:
            chosen = lanes[(block == at[0]) & (address == at[1]) & (state == at[2])]
            found = self.mbarrier(instruction, int(chosen[0]), int(at[1]))
            if found.block != int(at[0]):
                sentence = "waits at an mbarrier of another block of the cluster, which PTX does not allow"
                batch.fault("mbarrier", instruction, int(chosen[0]), sentence)
            self.mbarriers.require_known(found, instruction, chosen)
            complete = found.phase % 2 != int(at[2]) % 2 if wait.by_parity else found.phase > int(at[2])
            yield chosen, found, complete

    def too_early(self, instruction: Instruction, found: Mbarrier, lanes: np.ndarray) -> np.ndarray:
        """Choose the lanes, flat, that are told that a complete phase is not complete yet.

        A GPU may answer so for any phase that a thread does not know to be complete. In a drawn order each lane's first
        try at an instruction gets that answer, which shows whether the kernel tries again.
        """
        if self.batch.launch.schedule.seed is None:
            return np.zeros(len(lanes), bool)
        looked = self._looked.setdefault(id(instruction), np.zeros(self.batch.shape, bool)).reshape(-1)
        early = ~looked[lanes] & self.mbarriers.may_be_late(found, lanes)
        looked[lanes] = True
        return early

    def learn(self, instruction: Instruction, found: Mbarrier, lanes: np.ndarray, semantics: Semantics) -> None:
        """These lanes, flat and of one block, waited for a phase that is complete."""
        if self.order:
            block, thread = np.divmod(lanes, self.batch.threads)
            cluster, rows = self.order.row(block, thread)
            self.mbarriers.learn(instruction, found, int(cluster[0]), rows, semantics)
        self.on_wait(lanes)

    def _by_cluster(self, lanes: np.ndarray) -> Iterator[tuple[ClusterBarrier, np.ndarray]]:
        of = lanes // (self.cluster * self.batch.threads)
        for cluster in np.unique(of).tolist():
            if cluster not in self.cluster_barriers:
                self.cluster_barriers[cluster] = ClusterBarrier(self.batch, self.order, cluster, self.cluster)
            yield self.cluster_barriers[cluster], lanes[of == cluster]

    def arrive_at_cluster(self, instruction: Instruction, lanes: np.ndarray, releases: bool) -> None:
        """`barrier.cluster.arrive` of these lanes, flat."""
        for found, members in self._by_cluster(lanes):
            self._tell_global(found, members, "updates", releases)
            found.arrive(instruction, members, releases)
            self.mbarriers.progress += 1

    def leave_cluster(self, instruction: Instruction, lanes: np.ndarray, acquires: bool) -> None:
        """`barrier.cluster.wait` of these lanes, flat, whose phase is complete."""
        for found, members in self._by_cluster(lanes):
            found.wait(instruction, members)
            self._tell_global(found, members, "reads", acquires)

    def _tell_global(self, found: ClusterBarrier, lanes: np.ndarray, kind: str, fences: bool) -> None:
        """Order global memory of the blocks of a cluster: its barrier is as a fence and an atomic of each thread.

        fences: False for a relaxed arrival, which is as the atomic alone
        """
        shadow = self.batch.launch.shadow
        if not shadow or self.cluster == 1:
            return
        order, (block, thread) = shadow.happens_before, np.divmod(lanes, self.batch.threads)
        every = np.zeros(self.batch.shape, bool)
        every.reshape(-1)[lanes] = True
        address = np.full(len(lanes), -1 - (self.batch.first + found.first // self.batch.threads))
        access = Access(_NOBODY, "global", kind, 4, strong=True, scope=OF_CLUSTER)
        if kind == "updates" and fences:
            order.fence(every, OF_CLUSTER)
        order.access(access, address, block, thread)
        if kind == "reads":
            order.fence(every, OF_CLUSTER)

    def _see_begun(self, access: Access, buffer: Buffer, offsets: np.ndarray, lanes: np.ndarray) -> None:
        """Let lanes that access strongly what another block of their cluster updated know that it has begun."""
        if not access.strong or access.kind == "writes" or not self.batch.launch.shadow:
            return
        for offset, lane in zip(offsets.tolist(), lanes.tolist(), strict=True):
            cluster, row = self.order.row(*divmod(lane, self.batch.threads))
            for block in self.batch.launch.shadow.strong.of_blocks(buffer.address + offset):
                at, rank = divmod(block - self.batch.first, self.cluster)
                if at == cluster:
                    self.order.reach(cluster, np.array([row]), self.order.begun.start + rank, 1)

    def lacks(self, found: Mbarrier | ClusterBarrier) -> str:
        """Why lanes still wait for the mbarrier or the barrier."""
        return found.lacks() if isinstance(found, ClusterBarrier) else self.mbarriers.lacks(found)

    def touch_mbarrier(self, access: Access, block: int, byte: int, lane: int, begins: bool) -> None:
        """Record the start or end of an mbarrier as a write to its bytes."""
        if self.shadow:
            index = np.array([(block * self.addressing.shared.stride + byte) // access.bytes])
            cells = self.cells(block, np.array([byte]), access.bytes)
            self.shadow.mbarriers[cells] = False
            self.shadow.record(access, index, np.array([lane]))
            if begins:  # uses of the mbarrier itself are checked elsewhere, not as accesses to its bytes
                self.shadow.writer[cells] = 0
            self.shadow.mbarriers[cells] = begins

    def queue(self, lane: int) -> Queue:
        if lane not in self.queues:
            self.queues[lane] = Queue(self.order)
        return self.queues[lane]

    def wait_group(self, lanes: np.ndarray, keep: int, read: bool) -> None:
        """`cp.async.bulk.wait_group` of these lanes, flat, for all but the `keep` latest groups."""
        if not self.order:
            return
        for lane in lanes.tolist():
            if lane not in self.queues:
                continue
            queue = self.queues[lane]
            cluster, row = self.order.row(*divmod(lane, self.batch.threads))
            for counter in [queue.read] if read else [queue.read, queue.done]:
                self.order.reach(cluster, np.array([row]), counter, max(0, queue.committed - keep))
            if not read:
                # For other blocks, a copy's writes count as written by its thread now: a fence and a flag before this
                # wait do not cover them.
                for group, record in queue.stored:
                    if group < queue.committed - keep:
                        record()
                queue.stored = [each for each in queue.stored if each[0] >= queue.committed - keep]

    def copy(self, instruction: Instruction, lane: int, kind: str, counter: int, number: int, wait: str) -> int:
        """A new copy of a thread, to be started in the shadow."""
        cluster, row = self.order.row(*divmod(lane, self.batch.threads))
        return self.shadow.new_copy(Copy(instruction, kind, int(cluster), int(row), counter, number, wait))

    def cells(self, block: int, bytes_: np.ndarray, width: int) -> np.ndarray:
        """Cells of the shadow of units of shared memory."""
        cell = self.shadow.cell
        first = (block * self.addressing.shared.stride + bytes_) // cell
        return (first[:, None] + np.arange(max(1, width // cell))).reshape(-1)

    def require_written(self, instruction: Instruction, lane: int, block: int, bytes_: np.ndarray, width: int) -> None:
        """Raise Fault for bytes of shared memory that a copy reads before anything wrote them."""
        shared = self.addressing.shared
        if shared.written is None:
            return
        every = (block * shared.stride + bytes_[:, None] + np.arange(width)).reshape(-1)
        missing = shared.written[every] != WRITTEN
        if missing.any():
            byte = int(every[np.argmax(missing)]) - block * shared.stride
            sentence = f"copies from byte {byte} of shared memory, which nothing wrote before"
            self.batch.fault("unwritten_read", instruction, lane, sentence)

    def exit(self, lanes: np.ndarray) -> None:
        """These lanes, flat, exit. Raises Fault for what of a block is still in use."""
        self.mbarriers.progress += 1
        if not self.shadow:
            return
        if self.cluster > 1:
            self._require_unused(lanes)
        if EXIT_READS not in self.batch.launch.strict:
            return
        for lane in (lane for lane in self.queues if lanes[lane]):
            queue = self.queues[lane]
            cluster, row = self.order.row(*divmod(lane, self.batch.threads))
            for group, number in queue.copies:
                if self.order.clock[cluster, row, queue.read] <= group:
                    copy = self.shadow.copies[number]
                    sentence = "exits while this copy may still read its block's shared memory: no "
                    sentence += "cp.async.bulk.wait_group.read that covers it comes before"
                    self.batch.fault("race", copy.instruction, lane, sentence)

    def _require_unused(self, lanes: np.ndarray) -> None:
        """Raise Fault if the last threads of a block exit while others of its cluster may use its shared memory."""
        left = (self.batch.live.reshape(-1) & ~lanes).reshape(self.batch.shape).any(axis=1)
        ends = lanes.reshape(self.batch.shape).any(axis=1) & ~left
        for block in np.flatnonzero(ends).tolist():
            found = self.shadow.used_by_others(block)
            used, where = "arrives at an mbarrier", self.mbarriers.used_by_others(block)
            if found:
                used, where = f"{found[0].kind} shared memory", (found[0].instruction, found[1])
            if where:
                name = self.batch.launch.block_name(self.batch.first + block)
                sentence = f"{used} of block {name}, which may have exited: no barrier.cluster comes between"
                self.batch.fault("race", *where, sentence)

    def finish(self) -> None:
        """End the batch. Raises Fault for bytes that do not add up, and for copies that nobody waited for."""
        if not self.shadow:
            return
        self.mbarriers.finish()
        for barrier, number in self.by_mbarrier:
            copy = self.shadow.copies[number]
            if (self.order.clock[copy.cluster, :, copy.counter] <= copy.number).all():
                lane = barrier.block * self.batch.threads
                sentence = "copies to shared memory of a block that exits with no thread having waited for the phase "
                sentence += f"of the mbarrier at byte {barrier.byte} (initialised at {barrier.init.location.in_full()})"
                self.batch.fault("race", copy.instruction, lane, sentence)
