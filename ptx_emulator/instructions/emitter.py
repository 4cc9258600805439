"""Operands to slots, and instructions to steps.

Every operand becomes a slot of one list: a register, a constant, or a special register. A register that is wider or
narrower than the instruction's type is converted by an extra step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from ptx_emulator.compiled.layout import ACCESS_BITS
from ptx_emulator.compiled.opcodes import OPCODES
from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions.operand_types import of_one_type, operand_types
from ptx_emulator.instructions.steps import arithmetic, guarded, hazard_checked, waited_checked
from ptx_emulator.machine.basic_blocks import DecodedStep, Fast, Step
from ptx_emulator.machine.batch import CLOCKS
from ptx_emulator.machine.launch_state import Hazard, Resources
from ptx_emulator.memory import LOCAL_BASE, SHARED_BASE, Access
from ptx_emulator.ptx import limits
from ptx_emulator.ptx import syntax as ptx
from ptx_emulator.ptx.syntax import SIZES, Immediate, Instruction, Kernel, Name, Operand, Variable, Vector
from ptx_emulator.registers import SIGNED, UNSIGNED, Bits, Compute


class Unsupported(Exception):
    """Raised by a decoder for a form of an instruction that it lacks, or that PTX does not have."""


def dtype_of(kind: str) -> type:
    """The array type of a register of this PTX type."""
    return np.bool_ if kind == "pred" else UNSIGNED[SIZES[kind]]


_TYPES = {kind: dtype_of(kind) for kind in SIZES}
_DTYPES = {kind: np.dtype(dtype) for kind, dtype in _TYPES.items()}

Decoder = Callable[["Emitter", Instruction], None]

SPECIALS = {
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    *(f"%lanemask_{relation}" for relation in ("eq", "lt", "le", "gt", "ge")),
    *("%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size", "%parameters"),
    *(f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"),
    *("%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"),
    "%shared_window",  # where the block's shared memory begins in that of its cluster
    *("%envreg1", "%envreg2"),  # the address of the workspace of a cooperative launch, its upper half first
}

# They have no value here, because they describe a machine.
_LACKED = re.compile(
    r"%(smid|nsmid|gridid|pm\d+(_64)?|envreg\d+|reserved_smem_offset_\w+"
    r"|aggr_smem_size|current_graph_exec)"
)


class Emitter:
    """The slots of one kernel, and the steps of the current instruction.

    An instruction that is decoded again, for its NumPy step, gets the slots and accesses that it got the first time.

    architecture: the module's target, such as `sm_90a`, whose matrix unit may be known
    in_flight: by instruction, the slots it uses that a `tcgen05.ld` may still write, and those that it only writes
    rewritten: all slots that an instruction may write while a `tcgen05.ld` does; number: the current instruction's
    ranked: whether addresses in shared memory have the rank of their block, as another may use them
    """

    def __init__(
        self, kernel: Kernel, module_variables: dict[str, Variable], addresses: dict[str, int], architecture: str = ""
    ):
        self.kernel, self.addresses, self.architecture = kernel, addresses, architecture
        self.kinds: list[np.dtype] = []
        self.constants: list[Bits] = []
        self.specials: dict[str, int] = {}
        self._named: dict[str, tuple[int, str]] = {}  # slot and type of each register and special register so far
        self.accesses: dict[int, Access] = {}
        self._constants: dict[tuple[type, int], int] = {}
        self._allotted: dict[int, list[int]] = {}
        self._now: list[int] = []
        self._again: Iterator[int] | None = None
        self.pending: list[DecodedStep] = []
        self.widenings: list[tuple[int, int, bool]] = []
        self.cells = {"shared": 16, "global": 16}
        self.fragments: frozenset[int] = frozenset()
        self.hazards: list[Hazard] = []
        self.in_flight: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self.rewritten: frozenset[int] = frozenset()
        self.number = 0
        self.ranked = False
        self.types = operand_types("")
        self._in_shared: set[str] = set()
        self._lay_out(module_variables)

    def _lay_out(self, module_variables: dict[str, Variable]) -> None:
        used = {
            operand.base.text if isinstance(operand, ptx.Address) and operand.base else getattr(operand, "text", "")
            for instruction in self.kernel.instructions
            for operand in instruction.operands
        }
        ends = {"shared": SHARED_BASE, "local": LOCAL_BASE}
        declared = [*self.kernel.variables.values(), *(v for v in module_variables.values() if v.name in used)]
        for variable in sorted(declared, key=lambda variable: variable.size == 0):  # dynamic shared memory comes last
            if variable.space in ends:
                start = -(-ends[variable.space] // variable.align) * variable.align
                self.addresses[variable.name] = start
                ends[variable.space] = start + variable.size
                if variable.space == "shared":
                    self._in_shared.add(variable.name)
        self.shared_size, self.local_size = ends["shared"] - SHARED_BASE, ends["local"] - LOCAL_BASE
        if self.local_size > limits.LOCAL:
            sentence = f"{self.local_size} bytes of local memory, more than the {limits.LOCAL} of a thread"
            raise NotEmulated(f"not emulated: {self.kernel.name}: {sentence}")
        self.parameter_offsets, end = {}, 0
        for parameter in self.kernel.parameters:
            end = -(-end // parameter.align) * parameter.align
            self.parameter_offsets[parameter.name] = end
            end += parameter.size
        self.parameter_size = end

    def begin(self, number: int, mnemonic: str) -> None:
        """Begin instruction number `number` of the kernel, for the first time or again."""
        self.discard()
        self.number, self.types = number, operand_types(mnemonic)
        self._again = iter(self._allotted[number]) if number in self._allotted else None
        self._now = self._allotted.setdefault(number, [])

    def prune(self) -> Emitter:
        """A copy that can be pickled and can decode instructions again, without what `Resources` holds as well."""
        pruned = copy(self)
        pruned.kernel = replace(self.kernel, instructions=[])
        pruned.kinds, pruned.constants, pruned.accesses, pruned.hazards = [], [], {}, []
        pruned._now, pruned._again = [], None
        pruned.discard()
        return pruned

    def filled(self, resources: Resources) -> Emitter:
        """Fill in what `prune` left out, to decode an instruction again. resources: the kernel's"""
        self.kinds, self.constants = resources.kinds, resources.constants
        self.accesses, self.hazards = resources.accesses, resources.hazards
        return self

    def slot(self, kind: str) -> int:
        """Allocate a slot of the current instruction."""
        if self._again is not None:
            return next(self._again)
        self._now.append(self._new(kind))
        return self._now[-1]

    def _new(self, kind: str) -> int:
        self.kinds.append(_DTYPES[kind])
        return len(self.kinds) - 1

    def kind(self, slot: int) -> np.dtype:
        """The type of a register or constant."""
        return self.kinds[slot] if slot >= 0 else self.constants[~slot].dtype

    def constant(self, bits: int, kind: str) -> int:
        """The slot of a constant of this type, which wraps; it is negative."""
        dtype = dtype_of(kind)
        bits = bool(bits) if kind == "pred" else bits & ((1 << 8 * SIZES[kind]) - 1)
        if (dtype, bits) not in self._constants:
            self.constants.append(np.full((1, 1), bits, dtype))
            self._constants[dtype, bits] = ~(len(self.constants) - 1)
        return self._constants[dtype, bits]

    def access(self, instruction: Instruction, space: str, kind: str, size: int, count: int = 1, **how: bool) -> Access:
        """Add an access of the kernel. how: further fields of the Access"""
        if self._again is not None:
            return self.accesses[next(self._again)]
        number = len(self.accesses)
        self._now.append(number)
        if number >> ACCESS_BITS:
            raise NotEmulated(f"not emulated: a kernel with more than {number} accesses to memory")
        self.accesses[number] = Access(instruction, space, kind, size, count, **how, number=number)
        return self.accesses[number]

    @property
    def registers(self) -> dict[str, int]:
        """The slot of each register so far, by name."""
        return {text: slot for text, (slot, _) in self._named.items() if text in self.kernel.registers}

    def named(self, text: str) -> tuple[int, str] | None:
        """The slot and type of a register or special register."""
        found = self._named.get(text)
        if found is None:
            kind = self.kernel.registers.get(text)
            special = not kind and text in SPECIALS
            if special:
                kind = "b64" if text == "%parameters" else "b32"
            if not kind:
                return None
            found = self._named[text] = self._new(kind), kind
            if special:
                self.specials[text] = found[0]
        return found

    def require_one_type(self, vector: Vector) -> None:
        """Raise Unsupported for a vector of registers of several types."""
        found = [self.named(item.text) for item in vector.items if isinstance(item, Name) and item.text != "_"]
        if not of_one_type(each[1] for each in found if each):
            raise Unsupported("the registers of a vector are of one type")

    def source(self, operand: Operand, kind: str) -> int:
        """The slot to read an operand of type `kind` from."""
        if isinstance(operand, Immediate):
            return self.constant(self._pattern(operand, kind), kind)
        if not isinstance(operand, Name) or (operand.negated and kind != "pred"):
            raise Unsupported
        if operand.text in self.parameter_offsets:
            start = self.constant(self.parameter_offsets[operand.text], kind)
            sources = (self.named("%parameters")[0], start)
            return self.compute(np.add, kind, sources, fast=OPCODES["add.u64"] if kind == "b64" else None)
        found = self._clock(operand.text) if operand.text in CLOCKS else self.named(operand.text)
        if not found:
            return self._variable(operand.text, kind)
        slot, own = found
        special = operand.text in SPECIALS or operand.text in CLOCKS
        if not (self.types.takes_special(own, kind) if special else self.types.takes_source(own, kind)):
            raise Unsupported(_unlike(operand, own, kind))
        if _TYPES[own] is not _TYPES[kind]:
            slot = self._converted(slot, kind)
        if operand.negated:
            slot = self.compute(np.logical_not, "pred", (slot,), fast=OPCODES["not.pred"])
        return slot

    def _clock(self, name: str) -> tuple[int, str]:
        """A new slot with what a clock shows when the current instruction runs, and its type."""
        kind = f"b{8 * CLOCKS[name]}"
        slot = self.slot(kind)
        self.emit(lambda batch, mask: batch.assign(slot, batch.clock(name), mask), (), (slot,))
        return slot, kind

    def _pattern(self, operand: Immediate, kind: str) -> int:
        if not self.types.takes_constant(operand, kind):
            raise Unsupported(f"a constant of another type stands where .{kind} is wanted")
        if operand.size == 8 and SIZES[kind] == 4:
            value = np.uint64(operand.bits).view(np.float64).astype(np.float32)
            return int(value.view(np.uint32))
        return operand.bits

    def address_of(self, name: str) -> int:
        """The address of a variable in its space."""
        if name not in self.addresses:
            raise Unsupported(f"the special register {name}" if _LACKED.fullmatch(name) else "")
        return self.addresses[name]

    def _variable(self, name: str, kind: str) -> int:
        """The slot of a variable's address."""
        base, offset = self.place_of(name, 0, kind)
        if base < 0:
            return base
        base = self._converted(base, kind) if SIZES[kind] != 4 else base
        start, fast = self.constant(offset, kind), OPCODES.get(f"add.u{8 * SIZES[kind]}")
        return self.compute(np.add, kind, (base, start), fast=fast)

    def place_of(self, name: str, offset: int, kind: str) -> tuple[int, int]:
        """The slot of an address, and bytes behind it, of a place in a variable."""
        at = self.address_of(name) + offset
        if self.ranked and name in self._in_shared:
            return self.named("%shared_window")[0], at
        return self.constant(at, kind), 0

    def _converted(self, slot: int, kind: str) -> int:
        dtype = dtype_of(kind)
        fast = _resize(self.kind(slot).itemsize, SIZES[kind], False)
        return self.compute(lambda value: value.astype(dtype), kind, (slot,), fast=fast)

    def target(self, operand: Operand, kind: str) -> int:
        """The slot to write a result of type `kind` to; a wider register is extended afterwards."""
        if isinstance(operand, Name) and operand.text == "_":
            return self.slot(kind)
        found = self.named(operand.text) if isinstance(operand, Name) and not operand.negated else None
        if not found:
            raise Unsupported
        slot, own = found
        if operand.text in SPECIALS or not self.types.takes_result(own, kind):
            raise Unsupported(_unlike(operand, own, kind))
        if _TYPES[own] is _TYPES[kind]:
            return slot
        narrow = self.slot(kind)
        self.widenings.append((slot, narrow, kind.startswith("s")))
        return narrow

    def compute(
        self,
        compute: Compute,
        kind: str,
        sources: Sequence[int],
        target: int | None = None,
        fast: int | None = None,
        immediate: int = 0,
    ) -> int:
        """Emit a step that stores compute(sources) in `target`, or in a new slot of type `kind`.

        fast, immediate: opcode and immediate for the compiled interpreter
        """
        target = self.slot(kind) if target is None else target
        sources = tuple(sources)
        form = None if fast is None else Fast(fast, target, sources, immediate)
        self.emit(arithmetic(compute, target, sources), sources, (target,), form)
        return target

    def emit(self, step: Step, reads: Sequence[int], writes: Sequence[int], fast: Fast | None = None) -> None:
        """Add a step to the current instruction."""
        self.pending.append(DecodedStep(step, frozenset(reads), frozenset(writes), fast))

    def finish(
        self, guard: tuple[int, bool] | None = None, instruction: Instruction | None = None
    ) -> list[DecodedStep]:
        """The steps of the current instruction, with conversions of results, under its guard.

        instruction: for hazard checks, if it may use registers of a `wgmma`
        """
        for wide, narrow, signed in self.widenings:
            dtype, own = self.kinds[wide].type, self.kinds[narrow]
            read = SIGNED[own.itemsize] if signed else own.type
            fast = _resize(own.itemsize, self.kinds[wide].itemsize, signed)
            self.compute(
                lambda value, dtype=dtype, read=read: value.view(read).astype(dtype), "", (narrow,), wide, fast
            )
        steps = self.pending
        if self.fragments or self.in_flight:
            steps = [self._checked(step, instruction) for step in steps]
        self.discard()
        if not guard:
            return steps
        # Inactive lanes keep the old value of a result, so the step reads it, too.
        return [
            DecodedStep(
                guarded(step.run, *guard),
                step.reads | step.writes | {guard[0]},
                step.writes,
                step.fast and step.fast._replace(guard=guard),
            )
            for step in steps
        ]

    def _checked(self, step: DecodedStep, instruction: Instruction | None) -> DecodedStep:
        """The step, with a check if it uses registers of a `wgmma` or a `tcgen05.ld`; `wgmma` has its own checks."""
        if instruction and self.number in self.in_flight:
            used, written = self.in_flight[self.number]
            # Lanes that take no part in an instruction keep its result, which a step therefore reads.
            results = step.writes & written
            checked = waited_checked(step.run, instruction, (step.reads & used) - results, step.writes & used)
            step = DecodedStep(checked, step.reads, step.writes)
        reads, writes = (tuple(sorted(slots & self.fragments)) for slots in (step.reads, step.writes))
        if not instruction or not reads + writes or instruction.mnemonic.startswith("wgmma"):
            return step
        number = self._hazard(instruction, reads, writes)
        run = hazard_checked(step.run, instruction, number)
        return DecodedStep(run, step.reads, step.writes, step.fast and step.fast._replace(hazard=number))

    def _hazard(self, instruction: Instruction, reads: tuple[int, ...], writes: tuple[int, ...]) -> int:
        """The number of a new hazard of the kernel."""
        if self._again is not None:
            return next(self._again)
        vectors = any(isinstance(operand, Vector) for operand in instruction.operands)
        copies = instruction.mnemonic.startswith("mov.") and not vectors
        self.hazards.append(Hazard(instruction.location, copies, reads, writes))
        self._now.append(len(self.hazards) - 1)
        return self._now[-1]

    def discard(self) -> None:
        """Drop the steps of the current instruction."""
        self.pending, self.widenings = [], []


def _resize(size: int, target: int, signed: bool) -> int | None:
    """The opcode that changes an integer's width, given in bytes."""
    return OPCODES.get(f"cvt.u{8 * target}.{'s' if signed else 'u'}{8 * size}")


def _unlike(operand: Name, own: str, kind: str) -> str:
    return f"{operand.text} is of type .{own}, and .{kind} is wanted"
