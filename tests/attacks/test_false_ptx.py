"""Attacks on the emulator by PTX: what is run must be what the text says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from ways import StillGreenError, still_green_if

from ptx_emulator.errors import Fault, LaunchError, NotEmulated
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

SEVEN = ".global .align 4 .u32 seven = 7;\n"


def ran(body: str, declarations: str = "", threads: int = 1) -> np.ndarray:
    """What 64 words hold that a kernel is given and that start as 40; raises the emulator's refusals."""
    text = f""".version 8.6
.target sm_90a
.address_size 64
{declarations}.visible .entry k(.param .u64 p0)
{{
 .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
 ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; ld.global.u32 %r1, [%rd0];
{body}
 st.global.u32 [%rd0+4], %r2;
 ret;
}}
"""
    out = np.full(64, 40, np.uint32)
    launch(Module(text), "k", (1, 1, 1), (threads, 1, 1), [Buffer("out", out.view(np.uint8))])
    return out


def must_not_run(run: Callable[[], object], refusals: tuple[type[Exception], ...] = (NotEmulated,)) -> None:
    """PTX must be refused, and in no other way than by one of these errors."""
    try:
        found = run()
    except refusals:
        return
    except Exception as error:
        raise AssertionError(f"a traceback: {error!r}") from error
    raise StillGreenError(f"ran, with {found}")


def test_a_variable_of_the_module_is_read_at_its_own_address():
    """A kernel reads a variable of its module, and the emulator hands it other memory without a word."""
    before = " setp.eq.u32 %p1, %r0, %r0; @%p1 and.b64 %rd2, %rd0, %rd0;"
    found = ran(f"{before} ld.global.u32 %r2, [seven];", SEVEN)[1]
    still_green_if(found != 7, f"read {found} in place of 7")


@pytest.mark.parametrize(
    "body",
    [
        " mov.u32 %r3, 64; ld.global.u32 %r2, [%r3];",
        " ld.global.u32 %r2, [4096];",
        " ld.param.u32 %r2, [p0+8];",
        " ld.param.u32 %r2, [p0+-4];",
        " ld.param.u32 %r2, [p0+4096];",
        " mov.u32 %r2, 1; mov.b64 %rd1, {{{%r1, %r2}; cvt.u32.u64 %r2, %rd1;",
        " sub.u32 %p1, %r1, 40; selp.u32 %r2, 1, 2, %p1;",
        " ld.global.u32 %r2, [%rd0], %r1;",
        " not.b32 %r3, !%r1; add.u32 %r2, %r3, !%r1;",
        " setp.eq.and.u32 %p1, %r1, 40; selp.u32 %r2, 1, 2, %p1;",
    ],
    ids=["half an address", "a number as an address", "behind the parameters", "before the parameters",
         "far behind the parameters", "braces", "a number as a predicate",
         "an operand too many", "not of a number", "a predicate too few"],
)  # fmt: skip
def test_what_a_gpu_would_refuse_is_not_run(body: str):
    """PTX that no driver takes, or an access to memory that is not there, and the emulator runs it."""
    must_not_run(lambda: ran(body)[1], (Fault, LaunchError, NotEmulated))


