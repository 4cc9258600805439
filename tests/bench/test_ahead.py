"""Cases prepared by other processes: the same as here, in the order of a bench, and never a reason to fail or hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from processes import LONGEST, wait_until

from harness.bench import ahead
from harness.bench.ahead import Ahead, in_order, instantiations
from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.expected import expected, other_input
from harness.expected.prepared import SOURCE, Prepared
from harness.jit.compile import instantiation
from harness.jit.signature import Signature
from harness.suite.suite import find_case

CASES = [
    find_case(case_id)
    for case_id in (
        "per_token/default/48x80/normal/graph",
        "per_token/default/48x80/normal/eager",
        "swizzle/default/128x64/normal/eager",
        "gemm/default/112x128x96/normal/graph",
        "backward/default/128x128x128/normal/eager",
    )
]


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each kernel that a process would compile; no process is niced."""
    path = tmp_path / "compiled"
    path.touch()

    def compile_kernel(signature: Signature, flags: Mapping[str, object], target: str) -> None:
        with path.open("a") as file:
            file.write(f"{instantiation(signature, flags)} {target}\n")

    monkeypatch.setattr(ahead, "compile_kernel", compile_kernel)
    monkeypatch.setattr(os, "nice", lambda by: by)
    return path


@pytest.fixture
def make(compiled: Path) -> Iterator[Callable[..., Ahead]]:
    made: list[Ahead] = []

    def begin(
        cases: list[Case] = CASES, processes: int = 1, done: tuple[str, ...] = (), opponents: bool = True
    ) -> Ahead:
        made.append(Ahead(cases, processes, opponents))
        made[-1].begin("sm_90a", done)
        return made[-1]

    yield begin
    for each in made:
        each.close()
        assert not each.folder.exists()
    assert SOURCE.take(CASES[0]) is None
    clear()


def clear() -> None:
    for cache in (expected._expect, expected._inputs, expected._high_precision, expected.prepared):
        cache.cache_clear()


def claimed(each: Ahead, count: int) -> None:
    wait_until(lambda: each._next[0] >= count)


def arrays_of(value: object) -> list[np.ndarray]:
    return [value.low, value.high] if isinstance(value, Interval) else [value]


def test_the_baseline_of_a_shape_stands_before_what_is_compared_with_it():
    ids = [case.id for case in in_order(CASES)]
    assert len(ids) == len(set(ids)) and all(case_id.endswith("/eager") for case_id in ids)
    assert ids.index("per_tensor/rht=true,rounding=sr/48x80/normal/eager") < ids.index(CASES[1].id)
    assert not any(case_id.startswith(("cublas", "copy")) for case_id in ids)


def test_every_instantiation_is_compiled_once_and_for_the_first_case_that_needs_it():
    found = instantiations(enumerate(in_order(CASES)))
    assert len({(step.signature.name, str(step.flags)) for _, step in found}) == len(found)
    assert [number for number, _ in found] == sorted(number for number, _ in found)


@pytest.mark.slow
def test_an_expectation_of_what_was_prepared_elsewhere_is_the_same(make):
    own = {}
    for case in in_order(CASES):
        clear()
        own[case.id] = expected.expect(case)
    clear()
    each = make(processes=2)
    taken: list[Prepared] = []
    SOURCE.take = lambda case: taken.append(each.take(case)) or taken[-1]
    for number, case in enumerate(in_order(CASES)):
        claimed(each, number + 1)
        found = expected.expect(case)
        assert found.oracles == own[case.id].oracles and found.disagreement == ""
        assert found.inputs.keys() == own[case.id].inputs.keys()
        for name, array in found.inputs.items():
            assert array.dtype == own[case.id].inputs[name].dtype
            np.testing.assert_array_equal(array.view(np.uint8), own[case.id].inputs[name].view(np.uint8), name)
        for name, value in found.values.items():
            for one, other in zip(arrays_of(value), arrays_of(own[case.id].values[name]), strict=True):
                np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8), name)
    assert len(taken) == len(own) and None not in taken
    assert all(made.values is not None for made in taken)


