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
from pathlib import Path

import pandas as pd

from harness.errors import LaunchError, UsageError
from harness.files import ROOT
from harness.jit.compile import Compiled
from harness.report.tables import markdown
from ptx_emulator.errors import NotEmulated
from ptx_emulator.ptx.parser import parse

ARCHES = ("sm_90a", "sm_100a")  # the emulator's architectures
TESTS = ROOT / "tests" / "ptx_emulator"

_MEMORY = ("ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "mbarrier", "wmma")
_ORDER = re.compile(r"\.(acquire|release|relaxed|cta|cluster|aligned)\b")
_HINT = re.compile(r"\.(nc|cg|ca|cs|lu|cv|wb|wt|weak|L[12]::\w+)\b")
_SPACE = re.compile(r"\.(global|shared)\b")


def plain(mnemonic: str) -> str:
    """The mnemonic without hints and without PTX's defaults, so that an instruction has only one name.

    Caches, eviction and prefetching are hints; an atomic is `relaxed` and `gpu` by default.
    """
    head = mnemonic.partition(".")[0]
    if head in ("bra", "ret", "brx"):
        return mnemonic.removesuffix(".uni")
    if mnemonic.startswith("barrier.cluster."):
        return f"barrier.cluster{_ORDER.sub('', mnemonic.removeprefix('barrier.cluster'))}"
    if head in ("bar", "barrier"):
        return mnemonic.replace(".cta.", ".")
    if head not in _MEMORY:
        return mnemonic
    mnemonic = mnemonic.replace(".shared::cta", ".shared")
    if head == "mbarrier":
        return _ORDER.sub("", mnemonic.replace(".shared::cluster", ".shared"))
    if head in ("atom", "red"):
        return mnemonic.replace(".relaxed", "").replace(".gpu", "")
    return re.sub(r"\.L[12]::\w+", "", mnemonic) if head == "cp" else _HINT.sub("", mnemonic)


def of_ptx(compiled: Compiled) -> set[str]:
    try:
        kernel = parse(compiled.ptx).kernel(compiled.symbol)
    except NotEmulated as error:
        raise LaunchError(str(error)) from None
    return {plain(instruction.mnemonic) for instruction in kernel.instructions}


def usage(found: Iterable[tuple[str, set[str]]]) -> dict[str, Counter[str]]:
    """For each mnemonic, how many instantiations use it, by architecture.

    found: architecture and mnemonics of each instantiation
    """
    used: dict[str, Counter[str]] = {}
    for arch, names in found:
        for name in names:
            used.setdefault(name, Counter())[arch] += 1
    return used


def executed() -> dict[str, str]:
    """Run the emulator's tests, in half a minute; returns a test for each mnemonic that one covers and executes.

    Raises UsageError if the tests are not there or one fails.
    """
    if not TESTS.is_dir():
        raise UsageError(f"{TESTS} is not there; the emulator's tests come with the repository, not with the package")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "opcodes.json"
        options = ["-m", "covers", "-n", "0", "-q", "-p", "no:cacheprovider", "-p", "evidence.opcodes.recorder"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", str(TESTS), *options, "--opcodes", str(path)],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            output = (done.stdout + done.stderr).strip().splitlines()
            raise UsageError(f"the emulator's tests fail: {(output or ['no output'])[-1]}")
        return json.loads(path.read_text())


def without_test(names: Iterable[str], tests: Iterable[str]) -> list[str]:
    """Mnemonics of the emulator's catalogue that no test covers.

    A name in the catalogue covers all state spaces of an atomic, and all types and vectors of a load or store; the
    suffix `/3`, which is not PTX, marks a third source.
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


def table(used: Mapping[str, Counter[str]], tests: Mapping[str, str]) -> pd.DataFrame:
    """A row for each mnemonic that a kernel uses or a test covers: instantiations by architecture, and its test."""
    rows = []
    for name in sorted({*used, *tests}):
        counts = used.get(name, Counter())
        rows.append({"opcode": name, **{arch: counts[arch] for arch in ARCHES}, "test": tests.get(name, "")})
    return pd.DataFrame(rows)


def page(command: str, instantiations: Mapping[str, int], opcodes: pd.DataFrame) -> str:
    """The table in Markdown. instantiations: how many there are, by architecture; opcodes: from `table`"""
    in_use = opcodes[list(ARCHES)].any(axis=1)
    counts = " and ".join(f"{instantiations[arch]} for {arch}" for arch in ARCHES)
    text = [
        "# What the emulator executes",
        f"Made by `{command}`: every PTX instruction that the kernels' instantiations have ({counts}), how many have "
        "it, and the test of tests/ptx_emulator that has the emulator execute it and holds what comes out against "
        "arithmetic on exact fractions and integers, NumPy, or the manual's rules in plain loops. Hints that change no "
        "value are left out of the names.",
        markdown(opcodes[in_use]),
        f"{(~in_use).sum()} more are executed and tested the same way, and no kernel has them: opcodes.csv lists them.",
    ]
    return "\n\n".join(text) + "\n"
