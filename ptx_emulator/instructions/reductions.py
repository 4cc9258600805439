"""How `cp.reduce.async.bulk` combines an element in memory with one that arrives.

An H200 adds float32 elements of a tensor map without flushing subnormals, and float32_ftz with.
"""

from __future__ import annotations

from typing import NamedTuple

from ptx_emulator.arithmetic.atomics import ATOMICS, GLOBAL_ADD_F32
from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.instructions.emitter import Unsupported
from ptx_emulator.ptx.syntax import SIZES
from ptx_emulator.registers import UNSIGNED, Compute

_OF_TENSOR = {
    "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float32_ftz": "f32", "float64": "f64",
}  # fmt: skip


class Reduction(NamedTuple):
    """compute: (old, new) → new; kind: of an element"""

    compute: Compute
    kind: type


def reduction(words: list[str], in_global: bool) -> Reduction:
    """Find a reduction by operation and type, such as `["add", "noftz", "bf16"]`. Raises Unsupported."""
    name, kind = ".".join(words), words[-1]
    if name == "add.f32" and in_global:
        compute = GLOBAL_ADD_F32.apply
    elif name in ATOMICS and words[0] not in ("exch", "cas"):
        compute = ATOMICS[name].apply
    elif words[0] in ("min", "max") and kind in ("f16", "bf16"):
        compute = _flat(FLOATING[name].compute)
    else:
        raise Unsupported
    return Reduction(compute, UNSIGNED[SIZES[kind]])


def of_elements(operation: str, kind: str) -> Reduction:
    """Find a reduction by operation and a tensor map's element type; only `_ftz` types flush. Raises Unsupported."""
    if kind not in _OF_TENSOR:
        raise Unsupported
    element = _OF_TENSOR[kind]
    if operation in ("and", "or", "xor"):
        element = f"b{element[1:]}"
    noftz = ["noftz"] if operation == "add" and element in ("f16", "bf16") else []
    return reduction([operation, *noftz, element], kind == "float32_ftz")


def _flat(compute: Compute) -> Compute:
    return lambda old, new: compute(old[None, :], new[None, :])[0]
