"""The files of a module and of everything that it imports, found by reading them: nothing is imported or run.

Python's own modules, installed packages and the harness are left out; installed packages are listed by name.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_NOT_FOLLOWED = {"harness", *sys.stdlib_module_names, *sys.builtin_module_names}


def imported_files(module: str) -> tuple[set[Path], set[str]]:
    """Files that running the module may load, and the installed packages that they import.

    All Python files beside the module count, because a name that is computed cannot be read off.
    """
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")]
    files: set[Path] = set()
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        if name in seen or (name.partition(".")[0] in _NOT_FOLLOWED and name != module):
            continue
        seen.add(name)
        spec = _spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.has_location and spec.origin else None
        if origin is None or any(origin.is_relative_to(folder) for folder in installed):
            continue
        files.add(origin)
        if name == module:
            files |= {path.resolve() for path in origin.parent.glob("*.py")}
        package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        waiting += _imports(origin, package)
    roots = {name for path in files for name in _imports(path, "") if "." not in name} - _NOT_FOLLOWED
    return files, {root for root in roots if _installed(root, installed)}


def _spec(name: str) -> ModuleSpec | None:
    """Find a module without importing its packages."""
    search: Sequence[str] = [str(Path.cwd()), *sys.path]
    spec = None
    for part in name.split("."):
        try:
            # By the last part of its name: with a dotted name, a package without __init__.py needs its parent to be
            # imported.
            spec = PathFinder.find_spec(part, search)
        except (ImportError, OSError, ValueError):
            return None
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or ())
    return spec


def _imports(path: Path, package: str) -> Iterator[str]:
    """Every module that a file may import, those inside functions and by a literal name too, with their packages."""
    for node in ast.walk(_tree(path)):
        names: list[str] = []
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=module, names=aliases, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*above, *([module] if module else [])])
                names = [base, *(f"{base}.{alias.name}" for alias in aliases)]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                names = [name]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _tree(path: Path) -> ast.Module:
    try:
        # Where warnings are errors, as under pytest, a deprecated escape sequence would make the whole file unreadable.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _installed(root: str, installed: Sequence[Path]) -> bool:
    spec = _spec(root)
    return bool(spec and spec.origin and any(Path(spec.origin).resolve().is_relative_to(each) for each in installed))
