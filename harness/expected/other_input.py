"""Another input of a case for one of its runs: of the same shape, with smaller amaxes, and what is expected of it.

All runs of a case share a process, so what a kernel leaves in a `__device__` variable reaches the next run: an amax
that is never set back, an answer that is made once. Runs on one input never show it; a smaller amax does.

Each entry is divided by 8, 16 or 32, so that every amax is smaller, whatever it is taken over, and codes are others.
The NumPy oracle is asked, or torch for a case that is not small. Such a case is divided by 8 alone, and nobody is
asked, where the contract says what becomes of that (`harness.oracles.powers_of_two`). Before a kernel is called wrong
on it, torch is asked as well. What has nothing smaller, such as a tensor of zeros, has no other input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Demand, Interval
from harness.errors import ContractError
from harness.expected.expected import (
    Expected,
    expect_on,
    fields_of,
    high_precision,
    make_inputs,
    oracle_of,
    prepare,
    prepared,
)
from harness.expected.prepared import SOURCE, Prepared, Recent
from harness.expected.witness.objection import same_bytes
from harness.files import recipe_dir
from harness.oracles import powers_of_two
from harness.suite.stages import stages

SMALL = 1 << 16  # in `Case.work`; up to here the NumPy oracle takes milliseconds
WORDS = "a second input with a smaller amax at the same addresses"
_POWERS = 3, 5, 4
_FURTHER = 64  # a product takes no amaxes whose own product overflows, and these lie below 2^64
_INSTEAD_OF_INF = 1.0


@dataclass(frozen=True)
class Other(Expected):
    """The expectation for another input, by one oracle or as it follows from that for the case's own.

    doubt: asks torch as well, where it was not asked, and says how it disagrees; before a kernel is called wrong
    """

    doubt: Callable[[], str] = str


def other_expected(case: Case, expected: Expected, torch_device: str, given: bool = False) -> Other | None:
    """The expectation of another input, or None if there is no other. Its fields are the case's.

    expected: of the case's own input; given: whether that is not the input which the case draws
    """
    if given or case.work > SMALL:
        followed = _FOLLOWED.of(case, expected, torch_device)
        if followed or given:
            return followed
    return _asked(replace(case, mode="eager"), torch_device)


def follow(case: Case, expected: Expected, torch_device: str = "cpu") -> Other | None:
    """The expectation of the inputs divided by 8, as it follows from the case's own; None if that is not certain."""
    if not _may_follow(case):
        return None
    recipes = {stage.name: stage.case for stage in stages(case)}

    def times(arrays: Mapping[str, Demand]) -> dict[str, Demand | None]:
        found = {}
        for name, value in arrays.items():
            of, _, own = name.rpartition(".")
            recipe = recipes[of or name if "" not in recipes else ""].recipe
            found[name] = powers_of_two.times(value, powers_of_two.powers(recipe, own))
        return found

    inputs, values = times(expected.inputs), times(expected.values)
    if any(value is None for value in (*inputs.values(), *values.values())):
        return None
    exact = not any(isinstance(value, Interval) for value in values.values())  # an interval here lacks its sums
    doubt = _asks_torch(case, inputs, values, torch_device) if exact else str
    return Other(inputs, expected.fields, values, expected.oracles, doubt=doubt)


def _may_follow(case: Case) -> bool:
    """Whether an answer for smaller tensors may follow from the contract; `follow` asks their entries, too."""
    return recipe_dir(case.recipe) is None and all(powers_of_two.follows(stage.case) for stage in stages(case))


def prepare_ahead(case: Case, numpy_largest: int) -> Prepared:
    """`prepare`, with the other input of a large case of which nothing follows, because it takes as long to make."""
    made = prepare(case, numpy_largest)
    if made.wrong or case.work <= SMALL or _may_follow(case):
        return made
    return replace(made, other=other_inputs(case))


class _Followed:
    """What followed last, for the next mode of the same case: in a bench, which times them one after the other."""

    def __init__(self) -> None:
        self._last: tuple[Expected, str, Other | None] | None = None

    def of(self, case: Case, expected: Expected, torch_device: str) -> Other | None:
        if self._last and self._last[0] is expected and self._last[1] == torch_device:
            return self._last[2]
        self._last = None  # before as much memory is taken again
        found = follow(case, expected, torch_device)
        if SOURCE.recent > 1:
            self._last = expected, torch_device, found
        return found


_FOLLOWED = _Followed()


@Recent
def _asked(case: Case, torch_device: str) -> Other | None:
    made = prepared(case)
    inputs = made.other if made and made.other else other_inputs(case)
    if _same(inputs, make_inputs(case)):
        return None
    if case.work > SMALL:
        found = expect_on(case, inputs, torch_device, numpy_largest=0)
        return Other(found.inputs, found.fields, found.values, found.oracles, found.disagreement)
    values = dict(oracle_of(case.recipe).numpy_oracle(case, inputs))
    bounds = {name: value.bounds if isinstance(value, Interval) else value for name, value in values.items()}
    doubt = _asks_torch(case, inputs, values, torch_device)
    return Other(inputs, fields_of(case), bounds, ("numpy",), doubt=doubt)


def _asks_torch(
    case: Case, inputs: dict[str, np.ndarray], values: dict[str, Demand], torch_device: str
) -> Callable[[], str]:
    return lambda: expect_on(case, inputs, torch_device, case.work, values).disagreement


def other_inputs(case: Case) -> dict[str, np.ndarray]:
    """The arrays that kernels read, made of a smaller tensor; of another seed if the tensor changes none of them."""
    made = _of_smaller(case, case)
    if _same(made, make_inputs(case)):
        return _of_smaller(case, replace(case, seed_of=f"{case.seed_name}/other"))
    return made


def _of_smaller(case: Case, drawn: Case) -> dict[str, np.ndarray]:
    tensors = {name: smaller(x) for name, x in high_precision(drawn).items()}
    try:
        return dict(oracle_of(case.recipe).inputs(drawn, **tensors))
    except ContractError:  # infinite amaxes are taken, and the largest finite ones in their place are not
        further = {name: _divided(x, [_FURTHER]) for name, x in tensors.items()}
        return dict(oracle_of(case.recipe).inputs(drawn, **further))


def smaller(x: np.ndarray) -> np.ndarray:
    """The tensor with every entry divided by 8, 16 or 32, and 1 in place of inf before that. NaN stays: no amax is NaN.

    So each amax is smaller, also of 16 values that are rotated: their largest is at least a quarter of their norm, and
    after a division by 8 at most half of that.
    """
    divided = powers_of_two.divided(x, *_POWERS)
    if divided is not None:
        return divided
    return _divided(x, _POWERS)


def _divided(x: np.ndarray, powers: Sequence[int]) -> np.ndarray:
    with np.errstate(all="ignore"):
        values = x.astype(np.float32)
        values = np.where(np.isinf(values), np.copysign(np.float32(_INSTEAD_OF_INF), values), values)
        by = np.resize(np.exp2(np.float32(powers)), x.size).reshape(x.shape)
        return (values / by).astype(x.dtype)


def _same(one: Mapping[str, np.ndarray], another: Mapping[str, np.ndarray]) -> bool:
    return all(same_bytes(array, another[name]) for name, array in one.items())
