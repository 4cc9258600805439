"""The list of mnemonics; tests/evidence/test_opcodes.py compares it with the tests of this folder."""

from __future__ import annotations

from ptx_emulator.catalogue import mnemonics


def test_the_catalogue_is_not_empty() -> None:
    assert len(mnemonics()) > 1500
    assert {"fma.rn.f32", "cvt.rn.satfinite.e2m1x2.f32", "shfl.sync.bfly.b32", "atom.inc.u32"} <= mnemonics()
