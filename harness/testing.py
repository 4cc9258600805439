"""For pytest suites of other projects: does a quantizer of theirs make the bytes that a recipe promises?

from harness.testing import assert_bytes

def test_my_quantizer():
    assert_bytes(my_quantizer(x), x, "per_tensor", outputs="rowwise")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.api.run import fields_of, story_if_wrong
from harness.api.tensors import case_of_tensor, host_inputs
from harness.contract.case import Case, FlagValue
from harness.errors import DeviceUnavailable, OracleError
from harness.expected import expected, torch_calls


def assert_bytes(
    q: Mapping[str, Any], x: Any, recipe: str = "per_tensor", /, *, shape: str = "", seed: int = 0, offset: int = 0,
    dtype: str | None = None, **flags: FlagValue,
) -> None:  # fmt: skip
    """Compare every byte that a recipe promises with both oracles, NumPy and, where it is installed, torch.

    q: arrays by field, of NumPy, torch or CuPy, as the quantizer made them: `rowwise_data`, `rowwise_scale_inv`, ... in
        the shapes that `harness.quantize` gives. torch's float4_e2m1fn_x2 and float8_e4m3fn are taken as their bytes.
    x: what it was given; this and all that follows are as `harness.quantize` has them

    Raises AssertionError, whose text is the mismatch screen, if a byte differs. Raises UsageError, in one sentence, for
    a field that is missing or that the recipe does not write, and for one of another dtype or shape.
    """
    __tracebackhide__ = True  # so that pytest shows the caller's line
    case, whole, library = case_of_tensor(x, recipe, shape, seed, offset, dtype, flags)
    wanted = _wanted(case, host_inputs(case, whole, library))
    story = story_if_wrong(case, wanted, fields_of("q", q, wanted.fields))
    if story:
        head = f"MISMATCH  {recipe}/{case.variant}/{case.shape}  in your arrays"
        raise AssertionError(str(replace(story, head=head)))


def _wanted(case: Case, inputs: dict[str, Any]) -> expected.Expected:
    """The oracles' bytes for a tensor. Raises OracleError where they disagree."""
    try:
        found = expected.expect_on(case, inputs, torch_calls.fastest_device())
    except DeviceUnavailable:  # without torch
        values = expected.oracle_of(case.recipe).numpy_oracle(case, inputs)
        return expected.Expected(inputs, expected.fields_of(case), values, ("numpy",))
    if found.disagreement:
        raise OracleError(f"{case.recipe}: no array can be judged by this x: {found.disagreement}")
    return found
