"""Streams and graphs for other implementations: a stream is current for CuPy, torch and Triton alike."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.device.cuda_code import load
from harness.errors import LaunchError
from harness.jit.compile import compile_kernel
from harness.jit.signature import read_signatures

HOLD_NS = 5_000_000  # longer than a host needs to queue any launch whose kernels are compiled


@contextmanager
def errors(where: str) -> Iterator[None]:
    """Raise LaunchError, which says `where`, for a CUDA error that CuPy or torch reports."""
    try:
        yield
    except RuntimeError as error:
        raise LaunchError(f"{where}: {str(error).strip().splitlines()[0]}") from None


@contextmanager
def current(stream: Any) -> Iterator[Any]:
    """Make a CuPy stream the current one of CuPy and of torch."""
    import torch

    # torch cannot wrap the stream with address 0.
    theirs = torch.cuda.ExternalStream(stream.ptr) if stream.ptr else torch.cuda.default_stream()
    with stream, torch.cuda.stream(theirs):
        yield stream


class Graph:
    """Work that some calls queue on a stream, replayed on any. Memory that the calls allocate stays allocated."""

    def __init__(self, stream: Any, calls: Sequence[Callable[[], None]]):
        import cupy
        import torch

        self._graph, self._pool = torch.cuda.CUDAGraph(), cupy.cuda.MemoryPool()
        with warnings.catch_warnings(), current(stream), cupy.cuda.using_allocator(self._pool.malloc):
            warnings.simplefilter("ignore")  # torch warns of an empty graph; verification finds its outputs unwritten
            # Relaxed, because CuPy allocates from the driver during the capture.
            torch.cuda.synchronize()
            self._graph.capture_begin(capture_error_mode="relaxed")
            try:
                for call in calls:
                    call()
            except BaseException:
                with suppress(RuntimeError):  # the error has invalidated the capture
                    self._graph.capture_end()
                raise
            self._graph.capture_end()

    def launch(self, stream: Any) -> None:
        with current(stream):
            self._graph.replay()


def hold(stream: Any, target: str) -> None:
    """Keep a stream busy for HOLD_NS, so that work that does not wait for the stream finishes first."""
    with stream:
        _holder(target)((1,), (1,), (np.uint64(HOLD_NS),))


@cache
def _holder(target: str) -> Any:
    signature = read_signatures("hold", Path(__file__).parent)["hold"]
    return load(compile_kernel(signature, {}, target))
