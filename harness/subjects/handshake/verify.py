"""The verdict on a pair: on the producer, on the consumer with the arrays it got, and which side is to blame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.contract.case import Case
from harness.device.device import Device
from harness.expected.expected import NUMPY_LARGEST, expect, expect_on
from harness.subjects.card.form import Form
from harness.subjects.handshake.between import Array, arrays_between, consumed, handed_over
from harness.subjects.handshake.pair import Pair, Side
from harness.subjects.handshake.poison import RANDOM
from harness.subjects.handshake.side import Done, Worker
from harness.verdict import Result, Verdict


@dataclass(frozen=True)
class Handshake:
    """The findings for one case. producer, consumer: their verdicts; the consumer's is None if the producer was wrong
    poisoned: bytes that were overwritten between them, and in masked rows; blamed: the side that is wrong, or empty
    """

    name: str
    producer: Result
    consumer: Result | None
    poisoned: int
    blamed: str

    @property
    def verdict(self) -> Verdict:
        """The producer's verdict if it is wrong or did not run, else the consumer's."""
        found = self.consumer or self.producer
        return Verdict.CONVENTION if found.verdict.right and self.producer.reason else found.verdict

    @property
    def story(self) -> str:
        return (self.consumer or self.producer).story


def require_agreement(pair: Pair) -> None:
    """Compare both sides' declarations for every case before anything runs. Raises SuiteError."""
    for _, producer, consumer in pair.cases():
        arrays_between(pair, producer, consumer)


class Handshaker:
    """A pair on a device. Raises UsageError for a cubin without a GPU."""

    def __init__(self, pair: Pair, device: Device):
        self.pair, self.device = pair, device
        self.producer, self.consumer = Worker(pair.producer, device), Worker(pair.consumer, device)

    def shake(self, name: str, producer: Case, consumer: Case) -> Handshake:
        """Run and judge the producer, overwrite unpromised bytes, and run and judge the consumer on the result."""
        where = "cuda" if self.device.name == "cuda" else "cpu", NUMPY_LARGEST
        arrays = arrays_between(self.pair, producer, consumer)
        expected = expect(producer, *where)
        first = self.producer.work(producer, expected, {})
        result = _told(self.pair.producer, first, {})
        if not result.verdict.right:
            blamed = "producer" if result.verdict.judges else ""
            return Handshake(name, result, None, sum(first.poisoned.values()), blamed)
        given = handed_over(arrays, first.written)
        read = expect_on(consumer, consumed(arrays, first.written, expected, consumer), *where)
        second = self.consumer.work(consumer, read, given)
        found = _told(self.pair.consumer, second, arrays)
        blamed = "consumer" if found.verdict.judges and not found.verdict.right else ""
        poisoned = sum(first.poisoned.values()) + sum(second.poisoned.values())
        return Handshake(name, result, found, poisoned, blamed)


def _told(side: Side, done: Done, arrays: Mapping[str, Array]) -> Result:
    """The result with a story that names its side."""
    result = done.result
    if result.verdict.right or result.verdict is Verdict.EXCLUDED:
        return result
    story = _leak(side, done, arrays) if done.leak else result.story
    who = "blamed" if result.verdict.judges else "side"
    return replace(result, story=f"{who:<9} the {side.role}, {side.name}\n{story}")


def _leak(side: Side, done: Done, arrays: Mapping[str, Array]) -> str:
    """The screen for a kernel that reads unpromised bytes."""
    leak, result = done.leak, done.result
    if leak is None:
        return ""
    lines = [f"{result.verdict}  {result.case_id}  reads bytes that the producer does not define"]
    array = arrays.get(leak.array)
    form: Form | None = array.theirs if array else None
    if form is None:
        lines.append(f"array     {leak.array}: masked rows, byte {leak.byte}")
    else:
        what, at = form.place(leak.byte)
        lines.append(f"array     {leak.array}, the producer's {array.source}: {what}, entry {at}, byte {leak.byte}")
    if leak.read:
        lines.append(f"read      {leak.read}")
    if leak.output:
        fill = "random bytes" if leak.fill == RANDOM else f"0x{leak.fill:02X}"
        lines.append(
            f"changes   {leak.count} bytes of {leak.output}, the first is {leak.at}: 0x{leak.before:02X} with zeros "
            f"in their place, 0x{leak.after:02X} with {fill}"
        )
    return "\n".join(lines)
