"""The order in which processes run cases: the largest are spread over them and begin early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from xdist.scheduler import WorkStealingScheduling

from harness.verify.host_room import LARGE

Item = TypeVar("Item")
TIMES = 6  # large cases begin at six points, a sixth of them at each, so that not all draw inputs at once
BEGUN = 0.6  # the last large case begins after this share of a part


def spread(items: Sequence[Item], elements: Callable[[Item], int], processes: int) -> list[Item]:
    """Order the items in parts of similar length, one for each process, with large items far apart.

    The large ones are placed at several points in the first BEGUN of a part; all others keep their order.
    """
    large = sorted((item for item in items if elements(item) >= LARGE), key=elements, reverse=True)
    if not large:
        return list(items)
    others = [item for item in items if elements(item) < LARGE]
    length = -(-len(others) // processes)
    parts = [others[i * length : (i + 1) * length] for i in range(processes)]
    for number, item in enumerate(large):
        part = parts[number % processes]
        part.insert(int(len(part) * BEGUN * (number % TIMES) / (TIMES - 1)), item)
    return [item for part in parts for item in part]


class Stealing(WorkStealingScheduling):
    """Work stealing that survives the end of a worker."""

    def check_schedule(self) -> None:
        try:
            super().check_schedule()
        except OSError:
            # A dead worker cannot be asked to give back its cases. Its end is reported next, and that returns them.
            return
