"""`mov`, `selp`, `slct`, `setp`, `prmt`, `lop3` and `cvta`."""

from __future__ import annotations

import numpy as np

from harness.emulator.arithmetic.bits import lookup3, permute, permute_any
from harness.emulator.arithmetic.compare import COMBINE, COMPARISONS, comparison
from harness.emulator.instructions.emitter import Decoder, Emitter, Unsupported
from harness.emulator.memory import LOCAL_WINDOW, SHARED_WINDOW
from harness.emulator.ptx.syntax import SIZES, Immediate, Instruction, Operand, Pair, Vector
from harness.emulator.registers import I32, U64, UNSIGNED, Bits, Compute


def _kind(instruction: Instruction) -> str:
    kind = instruction.mnemonic.split(".")[-1]
    if kind not in SIZES:
        raise Unsupported
    return kind


def move(emitter: Emitter, instruction: Instruction) -> None:
    """`mov`, also between a wide register and a vector of narrow ones."""
    target, source = instruction.operands
    kind = _kind(instruction)
    if isinstance(target, Vector):
        _unpack(emitter, target.items, source, kind)
    elif isinstance(source, Vector):
        _pack(emitter, target, source.items, kind)
    else:
        emitter.compute(lambda value: value, kind, (emitter.source(source, kind),), emitter.target(target, kind))


def _part(kind: str, count: int) -> str:
    part = f"b{8 * SIZES[kind] // count}"
    if part not in SIZES:
        raise Unsupported
    return part


def _unpack(emitter: Emitter, targets: tuple[Operand, ...], source: Operand, kind: str) -> None:
    part = _part(kind, len(targets))
    slot, narrow = emitter.source(source, kind), UNSIGNED[SIZES[part]]
    for i, target in enumerate(targets):
        shift = UNSIGNED[SIZES[kind]](8 * SIZES[part] * i)
        emitter.compute(
            lambda value, shift=shift: (value >> shift).astype(narrow), part, (slot,), emitter.target(target, part)
        )


def _pack(emitter: Emitter, target: Operand, sources: tuple[Operand, ...], kind: str) -> None:
    part = _part(kind, len(sources))
    wide = UNSIGNED[SIZES[kind]]
    shifts = [wide(8 * SIZES[part] * i) for i in range(len(sources))]

    def join(*parts: Bits) -> Bits:
        out = parts[0].astype(wide)
        for value, shift in zip(parts[1:], shifts[1:], strict=True):
            out = out | value.astype(wide) << shift
        return out

    emitter.compute(join, kind, [emitter.source(source, part) for source in sources], emitter.target(target, kind))


def select(emitter: Emitter, instruction: Instruction) -> None:
    """`selp`: the first source where the predicate holds, else the second."""
    kind = _kind(instruction)
    target, first, second, predicate = instruction.operands
    slots = (emitter.source(predicate, "pred"), emitter.source(first, kind), emitter.source(second, kind))
    emitter.compute(np.where, kind, slots, emitter.target(target, kind))


def select_by_sign(emitter: Emitter, instruction: Instruction) -> None:
    """`slct.type.s32`: the first source where the third is not negative."""
    if not instruction.mnemonic.endswith(".s32"):
        raise Unsupported
    kind = instruction.mnemonic.split(".")[1]
    target, first, second, sign = instruction.operands
    slots = (emitter.source(sign, "s32"), emitter.source(first, kind), emitter.source(second, kind))
    emitter.compute(lambda c, a, b: np.where(c.view(I32) >= 0, a, b), kind, slots, emitter.target(target, kind))


def compare(emitter: Emitter, instruction: Instruction) -> None:
    """`setp`, with its negated second result and the combination with a predicate."""
    found = comparison(instruction.mnemonic)
    if not found:
        raise Unsupported
    relation, kind, combine = found
    target, *sources = instruction.operands
    slots = [emitter.source(source, kind) for source in sources[:2]]
    slots += [emitter.source(source, "pred") for source in sources[2:]]
    results = (target.first, target.second) if isinstance(target, Pair) else (target,)
    targets = [emitter.target(result, "pred") for result in results]
    for i, slot in enumerate(targets):
        emitter.compute(_combined(relation, combine, opposite=i == 1), "pred", slots, slot)


def _combined(relation: Compute, combine: str, opposite: bool) -> Compute:
    holds = (lambda a, b: ~relation(a, b)) if opposite else relation
    if not combine:
        return holds
    join = COMBINE[combine]
    return lambda a, b, c: join(holds(a, b), c)


def permute_bytes(emitter: Emitter, instruction: Instruction) -> None:
    """`prmt.b32`, planned in advance if the selector is a constant."""
    target, first, second, selector = instruction.operands
    if instruction.mnemonic != "prmt.b32":
        raise Unsupported
    slots = [emitter.source(first, "b32"), emitter.source(second, "b32")]
    if isinstance(selector, Immediate):
        compute = permute(selector.bits & 0xFFFF)
    else:
        compute, slots = permute_any, [*slots, emitter.source(selector, "b32")]
    emitter.compute(compute, "b32", slots, emitter.target(target, "b32"))


def lookup(emitter: Emitter, instruction: Instruction) -> None:
    """`lop3.b32`, split into functions of two inputs."""
    target, *sources, table = instruction.operands
    if instruction.mnemonic != "lop3.b32" or not isinstance(table, Immediate):
        raise Unsupported
    slots = [emitter.source(source, "b32") for source in sources]
    emitter.compute(lookup3(table.bits & 255), "b32", slots, emitter.target(target, "b32"))


_WINDOWS = {
    "global": 0,
    "const": 0,
    "param": 0,
    "shared": SHARED_WINDOW,
    "shared::cta": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
}


def convert_address(emitter: Emitter, instruction: Instruction) -> None:
    """`cvta` and `cvta.to`: to and from generic addresses."""
    parts = instruction.mnemonic.split(".")[1:]
    to_space = parts[0] == "to"
    space, kind = parts[-2], parts[-1]
    if space not in _WINDOWS or kind != "u64":
        raise Unsupported
    shift = U64(_WINDOWS[space])
    target, source = instruction.operands
    compute: Compute = (lambda a: a - shift) if to_space else (lambda a: a + shift)
    emitter.compute(
        compute if shift else lambda a: a, kind, (emitter.source(source, kind),), emitter.target(target, kind)
    )


DECODERS: dict[str, Decoder] = {
    "mov": move,
    "selp": select,
    "slct": select_by_sign,
    "setp": compare,
    "prmt": permute_bytes,
    "lop3": lookup,
    "cvta": convert_address,
}

_MOVES = [f"{kind}{width}" for kind in "bus" for width in (16, 32, 64)] + ["f32", "f64"]


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    names = [f"mov.{kind}" for kind in [*_MOVES, "pred"]] + [f"selp.{kind}" for kind in _MOVES]
    names += [f"slct.{kind}.s32" for kind in _MOVES]
    for name in COMPARISONS:
        relation, kind = name.split(".", 1)
        names += [f"setp.{name}", *(f"setp.{relation}.{combine}.{kind}" for combine in COMBINE)]
    names += ["lop3.b32"]
    for space in ("global", "const", "param", "shared", "local"):
        names += [f"cvta.{space}.u64", f"cvta.to.{space}.u64"]
    return names
