"""The console script: commands are files, errors are one sentence with an exit code."""

from __future__ import annotations

import ast
import importlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import python_path

from harness import cli
from harness.commands import _shared
from harness.errors import DeviceUnavailable, Exit, StorageError
from harness.files import PACKAGE, ROOT, SUITES
from harness.jit.cache import cache_folder
from harness.suite.suite import suite_of


@pytest.fixture
def harness(command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    return command


def started(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python -m harness WORDS` in a process of its own."""
    return subprocess.run([sys.executable, "-m", "harness", *words], capture_output=True, text=True, **options)


def test_a_pipe_gets_plain_ids_asked_or_not_of_a_recipe_or_its_file(harness):
    ids = [case.id for case in suite_of("swizzle").cases("smoke")]
    for words in (("swizzle",), ("swizzle", "--ids"), (SUITES / "swizzle.yaml",)):
        ran = harness("list", *words)
        assert (ran.returncode, ran.stdout.splitlines()) == (Exit.CLEAN, ids)


def test_filters_narrow_the_list(harness):
    wanted = ["--flag", "rht=true", "--flag", "sign_mask=0xD7E8", "--input", "normal", "-k", "sr"]
    cases = harness("list", "per_tensor", "--set", "full", *wanted, "--shape", "320x256", "--ids").stdout.splitlines()
    assert cases == [
        case.id
        for case in suite_of("per_tensor").cases("full")
        if case.flags.rht is True
        and case.flags.sign_mask == 0xD7E8
        and (case.rows, case.cols, case.input) == (320, 256, "normal")
        and "sr" in case.id
    ]
    assert cases


def test_a_shape_is_matched_however_it_is_spelled(harness):
    cases = harness("list", "per_tensor", "--set", "full", "--shape", "0320x256", "--ids").stdout.splitlines()
    assert cases and all("/320x256/" in case for case in cases)
    assert "--shape '320by256' is no shape; one reads ROWSxCOLS" in harness("list", "--shape", "320by256").stderr


def test_a_gemm_is_found_by_m_k_and_n(harness):
    shown = harness("list", "gemm_ordered", "--shape", "64x64x64", "--ids")
    assert {line.split("/")[2] for line in shown.stdout.split()} == {"64x64x64"}


def test_a_list_on_a_terminal_ends_with_counts_and_the_option_that_has_the_reasons(
    harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    *ids, last = harness("list", "per_tensor").stdout.splitlines()
    suite = suite_of("per_tensor")
    refused = suite.excluded("smoke")
    assert ids == [case.id for case in suite.cases("smoke")]
    counts = f"{len(ids):,} cases of set smoke; {refused.total():,} combinations are refused"
    assert last == f"{counts}, for {len(refused)} reasons: add --refused"
    shown = harness("list", "per_tensor", "--refused").stdout.splitlines()
    assert shown[1:] == [f"  {count:,}  {reason}" for reason, count in refused.most_common()]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("lst", "there is no command 'lst'; did you mean 'list'?\n"),
        ("list --sett full", "error: No such option '--sett'"),
        ("list casts --input midpoint", "cases of set smoke has --input midpoint; the nearest are midp"),
        ("list casts --shape 32x65", "cases of set smoke has --shape 32x65; the nearest are 32x64"),
        ("list -k roundin=sr", "has -k roundin=sr in its id; the nearest words of ids are rounding=sr"),
        ("list casts --input midpoints -k 256x256", "meets all of these options, though each of them has some"),
        ("list per_tenser", "there is no recipe 'per_tenser'; did you mean 'per_tensor'?"),
        ("list per_tensor --set smok", "there is no set 'smok'; did you mean 'smoke'?"),
        ("list --set smok", "no suite has a set 'smok'; did you mean 'smoke'?"),
        ("list per_tensor --flag rth=true", "per_tensor has no flag 'rth'; did you mean 'rht'?"),
        ("list per_tensor --flag rounding=ru", "flag rounding has no value 'ru'; choose rne or sr"),
        ("list --flag rht", "--flag rht is not flag=value, as in --flag rounding=sr"),
        ("list nowhere.yaml", "there is no suite"),
        ("trace per_tensor/default/16x17/normal/eager", "cols = 17 is not a positive multiple of 16"),
        ("trace per_tensor/default/16x16/normal/eager --at 3", "--at '3' is not an element"),
        ("trace per_tensor/default/16x16/normal/eager --lines 3", "--lines bounds what --thread shows"),
    ],
)
def test_a_mistake_is_one_sentence(harness, words: str, sentence: str):
    ran = harness(*words.split())
    assert (ran.returncode, ran.stdout) == (Exit.USAGE, "")
    assert ran.stderr.startswith("error: ") and sentence in ran.stderr and ran.stderr.count("\n") == 1


def test_trace_runs_the_kernel_beside_the_oracles(harness):
    ran = harness("trace", "swizzle/direction=columnwise/48x80/normal/eager", "--at", "17,4", "--device", "emulator")
    assert (ran.returncode, ran.stderr) == (Exit.CLEAN, "")
    heading = next(line for line in ran.stdout.splitlines() if "numpy" in line)
    assert "torch" in heading
    assert "kernel" in heading


def test_doctor_tells_what_can_run(harness):
    ran = harness("doctor")
    assert ran.returncode == Exit.CLEAN
    assert "runs sm_90a, sm_100a; modes eager" in ran.stdout


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ("device 'cuda' needs CuPy and torch: No module named 'cupy'", 'pip install -c constraints.txt ".[gpu]"'),
        ("torch 2.13.0+cpu is a CPU build; the torch oracle must see the GPU", "install a build of torch with CUDA"),
        ("device 'cuda' was asked for, and CUDA sees no GPU: no driver", "a machine with an NVIDIA GPU"),
    ],
)
def test_doctor_says_what_keeps_a_device_and_what_fixes_that(
    harness, monkeypatch: pytest.MonkeyPatch, reason: str, fix: str
):
    def refuse(name: str = "auto", index: int = 0):
        raise DeviceUnavailable(reason)

    monkeypatch.setattr("harness.commands.doctor.select", refuse)
    ran = harness("doctor")
    assert ran.returncode == Exit.NO_DEVICE and " ".join(reason.split()) in " ".join(_rows(ran.stdout))
    assert fix in _row(ran, "device cuda")


def test_doctor_takes_a_folder_that_is_not_there_yet(harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    for folder, fix in ((tmp_path / "new" / "results", ""), (tmp_path / "file" / "results", "--run-dir")):
        monkeypatch.setattr("harness.commands.doctor.RESULTS", folder)
        row = _row(harness("doctor"), "results of runs")
        assert ("cannot be written" in row, fix in row) == (bool(fix), True)


def test_doctor_says_what_fixes_a_cache_that_cannot_be_written(
    harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "cache"))
    row = _row(harness("doctor"), "compiled kernels")
    assert "cannot be written: Not a directory set HARNESS_CACHE to a folder that can be written" in row
    with pytest.raises(
        StorageError, match="cannot be written: Not a directory; set HARNESS_CACHE to a folder of yours"
    ):
        cache_folder()


def test_a_cache_of_another_user_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    user = os.geteuid()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(
        StorageError, match="another user owns it, and could change what is kept there; set HARNESS_CACHE to a folder"
    ):
        cache_folder()


def test_an_interrupt_while_modules_are_loaded_prints_nothing():
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupts:\n"
        "    def find_spec(name, *rest):\n"
        "        if name == 'harness.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts)\n"
        "import harness.__main__"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_closed_output_is_one_that_nobody_reads(closed):
    line = f"{shlex.quote(sys.executable)} -m harness list casts {closed}; echo $?"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.slow
def test_a_closed_output_is_closed_for_the_processes_below_too():
    line = f"{shlex.quote(sys.executable)} -m harness verify casts -k 16x528 >&-; echo $? >&2"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == "0\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", ["list", "--help", "list --help", "--version", "recipes", "doctor"])
def test_a_reader_that_has_read_enough_ends_the_command_by_sigpipe(words: str):
    """It must not be 0, which would claim a green run, nor click's and rich's 1, by which a byte differs."""
    command = [sys.executable, "-m", "harness", *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == -signal.SIGPIPE


@pytest.mark.parametrize("words", ["list nope", "list casts", "list --nope", ""])
def test_a_full_disk_behind_both_outputs_leaves_the_exit_code(words):
    line = f"{shlex.quote(sys.executable)} -m harness {words} >/dev/full 2>/dev/full; echo $?"
    assert subprocess.run(["sh", "-c", line], capture_output=True, text=True).stdout == f"{Exit.USAGE}\n"


def test_a_terminal_that_lacks_a_character_gets_its_number():
    """A traceback would end with 1, by which a byte differs."""
    done = started("recipes", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "shape_representation" in done.stdout, "a flag that is cut off cannot be typed"


def test_without_a_command_the_help_is_shown_as_it_is(harness):
    ran = harness()
    assert (ran.returncode, ran.stdout) == (Exit.USAGE, "")
    assert ran.stderr.startswith("Usage: harness [OPTIONS] COMMAND [ARGS]...\n") and ran.stderr.count("\n") > 40


def test_doctor_says_what_fixes_a_missing_package(harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.commands.doctor.PACKAGES", {"no-such-package": "nothing at all"})
    row = _row(harness("doctor"), "no-such-package")
    assert "not installed; for nothing at all" in row
    assert "python -m pip install -c constraints.txt no-such-package" in row


def _row(ran: subprocess.CompletedProcess[str], begins: str) -> str:
    (row,) = [row for row in _rows(ran.stdout) if row.startswith(begins)]
    return row


def _rows(table: str) -> list[str]:
    """The rows of a table, each on one line with single spaces, however it was folded."""
    rows: list[list[str]] = []
    for line in table.splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            if cells[0]:
                rows.append(cells)
            else:
                rows[-1] = [f"{cell} {more}".strip() for cell, more in zip(rows[-1], cells, strict=True)]
    return [" ".join(row) for row in rows]


def test_an_error_decides_the_exit_code(harness, monkeypatch: pytest.MonkeyPatch):
    def refuse(paths=None):
        raise DeviceUnavailable("CUDA sees no GPU")

    monkeypatch.setattr("harness.commands.list.load_suites", refuse)
    ran = harness("list")
    assert (ran.returncode, ran.stderr) == (Exit.NO_DEVICE, "error: CUDA sees no GPU\n")


def test_debug_shows_where_an_error_was_raised(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARNESS_DEBUG", "1")
    with pytest.raises(Exception, match="there is no recipe"):
        cli.main(("list", "per_tenser"))


def test_schema_is_written_where_asked(harness, tmp_path: Path):
    harness("schema", str(tmp_path / "schema.json"))
    assert (tmp_path / "schema.json").read_text() == (SUITES / "schema.json").read_text()


def test_the_module_runs_without_asserts():
    """`python -O` removes asserts, so checks must not be asserts."""
    words = [sys.executable, "-O", "-m", "harness", "list", "per_tenser"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == Exit.USAGE
    assert ran.stderr == "error: there is no recipe 'per_tenser'; did you mean 'per_tensor'?\n"


@pytest.mark.parametrize(
    "words",
    [("museum", "--sanitizer"), ("museum", "-k", ""), ("museum", "--sanitizer", "/a b"), ("gate", "swizzle", "--once")],
)
def test_a_command_says_itself_as_it_may_be_typed_again(words: tuple[str, ...]):
    house = "harness" if words[0] == "gate" else "evidence"
    command = importlib.import_module(f"{house}.commands.{words[0]}").command
    with command.make_context(words[0], list(words[1:])):
        typed, said = _shared.made_by().split(f" {words[0]}", 1)
    assert typed == ("harness" if house == "harness" else "python -m evidence")
    said = [house, words[0], *shlex.split(said)]
    with command.make_context(words[0], said[2:]) as again, command.make_context(words[0], list(words[1:])) as first:
        assert again.params == first.params


_VERSIONS = Path.home() / ".pyenv" / "versions"
OLD = [str(path / "bin" / "python") for part in ("3.[6-9].*", "3.10.*") for path in sorted(_VERSIONS.glob(part))]


@pytest.mark.parametrize("python", [sys.executable, *OLD])
def test_a_python_that_is_too_old_is_told_so(python: str):
    """Before anything else, which such a Python may not even be able to read."""
    claimed = "" if python in OLD else "sys.version_info = (3, 10, 1); "
    program = f"import runpy, sys; {claimed}runpy.run_module('harness', run_name='__main__')"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr.count("\n")) == (Exit.USAGE, 1), done.stderr
    assert done.stderr.startswith("error: the harness needs Python 3.11 or newer, and ")


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_an_old_python_can_read_what_tells_it_so(name: str):
    """It evaluates annotations, among which `list[str]` is an error of Python 3.8."""
    tree = ast.parse((PACKAGE / name).read_text(), feature_version=(3, 7))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    annotations = [each for node in functions for each in (node.returns, *(arg.annotation for arg in node.args.args))]
    assert not any(isinstance(each, ast.Subscript) for each in annotations)


# A run is in test_supervisor.py.
@pytest.mark.parametrize("words", [("list", "swizzle")])
def test_the_module_is_not_harmed_by_a_file_with_the_name_of_another(tmp_path: Path, words: tuple[str, ...]):
    for name in ("random", "click", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    done = started(*words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": python_path(ROOT)})
    assert done.returncode == Exit.CLEAN, done.stdout + done.stderr


@pytest.mark.parametrize(("cause", "ends"), [(KeyboardInterrupt(), SystemExit), (ValueError(), RuntimeError)])
def test_an_interrupt_that_python_wraps_is_one(monkeypatch: pytest.MonkeyPatch, cause: BaseException, ends: type):
    """Python 3.11 raises a RuntimeError from what is raised in `__set_name__`."""

    def list_commands(self, context):
        raise RuntimeError("Error calling __set_name__") from cause

    monkeypatch.setattr(cli.Commands, "list_commands", list_commands)
    with pytest.raises(ends) as caught:
        cli.main(["list"])
    assert getattr(caught.value, "code", Exit.INTERRUPTED) == Exit.INTERRUPTED


def test_a_python_that_lacks_a_package_is_told(tmp_path: Path):
    """This happens with `make verify VENV=` if python3 is not the environment's."""
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(name='click')\n")
    done = started("list", env={**os.environ, "PYTHONPATH": python_path(tmp_path, ROOT)})
    assert (done.returncode, done.stderr.count("\n")) == (Exit.USAGE, 1)
    assert " lacks click; install the harness into it, or use one that has it" in done.stderr
