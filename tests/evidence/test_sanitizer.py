"""compute-sanitizer's part of the harness, with a stand-in for the tool and the emulator for the GPU."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evidence.__main__ import main
from evidence.sanitizer import compute_sanitizer, planted, plugin, run
from evidence.sanitizer.compute_sanitizer import TOOLS, Log, read_log, wrapped
from evidence.sanitizer.page import page
from evidence.sanitizer.run import ToolResult, exit_code, run_planted
from harness.device import memory
from harness.errors import DeviceUnavailable, Exit
from harness.jit.compile import ARCHES, compile_kernel, ptx_of
from harness.suite.launch_plan import Step, plan
from harness.suite.suite import find_case, load_suites
from ptx_emulator.errors import Fault
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

# Takes pairs of options, then the command to run. It answers for a GPU by giving the emulator's run another header.
STAND_IN = """#!{python}
import json, pathlib, subprocess, sys
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.0"))
options = {{}}
while words[0].startswith("--"):
    options.setdefault(words[0], []).append(words[1])
    words = words[2:]
tool, log = options["--tool"][0], pathlib.Path(options["--log-file"][0])
errors = {errors}
if "evidence.sanitizer.planted" in words:
    errors = int(tool != "{blind}")
else:
    assert "kns=_Z7swizzle" in options["--kernel-name"]
    subprocess.run(["emulator" if word == "cuda" else word for word in words])
    journal = pathlib.Path(words[words.index("--run-dir") + 1], "journal.jsonl")
    first, rest = journal.read_text().split("\\n", 1)
    header = json.loads(first) | {{"device": {{"device": "cuda", "gpu": "NVIDIA H200", "driver": "1", "nvrtc": "2"}}}}
    lines = [header]
    for record in map(json.loads, rest.splitlines()):
        ran = [name for name in record["instantiations"] if name.startswith("sm_90a ")]
        kept = {{target: found for target, found in record["digests"].items() if target == "sm_90a"}}
        lines.append(record | {{"device": "cuda", "targets": ["sm_90a"], "instantiations": ran, "digests": kept}})
    journal.write_text("".join(json.dumps(line) + "\\n" for line in lines))
found = "========= Invalid __global__ write\\n=========     at k+0x1 in a.cu:8\\n" * errors
if tool == "racecheck":
    found += f"========= RACECHECK SUMMARY: {{errors}} hazards displayed ({{errors}} errors, 0 warnings)\\n"
else:
    found += f"========= ERROR SUMMARY: {{errors}} error{{'s' * (errors != 1)}}\\n"
