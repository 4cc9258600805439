"""The pytest plugin: selection, journal, resume, exit codes. Nothing is compiled or run: `verify` is a fake."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from toy_runs import CONFTEST, SMOKE, Runs

from harness.errors import Exit
from harness.files import ROOT
from harness.runner import bench_plugin


def test_every_case_of_the_set_is_one_test_named_by_its_id(run: Runs):
    result = run("suites", "-v")
    result.assert_outcomes(passed=SMOKE)
    result.stdout.fnmatch_lines(["suites/toy.yaml::toy/default/16x16/normal/eager PASSED*"])
    assert result.ret == Exit.CLEAN
    assert sorted(run.verified()) == sorted(record["case_id"] for record in run.journal())


# What a worker pays for when it starts, and a run when it ends.
LOADED = """
def pytest_unconfigure(config):
    import sys
    from _pytest.assertion.rewrite import AssertionRewritingHook
    Path("loaded").write_text(" ".join({"hypothesis", "pandas", "torch"} & {*sys.modules}))
    ours = [module for name, module in sys.modules.items() if name.startswith("harness.")]
    rewritten = sum(isinstance(module.__spec__.loader, AssertionRewritingHook) for module in ours)
    Path("rewritten").write_text(f"{rewritten} {len(ours)}")
"""


def test_a_process_loads_nothing_that_it_does_not_use(run: Runs):
    run.pytester.makeconftest(CONFTEST + LOADED)
    words = (sys.executable, "-m", "pytest", "-p", "harness.plugin", "--run-dir", "out")
    assert run.pytester.run(*words, "suites").ret == Exit.CLEAN
    assert Path("loaded").read_text() == ""
    rewritten, ours = map(int, Path("rewritten").read_text().split())
    assert 10 * rewritten < ours, "pytest looks for asserts in modules that have none"
    run.pytester.makepyfile("def test_in_python(): pass")
    assert (
        run.pytester.run(*words, "--resume", "suites", "test_a_process_loads_nothing_that_it_does_not_use.py").ret == 0
    )
    assert Path("loaded").read_text() == "hypothesis"


SELECTED = {
    "suites/toy.yaml::toy/default/16x16/normal/eager": ["toy/default/16x16/normal/eager"],
    "suites --case toy/rht=true/64x64/ties/graph --case toy/default/16x16/normal/eager": [  # beyond any set
        "toy/rht=true/64x64/ties/graph", "toy/default/16x16/normal/eager",
    ],
}  # fmt: skip


@pytest.mark.parametrize("words", SELECTED)
def test_cases_are_chosen_by_words(run: Runs, words: str):
    run(*words.split()).assert_outcomes(passed=len(SELECTED[words]))
    assert run.verified() == SELECTED[words]
    run("suites", "--set", "full", "-k", "eager", "--run-dir", "full").assert_outcomes(passed=8)


def test_shards_share_the_set_out(run: Runs):
    for shard in ("1/2", "2/2"):
        run("suites", "--shard", shard, "--run-dir", f"out{shard[0]}")
    assert len(run.verified()) == len(set(run.verified())) == SMOKE


# name: what the fake says of cases, more words of the command line, the exit code, and lines of both outputs
ENDS = {
    "a mismatch shows its story": ({"ties": "MISMATCH"}, "", 1, "THE STORY of toy/*/ties/eager", ""),
    "a wrong suite hides no wrong kernel": ({"ties": "SETUP_ERROR", "normal": "MISMATCH"}, "", 1, "", ""),
    "an exclusion has its reason": (
        {"ties": "EXCLUDED"}, "", 0, "*excluded*because the device or the subject cannot run it*", "",
    ),
    "an exclusion is skipped": ({"ties": "EXCLUDED"}, "-rs", 0, "SKIPPED * suites/toy.yaml:*: a reason", ""),
    "nothing was compared": (
        {"toy": "EXCLUDED"}, "", 4, "", f"error: nothing was compared: all {SMOKE} cases are excluded on this device",
    ),
    "no case is left": (
        {}, "-k nothing_is_called_so", 64, "", f"error: no case was selected out of {SMOKE}; loosen *",
    ),
    "an input fits no case": ({"ties": "INPUT"}, "", 64, "the tensor has 3 dimensions; a case takes 2", ""),
    "a bug keeps its traceback": ({"ties": "BUG"}, "", 1, "*ZeroDivisionError: nobody meant this", ""),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("verdicts", "words", "code", "out", "err"), ENDS.values(), ids=ENDS)
def test_how_a_run_ends(run: Runs, verdicts: dict[str, str], words: str, code: int, out: str, err: str):
    run.verdicts(**verdicts)
    result = run("suites", *words.split())
    assert result.ret == code
    result.stdout.fnmatch_lines([out] if out else [])
    result.stderr.fnmatch_lines([err] if err else [])
    if "BUG" not in verdicts.values():
        result.stdout.no_fnmatch_line("*Traceback*")
        result.stdout.no_fnmatch_line("*plugin.py*")
        recorded = {record["verdict"] for record in run.journal()} if run.verified() else set()
        assert {*verdicts.values()} - {"INPUT"} <= recorded <= {"PASS", *verdicts.values()}


@pytest.mark.parametrize("name", ["CI", "BUILD_NUMBER"])
def test_a_story_is_told_once_in_ci_too(run: Runs, monkeypatch: pytest.MonkeyPatch, name: str):
    """pytest tells all of it again in its last lines if these are set."""
    monkeypatch.setenv(name, "true")
    run.verdicts(ties="MISMATCH")
    printed = run("suites").stdout.str()
    assert sum("ties" in case_id for case_id in run.verified()) == 2  # which fail alike
    assert printed.count("the end of it") == 1 and "1 more fail alike:" in printed


@pytest.mark.parametrize("verdict", ["WRONG_SHAPE", "UNWRITTEN", "OUT_OF_BOUNDS", "NONDETERMINISTIC", "COMPILE_ERROR"])
def test_no_other_verdict_is_green(run: Runs, verdict: str):
    run.verdicts(ties=verdict)
    assert run("suites").ret == Exit.BYTES_DIFFER


@pytest.mark.parametrize(
    ("verdict", "code"), [("SETUP_ERROR", Exit.USAGE), ("NOT_EMULATED", Exit.NO_DEVICE), ("NO_DEVICE", Exit.NO_DEVICE)]
)
def test_what_was_not_judged_has_an_exit_code_of_its_own(run: Runs, verdict: str, code: Exit):
    run.verdicts(ties=verdict)
    result = run("suites")
    assert result.ret == code
    result.stdout.fnmatch_lines([f"* not judged, the first {verdict}  toy/*"])
    assert {record["verdict"] for record in run.journal()} == {"PASS", verdict}
    assert run("suites", "--resume").ret == code


def test_the_summary_counts_what_was_compared(run: Runs):
    result = run("suites")
    lines = [" ".join(line.replace("│", " ").split()) for line in result.outlines]
    assert f"cases {SMOKE} PASS" in lines
    assert "inputs compared 2" in lines
    assert "kernel instantiations compared 1" in lines
    assert f"bytes compared {SMOKE}00" in lines
    (refused,) = [line for line in lines if line.startswith("2 combinations are refused, for 2 reasons: ")]
    assert refused.endswith("harness list suites/toy.yaml --refused")
    assert any("report.html, with tables and journal beside it" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["suites", "--set", "smok"], 64, "*there is no set 'smok' in *toy.yaml; did you mean 'smoke'?"),
        (["suites", "--case", "toy/default/16x16/norml/eager"], 64, "*no input 'norml'; did you mean 'normal'?"),
        (
            ["suites", "--case", "tox/default/16x16/normal/eager"],
            64,
            "*'tox' is not a recipe of this run; did you mean *",
        ),
        (["suites", "--shard", "3/2"], 64, "--shard 3/2 is not i/n with 1 <= i <= n, as in 2/4"),
        (["suites/toi.yaml"], 64, "there is no suite *toi.yaml; did you mean '*toy.yaml'?"),
        (["suites/toy.yaml::toy/nope"], 64, "*not found*"),
        (["suites", "--device", "cuda"], 4, "device 'cuda' was asked for, and CUDA sees no GPU"),
        (["suites", "--bench"], 4, "--bench needs a GPU; device 'emulator' verifies bytes and has no clock"),
        (["suites", "--resume"], 64, "there is nothing to resume: *journal.jsonl does not exist *"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_run_is_one_sentence(run: Runs, arguments: list[str], code: int, sentence: str):
    result = run(*arguments)
    assert result.ret == code
    result.stderr.fnmatch_lines([f"error: {sentence}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert run.verified() == []


def test_a_broken_suite_is_one_sentence_before_anything_runs(run: Runs, suite_text: str):
    (run.pytester.path / "suites" / "toy.yaml").write_text(suite_text.replace("shapes:", "shaps:", 1))
    result = run("suites")
    assert result.ret == Exit.USAGE
    assert result.errlines == [
        f"error: {run.pytester.path}/suites/toy.yaml:27: unknown key 'shaps'; did you mean 'shapes'?"
    ]
    assert result.stdout.str() == ""


def test_an_interrupted_run_keeps_its_journal_and_resumes(run: Runs):
    run.verdicts(**{"48x80": "CTRL-C"})
    result = run("suites", fork=True)
    assert result.ret == Exit.INTERRUPTED
    done = len(run.journal())
    assert 0 < done < SMOKE
    result.stdout.fnmatch_lines([f"interrupted: {done} of {SMOKE} cases are done; go on with", "*pytest*--resume"])

    run.verdicts()
    result = run("suites", "--resume")
    assert result.ret == Exit.CLEAN
    assert len(run.journal()) == SMOKE
    assert len(run.verified()) == SMOKE + 1  # only the case that was interrupted ran twice


def test_resumed_failures_still_count(run: Runs):
    run.verdicts(ties="MISMATCH")
    assert run("suites").ret == Exit.BYTES_DIFFER
    verified = run.verified()
    assert run("suites", "--resume").ret == Exit.BYTES_DIFFER
    assert run.verified() == verified


def test_a_line_cut_off_by_a_kill_is_not_a_result(run: Runs):
    run("suites")
    path = run.run_dir / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    assert run("suites", "--resume").ret == Exit.CLEAN
    assert len(run.verified()) == SMOKE + 1
    assert len(run.journal()) == SMOKE


def test_records_of_other_cases_or_sources_are_not_resumed(run: Runs, monkeypatch: pytest.MonkeyPatch):
    run("suites")
    result = run("suites", "--set", "full", "--resume")
    assert result.ret == Exit.USAGE
    result.stderr.fnmatch_lines(["error: *journal.jsonl cannot be resumed, because its cases differ from this run's*"])
    monkeypatch.setattr("harness.records.seal.sources_digest", lambda: "edited")
    result = run("suites", "--resume")
    assert result.ret == Exit.USAGE
    result.stderr.fnmatch_lines(["error: *because its sources differ*"])


def test_a_folder_with_a_run_is_not_written_over(run: Runs):
    run("suites")
    result = run("suites")
    assert result.ret == Exit.USAGE
    result.stderr.fnmatch_lines(["error: *out already holds a run; add --resume *"])


def test_workers_send_their_records_to_one_journal(run: Runs):
    run.verdicts(ties="MISMATCH", rht="EXCLUDED")
    result = run("suites", "-n", "2", "-v", fork=True)
    assert result.ret == Exit.BYTES_DIFFER
    assert sorted(run.verified()) == sorted(record["case_id"] for record in run.journal())
    assert {record["verdict"] for record in run.journal()} == {"PASS", "MISMATCH", "EXCLUDED"}
    # Each has a part of its own, so that a kernel is decoded in one of them.
    result.stdout.fnmatch_lines(["scheduling tests via Stealing", "THE STORY of toy/*/ties/eager"])


@pytest.mark.slow
def test_workers_resume_too(run: Runs):
    run.verdicts(**{"48x80": "CTRL-C"})
    run("suites", fork=True)
    run.verdicts()
    assert run("suites", "--resume", "-n", "2", fork=True).ret == Exit.CLEAN
    assert len(run.verified()) == SMOKE + 1


@pytest.mark.slow
@pytest.mark.parametrize(("cost", "workers"), [(1, {""}), (1 << 20, {"gw0", "gw1"})], ids=["little", "much"])
def test_no_process_begins_that_has_less_to_do_than_that_takes(
    run: Runs, monkeypatch: pytest.MonkeyPatch, cost: int, workers: set[str]
):
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "2")
    costs = f"import harness.runner.selection\nharness.runner.selection.cost = lambda case: {cost}\n"
    run.pytester.makeconftest(CONFTEST + costs)
    assert run("suites", "-n", "auto", fork=True).ret == Exit.CLEAN
    lines = (run.pytester.path / "verified.txt").read_text().splitlines()
    assert {line.partition(" ")[2] for line in lines} == workers


def test_a_bench_times_what_passes_and_nothing_else(run: Runs, monkeypatch: pytest.MonkeyPatch):
    class Timer:
        def __init__(self, *_):
            pass

        def prepare(self, case):
            pass

        def time(self, item, result):
            return dataclasses.replace(result, times={"median_us": 1.0})

    monkeypatch.setattr(bench_plugin, "check_bench", lambda config, device: None)
    monkeypatch.setattr(bench_plugin, "BenchRun", Timer)
    run.verdicts(rounding="MISMATCH")
    result = run("suites", "--bench", "--set", "full", "-k", "eager")
    assert result.ret == Exit.BYTES_DIFFER
    assert {record["verdict"] for record in run.journal() if record["times"]} == {"PASS"}
    assert {record["verdict"] for record in run.journal() if not record["times"]} == {"MISMATCH"}


def test_a_bench_runs_the_set_bench_unless_another_is_named(run: Runs):
    result = run("suites", "--bench", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["suites/toy.yaml::toy/rht=true/16x32/normal/eager"])
    result.stdout.no_fnmatch_line("*ties*")


def test_junit_names_cases_and_carries_verdicts(run: Runs):
    run.verdicts(ties="MISMATCH")
    run("suites", "--junitxml", "junit.xml")
    text = Path("junit.xml").read_text()
    assert 'name="toy/default/16x16/normal/eager"' in text
    assert '<property name="verdict" value="MISMATCH" />' in text


def test_junit_names_the_suite_of_a_case_and_how_to_see_it_again(run: Runs):
    run.verdicts(normal="INPUT", ties="BUG")
    run("suites", "--junitxml", "junit.xml", "-c", str(ROOT / "pyproject.toml"), "--rootdir", ".")
    cases = list(ElementTree.parse("junit.xml").iter("testcase"))
    assert len({case.get("name") for case in cases}) == len(cases) == SMOKE
    for case in cases:
        assert case.get("file") == "suites/toy.yaml" and int(case.get("line")) > 0
        assert case.find("failure").text.endswith(f"harness verify --case '{case.get('name')}'")


def test_collect_only_runs_nothing_and_is_not_green(run: Runs):
    result = run("suites", "--collect-only", "-q")
    assert result.ret == Exit.USAGE
    assert not run.run_dir.exists()


def test_ordinary_tests_keep_pytests_own_exit_codes(run: Runs):
    run.pytester.makepyfile("def test_one(): pass")
    assert run("test_ordinary_tests_keep_pytests_own_exit_codes.py").ret == pytest.ExitCode.OK
    assert (
        run("-k", "absent", "test_ordinary_tests_keep_pytests_own_exit_codes.py").ret
        == pytest.ExitCode.NO_TESTS_COLLECTED
    )
    assert not run.run_dir.exists()


def test_the_plugin_registers_once(run: Runs):
    assert run("suites", "-p", "harness.plugin").ret == Exit.CLEAN
