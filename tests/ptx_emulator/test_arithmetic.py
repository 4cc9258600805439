"""Every mnemonic of the arithmetic tables against exact scalar arithmetic, on edges and random operands."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from expectations import expected
from operands import draw
from ptx_snippets import apply

from ptx_emulator.arithmetic.mixed import MIXED
from ptx_emulator.catalogue import mnemonics
from ptx_emulator.instructions import moves
from ptx_emulator.instructions.arithmetic import ARITHMETIC

DECODED = [name for name in moves.mnemonics() if name.startswith(("set", "v"))]


def family(name: str) -> str:
    """Mnemonics tested together: the head and its last type."""
    parts = name.split(".")
    return f"{parts[0]}.{parts[-1]}"


def families(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(family(name), []).append(name)
    return found


# test_mixed has the instructions of MIXED.
FAMILIES = families([*(name for name in ARITHMETIC if name not in MIXED), *DECODED])


def check(mnemonic: str) -> None:
    result, kinds, function = expected(mnemonic)
    operands = draw(mnemonic, kinds)
    got = apply(mnemonic.removesuffix("/3"), result, kinds, operands)
    wanted = [function(*(int(column[i]) for column in operands)) for i in range(len(got))]
    for i, (ours, right) in enumerate(zip(got.tolist(), wanted, strict=True)):
        if int(ours) != int(right):
            shown = ", ".join(f"{int(column[i]):#x}" for column in operands)
            pytest.fail(f"{mnemonic}({shown}) = {int(ours):#x}, should be {int(right):#x}")


def covering(names: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.covers(*(name.removesuffix("/3") for name in names))


@pytest.mark.sweep
@pytest.mark.parametrize("name", [pytest.param(name, marks=covering(names)) for name, names in FAMILIES.items()])
def test_matches_exact_arithmetic(name: str) -> None:
    for mnemonic in FAMILIES[name]:
        check(mnemonic)


def test_operands_broadcast_from_constants() -> None:
    a = np.arange(256, dtype=np.uint32) * 0x01010101
    assert (apply("and.b32", "b32", ["b32"], [a], ", 0x7FFF7FFF") == (a & 0x7FFF7FFF)).all()
    assert (apply("max.u32", "b32", ["b32"], [a], ", 77") == np.maximum(a, 77)).all()


def test_the_catalogue_is_not_empty() -> None:
    """tests/evidence/test_opcodes.py compares it with the tests of this folder."""
    assert len(mnemonics()) > 1500
    assert {"fma.rn.f32", "cvt.rn.satfinite.e2m1x2.f32", "shfl.sync.bfly.b32", "atom.inc.u32"} <= mnemonics()
