"""The copy roofline: the bytes a case must move, and the rate at which this GPU copies in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from harness.bench.gpu_timer import Clock, pilot, sample
from harness.contract.field import Field
from harness.suite.launch_plan import Step, bind

TWO_KERNELS = "two kernels"  # a floor of the clock: below it, no tensor is quantized in two launches
COPY_BYTES = 512 << 20
ROUNDS = 15
WARM_UP = 3


@dataclass(frozen=True)
class _Own:
    """Scratch or workspace of a kernel, which does not count as traffic of the case."""

    nbytes: int = 0


def bytes_moved(steps: Iterable[Step], inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> int:
    """Bytes read plus bytes written: each launch moves each array its pointers are bound to once, its own memory
    excepted, and an array that it changes in place twice.

    `per_tensor`, both outputs, bf16: 2 for the amax, then 2 + 1.125 for the encode, so 5.125 an element.
    """
    total = 0
    for step in steps:
        arrays = {**inputs, **fields, **dict.fromkeys([*step.scratch, *step.workspace], _Own())}
        for parameter, (_, value) in zip(step.signature.call, bind(step, arrays), strict=True):
            total += getattr(value, "nbytes", 0) * (2 if parameter.in_place else 1)
    return total


def copy_gbps(clock: Clock) -> float:
    """GB/s, bytes read plus bytes written, of a device-to-device copy of COPY_BYTES: 100 % of the roofline."""
    copy = copier()
    with clock.stream:
        seconds, _ = pilot(clock, copy, WARM_UP, ROUNDS)
    return 2 * COPY_BYTES / median(seconds) / 1e9


def floors_us(clock: Clock) -> dict[str, float]:
    """Microseconds this clock gives for next to nothing; shown, never subtracted.

    events: nothing between the two; eager, graph: a memset of 4 bytes; two kernels: two empty ones in a graph
    """
    eager, graph = tiny(clock)
    two_kernels = empty_kernels(clock, 2)
    with clock.stream:
        targets = {"events": _nothing, "eager": eager, "graph": graph, TWO_KERNELS: two_kernels}
        for target in targets.values():
            sample(clock, target, WARM_UP)
        return {name: round(median(sample(clock, target, ROUNDS)) * 1e6, 3) for name, target in targets.items()}


def copier() -> Callable[[], None]:
    """A copy between two buffers of COPY_BYTES, queued on the current stream."""
    import cupy

    source, target = (cupy.zeros(COPY_BYTES, cupy.uint8) for _ in range(2))
    cupy.cuda.get_current_stream().synchronize()
    return lambda: target.data.copy_from_device_async(source.data, COPY_BYTES)


def tiny(clock: Clock) -> tuple[Callable[[], None], Callable[[], None]]:
    """A memset of 4 bytes on the current stream, as a call and as a graph."""
    import cupy

    memory = cupy.zeros(4, cupy.uint8)
    cupy.cuda.get_current_stream().synchronize()

    def clear() -> None:
        memory.data.memset_async(0, 4)

    with clock.stream as stream:
        stream.begin_capture()
        clear()
        graph = stream.end_capture()
    return clear, lambda: graph.launch(clock.stream)


def empty_kernels(clock: Clock, count: int) -> Callable[[], None]:
    """A graph of so many kernels that do nothing, one after the other, each a block of one warp."""
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    kernel((1,), (32,), ())  # which compiles and loads it, and must not happen during a capture
    cupy.cuda.get_current_stream().synchronize()
    with clock.stream as stream:
        stream.begin_capture()
        for _ in range(count):
            kernel((1,), (32,), ())
        graph = stream.end_capture()
    return lambda: graph.launch(clock.stream)


def _nothing() -> None:
    """The target of an empty round."""
