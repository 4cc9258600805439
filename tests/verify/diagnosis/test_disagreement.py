"""Two oracles that disagree name a trace, and the trace shows both values beside what the block read."""

from __future__ import annotations

import re
from pathlib import Path

import own_recipe
import pytest
from click.testing import CliRunner

from harness.commands import trace
from harness.device.emulator import EmulatorDevice
from harness.errors import Exit
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify

CASE = f"{own_recipe.NAME}/default/48x80/normal/eager"
# a mistake in torch's half of the recipe, and the field that shows it
MISTAKES = [
    ("blocks.float() * multiplier.unsqueeze(2)", "blocks.float() / value.unsqueeze(2)", "rowwise_data"),
    ("amax * torch.tensor(1 / 6,", "amax * torch.tensor(1 / 7,", "rowwise_scale_inv"),
]


@pytest.mark.parametrize(("right", "wrong", "field"), MISTAKES)
def test_the_trace_shows_both_oracles(tmp_path: Path, right: str, wrong: str, field: str):
    folder = own_recipe.written(tmp_path / own_recipe.NAME)
    own_recipe.change(folder, ".py", right, wrong)
    with own_recipe.in_use(folder):
        result = verify(find_case(CASE), EmulatorDevice())
        assert result.verdict not in (Verdict.PASS, Verdict.EXCLUDED)
        assert result.reason.startswith("the oracles disagree on ") and "\n" not in result.reason
        assert result.verdict is Verdict.SETUP_ERROR
        assert result.trace[::2] == ("--field", "--at") and result.trace[1] == field
        words = (CASE, *result.trace, "--device", "emulator")
        shown = CliRunner().invoke(trace.command, words, standalone_mode=False)
        assert shown.exception is None and shown.return_value == Exit.CLEAN
        assert re.search(r"^first difference from numpy: torch at ", shown.output, re.MULTILINE)
        values = re.search(r"is (0x..) = .* by NumPy, (0x..) = .* by torch", result.reason)
        if field == "rowwise_scale_inv":
            assert all(value in shown.output for value in values.groups())
        row, col = map(int, result.trace[3].split(","))
        assert f"block {col // 16} of line {row}" in shown.output and "block amax of x" in shown.output


def test_oracles_that_agree_name_none(tmp_path: Path):
    with own_recipe.in_use(own_recipe.written(tmp_path / own_recipe.NAME)):
        result = verify(find_case(CASE), EmulatorDevice())
    assert result.verdict is Verdict.PASS and "trace" not in result.story
