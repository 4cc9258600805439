"""When two failures count as the same while a case shrinks: same verdict, same place."""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.verdict import Result, Verdict
from harness.verify.screen import labelled, said

_DISAGREED = re.compile(r"the oracles disagree on (?:\d+ bytes of )?([\w.]+)")
_ACCESS = re.compile(r"^[\w ]+ at [\w.]+:\d+")


class Failure(NamedTuple):
    """The facts by which two failing results are compared.

    where: the first wrong field, or the kind and line of a wrong access; empty if there is neither
    """

    verdict: Verdict
    where: str

    @classmethod
    def of(cls, result: Result) -> Failure:
        field = said(result.story, "field")
        disagreed = _DISAGREED.search(result.reason)
        access = _ACCESS.search(result.reason)
        if field:
            return cls(result.verdict, re.match(r"[\w.]+", field)[0])
        if disagreed:
            return cls(result.verdict, f"{disagreed[1]}, on which the oracles disagree")
        return cls(result.verdict, access[0] if access else "")

    def __str__(self) -> str:
        return f"{self.verdict} in {self.where}" if self.where else str(self.verdict)


def cause_of(result: Result) -> str:
    """The diagnosed cause with its explanation, or an empty string."""
    return said(result.story, "cause")


def describe(result: Result, cause: str = "") -> str:
    """The story; the reason if there is no story.

    cause: replaces the story's own
    """
    story = result.story or f"{result.verdict}  {result.case_id}\n  {result.reason}"
    own = cause_of(result)
    return story.replace(labelled("cause", own), labelled("cause", cause)) if cause and own else story
