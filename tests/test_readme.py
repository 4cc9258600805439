"""What the README shows is what happens: its commands run, its screen is printed, its cases exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.commands import recipes
from harness.device.emulator import EmulatorDevice
from harness.files import ROOT
from harness.studies.mutants.catalogue import find
from harness.suite.suite import find_case, load_suites
from harness.verify.verify import verify

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(sh|sh gpu|text)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(kind: str, program: str) -> list[list[str]]:
    lines = [line for found, text in BLOCKS if found == kind for line in text.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line for line in words if line and line[0] == program]


@pytest.mark.parametrize("command", commands("sh", "harness"), ids=" ".join)
def test_a_command_for_any_machine_runs(command, tmp_path):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("command", commands("sh gpu", "harness"), ids=" ".join)
def test_a_command_for_a_gpu_exists_with_its_options(command):
    done = subprocess.run([sys.executable, "-m", *command[:2], "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for option in (word for word in command[2:] if word.startswith("-")):
        assert option in done.stdout


@pytest.mark.parametrize("command", [*commands("sh", "make"), *commands("sh gpu", "make")], ids=" ".join)
def test_a_make_command_is_one_that_make_accepts(command):
    done = subprocess.run([command[0], "-n", *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "case_id", sorted(set(re.findall(r"[a-z_0-9]+/[a-z_0-9=,]+/\d+x\d+/\w+/(?:eager|graph)", README)))
)
def test_a_case_that_is_named_exists(case_id):
    assert find_case(case_id).id == case_id


def test_every_recipe_has_a_row_with_its_contract_and_flags():
    """In the table that the README leads to."""
    shown = CliRunner().invoke(recipes.command, env={"COLUMNS": "1000"}).stdout
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    told = {cells[0]: (what, *cells[2:]) for cells in rows if len(cells) == 4 for what in [bool(cells[1])]}
    for suite in load_suites():
        assert told.pop(suite.recipe) == (True, suite.file.contract, ", ".join(suite.file.axes))
    assert told == {}


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert Path(ROOT, target).exists(), target


@pytest.mark.parametrize(
    ("verdict", "mutant"),
    [("MISMATCH", "multiplier not clamped"), ("NONDETERMINISTIC", "no barrier before the columns")],
)
def test_a_screen_that_is_shown_is_the_one_that_is_printed(tmp_path, verdict, mutant):
    kernels = find(mutant).copied_to(tmp_path)
    shown = next(text for kind, text in BLOCKS if kind == "text" and text.startswith(verdict))
    case = find_case(shown.split()[1])
    printed = [line.strip() for line in verify(case, EmulatorDevice(kernels=kernels)).story.splitlines()]
    starts = [line.strip().removesuffix("…") for line in shown.splitlines()]  # of lines that go on after it
    assert [start for start in starts if not any(line.startswith(start) for line in printed)] == [], printed
