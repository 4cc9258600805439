"""The verb `thresholds` knows which side of a comparison no case has seen, in oracles and in emulated kernels."""

from __future__ import annotations

import ast
import csv
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from processes import LONGEST

from evidence.mutants.places import Places
from evidence.thresholds import run, watched_kernels, watched_oracles
from evidence.thresholds.outcomes import (
    ABOVE,
    BELOW,
    EDGE,
    EQUAL,
    OUTCOMES,
    UNORDERED,
    Missing,
    Outcomes,
    Site,
    canonical,
    missing,
)
from evidence.thresholds.watched_kernels import KnownRegisters
from harness.device.capability import incapable
from harness.device.emulator import EmulatorDevice
from harness.errors import SuiteError
from harness.files import RESULTS, ROOT
from harness.suite.suite import load_suites, suite_of
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.ptx.parser import parse
from ptx_emulator.ptx.syntax import Immediate, Name


def site(relation: str, constant: str = "5", file: str = "kernels/a.cuh") -> Site:
    return Site(file, 7, f"if (x {relation} 5)", relation, constant)


@pytest.fixture(autouse=True)
def nothing_seen():
    yield
    OUTCOMES.clear()
    watched_oracles._SITES.clear()


@pytest.mark.parametrize(
    ("relation", "seen", "what"),
    [
        ("lt", 0, "reached"),
        ("lt", BELOW | EDGE, "false"),
        ("lt", EQUAL | EDGE, "true"),
        ("lt", BELOW | ABOVE, "edge"),
        ("lt", BELOW | EQUAL | EDGE, None),
        ("le", BELOW | EQUAL | EDGE, "false"),
        ("gt", ABOVE | EDGE, "false"),
        ("ge", UNORDERED, "true"),
        ("eq", BELOW | ABOVE, "true"),
        ("ne", EQUAL | EDGE, "true"),
        ("gtu", UNORDERED | BELOW, None),
        ("gt", UNORDERED | BELOW | EDGE, "true"),
        ("clamp", BELOW, "false"),
        ("clamp", BELOW | ABOVE, None),
    ],
)
def test_what_is_missing(relation, seen, what):
    assert missing(site(relation), seen) == ([Missing(site(relation), what)] if what else [])


def test_a_comparison_in_other_words_is_the_same():
    def site(relation: str, constant: str = "5") -> Site:
        return Site("kernels/a.cuh", 7, "if (x < 5)", relation, constant)

    words = {site("ge"): ABOVE, site("lt"): BELOW, site("le", "4"): EQUAL, site("gt", "4"): ABOVE | EDGE}
    outcomes = Outcomes()
    outcomes.merge(words)
    assert outcomes.missing() == []
    assert {canonical(each, seen)[0] for each, seen in words.items()} == {site("lt")}
    assert canonical(site("neu", "0.0"), EQUAL) == (site("eq", "0.0"), EQUAL)
    assert canonical(site("ge", "0.5"), BELOW)[0] == site("ltu", "0.5")
    assert canonical(site("ge", "the same for all"), BELOW)[0] == site("lt", "the same for all")
    assert canonical(site("clamp"), ABOVE) == (site("clamp"), ABOVE)


def test_every_reason_is_of_a_comparison_that_is_listed():
    listed = csv.DictReader(io.StringIO((RESULTS / "thresholds.csv").read_text(), newline=""))
    rows = {(row["file"], f"{row['comparison']} {row['with']} {row['missing']}", row["because"]) for row in listed}
    assert {(file, each.unseen, each.because) for (file, _, _), each in run.reasons().items()} <= rows


def test_a_reason_that_says_nothing(tmp_path):
    path = tmp_path / "one_sided.yaml"
    path.write_text("one_sided:\n- {scope: kernels/a.cuh, text: a, unseen: [lt 5 true]}\n")
    with pytest.raises(SuiteError, match="one_sided.yaml:2: because: field required"):
        run.reasons(path)


def test_a_reason_is_of_an_expression_however_its_lines_are_broken(tmp_path):
    path, kernel = tmp_path / "one_sided.yaml", tmp_path / "kernels" / "a.cuh"
    kernel.parent.mkdir()
    path.write_text("one_sided:\n- {scope: f, text: if (x < 5), unseen: [lt 5 true], because: no row has it}\n")
    for text, lines in (
        ("int f(int x) {\n  if (x < 5) x = 5;\n  return x;\n}", {2}),
        ("// a head\n\nint f(int x)\n{\n  if (x\n      < 5)\n    x = 5;\n  return x;\n}", {5, 6}),
    ):
        kernel.write_text(text)
        assert {line for _, line, _ in run.reasons(path, Places(tmp_path))} == lines
    kernel.write_text("int f(int x) {\n  if (x <= 5) x = 5;\n  return x;\n}")
    with pytest.raises(
        SuiteError, match=r"one_sided.yaml:2: f has no `if \(x < 5\)`; the nearest there is `if .x <= 5.`"
    ):
        run.reasons(path, Places(tmp_path))


