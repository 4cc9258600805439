"""Run one PTX instruction on arrays of operands, in a kernel written around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptx_emulator.counters import Counters
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

SIZES = {"pred": 2, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2}
SIZES |= {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
SIZES |= {"f32x2": 8}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

HEADER = ".version 8.6\n.target sm_100a\n.address_size 64\n"


def kernel(body: str, parameters: int, name: str = "k", declarations: str = "") -> str:
    """A module with one kernel: 64-bit parameters p0, p1, ..., registers %rd, %r, %rs, %p, %f, %fd to use freely."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    alone = next((target for part, target in (("wgmma.", "sm_90a"), (".ue5m3", "sm_107a")) if part in body), "sm_100a")
    header = HEADER.replace("sm_100a", alone)
    return f"""{header}{declarations}
.visible .entry {name}({declared})
{{
 .reg .pred %p<16>; .reg .b16 %rs<16>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .f32 %f<16>; .reg .f64 %fd<16>;
{body}
 ret;
}}
"""


def apply(
    mnemonic: str, result: str, kinds: Sequence[str], operands: Sequence[np.ndarray], tail: str = ""
) -> np.ndarray:
    """The results of `mnemonic d, a, b, ...tail` for each position of the operand arrays.

    result, kinds: PTX types; operands: (n,) unsigned arrays, of bool for a predicate
    """
    n = len(operands[0])
    lines = [" mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r0, %r1, %r2;"]
    lines.append(f" setp.ge.u32 %p0, %r3, {n}; @%p0 ret;")
    names = []
    for i, kind in enumerate(kinds):
        size = SIZES[kind]
        lines.append(f" ld.param.u64 %rd0, [p{i}]; mad.wide.u32 %rd1, %r3, {size}, %rd0;")
        name, load = _register(kind, i)
        lines.append(load)
        names.append(name)
    lines.append(_result(result, f"{mnemonic} RESULT, {', '.join(names)}{tail};"))
    size = SIZES[result]
    lines.append(f" ld.param.u64 %rd0, [p{len(kinds)}]; mad.wide.u32 %rd1, %r3, {size}, %rd0;")
    lines.append(_store(result))
    text = kernel("\n".join(lines), len(kinds) + 1)
    buffers = [
        Buffer(
            f"operand{i}", np.ascontiguousarray(operand).astype(UNSIGNED[SIZES[kind]]).view(np.uint8), writable=False
        )
        for i, (operand, kind) in enumerate(zip(operands, kinds, strict=True))
    ]
    out = np.full(n, 0xA5, UNSIGNED[size])
    buffers.append(Buffer("result", out.view(np.uint8), initialised=False))
    launch(Module(text), "k", (-(-n // 128), 1, 1), (128, 1, 1), buffers)
    return out.astype(bool) if result == "pred" else out


def _register(kind: str, i: int) -> tuple[str, str]:
    """A register that holds operand i, and the lines that load it from [%rd1]."""
    size = SIZES[kind]
    if kind == "pred":
        return f"%p{1 + i}", f" ld.global.u16 %rs{i}, [%rd1]; setp.ne.u16 %p{1 + i}, %rs{i}, 0;"
    if kind == "b8":
        return f"byte{i}", f" .reg .b8 byte{i}; ld.global.b8 byte{i}, [%rd1];"
    if size == 1:
        return f"%rs{i}", f" ld.global.u8 %rs{i}, [%rd1];"
    name = {2: f"%rs{i}", 4: f"%r{10 + i}", 8: f"%rd{10 + i}"}[size]
    return name, f" ld.global.b{8 * size} {name}, [%rd1];"


def _result(kind: str, line: str) -> str:
    if kind == "b8":
        return f" .reg .b8 out; {line.replace('RESULT', 'out')}"
    name = "%p8" if kind == "pred" else {1: "%rs8", 2: "%rs8", 4: "%r20", 8: "%rd20"}[SIZES[kind]]
    return " " + line.replace("RESULT", name)


def _store(kind: str) -> str:
    if kind == "pred":
        return " selp.u16 %rs9, 1, 0, %p8; st.global.u16 [%rd1], %rs9;"
    if kind == "b8":
        return " st.global.b8 [%rd1], out;"
    name = {1: "%rs8", 2: "%rs8", 4: "%r20", 8: "%rd20"}[SIZES[kind]]
    return f" st.global.b{8 * SIZES[kind]} [%rd1], {name};"


def run(text: str, arrays: dict[str, np.ndarray], grid: int = 1, block: int = 32, **options) -> Counters:
    """Launch kernel `k` of PTX text on arrays, changed in place, in the order of the dictionary."""
    buffers = [Buffer(name, array.view(np.uint8).reshape(-1)) for name, array in arrays.items()]
    return launch(Module(text), "k", (grid, 1, 1), (block, 1, 1), buffers, **options)