def test_without_opponents_the_cases_alone_are_prepared_and_their_kernels_compiled(make, compiled):
    each = make(opponents=False)
    assert [case.id for case in each.cases] == [case.id for case in in_order(CASES, with_opponents=False)]
    assert {case.id for case in each.cases} == {replace(case, mode="eager").id for case in CASES}
    claimed(each, len(each.cases))
    assert all(each.take(case) is not None for case in each.cases)
    kernels = [
        f"{instantiation(step.signature, step.flags)} sm_90a" for _, step in instantiations(enumerate(each.cases))
    ]
    wait_until(lambda: compiled.read_text().splitlines() == kernels)


def test_each_case_is_handed_over_once_and_others_not_at_all(make):
    each = make()
    claimed(each, 2)
    first = in_order(CASES)[0]
    assert each.take(first) is not None
    assert each.take(first) is None
    assert each.take(find_case("per_token/default/32x80/normal/eager")) is None
    assert each.take(replace(first, seed_of="another")) is None


def test_cases_that_a_resumed_run_has_are_not_prepared(make):
    each = make(done=tuple(case.id for case in CASES[1:]))
    claimed(each, len(in_order(CASES)))
    assert [each.take(case) is None for case in in_order(CASES[:1])] == [False, False]  # the baseline, and one mode
    assert [each.take(case) for case in in_order(CASES[2:])] == [None] * 3
    assert not any(each.folder.iterdir())


def test_what_a_process_cannot_do_is_done_here(make, monkeypatch):
    monkeypatch.setattr(ahead, "prepare_ahead", lambda *_: 1 / 0)
    each = make()
    claimed(each, len(in_order(CASES)))
    assert [each.take(case) for case in in_order(CASES)] == [None] * len(in_order(CASES))


def test_a_process_that_is_killed_is_not_waited_for(make, monkeypatch):
    monkeypatch.setattr(ahead, "prepare_ahead", lambda *_: time.sleep(LONGEST))
    each = make(processes=2)
    claimed(each, 2)
    os.kill(each._processes[each._at[0]].pid, signal.SIGKILL)
    assert each.take(in_order(CASES)[0]) is None
    assert each._processes[each._at[1]].is_alive()


def test_the_other_input_of_a_large_case_is_prepared_too(make, monkeypatch):
    """The contract says what becomes of a quantizer's answer for a smaller tensor, and nothing of a swizzle's."""
    monkeypatch.setattr(other_input, "SMALL", 0)
    cases = [find_case(f"{kind}/48x80/normal/eager") for kind in ("swizzle/default", "per_tensor/outputs=rowwise")]
    own = other_input.other_inputs(cases[0])
    clear()
    each = make(cases, opponents=False)
    claimed(each, 2)
    taken = {}
    SOURCE.take = lambda case: taken.setdefault(case.recipe, each.take(case))
    monkeypatch.setattr(other_input, "other_inputs", lambda case: 1 / 0)
    for case in each.cases:
        found = other_input.other_expected(case, expected.expect(case), "cpu")
        assert found is not None and found.disagreement == ""
    assert taken["per_tensor"].other is None
    assert {name: array.tobytes() for name, array in taken["swizzle"].other.items()} == {
        name: array.tobytes() for name, array in own.items()
    }


def test_inputs_that_are_wrong_stay_wrong(make, monkeypatch):
    monkeypatch.setattr(ahead, "prepare_ahead", lambda case, _: Prepared(expected._inputs(case), "x is spoiled"))
    each = make()
    claimed(each, 1)
    assert expected.expect(in_order(CASES)[0]).disagreement == "x is spoiled"


