"""Imports go down, never round: no cycle between files or folders, folders in one order, three packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from harness.files import ROOT

HARNESS = ROOT / "harness"
MOST_AT_THE_ROOT = 8

HOUSES = ("harness", "ptx_emulator", "evidence")
# Each folder of the harness may import itself, what stands before it, and the emulator if it is named below.
ORDER = (
    "text", "errors", "files", "ground", "contract", "inputs", "oracles", "jit", "suite", "device", "expected",
    "verdict", "verify", "api", "testing", "check", "records", "bench", "report", "gate", "subjects", "vectors",
    "shrink",
    "quality", "random_bits", "runner", "plugin", "commands", "cli", "__main__",
)  # fmt: skip
# The emulator's folders: the ground, PTX, what instructions compute and record, the machine, and its users.
ORDER_OF_THE_EMULATOR = (
    "errors", "registers", "schedule", "process_order", "private_files", "stored", "tensor_map", "counters", "ptx",
    "memory", "unset", "arithmetic", "approximate", "compiled", "races", "machine", "instructions", "catalogue",
    "allocation", "decode", "launches", "stream", "triton_driver",
)  # fmt: skip


def modules(root: Path) -> dict[str, Path]:
    """Every Python file of the three packages, by the name it is imported by."""
    found = {}
    for path in sorted(path for house in HOUSES for path in (root / house).rglob("*.py")):
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
        edges[name] = found - {name, *HOUSES}
    return edges


@cache
def ours() -> dict[str, set[str]]:
    """The graph of this checkout."""
    return graph(ROOT)


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
    assert cycle(ours()) == []


@pytest.mark.parametrize(("house", "order"), [("harness", ORDER), ("ptx_emulator", ORDER_OF_THE_EMULATOR)])
def test_folders_import_downwards(house, order):
    up = [
        f"{module} imports {other}"
        for module, others in ours().items()
        for other in others
        if module.startswith(f"{house}.") and other.startswith(f"{house}.")
        if order.index(room(module)) < order.index(room(other))
    ]
    assert up == []


def neighbours(edges: Mapping[str, set[str]], above: str) -> dict[str, set[str]]:
    """The folders in the folder `above`, and `above` itself for its own files → those of them that they import.

    Of a house, each file of its own stands for itself.
    """
    at = above.count(".") + 2
    folders = {".".join(module.split(".")[:at]) for module in edges if module.count(".") >= at}

    def node(module: str) -> str:
        child = ".".join(module.split(".")[:at])
        return child if child in folders or above in HOUSES else above

    inside = {module: node(module) for module in edges if module.startswith(f"{above}.")}
    found: dict[str, set[str]] = {name: set() for name in inside.values()}
    for module, name in inside.items():
        found[name] |= {inside[other] for other in edges[module] if other in inside} - {name}
    return found


def circles(edges: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Folder → a circle of the folders in it and its own files, where there is one. Files without one could make it."""
    folders = {".".join(name.split(".")[:end]) for name in edges for end in range(1, name.count(".") + 1)}
    found = {above: cycle(neighbours(edges, above)) for above in sorted(folders)}
    return {above: each for above, each in found.items() if each}


def test_no_folders_form_a_circle():
    assert circles(ours()) == {}


@pytest.mark.parametrize(
    ("arrows", "above"),
    [
        ("harness.a.one harness.b.two harness.b.three harness.a.four", "harness"),
        ("harness.a.one harness.a.b.two harness.a.b.three harness.a.four", "harness.a"),
        ("evidence.a.b.one evidence.a.c.d.two evidence.a.c.three evidence.a.b.four", "evidence.a"),
        ("ptx_emulator.one ptx_emulator.b.two ptx_emulator.b.three ptx_emulator.one", "ptx_emulator"),
    ],
)
def test_a_circle_of_folders_is_found(arrows, above):
    one, two, three, four = arrows.split()
    edges = {name: set() for name in arrows.split()} | {one: {two}}
    assert circles(edges) == {}
    edges[three].add(four)
    assert cycle(edges) == [] and list(circles(edges)) == [above]


MAY_IMPORT = {"ptx_emulator": {"ptx_emulator"}, "harness": {"harness", "ptx_emulator"}, "evidence": set(HOUSES)}


def test_the_emulator_imports_nothing_of_ours_and_nobody_the_evidence():
    found = {
        f"{path.relative_to(ROOT)} imports {name}"
        for house, allowed in MAY_IMPORT.items()
        for path in sorted((ROOT / house).rglob("*.py"))
        for name in named(path, ".".join(path.relative_to(ROOT).parts[:-1]))
        if name.partition(".")[0] in set(HOUSES) - allowed
    }
    assert found == set()


def test_nothing_imports_a_verb_of_the_evidence():
    edges = ours()
    below = {
        module for module in edges if module.startswith("evidence.") and room(module) not in ("commands", "__main__")
    }
    assert {each for module in below for each in edges[module] if each.startswith("evidence.commands")} == set()


def test_few_folders_of_the_harness_import_the_emulator():
    edges = ours()
    above = {
        (room(module), other.split(".")[1] == "private_files")
        for module, others in edges.items()
        for other in others
        if module.startswith("harness.") and other.startswith("ptx_emulator.")
    }
    assert {folder for folder, _ in above} <= {"jit", "device", "api", "subjects", "commands"}
    assert ("jit", False) not in above, "harness/jit keeps its cache in the emulator's folder, and takes nothing else"


def test_the_emulator_has_a_small_face():
    import ptx_emulator

    assert len(ptx_emulator.__all__) <= 10
    assert [name for name in ptx_emulator.__all__ if not getattr(ptx_emulator, name).__doc__] == []
    assert set(ptx_emulator.__all__) <= set(dir(ptx_emulator))
    with pytest.raises(AttributeError, match="has no attribute 'Kernel'; it has Buffer, Fault, "):
        ptx_emulator.Kernel  # noqa: B018


def test_an_init_is_a_docstring_that_says_what_lives_there():
    found = {path for house in HOUSES for path in (ROOT / house).rglob("__init__.py")}
    for path in found - {ROOT / house / "__init__.py" for house in HOUSES}:  # which hand out what each has
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
