"""Launches that may begin before the one ahead has ended: what the driver is handed, by a stand-in that reads it."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from harness.device import early_launch
from harness.device.early_launch import Attribute, Config, EarlyLaunch
from harness.device.launches import begins_early
from harness.errors import LaunchError

STREAM, FUNCTION, ADDRESS = 0x5000, 0x7000, 0x7F0000001000


class FakeDriver:
    """Copies what a launch points to: `seen`. status: of each launch; knows: whether it has words for that"""

    def __init__(self):
        self.seen: list[tuple] = []
        self.status, self.knows = 0, True

    def cuLaunchKernelEx(self, config, function, pointers, extra):  # noqa: N802 - as the driver calls it
        words = ctypes.string_at(ctypes.cast(config, ctypes.c_void_p), 56)
        attributes = int(np.frombuffer(words[40:48], np.uint64)[0])
        sizes = (8, 4, 8)
        arguments = [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]
        self.seen.append((words, ctypes.string_at(attributes, 72), function.value, arguments, extra))
        return self.status

    def cuGetErrorString(self, status, out):  # noqa: N802
        if self.knows:
            ctypes.cast(out, ctypes.POINTER(ctypes.c_char_p))[0] = b"a sentence of the driver"
        return 0 if self.knows else 1


@pytest.fixture
def fake(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(early_launch, "driver", lambda: fake)
    stream = SimpleNamespace(ptr=STREAM)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    return fake


def early() -> EarlyLaunch:
    array = SimpleNamespace(data=SimpleNamespace(ptr=ADDRESS))
    return EarlyLaunch(FUNCTION, "toy<bf16>", (5, 6, 7), 256, (array, np.int32(-3), np.uint64(1 << 63)))


def test_structures_are_laid_out_as_the_driver_reads_them():
    assert (ctypes.sizeof(Config), ctypes.sizeof(Attribute)) == (56, 72)
    assert (Config.shared_bytes.offset, Config.stream.offset, Config.attributes.offset) == (24, 32, 40)
    assert (Config.attribute_count.offset, Attribute.value.offset) == (48, 8)


def test_a_launch_has_its_extents_stream_attribute_and_arguments(fake):
    launch = early()
    for _ in range(2):
        launch()
    words, attribute, function, arguments, extra = fake.seen[1]
    assert list(np.frombuffer(words[:28], np.uint32)) == [5, 6, 7, 256, 1, 1, 0]
    assert int(np.frombuffer(words[32:40], np.uint64)[0]) == STREAM
    assert int(np.frombuffer(words[48:52], np.uint32)[0]) == 1
    assert list(np.frombuffer(attribute[:12], np.uint32)) == [6, 0, 1]
    assert not any(attribute[12:])
    assert (function, extra) == (FUNCTION, None)
    numbers = [int.from_bytes(each, "little") for each in arguments]
    assert numbers == [ADDRESS, (1 << 32) - 3, 1 << 63]
    assert fake.seen[0] == fake.seen[1]


@pytest.mark.parametrize(
    ("knows", "words"), [(True, r"a sentence of the driver \(CUresult 719\)"), (False, "CUresult 719")]
)
def test_a_launch_that_the_driver_refuses_says_so(fake, knows, words):
    fake.status, fake.knows = 719, knows
    with pytest.raises(LaunchError, match=f"cuLaunchKernelEx of toy<bf16>, early: {words}"):
        early()()


@pytest.mark.parametrize(
    ("library", "words"), [(OSError("no such file"), "cannot be loaded"), (SimpleNamespace(), "no cuLaunchKernelEx")]
)
def test_a_machine_without_such_launches_is_told_so(monkeypatch, library, words):
    def load(name):
        if isinstance(library, OSError):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    early_launch.driver.cache_clear()
    with pytest.raises(LaunchError, match=words):
        early_launch.driver()


def test_nothing_begins_early_before_sm_90():
    assert [begins_early(target) for target in ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")] == [
        False, False, True, True, True,
    ]  # fmt: skip
