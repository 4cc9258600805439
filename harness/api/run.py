"""Run one case: its inputs, its kernels' arrays, each oracle's answer, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.api.arrays import bytes_of, require_plain
from harness.api.cases import case_of, require_arrays
from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Interval
from harness.device.capability import incapable
from harness.device.device import chosen_target
from harness.device.select import select
from harness.errors import DeviceUnavailable, LaunchError, UsageError
from harness.expected import expected, torch_calls
from harness.ground.command_lines import Asked, trace_command
from harness.text import nearest
from harness.verdict import Result, Story, labelled
from harness.verify import verify
from harness.verify.diagnosis.mismatch import story_of
from harness.verify.screen import screen

ORACLES = ("numpy", "torch")
_POISON = 0xA5


def make_inputs(case: Case | str) -> dict[str, np.ndarray]:
    """The arrays that the case's kernels read, by parameter; the same bytes every time. Raises InputError."""
    return {name: array.copy() for name, array in expected.make_inputs(case_of(case)).items()}


def output_fields(case: Case | str) -> dict[str, Field]:
    """The fields that the case writes: shape, dtype and padding of each."""
    case = case_of(case)
    return dict(expected.oracle_of(case.recipe).outputs(case))


def run_kernel(
    case: Case | str, device: str = "auto", target: str | None = None, inputs: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """Run the case's kernels once and copy what they wrote, by field. Nothing is compared.

    device: `cuda`, `emulator`, or `auto`, a GPU if there is one; target: one of its architectures (its first)
    inputs: arrays by parameter in place of those that the case draws

    Raises DeviceUnavailable, also for a case that the device cannot run, CompileError, and LaunchError, of which
    AccessError is what the emulator found as a sanitizer.
    """
    case, chosen = case_of(case), select(device)
    target = chosen_target(chosen, target)
    reason = incapable(case, chosen)
    if reason:
        raise DeviceUnavailable(f"{case.id}: {reason}")
    fields = output_fields(case)
    with chosen.reserve(case):
        program = chosen.prepare(case, target, _inputs(case, inputs), fields)
        outcome = program.run(_POISON, 0)
    if outcome.trespass:
        raise LaunchError(f"{case.id}: {outcome.trespass}")
    return {name: chosen.to_host(array, fields[name]) for name, array in outcome.outputs.items()}


def ask_oracle(
    case: Case | str, oracle: str = "numpy", inputs: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray | Interval]:
    """Ask one oracle, `numpy` or `torch`, what the case must write, by field.

    An Interval, with `low` and `high`, stands for a field whose values the contract bounds without naming their bytes.
    Raises DeviceUnavailable if torch is asked for and not installed.
    """
    case = case_of(case)
    if oracle not in ORACLES:
        raise UsageError(f"there is no oracle '{oracle}'{nearest(oracle, ORACLES)}")
    module, arrays = expected.oracle_of(case.recipe), _inputs(case, inputs)
    if oracle == "numpy":
        return module.numpy_oracle(case, arrays)
    return torch_calls.ask_torch(module, case, arrays, torch_calls.fastest_device())


def verify_case(case: Case | str, device: str = "auto", inputs: Mapping[str, Any] | None = None) -> Result:
    """The verdict on a case: three runs on poisoned outputs, every byte compared with both oracles.

    What a kernel does wrong is the verdict, with its screen in `story`; nothing is raised for it.
    """
    case = case_of(case)
    if inputs is None:
        result = verify.verify(case, select(device))
        return replace(result, story=screen(result, Asked.here()) if result.story else "")
    return verify.verify(case, select(device), inputs=_inputs(case, inputs))  # a command would draw other inputs


def compare_outputs(
    case: Case | str,
    actual: Mapping[str, Any],
    expect: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> str:
    """The mismatch screen for two results of one case, or an empty text if no byte differs.

    actual: arrays by field, of NumPy, or of any library through DLPack
    expect: what they should be; the NumPy oracle's answer, if absent
    inputs: what both were computed from; what the case draws, if absent

    Raises UsageError for a field that is missing or that the case has not, and for one of another dtype or shape.
    """
    case = case_of(case)
    fields = output_fields(case)
    arrays = _inputs(case, inputs)
    right = ask_oracle(case, "numpy", arrays) if expect is None else fields_of("expect", expect, fields)
    found = fields_of("actual", actual, fields)
    story = story_if_wrong(case, expected.Expected(arrays, fields, right, ("numpy",)), found)
    if not story:
        return ""
    # No command repeats it with our kernel, and one that traces it shows bytes of drawn inputs.
    traced = [labelled("trace", trace_command(case.id, story.trace))] if story.trace and inputs is None else []
    return "\n".join([str(story), *traced])


def story_if_wrong(case: Case, wanted: expected.Expected, found: Mapping[str, np.ndarray]) -> Story | None:
    """The mismatch story of somebody's arrays, by field; None if no byte differs from what is wanted."""
    if all(_accepts(wanted.values[name], found[name]) for name in wanted.fields):
        return None
    return story_of(case, "your arrays", wanted, [found])


def _accepts(right: np.ndarray | Interval, found: np.ndarray) -> bool:
    if isinstance(right, Interval):
        return right.nearest(found).tobytes() == found.tobytes()
    return right.tobytes() == found.tobytes()


def fields_of(name: str, arrays: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Somebody's arrays in NumPy, by field. name: for messages. Raises UsageError unless they fit the fields."""
    require_arrays(name, arrays)
    _require_known(name, arrays, fields)
    found: dict[str, Any] = {}
    for field_name, field in fields.items():
        if field_name not in arrays:
            raise UsageError(f"{name} lacks the field '{field_name}'; it has {', '.join(arrays) or 'none'}")
        value = arrays[field_name]
        if isinstance(value, Interval) and name != "expect":
            raise UsageError(f"{name}['{field_name}'] is an interval, which has no bytes; give it as expect")
        value = value if isinstance(value, Interval) else require_plain(f"{name}['{field_name}']", bytes_of(value))
        if (value.dtype, tuple(value.shape)) != (np.dtype(field.dtype), field.shape):
            raise UsageError(
                f"{name}['{field_name}'] is {value.dtype} {tuple(value.shape)}; it must be {field.dtype} {field.shape}"
            )
        found[field_name] = value
    return found


def _require_known(name: str, arrays: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for other in arrays:
        if other not in known:
            raise UsageError(f"{name} has '{other}', which nothing reads; there are {', '.join(known)}")


def _inputs(case: Case, inputs: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    if inputs is None:
        return make_inputs(case)
    require_arrays("inputs", inputs)
    drawn = make_inputs(case)
    _require_known("inputs", inputs, drawn)
    found = {}
    for name, value in drawn.items():
        if name not in inputs:
            raise UsageError(f"inputs lack '{name}'; the kernels of {case.recipe} read {', '.join(drawn)}")
        array = require_plain(f"inputs['{name}']", inputs[name])
        if (array.dtype, array.shape) != (value.dtype, value.shape):
            raise UsageError(
                f"inputs['{name}'] is {array.dtype} {array.shape}; {case.id} reads {value.dtype} {value.shape}"
            )
        found[name] = array
    return found
