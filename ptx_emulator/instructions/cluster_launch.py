"""`clusterlaunchcontrol`: a running cluster takes over one of its grid that has not begun, which then never begins.

From the PTX ISA, "clusterlaunchcontrol.try_cancel" and "query_cancel". The answer of 16 bytes is opaque there. Here its
first half is a mark, the number of the request and whether it succeeded, and the second half the index of the first
block of the cluster. A GPU may refuse any request; when one is refused here, `machine.residents` says.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.mbarrier import each_lane, shared_place
from ptx_emulator.instructions.transfers import Transfers
from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import in_block
from ptx_emulator.ptx.syntax import Instruction, Vector
from ptx_emulator.registers import U32, U64

KIND = "cluster_launch"
BYTES = 16
_COMPLETES, _EVERY_BLOCK = "mbarrier::complete_tx::bytes", "multicast::cluster::all"
_REQUESTS = [
    ["async", *space, _COMPLETES, *to, "b128"] for space in (["shared::cta"], []) for to in ([], [_EVERY_BLOCK])
]
_MARK, _MARK_BITS = 0x5ECA9CE1, 32
_Y, _Z = 32, 48  # where an index of the second half begins; that of x has 32 bits, the others 16


def _request(emitter: Emitter, instruction: Instruction) -> None:
    """`try_cancel`."""
    words = instruction.mnemonic.split(".")[2:]
    if words not in _REQUESTS or len(instruction.operands) != 2:
        raise Unsupported
    target, barrier = (shared_place(emitter, operand) for operand in instruction.operands)
    transfers, to_all = Transfers(emitter, instruction, BYTES), _EVERY_BLOCK in words

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        launch, proxy, size = batch.launch, batch.asynchronous, batch.launch.cluster_size
        for lane, to, at in each_lane(batch, mask, target.of(batch), barrier.of(batch)):
            own = lane // batch.threads
            _require_own(batch, instruction, lane, to, BYTES)
            _require_own(batch, instruction, lane, at, 8)
            learnt = proxy.refused.get(own)
            if learnt:
                query, before = (each.location.in_full() for each in learnt)
                sentence = f"asks for another cluster after its block learnt at {query} that the request at {before} "
                batch.fault(KIND, instruction, lane, f"{sentence}failed, which PTX leaves undefined")
            if to_all:
                _require_all_live(batch, instruction, lane, own // size * size, size)
            found = launch.take_cluster(batch.spent())
            launch.requests.append(instruction)
            first = _MARK << _MARK_BITS | len(launch.requests) - 1 << 1 | (found is not None)
            x, y, z = launch.block_name(found) if found is not None else (0, 0, 0)
            answer = first.to_bytes(8, "little") + (x | y << _Y | z << _Z).to_bytes(8, "little")
            for rank in range(size) if to_all else [own % size]:
                transfers.put(batch, lane, in_block(to, rank), answer, in_block(at, rank), fenced=False)

    emitter.emit(step, (target.slot, barrier.slot), ())


def _require_own(batch: Batch, instruction: Instruction, lane: int, address: int, size: int) -> None:
    block, _ = batch.asynchronous.in_shared(instruction, lane, address, size, size, "asks for an answer in")
    if block != lane // batch.threads:
        sentence = "asks for an answer in shared memory of another block of the cluster, which PTX leaves undefined"
        batch.fault(KIND, instruction, lane, sentence)


def _require_all_live(batch: Batch, instruction: Instruction, lane: int, first: int, size: int) -> None:
    """Raise Fault if a block has exited to which an answer would be sent."""
    for block in range(first, first + size):
        if not batch.live[block].any():
            name = batch.launch.block_name(batch.first + block)
            sentence = f"asks for an answer in every block of the cluster, of which block {name} has exited"
            batch.fault(KIND, instruction, lane, sentence)


def _query(emitter: Emitter, instruction: Instruction) -> None:
    """`query_cancel`: whether a request succeeded, and the index of the first block of the cluster."""
    what, *words = instruction.mnemonic.split(".")[2:]
    result, answer = instruction.operands
    if not isinstance(answer, Vector) or len(answer.items) != 2:
        raise Unsupported
    low, high = (emitter.source(item, "b64") for item in answer.items)
    asks = what == "is_canceled"
    if asks and words == ["pred", "b128"]:
        targets = [emitter.target(result, "pred")]
    elif what == "get_first_ctaid" and words == ["v4", "b32", "b128"] and len(result.items) == 4:
        targets = [emitter.target(item, "b32") for item in result.items]
    elif what in _AXES and words == ["b32", "b128"]:
        targets = [emitter.target(result, "b32")]
    else:
        raise Unsupported

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        first, second = (batch.full(batch.registers[slot]) for slot in (low, high))
        _require_answers(batch, instruction, batch.under(mask).reshape(-1), first.reshape(-1), asks)
        if asks:
            batch.assign(targets[0], (first & U64(1)).astype(bool), mask)
            return
        found = [second.astype(U32), second >> U64(_Y) & U64(0xFFFF), second >> U64(_Z)]
        parts = (
            [found[_AXES.index(what)]]
            if what in _AXES
            else [*found, np.full_like(first, batch.launch.schedule.stale_bits & 0xFFFFFFFF)]
        )
        for target, part in zip(targets, parts, strict=True):
            batch.assign(target, part.astype(U32), mask)

    emitter.emit(step, (low, high), targets)


_AXES = [f"get_first_ctaid::{axis}" for axis in "xyz"]


def _require_answers(batch: Batch, instruction: Instruction, lanes: np.ndarray, first: np.ndarray, asks: bool) -> None:
    """Raise Fault for what is no answer, or says that a request failed. asks: only remember who learnt that it did"""
    strange = lanes & (first >> U64(_MARK_BITS) != U64(_MARK))
    if strange.any():
        sentence = "looks for an answer in 16 bytes that no clusterlaunchcontrol.try_cancel wrote"
        batch.fault(KIND, instruction, int(np.argmax(strange)), sentence)
    failed = lanes & (first & U64(1) == 0)
    for lane in np.flatnonzero(failed).tolist():
        request = batch.launch.requests[int(first[lane] & U64(0xFFFFFFFF)) >> 1]
        if not asks:
            at = request.location.in_full()
            sentence = f"reads the block of a cluster, where the request at {at} failed, which PTX leaves undefined"
            batch.fault(KIND, instruction, lane, sentence)
        batch.asynchronous.refused.setdefault(lane // batch.threads, (instruction, request))


def control(emitter: Emitter, instruction: Instruction) -> None:
    """Decode `clusterlaunchcontrol`."""
    verb = instruction.mnemonic.split(".")[1]
    if verb not in ("try_cancel", "query_cancel"):
        raise Unsupported
    (_request if verb == "try_cancel" else _query)(emitter, instruction)


DECODERS: dict[str, Decoder] = {"clusterlaunchcontrol": control}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    names = [f"clusterlaunchcontrol.try_cancel.{'.'.join(words)}" for words in _REQUESTS]
    queries = ["is_canceled.pred", "get_first_ctaid.v4.b32", *(f"{axis}.b32" for axis in _AXES)]
    return names + [f"clusterlaunchcontrol.query_cancel.{query}.b128" for query in queries]
