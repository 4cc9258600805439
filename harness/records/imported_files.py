"""The files of a module and of everything that it imports, found by reading them: nothing is imported or run.

Python's own modules, installed packages and the harness are left out; installed packages are listed by name.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_NOT_FOLLOWED = {"harness", "ptx_emulator", *sys.stdlib_module_names, *sys.builtin_module_names}
_INSTALLED = {"site-packages", "dist-packages"}
_MODULES = {".py", ".so"}
_BY_NAME = {"import_module", "__import__"}
_BY_PATH = {"spec_from_file_location", "run_path", "run_module", "exec", "SourceFileLoader"}
_LONGEST_NAME = 200  # characters of a folder's name


def imported_files(module: str) -> tuple[set[Path], set[str]]:
    """Files that running the module may load, and the installed packages that they import.

    All Python files and extension modules beside the module count, because a name that is computed cannot be read off.
    Where one is computed, so do those of the current folder and of the folders that PYTHONPATH names. A module is
    looked for in the folders of `sys.path`, and in those that a string of the code names, which may be put there later.
    """
    own = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    others = [each for each in sys.path if Path(each).name in _INSTALLED]  # an environment may go on in another one's
    installed = [Path(each).resolve() for each in (*own, *others)]
    installed += [place for each in sys.path if each not in others for place in _put_there(each)]
    files: set[Path] = set()
    named: list[str] = []  # folders that strings of the code name
    waiting, seen, followed = [module], set(), set()
    while waiting:
        name = waiting.pop()
        if (name, len(named)) in seen or (name.partition(".")[0] in _NOT_FOLLOWED and name != module):
            continue
        seen.add((name, len(named)))
        for spec in (_spec(name), *(_spec(name, [folder]) for folder in named)):
            origin = Path(spec.origin).resolve() if spec and spec.has_location and spec.origin else None
            if origin is None or origin in followed or any(origin.is_relative_to(folder) for folder in installed):
                continue
            followed.add(origin)
            tree = _tree(origin)
            beside = [origin.parent] if name == module else []
            beside += [Path(each) for each in _unfixed() if _computes_a_name(tree)]
            there = {path.resolve() for folder in beside for path in folder.glob("*") if path.suffix in _MODULES}
            files |= {path for path in there if not any(path.is_relative_to(folder) for folder in installed)}
            package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
            waiting += _imports(origin, package)
            new = [folder for folder in _folders(tree, origin.parent) if folder not in named]
            named += new
            waiting += [before for before, _ in seen] if new else []
    files |= followed
    roots = {name for path in files for name in _imports(path, "") if "." not in name} - _NOT_FOLLOWED
    return files, {root for root in roots if _installed(root, installed)}


@cache
def _put_there(folder: str) -> tuple[Path, ...]:
    """The files that pip put into a folder of any name, as by `--target`, from the records that it keeps there."""
    if not any(Path(folder).glob("*.dist-info")):
        return ()
    recorded = (file.parts[0] for each in metadata.distributions(path=[folder]) for file in each.files or ())
    return tuple(Path(folder, name).resolve() for name in sorted({*recorded} - {".."}))


def _unfixed() -> list[str]:
    """The folders that the user's surroundings put on `sys.path`. `sys.path` itself differs between our processes."""
    return [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _computes_a_name(tree: ast.Module) -> bool:
    """Whether code imports a module whose name or path cannot be read off it."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [(getattr(call.func, "id", getattr(call.func, "attr", "")), call.args[:1]) for call in calls]
    return any(
        name in _BY_PATH or (name in _BY_NAME and not (args and isinstance(args[0], ast.Constant)))
        for name, args in names
    )


def _folders(tree: ast.Module, beside: Path) -> Iterator[str]:
    """The folders that strings of the code name, relative to the current folder, to the file or to the folder above."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < _LONGEST_NAME:
            for start in (Path.cwd(), beside, beside.parent):
                with suppress(OSError, ValueError):
                    if node.value.strip("./") and (start / node.value).is_dir():
                        yield str((start / node.value).resolve())


def _spec(name: str, search: Sequence[str] = ()) -> ModuleSpec | None:
    """Find a module without importing its packages, in the folders of `sys.path` or in these."""
    search = search or [str(Path.cwd()), *sys.path]
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
