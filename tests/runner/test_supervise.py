"""How a supervised run ends, by the exit code of the process below and by what that left on the disk.

The process below is a fake, which ends in the codes and leaves the files that a test tells it.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs_on_disk import IDS, about, excluded, mismatch, passed, write_run

from harness.errors import Exit, UsageError
from harness.files import ROOT
from harness.ground.command_lines import Asked
from harness.ground.ending import ENDING
from harness.records import seal
from harness.runner import supervisor
from harness.runner.below_supervisor import NO_DEVICE_BELOW
from harness.runner.guarding import LOOK
from harness.runner.request import Request
from harness.runner.supervisor import GO_ON, supervise

WORDS = [str(ROOT / "suites" / "swizzle.yaml"), *(word for name in IDS for word in ("--case", name))]
GREEN = f"{len(IDS)} selected, {len(IDS)} compared, 0 excluded"
NOTHING = f"{len(IDS)} selected, 0 compared, 0 excluded, {len(IDS)} without a result"
SIGINT, SIGKILL, SIGTERM = -2, -9, -15


class Below:
    """Stands for the processes below. codes: of each, or what it does before it ends with its code

    began: the words of each, and the folder that the supervisor saw the one before leave; ended: how often strays were
    """

    def __init__(self, folder: Path):
        self.run_dir = folder / "run"
        self.began: list[tuple[list[str], Path | None]] = []
        self.typed: list[str] = []
        self.codes: list[int | Callable[[], int]] = []
        self.strays = 0

    def start(self, words: Sequence[str], folder: Path, typed: Sequence[str], guard: Any, goes_on: Path | None = None):
        self.began.append((list(words), goes_on))
        self.typed = list(typed)
        return self

    def __enter__(self) -> Below:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left."""

    def wait(self) -> int:
        code = self.codes.pop(0)
        return code() if callable(code) else code

    def guard(self, subject: bool) -> Any:
        return SimpleNamespace(end_strays=self._end_strays, subject=subject)

    def _end_strays(self) -> None:
        self.strays += 1

    def leaves(self, code: int, *records: dict, **changes: Any) -> Callable[[], int]:
        """A process that writes a journal with these records, and ends with a code."""

        def process() -> int:
            first = about(IDS, IDS, sealed=SEALED, asked=Asked.here().to_header()) | changes
            write_run(self.run_dir, first, *records)
            return code

        return process

    def adds(self, code: int, *records: dict) -> Callable[[], int]:
        def process() -> int:
            with (self.run_dir / "journal.jsonl").open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)
            return code

        return process


CHILD = supervisor._Child
SEALED = {"package numpy": "2.4", "suites/swizzle.yaml": "0123"}
PASSED = [passed(name) for name in IDS]


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Below:
    found = Below(tmp_path)
    monkeypatch.setattr(supervisor, "_Child", found.start)
    monkeypatch.setattr(supervisor, "Guard", found.guard)
    monkeypatch.setattr(supervisor, "require_clock", lambda device: None)
    monkeypatch.setattr(seal, "seal", lambda *_: dict(SEALED))
    monkeypatch.setattr(seal, "links", list)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return found


