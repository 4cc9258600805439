"""One order for every launch of this process and of those that it forks, in place of the order that a launch asks for.

A judge calls somebody's function several times, and decides in which order the launches of each call run. The function
may open a `triton_on` of its own, launch from several threads, or fork processes that live from call to call. So the
order stands in memory that forked processes share, and is looked up at every launch.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from ptx_emulator.schedule import Schedule

_ORDER, _ENDED = os.memfd_create("order"), os.memfd_create("ended launches")  # one JSON text, and one for each launch
fcntl.fcntl(_ENDED, fcntl.F_SETFL, os.O_APPEND)  # so that lines of several processes do not mix


@dataclass
class EndedLaunches:
    """The launches that ended in a given order, known when its block has ended.

    approximated: as `Counters.approximated`, of all of them; kernels: as `ended` is told them, each once
    """

    approximated: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


@contextmanager
def given_order(schedule: Schedule) -> Iterator[EndedLaunches]:
    """Have all launches run in this order until the block ends.

    If it is a drawn order, a launch that asks for a seed draws from that; nothing else that a launch asks for counts.
    """
    found = EndedLaunches()
    os.ftruncate(_ENDED, 0)
    _put(json.dumps(asdict(schedule)))
    try:
        yield found
    finally:
        _put("")
        lines = [json.loads(line) for line in _text(_ENDED).splitlines()]
        found.kernels = tuple(dict.fromkeys(kernel for kernel, _ in lines))
        found.approximated = tuple(dict.fromkeys(name for _, names in lines for name in names))


def in_force(asked: Schedule) -> Schedule:
    """The order in which a launch runs that asks for this one."""
    text = _text(_ORDER)
    if not text:
        return asked
    given = Schedule(**{**json.loads(text), "only": asked.only})
    return replace(given, seed=asked.seed) if None not in (given.seed, asked.seed) else given


def ended(kernel: str, approximated: Sequence[str]) -> None:
    """Count a launch that ended, if there is a given order. kernel: with what tells its instantiation from others"""
    if _text(_ORDER):
        os.write(_ENDED, f"{json.dumps([kernel, approximated])}\n".encode())


def _put(text: str) -> None:
    os.ftruncate(_ORDER, 0)
    os.pwrite(_ORDER, text.encode(), 0)


def _text(number: int) -> str:
    return os.pread(number, os.fstat(number).st_size, 0).decode()
