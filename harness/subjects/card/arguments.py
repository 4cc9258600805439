"""The arguments of a launch: whether they fit the parameters of their entry, and their bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import ml_dtypes
import numpy as np

from harness.device.launches import Arrays
from harness.errors import UsageError
from harness.subjects.card.code import Parameter
from harness.subjects.card.schema import FLOATS, SCALARS, Argument, Map
from harness.suite.sizes import size_of
from ptx_emulator.ptx.syntax import Variable
from ptx_emulator.tensor_map import BITS, MalformedMap, TensorMap

MAP_SIZE, MAP_ALIGN, POINTER = 128, 64, 8
_POINTERS = ("array", "pointers", "tensors")
_FLOAT_DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
_FLOAT_KINDS = ("f32", "f64", "f16", "bf16")  # PTX's float types; every other type takes any bits of its size


def extents_of(said: Sequence[int | str], numbers: Mapping[str, int]) -> tuple[int, ...]:
    """A grid, a block or a cluster along x, y and z."""
    return (*(size_of(extent, numbers) for extent in said), 1, 1)[:3]


def extent_of(argument: Argument) -> tuple[int, int]:
    """Bytes and alignment of an argument."""
    match argument.kind:
        case kind if kind in _POINTERS:
            return POINTER, POINTER
        case "map":
            return MAP_SIZE, MAP_ALIGN
        case "pad":
            return int(argument.pad or 0), 1
        case "struct":
            size, align = 0, 1
            for at, member in _placed(argument.struct or []):
                length, own = extent_of(member)
                size, align = at + length, max(align, own)
            return -(-size // align) * align, align
        case scalar:
            return SCALARS[scalar] * len(_listed(argument)), SCALARS[scalar]


def _listed(argument: Argument) -> Sequence[float | str]:
    """The numbers of an argument: one, those of an array, or none if it is of another kind."""
    said = getattr(argument, argument.kind) if argument.kind in SCALARS else []
    return said if isinstance(said, list) else [said]


def _placed(members: Sequence[Argument]) -> Iterator[tuple[int, Argument]]:
    """The offset of each member of a struct."""
    at = 0
    for member in members:
        size, align = extent_of(member)
        at = -(-at // align) * align
        yield at, member
        at += size


def misfit(argument: Argument, parameter: Parameter) -> str:
    """Why an argument does not fit a parameter: the end of a sentence, or empty."""
    kind, (size, _) = argument.kind, extent_of(argument)
    if kind in ("array", "tensors") and parameter.kind not in ("u64", "b64", "s64"):
        what = "an array" if kind == "array" else "an array of pointers"
        return f"is {what}, which is a pointer of 8 bytes, and the kernel takes {parameter} there"
    if size != parameter.size:
        return f"is {_what(argument, size)}, and the kernel takes {parameter} of {parameter.size} bytes there"
    if kind in SCALARS and parameter.pointer and any(_listed(argument)):
        return f"is {_what(argument, size)}, and the kernel takes a pointer there; pass an array, or `u64: 0` for none"
    is_float = parameter.kind in _FLOAT_KINDS
    if kind in SCALARS and (kind in FLOATS) != is_float and (is_float or parameter.kind[0] in "su"):
        return f"is {kind}, and the kernel takes {parameter} there"
    return ""


def unfit(constant: Argument, variable: Variable) -> str:
    """Why a value does not fit a variable of the PTX: the end of a sentence, or empty."""
    kind, (size, _), declared = constant.kind, extent_of(constant), f".{variable.kind}"
    if size != variable.size:
        what = kind if kind in SCALARS else "a pointer" if kind in _POINTERS else f"a {kind}"
        return f"is {what} of {size} bytes, and the PTX declares {variable.size} bytes of {declared}"
    # Arrays and structs are declared as bytes, whatever they are of.
    of_bits = variable.kind[0] == "b" and variable.kind not in _FLOAT_KINDS
    if kind in SCALARS and not of_bits and (kind in FLOATS) != (variable.kind in _FLOAT_KINDS):
        return f"is {kind}, and the PTX declares {declared}"
    return ""


def _what(argument: Argument, size: int) -> str:
    return argument.kind if argument.kind in SCALARS else f"a {argument.kind} of {size} bytes"


def arrays_of(arguments: Iterable[Argument]) -> Iterator[str]:
    """The arrays that arguments name."""
    for argument in arguments:
        yield from filter(None, (argument.array, argument.tensors, argument.map and argument.map.array))
        yield from argument.pointers or ()
        yield from arrays_of(argument.struct or ())


def tensors_of(arguments: Iterable[Argument]) -> Iterator[str]:
    """The arrays for which an argument has a pointer to each tensor."""
    for argument in arguments:
        yield from filter(None, (argument.tensors,))
        yield from tensors_of(argument.struct or ())


def expressions_of(arguments: Iterable[Argument]) -> Iterator[int | str]:
    """Everything in arguments that is a number or an expression."""
    for argument in arguments:
        yield from (value for value in (argument.offset, *_listed(argument)) if isinstance(value, str))
        if argument.map:
            yield from (*argument.map.extents, *argument.map.strides, *argument.map.box, *argument.map.steps)
        yield from expressions_of(argument.struct or ())


def bytes_of(
    argument: Argument, memory: Arrays, numbers: Mapping[str, int], starts: Callable[[], Mapping[str, Sequence[int]]]
) -> bytes:
    """The bytes of an argument.

    numbers: values for the names in expressions
    starts: by array, the byte at which the part of each tensor of a group begins

    Raises UsageError for a number that does not fit its type.
    """
    match argument.kind:
        case "array":
            return _integer("u64", memory.address(str(argument.array)) + _value(argument.offset, numbers))
        case "pointers":
            table = b"".join(_integer("u64", memory.address(name)) for name in argument.pointers or ())
            return _integer("u64", memory.table(table))
        case "tensors":
            name = str(argument.tensors)
            table = b"".join(_integer("u64", memory.address(name) + start) for start in starts()[name])
            return _integer("u64", memory.table(table))
        case "map":
            return _map(argument.map, memory, lambda size: size_of(size, numbers))
        case "pad":
            return bytes(argument.pad or 0)
        case "struct":
            size, _ = extent_of(argument)
            content = bytearray(size)
            for at, member in _placed(argument.struct or []):
                part = bytes_of(member, memory, numbers, starts)
                content[at : at + len(part)] = part
            return bytes(content)
        case scalar:
            return b"".join(_scalar(scalar, said, numbers) for said in _listed(argument))


def _scalar(kind: str, said: float | str, numbers: Mapping[str, int]) -> bytes:
    value = said if isinstance(said, float) else _value(said, numbers)
    if kind in FLOATS:
        return np.asarray(value, _FLOAT_DTYPES[kind]).tobytes()
    return _integer(kind, int(value))


def _value(said: int | str, numbers: Mapping[str, int]) -> int:
    """A number from the card, which may be negative, or the value of an expression."""
    return said if isinstance(said, int) else size_of(said, numbers)


def _integer(kind: str, value: int) -> bytes:
    try:
        return value.to_bytes(SCALARS[kind], "little", signed=kind[0] == "i")
    except OverflowError:
        raise UsageError(f"{value} does not fit an argument of type {kind}") from None


def _map(said: Map | None, memory: Arrays, number: Callable[[int | str], int]) -> bytes:
    if said is None:
        return b""
    extents = tuple(map(number, said.extents))
    dense = [math.prod(extents[:axis]) * BITS[said.type] // 8 for axis in range(1, len(extents))]
    tensor = TensorMap(
        said.type, memory.address(said.array), extents, tuple(map(number, said.strides)) or tuple(dense),
        tuple(map(number, said.box)), tuple(map(number, said.steps)) or (1,) * len(extents), said.swizzle,
        said.fills_nan, said.interleave,
    )  # fmt: skip
    try:
        return memory.tensor_map(tensor)
    except MalformedMap as error:
        raise UsageError(f"the tensor map of '{said.array}': {error}") from None
