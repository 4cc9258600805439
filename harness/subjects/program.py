"""A case in memory that is shared with a subject's process, here on the CPU, and one call of it for each run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.device import Outcome
from harness.device.memory import flat
from harness.jit.compile import Compiled
from harness.jit.geometry import Grid
from harness.subjects.process import Child, shown
from harness.subjects.shared import HostBlock, Place, SharedMemory, needed
from ptx_emulator.schedule import Schedule, order_of_run

GRACE = 0.02  # seconds until outputs are read again
_MOST_HELD = 64 << 20  # bytes of a case that are kept until the next one, to be read again

_NUMBERS = count()


@dataclass(frozen=True)
class Layout:
    """A subject's view of an array: its shape and dtype (NumPy name)."""

    dtype: str
    shape: tuple[int, ...]


class SubjectProgram:
    """A subject on one case's memory, here on the CPU.

    child: the process that calls it; memories: copies of the case's memory, all in one block; memory: the first
    """

    kernels: tuple[Compiled, ...] = ()
    grids: tuple[Grid, ...] = ()
    early: tuple[int, ...] = ()
    bf16 = "bfloat16"  # the dtype of bf16 arrays here
    has_streams = False
    block_type: ClassVar[type[HostBlock]] = HostBlock

    def __init__(
        self, child: Child, label: str, case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field],
        copies: int = 1,
    ):  # fmt: skip
        self._child, self._given, self.case, self.libraries = child, (inputs, fields), case, (label,)
        self._layouts = {name: Layout(array.dtype.name, array.shape) for name, array in inputs.items()}
        sizes = [array.nbytes for array in inputs.values()]
        room = copies * needed(sizes, fields) + needed([field.nbytes for field in fields.values()], {})
        self._block = self.block_type(room)
        uploaded = {name: self.uploaded(array) for name, array in inputs.items()}
        self.memories = [SharedMemory(uploaded, fields, self._block) for _ in range(copies)]
        self.memory = self.memories[0]
        self._snapshot = {name: self._block.empty(field.nbytes) for name, field in fields.items()}
        self._number = next(_NUMBERS)
        child.kept.append(self._block)
        try:
            self._ask("open", files=self._block.passed, **self._opening())
        finally:
            self._block.close_passed()

    @property
    def may_be_held(self) -> bool:
        """Whether the memory is kept after the case. On a GPU the subject's process cannot reach it any more."""
        return not self._block.handle and self._block.nbytes <= _MOST_HELD

    @staticmethod
    def uploaded(array: np.ndarray) -> Any:
        return flat(array)

    def poison(self, byte: int) -> None:
        for memory in self.memories:
            for guarded in memory.outputs.values():
                guarded.poison(byte)

    def twin(self) -> SubjectProgram:
        """A copy of the program on other memory."""
        return type(self)(self._child, self.libraries[0], self.case, *self._given)

    def put(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.memory.put({name: self.uploaded(array) for name, array in inputs.items()})

    def run(self, poison: int, repeat: int, nearest: bool = False) -> Outcome:
        """Call once; what it launches on the emulator runs in the order of this run, whatever the subject asks for."""
        self.poison(poison)
        answer = self._ask("call", order=self.order(repeat, nearest))
        return replace(self.outcome(poison), **_launches(answer))

    def order(self, repeat: int, nearest: bool = False) -> Schedule:
        return order_of_run(repeat, self.case.seed, nearest)

    def run_behind_work(self, poison: int) -> Outcome | None:
        """Run behind work that keeps the stream busy; None if there are no streams."""
        return None

    def synchronize(self) -> None:
        """Wait for what this process queued."""

    def outcome(self, poison: int, copy: int = 0) -> Outcome:
        memory = self.memories[copy]
        outputs = {name: guarded.payload.copy() for name, guarded in memory.outputs.items()}
        return Outcome(outputs, memory.trespass(poison))

    def later(self, seconds: float = GRACE) -> dict[str, Any]:
        """Copies of the outputs some time after all work is done."""
        self._ask("idle")
        time.sleep(seconds)
        return self.outcome(0).outputs

    def _ask(self, operation: str, files: tuple[int, ...] = (), **given: Any) -> dict[str, Any]:
        if operation not in ("idle", "ping"):
            given["number"] = self._number
        return self._child.ask(operation, files=files, **given)

    def _opening(self) -> dict[str, Any]:
        fields = self._given[1]
        return {
            "case": self.case,
            "nbytes": self._block.nbytes,
            "handle": self._block.handle,
            "copies": [
                (
                    {name: self._place(array, self._layouts[name]) for name, array in memory.inputs.items()},
                    {
                        name: self._place(out.payload, Layout(out.field.dtype, out.field.shape))
                        for name, out in memory.outputs.items()
                    },
                )
                for memory in self.memories
            ],
            "snapshot": {
                name: self._place(array, Layout("uint8", (fields[name].nbytes,)))
                for name, array in self._snapshot.items()
            },
        }

    def _place(self, array: Any, layout: Layout) -> Place:
        dtype = self.bf16 if layout.dtype == "bfloat16" else layout.dtype
        return self._block.place(array, dtype, layout.shape)


def _launches(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The launches on the emulator that an answer tells of, as parts of an Outcome."""
    match answer:
        case {"kernels": list(kernels), "approximated": list(names)}:
            kernels, names = (tuple(map(shown, each)) for each in (kernels, names))
            return {"kernels": kernels, "approximated": names}
    return {}
