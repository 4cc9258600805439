"""What a verdict depends on has a digest, and what changed has a name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.errors import UsageError
from harness.files import ROOT
from harness.records import seal
from harness.records.imported_files import imported_files
from harness.records.journal import Journal
from harness.suite.suite import find_case

# It begins with an escape that Python advises against.
INNER = "'\\.'\nfrom . import deep\nfrom .deep import x\nfrom .bare import y\nimport package.bare.far.z\n"
CASE = find_case("per_tensor/default/16x16/normal/eager")


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A subject that imports a helper at the top, one of its package in a function, and one by a name it computes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)  # all files of its folders would be the subject's, too
    files = {
        "mine.py": "import far\nimport numpy, os\ndef f():\n    from package import inner\n    __import__('beside')\n",
        "beside.py": "import importlib\nimportlib.import_module('hid' + 'den')\n",
        "hidden.py": "",
        "package/__init__.py": "raise SystemExit('this is never run')\n",
        "package/inner.py": INNER,
        "package/deep.py": "x = 1\n",
        "package/bare/y.py": "",
        "package/bare/far/z.py": "",
        "package/unused.py": "",
        "elsewhere/far.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    return tmp_path


def test_a_subject_is_all_files_that_it_may_import(subject: Path):
    files, packages = imported_files("mine")
    found = {str(path.relative_to(subject)) for path in files}
    assert found == {
        "mine.py", "beside.py", "hidden.py", "package/__init__.py", "package/inner.py", "package/deep.py",
        "package/bare/y.py", "package/bare/far/z.py", "elsewhere/far.py",
    }  # fmt: skip
    assert packages == {"numpy"} and "mine" not in sys.modules


@pytest.mark.parametrize("name", ["mine.py", "hidden.py", "package/deep.py", "elsewhere/far.py"])
def test_a_changed_file_of_a_subject_has_its_name(subject: Path, name: str):
    before = seal.seal(subject="mine:f")
    (subject / name).write_text("y = 2\n")
    assert f"subject {subject / name}" in seal.changed(before, seal.seal(subject="mine:f"))


def test_a_tensor_that_is_changed_or_gone_is_named(tmp_path: Path):
    path = tmp_path / "x.npy"
    cases = [replace(CASE, input=f"file:{path}")]
    np.save(path, np.zeros((16, 16), np.float32))
    before = seal.seal(cases)
    assert seal.changed(before, seal.seal(cases)) == []
    np.save(path, np.ones((16, 16), np.float32))
    assert seal.changed(before, seal.seal(cases)) == [f"tensor {path}"]
    path.unlink()
    assert seal.changed(before, seal.seal(cases)) == [f"tensor {path} (gone)"]


def test_a_device_or_a_pipe_has_no_digest_and_does_not_hold_up_a_run(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.ptx")
    (tmp_path / "zero.ptx").symlink_to("/dev/zero")
    for name in ("pipe.ptx", "zero.ptx"):
        (tmp_path / "card.yaml").write_text(f"code: {name}\nrecipe: swizzle\n")
        made = seal.seal(subject=str(tmp_path / "card.yaml"))
        assert {made[each] for each in made if each.endswith((name, "/dev/zero"))} == {seal.GONE}


def test_suites_elsewhere_count_and_those_of_the_harness_once(tmp_path: Path):
    path = tmp_path / "toy.yaml"
    path.write_text("a")
    made = seal.seal(suites=[path, ROOT / "suites" / "gemm.yaml"])
    assert {str(path), "suites/gemm.yaml", "harness/kernels/gemm.cu", "harness/records/seal.py"} <= made.keys()
    path.write_text("b")
    assert seal.changed(made, seal.seal(suites=[path])) == [str(path)]


def test_every_file_that_is_committed_is_a_source_or_decides_nothing():
    """Read by studies, checks and pages, or by people: no verdict on a case depends on them."""
    nothing = (
        "harness/bench/targets.yaml harness/check/capabilities.yaml harness/check/upstream.yaml harness/py.typed "
        "harness/commands/templates/ harness/kernels/README.md harness/report/templates/ harness/vectors/check.cpp "
        "ptx_emulator/py.typed suites/data/README.md suites/schema.json"
    )
    listed = subprocess.run(
        ["git", "ls-files", "-z", "harness", "ptx_emulator", "suites"], cwd=ROOT, capture_output=True, check=True
    )
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    left = {name for name in names - seal.seal().keys() if not name.startswith(tuple(nothing.split()))}
    assert not left, "what can change a verdict belongs into _HARNESS or _SUITES of harness/records/seal.py"


def test_other_values_of_an_instruction_are_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The digest once left out the chips' files, and a run on the emulator was continued with changed values."""
    (tmp_path / "chips").mkdir()
    monkeypatch.setattr(seal, "trees", lambda: (("ptx_emulator", tmp_path, seal._HARNESS),))
    found = set()
    for content in (b"1", b"2"):
        (tmp_path / "chips" / "sm_90.npz").write_bytes(content)
        found.add(seal.sources_digest())
    assert len(found) == 2


def test_a_package_of_another_version_is_named_with_both(monkeypatch: pytest.MonkeyPatch):
    before = seal.seal()
    monkeypatch.setattr(seal.metadata, "version", lambda name: "0.1")
    assert f"package numpy ({np.__version__} then, 0.1 now)" in seal.changed(before, seal.seal())


def test_resume_names_what_changed(tmp_path: Path):
    header = {"sources": "a", "sealed": {"suites/gemm.yaml": "1", "package numpy": "not installed"}}
    Journal(tmp_path, header, resume=False).close()
    Journal(tmp_path, header, resume=True).close()
    with pytest.raises(UsageError, match=r"its sources differ from this run's: suites/gemm.yaml; start anew"):
        Journal(tmp_path, {"sources": "b", "sealed": {**header["sealed"], "suites/gemm.yaml": "3"}}, resume=True)
    with pytest.raises(
        UsageError, match=r"its sources differ from this run's: package numpy \(not installed then, 3 now\); start"
    ):
        Journal(tmp_path, {**header, "sealed": {**header["sealed"], "package numpy": "3"}}, resume=True)


def test_few_of_many_changes_are_listed():
    assert seal.listed(["a", "b"]) == "a, b"
    assert seal.listed(list("abcde")) == "a, b, c and 2 more"


def test_a_seal_takes_little_time():
    took = []
    for _ in range(3):  # the best, because the collector may look through all that other tests left
        began = time.process_time()
        seal.seal([CASE], subject="torchao")
        took.append(time.process_time() - began)
    assert min(took) < 1.0, took
