"""Helpers of the cheats, for NumPy and CuPy alike: one honest piece of work, and ways to put it elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from harness.device.cuda_code import native_target
from harness.subjects import streams
from harness.subjects.shared import address


def work(source: Any, target: Any) -> None:
    """The honest work: bytes in 128x4 tiles, one tile after the other."""
    rows, cols = source.shape
    tiles = source.reshape(rows // 128, 4, 32, cols // 4, 4).transpose(0, 3, 2, 1, 4)
    assign(target.reshape(tiles.shape), tiles)


def assign(target: Any, source: Any) -> None:
    target[...] = source


def like(target: Any, array: np.ndarray) -> Any:
    if isinstance(target, np.ndarray):
        return array
    import cupy

    return cupy.asarray(array)


def before(target: Any, distance: int) -> Any:
    """The byte that lies `distance` bytes before an array."""
    whole = target.base
    start = address(target) - address(whole) - distance
    return whole[start : start + 1]


def capturing() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@cache
def _stream() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def other_stream() -> AbstractContextManager[Any]:
    """A context with a stream that nobody waits for."""
    return _stream()


def delay(stream: Any) -> None:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    streams.hold(stream, native_target(properties["major"], properties["minor"]))
