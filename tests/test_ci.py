"""What the CI files call exists: make targets, harness commands, options, scripts, jobs and reports."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from timed_runs import HEADER, gate_run

from evidence.__main__ import cli as evidence
from harness.cli import cli as harness
from harness.errors import Exit
from harness.files import ROOT
from harness.gate.against_baseline import judge
from harness.gate.report import from_run, write_gate
from harness.ground.yaml_lines import read
from harness.report import tables

FILES = (".gitlab-ci.yml", ".github/workflows/ci.yml")
ACTION = ".github/actions/environment/action.yml"
GITLAB_WORDS = {"stages", "workflow", "default", "variables"}
ON_A_GPU = {"verify-gpu", "bench", "gate", "gate-reference", "gate-baseline", "nightly", "upstream-gpu", "exhaustive"}
SUPPORTED = ["3.11", "3.12", "3.13"]


@cache
def parsed(file: str) -> dict[str, Any]:
    return read(ROOT / file, file).data


def jobs(file: str) -> dict[str, dict[str, Any]]:
    """The jobs of a file, those of GitLab with what they extend."""
    tree = parsed(file)
    if "jobs" in tree:
        return tree["jobs"]
    found = {name: job for name, job in tree.items() if name not in GITLAB_WORDS}
    return {name: found.get(job.get("extends"), {}) | job for name, job in found.items() if not name.startswith(".")}


def shell(node: Any) -> Iterator[str]:
    """Every text of shell in a part of a file."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("script", "before_script", "run"):
                yield from [value] if isinstance(value, str) else value
            else:
                yield from shell(value)
    elif isinstance(node, list):
        for value in node:
            yield from shell(value)


def lines(file: str) -> list[str]:
    """Every line of shell of a file."""
    return [re.sub(r"\$\{\{.*?\}\}", "X", line) for text in shell(parsed(file)) for line in text.splitlines()]


def calls(program: str) -> list[tuple[str, ...]]:
    """The words after a program's name, for every call of it in the CI files."""
    found = set()
    for file in (*FILES, ACTION):
        for line in lines(file):
            for part in re.split(r"&&|\|\||;", line):
                words = shlex.split(part)
                start = program.split()
                for index in range(len(words)):
                    if words[index : index + len(start)] == start:
                        found.add(tuple(words[index + len(start) :]))
    return sorted(found)


@pytest.mark.parametrize("words", calls("make"), ids=" ".join)
def test_a_make_target_exists(words: tuple[str, ...]):
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def is_of_pytest(option: str) -> None:
    spelled = option.replace("--junitxml", "--junit-xml")  # pytest takes both and tells of one
    assert re.search(rf"(^|[\s,]){re.escape(spelled)}\b", pytest_help()), option


GROUPS = ((harness, "-m harness"), (evidence, "-m evidence"))


@pytest.mark.parametrize(("group", "words"), [(group, words) for group, named in GROUPS for words in calls(named)])
def test_a_command_exists_with_its_options(group: click.Group, words: tuple[str, ...]):
    command = group.get_command(None, words[0])
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    left = {word for word in words[1:] if word.startswith("-")} - known
    assert not left or command.context_settings.get("ignore_unknown_options")
    for option in left:
        is_of_pytest(option)


