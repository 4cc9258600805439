"""The implementation to test, our kernels, a card or a subject, its case, and its codes for a tensor by direction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.dtypes import DTYPES
from harness.contract.interval import Interval
from harness.device.capability import incapable
from harness.device.device import Device
from harness.errors import DeviceUnavailable, LaunchError, UsageError
from harness.expected.expected import Expected, expect_on, fields_of, oracle_of
from harness.ground.command_lines import is_card
from harness.oracles import layout, nvfp4
from harness.random_bits.design import ONE
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.forms import CardForms
from harness.subjects.device import with_subject
from harness.subjects.process import Child
from harness.subjects.subject import start
from harness.suite.suite import find_case, suite_of
from harness.suite.wanted import pairs
from harness.text import spell
from harness.verify.judge import POISONS


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
    given |= {**pairs(flags), "rounding": "sr"}
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


LEAST = 0.5  # required share of the blocks that should have a scale of 1


@dataclass(frozen=True)
class Codes:
    """codes: (lines, length), of the transpose if columnwise; counted: mask of those in blocks with a scale of 1"""

    codes: np.ndarray
    counted: np.ndarray


class Sampler:
    """Rounds tensors. device: with our kernels, a card or a subject; card_forms: of its arrays"""

    def __init__(self, device: Any, case: Case):
        self.device, self.case = device, case
        card = getattr(device, "card", None)
        self.card_forms = card.forms(case) if card else CardForms(case, {}, frozenset())
        self._given: dict[str, np.ndarray] = {}

    @property
    def sides(self) -> tuple[str, ...]:
        outputs = str(self.case.flags.get("outputs", "both"))
        return tuple(layout.DIRECTIONS) if outputs == "both" else (outputs,)

    def round(self, x: np.ndarray, seed: int, offset: int) -> dict[str, Codes]:
        """The codes of each direction. Raises LaunchError or AccessError if the kernel fails."""
        case = replace(self.case, philox_seed=seed % (1 << 64), philox_offset=offset % (1 << 32))
        tensors = oracle_of(case.recipe).inputs(case, x=x.astype(DTYPES[str(case.flags.dtype)]))
        expected = self.card_forms.expected(Expected(tensors, fields_of(case), self._values(case, tensors), ()))
        program = self.device.prepare(case, self.device.targets[0], expected.inputs, expected.fields)
        outcome = program.run(POISONS[0], 0)
        if outcome.trespass:
            raise LaunchError(outcome.trespass)
        forms = self.card_forms.outputs(fields_of(case))
        written = {
            name: form.take(
                self.device.to_host(outcome.outputs[name], form.stored), np.zeros(form.field.shape, np.uint8)
            )
            for name, form in forms.items()
            if name.endswith(("_data", "_scale_inv"))
        }
        return {side: self._codes(side, written) for side in self.sides}

    def _values(self, case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs that the card is given as inputs; no random bit changes them."""
        if self.card_forms.given and not self._given:
            values = expect_on(case, tensors).values
            self._given = {
                name: value for name, value in values.items()
                if name in self.card_forms.given and not isinstance(value, Interval)
            }  # fmt: skip
        return self._given

    def _codes(self, side: str, written: dict[str, np.ndarray]) -> Codes:
        field = fields_of(self.case)[f"{side}_scale_inv"]
        codes = nvfp4.unpack(written[f"{side}_data"])
        order = "swizzled" if field.swizzled else "compact"
        scales = layout.gather(written[f"{side}_scale_inv"], field.valid, order)
        right = scales[nvfp4.BLOCK :, 1:] == ONE
        if right.mean() < LEAST:
            raise LaunchError(
                f"only {int(right.sum())} of {right.size} blocks whose largest element is 6 have a scale of 1 in "
                f"{side}_scale_inv; verify the kernel with `harness verify` first"
            )
        counted = np.repeat(scales == ONE, nvfp4.BLOCK, axis=1)
        counted[: nvfp4.BLOCK], counted[:, : nvfp4.BLOCK] = False, False
        return Codes(codes, counted)
