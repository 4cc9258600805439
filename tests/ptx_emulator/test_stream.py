"""Launches that begin before the last has ended: what may be touched, and when."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_source import buffer, line_of, module

from ptx_emulator.errors import Fault
from ptx_emulator.launches import Module
from ptx_emulator.stream import Stream

SOURCE = r"""
extern "C" __global__ void first(int* a) {
  TRIGGER
  a[threadIdx.x] = threadIdx.x;  // write
}
extern "C" __global__ void second(int* a, int* b) {
  WAIT
  b[threadIdx.x] = a[threadIdx.x] + 1;  // read
  asm volatile("griddepcontrol.launch_dependents;");
}
extern "C" __global__ void third(int* a, int* b, int* c) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  c[threadIdx.x] = b[threadIdx.x];  // after
  c[threadIdx.x] += a[threadIdx.x];  // long after
}
extern "C" __global__ void over(int* a) {
  WAIT
  a[threadIdx.x] = 9;  // over
}
"""
WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
TRIGGER = 'asm volatile("griddepcontrol.launch_dependents;");  // trigger'


def source(wait: str, trigger: str = TRIGGER) -> str:
    return SOURCE.replace("WAIT", wait).replace("TRIGGER", trigger)


class StreamMemory:
    """Three arrays, and a stream that launches on them."""

    def __init__(self, text: str):
        self.arrays = {name: np.zeros(64, np.int32) for name in "abc"}
        self.buffers = {name: buffer(name, array) for name, array in self.arrays.items()}
        self.module: Module = module(text)
        self.stream = Stream()

    def launch(self, kernel: str, names: str, early: bool) -> None:
        self.stream.launch(
            self.module, kernel, (1, 1, 1), (64, 1, 1), [self.buffers[name] for name in names], early=early
        )


@pytest.mark.covers("griddepcontrol.wait", "griddepcontrol.launch_dependents")
def test_waiting_kernels_pass() -> None:
    memory = StreamMemory(source(WAIT))
    for kernel, names in (("first", "a"), ("second", "ab"), ("third", "abc"), ("over", "a")):
        memory.launch(kernel, names, early=True)
    assert (memory.arrays["c"] == 2 * np.arange(64) + 1).all()
    assert (memory.arrays["a"] == 9).all()


def test_one_thread_waits_and_a_barrier_tells_the_others() -> None:
    memory = StreamMemory(source(f"if (!threadIdx.x) {WAIT} __syncthreads();"))
    memory.launch("first", "a", early=True)
    memory.launch("second", "ab", early=True)


def test_without_the_attribute_nothing_begins_early() -> None:
    memory = StreamMemory(source(""))
    for kernel, names in (("first", "a"), ("second", "ab"), ("over", "a")):
        memory.launch(kernel, names, early=False)


@pytest.mark.parametrize("trigger", [TRIGGER, ""])
def test_a_read_before_the_wait(trigger: str) -> None:
    text = source("", trigger)
    memory = StreamMemory(text)
    memory.launch("first", "a", early=False)
    with pytest.raises(
        Fault, match=r"that launch 1 \(first\) wrote at .* no griddepcontrol.wait comes before"
    ) as caught:
        memory.launch("second", "ab", early=True)
    assert (caught.value.kind, caught.value.where) == ("race", line_of(text, "// read"))
    assert line_of(text, "// write") in caught.value.sentence
    assert not trigger or line_of(text, "// trigger") in caught.value.sentence


def test_a_write_over_what_is_still_read() -> None:
    text = source("")
    memory = StreamMemory(text)
    memory.launch("second", "ab", early=False)
    with pytest.raises(Fault, match=re.escape(f"read at {line_of(text, '// read')}")) as caught:
        memory.launch("over", "a", early=True)
    assert caught.value.where == line_of(text, "// over")


def test_a_wait_covers_no_launch_that_the_one_before_did_not_wait_for() -> None:
    text = source("").replace("a[threadIdx.x] + 1;  // read", "1;")
    memory = StreamMemory(text)
    memory.launch("first", "a", early=True)
    memory.launch("second", "ab", early=True)
    with pytest.raises(Fault, match="launch 2, which griddepcontrol.wait waits for, did not wait for it") as caught:
        memory.launch("third", "abc", early=True)
    assert caught.value.where == line_of(text, "// long after")
    assert line_of(text, "// write") in caught.value.sentence


def test_a_last_launch_that_waits_for_nobody_ends_before_the_one_ahead() -> None:
    text = source("").replace("a[threadIdx.x] + 1;  // read", "1;")
    memory = StreamMemory(text)
    memory.launch("first", "a", early=True)
    memory.stream.end()
    memory.launch("second", "ab", early=True)
    with pytest.raises(Fault, match=r"in launch 1 \(first\), which may not have ended when launch 2 has") as caught:
        memory.stream.end()
    assert (caught.value.kind, caught.value.where) == ("race", line_of(text, "// write"))


def test_behind_a_launch_that_waits_or_is_not_early_all_have_ended() -> None:
    text = source(WAIT).replace("a[threadIdx.x] + 1;  // read", "1;")
    memory = StreamMemory(text)
    memory.launch("first", "a", early=True)
    memory.launch("second", "ab", early=True)
    memory.stream.end()
    memory = StreamMemory(text.replace(WAIT, ""))
    memory.launch("first", "a", early=False)
    memory.launch("second", "ab", early=False)
    memory.stream.end()


@pytest.mark.parametrize(("kernel", "names", "did"), [("second", "ab", "wrote"), ("over", "b", "read")])
def test_a_launch_that_is_not_emulated_is_waited_for_as_any_other(kernel: str, names: str, did: str) -> None:
    """It reads b and writes a."""
    for wait in ("", WAIT):
        memory = StreamMemory(source(wait))
        memory.launch("first", "a", early=True)
        memory.stream.outside("library", [memory.buffers["b"]], [memory.buffers["a"]])
        memory.launch("over", "c", early=False)
        memory.stream.outside("library", [memory.buffers["b"]], [memory.buffers["a"]])
        if wait:
            memory.launch(kernel, names, early=True)
            memory.stream.end()
        else:
            with pytest.raises(Fault, match=rf"launch 4 \(library\) {did} and may not have ended: no griddepcontrol"):
                memory.launch(kernel, names, early=True)


def test_a_launch_that_is_not_emulated_may_outlast_one_that_waits_for_nobody() -> None:
    memory = StreamMemory(source(""))
    memory.stream.outside("library", [], [memory.buffers["a"]])
    memory.launch("over", "c", early=True)
    with pytest.raises(Fault, match=r"^library: writes global bytes in launch 1 \(library\), which may not have ended"):
        memory.stream.end()


CONSTANT = SOURCE.replace("a[threadIdx.x] + 1;  // read", "__ldg(a + threadIdx.x) + 1;  // constant").replace(
    "TRIGGER", TRIGGER
)


@pytest.mark.parametrize("wait", [WAIT, ""])
def test_what_a_launch_that_overlaps_writes_is_not_constant(wait: str) -> None:
    """A wait orders the load, but a compiler may move it ahead, and the cache may hold what was there before."""
    text = CONSTANT.replace("WAIT", wait)
    memory = StreamMemory(text)
    memory.launch("first", "a", early=False)
    with pytest.raises(Fault) as caught:
        memory.launch("second", "ab", early=True)
    assert (caught.value.kind, caught.value.where) == ("race", line_of(text, "// constant"))
    assert line_of(text, "// write") in caught.value.sentence
    assert not wait or "reads as constant (ld.global.nc) 4 global bytes that launch 1" in caught.value.sentence


def test_constants_that_no_launch_writes_or_that_is_over() -> None:
    memory = StreamMemory(CONSTANT.replace("WAIT", WAIT))
    memory.launch("first", "a", early=False)
    memory.launch("second", "cb", early=True)
    memory.launch("second", "ab", early=False)


def test_a_write_over_what_is_still_read_as_constant() -> None:
    text = CONSTANT.replace("WAIT", "")
    memory = StreamMemory(text)
    memory.launch("second", "ab", early=False)
    with pytest.raises(Fault, match=re.escape(f"read at {line_of(text, '// constant')}")) as caught:
        memory.launch("over", "a", early=True)
    assert caught.value.where == line_of(text, "// over")
