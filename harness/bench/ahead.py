"""The next cases, prepared by other processes while this one times: machine code, inputs, small oracles.

The processes are forked before a GPU is in use and know all cases in the order of the run. They share which piece is
next, which cases are passed, and the large tensors that they draw. A prepared case is a file in memory that this
process maps. Whatever they cannot do, this process does itself, so that an error shows where it always does.
"""

from __future__ import annotations

import io
import mmap
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.bench.baseline import baseline_first, loop_of, opponents
from harness.contract.case import Case
from harness.errors import HarnessError
from harness.expected import torch_calls
from harness.expected.expected import NUMPY_LARGEST_TIMED
from harness.expected.other_input import prepare_ahead
from harness.expected.prepared import SOURCE, Prepared
from harness.ground.ending import end_with_parent
from harness.ground.side_by_side import forking
from harness.inputs import draw
from harness.inputs.drawn_once import DRAWN, Reference
from harness.jit.compile import compile_kernel, instantiation
from harness.suite.launch_plan import Step, all_steps

LEFT_FREE = 2  # cores, for the process that times and for everything else
NICE = 10
BYTES_AN_ELEMENT = 8  # memory of a case while it is prepared, on average about this at most
SHARE = 0.5  # prepared cases may take this part of the machine's memory, or the whole folder if that is less
_SHM = Path("/dev/shm")
_FEW = 1 << 30  # bytes; a folder with less room is not used
_PAUSE = 0.002
_ALIGNMENT = 64
_PREFIX = "nvfp4-ahead-"


class Ahead:
    """Processes that prepare cases ahead. cases: in any order; processes: how many, 0 for none

    opponents: whether the cases that a bench compares them with are prepared, too
    """

    def __init__(self, cases: Iterable[Case], processes: int, opponents: bool = True):
        self._asked, self._opponents = tuple(cases), opponents
        self.cases = in_order(self._asked, opponents)
        self._number = {(case.id, case.seed): number for number, case in enumerate(self.cases)}
        context = multiprocessing.get_context("fork")
        self._lock, self._begun = context.Lock(), context.Event()
        self._next = context.RawArray("i", 2)  # the next case, and the next instantiation
        self._passed = context.RawArray("b", len(self.cases) + 1)
        self._target = context.RawArray("c", 32)
        self.folder = _new_folder()
        self._at = context.RawArray("i", len(self.cases) + 1)  # the process that prepares or prepared each case
        self._owner = os.getpid()
        self._unwanted = context.RawArray("b", len(self.cases) + 1)  # the part of `_passed` that `begin` set
        self._processes: list[multiprocessing.process.BaseProcess] = []
        try:
            for own in range(processes):
                self._processes.append(context.Process(target=self._work, args=(own,), daemon=True))
                with forking():
                    self._processes[-1].start()
        except BaseException:
            self.close()  # they would wait for `begin`, and this process would wait for them when it exits
            raise

    def begin(self, target: str, done: Collection[str] = ()) -> None:
        """Let the processes begin; until `close`, what is prepared comes from them.

        target: the architecture to compile for; done: ids of cases that nobody will ask for
        """
        asked = (case for case in self._asked if case.id not in done)
        wanted = {case.id for case in in_order(asked, self._opponents)}
        for number, case in enumerate(self.cases):
            self._passed[number] = self._unwanted[number] = case.id not in wanted
        self._target.value = target.encode()
        if self._processes:
            DRAWN.share(self.folder)
            SOURCE.take = self.take
        self._begun.set()

    def take(self, case: Case) -> Prepared | None:
        """Return the prepared case; None if it is not among the cases, was taken before, or could not be prepared.

        Waits for it if a process is at it. Cases before it in the order are no longer expected to be asked for.
        """
        number = self._number.get((replace(case, mode="eager").id, case.seed))
        if number is None or self._passed[number]:
            return None
        path = self.folder / str(number)
        found = None
        if self._claimed(number):
            while not path.exists() and self._processes[self._at[number]].is_alive():
                time.sleep(_PAUSE)
            with suppress(OSError):
                found = _read(path)
        self._pass(number)
        return found

    def close(self) -> None:
        """End the processes and remove what is left."""
        started = [process for process in self._processes if process.pid]
        for process in started:
            process.kill()
        for process in started:
            process.join()
        DRAWN.reset()
        SOURCE.reset()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _claimed(self, number: int) -> bool:
        with self._lock:
            if self._next[0] > number:
                return True
            self._passed[number] = True  # so that no process begins with it
            return False

    def _pass(self, number: int) -> None:
        for before in range(number + 1):
            if not self._passed[before] or before == number:
                self._passed[before] = True
                (self.folder / str(before)).unlink(missing_ok=True)
        DRAWN.drop(number)

    def _work(self, own: int) -> None:
        """The main loop of a process. own: its number"""
        end_with_parent(self._owner)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a group may get it; the process that times ends this one
        os.nice(NICE)
        draw.MOST_THREADS = 1
        torch_calls.leave_gpus_alone()
        DRAWN.share(self.folder)
        self._begun.wait()
        # All processes have the same list, because they share how far it has been compiled.
        kernels = instantiations(each for each in enumerate(self.cases) if not self._unwanted[each[0]])
        while True:
            piece = self._claim(own, kernels)
            if piece is None:
                time.sleep(10 * _PAUSE)
            elif isinstance(piece, Step):
                with suppress(HarnessError):
                    compile_kernel(piece.signature, piece.flags, self._target.value.decode())
            else:
                self._prepare(piece)

    def _claim(self, own: int, kernels: Sequence[tuple[int, Step]]) -> int | Step | None:
        """The number of a case to prepare, a kernel to compile, or None while there is room for nothing more."""
        with self._lock:
            number, kernel = self._next
            while number < len(self.cases) and self._passed[number]:
                number += 1
            self._next[0] = number
            ready = number < len(self.cases) and self._room(number)
            if kernel < len(kernels) and not (ready and number < kernels[kernel][0]):
                self._next[1] = kernel + 1
                return kernels[kernel][1]
            if not ready:
                return None
            self._next[0], self._at[number] = number + 1, own
            return number

    def _room(self, number: int) -> bool:
        """Whether the case fits beside those that are prepared or wait; the first always does."""
        waiting = [i for i in range(number) if not self._passed[i]]
        files: dict[str, int] = {}
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError):  # taken since it was listed
                files[entry.name] = entry.stat().st_size
        begun = sum(self.cases[i].elements for i in waiting if str(i) not in files)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        room = min(SHARE * memory, shutil.disk_usage(self.folder).total)
        return not waiting or sum(files.values()) + BYTES_AN_ELEMENT * (begun + self.cases[number].elements) <= room

    def _prepare(self, number: int) -> None:
        path = self.folder / str(number)
        DRAWN.asker = number
        try:
            made = prepare_ahead(self.cases[number], NUMPY_LARGEST_TIMED)
            _write(path.with_suffix(".part"), made)
        except Exception:
            # The process that times meets the same error and reports it.
            path.with_suffix(".part").write_bytes(b"")
        path.with_suffix(".part").replace(path)
        if self._passed[number]:
            path.unlink(missing_ok=True)


