"""`mov`, `selp`, `slct`, `setp`, `set`, `prmt`, `lop3`, `cvta`, and `vabsdiff4` and its kin."""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic.bits import PERMUTATIONS, lookup3, permute, permute_any, permute_by
from ptx_emulator.arithmetic.compare import COMBINE, COMPARISONS, comparison, setting, settings
from ptx_emulator.arithmetic.integer import SIMD, simd
from ptx_emulator.compiled.opcodes import OPCODES
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.memory import LOCAL_WINDOW, SHARED_WINDOW
from ptx_emulator.ptx.syntax import SIZES, Immediate, Instruction, Name, Operand, Pair, Vector
from ptx_emulator.registers import I32, U16, U32, UNSIGNED, Bits, Compute


def _kind(instruction: Instruction) -> str:
    kind = instruction.mnemonic.split(".")[-1]
    if kind not in SIZES:
        raise Unsupported
    return kind


def move(emitter: Emitter, instruction: Instruction) -> None:
    """`mov`, also between a wide register and a vector of narrow ones."""
    target, source = instruction.operands
    if instruction.mnemonic == "mov.b128":
        _move_halves(emitter, target, source)
        return
    kind = _kind(instruction)
    in_parts = isinstance(target, Vector) or isinstance(source, Vector)
    if "f16" in kind or (in_parts and not kind.startswith("b")):
        raise Unsupported(f"there is no mov of {'vectors of ' if in_parts else ''}.{kind}")
    if isinstance(target, Vector):
        _unpack(emitter, target.items, source, kind)
    elif isinstance(source, Vector):
        _pack(emitter, target, source.items, kind)
    else:
        slots = (emitter.source(source, kind),)
        emitter.compute(lambda value: value, kind, slots, emitter.target(target, kind), OPCODES.get(f"mov.{kind}"))


