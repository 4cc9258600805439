"""Which registers and constants an instruction takes, as ptxas checks it (PTX ISA, "Type Checking Rules")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import combinations
from typing import NamedTuple

from ptx_emulator.ptx.syntax import SIZES, Immediate

# Registers of these may be wider than the type; in all other instructions they have exactly the type's size.
_RESIZES = ("ld", "ldu", "st", "cvt")
_READ_SPECIALS = ("mov", "cvt")
# Their operands have types that differ or that the name does not say; the decoders know them.
_OF_SEVERAL = (
    "slct", "mma", "wgmma", "wmma", "tcgen05", "cp", "mbarrier", "tensormap", "st.async", "red.async", "dp2a", "dp4a",
    "multimem", "bar", "barrier", "call",
)  # fmt: skip
_MIXES = ("add", "sub", "fma")
# Floats that only registers of bits hold: e4m3x2 and f16x2, but not the x4 of ldmatrix.
_PACKED = re.compile(r"u?[a-z]\d\w*x[24]|bf16(x2)?")


class OperandTypes(NamedTuple):
    """The types that a name such as `cvt.rn.f32.u32` says, each "" if it says none.

    resizes: whether a register may be wider than its type; reads_specials: whether a source may be `%tid.x`
    converts: a `cvt`, whose bf16 and packed floats are in registers of just their size
    """

    result: str
    source: str
    resizes: bool
    reads_specials: bool
    converts: bool

    @cache  # noqa: B019 - of the few types that names say
    def takes_source(self, register: str, kind: str) -> bool:
        """Whether a register of this type may be a source that the decoder reads as `kind`."""
        exact = self.converts and _class(self.source) == "packed"
        return self._fits(register, kind, exact) and _alike(register, self.source)

    @cache  # noqa: B019
    def takes_result(self, register: str, kind: str) -> bool:
        """Whether a register of this type may take a result of type `kind`."""
        exact = self.converts and _class(self.result) == "packed"
        return self._fits(register, kind, exact) and (kind == "pred" or _alike(register, self.result))

    def takes_special(self, register: str, kind: str) -> bool:
        """Whether a source of type `kind` may be a special register of this type."""
        fits = self.resizes or SIZES[kind] <= SIZES[register]
        return self.reads_specials and fits and "float" not in (_class(self.source), _class(self.result))

    def takes_constant(self, constant: Immediate, kind: str) -> bool:
        """Whether a number may be a source that is read as `kind`; no integer may be a float, or the reverse."""
        if _class(kind) == "float":
            return constant.size > 0
        if _class(self.source) == "packed":
            return False
        return constant.size == 0 or constant.size == SIZES[kind] and _class(self.source) != "integer"

    def _fits(self, register: str, kind: str, exact: bool) -> bool:
        if "pred" in (register, kind):
            return register == kind
        wider = SIZES[register] - SIZES[kind]
        return (wider >= 0 if self.resizes and not exact else wider == 0) and _alike(register, kind)


@cache
def operand_types(mnemonic: str) -> OperandTypes:
    """The types of an instruction by its name."""
    head, *parts = mnemonic.split(".")
    types = [part for part in parts if part in SIZES or _PACKED.fullmatch(part)]
    if head in _OF_SEVERAL or mnemonic.startswith(_OF_SEVERAL):
        types = []
    said = (types[0], types[-1]) if types else ("", "")
    if head in _MIXES and said[0] != said[1]:
        said = said[0], ""  # the last source has the type of the result
    return OperandTypes(*said, head in _RESIZES, head in _READ_SPECIALS, head == "cvt")


def of_one_type(registers: Iterable[str]) -> bool:
    """Whether registers of these types may be the elements of one vector."""
    types = [*registers]
    return all(SIZES[one] == SIZES[other] and _alike(one, other) for one, other in combinations(types, 2))


def holds_address(register: str) -> bool:
    """Whether an address may be in a register of this type."""
    return SIZES[register] in (4, 8) and register != "pred" and _class(register) != "float"


def _alike(register: str, kind: str) -> bool:
    """Whether both are integers or both floats, or one is bits alone. Packed floats are in registers of bits."""
    classes = {_class(register), _class(kind)}
    return "bits" in classes or len(classes) == 1


@cache
def _class(kind: str) -> str:
    if _PACKED.fullmatch(kind):
        return "packed"
    return {"f": "float", "u": "integer", "s": "integer"}.get(kind[:1], "bits")
