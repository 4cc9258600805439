"""`tensormap.replace` and `tensormap.cp_fenceproxy`, which change a tensor map, and the fence before its use.

From the PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy" and "membar/fence".
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import SPACES, fence, place, scope_of
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Immediate, Instruction
from ptx_emulator.races.async_order import GLOBAL
from ptx_emulator.registers import U64
from ptx_emulator.tensor_map import FIELDS, SIZE, MalformedMap, replaced

_WORDS = SIZE // 8
_WITH_ORDINAL = {"box_dim", "global_dim", "global_stride", "element_stride"}
_COPY = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release."
_ACQUIRE, _RELEASE = "fence.proxy.tensormap::generic.acquire.", "fence.proxy.tensormap::generic.release."
_SCOPES = ("cta", "cluster", "gpu", "sys")


def tensormap(emitter: Emitter, instruction: Instruction) -> None:
    """Both instructions."""
    if instruction.mnemonic.startswith(_COPY):
        _copy(emitter, instruction)
    else:
        _replace(emitter, instruction)


def _replace(emitter: Emitter, instruction: Instruction) -> None:
    """`tensormap.replace.tile.field.space.b1024.type [map], (ordinal,) value`, generic without a space."""
    _, verb, tile, field, *spaces, width, kind = instruction.mnemonic.split(".")
    if (verb, tile, width) != ("replace", "tile", "b1024") or field not in FIELDS or kind not in ("b32", "b64"):
        raise Unsupported
    if spaces not in ([], ["global"], ["shared::cta"]):
        raise Unsupported
    space = SPACES[spaces[0]] if spaces else "generic"
    where, *rest = instruction.operands
    ordinal = 0
    if field in _WITH_ORDINAL:
        number = rest.pop(0)
        if not isinstance(number, Immediate):
            raise Unsupported
        ordinal = number.bits
    (given,) = rest
    reads, writes = (emitter.access(instruction, space, what, 8) for what in ("reads", "writes"))
    address, value = place(emitter, where, writes), emitter.source(given, kind)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        base, lanes = address.of(batch), np.flatnonzero(batch.under(mask))
        offsets = [base + base.dtype.type(8 * i) for i in range(_WORDS)]
        words = np.stack([batch.full(batch.read(reads, at, mask)[0]).reshape(-1) for at in offsets], axis=1)
        new, values = words.copy(), batch.full(batch.registers[value]).reshape(-1)
        for lane in lanes.tolist():
            try:
                content = replaced(words[lane].tobytes(), field, ordinal, int(values[lane]))
            except MalformedMap as error:
                raise NotEmulated(f"not emulated: {instruction.mnemonic} at {instruction.location}: {error}") from error
            new[lane] = np.frombuffer(content, U64)
        for i in np.flatnonzero((new[lanes] != words[lanes]).any(axis=0)).tolist():
            batch.write(writes, offsets[i], [new[:, i].reshape(batch.shape)], mask)

    emitter.emit(step, (address.slot, value), ())


def _copy(emitter: Emitter, instruction: Instruction) -> None:
    """`tensormap.cp_fenceproxy`: a warp copies a map to global memory, and releases it."""
    scope, *rest = instruction.mnemonic.removeprefix(_COPY).split(".")
    to, source, size = instruction.operands
    if scope not in _SCOPES or rest != ["sync", "aligned"] or getattr(size, "bits", 0) != SIZE:
        raise Unsupported
    reads, writes = (
        emitter.access(instruction, "shared", "reads", 4),
        emitter.access(instruction, "global", "writes", 4),
    )
    origin, target = place(emitter, source, reads), place(emitter, to, writes)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        batch.whole_warps(instruction, mask)
        lane = 4 * (np.arange(batch.threads) % 32)[None, :]
        first, second = (batch.full(each.of(batch)) for each in (origin, target))
        batch.participants(instruction, np.full((1, 1), 0xFFFFFFFF, np.uint32), mask)
        values = batch.read(reads, first + lane.astype(first.dtype), mask)
        batch.write(writes, second + lane.astype(second.dtype), values, mask)
        batch.fence_proxy(mask, GLOBAL)
        batch.fence(mask, scope_of({*instruction.mnemonic.split(".")}))
        batch.participants(instruction, np.full((1, 1), 0xFFFFFFFF, np.uint32), mask)

    emitter.emit(step, (origin.slot, target.slot), ())


def fence_or(emitter: Emitter, instruction: Instruction) -> None:
    """The fences of tensor maps, or any other."""
    name = instruction.mnemonic
    head = next((each for each in (_ACQUIRE, _RELEASE) if name.startswith(each)), None)
    if head is None:
        fence(emitter, instruction)
        return
    if name.removeprefix(head) not in _SCOPES or len(instruction.operands) != (2 if head == _ACQUIRE else 0):
        raise Unsupported

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        batch.fence_proxy(mask, GLOBAL)
        batch.fence(mask, scope_of({*name.split(".")}))

    emitter.emit(step, (), ())


DECODERS: dict[str, Decoder] = {"tensormap": tensormap, "fence": fence_or}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here, in shared memory and of the scope that a grid needs."""
    kinds = {"global_address": "b64", "global_stride": "b64"}
    names = [f"tensormap.replace.tile.{field}.shared::cta.b1024.{kinds.get(field, 'b32')}" for field in FIELDS]
    return [*names, f"{_COPY}gpu.sync.aligned", f"{_ACQUIRE}gpu"]