@cache
def pytest_help() -> str:
    command = [sys.executable, "-m", "pytest", "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("program", ["make", "-m harness"])
def test_there_are_calls(program: str):
    assert calls(program)


def test_scripts_exist_and_can_be_run():
    found = {word for file in FILES for line in lines(file) for word in line.split() if word.startswith(".ci/")}
    assert found == {".ci/dist", ".ci/oldest", ".ci/resolve", ".ci/once_more"}
    assert all(os.access(ROOT / script, os.X_OK) for script in found)


def test_both_have_the_same_jobs():
    gitlab, github = (set(jobs(file)) for file in FILES)
    # Metrics, which are what the reference is for, are GitLab's alone.
    assert gitlab - {"gate-reference"} == github


SPELLED = {  # what GitHub says in the words of GitLab
    "${{ matrix.shard }}": "$CI_NODE_INDEX", '"$BASE"': '"$CI_MERGE_REQUEST_DIFF_BASE_SHA"', ".ci/once_more ": "",
}  # fmt: skip


def does(job: dict[str, Any]) -> dict[str, Any]:
    """What a job does, in words that both files have: its commands, shards, variables, needs, and when it runs."""
    found = []
    for text in shell(job):
        for said, word in SPELLED.items():
            text = text.replace(said, word)
        words = " ".join(re.sub(r" --run-dir \S+| \$RUN_DIR", "", text).split())
        found += [words] if re.match(r"(make(?! env)|\.ci/|\.venv/bin/python) ?", words) else []
    shards = job.get("strategy", {}).get("matrix", {}).get("shard", [])
    shards = len(shards) or (job["parallel"] if isinstance(job.get("parallel"), int) else 0)
    named = (one if isinstance(one, str) else one["job"] for one in job.get("needs", ()))
    rules = [rule.get("if", "") for rule in job.get("rules", ()) if rule.get("when") != "never"]
    night = [rule == '$CI_PIPELINE_SOURCE == "schedule"' for rule in rules] if "steps" not in job else [
        "github.event_name == 'schedule'" in job.get("if", "") and "||" not in job.get("if", "")
    ]  # fmt: skip
    return {
        "commands": [words.replace("/$CI_NODE_TOTAL", f"/{shards}") for words in found],
        "shards": shards,
        "variables": {name: value for name, value in {**job.get("variables", {}), **job.get("env", {})}.items()
                      if name.startswith("HARNESS")},
        "needs": {*named},
        "at night alone": bool(night) and all(night),
        "on a GPU": "gpu" in (job.get("tags") or job.get("runs-on", "")),
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted({*jobs(FILES[1])}))
def test_a_job_does_the_same_on_both(name: str):
    gitlab, github = (does(jobs(file)[name]) for file in FILES)
    assert gitlab == github and gitlab["commands"]


def test_the_pages_say_in_which_jobs_they_differ():
    gitlab, github = (set(jobs(file)) for file in FILES)
    page = (ROOT / "docs/ci.md").read_text()
    assert {name for name in gitlab ^ github if f"`{name}`" not in page} == set()


@pytest.mark.parametrize(("file", "name"), [(FILES[0], "$CI_JOB_ID"), (FILES[1], "${{ matrix.shard }}")])
def test_every_shard_has_a_folder_of_its_own_name(file: str, name: str):
    """Shards come into one folder before they are merged, and one that is named by the second may be another's."""
    sharded = {job: str(words) for job, words in jobs(file).items() if "--shard" in str(words)}
    assert set(sharded) == {"verify", "nightly"}
    for job, words in sharded.items():
        folder = words.partition("--run-dir ")[2].replace(
            "$RUN_DIR", parsed(file).get("variables", {}).get("RUN_DIR", "")
        )
        assert folder.startswith(f"results/runs/{name} "), job


@pytest.mark.parametrize("file", FILES)
def test_a_job_needs_and_extends_jobs_that_there_are(file: str):
    for name, job in jobs(file).items():
        needed = {one if isinstance(one, str) else one["job"] for one in job.get("needs", ())}
        assert needed <= set(jobs(file)), name
        assert job.get("extends", ".gpu") in (".gpu",), name
        assert job.get("stage", "gpu") in parsed(FILES[0])["stages"], name


def test_on_a_gpu_one_job_runs_at_a_time_and_only_what_cannot_be_told_is_forgiven_or_asked_again():
    found = {name: job for name, job in jobs(FILES[0]).items() if job.get("tags") == ["gpu"]}
    assert set(found) == ON_A_GPU
    for name, job in found.items():
        assert job["resource_group"] == "gpu", name
        assert job["allow_failure"] == {"exit_codes": [3]}, name
        assert job["retry"] == {"max": 1, "exit_codes": [3]}, name
        assert job["rules"][0] == {"if": '$HARNESS_GPU != "true"', "when": "never"}, name


def test_no_queue_and_no_push_ends_a_night():
    """On GitHub a group cancels all but the last that waits; on GitLab a new commit ends older pipelines."""
    assert not [name for name, job in jobs(FILES[1]).items() if "concurrency" in job]
    group = parsed(FILES[1])["concurrency"]["group"]
    assert group == "${{ github.event_name == 'pull_request' && github.ref || github.run_id }}"
    assert parsed(FILES[0])["workflow"]["rules"][0] == {
        "if": '$CI_PIPELINE_SOURCE == "schedule"', "auto_cancel": {"on_new_commit": "none"},
    }  # fmt: skip
    assert jobs(FILES[0])["nightly"]["interruptible"] is False


def test_every_job_has_a_timeout():
    assert parsed(FILES[0])["default"]["timeout"]
    assert [name for name, job in jobs(FILES[1]).items() if "timeout-minutes" not in job] == []


def test_packages_and_kernels_are_kept_between_jobs():
    folders = {parsed(FILES[0])["variables"][name] for name in ("PIP_CACHE_DIR", "HARNESS_CACHE")}
    kept = parsed(FILES[0])["default"]["cache"]
    assert {f"$CI_PROJECT_DIR/{path}" for cache in kept for path in cache["paths"]} == folders
    assert not [name for name, job in jobs(FILES[0]).items() if "cache" in job]
    assert {"PIP_CACHE_DIR", "HARNESS_CACHE"} <= set(parsed(FILES[1])["env"])
    steps = parsed(ACTION)["runs"]["steps"]
    kept = {step["with"]["path"] for step in steps if step.get("uses", "").startswith("actions/cache@")}
    assert kept == {"${{ env.PIP_CACHE_DIR }}", "${{ env.HARNESS_CACHE }}"}
    for name, job in jobs(FILES[1]).items():
        used = [step.get("uses") for step in job["steps"]]
        assert ("./" + str(Path(ACTION).parent) in used) == (name not in ("dist", "oldest", "resolve")), name


def test_no_protected_branch_reads_what_a_merge_request_kept():
    """GitLab adds its own suffix unless `unprotect` is set; GitHub shows a branch no cache of a pull request."""
    for kept in parsed(FILES[0])["default"]["cache"]:
        key = kept["key"] if isinstance(kept["key"], str) else kept["key"]["prefix"]
        assert key.endswith("-$CI_COMMIT_REF_PROTECTED-$CI_COMMIT_REF_SLUG"), key
        assert kept["unprotect"] is False and "fallback_keys" not in kept, key
    assert "pull_request_target" not in parsed(FILES[1])["on"]
    for step in parsed(ACTION)["runs"]["steps"]:
        if step.get("uses", "").startswith("actions/cache@"):
            for key in (step["with"]["key"], *step["with"]["restore-keys"].splitlines()):
                assert key.partition("-")[2].startswith(("${{ github.ref }}-", "refs/heads/main-")), key
            assert "main" not in step["with"]["key"]


def test_the_versions_of_python_are_those_that_the_package_claims():
    claimed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert [line.rpartition(" ")[2] for line in claimed if "Python :: 3" in line] == SUPPORTED
    for name in ("resolve", "test"):
        assert jobs(FILES[0])[name]["parallel"] == {"matrix": [{"VERSION": SUPPORTED}]}
        assert jobs(FILES[1])[name]["strategy"]["matrix"] == {"python": SUPPORTED}
    assert parsed(FILES[0])["default"]["image"] == "python:$VERSION"


def test_github_shows_the_cases_that_gitlab_shows():
    for name, job in jobs(FILES[0]).items():
        shown = job.get("artifacts", {}).get("reports", {}).get("junit")
        if shown and name in jobs(FILES[1]):
            steps = jobs(FILES[1])[name]["steps"]
            (report,) = [step for step in steps if step.get("uses", "").startswith("mikepenz/action-junit-report@")]
            assert report == {"if": "always()", "uses": report["uses"], "with": {
                "report_paths": shown, "annotate_only": True,  # without the right to write checks, which a fork lacks
            }}, name  # fmt: skip
            wrote = [step.get("run", "") for step in steps[: steps.index(report)]]
            assert shown != "junit.xml" or "--junitxml junit.xml" in " ".join(wrote), name


@pytest.mark.parametrize("codes", [[0], [1], [2], [4], [3, 3], [3, 2], [3, 0], [3, 4]], ids=str)
def test_only_what_was_too_noisy_runs_once_more_and_nothing_is_forgiven(tmp_path: Path, codes: list[int]):
    script = f'echo >> log; n=$(wc -l < log); set -- {" ".join(map(str, codes))}; shift $((n - 1)); exit "$1"'
    done = subprocess.run([ROOT / ".ci/once_more", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == codes[-1]
    assert len((tmp_path / "log").read_text().splitlines()) == len(codes)
    assert ("::error::" in done.stdout) == (codes[-1] in (3, 4))


@pytest.mark.parametrize("file", [FILES[1], ACTION])
def test_actions_of_others_are_pinned_by_the_digest_of_a_commit(file: str):
    used = re.findall(r"uses: (\S+)(.*)", (ROOT / file).read_text())
    others = [(name, comment) for name, comment in used if not name.startswith("./")]
    assert others
    for name, comment in others:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", name), name
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), name


@pytest.mark.parametrize("file", FILES)
def test_what_decides_a_job_is_harness_verify_and_no_pytest_that_loads_plugins(file: str):
    assert not [line for line in lines(file) if "pytest" in line]
    verified = [line for line in lines(file) if "-m harness verify" in line]
    assert len(verified) == 5


@pytest.mark.parametrize("file", FILES)
def test_no_job_turns_what_could_not_be_told_into_green(file: str):
    for name, job in jobs(file).items():
        assert "continue-on-error" not in str(job), name
        assert job.get("allow_failure", {"exit_codes": [3]}) == {"exit_codes": [3]}, name
    assert not [line for line in lines(file) if "||" in line or "set +e" in line]


def test_each_gate_keeps_its_tables():
    for file in FILES:
        for name in ("gate", "gate-baseline"):
            job = jobs(file)[name]
            assert "results/runs/" in str(job.get("artifacts", job.get("steps"))), (file, name)
            if "steps" in job:
                assert any(step.get("uses", "").startswith("actions/upload-artifact@") for step in job["steps"]), name


def test_the_reports_that_are_collected_are_those_that_are_written(tmp_path: Path):
    run, held = gate_run(tmp_path)
    gated = from_run(run, HEADER, held, judge(run, HEADER, held))
    written = {
        path.name for path in (*write_gate(tmp_path, gated, Exit.CLEAN), *tables.write_verify(tmp_path, run.records))
    }
    collected = {}
    for job in jobs(FILES[0]).values():
        for kind, path in job.get("artifacts", {}).get("reports", {}).items():
            collected.setdefault(kind, set()).add(Path(path).name)
    assert collected["metrics"] | collected["codequality"] | collected["junit"] - {"junit.xml"} <= written
    for name, job in jobs(FILES[0]).items():
        if "junit.xml" in str(job.get("artifacts", {})):
            assert "--junitxml junit.xml" in str(job["script"]), name


def test_a_report_of_one_run_is_not_met_by_those_of_other_jobs():
    for name, job in jobs(FILES[0]).items():
        if "results/runs/*/" in str(job.get("artifacts", {}).get("reports", {})):
            brought = [one for one in job.get("needs", ()) if not isinstance(one, dict) or one.get("artifacts", True)]
            assert not brought and (job.get("dependencies") == [] or job["stage"] == "verify"), name


def test_what_is_exposed_has_a_name_of_its_own_and_a_plain_path():
    exposed = [job["artifacts"] for job in jobs(FILES[0]).values() if "expose_as" in job.get("artifacts", {})]
    assert exposed
    for artifacts in exposed:
        assert not any(sign in path for path in artifacts["paths"] for sign in "*$")
        assert all(path.endswith("/") for path in artifacts["paths"])
        assert re.fullmatch(r"[A-Za-z0-9 _-]+", artifacts["expose_as"])


def test_the_page_names_where_ci_leaves_the_tables():
    pages = (ROOT / "docs" / "ci.md").read_text().split("\n\n")
    (paragraph,) = [each for each in pages if each.startswith("A merge request on GitLab ")]
    gitlab, github = (re.findall(r"\*(.+?)\*", " ".join(part.split())) for part in paragraph.partition("GitHub")[::2])
    exposed = {job["artifacts"].get("expose_as") for job in jobs(FILES[0]).values() if "artifacts" in job}
    kept = {
        step["with"]["name"] for job in jobs(FILES[1]).values() for step in job["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    }  # fmt: skip
    assert len(gitlab) == len(github) == 3
    assert set(gitlab) <= exposed and set(github) <= kept


@pytest.mark.parametrize("file", (*FILES, ACTION, ".ci/oldest", ".ci/resolve"))
def test_no_host_and_no_path_of_a_machine_is_named(file: str):
    assert not re.search(
        r"https?://|registry|\.(com|org|net|io)\b|(?<![\w./}])/(home|root|work|mnt|data)/", (ROOT / file).read_text()
    )
