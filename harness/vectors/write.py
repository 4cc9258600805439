"""A set of vectors in a folder: a `.safetensors` for each case, `index.json` for all, and the two checkers.

The same sources write the same bytes. Everything is made before anything is written, so that a folder with an index is
whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as serialized

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.errors import UsageError
from harness.expected.expected import Expected, expect
from harness.expected.witness.fields import counted as counted_values
from harness.files import PACKAGE, recipe_dir, storage, write_bytes
from harness.suite.suite_file import covers, file_of
from harness.vectors import acceptance, description

FORMAT = "nvfp4-vectors 1"
INDEX = "index.json"
MOST = 20_000_000  # bytes of all files
CHECKERS = ("check.py", "check.cpp")
_NUMERICS = ("oracles", "contract")  # folders with the sources that decide expected bytes


@dataclass(frozen=True)
class Vector:
    """One case: its file as bytes, and its entry in the index."""

    name: str
    content: bytes
    about: Mapping[str, Any]


def write(cases: Iterable[Case], out: Path) -> dict[str, int]:
    """Write a set into a new or empty folder; name of each file and its bytes.

    Raises UsageError for a folder that holds something, for a set of more than MOST bytes and where the oracles
    disagree, and StorageError.
    """
    with storage(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"--out {out} is there and not an empty folder; name a new one")
    files = contents(cases)
    total = sum(map(len, files.values()))
    if total > MOST:
        raise UsageError(f"the set would have {total:,} bytes, more than {MOST:,}; name fewer recipes")
    for name, content in files.items():
        write_bytes(out / name, content)
    return {name: len(content) for name, content in files.items()}


def contents(cases: Iterable[Case]) -> dict[str, bytes]:
    """Every file of a set, the index last."""
    vectors = [vector(case) for case in cases]
    files = {str(each.about["file"]): each.content for each in vectors}
    if len(files) < len(vectors):
        raise UsageError("two cases have the same name; names are the first 8 digits of a digest of the id")
    files |= {name: Path(__file__).with_name(name).read_bytes() for name in CHECKERS}
    return files | {INDEX: _index(vectors)}


def name_of(case: Case) -> str:
    return f"{case.recipe}-{hashlib.sha256(case.data_id.encode()).hexdigest()[:8]}"


def vector(case: Case) -> Vector:
    """The vector of a case. Raises UsageError unless both oracles were asked and agree."""
    found = expect(case)
    if found.disagreement or len(found.oracles) < 2:
        raise UsageError(f"{case.id}: {found.disagreement or 'only one oracle was asked'}; no vector is written")
    arrays = {f"input.{name}": array for name, array in found.inputs.items()}
    arrays |= {f"random.{name}": array for name, array in description.random_bytes(case)}
    about = description.of_case(case)
    about["arrays"] = {name: description.of_array(case, name, array) for name, array in arrays.items()}
    about["fields"] = {}
    allowed = acceptance.accepted(case, found.inputs, found.fields, found.values)
    for name, field in found.fields.items():
        ends = _ends(name, found.values[name])
        conventions: dict[str, dict[str, str]] = {}
        for each in allowed[name]:
            conventions[each.convention] = {"kind": each.kind}
            if each.array is not None:
                key = f"{each.kind}.{each.convention}.{name}"
                conventions[each.convention]["array"] = key
                ends[key] = each.array
        about["fields"][name] = description.of_field(name, field) | {
            "conventions": conventions,
            **_few(case, name, found),
        }
        arrays |= ends
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    about["sha256"] = {name: _digest(array.tobytes()) for name, array in arrays.items()}
    content = serialized(arrays)
    name = name_of(case)
    return Vector(name, content, {"file": f"{name}.safetensors", "digest": _digest(content), **about})


def _ends(name: str, value: np.ndarray | Interval) -> dict[str, np.ndarray]:
    if isinstance(value, Interval):
        return {f"lowest.{name}": value.low, f"highest.{name}": value.high}
    return {f"expected.{name}": value}


def _few(case: Case, name: str, found: Expected) -> dict[str, str]:
    """The suite's reason why a field has few different values; empty if it has enough."""
    counted = {field: (some, least) for field, _, some, least in counted_values(found.fields, found.values)}
    if counted[name][0] >= counted[name][1]:
        return {}
    reasons = [entry.because for entry in file_of(case.recipe).degenerate if covers(entry, case, name)]
    return {"few": f"{counted[name][0]} different values: {reasons[0] if reasons else 'it holds nothing'}"}


def _index(vectors: Sequence[Vector]) -> bytes:
    about = {
        "format": FORMAT,
        "numerics": {"document": "docs/numerics.md", "digest": numerics({each.about["recipe"] for each in vectors})},
        "holds": description.HOLDS,
        "arrays": "input.NAME is read, random.DIRECTION are the random bytes of its elements; expected.FIELD is what "
        "must be written, or any value from lowest.FIELD to highest.FIELD, in the order of numbers",
        "padding": description.PADDING,
        "swizzled": description.SWIZZLED,
        "slack": description.SLACK,
        "conventions": acceptance.MEANINGS,
    }
    head = json.dumps(about, indent=1, allow_nan=False).removesuffix("\n}")
    lines = [f"  {json.dumps(each.name)}: {json.dumps(each.about, allow_nan=False)}" for each in vectors]
    return (head + ',\n "vectors": {\n' + ",\n".join(lines) + "\n }\n}\n").encode()


def numerics(recipes: Collection[str] = ()) -> str:
    """A digest of the sources that say which bytes are right, so that two sets can be told apart.

    recipes: those of the set, of which a user's have oracles of their own
    """
    return _digest("".join(f"{path.name} {_digest(path.read_bytes())}\n" for path in _sources(recipes)).encode())


def _sources(recipes: Collection[str]) -> Iterator[Path]:
    for folder in _NUMERICS:
        yield from sorted((PACKAGE / folder).glob("*.py"))
    for recipe in sorted(recipes):
        if (folder := recipe_dir(recipe)) is not None:
            yield folder / f"{recipe}.py"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
