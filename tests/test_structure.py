"""What the layout promises: three trees with the same stems, numerics in one folder, independent oracles, bytes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.check import tree_rules
from harness.files import ROOT
from harness.jit.compile import include_closure
from harness.suite.suite import load_suites

KERNELS = ROOT / "harness" / "kernels"
ORACLES = ROOT / "harness" / "oracles"
PYTHON = sorted(path for tree in ("harness", "ptx_emulator", "evidence") for path in (ROOT / tree).rglob("*.py"))
CUDA = sorted(path for path in KERNELS.rglob("*") if path.suffix in {".cu", ".cuh"})
RECIPES = sorted(path.stem for path in KERNELS.glob("*.cu"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> list[str]:
    """Every module a file imports, wherever in the file; `from a import b` counts as `a.b`."""
    return [name for _, name in tree_rules.imports(ast.parse(path.read_text()))]


def test_a_recipe_is_a_kernel_a_suite_and_an_oracle():
    """A pipeline is a suite alone: its stages are other recipes."""
    suites = load_suites()
    assert [suite.recipe for suite in suites if not suite.file.pipeline] == RECIPES
    pipelines = {suite.recipe for suite in suites if suite.file.pipeline}
    assert pipelines & {path.stem for folder in (KERNELS, ORACLES) for path in folder.iterdir()} == set()
    assert set(RECIPES) <= {path.stem for path in ORACLES.glob("*.py")}


def test_every_kernel_that_a_suite_launches_is_in_its_file():
    from harness.jit.signature import read_signatures
    from harness.suite.suite import suite_of

    for recipe in RECIPES:
        launched = {launch.kernel for launch in suite_of(recipe).file.launches if launch.kernel}
        assert launched == set(read_signatures(recipe)), f"kernels of {recipe}.cu and launches of {recipe}.yaml differ"


# Kernels

# Headers in numerics/ say which byte; the rest says where, and when.


@pytest.mark.parametrize("name", ["nvfp4", "e2m1", "e4m3", "packed16"])
def test_the_numerics_are_there(name: str):
    """The pattern finds something where there is something to find."""
    assert tree_rules.NUMERICS.search((KERNELS / "numerics" / f"{name}.cuh").read_text())


@pytest.mark.parametrize("path", [path for path in CUDA if path.parent.name == "numerics"], ids=relative)
def test_the_numerics_know_no_places(path: Path):
    assert {name.partition("/")[0] for name in include_closure(path, KERNELS)} == {"numerics"}


# Oracles


def test_an_oracle_and_what_it_is_made_of_know_nothing_of_kernels():
    assert [error for path in sorted(ORACLES.glob("*.py")) for error in tree_rules.oracle_errors(path)] == []


@pytest.mark.parametrize("path", sorted(ORACLES.glob("*.py")), ids=relative)
def test_the_two_oracles_share_nothing(path: Path):
    """Only a recipe's own module knows both; what it calls is either NumPy's side or torch's."""
    if "def torch_oracle(" in path.read_text():
        return
    siblings = {name.split(".")[2] for name in imports(path) if name.startswith("harness.oracles.")}
    torch_side = path.stem.startswith("torch_")
    assert {name for name in siblings if name.startswith("torch_") != torch_side} == set()


HARNESS = ROOT / "harness"
INPUTS = sorted((HARNESS / "inputs").rglob("*.py"))


@pytest.mark.parametrize("path", INPUTS, ids=relative)
def test_inputs_share_nothing_with_the_oracles(path: Path):
    assert [name for name in imports(path) if "oracles" in name or "kernels" in name] == []


# Python


# One test for all files: as a test for each of them, collecting and reporting took longer than reading.


def test_no_check_vanishes_under_python_o_and_no_comparison_has_a_tolerance():
    assert [error for path in PYTHON for error in tree_rules.python_errors(path, ENVIRONMENT)] == []


ENVIRONMENT = {"HARNESS_CACHE", "HARNESS_DEBUG", "CUDA_VISIBLE_DEVICES", "MAKEFLAGS", "MAKELEVEL", "PYTHONPATH"}


def test_the_environment_chooses_no_numerics():
    """Variables may choose verbosity, a cache folder, which GPUs there are or a shown command, and these are they."""
    read = {name for path in PYTHON for name in tree_rules.VARIABLE.findall(path.read_text())}
    assert ENVIRONMENT - {"CUDA_VISIBLE_DEVICES"} <= read  # the pattern finds what there is


def test_what_is_imported_is_declared():
    spelled = {
        "yaml": "PyYAML",
        "cuda": "cuda-bindings",
        "elftools": "pyelftools",
        "pynvml": "nvidia-ml-py",
        "cupy": "cupy-cuda13x",
        "humming": "humming-kernels",
        "_pytest": "pytest",
        "pytest_benchmark": "pytest-benchmark",
        "xdist": "pytest-xdist",
        "pydantic_core": "pydantic",
    }
    extras = PROJECT["optional-dependencies"]
    declared = {re.split(r"[<>=]", name)[0] for names in (PROJECT["dependencies"], *extras.values()) for name in names}
    ours = {"harness", "ptx_emulator", "evidence", "__future__"}
    roots = {name.partition(".")[0] for path in PYTHON for name in imports(path)} - ours
    third_party = {spelled.get(root, root) for root in roots if root not in sys.stdlib_module_names}
    assert third_party <= declared


def test_nothing_that_was_built_or_downloaded_is_committed():
    asked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if asked.returncode:
        pytest.skip("no checkout of git")
    built = {".whl", ".so", ".o", ".a", ".cubin", ".fatbin", ".pyc", ".zip", ".gz", ".tgz", ".exe"}
    assert [name for name in asked.stdout.splitlines() if Path(name).suffix in built] == []


# Commands

TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def targets() -> set[str]:
    return set(TARGET.findall((ROOT / "Makefile").read_text()))


def test_every_make_target_has_a_sentence():
    for line in (ROOT / "Makefile").read_text().splitlines():
        if TARGET.match(line):
            assert re.search(r" ## [A-Z].*\.$", line), f"the Makefile's `{line}` lacks a sentence after ##"


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", ".ci/run", ".gitlab-ci.yml"])
def test_every_make_target_that_is_named_exists(name: str):
    text = (ROOT / name).read_text()
    # In prose a target is quoted, in a script it starts a command.
    called = re.findall(r"(?:`|^\s*(?:- |\$ |script: )?)make ([a-z][a-z -]*)", text, re.MULTILINE)
    assert called, f"{name} names no target"
    assert {target for words in called for target in words.split()} <= targets()


STANDS_ALONE = "harness/vectors/check.py"  # a checker for users without this package is one file


def test_no_file_is_longer_than_one_reads_at_once():
    files = [path for house in ("harness", "ptx_emulator", "evidence") for path in sorted((ROOT / house).rglob("*.*"))]
    text = [path for path in files if path.suffix in tree_rules.MOST_LINES]
    assert [error.partition(":")[0] for path in text for error in tree_rules.length_errors(path)] == [STANDS_ALONE]
