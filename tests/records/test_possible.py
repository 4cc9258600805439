"""What a run writes is what its readers take: `merge`, `gate` and `report` refuse no record of an honest run."""

from __future__ import annotations

import pytest
from least_cases import smallest

from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.emulator import EmulatorDevice
from harness.records.possible import impossible
from harness.verdict import Verdict
from harness.verify.verify import verify


@pytest.mark.parametrize("case", smallest(), ids=lambda case: case.id)
def test_what_a_run_writes_is_possible(case: Case):
    result = verify(case, EmulatorDevice())
    assert result.verdict is (Verdict.EXCLUDED if incapable(case, EmulatorDevice()) else Verdict.PASS), result.story
    assert impossible(result.to_record(), timed=False) == ""
