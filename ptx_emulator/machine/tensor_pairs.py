"""What two blocks do together in tensor memory: `tcgen05` with `cta_group::2`.

From the PTX ISA, "CTA Pair", "Issue Granularity" and "tcgen05.alloc": blocks of a cluster whose ranks differ in the
last bit are a pair. One thread of either issues a product or a copy for both. A warp of each allocates, frees and gives
up the right to, together: whichever comes first may be held until its peer comes, or not. Here it goes on, and is at
fault if its peer never comes, or comes only after something that the first does later. The peer has to have begun. A
GPU ends a kernel in which one frees before the other has allocated (NVIDIA/cutlass#3435), or while it uses the columns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ptx_emulator.machine.lanes import Lanes
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.registers import WARP

KIND = "tensor_memory"
_GROUPS = ("cta_group::1", "cta_group::2")


@dataclass
class Together:
    """An instruction that one block of a pair has executed, and its peer has not.

    lane: the first of the warp; what: its operands, in words; epoch: of that lane, then; start: of the columns it got
    """

    instruction: Instruction
    lane: int
    what: str
    epoch: int
    start: int | None = None


class TensorPairs:
    """The pairs of a batch. first: its first instruction that names a group of blocks

    alone: by the even block of a pair, what one of its blocks has executed and the other has not, in order
    allocated: by block, its last allocation
    """

    def __init__(self, lanes: Lanes, order: AsyncOrder | None):
        self.lanes, self.order = lanes, order
        self.first: Instruction | None = None
        self.alone: dict[int, deque[Together]] = {}
        self.allocated: dict[int, Together] = {}

    def blocks(self, instruction: Instruction, lane: int, paired: bool, live: bool = True) -> tuple[int, ...]:
        """The blocks that an instruction is for: the lane's own or, if paired, the even and the odd one of its pair.

        live: whether the peer may not have exited. Raises Fault if there is no pair, or another instruction has another
        group.
        """
        self.first = self.first or instruction
        if _group(self.first) != _group(instruction):
            at = self.first.location.in_full()
            sentence = f"{_name(instruction)} has {_group(instruction)}, and the {_name(self.first)} at {at} has "
            sentence += f"{_group(self.first)}: all tcgen05 instructions of a kernel have to name the same"
            self.lanes.fault(KIND, instruction, lane, sentence)
        own, size = lane // self.lanes.threads, self.lanes.launch.cluster_size
        if not paired:
            return (own,)
        if size % 2:
            sentence = f"{_name(instruction)} is for a pair of blocks, and the cluster has {size}"
            self.lanes.fault(KIND, instruction, lane, f"{sentence}, which is odd")
        if live and not self.lanes.live[own ^ 1].any():
            sentence = f"{_name(instruction)} is for a pair of blocks, and its peer, block {self._block(own ^ 1)}, has "
            self.lanes.fault(KIND, instruction, lane, f"{sentence}exited")
        return own & ~1, own | 1

    def meet(self, instruction: Instruction, lane: int, what: str) -> Together:
        """A warp executes what its peer has to execute, too: what the peer has executed, or else this."""
        own = lane // self.lanes.threads
        waiting = self.alone.setdefault(own & ~1, deque())
        self._require_begun(instruction, lane, what)
        if not waiting or waiting[0].lane // self.lanes.threads == own:
            if not self.lanes.live[own ^ 1].any():
                self._fault_alone(Together(instruction, lane, what, 0))
            waiting.append(Together(instruction, lane, what, self._leave(lane)))
            return waiting[-1]
        self._leave(lane)
        other = waiting.popleft()
        at = other.instruction.location.in_full()
        if (_name(other.instruction), other.what) != (_name(instruction), what):
            sentence = f"{_spelt(instruction, what)}, and at that time its peer, block "
            sentence += f"{self._block(own ^ 1)}, executes {_spelt(other.instruction, other.what)} at {at}"
            self.lanes.fault(KIND, instruction, lane, sentence)
        if self.order and self._knows_behind(lane, other):
            sentence = f"comes after something that its peer, block {self._block(own ^ 1)}, does behind its own at "
            sentence += f"{at}, which may wait for this one"
            self.lanes.fault("deadlock", instruction, lane, f"{_spelt(instruction, what)} {sentence}")
        return other

    def _require_begun(self, instruction: Instruction, lane: int, what: str) -> None:
        """Raise Fault if the warp does not know that its peer has begun."""
        if not self.order:
            return
        block, thread = divmod(lane, self.lanes.threads)
        cluster, row = self.order.row(block, thread)
        rank = (block ^ 1) % self.order.cluster
        if self.order.not_begun(cluster, np.arange(row, row + WARP), rank).all():
            sentence = (
                f"{_spelt(instruction, what)}, and its peer, block {self._block(block ^ 1)}, may not have begun: "
            )
            sentence += "no barrier.cluster, and nothing else that tells this warp, comes before"
            self.lanes.fault("race", instruction, lane, sentence)

    def remember(self, instruction: Instruction, lane: int, what: str) -> None:
        """A warp has allocated."""
        epoch = self._leave(lane)
        self.allocated[lane // self.lanes.threads] = Together(instruction, lane, what, epoch)

    def require_peer_allocated(self, instruction: Instruction, lane: int, what: str) -> None:
        """Raise Fault for a warp that frees, and does not know that its peer has allocated."""
        peer = lane // self.lanes.threads ^ 1
        found = self.allocated.get(peer)
        if found and (not self.order or self._knows_behind(lane, found)):
            return
        sentence = f"{_spelt(instruction, what)}, and its peer, block {self._block(peer)}, may not have allocated yet"
        sentence += f", at {found.instruction.location.in_full()}" if found else ""
        self.lanes.fault("race", instruction, lane, f"{sentence}: no barrier.cluster comes between")

    def _knows_behind(self, lane: int, other: Together) -> bool:
        """Whether a warp knows of something that another did after an instruction."""
        cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
        _, before = self.order.row(*divmod(other.lane, self.lanes.threads))
        known = self.order.clock[cluster, row : row + WARP, before : before + WARP]
        return bool((known > other.epoch).any())

    def _leave(self, lane: int) -> int:
        """Let a lane go on; an epoch such that who knows of a later one knows what the lane does from now on."""
        if not self.order:
            return 0
        cluster, _ = self.order.row(*divmod(lane, self.lanes.threads))
        self.order.now[cluster] += 1
        return int(self.order.now[cluster])

    def exit(self, block: int) -> None:
        """A block exits. Raises Fault if its peer waits for it."""
        for each in self.alone.get(block & ~1, ()):
            if each.lane // self.lanes.threads != block:
                self._fault_alone(each)

    def _fault_alone(self, each: Together) -> None:
        name = self._block(each.lane // self.lanes.threads ^ 1)
        sentence = f"{_spelt(each.instruction, each.what)} waits for ever for its peer, block {name}, which exits "
        self.lanes.fault("deadlock", each.instruction, each.lane, f"{sentence}without executing it")

    def _block(self, block: int) -> tuple[int, int, int]:
        return self.lanes.launch.block_name(self.lanes.first + block)


def _group(instruction: Instruction) -> str:
    return next(word for word in instruction.mnemonic.split(".") if word in _GROUPS)


def _name(instruction: Instruction) -> str:
    return ".".join(instruction.mnemonic.split(".")[:2])


def _spelt(instruction: Instruction, what: str) -> str:
    return f"{_name(instruction)} of {what}" if what else _name(instruction)
