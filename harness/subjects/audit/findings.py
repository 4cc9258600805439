"""Observations of a subject, and the violation that they show and bytes alone would not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field, owner_of
from harness.device.device import Outcome
from harness.expected.expected import fields_of
from harness.oracles import layout
from harness.subjects.program import GRACE, SubjectProgram
from harness.subjects.violations import Finding, Violation
from harness.verify.diagnosis.difference import first_input


def place(case: Case, field: Field, byte: int) -> str:
    """Where a byte of an output lies, such as `[0, 64], from input [0, 128]`; scale bytes in compact order."""
    entry, tensor = byte // np.dtype(field.dtype).itemsize, ""
    if field.parts:
        number, entry = owner_of(field, entry)
        field, tensor = field.parts[number], f" of tensor {number}"
    if field.swizzled:
        entry = int(np.flatnonzero(layout.unswizzle(np.arange(field.size).reshape(field.shape)) == entry)[0])
    at = tuple(int(index) for index in np.unravel_index(entry, field.shape))
    if field.valid and any(index >= extent for index, extent in zip(at, field.valid, strict=True)):
        return f"{list(at)}{tensor}, in the padding"
    source = "" if case.is_gemm or len(at) != 2 else f", from input {list(first_input(field, at))}"
    return f"{list(at)}{tensor}{source}"


OTHER_POISON = 0x3C  # poison of runs beyond the three that a verification of our own kernels has


@dataclass(frozen=True)
class Observation:
    """One step.

    kind: `call`, `behind_work` (called on a busy stream) or `replay` of a graph
    poison: the byte that outputs were filled with; other: True if other data lay at the same addresses
    outcome: the outputs as soon as the call was over, in its stream's order
    repeat: the number of the run, which gives the order of what it launches on the emulator
    at_once, settled: the outputs once the device was idle, and some time later; only for the last step of a kind
    """

    kind: str
    poison: int
    outcome: Outcome
    other: bool = False
    repeat: int = 0
    at_once: Mapping[str, Any] | None = None
    settled: Mapping[str, Any] | None = None

    def unwritten(self) -> bool:
        """Whether any field holds nothing but poison."""
        return any(array.size and bool((array == self.poison).all()) for array in self.outcome.outputs.values())


def observe(
    program: SubjectProgram,
    inputs: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
    poisons: Sequence[int],
    graph: bool,
) -> Iterator[Observation]:
    """Call the subject on the case's data and on other data; if `graph`, also replay a graph of the call."""
    for repeat, poison in enumerate(poisons):
        yield Observation("call", poison, program.run(poison, repeat), repeat=repeat)
    program.put(other)
    yield settle(program, Observation("call", OTHER_POISON, program.run(OTHER_POISON, 1), other=True))
    program.put(inputs)
    behind_work = program.run_behind_work(OTHER_POISON)
    if behind_work is not None:
        yield Observation("behind_work", OTHER_POISON, behind_work)
    if not graph:
        return
    program.capture()
    for poison in poisons:
        yield Observation("replay", poison, program.replay(poison))
    program.put(other)
    yield settle(program, Observation("replay", OTHER_POISON, program.replay(OTHER_POISON), other=True))
    program.put(inputs)


def settle(program: SubjectProgram, observation: Observation, seconds: float = GRACE) -> Observation:
    """Add the outputs when all work is done, and again some seconds later."""
    return replace(observation, at_once=program.later(0), settled=program.later(seconds))


def same(one: Mapping[str, Any], another: Mapping[str, Any]) -> bool:
    return all(bool((array == another[name]).all()) for name, array in one.items())


# Poisons for calls that are only made to name the violation, in an order that follows neither call counters nor the
# poison.
_PROBES = (0xA5, 0xA5, 0x5A, 0x5A, 0xA5, 0x5A, 0x5A, 0xA5)

PATIENCE = 0.1  # seconds to wait after each call

_UNORDERED = Finding(Violation.OTHER_STREAM, "its work does not wait for its turn on the stream that it was to use")

Right = Callable[[Observation], bool]


def find(program: SubjectProgram, observations: Sequence[Observation], right: Right) -> Finding | None:
    """The subject's violation; None if all is right, or if its bytes are merely wrong.

    right: whether an observation shows what is expected for its data
    """
    found = _trespass(observations) or _late(program, observations, right)
    if found or all(map(right, observations)):
        return found
    calls = [seen for seen in observations if seen.kind == "call" and not seen.other]
    if not all(map(right, calls)):
        return None if _by_order(program, calls) else _probe(program, calls, right)
    wrong = next(seen for seen in observations if not right(seen))
    if wrong.kind == "behind_work":
        what = "its work was done before the stream came to it" if wrong.unwritten() else "its bytes were wrong"
        return Finding(Violation.OTHER_STREAM, f"behind other work on the stream that it was to use, {what}")
    if wrong.kind == "replay" and wrong.unwritten():
        return Finding(Violation.NOT_CAPTURED, "its graph writes nothing when it is replayed, though a call does")
    if wrong.other and same(wrong.outcome.outputs, calls[-1].outcome.outputs):
        what = "a replay" if wrong.kind == "replay" else "a call"
        return Finding(
            Violation.CACHES_BY_POINTER, f"{what} on new data wrote the answer for the data that were there before"
        )
    if wrong.unwritten():
        return Finding(Violation.NOT_EVERY_CALL, f"right in {len(calls)} calls, and the next wrote nothing")
    return None


