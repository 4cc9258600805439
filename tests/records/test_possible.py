"""What a run writes is what its readers take: `merge`, `gate` and `report` refuse no record of an honest run."""

from __future__ import annotations

import pytest

from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.emulator import EmulatorDevice
from harness.files import SUITES
from harness.records.possible import impossible
from harness.suite.suite import suite_of
from harness.verdict import Verdict
from harness.verify.verify import verify


def smallest() -> list[Case]:
    """The smallest eager smoke cases of each suite: one with a capacity and one without, where there are such cases."""
    found: dict[tuple[str, bool], Case] = {}
    for recipe in sorted(path.stem for path in SUITES.glob("*.yaml")):
        for case in suite_of(recipe).cases("smoke"):
            kind = recipe, case.problem.capacity is not None
            if case.mode == "eager" and (kind not in found or case.work < found[kind].work):
                found[kind] = case
    return list(found.values())


@pytest.mark.parametrize("case", smallest(), ids=lambda case: case.id)
def test_what_a_run_writes_is_possible(case: Case):
    result = verify(case, EmulatorDevice())
    assert result.verdict is (Verdict.EXCLUDED if incapable(case, EmulatorDevice()) else Verdict.PASS), result.story
    assert impossible(result.to_record(), timed=False) == ""
