"""Launches one after another, as in a CUDA stream, where a launch may begin before the previous one has ended."""

from __future__ import annotations

from collections.abc import Sequence

from ptx_emulator.counters import Counters
from ptx_emulator.errors import Fault
from ptx_emulator.launches import Argument, Module, launch
from ptx_emulator.machine.launch_state import Extent
from ptx_emulator.memory import Buffer
from ptx_emulator.races.dependent_launches import Dependence, OutsideLaunch, PastLaunch


class Stream:
    """Runs kernels in order, and checks what those that begin early touch (see `races.dependent_launches`)."""

    def __init__(self) -> None:
        self._launches = 0
        self._last: PastLaunch | OutsideLaunch | None = None
        # Launches that may not have ended when the last one begins
        self._before_last: list[PastLaunch | OutsideLaunch] = []
        self._unended: list[PastLaunch | OutsideLaunch] = []  # launches that may not have ended when the last one has

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: Extent,
        block: Extent,
        args: Sequence[Argument],
        *,
        early: bool = False,
        **options: object,
    ) -> Counters:
        """Run a kernel to its end, as `launch.launch` does, with the same options.

        early: whether it has the launch attribute programmaticStreamSerialization; kernels that share memory must be
        given the same Buffer objects. Raises what `launch` raises, and Fault for what the kernel touches too early.
        """
        self._launches += 1
        dependence = Dependence(self._launches, early)
        if early and self._last:
            dependence.before = [*self._before_last, self._last]
            dependence.left = [] if self._last.waited else list(self._before_last)
        counters = launch(module, kernel, grid, block, args, dependence=dependence, **options)
        self._before_last, self._last = dependence.before, dependence.past
        self._unended = dependence.unended()
        return counters

    def outside(self, name: str, reads: Sequence[Buffer], writes: Sequence[Buffer]) -> None:
        """Take note of a launch that is not emulated, as of a library, and that the caller has made in these buffers.

        It begins when all launches before it have ended. name: in faults
        """
        self._launches += 1
        windows = [frozenset(buffer.window for buffer in buffers) for buffers in (reads, writes)]
        self._before_last, self._last, self._unended = [], OutsideLaunch(self._launches, name, *windows), []

    def end(self) -> None:
        """End the stream. Raises Fault for a launch that may still write when the last one has ended.

        A launch that follows and begins early waits only for the last one.
        """
        for past in self._unended:
            written = past.written()
            if written:
                verb, where, chain = written
                sentence = f"{verb} global bytes in launch {past.number} ({past.kernel}), which may not have "
                sentence += f"ended when launch {self._launches} has: no griddepcontrol.wait waits for it"
                raise Fault("race", where, sentence + chain)
