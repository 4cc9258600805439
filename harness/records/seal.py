"""The seal of a run: a digest of each file and package that its verdicts depend on, made at the start and at the end.

The names say what a digest is of: `harness/verify/verify.py`, `suites/gemm.yaml`, `tensor /data/x.npy`,
`subject mine.py`, `package numpy`.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from harness.contract.case import Case
from harness.errors import UsageError
from harness.files import EMULATOR, INSTALLED, PACKAGE, RECIPE_DIRS, ROOT, SUITES, is_file, resolved_path
from harness.ground.yaml_lines import read
from harness.inputs import tensor_file
from harness.jit.foreign_sources import sources_of
from harness.records.imported_files import imported_files

Seal = dict[str, str]

GONE, NOT_INSTALLED = "gone", "not installed"
TENSOR, SUBJECT, PACKAGE_OF = "tensor ", "subject ", "package "
_SOURCES = {".py", ".cu", ".cuh"}
_HARNESS = _SOURCES | {".npz"}  # .npz: the emulator's tables of approximate instructions
_SUITES = {".yaml", ".csv", ".safetensors"}  # cases, counts of compared cases, and tensors
_CODE = {".ptx", ".cubin", ".cu", ".cuh", ".h"}
_PACKAGES = (
    "cuda-bindings", "cupy-cuda13x", "llvmlite", "ml_dtypes", "numba", "numpy", "nvidia-cuda-nvrtc", "pydantic",
    "PyYAML", "pytest", "pytest-benchmark", "pytest-xdist", "safetensors", "torch",
)  # fmt: skip
_MOST_NAMED = 3


def seal(cases: Iterable[Case] = (), suites: Iterable[Path] = (), subject: str = "") -> Seal:
    """Digests of the harness, of all suites and packages, and of this run's own files.

    cases: their `file:` tensors are included; suites: suite files of this run; subject: as the command line names it
    """
    made = _digests(_sources())
    made |= _digests((_named(path), path) for path in sorted(suites) if not path.is_relative_to(SUITES))
    made |= _digests((_named(path), path) for path in _users_sources())
    made |= tensors(cases)
    packages = set(_PACKAGES)
    if subject.endswith((".yaml", ".yml")):
        made |= _digests((f"{SUBJECT}{_named(path)}", path) for path in _card_files(resolved_path(Path(subject))))
    elif subject:
        files, roots = imported_files(subject.partition(":")[0] if ":" in subject else f"harness.subjects.{subject}")
        made |= _digests((f"{SUBJECT}{_named(path)}", path) for path in sorted(files) if not _ours(path))
        packages |= roots
    return (
        made
        | {f"{PACKAGE_OF}{name}": _version(name) for name in sorted(packages)}
        | {"Python": platform.python_version()}
    )


def links() -> list[str]:
    """Sentences on links in place of files, or folders of files, that decide verdicts, in a checkout.

    What a link leads to is in no commit, and of a linked folder nothing would be sealed. A checkout may lie under a
    link, and an installer may link every file of a wheel.
    """
    if INSTALLED:
        return []
    found = [folder for _, folder, _ in trees() if folder.is_symlink()]
    for _, top, suffixes in trees():
        for folder, below, names in os.walk(top):
            decide = (name for name in names if Path(name).suffix in suffixes)
            found += [path for path in (Path(folder, name) for name in (*below, *decide)) if path.is_symlink()]
    return [_is_a_link(path) for path in sorted(set(found))]


def require_no_link(path: Path) -> None:
    """Raise UsageError for a suite that is named by a link of the checkout. Elsewhere links are followed.

    There a suite is the user's own, of which the file that is read is sealed.
    """
    for each in (*reversed(path.absolute().parents), path.absolute()):
        if not INSTALLED and each.is_symlink() and resolved_path(each.parent).is_relative_to(ROOT):
            raise UsageError(_is_a_link(each))


def _is_a_link(path: Path) -> str:
    leads = f"{_named(path)} is a link to {path.readlink()}"
    return f"{leads}; what verdicts depend on lies in the tree itself, so put a copy in its place"


def tensors(cases: Iterable[Case]) -> Seal:
    """Digests of the tensor files that cases read."""
    return _digests((f"{TENSOR}{_named(path)}", path) for path in _tensors(cases))


def sources_digest() -> str:
    """A digest of all files that decide verdicts: the harness, its kernels, tables and suites, and their tensors."""
    made = _digests(_sources())
    return hashlib.sha256("\n".join(f"{name} {digest}" for name, digest in made.items()).encode()).hexdigest()


def selection_digest(ids: Iterable[str]) -> str:
    """A digest of a set of case ids."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The differences of two seals, a phrase each: `suites/gemm.yaml`, `package numpy (2.1.0 then, 2.2.0 now)`."""
    return [
        _phrase(name, before.get(name, GONE), now.get(name, GONE))
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def listed(phrases: Sequence[str]) -> str:
    """The first few of many phrases, and how many more there are."""
    more = len(phrases) - _MOST_NAMED
    return ", ".join(phrases[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _ours(path: Path) -> bool:
    return path.is_relative_to(PACKAGE) or path.is_relative_to(EMULATOR)


def trees() -> tuple[tuple[str, Path, set[str]], ...]:
    """The trees that decide verdicts: for each a name, its folder, and the endings of the files in it that count."""
    return ("harness", PACKAGE, _HARNESS), ("ptx_emulator", EMULATOR, _HARNESS), ("suites", SUITES, _SUITES)


def _sources() -> Iterator[tuple[str, Path]]:
    for name, folder, suffixes in trees():
        for path in sorted(folder.rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield f"{name}/{path.relative_to(folder)}", path


def _users_sources() -> list[Path]:
    """Kernels, headers and oracles in the folders of the user's recipes, one level deep, because one may be a home."""
    folders = sorted(set(RECIPE_DIRS.values()))
    found = (path for folder in folders for pattern in ("*", "*/*") for path in sorted(folder.glob(pattern)))
    return [path for path in found if path.suffix in _SOURCES and path.is_file()]


def _tensors(cases: Iterable[Case]) -> Collection[Path]:
    names = dict.fromkeys(case.input for case in cases if case.input.startswith(tensor_file.PREFIX))
    return dict.fromkeys(tensor_file.path_of(part) for name in names for part in tensor_file.parts_of(name))


def _card_files(card: Path) -> Iterator[Path]:
    """A card, the code that it names and what that includes, wherever it lies, and the code beside the card."""
    yield card
    with suppress(UsageError, OSError):  # reported where the card is read
        data = read(card, str(card)).data
        code = card.parent / str(data.get("code", "")) if isinstance(data, dict) else card
        yield code.resolve()
        if code.suffix == ".cu" and is_file(code):
            options = data.get("options") or []
            yield from sources_of(code, [*map(str, options)] if isinstance(options, list) else [], (card.parent,)).files
    yield from sorted(path for path in card.parent.glob("*") if path.suffix in _CODE and path.is_file())


def _named(path: Path) -> str:
    """A path from the repository's root, so that two machines agree on it; absolute if it is elsewhere."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _digests(files: Iterable[tuple[str, Path]]) -> Seal:
    return {name: _digest(path) for name, path in files}


def _digest(path: Path) -> str:
    if not is_file(path):
        return GONE  # a device or a pipe has no end; it is refused where it is read
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        return GONE


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


def _phrase(name: str, before: str, now: str) -> str:
    if name.startswith(PACKAGE_OF) or name == "Python":
        return f"{name} ({before} then, {now} now)"
    return f"{name} (new)" if before == GONE else f"{name} (gone)" if now == GONE else name
