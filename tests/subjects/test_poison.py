"""What depends on unpromised bytes is found, to the byte, by kernels that are lines of Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from harness.contract.field import Field
from harness.device.device import Outcome
from harness.errors import AccessError
from harness.subjects.card.form import Form, Promised
from harness.subjects.card.schema import ArrayForm
from harness.subjects.handshake.poison import FILLS, RANDOM, Leak, Poisoning, overwritten

SIZE = 64
MASK = np.arange(SIZE) >= 40
Kernel = Callable[[Mapping[str, np.ndarray]], np.ndarray]


class Program:
    def __init__(
        self, kernel: Kernel, inputs: Mapping[str, np.ndarray], marks: Mapping[str, np.ndarray], reads: set[int]
    ):
        self.kernel, self.inputs, self.marks, self.reads = kernel, inputs, marks, reads

    def run(self, poison: int, repeat: int) -> Outcome:
        for name, mask in self.marks.items():
            for byte in sorted(self.reads):
                if mask[byte]:
                    raise AccessError(
                        "unwritten_read",
                        "own.cu:7",
                        f"reads 1 bytes at byte {byte} of {name}",
                    )
        return Outcome({"out": self.kernel(self.inputs)})


def poisoning(kernel: Kernel, reads: set[int] = frozenset(), marks: bool = True, more: Mapping = {}) -> Poisoning:
    inputs = {"a": np.zeros(SIZE, np.uint8), **more}
    masks = {name: MASK for name in inputs}

    def prepare(given: Mapping[str, np.ndarray], faults: Mapping[str, np.ndarray]) -> Program:
        return Program(kernel, given, faults, reads)

    return Poisoning(inputs, masks, {"out": kernel(inputs)}, prepare, marks)


def leak(kernel: Kernel, **more: object) -> Leak | None:
    return poisoning(kernel, **more).leak()


def total(given: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.array([given["a"][:40].sum()], np.uint8)


def test_a_kernel_that_reads_only_what_is_promised():
    assert leak(total) is None


@pytest.mark.parametrize("byte", [40, 41, 52, 62, 63])
def test_the_byte_that_is_read_is_found(byte: int):
    found = leak(lambda given: np.array([0, given["a"][byte]], np.uint8), reads={byte})
    assert (found.array, found.byte, found.output, found.at, found.before) == ("a", byte, "out", 1, 0)
    assert found.read == f"own.cu:7: reads 1 bytes at byte {byte} of a" and found.after == found.fill == FILLS[0]


@pytest.mark.parametrize(
    "fill, kernel",
    [
        (0xA5, lambda given: given["a"][45:46] & 1),
        (0x5A, lambda given: given["a"][45:46] >> 1 & 1),
        (0x7F, lambda given: (given["a"][45:46] & 0x7F == 0x7F) & (given["a"][45:46] < 0x80)),
        (0xFF, lambda given: given["a"][45:46] == 0xFF),
        (RANDOM, lambda given: given["a"][45:46] != given["a"][46:47]),
    ],
)
def test_each_filling_finds_what_no_other_does(fill: int, kernel: Kernel):
    assert leak(lambda given: kernel(given).astype(np.uint8)).fill == fill


def test_the_array_is_named_and_an_address_that_goes_wrong_is_a_finding():
    def follows(given: Mapping[str, np.ndarray]) -> np.ndarray:
        if given["b"][50]:
            raise AccessError("out_of_bounds", "own.cu:9", "reads 4 bytes")
        return np.zeros(1, np.uint8)

    found = leak(follows, more={"b": np.zeros(SIZE, np.uint8)})
    assert (found.array, found.byte, found.output, found.read) == ("b", 50, "", "own.cu:9: reads 4 bytes")


def test_what_two_arrays_do_together():
    def both(given: Mapping[str, np.ndarray]) -> np.ndarray:
        return given["a"][60:61] & given["b"][60:61]

    assert leak(both, more={"b": np.zeros(SIZE, np.uint8)}).count == 1


def test_without_marks_there_is_no_line():
    """A GPU does not mark what is read, so no line can be named there."""
    kernel = poisoning(lambda given: given["a"][45:46], reads={45}, marks=False)
    assert kernel.leak().read == "" and kernel.forbidden("a") == ""
    assert poisoning(total, reads={45}).forbidden("a") == "own.cu:7: reads 1 bytes at byte 45 of a"


def test_bytes_are_overwritten_in_any_dtype():
    array = np.arange(4, dtype=np.float32)
    mask = np.repeat([False, True, False, True], 4)
    found = overwritten(array, mask, 0xFF)
    assert np.isnan(found[[1, 3]]).all() and (found[[0, 2]] == [0, 2]).all() and (array == range(4)).all()


class OnGpu:
    """An array that is none of NumPy."""

    def __init__(self, content: np.ndarray):
        self.content = content

    def copy(self) -> OnGpu:
        return OnGpu(self.content.copy())

    def __setitem__(self, places: np.ndarray, values: np.ndarray) -> None:
        self.content[places] = values


@pytest.mark.parametrize("on_gpu", [False, True])
def test_outputs_are_as_expected_where_nothing_is_promised(on_gpu: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=np.asarray))
    form = Form("s", Field((128, 4), "uint8", valid=(16, 3)), ArrayForm(padding="anything"))
    expected = np.arange(512, dtype=np.uint16).astype(np.uint8).reshape(128, 4)
    written = np.full(512, 7, np.uint8)
    program = SimpleNamespace(run=lambda *_: Outcome({"s": OnGpu(written) if on_gpu else written}))
    found = Promised(program, {"s": form}, {"s": expected}).run(0, 0).outputs["s"]
    found = found.content if on_gpu else found
    assert (found == np.where(form.promised, 7, expected.reshape(-1))).all() and form.promised.sum() == 48
