"""Reads of a kernel's memory by the host, at generic addresses: the text and the arguments of a `printf`."""

from __future__ import annotations

import numpy as np

from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import LOCAL_BASE, LOCAL_WINDOW, SHARED_BASE, SHARED_WINDOW, WINDOW_BITS
from ptx_emulator.ptx.syntax import Instruction

LONGEST = 1 << 12  # characters of a text


def text_at(batch: Batch, instruction: Instruction, lane: int, address: int) -> str:
    """The text up to its first NUL. Raises Fault for an address that no memory has."""
    found = _from(batch, instruction, lane, address)[:LONGEST].tobytes()
    return found.partition(b"\0")[0].decode(errors="replace")


def bytes_at(batch: Batch, instruction: Instruction, lane: int, address: int, size: int) -> bytes:
    """Read `size` bytes. Raises Fault if they are not all in one memory."""
    found = _from(batch, instruction, lane, address)[:size].tobytes()
    if len(found) < size:
        batch.fault("out_of_bounds", instruction, lane, f"printf reads {size} bytes, and {len(found)} are there")
    return found


def _from(batch: Batch, instruction: Instruction, lane: int, address: int) -> np.ndarray:
    """The bytes from an address to the end of the memory that it lies in."""
    window = address >> WINDOW_BITS
    addressing = batch.addressing
    for base, first, memory, owner in (
        (LOCAL_WINDOW, LOCAL_BASE, addressing.local, lane),
        (SHARED_WINDOW, SHARED_BASE, addressing.shared, lane // batch.threads),
    ):
        if window == base >> WINDOW_BITS and 0 <= address - base - first < memory.size:
            start = owner * memory.stride
            return memory.data[start + address - base - first : start + memory.size]
    buffer = batch.launch.memory.get(window)
    if buffer is None or not 0 <= address - buffer.address < len(buffer.data):
        batch.fault("out_of_bounds", instruction, lane, f"printf reads at {address:#x}, where no memory is")
    return buffer.data[address - buffer.address :]
