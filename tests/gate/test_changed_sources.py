"""Which kernels of two revisions differ by their sources, and that only those are compiled, side by side."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.bench.timed import digest
from harness.device.cuda_program import launches_of
from harness.files import KERNELS, SUITES
from harness.gate import changed_sources
from harness.gate.changed_sources import compile_changed, same_sources
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
    monkeypatch.setattr(changed_sources, "_compile", lambda job: pytest.fail("compiled"))
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
