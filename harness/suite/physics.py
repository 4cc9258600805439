"""The bytes that a case moves, and the least time it can take: the bytes at the copy rate, its operations at the peak.

Every bound is generous, so a time below it cannot be right: work was left out, or the clock was wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from re import match

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles.activations import input_elements
from harness.suite.launch_plan import Step, bind
from harness.suite.stages import is_pipeline, terms

# Bandwidth of memory over the rate of a copy, at most: an H200 reads 4.8 TB/s by its data sheet and copies 4.2 TB/s.
MEMORY = 1.25
# Bandwidth of the L2 over the rate of a copy, at most: 5.5 to 7 TB/s are measured on a Hopper.
L2 = 4.0
# Operations per multiprocessor and clock for the fastest dense matrix type, by NVIDIA's white papers: int8 on 8.0,
# FP8 on 9.0, FP4 on 10.0 and later.
OPERATIONS = {8: 4096, 9: 8192, 10: 32768}


@dataclass(frozen=True)
class Needs:
    """The work that a call must do. read, written: bytes, each array once; operations: of products, two per term

    filled: how many times the copies that calls cycle through fill the L2; infinite after a flush
    calls: calls in a round
    """

    read: int = 0
    written: int = 0
    operations: int = 0
    filled: float = inf
    calls: int = 1


def bytes_moved(steps: Iterable[Step], inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> int:
    """Bytes read plus bytes written: each launch moves each array that is bound to it once, and twice if it changes it
    in place. Scratch and workspaces do not count.

    `per_tensor`, both outputs, bf16: 2 for the amax, then 2 + 1.125 for the encode, so 5.125 an element.
    """
    total, steps = 0, tuple(steps)
    inputs = _without_slack(steps, inputs)
    for step in steps:
        arrays = {**inputs, **fields, **dict.fromkeys([*step.scratch, *step.workspace], np.empty(0))}
        for parameter, (_, value) in zip(step.signature.call, bind(step, arrays), strict=True):
            total += getattr(value, "nbytes", 0) * (2 if parameter.in_place else 1)
    return total


def _without_slack(steps: Sequence[Step], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs; a group's are cut off where its tensors end in their allocations."""
    ends = {}
    if steps and "tensor_offsets" in inputs:
        elements = int(inputs["tensor_offsets"][-1])
        ends = {"input": input_elements(steps[0].case, elements), "act_input": elements}
    return {name: value[: ends.get(name)] for name, value in inputs.items()}


def arrays_moved(
    steps: Iterable[Step], inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
) -> tuple[int, int]:
    """Bytes of the inputs that some launch reads, without slack, and of the fields; not of scratch and workspaces."""
    read: dict[int, int] = {}
    steps = tuple(steps)
    inputs = _without_slack(steps, inputs)
    for step in steps:
        own = dict.fromkeys([*step.scratch, *step.workspace], np.empty(0))
        for _, value in bind(step, {**inputs, **fields, **own}):
            if isinstance(value, np.ndarray):
                read[id(value)] = value.nbytes
    return sum(read.values()), sum(field.nbytes for field in fields.values())


def needs_of(
    case: Case, steps: Iterable[Step], inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field], filled: float,
    calls: int,
) -> Needs:  # fmt: skip
    """The work of a call of these launches of a case."""
    return Needs(*arrays_moved(steps, inputs, fields), operations(case), filled, calls)


def operations(case: Case) -> int:
    """The number of operations in all products of a case: two per term."""
    return 2 * terms(case) if case.is_gemm or is_pipeline(case) else 0


def least_us(needs: Needs, l2_bytes: int, copy_gbps: float, peak_tflops: float) -> float:
    """The microseconds that any call takes at least. copy_gbps: read plus written; peak_tflops: 0 if unknown

    Inputs that were evicted come from memory. The outputs of a round go to memory, except for as much as the L2 can
    hold. All bytes go through the L2.
    """
    evicted = max(0.0, 1 - 1 / needs.filled)
    from_memory = needs.read * evicted + max(0.0, needs.written - l2_bytes / needs.calls)
    at_all = needs.read + needs.written
    moving = max(from_memory / MEMORY, at_all / L2) / copy_gbps / 1e3
    return max(moving, needs.operations / peak_tflops / 1e6 if peak_tflops else 0.0)


def peak_tflops(target: str, multiprocessors: int, mhz: float) -> float:
    """TFLOP/s of the fastest matrix type at this clock; 0 for a chip that is not known. target: `sm_90a`"""
    found = match(r"sm_(\d+)\d", target)
    if found is None:
        return 0.0
    major = int(found[1])
    return (
        OPERATIONS.get(major, max(OPERATIONS.values()) if major > max(OPERATIONS) else 0) * multiprocessors * mhz / 1e6
    )


def impossible(us: float, needs: Needs, l2_bytes: int, copy_gbps: float, peak: float) -> str:
    """A sentence if no call can take so few microseconds, or an empty text."""
    least = least_us(needs, l2_bytes, copy_gbps, peak)
    if us >= least:
        return ""
    work = f"{needs.read + needs.written:,} bytes" + (
        f" and {needs.operations:,} operations" if needs.operations else ""
    )
    return f"{us:.3f} us cannot be: {work} take {least:.3f} us at the least, with a copy of {copy_gbps:,.0f} GB/s" + (
        f" and a peak of {peak:,.0f} TFLOP/s" if needs.operations else ""
    )
