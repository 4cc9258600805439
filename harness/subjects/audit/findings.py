"""From what was seen to what a subject did: each way to be wrong that bytes alone would not tell apart has a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.subjects.audit.observations import Look, same, settle
from harness.subjects.audit.violations import Caught, Offence
from harness.subjects.program import SubjectProgram

# Of the calls that are made only to name what was wrong: in no order that a call counter or the poison would follow.
_PROBES = (0xA5, 0xA5, 0x5A, 0x5A, 0xA5, 0x5A, 0x5A, 0xA5)

PATIENCE = 0.1  # seconds after each of them

_BESIDE = Caught(Offence.OTHER_STREAM, "its work does not wait for its turn on the stream that it was to use")

Right = Callable[[Look], bool]


def name(program: SubjectProgram, looks: Sequence[Look], right: Right) -> Caught | None:
    """What the subject did, or None: if all is right, or if its bytes are merely wrong.

    right: whether a look shows what is demanded for its data
    """
    found = _trespass(looks) or _late(program, looks, right)
    if found or all(map(right, looks)):
        return found
    calls = [look for look in looks if look.kind == "call" and not look.other]
    if not all(map(right, calls)):
        return _probe(program, calls, right)
    wrong = next(look for look in looks if not right(look))
    if wrong.kind == "held":
        what = "its work was done before the stream came to it" if wrong.unwritten() else "its bytes were wrong"
        return Caught(Offence.OTHER_STREAM, f"behind other work on the stream that it was to use, {what}")
    if wrong.kind == "replay" and wrong.unwritten():
        return Caught(Offence.NOT_CAPTURED, "its graph writes nothing when it is replayed, though a call does")
    if wrong.other and same(wrong.outcome.outputs, calls[-1].outcome.outputs):
        what = "a replay" if wrong.kind == "replay" else "a call"
        return Caught(
            Offence.CACHES_BY_POINTER, f"{what} on new data wrote the answer for the data that were there before"
        )
    if wrong.unwritten():
        return Caught(Offence.NOT_EVERY_CALL, f"right in {len(calls)} calls, and the next wrote nothing")
    return None


def _trespass(looks: Sequence[Look]) -> Caught | None:
    sentence = next((look.outcome.trespass for look in looks if look.outcome.trespass), "")
    if not sentence:
        return None
    inputs = sentence.startswith("input")
    return Caught(Offence.MODIFIES_INPUTS if inputs else Offence.WRITES_OUTSIDE, sentence)


def _late(program: SubjectProgram, looks: Sequence[Look], right: Right) -> Caught | None:
    for look in looks:
        if look.settled is None:
            continue
        before, at_once, settled = look.outcome.outputs, look.at_once, look.settled
        if same(before, at_once) and same(at_once, settled):
            continue
        if _beside(program, right):
            return _BESIDE
        field = _changed(before, settled) or _changed(before, at_once)
        return Caught(Offence.WRITES_LATE, f"output {field!r} changed after the call was done")
    return None


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return next((name for name, array in before.items() if not bool((array == after[name]).all())), "")


def _probe(program: SubjectProgram, calls: Sequence[Look], right: Right) -> Caught | None:
    """Some calls on the case's data are wrong: which of more calls are decides what is said of it."""
    looks = list(calls)
    if _beside(program, right):
        return _BESIDE
    for number, poison in enumerate(_PROBES):
        looks.append(settle(program, Look("call", poison, program.run(poison, number)), PATIENCE))
        found = _late(program, looks[-1:], right)
        if found:
            return found
    ok = [right(look) for look in looks]
    count = len(looks)
    if not any(ok):
        if any(all((look.outcome.outputs[field] == look.poison).any() for look in looks) for field in program.outputs):
            return _never_written(looks)
        return _by_poison(looks)
    if ok[0] and not any(ok[1:]):
        twin = program.twin()
        if right(Look("call", _PROBES[0], twin.run(_PROBES[0], 0))):
            return Caught(
                Offence.CACHES_BY_POINTER,
                f"right in the first call on some addresses, and not in {count - 1} more on the same",
            )
    by_poison = {
        poison: {fine for look, fine in zip(looks, ok, strict=True) if look.poison == poison} for poison in _PROBES
    }
    if all(len(found) == 1 for found in by_poison.values()):
        wrong = next(poison for poison, found in by_poison.items() if False in found)
        return Caught(
            Offence.DEPENDS_ON_POISON, f"wrong whenever its outputs hold 0x{wrong:02X} before, and right otherwise"
        )
    first = ok.index(True)
    if first and all(ok[first:]):
        return Caught(Offence.ASLEEP_AT_FIRST, f"wrong in the first {first} calls and right from then on")
    return Caught(Offence.NOT_EVERY_CALL, f"right in {sum(ok)} of {count} calls on the same data")


def _beside(program: SubjectProgram, right: Right) -> bool:
    """Whether it is right as soon as the device was waited for, and never behind work that keeps its stream busy."""
    if not program.has_streams:
        return False
    for poison in _PROBES[:4]:
        program.later(PATIENCE)  # for what may be late to be over
        run = program.run(poison, 1)
        done = Look("call", poison, replace(run, outputs=dict(program.later(0))))
        program.later(PATIENCE)
        if not right(done) or right(Look("held", poison, program.run_behind_work(poison))):
            return False
    return True


def _never_written(looks: Sequence[Look]) -> Caught | None:
    for field, array in looks[0].outcome.outputs.items():
        mask = array == looks[0].poison
        for look in looks[1:]:
            mask &= look.outcome.outputs[field] == look.poison
        if bool(mask.any()):
            return Caught(Offence.SKIPS_WORK, f"{int(mask.sum())} of {mask.size} bytes of {field} are never written")
    return _by_poison(looks)


def _by_poison(looks: Sequence[Look]) -> Caught | None:
    """Whether the bytes follow those that were there before."""
    first = {look.poison: look for look in reversed(looks)}
    steady = all(same(look.outcome.outputs, first[look.poison].outcome.outputs) for look in looks)
    one, another = (first[poison].outcome.outputs for poison in sorted(set(_PROBES)))
    if steady and not same(one, another):
        return Caught(Offence.DEPENDS_ON_POISON, "writes other bytes where its outputs held other bytes before")
    return None
