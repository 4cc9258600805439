"""Mutants of host code: where they are made, what a draw meets, and what the tests of a small tree say of them."""

from __future__ import annotations

import pandas as pd
import pytest
from click.testing import CliRunner

from evidence.commands import mutants as command
from evidence.mutants.generated import change as kinds
from evidence.mutants.generated import host, host_changes, host_hunt, proofs
from evidence.mutants.generated.draw import draw
from evidence.mutants.generated.host_changes import changes_of_host
from evidence.mutants.hunt import REFUSED, Catch
from evidence.mutants.places import Places
from harness.errors import Exit, UsageError
from harness.files import ROOT


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("u = v == w", {(host_changes.EQUAL, "==", "!=")}),
        ("u = v is not w", {(host_changes.EQUAL, "is not", "is")}),
        ("u = v not in (w)", {(host_changes.EQUAL, "not in", "in")}),
        ("u = v and w", {(host_changes.CONNECTIVE, "and", "or")}),
        ("u = (v) | w", {(host_changes.CONNECTIVE, "|", "&")}),
        ("u = all(v)", {(host_changes.CONNECTIVE, "all", "any")}),
        ("u = False", {(host_changes.TRUTH, "False", "True")}),
        ("u(v)", {(host_changes.DROPPED, "u(v)", "pass")}),
        ("u = Kind.PASS, Kind.FAIL", {
            (host_changes.MEMBER, "Kind.PASS", "Kind.FAIL"), (host_changes.MEMBER, "Kind.FAIL", "Kind.PASS"),
        }),
        ("if not u: raise V('text', 3)", {(host_changes.NEGATED, "not u", "(u)")}),
        ("def refuse(u): return u + 1", {
            (kinds.SUM, "+", "-"), (kinds.PLUS, "1", "2"), (kinds.MINUS, "1", "0"),
        }),
        ("u = [v for v in w if v]", {(host_changes.NEGATED, "v", "not (v)")}),
        ("u = zip(strict=True)", set()),
        ("u = 'are' if v > 1 else 'is'", set()),
        ("class U(Protocol):\n    def v(w=1): pass", set()),
        ("@u(1)\ndef v(w: x[2]) -> y[3]: '4'", set()),
        ("from u import v", set()),
    ],
)  # fmt: skip
def test_changes_of_a_line_of_host_code(line, expected):
    assert {(change.operator, line[change.start : change.end], change.wrong) for change in changes_of_host(line)} == (
        expected
    )


def test_every_file_has_mutants_each_with_a_name_of_its_own_and_tests():
    found = host.host_mutants()
    assert {mutant.file for mutant in found} == {file for area in host.AREAS.values() for file in area.files}
    assert len({mutant.name for mutant in found}) == len(found)
    drawn = draw(7, 100, host.host_mutants())
    assert drawn[:20] == draw(7, 20, host.host_mutants())
    assert {mutant.file for mutant in drawn} == {mutant.file for mutant in found}
    for mutant in drawn:
        assert not mutant.same_syntax()
        assert mutant.tests() and all((ROOT / path).is_file() for path in mutant.tests())


def test_tests_that_import_the_file_come_first_and_those_that_start_processes_last():
    mutant = next(mutant for mutant in host.host_mutants() if mutant.file == "runner/outcome.py")
    tests = mutant.tests()
    assert tests[0] == "tests/runner/test_outcome.py"
    assert tests.index("tests/runner/test_isolation.py") > tests.index("tests/gate/test_decision.py")


def test_every_proof_is_of_a_generated_mutant():
    assert set(proofs.host_proofs()) <= {mutant.edit.key for mutant in host.host_mutants()}


TREE = {
    "harness/__init__.py": "",
    "harness/plugin.py": "",
    "harness/small.py": "STEP = 1\n\n\ndef up(n):\n    while n < 5:\n        n += STEP\n    return n\n",
    "tests/test_a.py": """
import pathlib
import harness.small

def test_up():
    assert harness.small.up(4) == 5

def test_red():
    assert False

def test_chance():
    here = pathlib.Path("here")
    before = here.exists()
    here.touch()
    assert before
""",
    "results/of.md": "",
}


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """What the tests of TREE say of a change in its `harness/small.py`."""
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(host_hunt, "ROOT", tmp_path)
    index = Places(tmp_path / "harness", [tmp_path / "harness" / "small.py"])

    class Small(host.HostMutant):
        index = property(lambda self: index)

        def tests(self) -> list[str]:
            return ["tests/test_a.py"]

    def run(scope: str, right: str, wrong: str, longest: int = 100) -> Catch:
        mutant = Small(name="a", file="small.py", scope=scope, right=right, wrong=wrong, theme="any")
        return host_hunt.hunt(mutant, longest)

    return run


def test_a_test_catches_it(tried):
    caught = tried("up", "n < 5", "n < 4")
    assert (caught.by, caught.verdict, caught.cases) == ("tests/test_a.py::test_up", "FAILED", 0)
    assert caught.cpu > 0


@pytest.mark.slow
def test_tests_that_fail_anyway_or_by_chance_catch_nothing(tried):
    caught = tried("up", "n < 5", "n <= 4")
    assert (caught.by, caught.cases) == ("", 1)
    assert "or by chance: tests/test_a.py::test_red, tests/test_a.py::test_chance" in caught.reason


def test_what_cannot_be_imported_is_none(tried):
    assert tried("STEP", "1", "one").discarded == REFUSED


@pytest.mark.slow
def test_what_does_not_end_is_caught(tried, monkeypatch):
    monkeypatch.setattr(host_hunt, "_PATIENCE", 2)
    caught = tried("STEP", "1", "0", longest=10)
    assert (caught.by, caught.verdict) == ("tests/test_a.py::test_up", "DOES NOT END")


@pytest.fixture
def harness_mutants(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "HOST", tmp_path / "host_mutants")
    monkeypatch.setattr(proofs, "host_proofs", dict)

    def run(*arguments: str) -> tuple[int, str]:
        words = ("--generated", "--host", "--seed", "3", "--jobs", "1", "--journal", str(tmp_path / "journal"))
        done = CliRunner().invoke(command.command, [*words, *arguments], standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.return_value, done.output

    return run


def test_a_hunt_goes_on_where_it_was_and_leaves_its_tables(harness_mutants, monkeypatch, tmp_path):
    def survives_once(mutant: host.HostMutant, longest: int) -> Catch:
        return Catch(mutant.name, *(() if mutant.file == "errors.py" else ("tests/a.py::b", "tests")), cases=3)

    monkeypatch.setattr(host_hunt, "hunt", survives_once)
    status, first = harness_mutants("--count", "20")
    assert "20 were drawn and 0 discarded; of the other 20, 19 (95.0 %) are caught" in first
    assert status == Exit.CLEAN
    page = (tmp_path / "host_mutants.md").read_text()
    assert "evidence mutants --generated --host --seed 3 --count 20" in page and "## Survivors" in page
    assert len(pd.read_csv(tmp_path / "host_mutants.csv")) == 20
    _, again = harness_mutants("--count", "20")
    assert "SURVIVES" not in again
    status, _ = harness_mutants("--count", "20", "--name", "errors.py")
    assert status == Exit.BYTES_DIFFER


@pytest.mark.parametrize("arguments", [("--set", "smoke"), ("--device", "cuda"), ("--catalogue", "a.yaml")])
def test_options_that_do_not_go_with_it(harness_mutants, arguments):
    with pytest.raises(UsageError):
        harness_mutants(*arguments)
