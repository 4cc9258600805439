"""Attacks on the emulator by PTX: what is run must be what the text says."""

from __future__ import annotations

import numpy as np
import pytest
from ways import StillGreenError

from harness.emulator.errors import Fault, LaunchError, NotEmulated
from harness.emulator.launch import Module, launch
from harness.emulator.memory import Buffer

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


def test_a_variable_of_the_module_is_read_at_its_own_address():
    """A kernel reads a variable of its module, and the emulator hands it other memory without a word."""
    before = " setp.eq.u32 %p1, %r0, %r0; @%p1 and.b64 %rd2, %rd0, %rd0;"
    found = ran(f"{before} ld.global.u32 %r2, [seven];", SEVEN)[1]
    if found != 7:
        raise StillGreenError(f"read {found} in place of 7")


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
        " not.b32 %r3, !%r1; add.u32 %r2, %r3, !%r1;",
        " setp.eq.and.u32 %p1, %r1, 40; selp.u32 %r2, 1, 2, %p1;",
    ],
    ids=["half an address", "a number as an address", "behind the parameters", "before the parameters",
         "far behind the parameters", "braces", "a number as a predicate", "not of a number", "a predicate too few"],
)  # fmt: skip
def test_what_a_gpu_would_refuse_is_not_run(body: str):
    """PTX that no driver takes, or an access to memory that is not there, and the emulator runs it."""
    try:
        found = ran(body)
    except (Fault, LaunchError, NotEmulated):
        return
    except Exception as error:
        raise AssertionError(f"a traceback: {error!r}") from error
    raise StillGreenError(f"ran, with {found[1]}")


@pytest.mark.parametrize(
    "declaration", [".global .align 4 .u32 seven[1] = {7, 8};\n", ".global .align 3 .u32 seven = 7;\n"]
)
def test_a_declaration_that_says_two_things_is_refused(declaration: str):
    """More initial values than the variable has room for, or an alignment that there is not."""
    try:
        ran(" mov.u32 %r2, 0;", declaration)
    except NotEmulated:
        return
    raise StillGreenError("accepted")
