"""A program on a GPU, of stand-ins: its turns, the memory that it shares and poisons, and copies of what it wrote."""

from __future__ import annotations

import re
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver

from harness.contract.field import Field
from harness.device import cuda_code
from harness.device.cuda_code import load_foreign
from harness.device.cuda_program import CudaProgram
from harness.device.launches import BoundLaunch, Launches
from harness.device.memory import Guarded
from harness.errors import SuiteError
from harness.subjects.card.code import Code


class Queued:
    """A copy that the stand-in of a stream makes when it is waited for."""

    def __init__(self, stream: Stream, source: np.ndarray):
        self.source, self.made = source, np.zeros_like(source)
        stream.queue.append(self)


class Stream:
    """A stand-in of CuPy's current stream: nothing that is queued happens before the host waits."""

    def __init__(self) -> None:
        self.queue: list[Queued] = []

    def synchronize(self) -> None:
        for copy in self.queue:
            copy.made[:] = copy.source
        self.queue.clear()


def test_without_guards_and_inputs_too_the_copies_are_whole(monkeypatch: pytest.MonkeyPatch):
    """compute-sanitizer runs a tensor without rows this way: nothing but its outputs is compared, so nothing waits."""
    stream = Stream()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    memory = np.full(4, 7, np.uint8)
    payload = SimpleNamespace(copy=lambda: Queued(stream, memory))
    program = object.__new__(CudaProgram)
    program.memory = SimpleNamespace(outputs={"amax": SimpleNamespace(payload=payload)}, trespass=lambda poison: "")
    program.workspace = program.scratch = {}
    outcome = program.outcome(0xA5)
    memory[:] = 0xFF  # the poison of the next run, on another stream
    assert outcome.outputs["amax"].made.tolist() == [7, 7, 7, 7]


def test_odd_turns_have_the_other_grids():
    launched = []
    program = object.__new__(CudaProgram)
    program.calls = (partial(launched.append, "own"),)
    program.other_calls = (partial(launched.append, "other"),)
    for repeat in range(3):
        program.launch(repeat)
    program.launch()
    assert launched == ["own", "other", "own", "own"]


def test_two_programs_share_what_has_one_name_and_one_size(monkeypatch: pytest.MonkeyPatch):
    def program(name: str, scratch: dict[str, int], workspace: dict[str, int]) -> CudaProgram:
        made = object.__new__(CudaProgram)
        made.launches = Launches((), scratch, workspace)
        made.scratch = {key: f"{key} of {name}" for key in scratch}
        made.workspace = {key: f"{key} of {name}" for key in workspace}
        return made

    bound = []
    monkeypatch.setattr(CudaProgram, "_bind", lambda self: bound.append(self))
    base = program("base", {"maxima": 16, "counts": 8}, {"operand": 64, "sums": 4, "old": 4})
    base.share(program("head", {"maxima": 16, "counts": 12}, {"operand": 64, "sums": 8, "new": 4}))
    assert base.scratch == {"maxima": "maxima of head", "counts": "counts of base"}
    assert base.workspace == {"operand": "operand of head", "sums": "sums of base", "old": "old of base"}
    assert bound == [base]  # launches keep addresses


def test_a_workspace_is_poisoned_with_the_outputs():
    """Otherwise a kernel could pass by reading what an earlier launch left there."""
    program = object.__new__(CudaProgram)
    output, workspace = (Guarded(Field((5,), "uint8"), np) for _ in range(2))
    program.memory, program.workspace = SimpleNamespace(outputs={"total": output}), {"notes": workspace}
    for guarded in (output, workspace):
        guarded.poison(0)
    program.poison(0xA5)
    assert all((guarded.memory == 0xA5).all() for guarded in (output, workspace))


@pytest.mark.parametrize(("given", "refused"), [((8, 4), False), ((8, 8), True), ((8,), True)])
def test_the_arguments_of_a_cubin_have_the_sizes_of_its_parameters(monkeypatch, given: tuple[int, ...], refused: bool):
    """No PTX says them, so the driver is asked."""
    sizes, ok = [8, 4], driver.CUresult.CUDA_SUCCESS

    def parameter(function: object, number: int) -> tuple:
        return (ok, 0, sizes[number]) if number < len(sizes) else (driver.CUresult.CUDA_ERROR_INVALID_VALUE, 0, 0)

    for name, answer in (
        ("cuModuleLoadData", lambda image: (ok, "module")), ("cuModuleGetFunction", lambda module, entry: (ok, 0x7000)),
        ("cuFuncGetParamInfo", parameter),
    ):  # fmt: skip
        monkeypatch.setattr(driver, name, answer)
    cuda_code._function.cache_clear()
    code = Code("own.cubin", "", b"\x7fELF", {})
    launch = BoundLaunch(code, "k", "k", ((1, 1, 1),), (32, 1, 1), lambda arrays: [], where="card.yaml:4")
    contents = [bytes(size) for size in given]
    if refused:
        words = f"card.yaml:4: 'k' takes parameters of [8, 4] bytes, and the card gives {list(given)}"
        with pytest.raises(SuiteError, match=re.escape(words)):
            load_foreign(launch, contents)
    else:
        assert load_foreign(launch, contents) == 0x7000
    cuda_code._function.cache_clear()
