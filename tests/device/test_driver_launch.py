"""Launches that CuPy lacks, ours and a card's: what the driver is handed, by a stand-in that reads it."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from harness.device import driver_launch
from harness.device.driver_launch import Attribute, Config, DriverLaunch
from harness.device.launches import BoundLaunch, begins_early
from harness.errors import LaunchError, NoDevice, SuiteError

STREAM, FUNCTION, ADDRESS = 0x5000, 0x7000, 0x7F0000001000
EARLY = BoundLaunch(None, "_Z3toy", "toy<bf16>", ((5, 6, 7),), (256, 1, 1), None, early=True)
# Launches of a card have clusters, shared memory, and bytes for arguments.
FOREIGN = replace(EARLY, block=(32, 3, 1), early=False, cluster=(2, 1, 1), shared=128, where="card.yaml:4")


class FakeDriver:
    """Copies what a launch points to: `seen`. status: of each launch; name: its words for that, if any"""

    def __init__(self):
        self.seen: list[tuple] = []
        self.shared: list[tuple[int, ...]] = []
        self.status, self.name = 0, b"a sentence of the driver"

    def cuLaunchKernelEx(self, config, function, pointers, extra):  # noqa: N802 - as the driver calls it
        words = ctypes.string_at(ctypes.cast(config, ctypes.c_void_p), 56)
        attributes = int(np.frombuffer(words[40:48], np.uint64)[0])
        sizes = (8, 4, 8)
        arguments = [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]
        self.seen.append((words, ctypes.string_at(attributes, 72), function.value, arguments, extra))
        return self.status

    def cuFuncSetAttribute(self, function, attribute, value):  # noqa: N802
        self.shared.append((function.value, attribute, value))
        return 0

    def cuGetErrorString(self, status, out):  # noqa: N802
        if self.name:
            ctypes.cast(out, ctypes.POINTER(ctypes.c_char_p))[0] = self.name
        return 0 if self.name else 1

    cuGetErrorName = cuGetErrorString  # noqa: N815


@pytest.fixture
def fake(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(driver_launch, "driver", lambda: fake)
    stream = SimpleNamespace(ptr=STREAM)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    return fake


def made(launch: BoundLaunch = EARLY) -> DriverLaunch:
    array = SimpleNamespace(data=SimpleNamespace(ptr=ADDRESS))
    arguments = (array, np.int32(-3), np.uint64(1 << 63))
    return DriverLaunch(FUNCTION, launch, (5, 6, 7), arguments if launch is EARLY else (b"8" * 8, b"four", bytes(8)))


def test_structures_are_laid_out_as_the_driver_reads_them():
    assert (ctypes.sizeof(Config), ctypes.sizeof(Attribute)) == (56, 72)
    assert (Config.shared_bytes.offset, Config.stream.offset, Config.attributes.offset) == (24, 32, 40)
    assert (Config.attribute_count.offset, Attribute.value.offset) == (48, 8)


def test_a_launch_has_its_extents_stream_attribute_and_arguments(fake):
    launch = made()
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


def test_a_launch_of_a_card_has_its_cluster_and_its_shared_memory(fake):
    made(FOREIGN)()
    ((words, attribute, _, arguments, _),) = fake.seen
    assert list(np.frombuffer(words[:28], np.uint32)) == [5, 6, 7, 32, 3, 1, 128]
    assert int(np.frombuffer(words[48:52], np.uint32)[0]) == 1
    assert list(np.frombuffer(attribute[:20], np.uint32)) == [4, 0, 2, 1, 1]
    assert fake.shared == [(FUNCTION, 8, 128)]
    assert arguments == [b"8" * 8, b"four", bytes(8)]
    made(replace(FOREIGN, cluster=None))
    made(replace(FOREIGN, early=True))()
    assert int(np.frombuffer(fake.seen[1][0][48:52], np.uint32)[0]) == 2, "both attributes"
    made(replace(FOREIGN, cluster=None, together=True))()
    assert list(np.frombuffer(fake.seen[2][1][:12], np.uint32)) == [2, 0, 1], "cooperative"


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        (b"CUDA_ERROR_INVALID_CLUSTER_SIZE", SuiteError, "card.yaml:4: CUDA refuses the launch: CUDA_ERROR_INVALID_CL"),
        (
            b"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
            SuiteError,
            "card.yaml:4: CUDA refuses the launch: CUDA_ERROR_COOP",
        ),
        (b"CUDA_ERROR_OUT_OF_MEMORY", NoDevice, "card.yaml:4: CUDA: CUDA_ERROR_OUT_OF_MEMORY"),
        (b"CUDA_ERROR_LAUNCH_FAILED", LaunchError, "card.yaml:4: CUDA: CUDA_ERROR_LAUNCH_FAILED"),
        (b"", LaunchError, "card.yaml:4: CUDA: CUresult 912"),
    ],
)
def test_what_the_driver_refuses_of_a_card_names_its_line(fake, name, error, sentence):
    fake.status, fake.name = 912, name
    with pytest.raises(error, match=sentence):
        made(FOREIGN)()


@pytest.mark.parametrize(
    ("name", "words"),
    [(b"a sentence of the driver", r"a sentence of the driver \(CUresult 719\)"), (b"", "CUresult 719")],
)
def test_a_launch_that_the_driver_refuses_says_so(fake, name, words):
    fake.status, fake.name = 719, name
    with pytest.raises(LaunchError, match=f"cuLaunchKernelEx of toy<bf16>, early: {words}"):
        made()()


@pytest.mark.parametrize(
    ("library", "words"), [(OSError("no such file"), "cannot be loaded"), (SimpleNamespace(), "no cuLaunchKernelEx")]
)
def test_a_machine_without_such_launches_is_told_so(monkeypatch, library, words):
    def load(name):
        if isinstance(library, OSError):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    driver_launch.driver.cache_clear()
    with pytest.raises(LaunchError, match=words):
        driver_launch.driver()


def test_nothing_begins_early_before_sm_90():
    assert [begins_early(target) for target in ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")] == [
        False, False, True, True, True,
    ]  # fmt: skip
