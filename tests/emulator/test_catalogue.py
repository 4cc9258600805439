"""Every mnemonic that the emulator executes is executed by some test of this folder. The table says by which."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.emulator.catalogue import mnemonics
from harness.emulator.forms import ARITHMETIC

# Test file → beginnings of the mnemonics it is there for. The arithmetic tables are walked whole by test_arithmetic.
COVERED = {
    "test_arithmetic.py": ("setp.",),
    "test_forms.py": ("mov.", "selp.", "slct.", "lop3.b32", "cvta.", "ld", "st"),
    "test_memory.py": ("ld.", "st.", "atom.", "red."),
    "test_copies.py": ("cp.async.",),
    "test_mma.py": ("mma.",),
    "test_ldmatrix.py": ("ldmatrix.",),
    "test_wgmma.py": ("wgmma.", "fence.proxy.async"),
    "test_exchange.py": ("shfl.", "vote.", "redux.", "match.", "elect.", "activemask."),
    "test_control.py": (
        "bra", "brx.idx", "ret", "exit", "trap", "bar.", "barrier.sync", "membar.", "fence.", "prefetch.", "nanosleep.",
        "griddepcontrol.",
    ),
}  # fmt: skip


def covering(mnemonic: str) -> list[str]:
    if mnemonic in ARITHMETIC:
        return ["test_arithmetic.py"]
    return [file for file, beginnings in COVERED.items() if mnemonic.startswith(beginnings)]


def test_every_mnemonic_has_a_test() -> None:
    assert [mnemonic for mnemonic in sorted(mnemonics()) if not covering(mnemonic)] == []


def test_the_catalogue_is_not_empty() -> None:
    assert len(mnemonics()) > 1500
    assert {"fma.rn.f32", "cvt.rn.satfinite.e2m1x2.f32", "shfl.sync.bfly.b32", "atom.inc.u32"} <= mnemonics()


@pytest.mark.parametrize("file", COVERED)
def test_the_table_names_tests_that_exist(file: str) -> None:
    text = (Path(__file__).parent / file).read_text()
    for beginning in COVERED[file]:
        assert beginning.rstrip(".") in text, f"{file} does not mention {beginning}"
