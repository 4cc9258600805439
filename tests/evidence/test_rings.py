"""Three rings of copies and their mutants: nothing that is right is accused, and nearly every mutant is caught."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from click.testing import CliRunner

from evidence.commands.rings import command
from evidence.museum import ring
from evidence.museum.ring import Mutant, Ring, Tried, rings
from evidence.museum.run import Finding
from harness.errors import UsageError
from harness.files import RESULTS

CAUGHT, MISSED = Finding("race", "loads.cu:26", "reads what a copy may write"), Finding()
NAMES = [each.kernels.name for each in rings()]


@pytest.mark.slow
@pytest.mark.parametrize("each", rings(), ids=NAMES)
def test_what_is_right_is_not_accused_and_the_mutants_are_caught_as_the_committed_table_says(each: Ring) -> None:
    tried = list(ring.try_all(each))
    assert ring.enough(tried), ring.score(tried)
    assert sum(not one.right for one in tried) >= 20
    committed = pd.read_csv(RESULTS / "rings.csv", keep_default_na=False)
    columns = ["mutant", "caught by", "line"]
    found = ring.table(tried)[columns].to_dict("records")
    assert found == committed[committed["ring"] == each.kernels.name][columns].to_dict("records")


def test_there_are_three() -> None:
    assert NAMES == ["loads", "stores", "warps"]


def test_a_mutant_keeps_the_numbers_of_other_lines() -> None:
    loads = rings()[0]
    last = loads.kernels.source.splitlines()[-4:]
    for mutant in loads.mutants:
        assert loads.changed(mutant).source.splitlines()[-1] == last[-1]
        assert loads.changed(mutant).source.count("\n") == loads.kernels.source.count("\n")


def test_a_mutant_that_does_not_fit_is_named() -> None:
    with pytest.raises(UsageError, match=r"loads.cu has what mutant 'nowhere' changes 0 times; it must be there once"):
        rings()[0].changed(Mutant(name="nowhere", change="[-no such line-]"))


def of_mutants(caught: int, missed: int) -> list[Tried]:
    return [Tried("loads", str(i), False, CAUGHT if i < caught else MISSED) for i in range(caught + missed)]


ORIGINAL, HARMLESS = Tried("loads", "", True, MISSED), Tried("loads", "a barrier twice", True, MISSED)


@pytest.mark.parametrize(
    ("tried", "enough"),
    [
        ([ORIGINAL, HARMLESS, *of_mutants(20, 0)], True),
        ([ORIGINAL, *of_mutants(19, 1)], True),
        ([ORIGINAL, *of_mutants(18, 2)], False),
        ([replace(ORIGINAL, finding=CAUGHT), *of_mutants(20, 0)], False),
        ([ORIGINAL, replace(HARMLESS, finding=CAUGHT), *of_mutants(20, 0)], False),
    ],
)
def test_enough_is_95_of_100_and_nobody_accused(tried: list[Tried], enough: bool) -> None:
    assert ring.enough(tried) is enough


def test_the_command_ends_with_1_and_says_who_was_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "try_all", lambda each: [replace(ORIGINAL, finding=CAUGHT), *of_mutants(19, 1)])
    done = CliRunner().invoke(command, ["-k", "loads"], standalone_mode=False)
    assert done.return_value == 1
    assert "loads is right, and was accused: loads.cu:26: reads what a copy may write" in done.output


def test_a_ring_that_is_not_there_is_refused() -> None:
    done = CliRunner().invoke(command, ["-k", "circle"], standalone_mode=False)
    assert str(done.exception) == "no ring has 'circle' in its name; there are loads, stores, warps"