SOURCE = """\
def code(a, flag):
    if flag.rows < 16:
        raise ValueError("too few")
    small = a <= 0.25
    if flag.name == "rne":
        return np.fmin(a, LARGEST)
    return small
"""


def test_comparisons_of_an_oracle_are_watched():
    tree = watched_oracles._Watch("oracles/x.py", SOURCE.splitlines()).visit(ast.parse(SOURCE))
    text = ast.unparse(ast.fix_missing_locations(tree))
    assert "_compared(0, 'le', a, 0.25)" in text and "np.fmin(*_bounded(1, a, LARGEST))" in text
    assert text.count("_compared") == 1  # neither the text nor the refusal
    assert watched_oracles.compared(0, "le", np.float32([0.1, np.nan]), 0.25).tolist() == [True, False]
    assert missing(watched_oracles._SITES[0], OUTCOMES.seen[watched_oracles._SITES[0]])[0].what == "edge"
    watched_oracles.compared(0, "le", np.float32([0.25]), 0.25)
    assert missing(watched_oracles._SITES[0], OUTCOMES.seen[watched_oracles._SITES[0]]) == []
    assert watched_oracles.compared(0, "le", 3, 2) is False


def test_integers_next_to_a_bound_are_at_its_edge():
    watched_oracles._SITES.append(site("lt"))
    watched_oracles.note(0, np.array([4, 9]), 5)
    assert missing(site("lt"), OUTCOMES.seen[site("lt")]) == []
    OUTCOMES.clear()
    watched_oracles.note(0, np.array([3, 6]), 5)
    assert missing(site("lt"), OUTCOMES.seen[site("lt")]) == [Missing(site("lt"), "edge")]


def test_the_check_is_red_for_a_comparison_without_a_reason_and_for_a_reason_or_case_without_use():
    def unexplained(*found: Missing, needless=()) -> list[str]:
        return run.unexplained(run.Study([], list(found), list(needless)), because)

    known, other = Missing(site("lt"), "false"), Missing(site("gt"), "true")
    because = {run.key(known): run.Reason("f", "if (x lt 5)", "lt 5 false", "no row has it")}
    assert unexplained(known) == []
    assert unexplained(known, other) == ["kernels/a.cuh:7: no case sees `gt 5` true: if (x gt 5)"]
    assert unexplained() == ["one_sided.yaml: cases see both sides of `lt 5 false`, or it is gone: f: if (x lt 5)"]
    case = suite_of("casts").cases("smoke")[0]
    assert unexplained(known, needless=[case]) == [
        f"one_sided.yaml: cases before it see all that this one sees: {case.id}"
    ]


def test_cases_that_see_more_are_of_full_sets(tmp_path):
    cases = run.full_cases()
    assert cases
    device = EmulatorDevice()
    assert not any(incapable(case, device) for case in cases)
    assert not {case.id for case in cases} & {case.id for suite in load_suites() for case in suite.cases("smoke")}
    path = tmp_path / "one_sided.yaml"
    path.write_text(f"full:\n- {cases[0].id}\n- per_tensor/default/16x48/normal/eager\n")
    with pytest.raises(
        SuiteError, match="one_sided.yaml:3: the full set of per_tensor has no per_tensor/default/16x48"
    ):
        run.full_cases(path)


def test_every_comparison_of_the_committed_list_has_a_reason():
    rows = list(csv.DictReader(io.StringIO((RESULTS / "thresholds.csv").read_text(), newline="")))
    assert rows
    assert [row for row in rows if not row["because"]] == []
    assert all((ROOT / "harness" / row["file"]).is_file() for row in rows)


PTX = """\
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u32 n)
{
\t.reg .pred %p<3>;
\t.reg .b32 %r<12>;
\tld.param.u32 %r1, [n];
\tmov.u32 %r2, %tid.x;
\tshr.u32 %r3, %r2, 5;
\tmov.u32 %r4, 7;
\tadd.s32 %r5, %r1, %r4;
\tadd.s32 %r6, %r2, %r1;
\tmov.u32 %r7, 31;
\tmov.u32 %r8, -1;
\tshfl.sync.idx.b32 %r9|%p1, %r3, 0, %r7, %r8;
\tmov.u32 %r10, 1;
\t@%p1 mov.u32 %r10, %r2;
\tsetp.lt.u32 %p2, %r9, %r4;
\tret;
}
"""


def test_what_registers_are_made_of():
    kernel = parse(PTX).kernel("k")
    known = KnownRegisters.of(kernel.instructions)
    assert known.constants == {"%r4": Immediate(7), "%r7": Immediate(31), "%r8": Immediate(-1)}
    assert known.same_for_all == {"%r1", "%r4", "%r5", "%r7", "%r8"}
    # The warp of a thread is passed around; what is written twice may be either.
    assert known.by_thread == {"%r2", "%r3", "%r4", "%r7", "%r8", "%r9", "%p1", "%p2"}