def _move_halves(emitter: Emitter, target: Operand, source: Operand) -> None:
    """`mov.b128`: move two halves, from a register that the parser split in two or from a vector of two."""
    if not (isinstance(target, Vector) and isinstance(source, Vector) and len(target.items) == len(source.items) == 2):
        raise Unsupported
    sources = [emitter.source(item, "b64") for item in source.items]
    targets = [emitter.target(item, "b64") for item in target.items]
    if targets[0] == sources[1]:  # the halves are moved one after the other, so the second would be lost
        raise Unsupported
    for slot, moved in zip(targets, sources, strict=True):
        emitter.compute(lambda value: value, "b64", (moved,), slot, OPCODES["mov.b64"])


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
        fast = None
        if (SIZES[kind], SIZES[part]) == (8, 4):
            fast = OPCODES["high of b64" if i else "cvt.u32.u64"]
        elif (SIZES[kind], SIZES[part]) == (4, 2):
            fast = OPCODES["high of b32" if i else "cvt.u16.u32"]
        emitter.compute(
            lambda value, shift=shift: (value >> shift).astype(narrow),
            part,
            (slot,),
            emitter.target(target, part),
            fast,
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

    fast = OPCODES.get(f"pack {kind}") if len(sources) == 2 else None
    slots = [emitter.source(source, part) for source in sources]
    emitter.compute(join, kind, slots, emitter.target(target, kind), fast)


def select(emitter: Emitter, instruction: Instruction) -> None:
    """`selp`: the first source where the predicate holds, else the second."""
    kind = _kind(instruction)
    target, first, second, predicate = instruction.operands
    slots = (emitter.source(predicate, "pred"), emitter.source(first, kind), emitter.source(second, kind))
    emitter.compute(np.where, kind, slots, emitter.target(target, kind), OPCODES.get(instruction.mnemonic))


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
    if len(slots) != 2 + bool(combine):
        raise Unsupported
    results = (target.first, target.second) if isinstance(target, Pair) else (target,)
    targets = [emitter.target(result, "pred") for result in results]
    for i, slot in enumerate(targets):
        fast = None if combine or i else OPCODES.get(instruction.mnemonic)
        holds = _of_half(relation, i) if kind.endswith("f16x2") else _opposite(relation) if i else relation
        emitter.compute(_combined(holds, combine), "pred", slots, slot, fast)


def _of_half(relation: Compute, half: int) -> Compute:
    """The comparison of the lower or the upper halves of two pairs."""
    shift = U32(16 * half)
    return lambda a, b: relation((a >> shift).astype(U16), (b >> shift).astype(U16))


def _opposite(relation: Compute) -> Compute:
    return lambda a, b: ~relation(a, b)


def _combined(holds: Compute, combine: str) -> Compute:
    if not combine:
        return holds
    join = COMBINE[combine]
    return lambda a, b, c: join(holds(a, b), c)


def set_value(emitter: Emitter, instruction: Instruction) -> None:
    """`set`: ones, or 1.0, where a comparison holds."""
    operation = setting(instruction.mnemonic)
    target, *sources = instruction.operands
    if not operation or len(sources) != len(operation.sources):
        raise Unsupported
    slots = [emitter.source(source, kind) for source, kind in zip(sources, operation.sources, strict=True)]
    emitter.compute(operation.compute, operation.result, slots, emitter.target(target, operation.result))


def permute_bytes(emitter: Emitter, instruction: Instruction) -> None:
    """`prmt.b32` and its modes, planned in advance if the selector is a constant."""
    target, first, second, selector = instruction.operands
    mode = instruction.mnemonic.removeprefix("prmt.b32").removeprefix(".")
    if mode and mode not in PERMUTATIONS:
        raise Unsupported
    slots = [emitter.source(first, "b32"), emitter.source(second, "b32")]
    if isinstance(selector, Immediate):
        picks = PERMUTATIONS[mode][selector.bits & 3] if mode else selector.bits & 0xFFFF
        compute, fast = permute(picks), OPCODES["prmt of signs" if picks & 0x8888 else "prmt of bytes"]
    else:
        picks, compute, fast = 0, permute_by(mode) if mode else permute_any, None if mode else OPCODES["prmt.b32"]
        slots.append(emitter.source(selector, "b32"))
    emitter.compute(compute, "b32", slots, emitter.target(target, "b32"), fast, picks)


def lookup(emitter: Emitter, instruction: Instruction) -> None:
    """`lop3.b32`, split into functions of two inputs."""
    target, first, second, third, table = instruction.operands
    if instruction.mnemonic != "lop3.b32" or not isinstance(table, Immediate):
        raise Unsupported
    slots = [emitter.source(source, "b32") for source in (first, second, third)]
    bits = table.bits & 255
    emitter.compute(lookup3(bits), "b32", slots, emitter.target(target, "b32"), OPCODES["lop3"], bits)


def in_parts(emitter: Emitter, instruction: Instruction) -> None:
    """`vabsdiff4.u32.u32.u32.add d.b3210, a.b3210, b.b7654, c` and its kin: arithmetic of a word's bytes or halves."""
    name, *kinds = instruction.mnemonic.split(".")
    secondary = kinds.pop() if len(kinds) == 4 else ""
    count = int(name[-1])
    if len(kinds) != 3 or not {*kinds} <= {"u32", "s32"} or secondary not in ("", "sat", "add"):
        raise Unsupported
    letter, parts = ("h", "10") if count == 2 else ("b", "3210")
    default = parts, parts, "32" if count == 2 else "7654"
    named, picks = [], []
    for operand, every in zip(instruction.operands, default, strict=False):
        if not isinstance(operand, Name):
            raise Unsupported
        text, _, selector = operand.text.partition(".")
        named.append(Name(text, operand.negated))
        picks.append([int(digit) for digit in reversed(selector.removeprefix(letter) or every)])
    mask, *chosen = picks
    if not {*mask} <= {*range(count)} or any(len(each) != count or max(each) >= 2 * count for each in chosen):
        raise Unsupported
    compute = simd(name, [kind == "s32" for kind in kinds], secondary, chosen, sum(1 << part for part in {*mask}))
    target, a, b = named
    sources = zip((a, b, instruction.operands[3]), (*kinds[1:], kinds[0]), strict=True)
    slots = [emitter.source(source, kind) for source, kind in sources]
    emitter.compute(compute, kinds[0], slots, emitter.target(target, kinds[0]))


_WINDOWS = {
    "global": 0,
    "const": 0,
    "param": 0,
    "shared": SHARED_WINDOW,
    "shared::cta": SHARED_WINDOW,
    "shared::cluster": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
}


def convert_address(emitter: Emitter, instruction: Instruction) -> None:
    """`cvta` and `cvta.to`: to and from generic addresses."""
    parts = instruction.mnemonic.split(".")[1:]
    to_space = parts[0] == "to"
    space, kind = parts[-2], parts[-1]
    if space not in _WINDOWS or kind != "u64":
        raise Unsupported
    target, source = instruction.operands
    slots = (emitter.source(source, kind),)
    if not _WINDOWS[space]:
        emitter.compute(lambda a: a, kind, slots, emitter.target(target, kind), OPCODES["mov.b64"])
        return
    compute, fast = (np.subtract, OPCODES["sub.u64"]) if to_space else (np.add, OPCODES["add.u64"])
    slots = (*slots, emitter.constant(_WINDOWS[space], kind))
    emitter.compute(compute, kind, slots, emitter.target(target, kind), fast)


def cache_policy(emitter: Emitter, instruction: Instruction) -> None:
    """`createpolicy`: zeros, because only cache hints read its 64 bits."""
    if not instruction.mnemonic.startswith(_POLICIES) or not instruction.mnemonic.endswith(".b64"):
        raise Unsupported
    zero = (emitter.constant(0, "b64"),)
    emitter.compute(lambda a: a, "b64", zero, emitter.target(instruction.operands[0], "b64"), OPCODES["mov.b64"])


_POLICIES = ("createpolicy.fractional.L2::", "createpolicy.range.", "createpolicy.cvt.L2.")

DECODERS: dict[str, Decoder] = {
    "createpolicy": cache_policy,
    "mov": move,
    "selp": select,
    "slct": select_by_sign,
    "setp": compare,
    "set": set_value,
    **{f"{name}{count}": in_parts for name in SIMD for count in (2, 4)},
    "prmt": permute_bytes,
    "lop3": lookup,
    "cvta": convert_address,
}

_MOVES = [f"{kind}{width}" for kind in "bus" for width in (16, 32, 64)] + ["f32", "f64"]


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    names = [f"mov.{kind}" for kind in [*_MOVES, "b128", "pred"]] + [f"selp.{kind}" for kind in _MOVES]
    names += [f"slct.{kind}.s32" for kind in _MOVES]
    for name in COMPARISONS:
        relation, kind = name.split(".", 1)
        names += [f"setp.{name}", *(f"setp.{relation}.{combine}.{kind}" for combine in COMBINE)]
        names += [f"setp.{name}x2"] if kind in ("f16", "bf16") else []
    names += settings()
    names += [f"{name}{count}.u32.u32.u32{tail}" for name in SIMD for count in (2, 4) for tail in ("", ".add")]
    names += ["lop3.b32", "createpolicy.fractional.L2::evict_first.b64"]
    for space in ("global", "const", "param", "shared", "local"):
        names += [f"cvta.{space}.u64", f"cvta.to.{space}.u64"]
    return names
