"""Calls of the two system functions that CUDA gives to kernels: `vprintf` and `__assertfail`.

Functions that the PTX has are no calls here any more: the parser copied them (`ptx.inlining`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np

from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.machine.basic_blocks import Step
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import U32

_FORMAT = re.compile(r"%([-+ #0]*)(\d+|\*)?(?:\.(\d+|\*)?)?(hh|h|ll|l|z|j|t|L)?([diouxXeEfFgGaAcsp%])")
_LONG = ("l", "ll", "z", "j", "t")
_LENGTH = re.compile(r"L?(\d{1,4})")  # the length before each part of a mangled name
_KINDS = {"vprintf": ("b64", "b64"), "__assertfail": ("b64", "b64", "b32", "b64", "b64")}


def call(emitter: Emitter, instruction: Instruction) -> None:
    """`call` of a function that the parser has no body of: operands are its result or `_`, its name and its arguments.

    A single operand is a pointer that is none of the functions it may mean.
    """
    if not instruction.operands:
        raise Unsupported("a call through a pointer, of which the PTX says neither prototype nor targets")
    if len(instruction.operands) == 1:
        pointer = emitter.source(instruction.operands[0], "b64")
        emitter.emit(_lose(instruction, pointer), (pointer,), ())
        return
    returned, function, *arguments = instruction.operands
    kinds = _KINDS.get(function.text, ())
    if not kinds or len(arguments) != len(kinds):
        raise Unsupported(_why(function.text, function.text in emitter.kernel.recursive))
    sources = tuple(emitter.source(each, kind) for each, kind in zip(arguments, kinds, strict=True))
    if function.text == "__assertfail":
        emitter.emit(_fail(instruction, sources[0], sources[3]), sources, ())
    else:
        target = emitter.target(returned, "b32")
        emitter.emit(_print(instruction, *sources, target), sources, (target,))


def _why(function: str, recursive: bool) -> str:
    """Why a call is not emulated. function: its name in the PTX, mangled unless it is `extern "C"`"""
    if recursive:
        return f"the function {_own_name(function)} calls itself; write its recursion as a loop"
    if function.startswith("__") or function in ("malloc", "free"):
        return f"CUDA's own function {function}"
    return f"the function {_own_name(function)} is not in this PTX; compile it together with the kernel"


def _own_name(mangled: str) -> str:
    """A function's name in its source, without namespaces."""
    name, at = mangled, len("_ZN") if mangled.startswith("_ZN") else len("_Z")
    while mangled.startswith("_Z") and (length := _LENGTH.match(mangled, at)):
        at = length.end() + int(length[1])
        name = mangled[length.end() : at]
    return name


def _print(instruction: Instruction, form: int, values: int, target: int) -> Step:
    """Print each lane's line, after its block and thread, in the order of the lanes."""

    def run(batch: Batch, mask: np.ndarray | None) -> None:
        forms, lists = (batch.full(batch.registers[slot]).reshape(-1) for slot in (form, values))
        for lane in np.flatnonzero(batch.under(mask)).tolist():
            text = batch.addressing.text_at(instruction, lane, int(forms[lane]))
            shown = "".join(_filled(batch, instruction, lane, text, int(lists[lane])))
            batch.launch.echo(f"{batch.name(lane)}: {shown}" + ("" if shown.endswith("\n") else "\n"))
        batch.registers.put(target, np.ones((1, 1), U32), mask)

    return run


def _fail(instruction: Instruction, message: int, function: int) -> Step:
    def run(batch: Batch, mask: np.ndarray | None) -> None:
        lane = int(np.argmax(batch.under(mask)))
        texts = (batch.full(batch.registers[slot]).reshape(-1) for slot in (message, function))
        condition, where = (batch.addressing.text_at(instruction, lane, int(each[lane])) for each in texts)
        batch.fault("assertion", instruction, lane, f"`{condition}` is false in {where}")

    return run


def _lose(instruction: Instruction, pointer: int) -> Step:
    def run(batch: Batch, mask: np.ndarray | None) -> None:
        lane = int(np.argmax(batch.under(mask)))
        address = int(batch.full(batch.registers[pointer]).reshape(-1)[lane])
        none = "where the PTX has no function with these parameters whose address is taken"
        batch.fault("out_of_bounds", instruction, lane, f"calls what is at {address:#x}, {none}")

    return run


def _filled(batch: Batch, instruction: Instruction, lane: int, form: str, address: int) -> Iterator[str]:
    """Fill a format with its arguments, which lie one after the other in memory, each aligned to its own size."""
    offset, end = 0, 0

    def take(size: int) -> bytes:
        nonlocal offset
        start = -(-offset // size) * size
        offset = start + size
        return batch.addressing.bytes_at(instruction, lane, address + start, size)

    for match in _FORMAT.finditer(form):
        yield form[end : match.start()]
        end = match.end()
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            yield "%"
            continue
        width, precision = (
            str(struct.unpack("<i", take(4))[0]) if each == "*" else each for each in (width, precision)
        )
        spelled = f"%{flags}{width or ''}{'.' + precision if precision else ''}"
        if kind in "eEfFgGaA":
            value = struct.unpack("<d", take(8))[0]
            yield value.hex() if kind in "aA" else f"{spelled}{kind}" % value
        elif kind == "s":
            yield f"{spelled}s" % batch.addressing.text_at(instruction, lane, int.from_bytes(take(8), "little"))
        elif kind == "p":
            yield f"0x{int.from_bytes(take(8), 'little'):x}"
        else:
            content = take(8 if length in _LONG else 4)[: {"hh": 1, "h": 2}.get(length or "", 8)]
            value = int.from_bytes(content, "little", signed=kind in "di")
            yield chr(value & 0xFF) if kind == "c" else f"{spelled}{'d' if kind in 'iu' else kind}" % value
    yield form[end:]


DECODERS: dict[str, Decoder] = {"call": call}
