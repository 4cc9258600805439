"""Arithmetic of which a GPU can tell whether `expectations` is right: rounding, pairs, parts of a word, vectors."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from async_source import PRELUDE
from exercises import Arrays, Exercise
from expectations import expected
from operands import COUNT, draw
from ptx_snippets import SIZES

_ONE = np.float64(1).view(np.uint64)
ROUNDED = [
    f"{head}.{mode}{ftz}.{kind}"
    for head, mode, (ftz, kind) in product(
        ("rcp", "sqrt", "div"), ("rz", "rm", "rp"), (("", "f32"), (".ftz", "f32"), ("", "f64"))
    )
]
ROUNDED += [f"{head}.{mode}.f64" for head, mode in product(("add", "sub", "mul", "fma"), ("rz", "rm", "rp"))]
COMPARED = [f"set.{name}" for name in (
    "lt.and.u32.u32", "ge.xor.f32.f64", "gtu.and.ftz.f32.f32", "lt.f16.s64", "leu.bf16.f32", "eq.xor.ftz.f16.f16",
    "lt.and.ftz.s16.f16", "geu.or.bf16.bf16", "num.bf16.f16", "lt.xor.f16x2.f16x2", "gt.ftz.u32.f16x2",
    "ne.and.bf16x2.bf16x2", "nan.s32.bf16x2", "lt.ftz.f16x2.f16x2")]  # fmt: skip
COMPARED += ["setp.lt.f16x2", "setp.geu.bf16x2", "setp.ltu.ftz.f16"]  # of a pair, the lower half alone
CHOSEN = ["bmsk.clamp.b32", "bmsk.wrap.b32"]
CHOSEN += [f"prmt.b32.{mode}" for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")]
IN_PARTS = [
    f"{name}{count}.{kinds}{tail}"
    for name, count, kinds, tail in product(
        ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"), (2, 4),
        ("u32.u32.u32", "s32.s32.s32", "s32.u32.u32", "u32.s32.s32", "s32.u32.s32"), ("", ".sat", ".add"),
    )
]  # fmt: skip


def _register(kind: str) -> str:
    return kind if kind in ("f32", "f64", "pred") else f"b{8 * SIZES[kind]}"


def _line(number: int, mnemonic: str) -> str:
    """C++ that runs an instruction on a thread's operands."""
    result, kinds, _ = expected(mnemonic)
    body, inputs = [f".reg .{_register(result)} d;"], []
    for i, kind in enumerate(kinds):
        size = max(4, SIZES[kind]) if kind == "pred" else SIZES[kind]
        body.append(f".reg .{_register(kind)} s{i};")
        body.append(f"setp.ne.u32 s{i}, %{i + 1}, 0;" if kind == "pred" else f"mov.b{8 * size} s{i}, %{i + 1};")
        inputs.append(f'"{ {2: "h", 4: "r", 8: "l"}[size] }"((u{8 * size})in[{(3 * number + i) * COUNT} + t])')
    body.append(f"{mnemonic} d, {', '.join(f's{i}' for i in range(len(kinds)))};")
    size = 4 if result == "pred" else SIZES[result]
    body.append("selp.u32 %0, 1, 0, d;" if result == "pred" else f"mov.b{8 * size} %0, d;")
    letter = {2: "h", 4: "r", 8: "l"}[size]
    text = f'asm volatile("{{ {" ".join(body)} }}" : "={letter}"(r) : {", ".join(inputs)});'
    return f"  {{ u{8 * size} r; {text} out[{number * COUNT} + t] = r; }}"


