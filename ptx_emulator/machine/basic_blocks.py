"""A decoded kernel: basic blocks of steps, and the instruction that ends each."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.launch_state import Resources, Wait
from ptx_emulator.ptx.syntax import Instruction

# Instructions that all lanes of a warpgroup, or of a warp, execute together.
WHOLE_WARPGROUP = ("wgmma.",)
WHOLE_WARP = ("mma.", "ldmatrix.", "stmatrix.", "movmatrix.", "wmma.", "tensormap.cp_fenceproxy.", *WHOLE_WARPGROUP)
WHOLE_WARP += tuple(f"tcgen05.{verb}" for verb in ("alloc.", "dealloc.", "relinquish_", "ld.", "st.", "wait::"))

ENTRY, NUMPY_STEP = 16, 64  # cost of entering a basic block, and of a NumPy step, counted in compiled instructions

POLLS, CHANGES, STORES = 1, 2, 4  # what a block does, see `Code.roles`
_POLLS = re.compile(r"ld\.(?!.*\.(nc|param|local|const)\b)[\w.:]*\b(volatile|relaxed|acquire|mmio|cv|cg)\b|atom\.")
_CHANGES = re.compile(
    r"(st|red)\.(?![\w.:]*\b(shared|local|param)\b)|st\.async|cp\.(?![\w.:]*wait)|wgmma\.(mma|commit)|call|multimem\."
    r"|mbarrier\.(init|inval|arrive|complete|expect)|barrier\.cluster\.arrive|tcgen05\.(?!wait|fence)|clusterlaunch\w+\.try"
)
_STORES = re.compile(r"(st|red|atom|cp|stmatrix|mbarrier|tcgen05|clusterlaunchcontrol|call)\b")


def is_poll(mnemonic: str) -> bool:
    """Whether an instruction may see what another block of the grid writes meanwhile, as those that poll a flag do.

    Its order does not matter: a weak load past the first cache counts, too, and is a race once the flag is written.
    """
    return bool(_POLLS.match(mnemonic))


Step = Callable[[Batch, "np.ndarray | None"], None]


@dataclass(frozen=True)
class Jump:
    """All lanes enter `target`."""

    target: int


@dataclass(frozen=True)
class Branch:
    """Lanes whose predicate holds (negated: does not) enter `target`, or exit if it is None; others, `otherwise`."""

    predicate: int
    negated: bool
    target: int | None
    otherwise: int


@dataclass(frozen=True)
class IndexedBranch:
    """`brx.idx`: each lane enters targets[its register]."""

    register: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Exit:
    """All lanes exit."""


@dataclass(frozen=True)
class Trap:
    """`trap`."""


@dataclass(frozen=True)
class Barrier:
    """`bar` and `barrier`.

    number: slot of the barrier's number; count: slot of the number of threads, or None for the whole block
    waits: False for `arrive`; aligned: whether all lanes of a warp have to be at one instruction
    reduction: for `bar.red`, its name, and the slots of result and predicate
    """

    number: int
    count: int | None
    waits: bool
    target: int
    aligned: bool
    reduction: tuple[str, int, int] | None = None


Terminator = Jump | Branch | IndexedBranch | Exit | Trap | Barrier


class Fast(NamedTuple):
    """A step's form for the compiled interpreter, in slots; `compiled.layout` explains the fields.

    data: the registers of a vector, of an `mma` (which is all), or of an exchange (membermask, and in-range or None)
    guard: slot of the predicate, and whether it is negated; hazard: number of the hazard, if it uses a `wgmma`'s
    registers
    """

    opcode: int
    target: int | None = None
    sources: tuple[int, ...] = ()
    immediate: int = 0
    data: tuple[int | None, ...] = ()
    access: int = 0
    size: int = 0
    count: int = 0
    guard: tuple[int, bool] | None = None
    hazard: int = -1


class DecodedStep(NamedTuple):
    """A step, the slots that it reads and writes, and its form for the compiled interpreter, if it has one."""

    run: Step
    reads: frozenset[int]
    writes: frozenset[int]
    fast: Fast | None = None


class Segment(NamedTuple):
    """Instructions `start` to `stop` of the compiled program."""

    start: int
    stop: int


class Origin(NamedTuple):
    """Step number `step` of instruction number `instruction` of the kernel."""

    instruction: int
    step: int


@dataclass
class Block:
    """A basic block.

    first, count: its instructions; mnemonics: how often each occurs
    steps: in order, NumPy's by origin, with compiled ones joined
    membermask: slot of the lanes that must arrive together, if the block begins with a warp-wide instruction
    takes_warpgroup: whether that is one of a whole warpgroup
    wait: if the block begins with a wait for an mbarrier
    """

    first: int
    count: int
    mnemonics: dict[str, int]
    steps: list[Origin | Segment] = field(default_factory=list)
    terminator: Terminator = field(default_factory=Exit)
    membermask: int | None = None
    takes_warpgroup: bool = False
    wait: Wait | None = None


@dataclass
class Code(ABC):
    """A kernel, ready to run.

    program: (n, columns) int32, the instructions of all segments; constants: (n,) uint64
    hazards: (n, width) int32, of `resources.hazards`; see `compiled.layout`
    """

    resources: Resources
    blocks: list[Block]
    program: np.ndarray
    constants: np.ndarray
    hazards: np.ndarray

    @cached_property
    def costs(self) -> list[int]:
        """The cost of each block, counted against the budget so that an endless kernel ends within seconds."""
        return [
            ENTRY + block.count + NUMPY_STEP * sum(not isinstance(step, Segment) for step in block.steps)
            for block in self.blocks
        ]

    @cached_property
    def mnemonics(self) -> tuple[list[str], np.ndarray]:
        """All mnemonics, and how often each occurs in each block, (blocks, mnemonics) int64."""
        names = list(dict.fromkeys(name for block in self.blocks for name in block.mnemonics))
        number = {name: i for i, name in enumerate(names)}
        counts = np.zeros((len(self.blocks), len(names)), np.int64)
        for row, block in zip(counts, self.blocks, strict=True):
            for name, count in block.mnemonics.items():
                row[number[name]] = count
        return names, counts

    @cached_property
    def bare_exits(self) -> frozenset[int]:
        """The blocks that do nothing but exit."""
        found = (i for i, block in enumerate(self.blocks) if isinstance(block.terminator, Exit) and block.count < 2)
        return frozenset(found)

    @cached_property
    def counts_warps(self) -> bool:
        """Whether the kernel has a `bar.arrive`, which counts whole warps."""
        return not all(getattr(block.terminator, "waits", True) for block in self.blocks)

    @cached_property
    def takes_clusters(self) -> bool:
        """Whether a cluster may ask for another one that has not begun."""
        return any(name.startswith("clusterlaunchcontrol.try") for block in self.blocks for name in block.mnemonics)

    @cached_property
    def roles(self) -> list[int]:
        """The roles of each block: a sum of POLLS, CHANGES and STORES; all zero in a kernel that never polls.

        A block polls if it has a load or an atomic that may see what another block of the grid writes meanwhile. It
        changes what others may wait for, or it may store to memory of its own.
        """
        kinds = (POLLS, is_poll), (CHANGES, _CHANGES.match), (STORES, _STORES.match)
        found = [sum(kind * any(map(test, block.mnemonics)) for kind, test in kinds) for block in self.blocks]
        return found if any(role & POLLS for role in found) else [0] * len(found)

    @abstractmethod
    def instruction(self, number: int) -> Instruction:
        """An instruction of the kernel, with its operands and location."""

    @abstractmethod
    def step(self, origin: Origin) -> Step:
        """The NumPy step of an instruction."""

    @abstractmethod
    def slow(self, number: int) -> Step:
        """The NumPy step of an instruction of the program."""