def _trespass(observations: Sequence[Observation]) -> Finding | None:
    sentence = next((seen.outcome.trespass for seen in observations if seen.outcome.trespass), "")
    if not sentence:
        return None
    inputs = sentence.startswith("input")
    return Finding(Violation.MODIFIES_INPUTS if inputs else Violation.WRITES_OUTSIDE, sentence)


def _late(program: SubjectProgram, observations: Sequence[Observation], right: Right) -> Finding | None:
    for seen in observations:
        if seen.settled is None:
            continue
        before, at_once, settled = seen.outcome.outputs, seen.at_once, seen.settled
        if same(before, at_once) and same(at_once, settled):
            continue
        if _ignores_the_stream(program, right):
            return _UNORDERED
        field = changed(before, settled) or changed(before, at_once)
        return Finding(Violation.WRITES_LATE, f"output {field!r} changed after the call was done")
    return None


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The name of an output that differs between two readings; empty if none does."""
    return next((name for name, array in before.items() if not bool((array == after[name]).all())), "")


def _by_order(program: SubjectProgram, calls: Sequence[Observation]) -> bool:
    """Whether what is launched on the emulator writes other bytes in other orders, and nothing else makes a difference.

    Every order is run again, the last one first and on the complement of the poison, and writes the same again.
    """
    first = calls[0].outcome.outputs
    if not any(seen.outcome.kernels for seen in calls) or all(same(first, seen.outcome.outputs) for seen in calls):
        return False
    return all(
        same(seen.outcome.outputs, program.run(seen.poison ^ 0xFF, seen.repeat).outputs) for seen in reversed(calls)
    )


def _probe(program: SubjectProgram, calls: Sequence[Observation], right: Right) -> Finding | None:
    """After wrong calls on the case's data, make more calls, and name the violation by which of them are wrong."""
    observations = list(calls)
    if _ignores_the_stream(program, right):
        return _UNORDERED
    for number, poison in enumerate(_PROBES):
        observations.append(settle(program, Observation("call", poison, program.run(poison, number)), PATIENCE))
        found = _late(program, observations[-1:], right)
        if found:
            return found
    ok = [right(seen) for seen in observations]
    count = len(observations)
    if not any(ok):
        return _never_written(program, observations) or _by_poison(observations)
    if ok[0] and not any(ok[1:]):
        twin = program.twin()
        if right(Observation("call", _PROBES[0], twin.run(_PROBES[0], 0))):
            return Finding(
                Violation.CACHES_BY_POINTER,
                f"right in the first call on some addresses, and not in {count - 1} more on the same",
            )
    by_poison = {
        poison: {fine for seen, fine in zip(observations, ok, strict=True) if seen.poison == poison}
        for poison in _PROBES
    }
    if all(len(found) == 1 for found in by_poison.values()):
        wrong = next(poison for poison, found in by_poison.items() if False in found)
        return Finding(
            Violation.DEPENDS_ON_POISON, f"wrong whenever its outputs hold 0x{wrong:02X} before, and right otherwise"
        )
    first = ok.index(True)
    if first and all(ok[first:]):
        return Finding(Violation.ASLEEP_AT_FIRST, f"wrong in the first {first} calls and right from then on")
    return Finding(Violation.NOT_EVERY_CALL, f"right in {sum(ok)} of {count} calls on the same data")


def _ignores_the_stream(program: SubjectProgram, right: Right) -> bool:
    """Whether outputs are right once the device is idle, but never behind work that keeps the stream busy."""
    if not program.has_streams:
        return False
    for poison in _PROBES[:4]:
        program.later(PATIENCE)  # lets late work end first
        run = program.run(poison, 1)
        done = Observation("call", poison, replace(run, outputs=dict(program.later(0))))
        program.later(PATIENCE)
        if not right(done) or right(Observation("behind_work", poison, program.run_behind_work(poison))):
            return False
    return True


def _never_written(program: SubjectProgram, observations: Sequence[Observation]) -> Finding | None:
    for field, array in observations[0].outcome.outputs.items():
        mask = array == observations[0].poison
        for seen in observations[1:]:
            mask &= seen.outcome.outputs[field] == seen.poison
        if bool(mask.any()):
            where = place(program.case, fields_of(program.case)[field], int(mask.argmax()))
            sentence = f"{int(mask.sum())} of {mask.size} bytes of {field} are never written, the first at {where}"
            return Finding(Violation.SKIPS_WORK, sentence)
    return None


def _by_poison(observations: Sequence[Observation]) -> Finding | None:
    """Whether the written bytes depend on the bytes that were there before."""
    first = {seen.poison: seen for seen in reversed(observations)}
    steady = all(same(seen.outcome.outputs, first[seen.poison].outcome.outputs) for seen in observations)
    one, another = (first[poison].outcome.outputs for poison in sorted(set(_PROBES)))
    if steady and not same(one, another):
        return Finding(Violation.DEPENDS_ON_POISON, "writes other bytes where its outputs held other bytes before")
    return None
