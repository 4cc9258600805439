"""Every compiled opcode gives the bits of its NumPy step, for whole blocks, under guards and on divergent paths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from both_paths import both
from operands import draw
from ptx_snippets import SIZES, UNSIGNED, kernel

from ptx_emulator.arithmetic.compare import comparison
from ptx_emulator.compiled.opcodes import FORMS as FORMS_BY_NUMBER
from ptx_emulator.compiled.opcodes import OPCODES
from ptx_emulator.instructions.arithmetic import ARITHMETIC
from ptx_emulator.launches import Module
from ptx_emulator.machine.basic_blocks import Segment

BLOCKS, THREADS = 4, 64
LANES = BLOCKS * THREADS


class Form(NamedTuple):
    """An instruction on registers: its types, and what precedes and follows the operands."""

    result: str
    sources: tuple[str, ...]
    text: str = "{name} {target}, {operands};"


def form_of(name: str) -> Form:
    head, kind = name.split(".")[0], name.split(".")[-1]
    if head == "mov":
        return Form(kind, (kind,))
    if head == "selp":
        return Form(kind, (kind, kind, "pred"))
    if head == "setp":
        return Form("pred", (comparison(name)[1],) * 2)
    return Form(ARITHMETIC[name].result, ARITHMETIC[name].sources)


# What the decoders of moves and addresses choose without the table of mnemonics.
OTHERS = {
    **{f"lop3 {table:#x}": Form("b32", ("b32",) * 3, f"lop3.b32 {{target}}, {{operands}}, {table};")
       for table in (0x00, 0x01, 0x80, 0x96, 0xCA, 0xE8, 0x6A, 0xFF)},
    **{f"prmt {selector:#x}": Form("b32", ("b32",) * 2, f"prmt.b32 {{target}}, {{operands}}, {selector};")
       for selector in (0x3210, 0x7654, 0x5410, 0x0123, 0xBA98, 0xFEDC, 0x9180)},
    "prmt": Form("b32", ("b32",) * 3, "prmt.b32 {target}, {operands};"),
    "pack 64": Form("b64", ("b32", "b32"), "mov.b64 {target}, {{{operands}}};"),
    "pack 32": Form("b32", ("b16", "b16"), "mov.b32 {target}, {{{operands}}};"),
    "low of 64": Form("b32", ("b64",), "mov.b64 {{{target}, _}}, {operands};"),
    "high of 64": Form("b32", ("b64",), "mov.b64 {{_, {target}}}, {operands};"),
    "low of 32": Form("b16", ("b32",), "mov.b32 {{{target}, _}}, {operands};"),
    "high of 32": Form("b16", ("b32",), "mov.b32 {{_, {target}}}, {operands};"),
    "negated": Form("pred", ("pred",), "mov.pred {target}, !{operands};"),
    "to shared": Form("b64", ("b64",), "cvta.to.shared.u64 {target}, {operands};"),
    "of shared": Form("b64", ("b64",), "cvta.shared.u64 {target}, {operands};"),
    "to global": Form("b64", ("b64",), "cvta.to.global.u64 {target}, {operands};"),
    "wider result": Form("b64", ("b32",), "cvt.u32.u16 {target}, {operands};"),
    "wider signed result": Form("b64", ("b32",), "cvt.s32.s16 {target}, {operands};"),
    "wider result of 16 bits": Form("b32", ("b32",), "cvt.s16.s32 {target}, {operands};"),
    "narrower operand": Form("b32", ("b64",), "cvt.u32.u32 {target}, {operands};"),
}  # fmt: skip
FORMS = {name: form_of(name) for name in OPCODES if "." in name and name != "prmt.b32"} | OTHERS


# ---- a kernel of one instruction ------------------------------------------------------------------------------------

NAMES = {"pred": "%p{}", 1: "byte{}", 2: "%rs{}", 4: "%r{}", 8: "%rd{}"}
TARGET = 15


def register(kind: str, i: int) -> str:
    return NAMES["pred" if kind == "pred" else SIZES[kind]].format(i)


def load(kind: str, i: int, address: str) -> str:
    if kind == "pred":
        return f" ld.global.u8 %rs14, [{address}]; setp.ne.u16 %p{i}, %rs14, 0;\n"
    return f" ld.global.b{8 * SIZES[kind]} {register(kind, i)}, [{address}];\n"


def store(kind: str, i: int, address: str) -> str:
    if kind == "pred":
        return f" selp.u16 %rs14, 1, 0, %p{i}; st.global.u8 [{address}], %rs14;\n"
    return f" st.global.b{8 * SIZES[kind]} [{address}], {register(kind, i)};\n"


def constant(kind: str, value: int) -> str:
    if kind in ("f32", "f64"):
        return f"0{'f' if kind == 'f32' else 'd'}{value:0{2 * SIZES[kind]}X}"
    return str(value)


def variants(name: str, form: Form, columns: list[np.ndarray]) -> list[str]:
    """The instruction for all lanes, under both guards, on a path that some lanes take, and with constants."""

    def line(operands: list[str]) -> str:
        return form.text.format(name=name, target=register(form.result, TARGET), operands=", ".join(operands))

    names = [register(kind, 4 + i) for i, kind in enumerate(form.sources)]
    plain = line(names)
    found = [plain, f"@%p14 {plain}", f"@!%p14 {plain}", f"@!%p14 bra $over; {plain}\n$over:"]
    for i, kind in enumerate(form.sources):
        number = kind not in ("pred", "f16", "bf16") and not name.endswith("x2")  # PTX has no constant of these
        if number and SIZES[kind] > 1 and "{{{operands}}}" not in form.text:
            found += [line([*names[:i], constant(kind, int(column)), *names[i + 1 :]]) for column in columns[i][:2]]
    return found


def operands_of(name: str, form: Form) -> list[np.ndarray]:
    kinds = [kind if SIZES[kind] > 1 or kind == "pred" else f"b{8 * SIZES[kind]}" for kind in form.sources]
    return [np.resize(column, LANES).astype(UNSIGNED[SIZES[kind]] if kind != "pred" else np.uint8)
            for kind, column in zip(form.sources, draw(name, kinds), strict=True)]  # fmt: skip


def chosen_lanes() -> np.ndarray:
    """Some lanes of the first block, all of the second, none of the third, one whole warp of the fourth."""
    chosen = np.zeros((BLOCKS, THREADS), np.uint8)
    chosen[0] = np.random.default_rng(0).integers(0, 2, THREADS)
    chosen[1] = 1
    chosen[3, 32:] = 1
    return chosen.reshape(-1)


def results_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The old value of the target, and the results of each variant, the same on both paths."""
    form = FORMS[name]
    columns = operands_of(name, form)
    lines = variants(name, form, columns)
    size = 1 if form.result == "pred" else SIZES[form.result]
    old = np.random.default_rng(1).integers(0, 2 if form.result == "pred" else 256, LANES * size, np.uint8)
    arrays = {f"operand{i}": column for i, column in enumerate(columns)}
    arrays |= {"old": old, "chosen": chosen_lanes(), "out": np.zeros(len(lines) * LANES * size, np.uint8)}
    body = " .reg .b8 byte<16>;\n mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %r0, %r0, 64, %r1;\n"
    for i, (parameter, array) in enumerate(arrays.items()):
        width = size if parameter in ("old", "out") else array.itemsize
        body += f" ld.param.u64 %rd1, [p{i}]; mad.wide.u32 %rd{20 + i}, %r0, {width}, %rd1;\n"
    for i, kind in enumerate(form.sources):
        body += load(kind, 4 + i, f"%rd{20 + i}")
    n = len(columns)
    body += load("pred", 14, f"%rd{21 + n}")
    for i, variant in enumerate(lines):
        body += load(form.result, TARGET, f"%rd{20 + n}") + f" {variant.replace('$over', f'$over{i}')}\n"
        body += store(form.result, TARGET, f"%rd{22 + n}+{i * LANES * size}")
    module = Module(kernel(body, len(arrays)))
    steps = [step for block in module.code("k").blocks for step in block.steps]
    assert all(isinstance(step, Segment) for step in steps), "an instruction has no compiled form"
    got = both(module, arrays, BLOCKS, THREADS, sanitize=False)
    assert not got.handed_back
    kind = np.dtype(f"u{size}")
    return old.view(kind), got.arrays["out"].view(kind).reshape(len(lines), LANES)


@pytest.mark.sweep
@pytest.mark.parametrize("name", FORMS)
def test_the_bits_of_the_numpy_step(name: str) -> None:
    old, out = results_of(name)
    chosen = chosen_lanes() != 0
    whole, guarded, opposite, path = out[:4]
    np.testing.assert_array_equal(guarded, np.where(chosen, whole, old))
    np.testing.assert_array_equal(opposite, np.where(chosen, old, whole))
    np.testing.assert_array_equal(path, guarded)


def test_compiled_forms_that_no_mnemonic_has_are_reached_by_others() -> None:
    assert {name for name in OPCODES if "." not in name} == {
        "high of b64", "high of b32", "pack b64", "pack b32", "lop3", "prmt of bytes", "prmt of signs",
    }  # fmt: skip
    assert set(OPCODES.values()) == {*range(len(FORMS_BY_NUMBER))}
