"""`tcgen05`: allocation of tensor memory, its waits and fences, and `commit`; `tcgen05_moves` and `tcgen05_mma` have
the rest.

From the PTX ISA, "TensorCore 5th Generation Family Instructions". `cta_group::2` is for two blocks of a cluster (see
`tensor_pairs`). `shift` is not emulated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptx_emulator.instructions import tcgen05_mma, tcgen05_moves
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import place
from ptx_emulator.instructions.mbarrier import each_lane, shared_place
from ptx_emulator.instructions.tcgen05_moves import GROUPS, active_warps, uniform
from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import in_block
from ptx_emulator.ptx.syntax import Address, Instruction, Name
from ptx_emulator.ptx.syntax import Kernel as PtxKernel
from ptx_emulator.registers import U32, WARP

_SYNC = ["sync", "aligned"]
_MULTICAST = "multicast::cluster"
_COMMITS = [
    [group, "mbarrier::arrive::one", *space, *to, "b64"]
    for group in GROUPS for space in (["shared::cluster"], []) for to in ([], [_MULTICAST])
]  # fmt: skip


def _words(instruction: Instruction) -> list[str]:
    return instruction.mnemonic.split(".")[2:]


def _grouped(words: list[str]) -> tuple[bool, list[str]]:
    """Whether the first of some words says that a pair of blocks executes an instruction, and the others."""
    if words[0] not in GROUPS:
        raise Unsupported
    return words[0] == GROUPS[1], words[1:]


def _allocate(emitter: Emitter, instruction: Instruction) -> None:
    """`alloc`: a warp gets columns, and stores their address in shared memory."""
    paired, words = _grouped([word for word in _words(instruction) if word != "shared::cta"])
    if words != [*_SYNC, "b32"]:
        raise Unsupported
    access = emitter.access(instruction, "shared" if "shared::cta" in instruction.mnemonic else "generic", "writes", 4)
    where, count = place(emitter, instruction.operands[0], access), emitter.source(instruction.operands[1], "u32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        warps = active_warps(batch, instruction, mask)
        counts = uniform(batch, instruction, count, warps, "number of columns")
        addresses, stores = np.zeros(batch.shape, U32), np.zeros(batch.shape, bool)
        for warp, number in zip(warps.tolist(), counts.tolist(), strict=True):
            memory, lane = batch.tensor_memory, warp * WARP
            memory.pairs.blocks(instruction, lane, paired, live=False)
            addresses.reshape(-1)[lane] = memory.allocate(instruction, lane, number, paired)
            stores.reshape(-1)[warp * WARP] = True
        if len(warps):
            batch.write(access, where.of(batch), [addresses], stores)

    emitter.emit(step, (where.slot, count), ())


def _free(emitter: Emitter, instruction: Instruction) -> None:
    """`dealloc`."""
    paired, words = _grouped(_words(instruction))
    if words != [*_SYNC, "b32"]:
        raise Unsupported
    address, count = (emitter.source(operand, "u32") for operand in instruction.operands)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        warps = active_warps(batch, instruction, mask)
        addresses = uniform(batch, instruction, address, warps, "address")
        counts = uniform(batch, instruction, count, warps, "number of columns")
        for warp, at, number in zip(warps.tolist(), addresses.tolist(), counts.tolist(), strict=True):
            batch.tensor_memory.pairs.blocks(instruction, warp * WARP, paired, live=False)
            batch.tensor_memory.free(instruction, warp * WARP, at, number, paired)

    emitter.emit(step, (address, count), ())


def _relinquish(emitter: Emitter, instruction: Instruction) -> None:
    """`relinquish_alloc_permit`: the block allocates no more."""
    paired, words = _grouped(_words(instruction))
    if words != _SYNC or instruction.operands:
        raise Unsupported

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        pairs = batch.tensor_memory.pairs
        for warp in active_warps(batch, instruction, mask).tolist():
            pairs.blocks(instruction, warp * WARP, paired, live=False)
            if paired:
                pairs.meet(instruction, warp * WARP, "")
            batch.tensor_memory.of(warp * WARP // batch.threads).relinquished = instruction

    emitter.emit(step, (), ())


def _wait(emitter: Emitter, instruction: Instruction) -> None:
    """`wait::ld` and `wait::st`: wait for all loads or stores that a warp began before."""
    what = instruction.mnemonic.split(".")[1]
    if what not in ("wait::ld", "wait::st") or _words(instruction) != _SYNC or instruction.operands:
        raise Unsupported

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        warps = np.zeros(batch.blocks * batch.threads // WARP, bool)
        warps[active_warps(batch, instruction, mask)] = True
        batch.tensor_memory.wait(warps, what == "wait::ld")

    emitter.emit(step, (), ())


def _fence(emitter: Emitter, instruction: Instruction) -> None:
    """`fence::before_thread_sync` and `after_thread_sync`, which no check requires (see `races.tensor_shadow`)."""
    what = instruction.mnemonic.removeprefix("tcgen05.fence::")
    if what not in ("before_thread_sync", "after_thread_sync") or instruction.operands:
        raise Unsupported


def _commit(emitter: Emitter, instruction: Instruction) -> None:
    """`commit`: arrive at an mbarrier once the matrix unit has done the thread's work, which here is at once.

    A multicast arrives at the mbarrier of the same offset in each block of a mask. Without a state space the address is
    a generic one by the manual, and Triton 3.6 gives one in shared memory.
    """
    words = _words(instruction)
    paired, _ = _grouped(words)
    multicast = _MULTICAST in words
    if words not in _COMMITS or len(instruction.operands) != 1 + multicast:
        raise Unsupported
    where = shared_place(emitter, instruction.operands[0])
    blocks = emitter.source(instruction.operands[1], "b16") if multicast else emitter.constant(0, "b16")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        proxy, shadow, pairs = batch.asynchronous, batch.tensor_memory.shadow, batch.tensor_memory.pairs
        for lane, address, ranks in each_lane(batch, mask, where.of(batch), batch.registers[blocks]):
            pairs.blocks(instruction, lane, paired)
            clock = shadow.commit(lane) if shadow else None
            every = [in_block(address, rank) for rank in range(16) if ranks >> rank & 1] if multicast else [address]
            for each in every:
                found = proxy.mbarrier(instruction, lane, each)
                proxy.mbarriers.arrive(instruction, lane, found, 1, clock, by_thread=False)

    emitter.emit(step, (where.slot, blocks), ())


_VERBS = {
    "alloc": _allocate, "dealloc": _free, "relinquish_alloc_permit": _relinquish, "wait::ld": _wait, "wait::st": _wait,
    "fence::before_thread_sync": _fence, "fence::after_thread_sync": _fence, "commit": _commit,
    "ld": tcgen05_moves.move, "st": tcgen05_moves.move, "cp": tcgen05_moves.copy, "mma": tcgen05_mma.multiply,
}  # fmt: skip


def tcgen05(emitter: Emitter, instruction: Instruction) -> None:
    """Decode every `tcgen05` instruction."""
    _VERBS[instruction.mnemonic.split(".")[1]](emitter, instruction)


class RegistersInFlight(NamedTuple):
    """Registers of a `tcgen05.ld` that an instruction uses. written: those that it has as its result alone"""

    used: frozenset[str]
    written: frozenset[str]


def registers_in_flight(kernel: PtxKernel) -> dict[int, RegistersInFlight]:
    """The instructions that may write a register of a `tcgen05.ld` before it was read or waited for, and its readers.

    From the PTX ISA, "Register dependencies, same thread": an instruction that reads a register of a `ld` comes after
    it without a `wait::ld`, and nothing else does: neither another that writes the register, nor a write to the same
    tensor memory (see `races.tensor_shadow`). Only these instructions are checked when they run: compilers make none.
    """
    found: dict[int, set[str]] = {}
    rewritten: set[str] = set()
    for start, instruction in enumerate(kernel.instructions):
        if instruction.mnemonic.startswith("tcgen05.ld."):
            _follow(kernel, start + 1, frozenset(_names(instruction.operands[0])), found, rewritten)
    out = {}
    for number, names in found.items():
        if names & rewritten:
            read, results = _reads_and_results(kernel.instructions[number])
            out[number] = RegistersInFlight(frozenset(names & rewritten), frozenset(results - read))
    return out


def _follow(
    kernel: PtxKernel, start: int, names: frozenset[str], found: dict[int, set[str]], rewritten: set[str]
) -> None:
    """Collect the instructions that use these registers, from one instruction on, and the registers written again."""
    seen: dict[int, frozenset[str]] = {}
    ready = [(start, names)]
    while ready:
        at, names = ready.pop()
        while at < len(kernel.instructions) and not names <= seen.get(at, frozenset()):
            names = seen[at] = names | seen.get(at, frozenset())
            instruction = kernel.instructions[at]
            name = instruction.mnemonic
            if name.startswith("tcgen05.wait::ld") and not instruction.guard:
                break
            read, results = _reads_and_results(instruction)
            if names & (read | results):
                found.setdefault(at, set()).update(names & (read | results))
                rewritten |= names & (results - read)
                if not instruction.guard:
                    names -= read | results
            if name.startswith("brx"):
                targets = kernel.targets.get(getattr(instruction.operands[1], "text", ""), ())
                ready += [(kernel.labels[target], names) for target in targets if target in kernel.labels]
            elif name.startswith("bra") and instruction.operands[0].text in kernel.labels:
                ready.append((kernel.labels[instruction.operands[0].text], names))
            if name.startswith(("bra", "brx", "ret", "exit", "trap")) and not instruction.guard:
                break
            at += 1


def _reads_and_results(instruction: Instruction) -> tuple[set[str], set[str]]:
    """The registers that an instruction reads for certain, and those that may be its results."""
    first, rest = instruction.operands[:1], instruction.operands[1:]
    if first and isinstance(first[0], Address):
        return {*_names(*instruction.operands)}, set()
    return {*_names(*rest)}, {*_names(*first)}


def _names(*operands: object) -> list[str]:
    """The registers among operands, of addresses, too."""
    out: list[str] = []
    for operand in operands:
        if isinstance(operand, Name):
            out.append(operand.text)
        elif isinstance(operand, tuple):
            out += _names(*operand)
    return out


DECODERS: dict[str, Decoder] = {"tcgen05": tcgen05}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here, in `tcgen05_moves` and in `tcgen05_mma`."""
    names = []
    for group in GROUPS:
        names += [f"tcgen05.{verb}.{group}.sync.aligned.b32" for verb in ("alloc", "dealloc")]
        names += [f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32"]
        names += [f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned"]
    names += [f"tcgen05.wait::{what}.sync.aligned" for what in ("ld", "st")]
    names += [f"tcgen05.fence::{when}_thread_sync" for when in ("before", "after")]
    names += [f"tcgen05.commit.{'.'.join(words)}" for words in _COMMITS]
    return names + tcgen05_moves.mnemonics() + tcgen05_mma.mnemonics()
