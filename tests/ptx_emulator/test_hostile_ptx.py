"""PTX that nobody's compiler wrote: one sentence with its line, soon, and without much memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import numpy as np
import pytest
from ptx_snippets import HEADER, kernel

from ptx_emulator.errors import Fault, LaunchError, NotEmulated
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.ptx import limits

BODY = " mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; st.global.u32 [%rd0], %r0;\n"
SECONDS, BYTES = 5, 1 << 30


def attempt(text: str, cache: Path | None = None) -> str:
    """The sentence that a launch of every kernel ends in, or nothing."""
    try:
        module = Module(text, cache)
        for name in module.kernels:
            parameters = module.code(name).resources.kernel.parameters
            arguments = [
                Buffer("b", np.zeros(64, np.uint8)) if each.size == 8 else bytes(each.size) for each in parameters
            ]
            launch(module, name, (1, 1, 1), (1, 1, 1), arguments)
    except (Fault, LaunchError, NotEmulated) as error:
        assert error.__cause__ is None and "\n" not in str(error) and len(str(error)) < 400
        return str(error)
    return ""


def with_body(body: str, declarations: str = "") -> str:
    return kernel(body, 1, declarations=declarations)


MANY = 200_000
TREE = "".join(f".func f{i}()\n{{ call f{i + 1}; call f{i + 1}; }}\n" for i in range(60)) + ".func f60()\n{ }\n"
CHAIN = "".join(f".func f{i}()\n{{ call f{i + 1}; }}\n" for i in range(99)) + ".func f99()\n{ }\n"
ALL = "".join(f".func f{i}()\n{{ {''.join(f'call f{k}; ' for k in range(40))} }}\n" for i in range(40))
REFUSED = {
    "a brace too many": (kernel(BODY + "}", 1), "PTX line"),
    "no end": (kernel(BODY, 1).rstrip()[:-1], "PTX line 5: a function without an end"),
    "no body": (HEADER + ".visible .entry k()", "PTX line 4: a function without a body"),
    "no name": (HEADER + ".visible .entry ()\n{ ret; }", "PTX line 4: "),
    "a directive": (HEADER + "nonsense\n", "PTX line 4: the directive 'nonsense'"),
    "a statement without an end": (with_body("\n\n mov.u32 %r0, 1").replace(" ret;", ""), "PTX line 10: the text"),
    "a type of register": (with_body(" .reg .b33 %x;\n"), "PTX line 8: registers of type 'b33'"),
    "a register list": (with_body(" .reg .b32;\n"), "PTX line 8: "),
    "registers": (with_body(" .reg .b32 %x<99999999>;\n"), f"PTX line 8: a kernel of more than {limits.REGISTERS}"),
    "digits": (with_body(f" mov.u32 %r0, {'9' * 5000};\n"), "PTX line 8: an instruction of 50"),
    "more digits": (with_body(f" ld.global.u32 %r0, [%rd0+{'9' * 4500}];\n"), "PTX line 8: "),
    "an octal number": (with_body(" mov.u32 %r0, [089+08];\n"), "PTX line 8: the text 'mov.u32 %r0, [089+08];'"),
    "a label twice": (with_body("x: ret;\nx: ret;\n"), "PTX line 9: the label 'x', which is there twice"),
    "no such label": (with_body(" bra elsewhere;\n"), "not emulated: bra at"),
    "no such table": (with_body(" brx.idx %r0, elsewhere;\n"), "not emulated: brx.idx at"),
    "an empty table": (with_body("x: .branchtargets ;\n brx.idx %r0, x;\n"), "PTX line 8: |not emulated: brx.idx at"),
    "a location": (with_body(" .loc x y z\n"), "PTX line 8: "),
    "gigabytes of shared memory": (with_body(" .shared .b8 s[99999999999];\n"), "PTX line 8: the variable 's' of 999"),
    "too much shared memory": (with_body(" .shared .b8 s[300000];\n"), "300000 bytes of shared memory, more than"),
    "operands without commas": (with_body(" mov.b64 %rd0, {%r0 %r1};\n"), "PTX line 8: |not emulated: mov.b64 at"),
    "gigabytes in dimensions": (with_body(" .shared .b8 s[9999][9999][9999];\n"), "PTX line 8: the variable 's'"),
    "gigabytes of local memory": (with_body(" .local .b8 s[16000000];\n"), "16000000 bytes of local memory, more than"),
    "gigabytes of the module": (with_body(BODY, ".global .b8 g[9999999999];\n"), "PTX line 4: the variable 'g'"),
    "many megabytes": (
        with_body(BODY, "".join(f".global .b8 g{i}[16000000];\n" for i in range(9))),
        "PTX line 8: 5 variables of",
    ),
    "too many initial values": (with_body(BODY, ".global .b8 g[2] = {1, 2, 3};\n"), "PTX line 4: .* 3 bytes for 2"),
    "initial values": (with_body(BODY, ".global .b8 g[2] = ;\n"), "PTX line 4: the declaration"),
    "an alignment of 0": (with_body(" .shared .align 0 .b8 s[4];\n"), "PTX line 8: an alignment of 0"),
    "an alignment of 3": (with_body(" .shared .align 3 .b8 s[4];\n"), "PTX line 8: an alignment of 3"),
    "a huge alignment": (with_body(" .shared .align 1073741824 .b8 s[4];\n"), "PTX line 8: an alignment of 1073741824"),
    "a type without a name": (with_body(" .shared .b8;\n"), "PTX line 8: the declaration"),
    "no type": (with_body(" .shared s[4];\n"), "PTX line 8: the declaration"),
    "parameters of megabytes": (
        HEADER + ".visible .entry k(.param .b8 p[99999])\n{ ret; }", "PTX line 5: parameters of 100000 bytes"
    ),
    "two parameters of one name": (HEADER + ".visible .entry k(.param .u64 p, .param .u64 p)\n{ ret; }", "of one name"),
    "behind the parameters": (with_body(" ld.param.u64 %rd0, [p0+8];\n"), "not emulated: ld.param.u64 at"),
    "before the parameters": (with_body(" ld.param.u64 %rd0, [p0+-8];\n"), "not emulated: ld.param.u64 at"),
    "far behind the parameters": (with_body(f" ld.param.u64 %rd0, [p0+{1 << 40}];\n"), "not emulated: ld.param.u64 at"),
    "a copy of no bytes": (with_body(" cp.async.ca.shared.global [%r0], [%rd0], 0;\n"), "not emulated: cp.async"),
    "too few operands": (with_body(" lop3.b32 %r0, %r1, 3;\n"), "not emulated: lop3.b32 at"),
    "no operands": (with_body(" add.u32;\n"), "not emulated: add.u32 at"),
    "nested operands": (with_body(f" mov.b32 %r0, {'{' * 2000}%r1{'}' * 2000};\n"), "PTX line|not emulated: mov"),
    "nested scopes": (with_body("{" * 1000 + "}" * 1000), f"PTX line 8: more than {limits.NESTING} scopes"),
    "calls inlined in one another": (
        with_body("".join(f" .loc 1 {i + 1} 1, function_name f, inlined_at 1 {i} 1\n" for i in range(1, 2000))),
        f"calls inlined in one another, more than {limits.NESTING}",
    ),
    "calls that call two": (with_body(" call f0;", TREE), "copies of functions of more than"),
    "calls of all by all": (with_body(" call f0;", ALL), "copies of functions of more than|more than 32768 instr"),
    "calls in one another": (with_body(" call f0;", CHAIN), f"calls in one another, more than {limits.NESTING}"),
    "much in a function": (
        with_body(" call f;" * 99, ".func f()\n{ " + " .pragma \"x\";" * 50_000 + "}\n"), "copies of functions of"),
    "a parameter of gigabytes": (
        with_body(" call f, (%r1);", ".func f(.param .b8 x[9999999999])\n{ ret; }\n"), "the variable 'x' of 9999"),
    "parameters of one name": (
        with_body(" call f, (%r1, %r2);", ".func f(.param .b32 x, .param .b64 x)\n{ ret; }\n"), "which is there twice"),
    "a call of nothing": (with_body(" call;\n"), "not emulated: call at"),
    "a call of a call": (with_body(" call f, (f(), g);\n"), "not emulated: call at|PTX line 8: "),
    "a prototype of nothing": (
        with_body(" mov.u64 %rd0, 0; x: .callprototype;\n call %rd0, (), x;\n"), "PTX line 9: |calls what is at 0x0"),
    "a prototype of words": (
        with_body(" mov.u64 %rd0, 0; x: .callprototype (what) _ ();\n call %rd0, (), x;\n"), "PTX line 9: "),
    "the address of nothing": (with_body(BODY, ".global .u64 g[2] = {0, nothing};\n"), "the address of 'nothing'"),
    "half an address": (with_body(BODY, ".global .u32 g[2] = {0, k};\n"), "the initialiser of 'g', which is not"),
    "a long instruction": (with_body(f" mov.u32 %r0, {' ' * 9999}[;\n"), "PTX line 8: an instruction of"),
    "long words": (with_body(f" {'x' * 100_000}\n"), "PTX line 8: an instruction of|PTX line 8: "),
    "many variables": (
        with_body(BODY, "".join(f".global .b8 g{i};\n" for i in range(9000))),
        f"{limits.COUNT + 1} variables",
    ),
    "many instructions": (with_body("ret;" * (limits.INSTRUCTIONS + 1)), f"more than {limits.INSTRUCTIONS} instr"),
    "many spaces": (with_body(f" .shared .b8 {'a' * 1000}[{' ' * 3000}x;\n"), "PTX line 8: the declaration"),
    "a long declaration": (with_body(f" .shared .b8 {'a[' * 20_000};\n"), "PTX line 8: a declaration of"),
    "sections without an end": (HEADER + ".section x" * MANY, "PTX line 4: "),
    "comments without an end": (HEADER + "/*" * MANY + "x", ""),
    "colons": (with_body(":" * 50_000 + ";"), "PTX line 8: "),
    "an endless loop": (with_body("x: add.u32 %r0, %r0, 1; bra x;\n"), "no end after"),
    "no entry at all": ("", ""),
    "zeros": ("\0" * 100, "PTX line 1: "),
    "half a character": ("\ud800", "PTX line 1: "),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The compiled interpreter, whose loading is no text's time."""
    attempt(with_body(BODY))


