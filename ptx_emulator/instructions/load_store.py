"""Loads, stores, atomics and fences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic.atomics import ATOMICS, GLOBAL_ADD_F32, VECTORS
from ptx_emulator.compiled import opcodes
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.operand_types import holds_address
from ptx_emulator.machine.basic_blocks import Fast
from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import OF_BLOCK, OF_CLUSTER, OF_GRID, Access
from ptx_emulator.ptx.syntax import SIZES, Address, Instruction, Name, Operand, Vector
from ptx_emulator.registers import Bits

SPACES = {
    "global": "global",
    "const": "constant",
    "param": "constant",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "shared",
    "local": "local",
}
_STRONG = {"relaxed", "acquire", "release", "acq_rel", "volatile"}
HINTS = {"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak", "cta", "cluster", "gpu", "sys"}
HINTS |= {f"L1::{hint}" for hint in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")}
HINTS |= {f"L2::{hint}" for hint in ("64B", "128B", "256B", "evict_first", "evict_last", "evict_normal", "cache_hint")}
_SCOPES = {"cta": OF_BLOCK, "cluster": OF_CLUSTER}  # the others, and none, are of the grid
_RESTRICTED = (  # fences between the proxies for what is synchronised through shared memory of the cluster
    ["acquire", "sync_restrict::shared::cluster", "cluster"],
    ["release", "sync_restrict::shared::cta", "cluster"],
)
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def _plain_access(emitter: Emitter, instruction: Instruction, kind: str) -> tuple[Access, str]:
    """The access of `ld` or `st`, and the type of its elements."""
    *modifiers, element = instruction.mnemonic.split(".")[1:]
    space, count = "generic", 1
    for modifier in modifiers:
        if modifier in SPACES:
            space = SPACES[modifier]
        elif modifier in _VECTORS:
            count = _VECTORS[modifier]
        elif modifier not in HINTS | _STRONG:
            raise Unsupported
    if element == "b128":  # the parser splits each register in two
        element, count = "b64", 2 * count
    if element not in SIZES or element == "pred" or SIZES[element] * count > 32:
        raise Unsupported
    how = _order({*modifiers}, bool(_STRONG & {*modifiers}))
    return emitter.access(instruction, space, kind, SIZES[element], count, constant="nc" in modifiers, **how), element


def scope_of(modifiers: set[str]) -> int:
    """The scope that modifiers name; of the grid without one."""
    return min(_SCOPES.get(each, OF_GRID) for each in modifiers | {"gpu"})


def _order(modifiers: set[str], strong: bool) -> dict[str, bool | int]:
    """The ordering that an access's modifiers ask for."""
    return {
        "strong": strong,
        "acquires": bool(modifiers & {"acquire", "acq_rel"}),
        "releases": bool(modifiers & {"release", "acq_rel"}),
        "scope": scope_of(modifiers),
    }


class Place(NamedTuple):
    """`[base+offset]`: a slot and bytes."""

    slot: int
    offset: int

    def of(self, batch: Batch) -> Bits:
        """The addresses of all lanes; a 32-bit address wraps at 32 bits."""
        base = batch.registers[self.slot]
        return base + base.dtype.type(self.offset % (1 << 8 * base.itemsize)) if self.offset else base


def place(emitter: Emitter, operand: Operand, access: Access) -> Place:
    """Where an access goes; notes the narrowest access of its space."""
    for space in ("shared", "global") if access.space == "generic" else (access.space,):
        if space in emitter.cells:
            emitter.cells[space] = min(emitter.cells[space], access.bytes)
    if not isinstance(operand, Address):
        raise Unsupported
    if operand.base is None:
        return Place(emitter.constant(operand.offset, "b64"), 0)
    if operand.base.negated:
        raise Unsupported
    found = emitter.named(operand.base.text)
    if not found:
        return Place(*emitter.place_of(operand.base.text, operand.offset, "b64"))
    slot, kind = found
    if not holds_address(kind):
        raise Unsupported
    return Place(slot, operand.offset)


def items_of(operand: Operand, count: int) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise Unsupported
    return items


def load(emitter: Emitter, instruction: Instruction) -> None:
    """`ld`, all spaces and widths; a parameter at a constant offset is read without an address."""
    access, element = _plain_access(emitter, instruction, "reads")
    targets = [emitter.target(item, element) for item in items_of(instruction.operands[0], access.count)]
    source = instruction.operands[1]
    if instruction.mnemonic.startswith("ld.param"):
        if not isinstance(source, Address) or not isinstance(source.base, Name):
            raise Unsupported
        if source.base.text in emitter.parameter_offsets:
            _load_parameter(emitter, access, emitter.parameter_offsets[source.base.text] + source.offset, targets)
            return
    address = place(emitter, source, access)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        for target, value in zip(targets, batch.read(access, address.of(batch), mask), strict=True):
            batch.assign(target, value, mask)

    emitter.emit(step, (address.slot,), targets, _fast(emitter, opcodes.LOADS, access, address, targets))


def _fast(emitter: Emitter, codes: dict[str, int], access: Access, address: Place, data: list[int]) -> Fast | None:
    """The access's form for the compiled interpreter; None if it has none.

    It takes global addresses from 64-bit registers alone.
    """
    code = opcodes.LOAD_CONSTANT if access.constant and access.space == "global" else codes.get(access.space)
    if access.space == "global" and (address.slot < 0 or emitter.kind(address.slot).itemsize < 8):
        return None
    if code is None or access.strong or not -(1 << 30) < address.offset < 1 << 30:
        return None
    return Fast(
        code, sources=(address.slot,), immediate=address.offset, data=tuple(data), access=access.number,
        size=access.size, count=access.count,
    )  # fmt: skip


