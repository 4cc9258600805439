"""The numbers of the compiled interpreter's instructions.

Arithmetic is numbered by its compiled forms, which the rows of `ptx_emulator.arithmetic` name: mnemonics whose results
are computed alike, from registers of the same widths, share a number. What touches other lanes or memory follows.
Registers of 8, 16 and 32 bits, and predicates, are zero-extended 32-bit values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ptx_emulator.arithmetic.compare import COMPARISONS
from ptx_emulator.arithmetic.convert import CONVERT
from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.arithmetic.integer import INTEGER
from ptx_emulator.ptx.syntax import SIZES


class Form(NamedTuple):
    """lane: the result of one lane as text, see `lanes`; wide: whether the result and each source have 64 bits"""

    lane: str
    wide: tuple[bool, ...]


def _form(lane: str, *kinds: str) -> Form:
    return Form(lane, tuple(SIZES[kind] == 8 for kind in kinds))


def _forms() -> dict[str, Form]:
    """The forms by mnemonic, and those of parts of a move, `prmt` and `lop3`, which their decoders choose."""
    rows = {**INTEGER, **FLOATING, **CONVERT}
    found = {name: _form(row.lane, row.result, *row.sources) for name, row in rows.items() if row.lane}
    for name, (_, kind, lane) in COMPARISONS.items():
        if lane:
            found[f"setp.{name}"] = _form(lane, "pred", kind, kind)
    for kind in [f"{kind}{width}" for kind in "busf" for width in (16, 32, 64)]:
        found[f"mov.{kind}"] = _form("x", kind, kind)
        found[f"selp.{kind}"] = _form("y if x != 0 else z", kind, "pred", kind, kind)
    del found["mov.f16"]
    found["mov.pred"] = _form("x", "pred", "pred")
    found["high of b64"] = _form("x >> uint64(32)", "b32", "b64")
    found["high of b32"] = _form("x >> uint32(16)", "b16", "b32")
    found["pack b64"] = _form("uint64(y) << uint64(32) | uint64(x)", "b64", "b32", "b32")
    found["pack b32"] = _form("x | y << uint32(16)", "b32", "b16", "b16")
    three = "b32", "b32", "b32", "b32"
    found["lop3"] = _form("looked_up(x, y, z, immediate)", *three)
    found["prmt of bytes"] = _form("picked(x, y, immediate)", *three)
    found["prmt of signs"] = _form("permuted(x, y, uint32(immediate))", *three)
    return found


_FORMS = _forms()
# The forms of 32 bits come first.
FORMS = sorted(dict.fromkeys(_FORMS.values()), key=lambda form: any(form.wide))
FIRST_WIDE = next(number for number, form in enumerate(FORMS) if any(form.wide))
_NUMBERS = {form: number for number, form in enumerate(FORMS)}
OPCODES: Mapping[str, int] = {name: _NUMBERS[form] for name, form in _FORMS.items()}

_OTHERS = 1024
SHFL_BFLY, SHFL_UP, SHFL_DOWN, SHFL_IDX, BALLOT, VOTE_ANY, VOTE_ALL, REDUX_MAX, REDUX_MIN, REDUX_ADD, WARP_SYNC = range(
    _OTHERS, _OTHERS + 11
)
MMA_F16, MMA_BF16, MMA_F16_HOPPER = range(_OTHERS + 64, _OTHERS + 67)
_MEMORY = _OTHERS + 128
LOAD_PARAMETER, LOAD_GLOBAL, STORE_GLOBAL, LOAD_SHARED, STORE_SHARED, LOAD_CONSTANT = range(_MEMORY, _MEMORY + 6)

LOADS = {"global": LOAD_GLOBAL, "shared": LOAD_SHARED}
STORES = {"global": STORE_GLOBAL, "shared": STORE_SHARED}
SHUFFLES = {"bfly": SHFL_BFLY, "up": SHFL_UP, "down": SHFL_DOWN, "idx": SHFL_IDX}
VOTES = {"ballot": BALLOT, "any": VOTE_ANY, "all": VOTE_ALL}
REDUCTIONS = {"max.u32": REDUX_MAX, "min.u32": REDUX_MIN, "add.u32": REDUX_ADD, "add.s32": REDUX_ADD}
