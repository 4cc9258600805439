"""Large tensors that several processes of one machine need: each is drawn once, into a file that all of them map."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from harness.contract.dtypes import DTYPES
from harness.inputs.draw import make

LARGEST_OWN = 1 << 20  # elements; a tensor of at most this size is cheaper to draw than to share
LAST = 4  # tensors that stay mapped, so that the same array comes back while its shape lasts
_PAUSE = 0.005

Reference = tuple[str, str, tuple[int, ...]]  # a tensor in a file: the file's name, the dtype and the shape


class DrawnOnce:
    """Draws tensors in the asking process; once `share` names a folder, each is drawn once for all processes.

    asker: the number of the case that this process prepares, by which files are dropped
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._folder = Path()
        self._shared = False
        self.asker = 0
        self._mapped: OrderedDict[Reference, np.ndarray] = OrderedDict()
        self._known: dict[int, tuple[weakref.ref[np.ndarray], Reference]] = {}

    def share(self, folder: Path) -> None:
        """Keep tensors in this folder, which exists, and which the caller removes."""
        self._folder, self._shared = folder, True

    def of(self, key: str, dtype: str, shape: tuple[int, ...], draw: Callable[[], np.ndarray]) -> np.ndarray:
        """The tensor of this key, drawn here if no process has drawn it, or if it is small.

        key: decides every byte together with dtype and shape; draw: returns an array of that dtype and shape
        """
        if not self._shared or math.prod(shape) <= LARGEST_OWN:
            return draw()
        name = f"drawn-{hashlib.sha256(f'{key} {dtype} {shape}'.encode()).hexdigest()[:24]}"
        reference = name, dtype, shape
        found = self._drawn_elsewhere(reference)
        if found is None:
            part = self._folder / f"{name}.{os.getpid()}"
            draw().tofile(part)
            os.utime(part, (0, 0))  # no case has asked yet
            part.replace(self._folder / name)
            found = self.load(reference)
        with suppress(OSError):  # dropped in the meantime
            self._ask(self._folder / name)
        return found

    def reference(self, array: object) -> Reference | None:
        """The reference for other processes to an array that `of` or `load` returned; None for any other object."""
        known, reference = self._known.get(id(array), (lambda: None, None))
        return reference if known() is array else None

    def load(self, reference: Reference) -> np.ndarray:
        """The array of a reference, the same object for as long as it is among the LAST. Raises OSError."""
        if reference not in self._mapped:
            self._mapped[reference] = self._map(reference)
        self._mapped.move_to_end(reference)
        while len(self._mapped) > LAST:
            self._mapped.popitem(last=False)
        return self._mapped[reference]

    def drop(self, number: int) -> None:
        """Remove the files that no case beyond this number has asked for yet. A case that asks later draws anew."""
        for path in self._folder.glob("drawn-*") if self._shared else ():
            with suppress(OSError):
                if not path.suffix and path.stat().st_mtime <= number:
                    path.with_suffix(".claim").unlink(missing_ok=True)
                    path.unlink()

    def _ask(self, path: Path) -> None:
        """Store the number of the last case that asked for the file as the file's time."""
        last = max(path.stat().st_mtime, self.asker)
        os.utime(path, (last, last))

    def _drawn_elsewhere(self, reference: Reference) -> np.ndarray | None:
        """The tensor that another process has drawn or is drawing; None if this process has to draw it."""
        path = self._folder / reference[0]
        claim = path.with_suffix(".claim")
        try:
            with claim.open("x") as file:
                file.write(str(os.getpid()))
            return None
        except FileExistsError:
            pass
        try:
            while not path.exists():
                owner = claim.read_text()
                if owner and not Path("/proc", owner).exists():
                    return None  # killed while it drew
                time.sleep(_PAUSE)
            return self.load(reference)
        except OSError:
            return None  # dropped in the meantime

    def _map(self, reference: Reference) -> np.ndarray:
        name, dtype, shape = reference
        with (self._folder / name).open("rb") as file:
            # Private pages, because torch warns of an array that nobody may write.
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        array = np.frombuffer(memory, DTYPES[dtype]).reshape(shape)
        forget, own = self._known.pop, id(array)
        self._known[own] = weakref.ref(array, lambda _: forget(own, None)), reference
        return array


DRAWN = DrawnOnce()


def tensor(input_name: str, rows: int, cols: int, dtype: str, seed: int) -> np.ndarray:
    """The (rows, cols) tensor that `draw.make` makes, shared through `DRAWN`; an empty one without rows or columns."""
    if not rows * cols:
        return np.empty((rows, cols), DTYPES[dtype])  # no distribution can draw it
    return DRAWN.of(f"{input_name} {seed}", dtype, (rows, cols), lambda: make(input_name, rows, cols, dtype, seed))
