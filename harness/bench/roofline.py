"""The copy roofline: the rate at which this GPU copies in the same run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from harness.bench.cold_copies import capture
from harness.bench.gpu_timer import Clock, pilot, sample
from harness.records.run_folder import EVENTS

TWO_KERNELS = "two kernels"  # the floor for a recipe of two launches; EVENTS is the floor for an eager time
COPY_BYTES = 512 << 20
ROUNDS = 15
WARM_UP = 3


def copy_gbps(clock: Clock) -> float:
    """GB/s, bytes read plus bytes written, of a device-to-device copy of COPY_BYTES: 100 % of the roofline."""
    copy = copier()
    with clock.stream:
        seconds, _ = pilot(clock, copy, WARM_UP, ROUNDS)
    return 2 * COPY_BYTES / median(seconds) / 1e9


def floors_us(clock: Clock) -> dict[str, float]:
    """Microseconds that this clock measures for almost no work; never subtracted from a time.

    By `events` the gate compares eager times of hosts whose events take different times.

    events: nothing between them; eager, graph: a memset of 4 bytes; two kernels: two empty ones in a graph
    """
    eager, graph = tiny(clock)
    two_kernels = empty_kernels(clock, 2)
    with clock.stream:
        targets = {EVENTS: lambda: None, "eager": eager, "graph": graph, TWO_KERNELS: two_kernels}
        for target in targets.values():
            sample(clock, target, WARM_UP)
        return {name: round(median(sample(clock, target, ROUNDS)) * 1e6, 3) for name, target in targets.items()}


def flush_seconds(clock: Clock) -> float:
    """Seconds that one flush takes on the GPU."""
    with clock.stream:
        return median(sample(clock, clock.flush, WARM_UP))


def copier(nbytes: int = COPY_BYTES) -> Callable[[], None]:
    """A copy between two buffers of so many bytes, queued on the current stream."""
    import cupy

    source, target = (cupy.zeros(nbytes, cupy.uint8) for _ in range(2))
    cupy.cuda.get_current_stream().synchronize()
    return lambda: target.data.copy_from_device_async(source.data, nbytes)


def tiny(clock: Clock) -> tuple[Callable[[], None], Callable[[], None]]:
    """A memset of 4 bytes on the current stream, as a call and as a graph."""
    import cupy

    memory = cupy.zeros(4, cupy.uint8)
    cupy.cuda.get_current_stream().synchronize()

    def clear() -> None:
        memory.data.memset_async(0, 4)

    graph = capture(clock, [clear], 1)
    return clear, lambda: graph.launch(clock.stream)


def empty_kernels(clock: Clock, count: int) -> Callable[[], None]:
    """A graph of `count` kernels that do nothing, one after the other, each one warp."""
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    kernel((1,), (32,), ())  # compile and load it now, because a capture does not allow that
    cupy.cuda.get_current_stream().synchronize()
    graph = capture(clock, [partial(kernel, (1,), (32,), ())], count)
    return lambda: graph.launch(clock.stream)
