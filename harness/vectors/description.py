"""The words of an index: what an array holds, how it lies, and where the bytes of a case come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.errors import UsageError
from harness.files import recipe_dir
from harness.oracles import layout, nvfp4
from harness.suite.launch_plan import numbers
from harness.suite.suite import suite_of

CODES, SCALES, AMAX, VALUES, BYTES = "e2m1x2", "e4m3", "amax", "values", "bytes"
HOLDS = {
    CODES: "uint8, two e2m1 codes a byte, the even index of the contiguous axis in the low nibble (NUMERICS 1.1, 1.4)",
    SCALES: "uint8, e4m3fn bytes; those of scale_inv multiply the codes of their block to decode them (NUMERICS 1.2)",
    "ue5m3": "uint8, ue5m3 bytes, which have no sign, in place of e4m3 (NUMERICS 1.9)",
    "e8m0": "uint8, powers of two, 2^(byte - 127); 255 is NaN",
    "e5m2": "uint8, e5m2 bytes",
    AMAX: "float32, the largest magnitude of a tensor, line or window, in units of the input (NUMERICS 2.2)",
    VALUES: "floating-point numbers of the field's dtype, in units of the input or of a product of two (NUMERICS 1.3)",
    BYTES: "uint8, of a recipe that is not this package's; its oracle says what they are",
    "integers": "int64, extents and offsets of the tensors of a group, in elements (NUMERICS 8.1)",
}
PADDING = "scale bytes beyond `valid`, which counts in compact order, are 0"
SWIZZLED = "byte (r, c) lies at ((r/128)*(C/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4 (NUMERICS 1.7)"
SLACK = "entries of the allocation behind the field, which nobody writes and nobody compares (NUMERICS 8.5)"


def holds(name: str) -> str:
    """The content of the array with this name."""
    ends = {"data": CODES, "scale_inv": SCALES, "e4m3_data": SCALES, "amax": AMAX}
    ends |= {"dims": "integers", "offsets": "integers"}
    return next((ends[end] for end in ("e4m3_data", *ends) if name.endswith(end)), VALUES)


def of_case(case: Case) -> dict[str, Any]:
    """The index entry for a case as a whole. 64-bit numbers are in hexadecimal, because JSON readers round them."""
    known = {name: value for name, value in numbers(case).items() if name not in ("seed", "offset")}
    found = {
        "id": case.id,
        "recipe": case.recipe,
        "contract": suite_of(case.recipe).file.contract,
        "flags": dict(case.flags),
        "shape": case.shape,
        "distribution": case.input,
        "seed": f"{case.seed:#018x}",
        "numbers": known,
    }
    if case.flags.get("rounding") == "sr" and recipe_dir(case.recipe) is None:
        found["random"] = {
            "generator": "Philox4x32-10",
            "key": [case.seed & 0xFFFFFFFF, case.seed >> 32],
            "counter": ["block mod 2^32", "block div 2^32", "0 rowwise, 1 columnwise", "offset"],
            "offset": case.offset,
            "group": "tensor g has offset + g mod 2^32" if case.is_group else "none",
            "contract": "NUMERICS 2.9, 2.11",
        }
    return found


def random_bytes(case: Case) -> Iterator[tuple[str, np.ndarray]]:
    """The random byte of each element, (lines, length) uint8, for checkers that draw none; only for dense cases.

    None of a user's recipe, which may draw otherwise.
    """
    if case.flags.get("rounding") != "sr" or case.is_group or recipe_dir(case.recipe) is not None:
        return
    for direction in layout.DIRECTIONS.values():
        if case.flags.get("outputs", "both") in ("both", direction.name):
            lines, length = direction.extents(case.rows, case.cols)
            blocks = lines * length // nvfp4.BLOCK
            drawn = nvfp4.random_bytes(np.arange(blocks, dtype=np.uint64), direction.counter, case.offset, case.seed)
            yield direction.name, drawn.reshape(lines, length)


def of_field(name: str, field: Field) -> dict[str, Any]:
    """Dtype, extents, layout and padding of a field; for a group, also for each of its tensors."""
    found: dict[str, Any] = {
        "holds": field.format or holds(name),
        "dtype": dtype_of(np.dtype(field.dtype)),
        "shape": list(field.shape),
    }
    parts = field.parts or (field,)
    if holds(name) != VALUES:
        found["direction"] = "columnwise" if any(part.transposed for part in parts) else "rowwise"
    if holds(name) == SCALES:
        found["layout"] = "swizzled" if any(part.swizzled for part in parts) else "compact"
    if field.valid is not None:
        found["valid"] = list(field.valid)
    if field.parts:
        found["tensors"] = [
            {"shape": list(part.shape), **({"valid": list(part.valid)} if part.valid else {})} for part in field.parts
        ]
    if field.slack:
        found["slack"] = field.slack
    return found


def of_array(case: Case, name: str, array: np.ndarray) -> dict[str, Any]:
    held = case.scale_format if holds(name) == SCALES else holds(name)
    if recipe_dir(case.recipe) is not None and array.dtype == np.uint8:
        held = BYTES
    return {"holds": held, "dtype": dtype_of(array.dtype), "shape": list(array.shape)}


def dtype_of(dtype: np.dtype) -> str:
    """The dtype in safetensors' spelling. Raises UsageError for one that the checkers do not read."""
    names = {"uint8": "U8", "int64": "I64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    if dtype.name not in names:
        raise UsageError(f"an array of {dtype.name} has no vector; one has {', '.join(names)}")
    return names[dtype.name]
