"""Clusters: `mapa`, `getctarank`, `barrier.cluster`, `st.async`; and `setmaxnreg`, which changes no value.

From the PTX ISA, "Cluster", "mapa", "barrier.cluster" and "st.async". The address of a byte in a block's shared memory
is its place there, with that block's rank in the upper bits (see `memory.CLUSTER_RANK_BITS`).
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import items_of, store
from ptx_emulator.instructions.mbarrier import each_lane, shared_place
from ptx_emulator.instructions.transfers import Transfers
from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import CLUSTER_RANK_BITS, IN_BLOCK
from ptx_emulator.ptx.syntax import SIZES, Immediate, Instruction
from ptx_emulator.registers import U32, UNSIGNED, Bits

_REGISTERS = range(24, 257, 8)  # register counts that `setmaxnreg` may set
_FORMS = (([], "u64"), (["shared::cluster"], "u32"))  # generic addresses, and shared memory's own
_RANKS = 31  # more than a cluster has


def _map(emitter: Emitter, instruction: Instruction) -> None:
    """`mapa`: the same address in the block of a rank."""
    *words, kind = instruction.mnemonic.split(".")[1:]
    if (words, kind) not in _FORMS:
        raise Unsupported
    result, where, rank = instruction.operands
    wide = UNSIGNED[SIZES[kind]]

    def compute(address: Bits, to: Bits) -> Bits:
        window = address >> wide(36) << wide(36) if kind == "u64" else wide(0)
        return window | address & wide(IN_BLOCK) | to.astype(wide) << wide(CLUSTER_RANK_BITS)

    slots = (emitter.source(where, kind), emitter.source(rank, "u32"))
    emitter.compute(compute, kind, slots, emitter.target(result, kind))


def _rank(emitter: Emitter, instruction: Instruction) -> None:
    """`getctarank`: the rank of the block whose shared memory holds an address."""
    *words, kind = instruction.mnemonic.split(".")[1:]
    if (words, kind) not in _FORMS:
        raise Unsupported
    wide = UNSIGNED[SIZES[kind]]

    def compute(address: Bits) -> Bits:
        return (address >> wide(CLUSTER_RANK_BITS) & wide(_RANKS)).astype(U32)

    slots = (emitter.source(instruction.operands[1], kind),)
    emitter.compute(compute, "u32", slots, emitter.target(instruction.operands[0], "u32"))


def barrier_or(emitter: Emitter, instruction: Instruction) -> None:
    """`barrier.cluster.arrive` and `.wait`; the scheduler holds lanes before a wait. Others end basic blocks."""
    if not instruction.mnemonic.startswith("barrier.cluster."):
        raise Unsupported
    what, *words = instruction.mnemonic.split(".")[2:]
    if what not in ("arrive", "wait") or not set(words) <= {"release", "relaxed", "acquire", "aligned"}:
        raise Unsupported

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        lanes = np.flatnonzero(batch.under(mask))
        act = batch.asynchronous.arrive_at_cluster if what == "arrive" else batch.asynchronous.leave_cluster
        act(instruction, lanes, "relaxed" not in words)

    emitter.emit(step, (), ())


def registers(emitter: Emitter, instruction: Instruction) -> None:
    """`setmaxnreg`: how many registers a warpgroup has."""
    (count,) = instruction.operands
    words = instruction.mnemonic.split(".")[1:]
    if words not in (["inc", "sync", "aligned", "u32"], ["dec", "sync", "aligned", "u32"]):
        raise Unsupported
    if not isinstance(count, Immediate) or count.bits not in _REGISTERS:
        raise Unsupported


def asynchronous_store(emitter: Emitter, instruction: Instruction) -> None:
    """`st.async`, a store to shared memory of the cluster that counts its bytes at an mbarrier; or any other `st`."""
    if not instruction.mnemonic.startswith("st.async."):
        store(emitter, instruction)
        return
    words = [word for word in instruction.mnemonic.split(".")[2:] if word != "weak"]
    if words[:2] != ["shared::cluster", "mbarrier::complete_tx::bytes"] or words[-1] not in SIZES:
        raise Unsupported
    count = {"v2": 2, "v4": 4}.get(words[2], 1)
    if len(words) != 3 + (count > 1) or SIZES[words[-1]] not in (4, 8):
        raise Unsupported
    kind = words[-1] if words[-1].startswith("f") else f"b{8 * SIZES[words[-1]]}"
    where, values, barrier = instruction.operands
    target, at = shared_place(emitter, where), shared_place(emitter, barrier)
    sources = [emitter.source(item, kind) for item in items_of(values, count)]
    transfers, size = Transfers(emitter, instruction, 4), SIZES[words[-1]]
    emitter.cells["shared"] = min(emitter.cells["shared"], size)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        columns = (target.of(batch), at.of(batch), *(batch.registers[source] for source in sources))
        for lane, to, mbarrier, *items in each_lane(batch, mask, *columns):
            content = b"".join(item.to_bytes(size, "little") for item in items)
            transfers.put(batch, lane, to, content, mbarrier)

    emitter.emit(step, (target.slot, at.slot, *sources), ())


DECODERS: dict[str, Decoder] = {
    "mapa": _map, "getctarank": _rank, "barrier": barrier_or, "setmaxnreg": registers,
    "st": asynchronous_store,
}  # fmt: skip


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    names = ["mapa.u64", "mapa.shared::cluster.u32", "getctarank.u64", "getctarank.shared::cluster.u32"]
    names += ["barrier.cluster.arrive", "barrier.cluster.wait", "st.async"]
    names += [f"setmaxnreg.{what}.sync.aligned.u32" for what in ("inc", "dec")]
    return [*names, "fence.mbarrier_init.release.cluster"]
