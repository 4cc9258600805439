"""Journal of hunts: a line for each mutant, on disk at once, so that a run continues where the last one ended.

A line is valid until one of its inputs changes: the mutant, the code that makes verdicts and, if the diagnosis named
the cause, the diagnosis. A new case invalidates no line, except that a mutant which the smoke sets missed is run again
when their cases change. A survivor is run again every time, unless the journal knows the search: then it is run again
when any set of cases, or the search, changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from evidence.mutants.catalogue import Mutant
from evidence.mutants.hunt import SMOKE, Catch
from evidence.mutants.reach import recipes_of
from harness.files import EMULATOR, PACKAGE
from harness.records.seal import selection_digest
from harness.suite.suite import suite_of

# Folders whose files decide which case catches a mutant, and by which cause.
_VERDICTS = ("contract", "device", "ptx_emulator", "inputs", "jit", "kernels", "oracles", "suite", "verify")
_DIAGNOSIS = ("verify/diagnosis",)


class Journal:
    """The valid records of a file, by mutant; new ones are appended.

    anew: ignore the records of these mutants
    search: what decides, besides the cases, whether a mutant survives; empty to run survivors again every time
    """

    def __init__(self, path: Path, mutants: Sequence[Mutant], anew: bool = False, search: str = ""):
        self.path = path
        self._keys = {mutant.name: _key(mutant) for mutant in mutants}
        self._smoke = {mutant.name: _smoke_ids(recipes_of(mutant.file)) for mutant in mutants}
        self._search = search
        self._ids = {mutant.name: _all_ids(recipes_of(mutant.file)) if search else "" for mutant in mutants}
        self.known: dict[str, Catch] = {}
        for record in _records(path):
            key, diagnosis, smoke = record.pop("key"), record.pop("diagnosis"), record.pop("smoke")
            searched, ids = record.pop("search", ""), record.pop("ids", "")
            catch = Catch(**record)
            same = key == self._keys.get(catch.mutant) and diagnosis in ("", _digest(_DIAGNOSIS))
            if anew or not same:
                continue
            same_search = search and ids == self._ids[catch.mutant] and (catch.discarded or searched == search)
            if _in_smoke(catch) or (smoke == self._smoke[catch.mutant] and (catch.by or same_search)):
                self.known[catch.mutant] = catch

    def add(self, catch: Catch) -> None:
        self.known[catch.mutant] = catch
        diagnosis = _digest(_DIAGNOSIS) if catch.diagnosed else ""
        decided_by = {"key": self._keys[catch.mutant], "diagnosis": diagnosis, "smoke": self._smoke[catch.mutant]}
        if self._search:
            decided_by |= {"search": self._search, "ids": self._ids[catch.mutant]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**decided_by, **asdict(catch)}, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _records(path: Path) -> Iterable[dict]:
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    if lines and not lines[-1].endswith(b"\n"):  # the process died in the middle of this line
        os.truncate(path, path.stat().st_size - len(lines.pop()))
    return map(json.loads, lines)


def _in_smoke(catch: Catch) -> bool:
    return catch.of_set == SMOKE and any(
        case.id == catch.by for case in suite_of(catch.by.partition("/")[0]).cases(SMOKE)
    )


@cache
def _smoke_ids(recipes: Sequence[str]) -> str:
    ids = [case.id for recipe in recipes for case in suite_of(recipe).cases(SMOKE)]
    return selection_digest(ids)


@cache
def _all_ids(recipes: Sequence[str]) -> str:
    suites = [suite_of(recipe) for recipe in recipes]
    return selection_digest(case.id for suite in suites for of_set in suite.sets for case in suite.cases(of_set))


def _key(mutant: Mutant) -> str:
    suites = [_without_sets(recipe) for recipe in recipes_of(mutant.file)]
    change = mutant.model_dump_json(include={"file", "scope", "right", "wrong", "number"})
    return hashlib.sha256("\0".join((_digest(_VERDICTS), change, *suites)).encode()).hexdigest()


@cache
def _without_sets(recipe: str) -> str:
    return suite_of(recipe).file.model_dump_json(exclude={"sets"})


@cache
def _digest(folders: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        top = EMULATOR if folder == EMULATOR.name else PACKAGE / folder
        paths = [path for path in sorted(top.rglob("*")) if path.suffix in {".py", ".cu", ".cuh"}]
        if not paths:
            raise FileNotFoundError(f"{top} holds no sources")
        for path in paths:
            if folder == "verify/diagnosis" or PACKAGE / "verify" / "diagnosis" not in path.parents:
                digest.update(f"{folder}/{path.relative_to(top)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