def _load_parameter(emitter: Emitter, access: Access, offset: int, targets: list[int]) -> None:
    if not 0 <= offset <= emitter.parameter_size - access.bytes:
        raise Unsupported

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        for i, target in enumerate(targets):
            batch.assign(target, batch.parameter(offset + i * access.size, access.size), mask)

    fast = Fast(opcodes.LOAD_PARAMETER, immediate=offset, data=tuple(targets), size=access.size, count=access.count)
    emitter.emit(step, (), targets, fast)


def store(emitter: Emitter, instruction: Instruction) -> None:
    """`st`, all spaces and widths."""
    access, element = _plain_access(emitter, instruction, "writes")
    if instruction.mnemonic.startswith(("st.param", "st.const")) or len(instruction.operands) != 2:
        raise Unsupported
    address = place(emitter, instruction.operands[0], access)
    sources = [emitter.source(item, element) for item in items_of(instruction.operands[1], access.count)]

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        registers = batch.registers
        batch.write(access, address.of(batch), [registers[source] for source in sources], mask)

    emitter.emit(step, (address.slot, *sources), (), _fast(emitter, opcodes.STORES, access, address, sources))


def atomic(emitter: Emitter, instruction: Instruction) -> None:
    """`atom`, and `red`, which returns nothing; of a vector each element is updated by itself."""
    head, *modifiers = instruction.mnemonic.split(".")
    space, words = "generic", []
    for modifier in modifiers:
        if modifier in SPACES:
            space = SPACES[modifier]
        elif modifier not in _STRONG | HINTS:
            words.append(modifier)
    count = next((_VECTORS[word] for word in words if word in _VECTORS), 1)
    if count > 1:  # ptxas takes the words in any order, and its manual has `v4.f32.add`
        words.sort(key=lambda word: (word in SIZES, word in _VECTORS, word == "noftz"))
    name = ".".join(words)
    if name not in (ATOMICS if count == 1 else VECTORS) or space in ("local", "constant", *["shared"] * (count > 1)):
        raise Unsupported
    operation = ATOMICS[name] if count == 1 else VECTORS[name]
    kind = words[-1]
    in_global = GLOBAL_ADD_F32 if kind == "f32" else operation
    access = emitter.access(instruction, space, "updates", operation.size, count, **_order(set(modifiers), True))
    where, *sources = instruction.operands[head == "atom" :]
    if head == "red":
        targets = [emitter.slot(kind) for _ in range(count)]
    else:
        targets = [emitter.target(item, kind) for item in items_of(instruction.operands[0], count)]
    address = place(emitter, where, access)
    if len(sources) != 1 + operation.swaps:
        raise Unsupported
    operands = [emitter.source(item, kind) for source in sources for item in items_of(source, count)]

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        registers = batch.registers
        found = batch.update(
            access, operation, in_global, address.of(batch), [registers[slot] for slot in operands], mask
        )
        for target, values in zip(targets, found, strict=True):
            batch.assign(target, values, mask)

    emitter.emit(step, (address.slot, *operands), targets)


def fence(emitter: Emitter, instruction: Instruction) -> None:
    """`membar` and `fence`: order what was done before a strong access.

    `fence.proxy.async` orders writes to shared memory before reads of `wgmma`.
    """
    parts = instruction.mnemonic.split(".")[1:]
    if instruction.operands:
        raise Unsupported
    if parts[:2] == ["mbarrier_init", "release"]:
        emitter.emit(lambda batch, mask: batch.fence_mbarriers(mask), (), ())
        return
    if parts[:2] == ["proxy", "async::generic"] and parts[2:] in _RESTRICTED:
        emitter.emit(lambda batch, mask: (batch.fence_proxy(mask, "shared"), batch.fence(mask, OF_CLUSTER)), (), ())
        return
    if parts[:2] == ["proxy", "async"]:
        if parts[2:] not in ([], ["global"], ["shared::cta"], ["shared::cluster"]):
            raise Unsupported
        space = parts[2].partition("::")[0] if parts[2:] else None
        emitter.emit(lambda batch, mask: batch.fence_proxy(mask, space), (), ())
        return
    if not parts or not set(parts) <= {"cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel"}:
        raise Unsupported
    scope = scope_of({*parts})
    emitter.emit(lambda batch, mask: batch.fence(mask, scope), (), ())


def dependence(emitter: Emitter, instruction: Instruction) -> None:
    """`griddepcontrol`: wait for the launches before, and let the next begin."""
    if instruction.mnemonic == "griddepcontrol.wait":
        emitter.emit(lambda batch, mask: batch.wait_for_launches(mask), (), ())
    elif instruction.mnemonic == "griddepcontrol.launch_dependents":
        emitter.emit(lambda batch, mask: batch.let_next_begin(instruction), (), ())
    else:
        raise Unsupported


def nothing(emitter: Emitter, instruction: Instruction) -> None:
    """Decode instructions that change no value: prefetch, priority of a cache line, and sleep."""


DECODERS: dict[str, Decoder] = {
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
    "membar": fence,
    "fence": fence,
    "applypriority": nothing,
    "prefetch": nothing,
    "prefetchu": nothing,
    "nanosleep": nothing,
    "griddepcontrol": dependence,
}
