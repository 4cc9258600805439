"""Without Triton there is one sentence, which says what to install, and nothing imports it before it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ptx_emulator
from ptx_emulator.errors import UsageError


@pytest.mark.parametrize("absent", ["triton", "torch", "triton.backends.nvidia"])
def test_one_sentence_says_what_to_install(absent: str, monkeypatch: pytest.MonkeyPatch):
    sentence = r"triton_on needs Triton 3.6 or newer, and torch; pip install .*\[triton,torch\]"
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(UsageError, match=sentence), ptx_emulator.triton_on():
        pass


def test_the_emulator_imports_no_triton():
    code = "import sys, ptx_emulator; ptx_emulator.triton_on; print('triton' in sys.modules, 'torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
