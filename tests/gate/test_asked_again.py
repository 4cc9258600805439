"""What a run found SLOWER or FASTER must recur in a second process."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_runs import CASE, OTHER, Folder, changed, record, without_time

from harness.errors import Exit
from harness.ground.command_lines import Asked

LATER = "2026-01-01T00:30:00Z"  # when the first process began


def in_a_second_process(folder: Folder, *records: dict, name: str = "second_process", **changes) -> None:
    second = Folder.__new__(Folder)
    second.run_dir = folder.run_dir / name
    second.run_dir.mkdir(exist_ok=True)
    second.made = 0
    second.holds(*records, header=changed(**{"date": "2026-01-01T01:00:00Z"} | changes))


@pytest.fixture
def slower(folder: Folder) -> Folder:
    """A run whose first case is slower than the baseline has it."""
    folder.holds(record(), record(OTHER))
    folder.gate("--save")
    folder.holds(record(us=120.0, seed=1), record(OTHER), header=changed(date=LATER))
    return folder


@pytest.mark.parametrize(
    ("us", "code", "said"),
    [(118.0, Exit.SLOWER, "so it is in a second process"), (100.0, Exit.NOISY, "and a second found SAME")],
)
def test_a_slower_case_counts_if_a_second_process_finds_it(slower: Folder, us: float, code: Exit, said: str):
    in_a_second_process(slower, record(us=us, seed=1))
    found, text = slower.gate()
    assert (found, said in text) == (code, True)


def test_a_case_is_found_in_whichever_second_process_has_it(slower: Folder):
    in_a_second_process(slower, record(us=118.0, seed=1))
    in_a_second_process(slower, record(OTHER), name="second_process.2")
    assert slower.gate()[0] == Exit.SLOWER


def test_a_second_process_that_no_run_of_this_tree_writes_is_refused(slower: Folder):
    in_a_second_process(slower, record(us=118.0, seed=1) | {"bytes_compared": 1})
    assert slower.gate()[0] == Exit.USAGE


def test_wrong_bytes_of_the_second_process_count(slower: Folder):
    in_a_second_process(slower, without_time(verdict="MISMATCH", reason="bytes differ"))
    assert slower.gate()[0] == Exit.BYTES_DIFFER


def test_without_a_gpu_no_process_can_confirm(slower: Folder, monkeypatch):
    monkeypatch.setattr("harness.commands.gate.gpu_count", lambda: 0)
    code, text = slower.gate()
    assert code == Exit.NOISY and "SLOWER in one process, and no second has timed it" in text


def test_a_second_process_that_was_stopped_is_refused_with_what_to_do(slower: Folder):
    """Else it would stop every later gate of this run, and nothing would say how to go on."""
    in_a_second_process(slower, record(us=118.0, seed=1))
    journal = slower.run_dir / "second_process" / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"selected": 1', '"selected": 54'))
    code, text = slower.gate()
    assert code == Exit.USAGE
    assert "second_process holds 1 of its 54 cases; delete it, and gate again, or finish it by the command" in text


def test_a_copy_of_the_run_is_no_second_process(slower: Folder):
    in_a_second_process(slower, record(us=120.0, seed=1), date=LATER)
    code, text = slower.gate()
    assert code == Exit.USAGE and "so it is a copy" in text


@pytest.mark.parametrize("subject", ["", "mine:make"])
@pytest.mark.parametrize("there", [False, True])
def test_with_a_gpu_those_cases_are_timed_that_no_second_process_has(
    slower: Folder, monkeypatch, there: bool, subject: str
):
    ran = []
    monkeypatch.setattr("harness.commands.gate.gpu_count", lambda: 1)
    asked = Asked.here(subject).to_header()
    slower.holds(record(us=120.0, seed=1), record(OTHER), header=changed(date=LATER), asked=asked)
    named = ["--subject", subject] if subject else []

    def run(*words):
        ran.append(list(words))
        in_a_second_process(slower, record(us=120.0, seed=1), name=Path(words[words.index("--run-dir") + 1]).name)

    monkeypatch.setattr("harness.gate.second_process._harness", run)
    if there:
        in_a_second_process(slower, record(OTHER))
    assert slower.gate("--subject", "other:make") == (Exit.USAGE, _refusal(slower, subject))
    assert slower.gate(*named)[0] == Exit.SLOWER
    (words,) = ran
    folder = slower.run_dir / ("second_process.2" if there else "second_process")
    assert words == ["bench", "swizzle", "--run-dir", str(folder), *named, "--case", CASE]
    assert slower.gate()[0] == Exit.SLOWER
    assert len(ran) == 1  # the second is there


def _refusal(slower: Folder, subject: str) -> str:
    if not subject:
        return f"error: {slower.run_dir} was made without --subject; leave it out\n"
    return (
        f"error: {slower.run_dir} was made with --subject, and a file does not say what to execute: name here what "
        "it was made with, so that a second process times cases again, or ask none with --once\n"
    )
