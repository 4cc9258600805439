"""One sentence about wrong inputs of a case: against the promise of its input, and against what was drawn.

Some are drawn as bytes: the inputs `exact_sum` and `wide_sum`, and dequantize's `exhaustive`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.expected.witness import magnitudes, operands
from harness.expected.witness.operands import COLUMNWISE
from harness.inputs import tensor_file
from harness.inputs.promises.registry import SAME_FOR_EVERY_SEED, broken
from harness.suite.stages import Stage, is_pipeline, stages

# The binary exponents of amaxes: the first and last of the usual range, and of the extreme range.
_EXPONENTS = {"a": ((-2, 11), (-126, -124)), "b": ((-2, 11), (60, 75))}


def wrong_bytes(case: Case, inputs: Mapping[str, np.ndarray]) -> str:
    """A sentence on how the bytes break their input's promise, or an empty text."""
    if case.is_gemm and case.input in ("exact_sum", "wide_sum") and "a_data" in inputs:
        found = next((found for name in "ab" if (found := _bytes_of_product(case, name, inputs))), "")
    elif case.input == "exhaustive" and "data" in inputs:
        found = _exhaustive(case, inputs)
    else:
        return ""
    return found and f"the bytes of the input {case.input} are not what it promises: {found}"


def _bytes_of_product(case: Case, name: str, inputs: Mapping[str, np.ndarray]) -> str:
    data, scales = inputs[f"{name}_data"], inputs[f"{name}_scale_inv"]
    amax = inputs.get(f"{name}_amax", np.ones(0, np.float32))
    one_and_two, nan = ({0x38, 0x40}, 0x7F) if case.scale_format == "e4m3" else ({0x78, 0x80}, 0xFF)
    # In a group the bytes of all groups are concatenated, so only properties that hold everywhere are checked.
    alone = not case.is_group
    if case.problem.capacity is not None and case.problem.by_k:
        own = sum(length for _, length in case.problem.tensors)  # each a multiple of 128, as scales are padded to
        data, scales = data[: len(data) * own // case.cols], scales[: len(scales) * own // case.cols]
    elif case.problem.capacity is not None and name == "a":
        rows = sum(rows for rows, _ in case.problem.tensors)  # each a multiple of 128, as scales are padded to
        data, scales, amax = data[:rows], scales[:rows], amax[:rows] if len(amax) == case.rows else amax
    if alone:
        valid, swizzled = (len(data), case.cols // 16), case.flags[f"{name}_scale_layout"] == "swizzled"
        scales = scales.reshape(-1)[magnitudes.places(scales.shape, valid, swizzled)]
    found = np.unique(scales)
    if case.input == "exact_sum" and not set(found) <= (one_and_two if alone else {0, *one_and_two}):
        return f"the scales of {name.upper()} are 1 and 2"
    if case.input == "wide_sum" and found.size and found[-1] >= nan:
        return f"no scale of {name.upper()} is negative or NaN"
    if scales.size >= 16 and found.size < 2:
        return f"the scales of {name.upper()} differ"
    some = data.reshape(-1)[:4096]
    codes = np.bincount(np.concatenate([some & 15, some >> 4]), minlength=16) * 16 / max(1, 2 * some.size)
    if some.size >= 256 and not codes.all():
        return f"all codes occur in {name.upper()}"
    if some.size >= 1024 and np.abs(codes - 1).mean() > 0.15:
        return f"all codes occur equally often in {name.upper()}"
    if case.input == "exact_sum" and case.flags.get("epilogue") == "windows":
        return "" if set(np.unique(amax)) <= {1, 2} else f"the amaxes of {name.upper()} are 1 and 2"
    positive = amax[amax > 0]
    # An empty group has an amax of 0.
    few = positive.size < amax.size if alone else (amax < 0).any()
    if case.flags.get(f"{name}_global_scale", True) != (f"{name}_amax" in inputs):
        return f"{name.upper()} has an amax where the flags say so, and nowhere else"
    if few or not np.isfinite(amax).all() or np.unique(positive).size < positive.size // 2:
        return f"the amaxes of {name.upper()} are positive and differ"
    if not _of_two_ranges(positive, _EXPONENTS[name]):
        return f"half of the amaxes of {name.upper()} are extreme, and all in their ranges"
    if alone and case.input == "wide_sum":
        return _cancels(name, data, scales)
    return ""


def _of_two_ranges(amax: np.ndarray, usual_and_far: tuple[tuple[int, int], ...]) -> bool:
    """Whether all binary exponents lie in two ranges; for many amaxes, about half in each, and some at every end."""
    exponents = np.frexp(amax)[1] - 1
    parts = [exponents[(exponents >= low) & (exponents <= high)] for low, high in usual_and_far]
    if sum(part.size for part in parts) < amax.size:
        return False
    if amax.size < 64:
        return True
    ends = amax.size < 256 or all(
        (part.min(), part.max()) == each for part, each in zip(parts, usual_and_far, strict=True)
    )
    return ends and abs(parts[0].size / amax.size - 0.5) < 0.22


def _cancels(name: str, data: np.ndarray, scales: np.ndarray) -> str:
    """A sentence unless the second half of the blocks repeats the first, with opposite signs in even rows of A."""
    half = scales.shape[1] // 2
    rows = slice(None, None, 2 if name == "a" else 1)
    first, second = data[rows, : 8 * half], data[rows, 8 * half : 16 * half]
    sign = 0x88 if name == "a" else 0
    same = np.array_equal(first ^ sign, second) and np.array_equal(scales[rows, :half], scales[rows, half : 2 * half])
    return "" if same else f"the halves of {name.upper()} cancel"


def _exhaustive(case: Case, inputs: Mapping[str, np.ndarray]) -> str:
    codes = np.stack([inputs["data"] & 15, inputs["data"] >> 4], axis=-1).reshape(-1, 16)
    if (np.sort(codes, axis=1) != np.arange(16)).any():
        return "every block has every code"
    columnwise = case.flags.get("outputs") == "columnwise"
    lines, length = (case.cols, case.rows) if columnwise else (case.rows, case.cols)
    valid = (lines, length // 16)
    place = magnitudes.places(inputs["scale_inv"].shape, valid, case.flags.get("scale_layout") == "swizzled")
    count = valid[0] * valid[1] // (16 if case.flags.get("block") == "block_16x16" else 1)
    if np.unique(inputs["scale_inv"].reshape(-1)[place]).size != min(256, count):
        return "every scale byte occurs, as far as there are blocks"
    if not case.two_levels:
        return ""
    amax = inputs["amax"].reshape(-1)
    if not np.isfinite(amax).all() or (amax <= 0).any() or np.unique(amax).size != amax.size:
        return "the amaxes are positive and differ"
    return ""


_BYTES = ("exact_sum", "wide_sum")  # inputs of products whose operands are drawn as bytes, so that A and B are not read
_AT_ONCE = 1 << 20  # bytes that are compared at once
_SEEN = 1 << 16  # at most this many elements are compared with other tensors'


class Drawn(NamedTuple):
    """One tensor. input: its distribution or file; x: (rows, cols)"""

    name: str
    input: str
    x: np.ndarray
    dtype: str


def wrong_tensor(case: Case, drawn: Mapping[str, np.ndarray], again: Mapping[str, np.ndarray] | None) -> str:
    """A sentence about wrong tensors of a case, or an empty text. again: the same drawn with another seed, or None"""
    own = list(tensors(case, drawn))
    for one in own:
        found = broken(one.input, one.x, one.dtype)
        if found:
            return f"{one.name}: {found}"
    seeded = [one for one in own if _seeded(one)]
    for number, one in enumerate(seeded):
        for other in seeded[:number]:
            if _same(one, other):
                return f"{other.name} and {one.name} are the same; each tensor is drawn with a seed of its own"
    for one, other in zip(own, tensors(case, again), strict=True) if again else ():
        if _seeded(one) and _same(one, other):
            return f"{one.name} is the same for another seed; the input {one.input} depends on the seed"
    return ""


def tensors(case: Case, drawn: Mapping[str, np.ndarray]) -> Iterator[Drawn]:
    """Every tensor that kernels read as drawn or that is quantized for them; the tensors of a group separately."""
    if is_pipeline(case):
        for stage in stages(case):
            if stage.draws:
                for label, part in _parts(stage.case, stage.name, drawn[stage.name]):
                    yield Drawn(label, stage.case.input, part, str(stage.case.flags.dtype))
            for name, key in stage.added.items():
                yield from (
                    one._replace(name=f"{stage.name}.{one.name}") for one in _of_product(stage.case, name, drawn[key])
                )
        return
    for name, x in drawn.items():
        if case.is_gemm:
            yield from _of_product(case, name, x)
        else:
            dtype = str(case.flags.get("dtype", "bf16"))
            for label, part in _parts(case, name, x):
                yield Drawn(label, case.input, part, dtype)


def _of_product(case: Case, name: str, x: np.ndarray) -> Iterator[Drawn]:
    if name in ("a", "b"):
        if case.input not in _BYTES:
            for label, part in _parts(case, name, x):
                drawn_as = tensor_file.of_operand(case.input, "ab".index(name))
                yield Drawn(label, drawn_as, part, str(case.flags[f"{name}_dtype"]))
        return
    plain = "normal" if case.input in _BYTES or case.input.startswith(tensor_file.PREFIX) else case.input
    for label, part in _parts(case, name, x):
        yield Drawn(label, plain, part, str(case.flags.dtype))


def _parts(case: Case, name: str, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Every non-empty tensor; an empty one keeps any promise."""
    if not case.is_group:
        if x.size:
            yield name, x.reshape(1, -1) if x.ndim == 1 else x
        return
    shapes = case.problem.tensors
    if case.is_gemm:
        extents = [(m, k, case.problem.n_of(g)) for g, (m, k) in enumerate(shapes)]
        shapes = [{"a": (m, k), "b": (n, k), "c": (m, n), "bias": (1, n)}[name] for m, k, n in extents]
        if name in COLUMNWISE[str(case.flags.layout)]:
            shapes = [each[::-1] for each in shapes]
    flat, start = x.reshape(-1), 0
    for number, (rows, cols) in enumerate(shapes):
        if rows * cols:
            yield f"{name} of group {number}", flat[start : start + rows * cols].reshape(rows, cols)
        start += rows * cols


def _seeded(one: Drawn) -> bool:
    fixed = one.input in SAME_FOR_EVERY_SEED or one.input.startswith(tensor_file.PREFIX)
    return not fixed and bool(one.x.reshape(-1)[:_SEEN].any())


def _same(one: Drawn, other: Drawn) -> bool:
    return (one.x.dtype, one.x.shape) == (other.x.dtype, other.x.shape) and (
        one.x.reshape(-1)[:_SEEN].tobytes() == other.x.reshape(-1)[:_SEEN].tobytes()
    )


_AS_DRAWN = ("act_input", "c", "bias")  # `input` is drawn as x, or has the name of its stage


def to_inputs(
    case: Case,
    high_precision: Mapping[str, np.ndarray],
    again: Mapping[str, np.ndarray] | None,
    inputs: Mapping[str, np.ndarray],
) -> str:
    """A sentence about wrong inputs of the kernels, or an empty text.

    high_precision: the drawn tensors; again: the tensors drawn with another seed, or None
    inputs: the arrays that the kernels read, by parameter
    """
    with np.errstate(all="ignore"):
        return (
            wrong_tensor(case, high_precision, again)
            or _changed(case, high_precision, inputs)
            or next((found for stage in stages(case) if (found := _misplaced(stage, inputs))), "")
            or magnitudes.wrong_amax(case, inputs)
            or wrong_bytes(case, inputs)
            or operands.objection(case, high_precision, inputs)
        )


def _changed(case: Case, high_precision: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> str:
    """A sentence if a tensor that is read as drawn has other bytes than were drawn, or numbers behind them."""
    names = {"input": "x"} | {name: name for name in _AS_DRAWN} | {stage.name: stage.name for stage in stages(case)}
    names |= {key: key for stage in stages(case) for key in stage.added.values()}
    for name, source in names.items():
        if name in inputs and source in high_precision:
            read, own = inputs[name], high_precision[source]
            if name == "input" and case.flags.get("activation") in magnitudes.GATED:
                own = magnitudes.read_of_halves(case, high_precision)
            if case.problem.capacity is not None:
                read, slack = read[: len(own)], read[len(own) :]
                if np.isfinite(slack).any():
                    return f"{name} has numbers behind its last tensor, where every entry must be NaN or inf"
            if read is not own and (read.dtype != own.dtype or not same_bytes(read, own)):
                return f"{name} is not the tensor that was drawn"
    return ""


def same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same bytes; of large ones that differ, only the first part is read."""
    one, other = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
    parts = (slice(first, first + _AT_ONCE) for first in range(0, one.size, _AT_ONCE))
    return one.size == other.size and all((one[part] == other[part]).all() for part in parts)


def _misplaced(stage: Stage, inputs: Mapping[str, np.ndarray]) -> str:
    """A sentence unless the group's extents and offsets describe tensors back to back with the case's extents."""
    of = f" of stage {stage.name}" if stage.name else ""
    own = stage.select(inputs)
    if "tensor_offsets" not in own:
        return f"the extents{of} are missing" if of and stage.case.is_group and not stage.given else ""
    start = 0
    for number, (rows, cols) in enumerate(stage.case.problem.tensors):
        place = tuple(int(own[name][number]) for name in ("tensor_offsets", "first_dims", "last_dims"))
        if place != (start, rows, cols):
            return f"tensor {number}{of} is said to start and to extend {place}; it must be {(start, rows, cols)}"
        start += rows * cols
    n_dims = stage.case.problem.n_dims
    if n_dims is not None and own["n_dims"].tolist() != list(n_dims):
        return f"the N of each group{of} is said to be {own['n_dims'].tolist()}; it must be {list(n_dims)}"
    return "" if int(own["tensor_offsets"][-1]) == start else f"the last offset{of} must be {start}"
