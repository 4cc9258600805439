"""A kernel's codes for a tensor, by direction, in blocks with a scale of 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.errors import LaunchError
from harness.inputs.dtypes import DTYPES
from harness.oracles import layout, nvfp4
from harness.random_bits.design import ONE
from harness.subjects.card.kept import Keeping
from harness.verify.expected import Expected, expect_on, fields_of, oracle_of
from harness.verify.judge import POISONS

LEAST = 0.5  # required share of the blocks that should have a scale of 1


@dataclass(frozen=True)
class Codes:
    """codes: (lines, length), of the transpose if columnwise; counted: mask of those in blocks with a scale of 1"""

    codes: np.ndarray
    counted: np.ndarray


class Sampler:
    """Rounds tensors. device: with our kernels, a card or a subject; keeping: the card's"""

    def __init__(self, device: Any, case: Case):
        self.device, self.case = device, case
        card = getattr(device, "card", None)
        self.keeping = card.keeping(case) if card else Keeping(case, {}, frozenset())
        self._given: dict[str, np.ndarray] = {}

    @property
    def sides(self) -> tuple[str, ...]:
        outputs = str(self.case.flags.get("outputs", "both"))
        return tuple(layout.DIRECTIONS) if outputs == "both" else (outputs,)

    def round(self, x: np.ndarray, seed: int, offset: int) -> dict[str, Codes]:
        """The codes of each direction. Raises LaunchError or AccessError if the kernel fails."""
        case = replace(self.case, philox_seed=seed % (1 << 64), philox_offset=offset % (1 << 32))
        tensors = oracle_of(case.recipe).inputs(case, x=x.astype(DTYPES[str(case.flags.dtype)]))
        expected = self.keeping.expected(Expected(tensors, fields_of(case), self._values(case, tensors), ()))
        program = self.device.prepare(case, self.device.targets[0], expected.inputs, expected.fields)
        outcome = program.run(POISONS[0], 0)
        if outcome.trespass:
            raise LaunchError(outcome.trespass)
        forms = self.keeping.outputs(fields_of(case))
        written = {
            name: form.take(self.device.to_host(outcome.outputs[name], form.kept), np.zeros(form.field.shape, np.uint8))
            for name, form in forms.items()
            if name.endswith(("_data", "_scale_inv"))
        }
        return {side: self._codes(side, written) for side in self.sides}

    def _values(self, case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs that the card is given as inputs; no random bit changes them."""
        if self.keeping.given and not self._given:
            values = expect_on(case, tensors).values
            self._given = {
                name: value for name, value in values.items()
                if name in self.keeping.given and not isinstance(value, Interval)
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