def test_much_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TEXT", 1000)
    assert "PTX of 1001 characters; 1000 are allowed" in str(attempt(" " * 1001))


@pytest.mark.sweep
@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_it_ends_in_one_sentence_soon_and_in_little_memory(text: str, sentence: str) -> None:
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = attempt(text)
    assert time.process_time() - begun < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < BYTES // 1024
    assert any(part.split(".*")[0] in found and part.split(".*")[-1] in found for part in sentence.split("|")), found


@pytest.mark.parametrize("threads", [(0, 1, 1), (-2, -16, 1), (2048, 1, 1), (32, 32, 2)])
def test_a_block_that_no_gpu_has_is_refused(threads: tuple[int, int, int]) -> None:
    with pytest.raises(LaunchError, match="where 1 to 1024 are allowed"):
        launch(Module(kernel("", 0)), "k", (1, 1, 1), threads, [])


def test_maxntid_allows_no_more_than_a_block_has() -> None:
    text = kernel("", 0).replace("()\n{", "()\n.maxntid 99999, 99999\n{")
    with pytest.raises(LaunchError, match="where 1 to 1024 are allowed"):
        launch(Module(text), "k", (1, 1, 1), (1025, 1, 1), [])


def test_a_constant_address_is_the_variable_s() -> None:
    """Compiled loads once took the address of another register in its place."""
    body = """ ld.param.u64 %rd0, [p0]; ld.global.u32 %r0, [%rd0]; ld.global.u32 %r1, [seven];
 st.global.u32 [%rd0+4], %r1; st.global.u32 [seven], %r0;
"""
    module = Module(kernel(body, 1, declarations=".global .align 4 .u32 seven = 7;\n"))
    for compiled in (True, False):
        out = np.full(2, 40, np.uint32)
        module.variables["seven"].data[:] = np.array([7], np.uint32).view(np.uint8)
        launch(module, "k", (1, 1, 1), (1, 1, 1), [Buffer("out", out.view(np.uint8))], compiled=compiled)
        assert out.tolist() == [40, 7] and module.variables["seven"].data.view(np.uint32)[0] == 40


@pytest.mark.parametrize("address", ["%r1", "4096", "p0"])
def test_an_address_in_half_a_register_is_no_other_register_s(address: str) -> None:
    body = f" ld.param.u64 %rd0, [p0]; mov.u32 %r1, 64; ld.global.u32 %r2, [%rd0]; ld.global.u32 %r3, [{address}];\n"
    for compiled in (True, False):
        with pytest.raises((Fault, NotEmulated)) as caught:
            launch(Module(kernel(body, 1)), "k", (1, 1, 1), (32, 1, 1), [Buffer("b", np.zeros(64, np.uint8))],
                   compiled=compiled)  # fmt: skip
        assert getattr(caught.value, "kind", "out_of_bounds") == "out_of_bounds"
