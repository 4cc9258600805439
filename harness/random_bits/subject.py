"""The implementation to test, our kernels, a card or a subject, and its case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.device import Device
from harness.errors import DeviceUnavailable, UsageError
from harness.subjects.card.card import is_card, read_card
from harness.subjects.card.device import with_card
from harness.subjects.device import with_subject
from harness.subjects.process import Child
from harness.subjects.subject import start
from harness.suite.suite import find_case, suite_of
from harness.text import spell


def require() -> None:
    """Raise UsageError if scipy, which has the binomial distribution, is missing."""
    try:
        import scipy.stats  # noqa: F401
    except ImportError:
        raise UsageError(
            "random bits are judged with scipy, which is not installed: pip install 'nvfp4-harness[stats]'"
        ) from None


@contextmanager
def under_test(device: Device, subject: str | None) -> Iterator[Any]:
    """The device, with a subject on it if one is named. Raises UsageError if there is no such subject."""
    if subject is None:
        yield device
    elif is_card(subject):
        yield with_card(device, read_card(subject))
    else:
        child = Child(subject)
        try:
            yield with_subject(device, start(subject, child))
        finally:
            child.end()


def case_of(recipe: str, flags: Sequence[str], shape: str, device: Any) -> Case:
    """The case with stochastic rounding. flags: `name=value`; a card's flag holds unless it is given here

    Raises UsageError for a recipe without it, and DeviceUnavailable if the subject refuses the case.
    """
    card = getattr(device, "card", None)
    recipe = card.file.recipe if card else recipe
    axes = suite_of(recipe).file.axes
    if "sr" not in axes.get("rounding", ()) or "shape_representation" in axes:
        raise UsageError(f"{recipe} has no stochastic rounding of one tensor; choose per_tensor or per_token")
    given = {name: spell(values[0]) for name, values in card.file.flags.items()} if card else {}
    for flag in flags:
        name, _, value = flag.partition("=")
        given[name] = value
    given |= {"rounding": "sr"}
    variant = ",".join(f"{name}={value}" for name, value in given.items())
    case = find_case(f"{recipe}/{variant}/{shape}/normal/eager")
    if case.flags.get("rht") or case.flags.get("stage", "full") == "amax":
        raise UsageError(f"{case.data_id}: what is rotated, or not encoded, is not rounded at known places")
    if card:
        card.check([case])
    reason = incapable(case, device)
    if reason:
        raise DeviceUnavailable(reason)
    return case
