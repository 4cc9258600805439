"""Files of another revision, which of its kernels differ by their sources, and that only those are compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.bench.timed import digest
from harness.device.cuda_program import launches_of
from harness.errors import UsageError
from harness.files import KERNELS, SUITES
from harness.gate import revision
from harness.gate.revision import compile_changed, fetch, same_sources
from harness.gate.revision_bench import RevisionBench
from harness.jit import cache
from harness.suite.suite import find_case

SWIZZLE, CASTS = find_case("swizzle/default/256x256/normal/graph"), find_case("casts/default/64x64/normal/graph")
HEAD = SimpleNamespace(kernels=KERNELS, suites=None, targets=("sm_90a",))


@pytest.fixture
def base(tmp_path: Path) -> SimpleNamespace:
    shutil.copytree(KERNELS, tmp_path / "kernels")
    shutil.copytree(SUITES, tmp_path / "suites")
    return SimpleNamespace(kernels=tmp_path / "kernels", suites=tmp_path / "suites", targets=("sm_90a",))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_copy_is_the_same_and_nothing_is_compiled(base, monkeypatch):
    monkeypatch.setattr(revision, "_compile", lambda job: pytest.fail("compiled"))
    assert same_sources(SWIZZLE, HEAD, base) and same_sources(CASTS, HEAD, base)
    assert compile_changed([SWIZZLE, CASTS], HEAD, base) == []


def test_a_comment_in_a_header_is_another_source_of_what_includes_it(base):
    (base.kernels / "swizzle.cu").write_text((base.kernels / "swizzle.cu").read_text() + "// edited\n")
    assert not same_sources(SWIZZLE, HEAD, base) and same_sources(CASTS, HEAD, base)


def test_other_scratch_is_another_launch(base):
    case = find_case("four_over_six/default/64x64/normal/graph")
    assert same_sources(case, HEAD, base)
    edit(base.suites / "four_over_six.yaml", "amax_state: 16", "amax_state: 32")
    assert not same_sources(case, HEAD, base)


def test_machine_code_that_is_bound_to_other_arguments_is_not_the_same(base):
    """Parameters are bound by name, and the suite says how large scratch is; neither is in machine code."""
    rows_as_cols = {"rows": "cols", "cols": "rows"}
    path = base.kernels / "swizzle.cu"
    path.write_text(re.sub(r"\b(rows|cols)\b", lambda found: rows_as_cols[found[0]], path.read_text()))
    edit(base.suites / "four_over_six.yaml", "amax_state: 16", "amax_state: 4")
    four_over_six = find_case("four_over_six/default/64x64/normal/graph")
    head = SimpleNamespace(**vars(HEAD), multiprocessors=132)
    base.multiprocessors = 132
    for case in (SWIZZLE, four_over_six):
        both = [launches_of(side, case, "sm_90a") for side in (head, base)]
        assert digest(both[0]) == digest(both[1])
        assert not RevisionBench(head, base, None).same(case)
    (base.kernels / "casts.cu").write_text((base.kernels / "casts.cu").read_text() + "// edited\n")
    assert not same_sources(CASTS, head, base) and RevisionBench(head, base, None).same(CASTS)


def test_a_kernel_that_the_base_has_not_differs(base):
    (base.kernels / "swizzle.cu").unlink()
    assert not same_sources(SWIZZLE, HEAD, base)


def test_both_sides_of_what_differs_are_compiled_into_the_cache_and_no_more(base, monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    (base.kernels / "swizzle.cu").write_text((base.kernels / "swizzle.cu").read_text() + "// edited\n")
    keys = compile_changed([SWIZZLE, CASTS], HEAD, base, processes=2)
    assert len(keys) == 2 and all(cache.load(key) for key in keys)
    assert len(list((tmp_path / "cache").rglob("*.record"))) == 2


def test_an_error_of_the_compiler_is_left_to_the_case(base):
    edit(base.kernels / "swizzle.cu", "__global__", "__global__ nonsense")
    assert len(compile_changed([SWIZZLE], HEAD, base, processes=2)) >= 1


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *words],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "nothing yet")
    for name in ("harness/kernels/toy.cu", "suites/toy.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first\n")
    git("add", "-A")
    git("commit", "-q", "-m", "a kernel")
    (tmp_path / "harness/kernels/toy.cu").write_text("edited\n")
    return tmp_path


def test_a_revision_is_fetched_beside_and_nothing_is_changed(repository, tmp_path):
    fetched = fetch("HEAD", tmp_path / "beside", repository)
    assert (fetched.kernels / "toy.cu").read_text() == (fetched.suites / "toy.yaml").read_text() == "first\n"
    assert len(fetched.commit) == 40
    assert (repository / "harness/kernels/toy.cu").read_text() == "edited\n"


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("nosuch", "--base nosuch names no commit of this repository"),
        ("HEAD~1", "--base HEAD~1 has no harness/kernels and no suites"),
        ("--output=x", "--base --output=x names no commit of this repository"),
    ],
)
def test_a_revision_that_cannot_be_a_base(repository, tmp_path, name, sentence):
    with pytest.raises(UsageError, match=sentence):
        fetch(name, tmp_path / "beside", repository)
    assert not (tmp_path / "beside").exists()
