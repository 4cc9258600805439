"""The museum of bugs: each is caught by the check that it names, and its mend by none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.commands.museum import command
from harness.errors import UsageError
from harness.studies.museum.beside import says
from harness.studies.museum.exhibit import Exhibit, exhibits, read
from harness.studies.museum.run import show

SECONDS = 1.0  # that a bug takes to be found


@pytest.mark.parametrize("exhibit", exhibits(), ids=lambda each: each.name)
def test_the_bug_is_caught_and_the_mend_is_not_accused(exhibit: Exhibit) -> None:
    shown = show(exhibit)
    assert (shown.bug.check, shown.mend.check) == (exhibit.check, ""), (shown.bug.sentence, shown.mend.sentence)
    assert exhibit.check == "bytes" or shown.bug.where.startswith(f"{exhibit.name}.cu:")


def test_there_are_two_dozen() -> None:
    assert len({each.thread for each in exhibits()}) >= 24


def test_a_bug_and_its_mend_differ() -> None:
    assert all("MEND(" in each.source or "BUG(" in each.source for each in exhibits())


def test_the_command_shows_thread_check_and_line() -> None:
    done = CliRunner().invoke(command, ["-k", "te_3417", "-v"], standalone_mode=False)
    assert done.return_value == 0
    assert "1 of 1 caught" in done.output
    assert "wait_group.read" in done.output


def test_an_exhibit_without_its_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nobody.cu"
    path.write_text("// thread: nobody#1\n// story: nothing\n")
    with pytest.raises(UsageError, match=r"nobody.cu: an exhibit begins with the lines thread, story, check"):
        read(path)


def test_the_first_example_takes_less_than_a_second() -> None:
    (first,) = (each for each in exhibits() if each.name == "te_3417")
    show(first)  # Numba loads once
    assert show(first).seconds < SECONDS


def test_what_a_sanitizer_says_stands_beside(tmp_path: Path) -> None:
    """A stand-in that finds something in the bug with one tool, and does not end with another."""
    stand_in = tmp_path / "sanitizer"
    stand_in.write_text(
        "import sys, time\n"
        "tool, bug = sys.argv[2], sys.argv[-1] == 'bug'\n"
        "time.sleep(60 if tool == 'synccheck' else 0)\n"
        "sys.exit(99 if bug and tool == 'racecheck' else 0)\n"
    )
    program = [sys.executable, str(stand_in)]
    assert says(program, "te_3417", mended=False, seconds=1.0) == "racecheck"
    assert says(program, "te_3417", mended=True, seconds=1.0) == "no end"
