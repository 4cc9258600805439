"""`with triton_on("sm_100a")`: Triton's kernels run on the emulator."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ptx_emulator.errors import UsageError
from ptx_emulator.private_files import cache_root
from ptx_emulator.schedule import ASCENDING, Schedule
from ptx_emulator.triton_driver.backend import emulated_backend
from ptx_emulator.triton_driver.driver import EmulatedDriver, answered
from ptx_emulator.triton_driver.launcher import ONE_AT_A_TIME, OWN_ERRORS, Errors, Launched, Settings
from ptx_emulator.triton_driver.memory import Storages, followed

FIRST, EVERY = "first", "every"
_ABSENT = object()


class Choice:
    """Replaces `do_bench` for one choice. It is called for all configurations in order, including ones that fail."""

    def __init__(self, runs_every: bool):
        self._runs_every, self._calls, self._chosen = runs_every, 0, False

    def __call__(self, kernel_call: Callable[[], object], quantiles: object = None, **options: object) -> list[float]:
        """Run the kernel if needed, and return the configuration's number as its time."""
        self._calls += 1
        if not self._chosen or self._runs_every:
            kernel_call()
            self._chosen = True
        return [float(self._calls)] * 3


@contextmanager
def no_times(choice: str) -> Iterator[None]:
    """Make autotuners choose this way while the context lasts. Then the choices are forgotten, and a GPU's are kept."""
    from triton.runtime.autotuner import Autotuner

    before, chosen = Autotuner.run, WeakKeyDictionary[Any, dict[Any, Any]]()
    original = getattr(before, "__wrapped__", before)

    @wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with (
            ONE_AT_A_TIME,
            _replaced(self, ("cache", chosen.setdefault(self, {})), ("do_bench", Choice(choice == EVERY))),
        ):
            return original(self, *args, **kwargs)

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = before


@contextmanager
def _replaced(of: Any, *attributes: Sequence[Any]) -> Iterator[None]:
    """Replace attributes of an object, in its own dictionary, while the context lasts."""
    own = vars(of)
    before = {name: own.get(name, _ABSENT) for name, _ in attributes}
    own.update(dict(attributes))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _ABSENT:
                del own[name]
            else:
                own[name] = value


TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
OLDEST = (3, 6)  # the oldest version of Triton
_NEEDS = "triton_on needs Triton 3.6 or newer, and torch; pip install 'nvfp4-harness[triton,torch]' has both"
_ENTERED: list[int] = []  # the threads with open blocks, outermost first
_LOCK = threading.Lock()


class TritonRun:
    """The value of a `with triton_on(...)` block. launches: the launches that ended, in order"""

    def __init__(self, settings: Settings):
        self._settings = settings

    @property
    def launches(self) -> list[Launched]:
        return self._settings.launches

    def unwritten(self, tensor: Any) -> int:
        """Bytes of a tensor that neither torch nor a kernel has written since the block's `torch.empty` made it."""
        with self._settings.errors.raised():
            return self._settings.memory.unwritten(tensor)

    def address(self, tensor: Any) -> int:
        """The value that `tensor.data_ptr()` would have on a GPU, for kernels that get tensors of pointers."""
        with self._settings.errors.raised():
            return self._settings.memory.lend(tensor)


@contextmanager
def triton_on(
    target: str = "sm_100a",
    *,
    seed: int | None = None,
    strict: bool = False,
    autotune: str = FIRST,
    unwritten: bool = True,
    echo: Callable[[str], object] | None = None,
    errors: Errors = OWN_ERRORS,
    cache: Path | None = None,
) -> Iterator[TritonRun]:
    """Run `@triton.jit` functions, unchanged, on tensors of the CPU: as code for `target`, on the emulator.

    target: one of TARGETS, with or without `a`
    seed: draws another order of blocks and warps. Where a judge calls a function in its own order, that order holds,
        and the seed draws it if it is a drawn one
    strict: report what Triton's compiler makes of right programs and GPUs bear, too (see `emulator.launch`: lenient)
    autotune: `first`, the first configuration that compiles and fits, or `every`, which runs each once, checked
    unwritten: follow what `torch.empty` made in this block, so that a kernel may not read what nobody wrote
    echo: takes each line of `device_print`; standard output, if absent
    errors: what is raised in place of the emulator's own errors
    cache: the folder for decoded kernels; that of the emulator's machine code, if absent

    All of the process launches on the emulator until the block ends, which other threads may do, too, one launch at a
    time; only the thread that opened a block may open another in it. What was there before is back at its end.

    Raises UsageError without Triton or torch, and in the block: Fault for what a kernel does wrong, by the line of its
    `.py`; NotEmulated for what the emulator lacks; LaunchError for a launch that CUDA would refuse.
    """
    order = ASCENDING if seed is None else Schedule(seed=seed)
    settings = Settings(Storages(), order, strict, echo, errors)
    with ExitStack() as stack:
        with errors.raised():
            arch = _arch(target)
            if autotune not in (FIRST, EVERY):
                raise UsageError(f"autotune is {autotune!r}; it is {FIRST!r} or {EVERY!r}")
            _require_triton()
            stack.enter_context(_alone())
        stack.enter_context(emulated_backend())
        stack.enter_context(_active(EmulatedDriver(arch, settings, cache or cache_root() / "emulator")))
        stack.enter_context(no_times(autotune))
        stack.enter_context(answered(arch))
        if unwritten:
            stack.enter_context(followed(settings.memory))
        yield TritonRun(settings)


def _arch(target: str) -> int:
    match = re.fullmatch(r"sm_(\d+)a?", target)
    if not match or match[1] not in [each[3:].rstrip("a") for each in TARGETS]:
        raise UsageError(f"triton_on has no target {target!r}; it has {', '.join(TARGETS)}")
    return int(match[1])


def _require_triton() -> None:
    try:
        import torch  # noqa: F401
        import triton
        from triton import knobs
        from triton.backends.nvidia import compiler  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{_NEEDS} ({error})") from None
    if tuple(map(int, triton.__version__.split(".")[:2])) < OLDEST:
        raise UsageError(f"{_NEEDS} (Triton {triton.__version__} is installed)")
    if knobs.runtime.interpret:
        raise UsageError("TRITON_INTERPRET has Triton interpret kernels, and nothing would be compiled; unset it")
    if knobs.compilation.store_binary_only:
        raise UsageError("TRITON_STORE_BINARY_ONLY has Triton keep cubins alone, and no PTX; unset it")


@contextmanager
def _alone() -> Iterator[None]:
    """Raise UsageError if another thread has an open block: Triton has one driver for all threads."""
    me = threading.get_ident()
    with _LOCK:
        if _ENTERED and _ENTERED[-1] != me:
            raise UsageError("another thread is in a block of triton_on; launch in that block, or wait for its end")
        _ENTERED.append(me)
    try:
        yield
    finally:
        _ENTERED.pop()


@contextmanager
def _active(emulated: EmulatedDriver) -> Iterator[None]:
    from triton.runtime import driver

    before = driver._active  # not `active`, which would look for a GPU
    driver.set_active(emulated)
    try:
        yield
    finally:
        driver.set_active(before)
