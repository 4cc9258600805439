"""Check what a case writes: how many different values are expected, and what lies behind the tensors of a group.

A case that compares only one value tells little. Behind a group, an allocation has a size of its own and no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field, round_up
from harness.contract.group_shape import ShapeRepresentation
from harness.contract.interval import Demand, Interval
from harness.expected.witness import magnitudes
from harness.suite.stages import stages
from harness.suite.suite_file import declared_degenerate

# (number of entries, the fewest different values they may have), for codes, scale bytes, amaxes and outputs.
_CODES = ((256, 3), (1024, 8))
_SCALES = ((64, 3),)
_POWERS = ((64, 2),)  # scales that are powers of two: one for eight of e4m3
_AMAXES = ((16, 2),)
_VALUES = ((16, 2), (1024, 8))
_MOST = 1 << 20  # entries; of a larger field about this many are looked at
_FEWEST = 1 << 12  # the least for each tensor of a group


def too_alike(case: Case, fields: Mapping[str, Field], values: Mapping[str, Demand]) -> str:
    """A sentence about a field with too few different values; empty if there is none, or the suite gives a reason."""
    for name, entries, found, least in counted(fields, values):
        if case.elements and found < least and not declared_degenerate(case, name):
            return (
                f"the expected {name} has {found} different values among {entries}; there must be {least}, or a reason "
                "in the suite, under `degenerate`"
            )
    return ""


def counted(fields: Mapping[str, Field], values: Mapping[str, Demand]) -> Iterator[tuple[str, int, int, int]]:
    """Yield (field, number of entries, different values, required number) for every field."""
    for name, field in fields.items():
        value = values[name]
        kind, entries, independent = _looked_at(field, value.low if isinstance(value, Interval) else value)
        least = max((k for size, k in kind if independent >= size), default=1 if independent else 0)
        yield name, independent, _different(entries), least


def _different(entries: np.ndarray) -> int:
    if entries.itemsize > 2:
        return int(np.unique(entries).size)
    return int(np.count_nonzero(np.bincount(entries.view(f"u{entries.itemsize}"))))  # cheaper than sorting


def _looked_at(
    field: Field, value: np.ndarray, most: int = _MOST
) -> tuple[tuple[tuple[int, int], ...], np.ndarray, int]:
    """A field's limits, about `most` of its entries, and how many entries are not copies by definition."""
    if field.parts:
        most = max(_FEWEST, most // len(field.parts))
        each = [
            _looked_at(part, field.part(value, number), most) for number, part in enumerate(field.parts) if part.size
        ]
        if not each:
            return _VALUES, np.empty(0, np.uint8), 0
        return each[0][0], np.concatenate([entries for _, entries, _ in each]), sum(count for *_, count in each)
    if field.valid is not None:
        stored = value.reshape(-1)[magnitudes.places(field.shape, field.valid, field.swizzled, most)]
        return (
            _POWERS if field.format == "e8m0" else _SCALES,
            stored.reshape(-1),
            math.prod(field.valid) // (16 if field.block[0] == 16 else 1),
        )
    if field.dtype == "uint8" and field.block == (1, 2):
        some = _some(value, most)
        return _CODES, np.concatenate([some & 15, some >> 4]), 2 * value.size
    return _VALUES if field.block == (1, 1) else _AMAXES, _some(value.view(f"u{value.itemsize}"), most), value.size


def _some(array: np.ndarray, most: int) -> np.ndarray:
    flat = array.reshape(-1)
    return flat[:: magnitudes.step(flat.size, most)]


_BY_ROW = ("per_token", "row_scaled")  # recipes with an amax for each row
_NAN_BYTE = 0x7F


def wrong_slack(case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> str:
    """A sentence about an array without its allocation's length, or with numbers behind its tensors; empty if none.

    inputs: the arrays that the kernels read, by parameter; fields: what they write
    """
    if case.problem.capacity is None:
        return ""
    for stage in stages(case):
        if stage.case.problem.capacity is not None:
            of = _of_product if stage.case.is_gemm else _of_group
            found = of(stage.case, stage.select(inputs), stage.select(fields))
            if found:
                return f"stage {stage.name}: {found}" if stage.name else found
    return ""


def _of_group(case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> str:
    entries = _entries(case)
    for name, field in fields.items():
        if name in entries and field.size + field.slack != entries[name]:
            return f"{name} has {field.size} + {field.slack} entries; NUMERICS 8.5 has {entries[name]}"
    for name in entries.keys() & inputs.keys():
        if len(inputs[name]) != entries[name]:
            return f"{name} is given with {len(inputs[name])} entries; NUMERICS 8.5 has {entries[name]}"
    return ""


def _entries(case: Case) -> dict[str, int]:
    """The entries of each array by the table of NUMERICS 8.5."""
    group, elements, tensors = case.problem.group, case.problem.capacity, len(case.problem.tensors)
    by_row = case.flags.recipe in _BY_ROW or bool(case.flags.get("row_scaled", False))
    by = group.splits_by
    if case.flags.shape_representation == ShapeRepresentation.VARYING_BOTH_DIMS:
        scales = (elements // 16 * (128 // by),) * 2
        amaxes = (elements // by if by_row else tensors,) * 2
    else:
        cols = group.tensors[0][1]
        rows = elements // cols
        lines = rows if by == 128 else (rows + 64 * tensors) // 128 * 128
        scales = lines * round_up(cols // 16, 4), rows // 16 * round_up(cols, 128)
        amaxes = (rows, tensors * cols) if by_row else (tensors, tensors)
    if case.flags.get("amax") == "shared":
        amaxes = 1, 1
    entries = {}
    for side, scale, amax in zip(("rowwise", "columnwise"), scales, amaxes, strict=True):
        entries |= {f"{side}_data": elements // 2, f"{side}_scale_inv": scale}
        if case.flags.recipe != "local_1x64":
            entries[f"{side}_amax"] = amax
    return entries


def _of_product(case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> str:
    if case.problem.by_k:
        return _of_wgrad(case, inputs, fields)
    lines, own = case.problem.m, sum(rows for rows, _ in case.problem.tensors)
    for name, field in fields.items():
        if field.size + field.slack != lines * case.problem.n:
            return f"{name} has {field.size} + {field.slack} entries; its allocation has {lines} rows"
    by_row = ("a_data", "a_scale_inv", "c", *(("a_amax",) if case.flags.epilogue != "per_tensor" else ()))
    for name in by_row:
        if name in inputs and len(inputs[name]) != lines:
            return f"{name} is given with {len(inputs[name])} rows; its allocation has {lines}"
        if name in inputs and not _is_nan(inputs[name][own:]):
            return f"{name} has numbers behind its last group, where every entry must be NaN"
    return ""


def _of_wgrad(case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> str:
    """The check for a wgrad, where K is a part of an allocation: codes and scales have slack, the output has none."""
    outputs = len(case.problem.tensors) * case.problem.m * case.problem.n
    for name, field in fields.items():
        if field.size + field.slack != outputs:
            return f"{name} has {field.size} + {field.slack} entries; the outputs of all groups have {outputs}"
    own = sum(length for _, length in case.problem.tensors)  # each a multiple of 128, as scales are padded to
    for operand, lines in (("a", case.problem.m), ("b", case.problem.n)):
        for part, high, per_byte in (("data", lines, 2), ("scale_inv", round_up(lines, 128), 16)):
            name = f"{operand}_{part}"
            if name not in inputs:
                continue
            entries = high * case.cols // per_byte
            if len(inputs[name]) != entries:
                return f"{name} is given with {len(inputs[name])} entries; its allocation has {entries}"
            if not _is_nan(inputs[name][high * own // per_byte :]):
                return f"{name} has numbers behind its last group, where every entry must be NaN"
    return ""


def _is_nan(slack: np.ndarray) -> bool:
    return bool((slack == _NAN_BYTE).all() if slack.dtype == np.uint8 else np.isnan(slack.astype(np.float32)).all())