def test_no_more_is_prepared_than_there_is_room_for(make, monkeypatch):
    monkeypatch.setattr(ahead, "BYTES_AN_ELEMENT", 1 << 60)
    each = make()
    order = in_order(CASES)
    for number, case in enumerate(order):
        claimed(each, number + 1)
        time.sleep(0.2)
        assert each._next[0] == number + 1
        assert each.take(case) is not None


def test_what_a_killed_process_left_in_memory_is_removed(make, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "_SHM", tmp_path)
    gone, alive = tmp_path / f"{ahead._PREFIX}999999999-a", tmp_path / f"{ahead._PREFIX}{os.getpid()}-b"
    for folder in (gone, alive):
        folder.mkdir()
    each = make([])
    assert each.folder.parent == tmp_path and alive.exists() and not gone.exists()


def test_processes_end_with_the_one_that_times():
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            told = str(Ahead(CASES, 1)._processes[0].pid)
        except BaseException as error:
            told = repr(error)
        os.write(writing, told.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    told = os.read(reading, 4096).decode()
    assert told.isdecimal(), told
    worker = Path("/proc", told, "stat")
    wait_until(lambda: not worker.exists() or worker.read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_process_that_cannot_be_forked_leaves_none_waiting(monkeypatch):
    """The processes ignore SIGTERM, and Python would send them that at its exit and then wait forever."""
    before = set(multiprocessing.active_children())
    started = []

    def fork(self):
        if len(started) == 2:
            raise BlockingIOError("Resource temporarily unavailable")
        started.append(self)
        start(self)

    process = multiprocessing.get_context("fork").Process
    start = process.start
    monkeypatch.setattr(process, "start", fork)
    with pytest.raises(BlockingIOError):
        Ahead(CASES, 4)
    assert len(started) == 2 and set(multiprocessing.active_children()) == before


def test_a_fork_beside_threads_is_no_warning(make, monkeypatch):
    """Python 3.12 and newer warn so, and pytest would print it below every bench."""
    process = multiprocessing.get_context("fork").Process
    start = process.start

    def fork(self):
        warnings.warn("This process (pid=1) is multi-threaded, use of fork() may …", DeprecationWarning, stacklevel=1)
        start(self)

    monkeypatch.setattr(process, "start", fork)
    assert make()._processes[0].is_alive()


def test_all_processes_compile_one_list_of_kernels(make, monkeypatch):
    """The processes share one position in the list, so a case that is passed meanwhile must not change the list."""
    each = make([], processes=0)
    each.cases, each._unwanted = in_order(CASES), [False] * len(in_order(CASES))
    lists = []
    monkeypatch.setattr(
        ahead, "instantiations", lambda numbered: lists.append([number for number, _ in numbered]) or 1 / 0
    )
    monkeypatch.setattr(ahead, "end_with_parent", lambda parent: None)
    monkeypatch.setattr(ahead.signal, "signal", lambda *_: None)
    monkeypatch.setattr(ahead.draw, "MOST_THREADS", 1)
    monkeypatch.setattr(ahead.torch_calls, "leave_gpus_alone", lambda: None)
    for passed in ([False] * 9, [True] * 9):
        each._passed = passed
        with pytest.raises(ZeroDivisionError):
            each._work(0)
    assert lists[0] == lists[1] == list(range(len(each.cases)))


def test_cases_of_one_large_shape_read_the_same_array(make):
    ids = ("per_token/default/1040x1024/normal/eager", "per_token/outputs=rowwise/1040x1024/normal/eager")
    large = list(map(find_case, ids))
    assert large[0].seed != large[1].seed and large[0].tensor_seed == large[1].tensor_seed
    each = make(large, processes=2)
    cases = in_order(large)
    claimed(each, len(cases))
    arrays = [each.take(case).inputs["input"] for case in cases]
    assert len(arrays) == 4 and all(array is arrays[0] for array in arrays)
    assert [path.name for path in each.folder.glob("drawn-*")] == []
    clear()
    own = expected.make_inputs(large[1])["input"]
    np.testing.assert_array_equal(arrays[0].view(np.uint8), own.view(np.uint8))
