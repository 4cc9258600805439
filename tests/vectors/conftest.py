"""A small set on disk, and the two checkers, each called with words and giving exit code, output and error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from own_recipe import in_use
from vector_sets import IDS, MXFP8, Checker, Said, VectorSet, in_python

from harness.files import PACKAGE, ROOT
from harness.suite.suite import find_case
from harness.vectors.write import write

COMPILE = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover")


@pytest.fixture(scope="session")
def vectors(tmp_path_factory) -> VectorSet:
    folder = tmp_path_factory.mktemp("vectors") / "set"
    write([find_case(each) for each in IDS], folder)
    return VectorSet(folder)


@pytest.fixture
def of_example(tmp_path) -> Iterator[VectorSet]:
    """A vector of a recipe that is a folder, which is in use."""
    with in_use(ROOT / "examples" / "mxfp8"):
        write([find_case(MXFP8)], tmp_path / "mxfp8")
        yield VectorSet(tmp_path / "mxfp8")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Path:
    """check.cpp with the compiler's warnings and checks, once for all processes of a run."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler is here")
    folder = tmp_path_factory.getbasetemp()
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "check_of_vectors"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            source = PACKAGE / "vectors" / "check.cpp"
            done = subprocess.run([compiler, *COMPILE, "-o", path, source], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(params=["python", "c++"])
def checker(request) -> Checker:
    if request.param == "python":
        return in_python
    path = request.getfixturevalue("compiled")

    def call(*words: object) -> Said:
        done = subprocess.run([path, *map(str, words)], capture_output=True)
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode("utf-8", "replace"))

    return call


@pytest.fixture
def standalone(vectors) -> list[str]:
    """The command that runs the set's own check.py, without this package and without others."""
    return [sys.executable, "-I", "-S", str(vectors.folder / "check.py")]
