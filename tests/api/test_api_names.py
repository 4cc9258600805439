"""`import harness` is quick and hands out the API, and nothing else by chance."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import harness
from harness.errors import UsageError
from harness.files import PACKAGE, ROOT

HEAVY = ("numpy", "torch", "cupy", "numba", "pandas", "pydantic", "rich", "click", "pytest")


def test_importing_it_imports_nothing_heavy():
    program = f"import sys, harness; dir(harness); print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_import_harness_imports_no_triton():
    code = "import sys, harness; harness.triton_on; print('triton' in sys.modules, 'torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("absent", ["triton", "torch"])
def test_one_sentence_says_what_to_install(absent: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(UsageError, match=r"pip install .*\[triton,torch\]"), harness.triton_on():
        pass


def test_what_a_type_checker_sees_is_what_is_there():
    tree = ast.parse(Path(harness.__file__).read_text())
    typed = {
        alias.asname: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    typed = {name: module for name, module in typed.items() if name in harness.__all__}
    assert sorted(typed) == harness.__all__
    for name, module in typed.items():
        assert getattr(harness, name).__module__ == module
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("name", harness.__all__)
def test_a_name_is_no_folders_and_is_documented(name):
    found = getattr(harness, name)
    assert not (PACKAGE / name).exists() and not (PACKAGE / f"{name}.py").exists()
    assert inspect.getdoc(found)
    if inspect.isfunction(found):
        hints = typing.get_type_hints(found)
        assert set(inspect.signature(found).parameters) <= set(hints) and "return" in hints


def test_a_name_that_is_not_there_is_told():
    with pytest.raises(AttributeError, match="no attribute 'quantise'; it has AccessError, Case, "):
        _ = harness.quantise
