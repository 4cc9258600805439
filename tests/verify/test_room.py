"""How many of the largest cases a machine has room for at a time."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import LONGEST

from harness.verify import room as module
from harness.verify.room import AT_A_TIME, LARGE, host_room


@dataclass
class Sized:
    elements: int


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(module, "PAUSE", 0.01)


def test_one_more_large_case_waits_until_another_ends() -> None:
    entered = threading.Event()

    def enter() -> None:
        with host_room(Sized(LARGE)):
            entered.set()

    with ExitStack() as rooms:
        for _ in range(AT_A_TIME):
            rooms.enter_context(host_room(Sized(LARGE)))
        thread = threading.Thread(target=enter)
        thread.start()
        time.sleep(0.1)
        assert not entered.is_set()
    thread.join(LONGEST)
    assert entered.is_set()


def test_a_case_that_is_not_large_never_waits() -> None:
    with ExitStack() as rooms:
        for _ in range(AT_A_TIME + 1):
            rooms.enter_context(host_room(Sized(LARGE - 1)))


def test_a_case_that_fails_leaves_its_place() -> None:
    for _ in range(AT_A_TIME + 1):
        with pytest.raises(ValueError, match="wrong"), host_room(Sized(LARGE)):
            raise ValueError("wrong")
