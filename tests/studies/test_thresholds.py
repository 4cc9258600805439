"""`harness thresholds`: it knows which side of a comparison no case has seen, in oracles and in emulated kernels."""

from __future__ import annotations

import ast
import csv
import io
import re
import subprocess
import sys

import numpy as np
import pytest

from harness.errors import SuiteError, UsageError
from harness.files import RESULTS, ROOT
from harness.studies.thresholds import reasons, run, watched_kernels, watched_oracles
from harness.studies.thresholds.outcomes import (
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


def site(relation: str, constant: str = "5", file: str = "kernels/a.cuh") -> Site:
    return Site(file, 7, f"if (x {relation} 5)", relation, constant)


@pytest.fixture(autouse=True)
def nothing_seen():
    yield
    OUTCOMES.seen.clear()
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
    rows = {(row["file"], row["text"], f"{row['comparison']} {row['with']} {row['missing']}") for row in listed}
    assert set(reasons.reasons()) <= rows


def test_a_reason_that_says_nothing(tmp_path):
    path = tmp_path / "one_sided.yaml"
    path.write_text("one_sided:\n- {file: kernels/a.cuh, text: a, unseen: [lt 5 true]}\n")
    with pytest.raises(SuiteError, match="one_sided.yaml:2: because: field required"):
        reasons.reasons(path)


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
    OUTCOMES.seen.clear()
    watched_oracles.note(0, np.array([3, 6]), 5)
    assert missing(site("lt"), OUTCOMES.seen[site("lt")]) == [Missing(site("lt"), "edge")]


def test_a_list_may_not_grow(tmp_path):
    known, other = Missing(site("lt"), "false"), Missing(site("gt"), "true")
    (tmp_path / "thresholds.csv").write_text(run.table([known]).to_csv(index=False))
    committed = run.read(tmp_path / "thresholds.csv")
    assert run.grown([known], committed) == []
    moved = Missing(known.site._replace(line=70), "false")
    assert run.grown([moved], committed) == []
    assert run.grown([known, other], committed) == ["kernels/a.cuh:7: no case sees `gt 5` true: if (x gt 5)"]
    with pytest.raises(UsageError):
        run.read(tmp_path / "nothing.csv")


def test_what_no_case_reached_may_be_reached_on_one_side(tmp_path):
    (tmp_path / "thresholds.csv").write_text(run.table([Missing(site("lt"), "reached")]).to_csv(index=False))
    assert run.grown([Missing(site("lt"), "false")], run.read(tmp_path / "thresholds.csv")) == []


def test_constants_of_kernels():
    assert watched_kernels._comparison(instruction("setp.lt.f32")) == ("lt", "f32")
    assert watched_kernels._comparison(instruction("setp.hs.u32")) == ("ge", "u32")
    assert watched_kernels._comparison(instruction("setp.gtu.f32")) == ("gtu", "f32")
    assert watched_kernels._comparison(instruction("max.f32")) == ("clamp", "f32")
    assert watched_kernels._comparison(instruction("setp.lt.and.f32")) is None
    assert watched_kernels._constant(watched_kernels.Immediate(0x3E800000, 4), "f32") == "0.25"


def instruction(mnemonic: str):
    from harness.emulator.ptx.syntax import UNKNOWN, Instruction

    return Instruction(mnemonic, (), None, UNKNOWN)


def test_the_command_watches_kernels_and_oracles(tmp_path):
    """In a process of its own, because it replaces modules."""
    command = [sys.executable, "-m", "harness", "thresholds", "casts", "--jobs", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "thresholds.csv").read_text()
    # All scalars meet every threshold of both casts.
    assert "numerics/e" not in found and "a > 0.25" not in found
    watched = int(re.search(r"(\d+) comparisons", done.stdout)[1])
    assert watched > 10  # the seven of e2m1 in NumPy among them


def test_the_committed_list_is_of_files_that_are_there():
    committed = run.read(RESULTS / "thresholds.csv")
    assert committed
    for file, *_ in committed:
        assert (ROOT / "harness" / file).is_file()
