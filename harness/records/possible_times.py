"""Check that times are possible for a case: they move its bytes, and are no shorter than physics allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Any

from harness.contract.case import Case
from harness.suite.launch_plan import plan
from harness.suite.physics import Needs, arrays_moved, bytes_moved, impossible, operations, peak_tflops, without_slack
from harness.verify.expected import fields_of
from harness.verify.read_arrays import read_arrays

LARGEST_L2 = 128 << 20  # bytes, assumed if the header does not say; a B200 has 126 MiB
_CALLS = re.compile(r"graphs of ([0-9]{1,6}) calls")
_FILLED = 3.0  # a case's copies fill the L2 at least this many times, unless 256 copies do not suffice
_COPIES = 2, 256  # the fewest and the most


def moved(case: Case) -> tuple[tuple[int, int, int], ...]:
    """For each choice of launches, the bytes that a call moves, and the bytes of the arrays that it reads and writes.

    Nothing for a recipe of the user's.
    """
    return _moved(replace(case, mode="eager"))


@lru_cache(maxsize=1 << 12)
def _moved(case: Case) -> tuple[tuple[int, int, int], ...]:
    arrays = read_arrays(case)
    if arrays is None:
        return ()
    fields = fields_of(case)
    plans = (plan(case, fits=lambda step, fits=fits: fits) for fits in (False, True))
    return tuple(
        dict.fromkeys(
            (bytes_moved(steps, arrays, fields), *arrays_moved(steps, without_slack(arrays), fields)) for steps in plans
        )
    )


def memory_bytes(case: Case) -> int | None:
    """Bytes of all that a case reads and writes, as it lies in memory; None for a recipe of the user's."""
    arrays = read_arrays(case)
    if arrays is None:
        return None
    return sum(array.nbytes for array in arrays.values()) + sum(field.nbytes for field in fields_of(case).values())


def problems_of_times(
    case: Case, target: str, times: Mapping[str, Any], machine: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield why times cannot be our kernels'. machine: from the header of these times; without it bounds are wider"""
    known = moved(case)
    if known and times["bytes"] not in (counts := [count for count, _, _ in known]):
        yield f"bytes is {times['bytes']}, and a call of it moves {' or '.join(map(str, counts))}"
    calls = _CALLS.search(times.get("measured", ""))
    clocks = [*times.get("samples_mhz", ()), times.get("mhz") or 0.0]
    us, copy_gbps = times["median_us"], times["roofline_gbps"]
    yield from too_short(case, target, us, copy_gbps, machine or {}, max(clocks), int(calls[1]) if calls else 1)


def too_short(
    case: Case, target: str, us: float, copy_gbps: float, machine: Mapping[str, str], mhz: float = 0.0, calls: int = 1
) -> Iterator[str]:
    """A sentence if no call of the case can take so few microseconds. calls: in a round; target: `sm_90a`, or empty"""
    l2_bytes = _number(machine.get("l2_bytes")) or LARGEST_L2
    peak = peak_tflops(target, _number(machine.get("multiprocessors")), mhz)
    found = []
    for _, read, written in moved(case):
        filled = inf
        if case.mode == "graph":
            fewest, most = (copies * (read + written) / l2_bytes for copies in _COPIES)
            filled = max(fewest, min(_FILLED, most), 1.0)
        needs = Needs(read, written, operations(case), filled, max(calls, 1))
        found.append(impossible(us, needs, l2_bytes, copy_gbps, peak))
    if found and all(found):
        yield found[0]


def _number(word: str | None) -> int:
    return int(word) if word and re.fullmatch("[0-9]{1,12}", word) else 0
