"""Mutated suites: one sentence, soon, or cases whose ids find them again."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

from evidence.mutated_text import mutated
from harness.errors import UsageError
from harness.files import SUITES
from harness.suite.suite import Suite, load_suite

# Relative frequencies: the larger suites take forty times as long, mostly for the covers of their axes.
OFTEN = {"casts": 8, "swizzle": 8, "dequantize": 4, "row_scaled": 2, "forward": 1, "grouped": 1, "gemm_grouped": 1}
CASES = 2  # cases of each set that must be found again by id


def trial(rng: random.Random) -> str:
    """Say what went wrong with one mutated suite; empty if nothing did."""
    originals = _originals()
    (name,) = rng.choices(list(OFTEN), list(OFTEN.values()))
    text = mutated(originals[name], rng, tuple(originals.values()))
    path = Path(_folder().name, "suites", f"{name}.yaml")
    path.write_bytes(text)
    try:
        said = refusal(path)
    except BaseException as error:
        error.add_note(f"\n{name}.yaml: {text!a}")
        raise
    finally:
        Suite._expand.cache_clear()  # otherwise every mutated suite would stay cached
    return "" if "\n" not in said and said.isprintable() else f"{said!a} is not one sentence; {text!a}"


def refusal(path: Path) -> str:
    """The sentence that refuses a suite; empty if it has cases, each of which its id finds again."""
    try:
        suite = load_suite(path)
        for name in suite.sets:
            for case in suite.cases(name)[:CASES]:
                if suite.find(case.id) != case:
                    raise ValueError(f"{case.id} finds {suite.find(case.id)}, not {case}")
    except UsageError as error:
        return str(error)
    return ""


@cache
def _originals() -> dict[str, bytes]:
    return {name: (SUITES / f"{name}.yaml").read_bytes() for name in OFTEN}


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the mutated suites, removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="nvfp4-fuzz-")
    Path(folder.name, "suites").mkdir()
    return folder
