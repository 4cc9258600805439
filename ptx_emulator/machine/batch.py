"""A batch of blocks while a kernel runs: its lanes, registers and memory, and the effects of instructions on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from ptx_emulator.arithmetic import atomics, warp
from ptx_emulator.arithmetic.atomics import Atomic
from ptx_emulator.machine.addressing import Addressing
from ptx_emulator.machine.async_proxy import AsyncProxy
from ptx_emulator.machine.groups import CopyGroups, WgmmaGroups
from ptx_emulator.machine.lanes import Lanes, RegisterFile
from ptx_emulator.machine.launch_state import LaunchState
from ptx_emulator.machine.tensor_memory import TensorMemory
from ptx_emulator.memory import (
    OF_BLOCK,
    PENDING,
    WRITTEN,
    Access,
    BlockMemory,
    Buffer,
    Resolved,
    all_written,
    holds_state,
    mark_bytes,
)
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import GLOBAL, AsyncOrder
from ptx_emulator.races.async_shadow import AsyncShadow
from ptx_emulator.races.block_order import BlockOrder
from ptx_emulator.races.happens_before import OfBatch, of_batch
from ptx_emulator.races.shared_memory import SharedShadow
from ptx_emulator.races.wgmma_reads import AsyncWgmmaShadow, WgmmaShadow
from ptx_emulator.registers import U32, UNSIGNED, Bits

# Clocks, and the bytes of each.
CLOCKS = {"%clock": 4, "%clock_hi": 4, "%clock64": 8, "%globaltimer": 8, "%globaltimer_lo": 4, "%globaltimer_hi": 4}
_APART = 0x17C3_0000_0000_0000  # by which the two clocks differ


class Batch(Lanes):
    """Blocks `first` to `first + blocks` of a launch"""

    def __init__(self, launch: LaunchState, first: int, blocks: int, shared_size: int, specials: Mapping[str, Bits]):
        super().__init__(launch, first, blocks)
        self.registers = RegisterFile(launch.resources, blocks, self.threads)
        for slot in launch.resources.undefined:
            kind = launch.resources.kinds[slot]
            bits = 1 if kind == np.bool_ else 8 * kind.itemsize
            self.registers.put(slot, launch.schedule.stale_bits & ((1 << bits) - 1), None)
        for name, slot in launch.resources.specials.items():
            self.registers.put(slot, specials[name], None)
        shared = BlockMemory(blocks, shared_size, tracked=launch.sanitize)
        local = BlockMemory(blocks * self.threads, launch.resources.local_size, tracked=False)
        self.order: BlockOrder | None = None
        self.shadow: SharedShadow | None = None
        asynchronous = launch.resources.asynchronous
        if launch.sanitize:
            self.order = BlockOrder(blocks, self.threads)
            if asynchronous:
                self.order = AsyncOrder(blocks, self.threads, launch.cluster_size)
        if self.order and (shared_size or asynchronous):
            kinds = (SharedShadow, WgmmaShadow), (AsyncShadow, AsyncWgmmaShadow)
            kind = kinds[asynchronous][bool(launch.resources.fragments)]
            self.shadow = kind(self.order, self.threads, shared.stride, launch.resources.cell_shared)
        self._of_shadow: OfBatch | None = None
        if self.order and launch.shadow:
            self._of_shadow = of_batch(self.order, first, launch.cluster_size)
        self.addressing = Addressing(self, shared, local, self.shadow)
        if self.shadow:
            self.shadow.report = self.addressing.report_shared
            self.shadow.strict = launch.strict
        self.wgmma: WgmmaGroups | None = None
        if isinstance(self.shadow, WgmmaShadow):
            self.shadow.unfenced = self.addressing.report_unfenced
        if isinstance(self.shadow, WgmmaShadow | AsyncWgmmaShadow):
            self.wgmma = WgmmaGroups(self, self.shadow)
        self.cp_async = CopyGroups(self.shape)
        self.asynchronous: AsyncProxy | None = None
        if asynchronous:
            self.asynchronous = AsyncProxy(self, self.registers, self.addressing, self.order, self.shadow)
        self.has_tensor_memory = False
        self.spent: Callable[[], int] = lambda: 0  # what has been executed so far
        self._spent_then = 0  # when a clock was last read
        self.waited = np.zeros(self.shape, bool)  # lanes that know that the previous launches have ended
        if launch.dependence and launch.dependence.before:
            self.addressing.on_global.append(self._check_launches)
            if self.asynchronous:
                self.asynchronous.on_wait = self._know_of_launches
        self.resume()

    def resume(self) -> None:
        """Let this batch run now, and not the one that ran until now."""
        if self._of_shadow:
            self.launch.shadow.turn_to(self._of_shadow)

    def lowest_live(self) -> int:
        """The lowest number of a block with threads that have not exited; blocks count with x fastest."""
        x, y, z = self.launch.block_at(self.first + np.flatnonzero(self.live.any(axis=1)))
        grid = self.launch.grid
        return int((x + grid[0] * (y + grid[1] * z)).min())

    def held_bytes(self) -> int:
        """About how many bytes this batch takes."""
        memories = [self.addressing.shared, self.addressing.local]
        held = [self.registers, *memories, self.order, self.shadow]
        if isinstance(self.shadow, AsyncShadow):
            held += [self.shadow.readers, self.shadow.updaters]
        if self.has_tensor_memory:
            held += self.tensor_memory.memories.values()
        arrays = [array for each in held if each for array in vars(each).values() if isinstance(array, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    @cached_property
    def tensor_memory(self) -> TensorMemory:
        """The tensor memory of these blocks, made when the first `tcgen05` runs."""
        order, shadow = self.asynchronous.order, self.asynchronous.shadow
        self.has_tensor_memory = True
        return TensorMemory(self, order, shadow)

    def participants(
        self, instruction: Instruction, membermask: Bits, mask: np.ndarray | None, always: bool = False,
        orders: bool = True,
    ) -> Bits | None:  # fmt: skip
        """For each lane, the participants of a warp-wide instruction as bits; None for all 32, unless `always`.

        orders: whether it also orders the memory accesses of these lanes

        Raises Fault if the membermask names a live lane that does not execute it, or not the lane itself.
        """
        lanes = self.active(mask)
        if self.order and orders:
            self.order.warp_barrier(lanes)
            if self.launch.dependence:
                together = (self.waited & self.under(mask)).reshape(-1, 32).any(axis=1)
                self.waited |= np.repeat(together, 32).reshape(self.shape) & self.under(mask)
        if lanes is None and bool((membermask == warp.FULL).all()):
            return np.broadcast_to(warp.FULL, self.shape) if always else None
        here = warp.ballot(self.live if lanes is None else lanes)
        missing = membermask & warp.ballot(self.live) & ~here
        own = membermask >> (np.arange(self.threads, dtype=U32)[None, :] & U32(31)) & U32(1)
        wrong = ((missing != 0) | (own == 0)) & (True if lanes is None else lanes)
        if wrong.any():
            lane = int(np.argmax(wrong))
            named, absent = (int(np.broadcast_to(bits, self.shape).flat[lane]) for bits in (membermask, missing))
            problem = f"does not name lane {lane % 32}, which executes it"
            if absent:
                problem = f"names lane {(absent & -absent).bit_length() - 1}, which does not execute it"
            sentence = f"the mask {named:#010x} of {instruction.mnemonic} {problem}"
            self.fault("inactive_shuffle", instruction, lane, sentence)
        return self.full(here & membermask)

    def assign(self, slot: int, value: Bits, mask: np.ndarray | None) -> None:
        """Write a register; lanes outside the mask keep its old value."""
        self.registers.put(slot, value, mask)

    def parameter(self, offset: int, size: int) -> Bits:
        """A kernel parameter as a register."""
        return self.launch.parameters[offset : offset + size].view(UNSIGNED[size]).reshape(1, 1)

    def clock(self, name: str) -> Bits:
        """A clock, `%clock64`, as a register: now, for all lanes that read it together."""
        spent = self.spent()
        now = self.launch.clock.read(spent - self._spent_then, self.launch.changes)
        self._spent_then = spent
        start, units = self.launch.schedule.clock
        shown = start + units * now + (_APART if name.startswith("%globaltimer") else 0)
        kind = UNSIGNED[CLOCKS[name]]
        return np.full((1, 1), (shown >> (32 if name.endswith("_hi") else 0)) % (1 << 8 * CLOCKS[name]), kind)

    def wait_for_launches(self, mask: np.ndarray | None) -> None:
        """Execute `griddepcontrol.wait` for these lanes."""
        self.waited = self.waited | self.under(mask)
        if self.launch.dependence:
            self.launch.dependence.waited = True

    def let_next_begin(self, instruction: Instruction) -> None:
        """`griddepcontrol.launch_dependents`."""
        if self.launch.dependence:
            self.launch.dependence.begins_next = instruction.location

    @property
    def knows_launches(self) -> bool:
        """Whether all lanes know, for the rest of the launch, that all previous launches have ended."""
        dependence = self.launch.dependence
        if not dependence or not dependence.before:
            return True
        return not dependence.left and bool((self.waited | ~self.live).all())

    def _know_of_launches(self, lanes: np.ndarray) -> None:
        """These lanes, flat, synchronised with their blocks: if one lane knows that launches ended, they all do."""
        blocks = np.unique(lanes // self.threads)
        self.waited.reshape(-1)[lanes] |= self.waited[blocks].any()

    def _check_launches(self, access: Access, buffer: Buffer, offsets: np.ndarray, lanes: np.ndarray) -> None:
        self.check_launches(access, buffer, offsets, access.bytes, lanes)

    def check_launches(self, access: Access, buffer: Buffer, offsets: np.ndarray, size: int, lanes: np.ndarray) -> None:
        """Check accesses by lanes, (n,), to global memory that previous launches may still use."""
        if self.launch.dependence:
            waited = self.waited.reshape(-1)[lanes]
            self.launch.dependence.check(access, buffer, offsets, size, lanes, waited, self.fault)

    def barrier(self, blocks: np.ndarray | None) -> None:
        """Record that all threads of these blocks passed a barrier. blocks: (blocks,) bool, None for all"""
        if self.launch.dependence:
            chosen = slice(None) if blocks is None else blocks
            self.waited[chosen] |= self.waited[chosen].any(axis=1, keepdims=True)
        if self.order:
            self.order.block_barrier(blocks)
            self._passed(blocks, True)

    def barrier_of_some(self, number: int, lanes: np.ndarray) -> None:
        """Record that these lanes passed a barrier of only some threads of their blocks."""
        if self.launch.dependence:
            self.waited |= lanes & (self.waited & lanes).any(axis=1, keepdims=True)
        if self.order:
            self.order.barrier(number, lanes)
            self._passed(lanes.any(axis=1), False)

    def _passed(self, blocks: np.ndarray | None, of_all: bool) -> None:
        if isinstance(self.shadow, WgmmaShadow):
            self.shadow.renew()
        if self.launch.shadow:
            self.launch.shadow.happens_before.barrier(blocks, of_all)

    def arrive(self, number: int, lanes: np.ndarray) -> None:
        """Execute `bar.arrive` for these lanes."""
        if self.order:
            self.order.arrive(number, lanes)

    def fence(self, mask: np.ndarray | None, scope: int) -> None:
        """Execute `fence` or `membar` for these lanes. scope: of `memory`"""
        if isinstance(self.order, AsyncOrder) and self.launch.resources.relaxed:
            self.order.fence(self.under(mask), scope > OF_BLOCK)
        if self.launch.shadow:
            self.launch.shadow.happens_before.fence(self.under(mask), scope)

    def fence_proxy(self, mask: np.ndarray | None, space: str | None = None) -> None:
        """Execute `fence.proxy.async` for these lanes. space: `shared` or `global`, None for both"""
        if isinstance(self.shadow, WgmmaShadow) and space != GLOBAL:
            self.shadow.fence_proxy(self.under(mask))
        if isinstance(self.order, AsyncOrder):
            self.order.fence_proxy(self.under(mask), space)

    def fence_mbarriers(self, mask: np.ndarray | None) -> None:
        """Execute `fence.mbarrier_init` for these lanes."""
        if self.asynchronous:
            self.asynchronous.mbarriers.fence_init(self.under(mask))

    def read(self, access: Access, address: Bits, mask: np.ndarray | None) -> list[Bits]:
        """Load: one array for each element of the vector."""
        addresses = self.addressing.resolve(access, address, mask)
        for resolved in addresses:
            self._require_written(access, resolved)
        parts = [resolved.storage.elements(access.size, access.count)[resolved.index] for resolved in addresses]
        if self.launch.late:
            parts = [self._late(access, *each) for each in zip(addresses, parts, strict=True)]
        values = parts[0]
        if len(addresses) > 1:
            values = np.empty((len(addresses[0].which), *values.shape[1:]), values.dtype)
            for resolved, part in zip(addresses, parts, strict=True):
                values[resolved.which] = part
        if values.ndim == 1 or addresses[0].which is not None or self.addressing.positions is not None:
            values = self._to_all_lanes(values)
        return [values] if access.count == 1 else [np.ascontiguousarray(values[..., i]) for i in range(access.count)]

    def _late(self, access: Access, resolved: Resolved, found: np.ndarray) -> np.ndarray:
        """The values read in a run in which some reads come late (see `races.borne`)."""
        positions = self.addressing.positions
        lanes = np.arange(self.blocks * self.threads).reshape(self.shape) if positions is None else positions
        if resolved.which is not None:
            lanes = lanes.reshape(-1)[resolved.which]
        block, thread = np.divmod(lanes, self.threads)
        return self.launch.late.patched(access, resolved, found, self.first + block, thread)

    def write(self, access: Access, address: Bits, values: Sequence[Bits], mask: np.ndarray | None) -> None:
        """Store; of two lanes that store to one address, the later wins."""
        self._begin_store()
        addresses = self.addressing.resolve(access, address, mask)
        for resolved in addresses:
            self._require_no_copy(access, resolved)
        self._put(access, addresses, values)

    def land(self, access: Access, address: Bits, values: Sequence[Bits], mask: np.ndarray | None) -> None:
        """Store the values of a `cp.async` that was waited for."""
        self._begin_store()
        self._put(access, self.addressing.resolve(access, address, mask), values)

    def _begin_store(self) -> None:
        for shadow in (self.shadow, self.launch.shadow):
            if shadow:
                shadow.equal.clear()

    def _put(self, access: Access, addresses: Sequence[Resolved], values: Sequence[Bits]) -> None:
        flat = [self._active_values(value) for value in values]
        rows = flat[0] if access.count == 1 else np.stack(flat, axis=1)
        for resolved in addresses:
            index = resolved.index.reshape(-1)
            chosen = rows if resolved.which is None else rows[resolved.which]
            elements = resolved.storage.elements(access.size, access.count)
            shared = resolved.storage is self.addressing.shared
            shadow = self.shadow if shared else self.launch.shadow
            if shadow:
                differ = shadow.equal.disagreeing(None if shared else resolved.storage, elements, index, chosen)
                if differ is not None and differ.any():
                    self.addressing.report_unequal(access, resolved, index, int(np.argmax(differ)))
            else:
                elements[index] = chosen
            if resolved.storage.written is not None:
                mark_bytes(resolved.storage, index, access.bytes, WRITTEN)

    def mark_pending(self, access: Access, address: Bits, mask: np.ndarray | None) -> None:
        """Check the destination of a `cp.async`, whose bytes may not be read until it is waited for."""
        for resolved in self.addressing.resolve(access, address, mask, counted=False):
            self._require_no_copy(access, resolved)
            if resolved.storage.written is not None:
                mark_bytes(resolved.storage, resolved.index, access.bytes, PENDING)

    def update(
        self, access: Access, in_shared: Atomic, in_global: Atomic, address: Bits, operands: Sequence[Bits],
        mask: np.ndarray | None,
    ) -> list[Bits]:  # fmt: skip
        """Atomic: update lane after lane; returns the old values, one array for each element of the vector."""
        addresses = self.addressing.resolve(access, address, mask)
        flat = [self._active_values(value) for value in operands]
        each_element = [[value] for value in flat] if access.count > 1 else [flat]
        found = [np.empty_like(flat[0]) for _ in each_element]
        for resolved in addresses:
            self._require_written(access, resolved)
            chosen = slice(None) if resolved.which is None else resolved.which
            operation = in_global if isinstance(resolved.storage, Buffer) else in_shared
            memory = resolved.storage.elements(access.size, access.count)
            rows = resolved.index.reshape(-1)
            for i, (old, given) in enumerate(zip(found, each_element, strict=True)):
                cells = memory if access.count == 1 else memory[:, i]
                old[chosen] = atomics.run(operation, cells, rows, *(value[chosen] for value in given))
                if isinstance(resolved.storage, Buffer) and (cells[rows] != old[chosen]).any():
                    self.launch.changes += 1
        return [self._to_all_lanes(old) for old in found]

    def _active_values(self, value: Bits) -> Bits:
        """The values of the active lanes, flat."""
        flat = self.full(value).reshape(-1)
        return flat if self.addressing.positions is None else flat[self.addressing.positions]

    def _to_all_lanes(self, values: np.ndarray) -> np.ndarray:
        """Spread values of the active lanes to all lanes, with 0 elsewhere."""
        tail, positions = values.shape[1:], self.addressing.positions
        if positions is None:
            return values.reshape(*self.shape, *tail)
        out = np.zeros((self.blocks * self.threads, *tail), values.dtype)
        out[positions] = values
        return out.reshape(*self.shape, *tail)

    def _require_no_copy(self, access: Access, resolved: Resolved) -> None:
        """Raise Fault for bytes to which a `cp.async` that its thread has not waited for may still write."""
        if resolved.storage.written is None or not self.cp_async.in_flight:
            return
        awaited = holds_state(resolved.storage, resolved.index, access.bytes, PENDING)
        if awaited.any():
            row = int(np.argmax(awaited))
            name, byte = resolved.storage.name_byte(int(resolved.index.flat[row]) * access.bytes)
            sentence = f"{access.what} at byte {byte} of {name}, where a cp.async not yet waited for may still write"
            self.fault("race", access.instruction, self.addressing.lane_at(resolved, row), sentence)

    def require_written(self, access: Access, index: np.ndarray) -> None:
        """Raise Fault if one of these rows, the last that `shared_rows` resolved, was not written."""
        self._require_written(access, Resolved(self.addressing.shared, index))

    def _require_written(self, access: Access, resolved: Resolved) -> None:
        if resolved.storage.written is None:
            return
        unwritten = all_written(resolved.storage, resolved.index, access.bytes)
        if unwritten is not None:
            row = int(np.argmax(unwritten))
            name, byte = resolved.storage.name_byte(int(resolved.index.flat[row]) * access.bytes)
            start = int(resolved.index.flat[row]) * access.bytes
            pending = (resolved.storage.written[start : start + access.bytes] == PENDING).any()
            reason = "which a cp.async not yet waited for will write" if pending else resolved.storage.missing
            sentence = f"{access.what} at byte {byte} of {name}, {reason}"
            lane = self.addressing.lane_at(resolved, row)
            self.fault("unwritten_read", access.instruction, lane, sentence)
