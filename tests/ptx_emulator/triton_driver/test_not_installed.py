"""Without Triton there is one sentence, which says what to install."""

from __future__ import annotations

import sys

import pytest

import harness
from harness.errors import UsageError


@pytest.mark.parametrize("absent", ["triton", "torch", "triton.backends.nvidia"])
def test_one_sentence_says_what_to_install(absent: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, absent, None)
    with (
        pytest.raises(
            UsageError, match=r"triton_on needs Triton 3.6 or newer, and torch; pip install .*\[triton,torch\]"
        ),
        harness.triton_on(),
    ):
        pass
