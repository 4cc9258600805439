"""Every instruction that the emulator knows, and every one that a kernel has, is shown by a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter

import pandas as pd
import pytest

from evidence.opcodes import instructions
from evidence.opcodes.recorder import covers
from harness.errors import UsageError
from harness.files import ROOT
from harness.jit.compile import ptx_of
from harness.suite.instantiations import Job, instantiations
from ptx_emulator.catalogue import mnemonics

COMMITTED = ROOT / "results" / "opcodes.csv"


@pytest.mark.slow
def test_every_opcode_of_the_catalogue_and_of_a_kernel_has_a_test_in_the_committed_table() -> None:
    """tests/conftest.py holds each test that is named here against what it executes."""
    tests = pd.read_csv(COMMITTED).set_index("opcode")["test"]
    assert list(tests[tests.isna()].index) == []
    assert instructions.without_test(mnemonics(), tests.index) == []
    assert sorted(set(tests) - marked_tests()) == []


def marked_tests() -> set[str]:
    """`file.py::test[id]` of each test of the emulator that covers something."""
    options = ["--collect-only", "-m", "covers", "-n", "0", "-q", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(instructions.TESTS), *options],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.removeprefix("tests/ptx_emulator/") for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow
@pytest.mark.parametrize("arch", instructions.ARCHES)
def test_no_kernel_has_an_opcode_that_is_not_in_the_committed_table(arch: str) -> None:
    """An instantiation of each kernel here; `python -m evidence opcodes` takes them all, and counts them anew."""
    known = set(pd.read_csv(COMMITTED)["opcode"])
    first: dict[str, Job] = {}
    for job in instantiations(["smoke"], [ptx_of(arch)]):
        first.setdefault(job.signature.name, job)
    unknown = {name: sorted(instructions.of_ptx(job.compile()) - known) for name, job in first.items()}
    assert {name: found for name, found in unknown.items() if found} == {}
    assert len(first) > 30


@pytest.mark.parametrize(
    ("mnemonic", "name"),
    [
        ("ld.global.nc.L1::no_allocate.L2::128B.v4.u32", "ld.global.v4.u32"),
        ("ld.volatile.shared.b32", "ld.volatile.shared.b32"),
        ("atom.relaxed.gpu.global.add.u32", "atom.global.add.u32"),
        ("atom.acquire.gpu.global.add.u32", "atom.acquire.global.add.u32"),
        ("cp.async.cg.shared::cta.global.L2::128B", "cp.async.cg.shared.global"),
        ("fence.proxy.async.shared::cta", "fence.proxy.async.shared::cta"),
        ("bra.uni", "bra"),
        ("barrier.cta.sync", "barrier.sync"),
        ("cvt.rn.satfinite.e2m1x2.f32", "cvt.rn.satfinite.e2m1x2.f32"),
    ],
)
def test_a_name_says_all_that_can_change_a_value_and_nothing_else(mnemonic: str, name: str) -> None:
    assert instructions.plain(mnemonic) == name


def test_a_name_of_the_catalogue_stands_for_spaces_and_types_and_needs_one() -> None:
    names = ["ld.global", "ld", "atom.add.u32", "max.f32/3", "fence.sc.gpu"]
    assert instructions.without_test(names, []) == sorted(names)
    shown = ["ld.global.v2.u32", "ld.u32", "atom.shared.add.u32", "max.f32", "fence.sc.gpu"]
    assert instructions.without_test(names, shown) == []
    assert instructions.without_test(["ld.shared"], ["ld.volatile.shared.u32"]) == ["ld.shared"]


def test_a_marker_is_about_a_beginning_or_a_whole_name() -> None:
    assert covers(("mma.", "bra"), "mma.sync.aligned")
    assert covers(("mma.", "bra"), "bra")
    assert not covers(("bra",), "brx.idx")


# What a folder of tests holds, and the instructions that it shows.
RECORDED = """
import numpy as np
import pytest
from ptx_snippets import kernel, run
from ptx_emulator.errors import Fault

def launch(line):
    run(kernel(f" mov.u32 %r1, 1; {line}", 1), {"x": np.zeros(1, np.uint32)}, block=1)

@pytest.mark.covers("mul.", "add.")
def test_of_two():
    launch("mul.lo.u32 %r2, %r1, %r1; add.u32 %r2, %r1, %r1;")

@pytest.mark.covers("add.")
def test_of_one():
    launch("add.u32 %r2, %r1, %r1;")

@pytest.mark.covers("sub.")
def test_that_never_gets_there():
    launch("bra $over; sub.u32 %r2, %r1, %r1; $over:")

@pytest.mark.covers("trap")
def test_a_trap():
    with pytest.raises(Exception, match="trapped"):
        launch("trap;")

@pytest.mark.covers("st.")
def test_a_fault():
    with pytest.raises(Fault):
        launch("mov.u64 %rd1, 64; st.global.u32 [%rd1], %r1;")

def test_that_covers_nothing():
    launch("xor.b32 %r2, %r1, %r1;")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of tests that stands for the emulator's."""
    (tmp_path / "test_recorded.py").write_text(RECORDED)
    (tmp_path / "ptx_snippets.py").write_text((instructions.TESTS / "ptx_snippets.py").read_text())
    monkeypatch.setattr(instructions, "TESTS", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_a_test_covers_and_executes_is_recorded_with_the_most_specific_test(folder) -> None:
    assert instructions.executed() == {
        "add.u32": "test_recorded.py::test_of_one",
        "mul.lo.u32": "test_recorded.py::test_of_two",
        "trap": "test_recorded.py::test_a_trap",
    }


def test_tests_that_fail_or_are_not_there_are_a_sentence(folder) -> None:
    (folder / "test_recorded.py").write_text("import pytest\n@pytest.mark.covers('x')\ndef test(): assert 0\n")
    with pytest.raises(UsageError, match="tests fail: 1 failed"):
        instructions.executed()
    shutil.rmtree(folder)
    with pytest.raises(UsageError, match="come with the repository"):
        instructions.executed()


def test_the_table_has_what_is_used_or_tested_and_the_page_what_is_used() -> None:
    used = instructions.usage([("sm_90a", {"a.x", "b.y"}), ("sm_100a", {"a.x"}), ("sm_90a", {"a.x"})])
    found = instructions.table(used, {"a.x": "t.py::one", "c.z": "t.py::two"})
    assert list(zip(found.opcode, found.test, strict=True)) == [("a.x", "t.py::one"), ("b.y", ""), ("c.z", "t.py::two")]
    page = instructions.page("python -m evidence opcodes", Counter(sm_90a=2, sm_100a=1), found)
    assert "| a.x | 2 | 1 | t.py::one |" in page
    assert "(2 for sm_90a and 1 for sm_100a)" in page
    assert "1 more are executed" in page
    assert "c.z" not in page