def test_what_the_index_of_a_thread_decides_is_no_case_s():
    kernel = parse(PTX).kernel("k")
    known = KnownRegisters.of(kernel.instructions)
    compared = next(each for each in kernel.instructions if each.mnemonic.startswith("setp"))
    assert watched_kernels._site(known, compared, "lt", "u32") == (None, False)
    _, *operands = compared.operands
    data = compared._replace(operands=(operands[0], Name("%r6"), Name("%r4")))
    assert watched_kernels._site(known, data, "lt", "u32")[0].constant == "7"
    other = compared._replace(operands=(operands[0], Name("%r5"), Name("%r6")))
    found, mirrored = watched_kernels._site(known, other, "lt", "u32")
    assert (found.relation, found.constant, mirrored) == ("gt", "the same for all", True)


WATCHED = """\
.version 8.4
.target sm_90a
.address_size 64
.file 1 "a.cu"
.visible .entry k(.param .u64 out, .param .u32 n)
{
\t.reg .pred %p<3>;
\t.reg .b32 %r<8>;
\t.reg .b64 %rd<4>;
\t.loc 1 7 1
\tld.param.u64 %rd1, [out];
\tld.param.u32 %r1, [n];
\tmov.u32 %r2, %tid.x;
\tadd.u32 %r3, %r1, %r2;
\tsetp.lt.u32 %p1, %r2, 8;
\t@%p1 min.s32 %r4, %r3, 12;
\t@!%p1 mov.u32 %r4, 99;
\tmul.wide.u32 %rd2, %r2, 4;
\tadd.s64 %rd3, %rd1, %rd2;
\tst.global.u32 [%rd3], %r4;
\tsetp.gt.s32 %p2, %r3, 20;
\t@%p2 bra DONE;
\tst.global.u32 [%rd3], %r3;
DONE:
\tret;
}
"""


def test_kernels_are_watched_in_the_lanes_that_execute_a_comparison(tmp_path):
    module, plain = watched_kernels._WatchedModule(WATCHED, tmp_path), Module(WATCHED, tmp_path)
    least, bound = Site("kernels/a.cu", 7, "", "clamp", "12"), Site("kernels/a.cu", 7, "", "gt", "20")

    def steps() -> int:
        return sum(len(block.steps) for block in module.code("k").blocks)

    def run(n: int) -> None:
        written = [Buffer("out", np.zeros(128, np.uint8)) for _ in range(2)]
        for each, out in zip((module, plain), written, strict=True):
            launch(each, "k", (1, 1, 1), (32, 1, 1), [out, n])
        assert written[0].data.tobytes() == written[1].data.tobytes()

    unwatched = sum(len(block.steps) for block in plain.code("k").blocks)
    assert steps() == unwatched + 4  # each step that looks parts a segment
    assert OUTCOMES.seen == {least: 0, bound: 0}
    run(0)
    assert OUTCOMES.seen == {least: BELOW, bound: BELOW | EQUAL | EDGE | ABOVE}
    assert steps() == unwatched + 2
    run(2)
    assert OUTCOMES.seen[least] == BELOW  # larger values are not under the guard
    run(6)
    assert OUTCOMES.seen[least] == BELOW | EQUAL | EDGE | ABOVE
    assert steps() == unwatched
    assert OUTCOMES.missing() == []


def test_constants_of_kernels():
    assert watched_kernels._comparison(instruction("setp.lt.f32")) == ("lt", "f32")
    assert watched_kernels._comparison(instruction("setp.hs.u32")) == ("ge", "u32")
    assert watched_kernels._comparison(instruction("setp.gtu.f32")) == ("gtu", "f32")
    assert watched_kernels._comparison(instruction("max.f32")) == ("clamp", "f32")
    assert watched_kernels._comparison(instruction("setp.lt.and.f32")) is None
    assert watched_kernels._constant(KnownRegisters(), Immediate(0x3E800000, 4), "f32") == "0.25"


def instruction(mnemonic: str):
    from ptx_emulator.ptx.syntax import UNKNOWN, Instruction

    return Instruction(mnemonic, (), None, UNKNOWN)


@pytest.mark.slow
def test_the_command_watches_kernels_and_oracles(tmp_path):
    """In a process of its own, because it replaces modules."""
    command = [sys.executable, "-m", "evidence", "thresholds", "casts", "--jobs", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "thresholds.csv").read_text()
    # All scalars meet every threshold of both casts.
    assert "numerics/e" not in found and "a > 0.25" not in found
    watched = int(re.search(r"(\d+) comparisons", done.stdout)[1])
    assert watched > 10  # the seven of e2m1 in NumPy among them
