"""`@triton.autotune` without times, which mean nothing here: the first configuration that works is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from ptx_emulator.triton_driver.launcher import ONE_AT_A_TIME

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
