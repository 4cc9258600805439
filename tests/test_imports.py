"""Imports go down, never round: no cycle between files, folders in one order, and little at the root."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from harness.files import ROOT

HARNESS = ROOT / "harness"
MOST_AT_THE_ROOT = 8

# Each folder may import itself and what stands before it; the emulator stands alone.
ORDER = (
    "text", "errors", "files", "private_files", "seconds", "contract", "inputs", "oracles", "jit", "suite", "emulator",
    "device", "triton_driver", "verdict", "verify", "api", "check", "records", "bench", "report", "gate", "subjects",
    "vectors", "shrink", "studies", "runner", "plugin", "commands", "cli", "__main__",
)  # fmt: skip


def modules(root: Path) -> dict[str, Path]:
    """Every Python file below `root/harness`, by the name it is imported by."""
    found = {}
    for path in sorted((root / "harness").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def named(path: Path, package: str) -> Iterator[str]:
    """Every module that a file may import: anywhere in it, for typing too, and by a name in a call of import_module."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package.split(".")[: -(level - 1) or None] if level else []
                base = ".".join([*above, *([module] if module else [])])
                yield base
                yield from (f"{base}.{name.name}" for name in names)
            case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[first, *_]):
                yield from _prefixes(first)


def _prefixes(argument: ast.expr) -> Iterator[str]:
    """A module's name in full, or the package that an f-string starts with."""
    if isinstance(argument, ast.Constant):
        yield str(argument.value)
    elif isinstance(argument, ast.JoinedStr) and isinstance(argument.values[0], ast.Constant):
        yield str(argument.values[0].value).rstrip(".")


def graph(root: Path) -> dict[str, set[str]]:
    """Module → modules it imports; importing a.b.c imports a and a.b as well, the root package aside."""
    files = modules(root)
    edges: dict[str, set[str]] = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = {other for other in named(path, package) if other in files}
        found |= {
            ".".join(parts[:end]) for parts in (other.split(".") for other in found) for end in range(2, len(parts))
        }
        edges[name] = found - {name, "harness"}
    return edges


def cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """Modules of a circle, or none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def room(module: str) -> str:
    return (module.split(".") + [""])[1]


def test_no_file_imports_itself_by_way_of_others():
    assert cycle(graph(ROOT)) == []


def test_folders_import_downwards():
    up = [
        f"{module} imports {other}"
        for module, others in graph(ROOT).items()
        for other in others
        if room(module) and room(other) and ORDER.index(room(module)) < ORDER.index(room(other))
    ]
    assert up == []


def test_the_emulator_imports_nothing_of_the_rest():
    edges = graph(ROOT)
    assert {room(other) for module, others in edges.items() if room(module) == "emulator" for other in others} == {
        "emulator", "private_files",
    }  # fmt: skip
    assert edges["harness.private_files"] == set()
    assert {room(module) for module, others in edges.items() if any(room(each) == "emulator" for each in others)} <= {
        "emulator", "device", "triton_driver", "subjects", "studies", "commands",
    }  # fmt: skip


def test_an_init_is_a_docstring_that_says_what_lives_there():
    for path in set(HARNESS.rglob("__init__.py")) - {HARNESS / "__init__.py"}:  # which hands out the API
        tree = ast.parse(path.read_text())
        plain = all(isinstance(each, ast.Expr | ast.Assign) for each in tree.body)
        assert plain and ast.get_docstring(tree), f"{path.relative_to(ROOT)} holds more than a docstring"


def test_few_modules_stand_at_the_root():
    assert len([path for path in HARNESS.glob("*.py") if not path.name.startswith("__")]) <= MOST_AT_THE_ROOT


@pytest.mark.parametrize(
    "text",
    [
        "import harness.a.two",
        "def late():\n    from harness.a.two import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import two",
        "import importlib\nimportlib.import_module('harness.a.two')",
    ],
)
def test_every_way_to_import_counts(tmp_path, text):
    folder = tmp_path / "harness" / "a"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text(text)
    (folder / "two.py").write_text("from harness.a import one\n")
    assert set(cycle(graph(tmp_path))) == {"harness.a.one", "harness.a.two"}


def test_what_an_init_imports_counts(tmp_path):
    folder = tmp_path / "harness" / "a"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from harness.a.one import x\n")
    (folder / "one.py").write_text("x = 1\n")
    (folder / "two.py").write_text("from harness.a.one import x\n")
    assert cycle(graph(tmp_path)) == []
    (folder / "one.py").write_text("from harness.a.two import y\n")
    assert cycle(graph(tmp_path))