def _arithmetic(name: str, mnemonics: list[str]) -> Exercise:
    given, wanted = np.zeros((len(mnemonics), 3, COUNT), np.uint64), np.zeros((len(mnemonics), COUNT), np.uint64)
    for number, mnemonic in enumerate(mnemonics):
        _, kinds, function = expected(mnemonic)
        columns = draw(mnemonic, kinds)
        results = [function(*map(int, row)) for row in zip(*columns, strict=True)]
        if mnemonic.endswith(".f64"):
            # A NaN in float64 keeps its payload on a GPU, which is not modelled.
            is_nan = np.isnan(np.array(results, np.uint64).view(np.float64))
            columns = [np.where(is_nan, _ONE, column.astype(np.uint64)) for column in columns]
            results = [function(*map(int, row)) for row in zip(*columns, strict=True)]
        given[number, : len(kinds)] = columns
        wanted[number] = results
    body = "\n".join(_line(number, mnemonic) for number, mnemonic in enumerate(mnemonics))
    head = 'extern "C" __global__ void k(const u64* in, u64* out) {\n  u32 t = threadIdx.x;\n'
    arrays = {"in": given.reshape(-1).view(np.uint8), "out": np.zeros(8 * len(mnemonics) * COUNT, np.uint8)}
    source = f"{PRELUDE}{head}{body}\n}}\n"
    return Exercise(
        name, source, arrays, ("in", "out"), lambda _: {"out": wanted.reshape(-1).view(np.uint8)}, block=COUNT
    )


VECTORS = [("add.v4.f32", 4, "f32"), ("add.noftz.v8.f16", 8, "f16"), ("min.noftz.v8.f16", 8, "f16"),
           ("max.noftz.v8.bf16", 8, "bf16"), ("add.noftz.v4.bf16x2", 4, "bf16x2")]  # fmt: skip


def _vectors() -> Exercise:
    """Each thread updates a vector of 16 bytes of its own; subnormals and NaN are among the elements."""
    threads, body, arrays, wanted = 32, [], {}, []
    for number, (name, count, kind) in enumerate(VECTORS):
        size = 16 // count
        letter, unit = ("h", "u16") if size == 2 else ("r", "u32")
        at = f"(({unit}*)(OUT + {512 * number} + 16 * threadIdx.x))"
        values = ", ".join(f'"{letter}"({at.replace("OUT", "in")}[{i}])' for i in range(count))
        items = ", ".join(f"%{i + 1}" for i in range(count))
        declared = f".reg .f32 a<{count}>; " + " ".join(f"mov.b32 a{i}, %{i + 1};" for i in range(count))
        if kind == "f32":
            items = ", ".join(f"a{i}" for i in range(count))
        text = f"{{ {declared * (kind == 'f32')} red.global.{name} [%0], {{{items}}}; }}"
        body.append(f'  asm volatile("{text}" :: "l"({at.replace("OUT", "out")}), {values} : "memory");')
        old, new = (draw(f"{name}{side}", (kind,))[0].astype(f"u{size}") for side in "ab")
        old, new = (np.resize(each, threads * count) for each in (old, new))
        scalar = expected(f"{name.split('.')[0]}{'.ftz' * (kind == 'f32')}.{kind}")[2]
        found = np.array([scalar(int(a), int(b)) for a, b in zip(old, new, strict=True)], f"u{size}")
        for key, each in (("in", new), ("out", old)):
            arrays[key] = np.concatenate([arrays.get(key, np.zeros(0, np.uint8)), each.view(np.uint8)])
        wanted.append(found.view(np.uint8))

    def after(_: Arrays) -> Arrays:
        return {"out": np.concatenate(wanted)}

    head = 'extern "C" __global__ void k(u8* in, u8* out) {\n'
    source = PRELUDE + head + "\n".join(body) + "\n}\n"
    return Exercise("arithmetic.vectors", source, arrays, ("in", "out"), after, block=threads)


ARITHMETIC: dict[str, list[str]] = {
    "arithmetic.rounded": ROUNDED, "arithmetic.compared": COMPARED, "arithmetic.chosen": CHOSEN,
    "arithmetic.in_parts": IN_PARTS, "arithmetic.vectors": [],
}  # fmt: skip


@cache
def arithmetic(name: str) -> Exercise:
    """The exercise of this name in ARITHMETIC. It takes a second, so no collection makes it."""
    return _arithmetic(name, ARITHMETIC[name]) if ARITHMETIC[name] else _vectors()