log.write_text("========= COMPUTE-SANITIZER\\n" + {said})
"""


@pytest.fixture
def stand_in(tmp_path: Path):
    """Writes a stand-in: with so many errors in each process, for a tool that sees none, saying other than it found."""

    def write(errors: int = 0, blind: str = "", said: str = "found") -> str:
        program = tmp_path / "compute-sanitizer"
        program.write_text(STAND_IN.format(python=sys.executable, errors=errors, blind=blind, said=said))
        program.chmod(0o755)
        return str(program)

    return write


@pytest.fixture
def sanitize(tmp_path: Path, stand_in):
    """Runs the command with a stand-in; its exit code and the page, empty if there is none."""

    def run(*words: str, recipe: str = "swizzle", **answers) -> tuple[Exit, str]:
        with pytest.raises(SystemExit) as done:
            main(["sanitize", recipe, "--sanitizer", stand_in(**answers), "--out", str(tmp_path), *words])
        written = tmp_path / "nvidia-h200" / "sanitizer.md"
        return Exit(done.value.code), written.read_text() if written.exists() else ""

    return run


def row(text: str, tool: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {tool} "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_tool_over_a_recipe_is_clean(sanitize) -> None:
    code, text = sanitize("--tool", "memcheck", "-k", "16x16", "--jobs", "2")
    assert code is Exit.CLEAN
    assert row(text, "memcheck")[1:7] == ["2 of 2", "0", "0", "0", "yes", "0"]
    assert "Not run: initcheck, synccheck, racecheck." in text
    assert "one NVIDIA H200 (driver 1, NVRTC 2), with compute-sanitizer Version 2025.3.0" in text


@pytest.mark.slow
def test_errors_are_red_and_say_where(sanitize) -> None:
    code, text = sanitize("--tool", "racecheck", "-k", "16x16", "--jobs", "1", errors=3)
    assert code is Exit.BYTES_DIFFER
    assert row(text, "racecheck")[3] == "3"
    assert "    3 x Invalid __global__ write at k+0x1 in a.cu:8" in text


# Two launches of a case that the tool could not follow, which its summary counts as errors; then a full table.
LOST = (
    "========= Internal Sanitizer Error: The Sanitizer encountered an error while launching k and didn't track the "
    "launch. (Unable to allocate enough memory)\n"
) * 2 + "========= ERROR SUMMARY: 2 errors\n"
FULL = "========= Warning: overflow of tracked cuda::barrier structures\n========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.slow
@pytest.mark.parametrize("said", [LOST, FULL])
def test_cases_of_a_process_in_which_the_tool_broke_down_run_again(sanitize, said: str) -> None:
    once = f"(found if {{'again', 'planted'}} & {{*log.parts}} else {said!r})"
    code, text = sanitize("--tool", "synccheck", "-k", "16x16", "--jobs", "1", said=once)
    assert code is Exit.CLEAN
    assert row(text, "synccheck")[1:8] == ["2 of 2", "0", "0", "0", "yes", "0", "2"]
    assert "synccheck ran 2 cases a second time, in half as many processes, because it broke down" in text
    assert "## synccheck" not in text


def test_a_process_that_never_had_its_cases_is_not_clean(tmp_path) -> None:
    """The tool finds no error in a pytest that could not begin."""
    done = ToolResult("memcheck", planted=True, cases=3, done=3)
    run._add(done, run.Process(tmp_path, Log(0, Counter()), None, []))
    assert exit_code([done]) is Exit.NOISY


@pytest.mark.slow
def test_what_the_second_run_finds_counts(sanitize) -> None:
    once = f"(found if {{'again', 'planted'}} & {{*log.parts}} else {FULL!r})"
    code, text = sanitize("--tool", "synccheck", "-k", "16x16", "--jobs", "2", said=once, errors=1)
    assert code is Exit.BYTES_DIFFER
    assert row(text, "synccheck")[3] == "1"


@pytest.mark.slow
def test_a_tool_that_breaks_down_twice_is_not_clean_and_no_wrong_kernel(sanitize) -> None:
    always = f"(found if 'planted' in log.parts else {LOST!r})"
    code, text = sanitize("--tool", "synccheck", "-k", "16x16", "--jobs", "1", said=always)
    assert code is Exit.NOISY
    assert row(text, "synccheck")[1:4] == ["2 of 2", "0", "0"]
    assert "synccheck broke down again, in 1 process," in text


def test_an_error_beside_a_lost_launch_stays_an_error(tmp_path) -> None:
    log = tmp_path / "log"
    lost = "========= Internal Sanitizer Error: k was not tracked\n"
    wrong = "========= Barrier error detected. Divergent thread(s) in warp\n=========     at k+0x1 in a.cu:8\n"
    for said, errors in ((lost + wrong, 2), (lost + wrong, 1), (wrong, 1), (lost, 1)):
        log.write_text(f"{said}========= ERROR SUMMARY: {errors} errors\n")
        assert read_log(log).errors == (wrong in said), said


def test_a_tool_that_does_not_see_its_planted_error_is_told_apart(stand_in, tmp_path) -> None:
    seen = run_planted(stand_in(blind="synccheck"), ("memcheck", "synccheck"), tmp_path / "planted")
    assert seen == {"memcheck": True, "synccheck": False}


@pytest.mark.slow
def test_cases_that_were_not_begun_in_time_are_told(sanitize) -> None:
    code, text = sanitize("--tool", "memcheck", "--seconds", "0", "--jobs", "1")
    done, _, cases = row(text, "memcheck")[1].split()
    assert code is Exit.NOISY
    assert 0 < int(done) < int(cases)
    assert "were not begun before" in text


TWO_OF_GEMM = ("-k", "gemm and 16x16x16 and not e4m3_max and not bias", "--jobs", "1")  # one of them calls a library
CALLS_A_LIBRARY = "gemm/route=library/16x16x16/normal/eager"


@pytest.mark.slow
def test_a_case_that_calls_a_library_is_left_out_with_a_reason_or_named(sanitize, monkeypatch) -> None:
    # The processes that run the cases still have racecheck's reason; the one that judges what they left out has not.
    monkeypatch.delitem(compute_sanitizer.LIBRARY, "racecheck")
    tools = [word for tool in ("memcheck", "initcheck", "racecheck") for word in ("--tool", tool)]
    code, text = sanitize(*tools, *TWO_OF_GEMM, recipe="gemm")
    assert code is Exit.NOISY
    assert row(text, "memcheck")[1:3] == ["2 of 2", "0"]
    assert row(text, "initcheck")[1:3] == row(text, "racecheck")[1:3] == ["1 of 2", "1"]
    assert f"initcheck leaves out 1 case, because {compute_sanitizer.LIBRARY['initcheck']}." in text
    assert f"racecheck left out 1 case without a reason: {CALLS_A_LIBRARY}." in text
    assert "memcheck leaves out" not in text
    assert "were not begun" not in text


def test_a_tool_that_is_shown_no_case_at_all_is_not_clean(sanitize) -> None:
    code, text = sanitize(
        "--tool", "initcheck", "-k", "library and 16x16x16 and not bias", "--jobs", "1", recipe="gemm"
    )
    assert code is Exit.NOISY
    assert row(text, "initcheck")[1:3] == ["0 of 1", "1"]


def test_cases_that_call_a_library_are_left_out_and_no_others() -> None:
    asked = [CALLS_A_LIBRARY, "gemm/default/16x16x16/normal/graph", "swizzle/default/16x16/normal/eager"]
    for tool in ("initcheck", "racecheck"):
        reasons = [compute_sanitizer.reason(tool, find_case(name)) for name in asked]
        assert reasons == [compute_sanitizer.LIBRARY[tool], "", ""]
    for tool in ("memcheck", "synccheck"):
        assert not any(compute_sanitizer.reason(tool, find_case(name)) for name in asked)


def test_a_route_that_calls_a_library_for_many_rows_is_left_out_for_those() -> None:
    few, many = (find_case(f"gemm/route=fastest/{rows}x1024x256/normal/eager") for rows in (128, 528))
    assert not compute_sanitizer.reason("racecheck", few)
    assert compute_sanitizer.reason("racecheck", many)


def test_what_the_reasons_say_of_our_kernels_beside_a_library_is_so() -> None:
    steps: dict[bool, list[Step]] = {True: [], False: []}
    for case in (case for suite in load_suites() for case in suite.cases("smoke")):
        launches = plan(case)
        steps[any(step.library for step in launches)] += [step for step in launches if not step.library]
    elsewhere = {step.signature.name for step in steps[False]}
    alone = {step.signature.name: step for step in steps[True] if step.signature.name not in elsewhere}
    assert set(alone) == {"gemm_decode", "gemm_epilogue"}
    for step in alone.values():
        assert compile_kernel(step.signature, step.flags, "sm_90a").shared_bytes == 0


def test_a_machine_on_which_no_tool_sees_anything_is_refused_in_a_sentence(sanitize, capsys) -> None:
    code, text = sanitize("--tool", "memcheck", blind="memcheck", said="'========= Error: Device not supported\\n'")
    assert (code, text) == (Exit.NO_DEVICE, "")
    assert "cannot work on this machine; it says: Error: Device not supported" in capsys.readouterr().err


def test_a_missing_tool_is_a_sentence(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compute_sanitizer, "PLACES", (str(tmp_path / "bin"),))
    with pytest.raises(DeviceUnavailable, match="compute-sanitizer is missing: it is neither on the PATH nor in"):
        compute_sanitizer.executable()
    with pytest.raises(DeviceUnavailable, match="nowhere cannot be run"):
        compute_sanitizer.executable(Path("nowhere"))


@pytest.mark.slow
def test_a_tool_is_run_once_however_often_it_is_named(sanitize) -> None:
    code, text = sanitize("--tool", "memcheck", "--tool", "memcheck", "-k", "16x16", "--jobs", "1")
    assert code is Exit.CLEAN
    assert row(text, "memcheck")[1] == "2 of 2"  # the row is there once


def test_a_program_of_this_folder_is_not_looked_for_on_the_path(monkeypatch, tmp_path, stand_in) -> None:
    program = Path(stand_in())
    monkeypatch.chdir(tmp_path)
    assert compute_sanitizer.executable(Path(f"./{program.name}")) == str(program)


def test_only_our_kernels_are_patched_and_ports_do_not_meet() -> None:
    one, other = (compute_sanitizer.wrapped("s", "memcheck", Path("log"), n, ["per_tensor_amax"]) for n in (0, 1))
    assert "kns=_Z15per_tensor_amax" in one
    assert int(other[other.index("--port") + 1]) - int(one[one.index("--port") + 1]) == compute_sanitizer.PORTS
    assert {"swizzle", "gemm", "per_token_encode"} <= set(compute_sanitizer.kernel_names())


def test_a_log_that_breaks_off_has_no_summary(tmp_path) -> None:
    assert read_log(tmp_path / "none.log").errors is None
    (tmp_path / "one.log").write_text("========= COMPUTE-SANITIZER\n========= Uninitialized __global__ memory read\n")
    log = read_log(tmp_path / "one.log")
    assert log.errors is None
    assert dict(log.findings) == {"Uninitialized __global__ memory read": 1}


def test_that_a_process_left_cases_out_is_no_finding(tmp_path) -> None:
    lines = ("COMPUTE-SANITIZER", "Target application returned an error", "ERROR SUMMARY: 0 errors")
    (tmp_path / "one.log").write_text("".join(f"========= {line}\n" for line in lines))
    log = read_log(tmp_path / "one.log")
    assert (log.errors, dict(log.findings)) == (0, {})


def test_of_a_race_every_access_is_kept(tmp_path) -> None:
    (tmp_path / "one.log").write_text(
        "========= Error: Race reported between Read access at f+0x9 in a.cuh:43\n"
        "=========     and Write access at f+0x1 in a.cuh:31 [32 hazards]\n"
        "=========     and Write access at f+0x2 in a.cuh:32 [32 hazards]\n"
        "=========     Saved host backtrace up to driver entry point\n"
        "=========\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    )
    (finding,) = read_log(tmp_path / "one.log").findings
    assert finding.endswith("a.cuh:43 and Write access at f+0x1 in a.cuh:31 [32 hazards] "
                            "and Write access at f+0x2 in a.cuh:32 [32 hazards]")  # fmt: skip


SEEN_AS = {
    "memcheck": "out_of_bounds",
    "initcheck": "unwritten_read",
    "racecheck": "race",
    "synccheck": "inactive_shuffle",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_error_planted_for_each_tool_is_one_that_the_emulator_sees(tool: str) -> None:
    kernel = planted.compiled(tool, ptx_of(ARCHES[1]))
    threads = kernel.launch.threads
    words = Buffer("words", np.zeros(4 * threads, np.uint8), initialised=False)
    with pytest.raises(Fault) as caught:
        launch(Module(kernel.ptx), kernel.symbol, (1, 1, 1), (threads, 1, 1), [words])
    assert caught.value.kind == SEEN_AS[tool]


def test_memory_has_exact_sizes_under_the_plugin(monkeypatch) -> None:
    for name in ("GUARD", "ALIGNMENT", "copied"):
        monkeypatch.setattr(memory, name, getattr(memory, name))
    asked = []
    fake = type("cupy", (), {"cuda": type("cuda", (), {"set_allocator": staticmethod(asked.append)})})
    monkeypatch.setitem(sys.modules, "cupy", fake)
    plugin.pytest_configure(None)
    assert (memory.GUARD, memory.ALIGNMENT, asked) == (0, 1, [None])


def test_what_is_left_open_is_not_clean() -> None:
    done = ToolResult("memcheck", planted=True, cases=3, done=3)
    assert exit_code([done]) is Exit.CLEAN
    assert exit_code([done, ToolResult("racecheck", planted=True, cases=3, done=2)]) is Exit.NOISY
    assert exit_code([done, ToolResult("racecheck", planted=True)]) is Exit.NOISY
    assert exit_code([replace(done, planted=False)]) is Exit.NOISY
    assert exit_code([replace(done, silent=1)]) is Exit.NOISY
    assert exit_code([replace(done, again=3)]) is Exit.CLEAN
    assert exit_code([replace(done, again=3, broken=1)]) is Exit.NOISY
    assert exit_code([replace(done, done=2)]) is Exit.NOISY
    assert exit_code([replace(done, done=2, left_out={"a": "why"})]) is Exit.CLEAN
    assert exit_code([replace(done, done=2, left_out={"a": ""})]) is Exit.NOISY
    assert exit_code([replace(done, done=0, left_out=dict.fromkeys("abc", "why"))]) is Exit.NOISY
    failed = ToolResult("racecheck", planted=True, cases=1, done=1, failed=["MISMATCH"])
    assert exit_code([done, failed]) is Exit.BYTES_DIFFER
    assert exit_code([]) is Exit.NOISY
    assert "## memcheck" not in page("c", "v", {"device": {"gpu": "g", "driver": "d", "nvrtc": "n"}}, "abc", [done])


def test_synccheck_is_told_how_many_barriers_to_track(tmp_path: Path) -> None:
    """By itself it tracks too few at times, and the launch of a right kernel fails."""
    words = wrapped("compute-sanitizer", "synccheck", tmp_path / "log", 0, ["k"])
    assert words[words.index("--num-cuda-barriers") + 1] == "1024"
    assert "--num-cuda-barriers" not in wrapped("compute-sanitizer", "memcheck", tmp_path / "log", 0, ["k"])
