"""Stand-ins for the arrays that a case reads, with the right shapes but no memory: no tensor is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.contract.dtypes import DTYPES
from harness.expected.expected import oracle_of
from harness.files import recipe_dir
from harness.oracles import activations, gemm_grouped, gemm_operands, grouped, layout, swizzle
from harness.suite.stage_checks import stage_fields
from harness.suite.stages import Stage, is_pipeline, stages


def read_arrays(case: Case) -> dict[str, np.ndarray] | None:
    """Arrays of the shapes and dtypes of `make_inputs`, with no memory behind them; None for a recipe of the user's.

    A group's extents have their real values, because they say how much of an allocation counts.
    """
    if recipe_dir(case.recipe) is not None:
        return None
    if not is_pipeline(case):
        return _of(case)
    found: dict[str, np.ndarray] = {}
    for stage in stages(case):
        if stage.draws:
            found |= stage.keyed(_fields(stage) if stage.given else _of(stage.case))
        elif stage.case.is_group:
            found |= stage.keyed(stage.case.problem.arrays)
        found |= {key: array for name, array in _of(stage.case).items() for key in (stage.added.get(name),) if key}
    return found


def _of(case: Case) -> dict[str, np.ndarray]:
    """The arrays that one stage, or a case that is no pipeline, reads."""
    flags = case.flags
    if case.is_gemm:
        shapes = (gemm_grouped if case.is_group else gemm_operands).shapes(case)
        dtypes = {"data": "uint8", "inv": "uint8", "amax": "float32"}
        return {
            name: _array(shape, dtypes.get(name.rpartition("_")[2], str(flags.dtype))) for name, shape in shapes.items()
        } | (case.problem.arrays if case.is_group else {})
    if "to" in flags:
        swizzled = flags.to == "compact"
        found = swizzle.field_name(swizzled)
        direction = layout.DIRECTIONS[flags.direction]
        extents = case.problem.tensors if case.is_group else ((case.rows, case.cols),)
        size = sum(layout.scale_field(*each, direction, "block_1x16", swizzled).size for each in extents)
        return {found: _array((size,), "uint8")} | (case.problem.arrays if case.is_group else {})
    if case.recipe == "dequantize":
        return _encoded(case)
    dtype = str(flags.get("dtype", "bf16"))
    activation = flags.get("activation", "none")
    if not case.is_group:
        cols = {"input": activations.input_elements(case, case.cols)} | (
            {"act_input": case.cols} if activation == "dswiglu" else {}
        )
        return {name: _array((case.rows, count), dtype) for name, count in cols.items()} | _amaxes(case)
    sizes = {"input": activations.input_elements(case, case.problem.group.allocated)}
    if activation not in ("none", "swiglu"):
        sizes["act_input"] = case.problem.group.allocated
    return (
        {name: _array((size,), dtype) for name, size in sizes.items()}
        | {name: _array((f.size + f.slack,), f.dtype) for name, f in grouped.given_fields(case).items()}
        | case.problem.arrays
    )


def _amaxes(case: Case) -> dict[str, np.ndarray]:
    """The amaxes that a dense encode stage is given: the ones that the amax stage writes."""
    if case.flags.get("stage", "full") != "encode":
        return {}
    fields = oracle_of(case.recipe).outputs(replace(case, flags=case.flags.replace(stage="amax")))
    return {name: _array(field.shape, field.dtype) for name, field in fields.items() if name.endswith("_amax")}


def _encoded(case: Case) -> dict[str, np.ndarray]:
    """The arrays of a quantized tensor for `dequantize`."""
    flags, direction = case.flags, layout.DIRECTIONS[case.flags.outputs]
    fields = {
        "data": layout.data_field(case.rows, case.cols, direction),
        "scale_inv": layout.scale_field(case.rows, case.cols, direction, flags.block, flags.scale_layout == "swizzled"),
    }
    if case.two_levels:
        fields["amax"] = layout.amax_field(case.rows, case.cols, direction, flags.granularity)
    return {name: _array(field.shape, field.dtype) for name, field in fields.items()}


def _fields(stage: Stage) -> dict[str, np.ndarray]:
    return {name: _array((f.size + f.slack,), f.dtype) for name, f in stage_fields(stage).items()}


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that repeats one entry: it has the shape and the bytes, and one entry of memory."""
    return np.broadcast_to(np.zeros((), DTYPES.get(dtype, dtype)), shape)
