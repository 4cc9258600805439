"""A subject, found by name, with its needs, refusals and conventions.

`start` loads it in a process of its own. `load` loads it in this process; only a subject's own process and the
comparison of public implementations do that.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.contract.case import Case, FlagValue, with_later
from harness.device.capability import DECLARED
from harness.errors import UsageError
from harness.subjects.convention import Choice, Convention
from harness.text import nearest, spell

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """One implementation.

    name: as the command line spells it; version: of its packages, and a digest of its source
    child: the process that it runs in; None if it was loaded into this one
    triton_target: the architecture that its Triton kernels are emulated as if there is no GPU; empty if it has none
    mends: known defects, each with a context in which the package runs without it
    choices: what it does otherwise, by name, each with a context in which it does not
    flags: the values that its module declares it is for, by flag (`harness.subjects.declared_flags`)
    """

    name: str
    version: str
    quantize: Callable[[Case, Arrays, Arrays], None]
    needs: Mapping[str, str] = field(default_factory=dict)
    refuses: Callable[[Case], str] = lambda case: ""
    conventions: frozenset[str] = frozenset()
    child: Any = None
    triton_target: str = ""
    mends: Mapping[str, Callable[[], AbstractContextManager[None]]] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    flags: Mapping[str, Sequence[FlagValue]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name} ({self.version})"

    def outside(self, case: Case) -> str:
        """Why a case is none that the declared flags are for; empty if it is. A recipe need not have all the flags."""
        for flag, values in with_later(self.flags, case.defaults).items():
            if flag in case.flags and case.flags[flag] not in values:
                return f"{DECLARED}{flag}={'|'.join(map(spell, values))}"
        return ""

    def absent(self) -> str:
        """A sentence on a missing package and how to install it; empty if nothing is missing."""
        missing = [line for name, line in self.needs.items() if not _version(name)]
        return f"subject {self.name} is not installed; `{'`, `'.join(missing)}`" if missing else ""


def load(name: str) -> Subject:
    """The subject of that name: a module of this folder, or `module:function` importable from here.

    Raises UsageError, with the nearest name, if there is none.
    """
    stem, _, function = name.partition(":")
    wrong = _misspelled(stem, function)
    if wrong:
        raise UsageError(wrong)
    if not function and (stem not in names() or ":" in name):
        raise UsageError(
            f"there is no subject {name!r}, and one of your own is spelled module:function{nearest(name, names())}"
        )
    module = _import(stem) if function else importlib.import_module(f"{__package__}.{stem}")
    quantize = getattr(module, function or "quantize", None)
    if not callable(quantize):
        choices = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise UsageError(f"{stem} has no function {function!r}{nearest(function, choices)}")
    if inspect.isclass(quantize):  # the subject is a class that keeps state from call to call
        quantize = quantize()
    needs = dict(getattr(module, "NEEDS", {}))
    return Subject(
        name,
        _described(needs, getattr(module, "__file__", None)),
        quantize,
        needs,
        getattr(module, "refuses", lambda case: ""),
        _conventions(name, getattr(module, "CONVENTIONS", ())),
        triton_target=getattr(module, "TRITON_TARGET", ""),
        mends=getattr(module, "MENDS", {}),
        choices=getattr(module, "CHOICES", {}),
    )


def _conventions(name: str, declared: Iterable[str]) -> frozenset[str]:
    """Check declared names.

    Raises UsageError for an unknown convention, which would otherwise silently allow nothing.
    """
    known = [str(convention) for convention in Convention]
    if isinstance(declared, str):
        raise UsageError(f"CONVENTIONS of subject {name} is {declared!r} alone; give a tuple or a set of names")
    for one in declared:
        if one not in known:
            raise UsageError(f"CONVENTIONS of subject {name} has {one!r}{nearest(str(one), known)}")
    return frozenset(declared)


def start(name: str, child: Any, flags: Mapping[str, Sequence[FlagValue]] | None = None) -> Subject:
    """Load the subject in the process `child`; no line of its module runs in this process. Raises UsageError.

    flags: that its module declares
    """
    needs, conventions = child.load()

    def quantize(*_: Any) -> None:
        raise TypeError(f"{name} is called in its own process")

    return Subject(
        name, _described(needs, source_of(name)), quantize, needs, child.refuses, conventions, child, flags=flags or {}
    )


def source_of(name: str) -> str | None:
    """The file of a subject's module, found without importing it or any package above it."""
    stem, _, function = name.partition(":")
    if not function:
        return str(Path(__file__).with_name(f"{stem}.py"))
    spec, folders = None, [str(Path.cwd()), *sys.path]
    parts = stem.split(".")
    for end in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), folders)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
    return spec.origin


def names() -> list[str]:
    here = sorted(Path(__file__).parent.glob("*.py"))
    return [path.stem for path in here if "\ndef quantize(" in path.read_text(encoding="utf-8")]


def _misspelled(stem: str, function: str) -> str:
    """A sentence on a module that is spelled as a file or not at all, with the right spelling; empty if it is right."""
    if not stem and function:
        return (
            f"':{function}' names no module; a function of your own is spelled module:function, as in mine:{function}"
        )
    path = Path(os.path.relpath(stem or "."))
    is_python = path.suffix == ".py" and not path.with_suffix("").is_dir()
    if not is_python and not {"/", os.sep} & set(stem):
        return ""
    parts = path.with_suffix("").parts if path.suffix == ".py" else path.parts
    if not all(part.isidentifier() for part in parts):
        return f"{stem!r} is no module that can be imported from here; in its folder, write module:function"
    return f"{stem!r} is spelled as a file; write {'.'.join(parts)}:{function or 'function'}"


def _import(stem: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(stem)
    except ModuleNotFoundError as missing:
        if missing.name and stem.split(".")[0] == missing.name.split(".")[0]:
            raise UsageError(f"there is no module {stem!r} to import from {here}") from None
        raise UsageError(f"{stem} cannot be imported: {missing}; put its own imports into its functions") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the module may raise anything; pytest's skip is not an Exception
        raise UsageError(f"{stem} cannot be imported: {type(error).__name__}: {error}") from None


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _described(needs: Mapping[str, str], path: str | None) -> str:
    source = f"source {hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]}" if path else "no source"
    return ", ".join([*(f"{each} {_version(each)}" for each in needs if _version(each)), source])
