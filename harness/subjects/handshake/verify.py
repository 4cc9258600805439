"""The verdict on a pair: on the producer, on the consumer with the arrays it got, and which side is to blame."""

from __future__ import annotations

from dataclasses import dataclass

from harness.contract.case import Case
from harness.device.device import Device
from harness.expected.expected import NUMPY_LARGEST, expect, expect_on
from harness.subjects.handshake.between import arrays_between, consumed, handed_over
from harness.subjects.handshake.pair import Pair, Side
from harness.subjects.handshake.side import Worker
from harness.verdict import Result, Verdict, labelled


@dataclass(frozen=True)
class Handshake:
    """The findings for one case. producer, consumer: their verdicts; the consumer's is None if the producer was wrong
    poisoned: bytes that were overwritten between them, and in masked rows
    """

    pair: Pair
    name: str
    producer: Result
    consumer: Result | None
    poisoned: int

    @property
    def verdict(self) -> Verdict:
        """The producer's verdict if it is wrong or did not run, else the consumer's."""
        return Verdict.CONVENTION if self.last.verdict.right and self.producer.reason else self.last.verdict

    @property
    def last(self) -> Result:
        """The result of the side that ran last."""
        return self.consumer or self.producer

    @property
    def blamed(self) -> str:
        """The side that is wrong, or empty."""
        wrong = self.last.verdict.judges and not self.last.verdict.right
        return self._side.role if wrong else ""

    @property
    def _side(self) -> Side:
        return self.pair.consumer if self.consumer else self.pair.producer

    @property
    def story(self) -> str:
        """The screen of the side that is wrong, or that could not be judged, behind its name; empty for neither."""
        if not self.last.story:
            return ""
        who = labelled("blamed" if self.blamed else "side", f"the {self._side.role}, {self._side.name}")
        return f"{who}\n{self.last.story}"


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
        if not first.result.verdict.right:
            return Handshake(self.pair, name, first.result, None, sum(first.poisoned.values()))
        given = handed_over(arrays, first.written)
        read = expect_on(consumer, consumed(arrays, first.written, expected, consumer), *where)
        second = self.consumer.work(consumer, read, given)
        poisoned = sum(first.poisoned.values()) + sum(second.poisoned.values())
        return Handshake(self.pair, name, first.result, second.result, poisoned)