@pytest.fixture
def ended(below: Below, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The exit code of a run, its output, and what it printed beside that."""

    def run(*codes: int | Callable[[], int], words: Sequence[str] = WORDS, **more: Any) -> tuple[Exit, str, str]:
        below.codes = list(codes)
        more = {"typed": ["harness", "verify"]} | more
        code = supervise([*words, "--run-dir", str(below.run_dir)], ROOT, ROOT, tmp_path / "runs", **more)
        printed = capsys.readouterr()
        return code, printed.out.strip(), printed.err.strip()

    return run


def test_a_run_whose_cases_all_passed_is_green(below: Below, ended):
    assert ended(below.leaves(0, *PASSED)) == (Exit.CLEAN, GREEN, "")
    assert below.began == [([*WORDS, "--run-dir", str(below.run_dir)], None)] and below.strays == 1
    assert below.typed == ["harness", "verify"]


def test_a_plain_call_of_pytest_is_told_of_the_gate(below: Below, ended):
    code, out, err = ended(below.leaves(0, *PASSED), typed=())
    assert (code, out) == (Exit.CLEAN, GREEN) and " verify swizzle --case " in err and "` is one" in err
    assert below.typed[1:3] == ["-m", "pytest"] and below.typed[3:] == [*WORDS, "--run-dir", str(below.run_dir)]


@pytest.mark.parametrize(
    ("records", "ended_with", "code", "line"),
    [
        ([*PASSED[:3], mismatch(IDS[3])], 1, Exit.BYTES_DIFFER, f"{GREEN}, 1 wrong; exit 1 (bytes differ)"),
        ([*PASSED[:3], mismatch(IDS[3])], 0, Exit.BYTES_DIFFER, f"{GREEN}, 1 wrong; exit 1 (bytes differ)"),
        (PASSED, 1, Exit.BYTES_DIFFER, f"{GREEN}; exit 1 (every case is right, but the run failed, as it says above)"),
        (PASSED, 3, Exit.NOISY, f"{GREEN}; exit 3 (noisy)"),
        (PASSED, NO_DEVICE_BELOW, Exit.NO_DEVICE, f"{GREEN}; exit 4 (too few cases were compared)"),
        (PASSED, 64, Exit.USAGE, f"{GREEN}; exit 64 (usage)"),
        (PASSED, 77, Exit.BYTES_DIFFER, f"{GREEN}; exit 1 (every case is right, but the run failed, as it says above)"),
        (PASSED, 130, Exit.INTERRUPTED, f"{GREEN}; exit 130 (interrupted)"),
        (PASSED, SIGINT, Exit.INTERRUPTED, f"{GREEN}; exit 130 (interrupted)"),
        (PASSED, SIGTERM, Exit.INTERRUPTED, f"{GREEN}; exit 130 (interrupted)"),
        (PASSED, SIGKILL, Exit.BYTES_DIFFER,
         f"{GREEN}; exit 1 (every case is right, but the run failed, as it says above)"),
        ([*PASSED[:3], excluded(IDS[3])], 0, Exit.CLEAN, "4 selected, 3 compared, 1 excluded"),
        (PASSED[:3], 0, Exit.BYTES_DIFFER,
         "4 selected, 3 compared, 0 excluded, 1 without a result; exit 1 (not every case was compared)"),
        (PASSED[:3], 130, Exit.INTERRUPTED,
         "4 selected, 3 compared, 0 excluded, 1 without a result; exit 130 (interrupted)"),
    ],
)  # fmt: skip
def test_codes_and_records_end_a_run_together(below: Below, ended, records, ended_with: int, code: Exit, line: str):
    found, out, err = ended(below.leaves(ended_with, *records))
    assert (found, out) == (code, line)
    signals = {SIGINT: "SIGINT", SIGKILL: "SIGKILL", SIGTERM: "SIGTERM"}
    if ended_with in signals:
        assert err == f"error: {signals[ended_with]} ended the run"
    elif len(records) == len(IDS):
        assert err == ""
    else:
        assert (f"1 of 4 selected cases have no result: {IDS[3]}" in err) is (ended_with == 0)


def test_an_unreadable_command_line_is_pytests_to_tell(below: Below, ended):
    assert ended(4) == (Exit.USAGE, "", "error: pytest cannot read the command line, as it says above")
    assert not below.run_dir.exists()


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_goes_on_in_a_new_process_while_that_makes_progress(below: Below, ended, resume: bool):
    if resume:
        below.leaves(0)()
    first = below.adds(GO_ON, PASSED[0]) if resume else below.leaves(GO_ON, PASSED[0])
    words = [*WORDS, *["--resume"] * resume]
    code, out, _ = ended(first, below.adds(GO_ON, *PASSED[1:3]), below.adds(0, PASSED[3]), words=words)
    assert (code, out, below.strays) == (Exit.CLEAN, GREEN, 3)
    assert [goes_on for _, goes_on in below.began] == [None, below.run_dir, below.run_dir]
    assert [each.count("--resume") for each, _ in below.began] == [int(resume), 1, 1]


def test_without_progress_it_does_not_go_on(below: Below, ended):
    code, out, _ = ended(below.leaves(GO_ON, PASSED[0]), GO_ON, 0)
    assert code is Exit.BYTES_DIFFER and len(below.began) == 2 and "3 without a result" in out


@pytest.mark.parametrize(("code", "end"), [(0, Exit.USAGE), (1, Exit.BYTES_DIFFER), (64, Exit.USAGE)])
def test_without_a_journal_nothing_was_compared(below: Below, ended, code: int, end: Exit):
    found, out, err = ended(code)
    assert found is end and out.startswith(NOTHING)
    assert ("nothing was compared: the run left no journal.jsonl" in err) is (code != 64)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cases": "0" * 64}, "the run selected other cases than the command line; neither PYTEST_ADDOPTS"),
        ({"timed": True}, "is not what the command line asked for: where the cases ran, --bench was 'on'"),
        ({"sealed": {**SEALED, "suites/swizzle.yaml": "4567"}},
         "what the verdicts depend on changed during the run: suites/swizzle.yaml; start anew"),
    ],
)  # fmt: skip
def test_records_of_another_run_do_not_count(below: Below, ended, changes: dict, says: str):
    code, out, err = ended(below.leaves(0, *PASSED[:3], **changes))
    assert code is Exit.BYTES_DIFFER and out.startswith(NOTHING)
    assert err.startswith("error: ") and says in err


def test_what_changes_while_the_run_goes_on_is_seen_before_and_after_it(below: Below, ended, monkeypatch):
    def spoiled(code: int) -> Callable[[], int]:
        def process() -> int:
            monkeypatch.setattr(seal, "seal", lambda *_: SEALED | {"package numpy": "2.5"})
            return below.leaves(code, *PASSED)()

        return process

    code, _, err = ended(spoiled(0))
    assert code is Exit.BYTES_DIFFER and "changed during the run: package numpy (2.4 then, 2.5 now)" in err


def test_words_that_come_to_name_other_suites_are_told(below: Below, ended, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Request, "leads_elsewhere", lambda self: True)
    code, _, err = ended(below.leaves(0, *PASSED))
    assert code is Exit.BYTES_DIFFER
    assert err == f"error: {WORDS[0]} came to name other suites during the run; start anew"


@pytest.mark.parametrize(("code", "end"), [(0, Exit.USAGE), (64, Exit.USAGE), (1, Exit.BYTES_DIFFER), (4, Exit.USAGE)])
def test_a_suite_that_cannot_be_read_is_left_to_the_process_below(
    below: Below, ended, monkeypatch, code: int, end: Exit
):
    def selected(self: Request) -> Request:
        raise UsageError("the suite is broken")

    monkeypatch.setattr(Request, "selected", selected)
    found, out, _ = ended(code)
    assert (found, out, len(below.began)) == (end, "", 1)


def test_a_damaged_journal_is_one_sentence(below: Below, ended):
    def process() -> int:
        below.run_dir.mkdir()
        (below.run_dir / "journal.jsonl").write_text("{}\nnonsense\n")
        return 0

    code, out, err = ended(process)
    assert code is Exit.BYTES_DIFFER and out.startswith(NOTHING) and err.count("error: ") == 1


# Refused before a process is started


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([*WORDS[:1], "--case", "swizzle/default/16x16/nromal/eager"], "nromal"),
        ([*WORDS[:1], "--case", "swizle/default/16x16/normal/eager"], "swizle"),
        ([*WORDS, "@words.txt"], "'@words.txt' has pytest read words of a file; only the command line says what runs"),
        ([*WORDS[:1], "-k", "direction=sideways"], "direction"),
        ([*WORDS[:1], "--flag", "direction=sideways"], "sideways"),
        ([*WORDS[:1], "--set", "nope"], "there is no set 'nope'"),
        ([*WORDS, "--shard"], "the command line cannot be read"),
    ],
)
def test_mistakes_about_cases_are_told_before_a_process_begins(below: Below, ended, words: list[str], says: str):
    code, out, err = ended(words=words)
    assert (code, out, below.began) == (Exit.USAGE, "", [])
    assert err.startswith("error: ") and says in err and err.count("\n") == 0


def test_a_link_among_sources_is_refused(below: Below, ended, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seal, "links", lambda: ["suites/a.yaml is a link", "suites/b.yaml is one"])
    assert ended() == (Exit.USAGE, "", "error: suites/a.yaml is a link") and not below.began


@pytest.mark.parametrize(("more", "asked"), [([], []), (["--bench"], ["cuda"]), (["--bench", "--cluster", "a:1"], [])])
def test_times_need_a_clock_unless_a_cluster_is_to_refuse_them(below: Below, ended, monkeypatch, more, asked):
    clocks: list[str] = []
    monkeypatch.setattr(supervisor, "require_clock", clocks.append)
    ended(0, words=[*WORDS, "--device", "cuda", *more])
    assert clocks == asked and len(below.began) == 1


def test_an_unusable_clock_ends_the_run(below: Below, ended, monkeypatch: pytest.MonkeyPatch):
    def require(device: str) -> None:
        raise UsageError("no clock")

    monkeypatch.setattr(supervisor, "require_clock", require)
    assert ended(words=[*WORDS, "--bench"]) == (Exit.USAGE, "", "error: no clock") and not below.began


def test_a_folder_with_a_run_is_gone_on_with_or_refused(below: Below, ended):
    below.leaves(0, *PASSED)()
    code, _, err = ended()
    assert code is Exit.USAGE and "add --resume to go on with it" in err and not below.began
    code, _, err = ended(words=[*WORDS, "--resume", "--bench"])
    assert code is Exit.USAGE and "cannot be resumed: where the cases ran, --bench was not given" in err
    assert "; give what it was begun with, or start anew" in err and not below.began
    assert ended(0, words=[*WORDS, "--resume"]) == (Exit.CLEAN, GREEN, "")


def test_without_a_folder_a_run_gets_a_new_one_or_the_newest(below: Below, tmp_path: Path, monkeypatch, capsys):
    runs = tmp_path / "runs"
    below.codes = [0, 0]
    supervise(WORDS, ROOT, ROOT, runs, ["harness"])
    (words, _), new = below.began[0], capsys.readouterr()
    assert words[:-1] == [*WORDS, "--run-dir"] and Path(words[-1]).parent == runs and not Path(words[-1]).exists()
    assert "the run left no journal.jsonl" in new.err
    below.run_dir = runs / "20260101T000000Z"
    below.leaves(0, *PASSED)()
    assert supervise([*WORDS, "--resume"], ROOT, ROOT, runs, ["harness"]) is Exit.CLEAN
    assert below.began[1][0][-2:] == ["--run-dir", str(below.run_dir)]


def test_variables_of_pytest_are_said_not_to_be_read(below: Below, ended, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    code, out, err = ended(below.leaves(0, *PASSED))
    assert (code, out) == (Exit.CLEAN, GREEN)
    assert err == "PYTEST_ADDOPTS is not read: only the command line says what runs"


# The signals that the supervisor hears while it waits

TERMINAL = 0x80  # si_code of Ctrl-C in a terminal


class Process:
    """Ends with a code after so many looks at it. sent: signals"""

    def __init__(self, looks: int, code: int):
        self.looks, self.code, self.sent = looks, code, list[int]()

    def poll(self) -> int | None:
        self.looks -= 1
        return self.code if self.looks < 0 else None

    def send_signal(self, number: int) -> None:
        self.sent.append(number)

    def kill(self) -> None:
        self.sent.append(SIGKILL)


def waited(
    monkeypatch: pytest.MonkeyPatch, *heard: tuple[int, int] | None, code: int = 0, late: int = 0, guard: Any = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[int, list[int]]:  # fmt: skip
    """The code that `wait` gives, and the signals that it sends. heard: number and code of each; late: how many more"""
    left, after = list(heard), [SIGTERM] * late

    def take(signals: Sequence[int], seconds: float = -1) -> Any:
        if not seconds:
            return after.pop() if after else None
        assert (seconds == LOOK) is bool(guard.subject) and signal.SIGCHLD in signals and set(ENDING) < set(signals)
        found = left.pop(0)
        return found and SimpleNamespace(si_signo=found[0], si_code=found[1])

    guard = guard or SimpleNamespace(subject="", look=lambda: True)
    monkeypatch.setattr(signal, "sigtimedwait", take)
    monkeypatch.setattr(signal, "sigwaitinfo", take)
    monkeypatch.setattr(time, "monotonic", clock)
    child = object.__new__(CHILD)
    child.process, child.guard = Process(len(heard), code), guard
    return child.wait(), child.process.sent


CTRL_C, KILL, HANGUP, ENDED = (signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGCHLD, 0)
TYPED = signal.SIGINT, TERMINAL


@pytest.mark.parametrize(
    ("heard", "sent"),
    [
        ([ENDED], []),
        ([CTRL_C, ENDED], [signal.SIGINT]),
        ([TYPED, ENDED], []),  # it reached the child, too
        ([CTRL_C, CTRL_C, ENDED], [signal.SIGINT, signal.SIGINT]),
        ([KILL, ENDED], [signal.SIGTERM]),
        ([(signal.SIGTERM, TERMINAL), ENDED], [signal.SIGTERM]),
        ([HANGUP, KILL, ENDED], [signal.SIGHUP, signal.SIGKILL]),  # who ends it twice does not wait
        ([KILL, CTRL_C, KILL, ENDED], [signal.SIGTERM, signal.SIGKILL, signal.SIGTERM]),
        ([None, (0, 0), (signal.SIGWINCH, 0), ENDED], []),
    ],
)
def test_signals_that_end_a_process_are_forwarded(monkeypatch: pytest.MonkeyPatch, heard: list, sent: list[int]):
    ending = any(each and each[0] in ENDING for each in heard)
    for code in (0, 64, 74, 4):  # it ended in its own way
        assert waited(monkeypatch, *heard, code=code) == (code, sent)
    for code in (1, 2, 3):
        assert waited(monkeypatch, *heard, code=code) == (Exit.INTERRUPTED if ending else code, sent)
    assert waited(monkeypatch, *heard, code=SIGKILL) == (SIGKILL, sent)


@pytest.mark.parametrize("late", [1, 3])
def test_a_signal_that_comes_when_the_child_has_ended_counts(monkeypatch: pytest.MonkeyPatch, late: int):
    assert waited(monkeypatch, ENDED, code=1, late=late) == (Exit.INTERRUPTED, [])


def test_a_guard_looks_at_once_and_then_at_intervals_whatever_is_heard(monkeypatch: pytest.MonkeyPatch):
    times = [0.0, 0.0, 0.0, LOOK / 2, LOOK, LOOK, LOOK + 0.1, 2 * LOOK - 0.1]
    looked: list[float] = []
    ticking, now = iter([*times, *[2 * LOOK] * 9]), [0.0]

    def clock() -> float:
        now[0] = next(ticking)
        return now[0]

    def look() -> bool:
        looked.append(now[0])
        return len(looked) < 3

    guard = SimpleNamespace(subject="m:f", look=look)
    code, sent = waited(monkeypatch, *[ENDED] * 6, guard=guard, clock=clock)
    assert (looked, sent, code) == ([0.0, LOOK, 2 * LOOK], [SIGKILL], 0)