def processes() -> int:
    """How many processes prepare cases, unless `--ahead` of a bench says."""
    return max(0, len(os.sched_getaffinity(0)) - LEFT_FREE)


def in_order(cases: Iterable[Case], with_opponents: bool = True) -> list[Case]:
    """The cases in the order of a bench, each once for all its modes, its baseline before and its loop after it."""
    found: dict[str, Case] = {}
    for case in sorted(cases, key=baseline_first):
        for each in (*opponents(case), case, *loop_of(case)) if with_opponents else (case,):
            found.setdefault(replace(each, mode="eager").id, replace(each, mode="eager"))
    return list(found.values())


def instantiations(cases: Iterable[tuple[int, Case]]) -> list[tuple[int, Step]]:
    """For every instantiation of a kernel, the number of the first case that needs it, and a launch of it.

    cases: each with its number
    """
    found: dict[str, tuple[int, Step]] = {}
    for number, case in cases:
        for step in all_steps(case):
            if not step.library:
                found.setdefault(instantiation(step.signature, step.flags), (number, step))
    return list(found.values())


def _new_folder() -> Path:
    """Make a folder in memory if there is room, else among temporary files. Removes folders of killed processes."""
    try:
        parent = _SHM if shutil.disk_usage(_SHM).free >= _FEW else Path(tempfile.gettempdir())
    except OSError:
        parent = Path(tempfile.gettempdir())
    for left in parent.glob(f"{_PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))


class _Pickler(pickle.Pickler):
    """Pickles a reference to a tensor that every process can map, in place of its bytes."""

    def persistent_id(self, item: Any) -> Reference | None:
        return DRAWN.reference(item)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, reference: Reference) -> Any:
        return DRAWN.load(reference)


def _write(path: Path, made: Prepared) -> None:
    """Write the lengths of all parts, 8 bytes each, and a zero; then the pickle, and the bytes of every array."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = io.BytesIO()
    _Pickler(pickled, 5, buffer_callback=buffers.append).dump(made)
    parts = [pickled.getvalue(), *(buffer.raw() for buffer in buffers)]
    with path.open("wb") as file:
        file.write(b"".join(len(part).to_bytes(8, "little") for part in parts) + bytes(8))
        for part in parts:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(part)


def _read(path: Path) -> Prepared | None:
    """Read what `_write` wrote, its arrays memory-mapped; None for an empty file."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        lengths = list(iter(lambda: int.from_bytes(file.read(8), "little"), 0))
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    at, parts = 8 * len(lengths) + 8, []
    for length in lengths:
        at += -at % _ALIGNMENT
        parts.append(memory[at : at + length])
        at += length
    return _Unpickler(io.BytesIO(parts[0]), buffers=parts[1:]).load()
