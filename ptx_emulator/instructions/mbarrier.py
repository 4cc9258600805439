"""`mbarrier`: init, inval, arrive, expect_tx, complete_tx, test_wait, try_wait and pending_count.

From the PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier". The 64 bits of an mbarrier are
opaque there, and so is the state that `arrive` returns: here it is the number of the phase. A wait is a basic block of
its own, whose lanes the scheduler holds until their phase is complete, or until nothing else can run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import Place
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.launch_state import Wait
from ptx_emulator.machine.mbarrier_state import Semantics
from ptx_emulator.memory import WRITTEN
from ptx_emulator.ptx.syntax import SIZES, Address, Instruction, Name, Operand, Pair
from ptx_emulator.registers import U64

_SCOPES = {"cta", "cluster"}
_SEMANTICS = {"acquire", "release", "relaxed"}
_SPACES = {"shared", "shared::cta", "shared::cluster"}
WAITS = ("mbarrier.try_wait", "mbarrier.test_wait", "barrier.cluster.wait")


def is_wait(instruction: Instruction) -> bool:
    """Whether lanes may be held at an instruction."""
    return instruction.mnemonic.startswith(WAITS)


def shared_place(emitter: Emitter, operand: Operand) -> Place:
    """The slot of an address in shared memory, or a generic one."""
    if not isinstance(operand, Address):
        raise Unsupported
    if operand.base is None:
        return Place(emitter.constant(operand.offset, "b64"), 0)
    found = emitter.named(operand.base.text)
    if not found:
        return Place(*emitter.place_of(operand.base.text, operand.offset, "b64"))
    return Place(found[0], operand.offset)


def each_lane(batch: Batch, mask: np.ndarray | None, *columns: np.ndarray) -> Iterator[tuple[int, ...]]:
    """The active lanes, as positions in the batch, with their values of registers as Python integers."""
    lanes = np.flatnonzero(batch.under(mask))
    values = [batch.full(column).reshape(-1)[lanes].tolist() for column in columns]
    yield from zip(lanes.tolist(), *values, strict=True)


def _words(instruction: Instruction, verb: str) -> set[str]:
    """The modifiers of a verb; Unsupported for an unknown word."""
    words = instruction.mnemonic.removeprefix(f"mbarrier.{verb}").strip(".").split(".")
    if words[-1] != "b64" or not set(words[:-1]) <= _SCOPES | _SEMANTICS | _SPACES:
        raise Unsupported
    return set(words)


def _semantics(words: set[str]) -> Semantics:
    return Semantics("relaxed" in words, next((word for word in words if word in _SCOPES), ""))


def _init(emitter: Emitter, instruction: Instruction) -> None:
    _words(instruction, "init")
    where, count = shared_place(emitter, instruction.operands[0]), emitter.source(instruction.operands[1], "u32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        proxy, shared = batch.asynchronous, batch.addressing.shared
        for lane, address, number in each_lane(batch, mask, where.of(batch), batch.registers[count]):
            block, byte = proxy.in_shared(instruction, lane, address, 8, 8, "initialises an mbarrier in")
            start = block * shared.stride + byte
            proxy.touch_mbarrier(access, block, byte, lane, True)
            proxy.mbarriers.init(instruction, lane, block, byte, number)
            if shared.written is not None:
                shared.written[start : start + 8] = WRITTEN

    access = emitter.access(instruction, "shared", "writes", 8)
    emitter.cells["shared"] = min(emitter.cells["shared"], 8)
    emitter.emit(step, (where.slot, count), ())


def _inval(emitter: Emitter, instruction: Instruction) -> None:
    _words(instruction, "inval")
    where = shared_place(emitter, instruction.operands[0])
    access = emitter.access(instruction, "shared", "writes", 8)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        proxy, shared = batch.asynchronous, batch.addressing.shared
        for lane, address in each_lane(batch, mask, where.of(batch)):
            block, byte = proxy.in_shared(instruction, lane, address, 8, 8, "ends an mbarrier in")
            proxy.mbarriers.inval(instruction, lane, block, byte)
            proxy.touch_mbarrier(access, block, byte, lane, False)
            if shared.written is not None:
                shared.written[block * shared.stride + byte :][:8] = 0

    emitter.emit(step, (where.slot,), ())


def _expect(emitter: Emitter, instruction: Instruction) -> None:
    """`expect_tx` and `complete_tx`, which differ in the sign alone."""
    verb = instruction.mnemonic.split(".")[1]
    _words(instruction, verb)
    where, amount = shared_place(emitter, instruction.operands[0]), emitter.source(instruction.operands[1], "u32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        proxy = batch.asynchronous
        for lane, address, number in each_lane(batch, mask, where.of(batch), batch.registers[amount]):
            found = proxy.mbarrier(instruction, lane, address)
            act = proxy.mbarriers.expect if verb == "expect_tx" else proxy.mbarriers.copied
            act(instruction, lane, found, number)

    emitter.emit(step, (where.slot, amount), ())


def _arrive(emitter: Emitter, instruction: Instruction) -> None:
    """`arrive`, `arrive.expect_tx`, `arrive_drop`."""
    verb = "arrive_drop" if instruction.mnemonic.startswith("mbarrier.arrive_drop") else "arrive"
    expects = f"mbarrier.{verb}.expect_tx" in instruction.mnemonic
    words = _words(instruction, f"{verb}.expect_tx" if expects else verb)
    operands = list(instruction.operands)
    result = emitter.slot("b64")
    if isinstance(operands[0], Name):
        result = emitter.target(operands.pop(0), "b64")
    where = shared_place(emitter, operands.pop(0))
    amount = emitter.source(operands.pop(0), "u32") if operands else emitter.constant(1, "u32")
    if operands:
        raise Unsupported
    semantics = _semantics(words)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        proxy = batch.asynchronous
        states = np.zeros(batch.shape, U64)
        for lane, address, number in each_lane(batch, mask, where.of(batch), batch.registers[amount]):
            found = proxy.mbarrier(instruction, lane, address)
            if expects:
                proxy.mbarriers.expect(instruction, lane, found, number)
            count = 1 if expects else number
            states.reshape(-1)[lane] = proxy.mbarriers.arrive(
                instruction, lane, found, count, semantics, verb == "arrive_drop"
            )
        batch.assign(result, states, mask)

    emitter.emit(step, (where.slot, amount), (result,))


def copies_arrive(emitter: Emitter, instruction: Instruction) -> None:
    """`cp.async.mbarrier.arrive`: an arrival once the thread's copies by `cp.async` are complete, which is at once.

    Without `noinc` it also raises the number of arrivals that the phase waits for, so in sum nothing changes.
    """
    words = instruction.mnemonic.removeprefix("cp.async.mbarrier.arrive.").split(".")
    counts = words[:1] == ["noinc"]
    if words[counts:] not in (["b64"], ["shared", "b64"], ["shared::cta", "b64"]):
        raise Unsupported
    where = shared_place(emitter, instruction.operands[0])

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        proxy = batch.asynchronous
        for copy, due in batch.cp_async.wait(-1, batch.under(mask)):
            batch.land(copy.access, copy.address, copy.values, due)
        for lane, address in each_lane(batch, mask, where.of(batch)):
            found = proxy.mbarrier(instruction, lane, address)
            if counts:
                proxy.mbarriers.arrive(instruction, lane, found, 1, Semantics(False, ""), by_thread=False)
            elif proxy.order:
                proxy.mbarriers.release(instruction, found, lane, Semantics(False, ""))

    emitter.emit(step, (where.slot,), ())


def wait_of(emitter: Emitter, instruction: Instruction) -> Wait | None:
    """The phase that lanes at a wait look at, an mbarrier's or the cluster's; None for an unknown or guarded form."""
    words = instruction.mnemonic.split(".")
    if words[0] == "barrier":
        return None if instruction.guard else Wait(0, 0, 0, False, of_cluster=True)
    *_, state = instruction.operands[:3]
    if instruction.guard or not set(words[2:-1]) <= _SCOPES | _SEMANTICS | _SPACES | {"parity"} or words[-1] != "b64":
        return None
    by_parity = "parity" in words
    kind = "u32" if by_parity else "b64"
    found = emitter.named(state.text) if isinstance(state, Name) else (emitter.source(state, kind), kind)
    # A register of another width would be converted in a step, which comes after lanes are held.
    if not found or SIZES[found[1]] != SIZES[kind]:
        return None
    where = shared_place(emitter, instruction.operands[1])
    return Wait(where.slot, where.offset, found[0], by_parity)


def _wait(emitter: Emitter, instruction: Instruction) -> None:
    """`test_wait` and `try_wait`: whether the phase of a state, or the last of a parity, is complete."""
    wait = wait_of(emitter, instruction._replace(guard=None))
    if wait is None or isinstance(instruction.operands[0], Pair):
        raise Unsupported
    result = emitter.target(instruction.operands[0], "pred")
    semantics = _semantics(set(instruction.mnemonic.split(".")))

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        proxy = batch.asynchronous
        done = np.zeros(batch.shape, bool)
        for lanes, found, complete in proxy.waits(instruction, wait, mask):
            found.waited = instruction
            proxy.mbarriers.look(found, instruction, lanes)
            if not complete:
                continue
            told = lanes[~proxy.too_early(instruction, found, lanes)]
            done.reshape(-1)[told] = True
            if len(told):
                proxy.learn(instruction, found, told, semantics)
        batch.assign(result, done, mask)

    emitter.emit(step, (wait.slot, wait.state), (result,))


_VERBS = {
    "init": _init, "inval": _inval, "expect_tx": _expect, "complete_tx": _expect, "arrive": _arrive,
    "arrive_drop": _arrive, "test_wait": _wait, "try_wait": _wait,
}  # fmt: skip


def mbarrier(emitter: Emitter, instruction: Instruction) -> None:
    """Decode every `mbarrier` instruction."""
    _VERBS[instruction.mnemonic.split(".")[1]](emitter, instruction)


DECODERS: dict[str, Decoder] = {"mbarrier": mbarrier}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here, without scopes and semantics."""
    names = ["init", "inval", "expect_tx", "complete_tx", "arrive", "arrive.expect_tx", "arrive_drop",
             "arrive_drop.expect_tx", "test_wait", "test_wait.parity", "try_wait", "try_wait.parity"]  # fmt: skip
    names = [f"mbarrier.{name}.shared.b64" for name in names]
    return [*names, "cp.async.mbarrier.arrive.shared.b64", "cp.async.mbarrier.arrive.noinc.shared.b64"]
