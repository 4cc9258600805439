"""The instructions that the emulator executes, those that the kernels use, and the test that covers each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.emulator.errors import NotEmulated
from harness.emulator.ptx.parser import parse
from harness.errors import NotCapable, UsageError
from harness.files import ROOT
from harness.jit.compile import Compiled
from harness.report.tables import markdown

ARCHES = ("sm_90a", "sm_100a")  # the emulator's
TESTS = ROOT / "tests" / "emulator"

_MEMORY = ("ld", "ldu", "st", "atom", "red", "cp", "ldmatrix")
_HINT = re.compile(r"\.(nc|cg|ca|cs|lu|cv|wb|wt|weak|L[12]::\w+)\b")
_SPACE = re.compile(r"\.(global|shared)\b")


@dataclass(frozen=True)
class Opcode:
    """One mnemonic. used: instantiations of the kernels that have it, by architecture; test: empty if there is none"""

    name: str
    used: Mapping[str, int]
    test: str


def plain(mnemonic: str) -> str:
    """The mnemonic without hints and defaults of PTX, so that one instruction has one name.

    Caches, eviction and prefetching are hints; an atomic is `relaxed` and `gpu` unless it says otherwise.
    """
    head = mnemonic.partition(".")[0]
    if head in ("bra", "ret", "brx"):
        return mnemonic.removesuffix(".uni")
    if head in ("bar", "barrier"):
        return mnemonic.replace(".cta.", ".")
    if head not in _MEMORY:
        return mnemonic
    mnemonic = mnemonic.replace(".shared::cta", ".shared")
    if head in ("atom", "red"):
        return mnemonic.replace(".relaxed", "").replace(".gpu", "")
    return re.sub(r"\.L[12]::\w+", "", mnemonic) if head == "cp" else _HINT.sub("", mnemonic)


def of_ptx(compiled: Compiled) -> set[str]:
    """The mnemonics of an instantiation, as the emulator reads them."""
    try:
        kernel = parse(compiled.ptx).kernel(compiled.symbol)
    except NotEmulated as error:
        raise NotCapable(str(error)) from None
    return {plain(instruction.mnemonic) for instruction in kernel.instructions}


def usage(found: Iterable[tuple[str, set[str]]]) -> dict[str, Counter[str]]:
    """For each mnemonic, the instantiations that have it by architecture, from the mnemonics of each."""
    used: dict[str, Counter[str]] = {}
    for arch, names in found:
        for name in names:
            used.setdefault(name, Counter())[arch] += 1
    return used


def executed() -> dict[str, str]:
    """Run the emulator's tests: for each mnemonic that a test covers and executes, that test. Takes half a minute.

    Raises UsageError if the tests are not there or one fails.
    """
    if not TESTS.is_dir():
        raise UsageError(f"{TESTS} is not there; the emulator's tests come with the repository, not with the package")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "opcodes.json"
        words = ["-m", "covers", "-n", "0", "-q", "-p", "no:cacheprovider", "-p", "harness.studies.opcodes.recorder"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", str(TESTS), *words, "--opcodes", str(path)],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise UsageError(f"the emulator's tests fail, so that none shows anything: {(said or ['nothing'])[-1]}")
        return json.loads(path.read_text())


def opcodes(used: Mapping[str, Counter[str]], tests: Mapping[str, str]) -> list[Opcode]:
    """Every mnemonic that a kernel uses or a test covers, by name."""
    return [Opcode(name, used.get(name, Counter()), tests.get(name, "")) for name in sorted({*used, *tests})]


def without_test(names: Iterable[str], tests: Iterable[str]) -> list[str]:
    """Mnemonics of the emulator's catalogue that no test covers.

    A name there stands for all spaces of an atomic, and all types and vectors of a load or a store; `/3`, which no PTX
    has, for a third source.
    """
    covered = {form for name in tests for form in _stand_ins(name)}
    return sorted(name for name in names if plain(name.removesuffix("/3")) not in covered)


def _stand_ins(name: str) -> set[str]:
    head, *parts = name.split(".")
    if head in ("atom", "red"):
        return {name, _SPACE.sub("", name)}
    if head in ("ld", "st"):
        return {name, ".".join([head, *(part for part in parts[:1] if part.isalpha() and part != "volatile")])}
    return {name}


def frame(found: Iterable[Opcode]) -> pd.DataFrame:
    """A row for each: its name, instantiations by architecture, its test."""
    return pd.DataFrame(
        [
            {"opcode": each.name, **{arch: each.used.get(arch, 0) for arch in ARCHES}, "test": each.test}
            for each in found
        ]
    )


def page(command: str, instantiations: Mapping[str, int], found: Iterable[Opcode]) -> str:
    """The table in Markdown. instantiations: how many there are, by architecture"""
    table = frame(found)
    in_use = table[list(ARCHES)].any(axis=1)
    others = table[~in_use]
    counts = " and ".join(f"{instantiations[arch]} for {arch}" for arch in ARCHES)
    text = [
        "# What the emulator executes",
        f"Made by `{command}`: every PTX instruction that the kernels' instantiations have ({counts}), how many have "
        "it, and the test of tests/emulator that has the emulator execute it and holds what comes out against "
        "arithmetic on exact fractions and integers, NumPy, or the manual's rules in plain loops. Hints that change no "
        "value are left out of the names.",
        markdown(table[in_use]),
        f"{len(others)} more are executed and tested the same way, and no kernel has them: opcodes.csv lists them.",
    ]
    return "\n\n".join(text) + "\n"
