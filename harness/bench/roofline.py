"""The copy roofline: the bytes a case must move, and the rate at which this GPU copies in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from statistics import median

import numpy as np

from harness.bench.cold_copies import capture
from harness.bench.gpu_timer import Clock, pilot, sample
from harness.contract.field import Field
from harness.records.run_folder import EVENTS
from harness.suite.launch_plan import Step, bind

TWO_KERNELS = "two kernels"  # the floor of a recipe of two launches, as EVENTS is of an eager time
COPY_BYTES = 512 << 20
ROUNDS = 15
WARM_UP = 3


def bytes_moved(steps: Iterable[Step], inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> int:
    """Bytes read plus bytes written: each launch moves each array that is bound to it once, and twice if it changes it
    in place. Scratch and workspaces do not count.

    `per_tensor`, both outputs, bf16: 2 for the amax, then 2 + 1.125 for the encode, so 5.125 an element.
    """
    total = 0
    inputs = without_slack(inputs)
    for step in steps:
        arrays = {**inputs, **fields, **dict.fromkeys([*step.scratch, *step.workspace], np.empty(0))}
        for parameter, (_, value) in zip(step.signature.call, bind(step, arrays), strict=True):
            total += getattr(value, "nbytes", 0) * (2 if parameter.in_place else 1)
    return total


def without_slack(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs, those of a group as far as its tensors reach in their allocations."""
    ends = {}
    if "tensor_offsets" in inputs:
        ends = dict.fromkeys(("input", "act_input"), int(inputs["tensor_offsets"][-1]))
    return {name: value[: ends.get(name)] for name, value in inputs.items()}


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
    """What one flush takes on the GPU."""
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
    kernel((1,), (32,), ())  # compiles and loads it, which a capture does not allow
    cupy.cuda.get_current_stream().synchronize()
    graph = capture(clock, [partial(kernel, (1,), (32,), ())], count)
    return lambda: graph.launch(clock.stream)
