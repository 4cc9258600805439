"""Launches of one compiled kernel on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, NamedTuple

from ptx_emulator.errors import Fault, LaunchError, NotEmulated, UsageError
from ptx_emulator.launches import launch
from ptx_emulator.schedule import Schedule
from ptx_emulator.triton_driver.arguments import Arguments
from ptx_emulator.triton_driver.memory import Storages

ONE_AT_A_TIME = RLock()  # launches share the emulator's scratch memory


class Launched(NamedTuple):
    """One launch that ended. lane_instructions: of all its threads"""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    lane_instructions: int


@dataclass(frozen=True)
class Errors:
    """Exceptions in place of the emulator's own, each made of its sentence; `access` of all that a Fault has."""

    usage: Callable[[str], Exception] = UsageError
    launch: Callable[[str], Exception] = LaunchError
    not_emulated: Callable[[str], Exception] = NotEmulated
    access: Callable[[str, str, str], Exception] = Fault

    @contextmanager
    def raised(self) -> Iterator[None]:
        try:
            yield
        except Fault as error:
            raise self.access(error.kind, error.where, error.sentence) from None
        except LaunchError as error:
            raise self.launch(str(error)) from None
        except NotEmulated as error:
            raise self.not_emulated(str(error)) from None
        except UsageError as error:
            raise self.usage(str(error)) from None


OWN_ERRORS = Errors()


@dataclass
class Settings:
    """Settings for all launches of a block. echo: called with the lines that kernels print; None for standard output"""

    memory: Storages
    schedule: Schedule
    strict: bool = False
    echo: Callable[[str], object] | None = None
    errors: Errors = OWN_ERRORS
    launches: list[Launched] = field(default_factory=list)


class Launcher:
    """A launcher as Triton calls it; Triton keeps it from block to block.

    current: the settings of the block that is open; source, metadata: of the compiled kernel
    """

    def __init__(self, current: Callable[[], Settings], source: Any, metadata: Any):
        self._current, self._metadata = current, metadata
        self._signature = list(source.signature.items())

    def __call__(
        self, x: int, y: int, z: int, stream: object, function: Any, packed: object, said: object,
        enter: Callable[[object], object] | None, leave: Callable[[object], object] | None, *args: Any,
    ) -> None:  # fmt: skip
        grid, settings = (x * self._metadata.num_ctas, y, z), self._current()
        with settings.errors.raised():
            if min(grid) < 0:
                raise LaunchError(f"{function.name}: a grid of {(x, y, z)} programs")
        if enter is not None:
            enter(said)
        if x * y * z:
            with ONE_AT_A_TIME, settings.errors.raised():
                self._launch(settings, function, grid, args)
        if leave is not None:
            leave(said)

    def _launch(self, settings: Settings, function: Any, grid: tuple[int, int, int], args: tuple[Any, ...]) -> None:
        about = self._metadata
        self._refuse()
        given = Arguments(settings.memory, about.tensordesc_meta or ())
        named = zip(self._signature, args, strict=True)
        parameters = [each for (name, kind), value in named for each in given.of(name, kind, value)]
        programs = grid[0] * grid[1] * grid[2]
        given.reach(settings.memory.lent)
        parameters += [given.scratch(programs * about.global_scratch_size, "global scratch"), bytes(8)]
        threads = 32 * about.num_warps
        try:
            counters = launch(
                function.module, function.name, grid, (threads, 1, 1), parameters, about.shared,
                memory=given.buffers, count_traffic=False, schedule=settings.schedule, echo=settings.echo,
                strict=settings.strict,
                cooperative=bool(getattr(about, "launch_cooperative_grid", False)),
                cluster=(about.num_ctas, 1, 1) if about.num_ctas > 1 else None,
            )  # fmt: skip
        except NotEmulated as error:
            raise NotEmulated(f"{function.name}: {error}") from None
        settings.launches.append(Launched(function.name, grid, threads, counters.lane_instructions))

    def _refuse(self) -> None:
        """Raise if a launch needs something that the emulator lacks or the user did not provide."""
        if getattr(self._metadata, "launch_pdl", False):
            raise NotEmulated(
                "launch_pdl lets a kernel begin before the one ahead has ended, and launches of triton_on do not "
                "overlap; launch it without"
            )
        if self._metadata.profile_scratch_size:
            raise UsageError(
                "the emulator has no memory for a profiler; compile the kernel without its instrumentation"
            )
        if self._metadata.global_scratch_size:
            from triton.runtime import _allocation

            if isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
                raise LaunchError("the kernel needs global memory of its own; call triton.set_allocator, as for a GPU")
