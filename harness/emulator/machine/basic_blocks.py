"""A decoded kernel: basic blocks of steps, how each of them ends, and what its registers hold at the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.emulator.machine.batch import Batch
from harness.emulator.machine.launch_state import Resources
from harness.emulator.ptx.syntax import Instruction

# Instructions that take all lanes of a warp, or of a warpgroup.
WHOLE_WARPGROUP = ("wgmma.",)
WHOLE_WARP = ("mma.", "ldmatrix.", *WHOLE_WARPGROUP)

Step = Callable[[Batch, "np.ndarray | None"], None]


@dataclass(frozen=True)
class Jump:
    """All lanes go on at `target`."""

    target: int


@dataclass(frozen=True)
class Branch:
    """Lanes whose predicate holds (negated: does not) go to `target`, the others to `otherwise`. None is the exit."""

    predicate: int
    negated: bool
    target: int | None
    otherwise: int


@dataclass(frozen=True)
class IndexedBranch:
    """Lane i goes to targets[register i]."""

    register: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Exit:
    """All lanes exit."""


@dataclass(frozen=True)
class Trap:
    """The kernel gives up."""


@dataclass(frozen=True)
class Barrier:
    """`bar` and `barrier`.

    number: slot of the barrier's, a constant where count is None
    count: slot of the number of threads, or None for all of the block; waits: False for `arrive`
    reduction: for `bar.red`, its name, and the slots of result and predicate
    """

    number: int
    count: int | None
    waits: bool
    target: int
    reduction: tuple[str, int, int] | None = None


Terminator = Jump | Branch | IndexedBranch | Exit | Trap | Barrier


@dataclass(frozen=True)
class DecodedStep:
    """A step, and the slots whose values it needs and gives."""

    step: Step
    reads: frozenset[int]
    writes: frozenset[int]


@dataclass
class Block:
    """Instructions that all run or none.

    pieces: what they were decoded to; steps: the same with dead registers released, which is what runs
    gate: slot of the mask of lanes that must arrive together, for a block that begins with a warp-wide exchange
    """

    instructions: list[Instruction]
    pieces: list[DecodedStep] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    terminator: Terminator = field(default_factory=Exit)
    gate: int | None = None


@dataclass
class Code:
    """A kernel, ready to run."""

    resources: Resources
    blocks: list[Block]