@pytest.mark.parametrize(
    "body",
    [
        "add.u32 %r2, %r1, %rd0;", "add.u32 %rd1, %r1, %r0;", "add.u64 %rd1, %rd0, %r1;", "add.u32 %f1, %r1, %r0;",
        "add.f32 %s1, %f1, %f2;", "mov.u32 %r2, %f1;", "mov.u64 %rd1, %tid.x;", "mov.u64 {%r2, %r3}, %rd0;",
        "mov.b64 %rd1, {%f1, %s1};", "selp.u32 %r2, %f1, %r1, %p1;", "setp.lt.f32 %p1, %s1, %f1;",
        "shl.b64 %rd1, %rd0, %rd0;", "cvt.u32.u64 %r2, %r1;", "cvt.rzi.u32.f32 %r2, %s1;",
        "cvt.rn.bf16.f32 %r2, %f1;", "cvt.rn.satfinite.e4m3x2.f32 %r2, %f1, %f2;", "fma.rn.bf16x2 %f1, %f1, %r1, %r1;",
        "ld.global.u32 %h1, [%rd0];", "ld.global.u32 %f1, [%rd0];", "ld.global.v2.u32 {%r2, %rd1}, [%rd0];",
        "ld.global.u32 %r2, [%d1];", "st.global.u32 [%rd0], %h1;", "st.global.f32 [%rd0], %s1;",
        "st.global.u32 [%rd0], 0f3F800000;", "atom.global.add.u32 %rd1, [%rd0], %r1;",
        "red.global.add.f32 [%rd0], %s1;", "shfl.sync.bfly.b32 %rd2, %r1, 1, 31, -1;",
        "redux.sync.max.u32 %rd1, %r1, -1;", "vote.sync.ballot.b32 %rd1, %p1, -1;", "popc.b64 %rd1, %rd0;",
        "add.u32 %r2, %r1, 1.5;", "add.f32 %f1, %f2, 5;", "mov.b64 %rd1, 0f3F800000;", "add.u32 %r2, %r1, %tid.x;",
        "bar.sync 17;", "bar.sync -1;", "bar.sync 0, 33;", "bar.arrive 1;",
        "cp.async.cg.shared.global [%r1], [%rd0], 8;",
        ".reg .b64 %r1;", ".reg .b32 p0;", ".shared .b32 x; .shared .b32 x;", "mov.f16 %h1, %h2;",
    ],
)  # fmt: skip
def test_operands_of_another_type_are_refused(body: str):
    """Registers and constants that ptxas refuses, as inline assembly with another constraint has them."""
    before = " .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .f64 %d<2>; .reg .s32 %s<2>; setp.eq.u32 %p1, %r0, %r0;"
    assert ran(f"{before} mov.u32 %r2, 1;")[1] == 1
    must_not_run(lambda: ran(f"{before} mov.u32 %r2, 1; {body}"))


def test_what_is_wrong_with_an_operand_is_said():
    for body, why in (
        ("add.u32 %r2, %r1, %rd0;", "%rd0 is of type .b64, and .u32 is wanted"),
        ("bar.sync 17;", "17 is none of 0, 1, ... 15"),
        ("add.u32 %r2, %r1, 1.5;", "a constant of another type stands where .u32 is wanted"),
    ):
        with pytest.raises(NotEmulated) as refused:
            ran(f" {body}")
        assert str(refused.value) == f"not emulated: {body.split()[0]} at ptx:8: {why}"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(".version 8.6", ".version abc"), (".version 8.6", ".version"), (".target sm_90a", ".target sm_abc"),
     (".target sm_90a", ".target x90"),
     (".address_size 64", ".address_size 32"), (".address_size 64", ".address_size")],
)  # fmt: skip
def test_a_header_that_says_nothing_is_refused(right: str, wrong: str):
    """A version, target or address size that there is not."""
    text = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n"
    launch(Module(text), "k", (1, 1, 1), (1, 1, 1), [])
    must_not_run(lambda: launch(Module(text.replace(right, wrong)), "k", (1, 1, 1), (1, 1, 1), []))


@pytest.mark.parametrize(
    "declaration", [".global .align 4 .u32 seven[1] = {7, 8};\n", ".global .align 3 .u32 seven = 7;\n"]
)
def test_a_declaration_that_says_two_things_is_refused(declaration: str):
    """More initial values than the variable has room for, or an alignment that there is not."""
    must_not_run(lambda: ran(" mov.u32 %r2, 0;", declaration))


def test_what_the_target_lacks_is_refused():
    """An instruction of sm_100a in PTX for sm_90a, as where a kernel has no `#if __CUDA_ARCH__ >= 1000`."""
    line = " .reg .b8 %b0; mov.u32 %r2, 1; cvt.rn.satfinite.e2m1x2.f32 %b0, 0f3F800000, 0f3F800000;"
    must_not_run(lambda: ran(line), (LaunchError,))
