"""Hypotheses that run the recipe's own oracle with other flags, or on other arrays than those the kernel read.

They serve recipes whose steps are not replayed here, a GEMM and four_over_six above all. A question explains a kernel
if its answer has every byte of the field that is wrong, or an interval around every value of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval, order
from harness.errors import ContractError
from harness.expected.expected import oracle_of
from harness.expected.formats import BLOCK, VALUES
from harness.suite.suite import suite_of
from harness.suite.suite_file import is_ours
from harness.text import spell
from harness.verify.diagnosis.decode_steps import operand
from harness.verify.diagnosis.evidence import FEW, OTHER_GRANULE, OTHER_TENSOR, Evidence, Hypothesis
from harness.verify.diagnosis.steps import E4M3_BOUNDS, Steps

_AMAXES = ("a_amax", "b_amax")
LARGEST = 1 << 20  # in `Case.work`; beyond it, an oracle takes seconds per question

Arrays = Mapping[str, np.ndarray]
Variants = Iterable[tuple[Case, Arrays]]
Ask = Callable[[Case, Arrays], Variants]


class Question(NamedTuple):
    """A possible mistake, and the cases and arrays whose right answers a kernel with this mistake would write."""

    name: str
    explanation: str
    ask: Ask


def _flag(name: str, *values: object, without: str = "") -> Ask:
    """The case with another value of a flag. without: an array that it then does not read"""

    def cases(case: Case, tensors: Arrays) -> Variants:
        for value in values:
            if name in case.flags and case.flags[name] != value:
                yield _with_flags(case, **{name: value}), {k: v for k, v in tensors.items() if k != without}

    return cases


def _with_flags(case: Case, **flags: object) -> Case:
    return replace(case, flags=case.flags.replace(**flags), seed_of=case.seed_name)


def _array(names: tuple[str, ...], *changes: Callable[[np.ndarray], np.ndarray]) -> Ask:
    def cases(case: Case, tensors: Arrays) -> Variants:
        for name in names:
            if name in tensors:
                yield from ((case, {**tensors, name: change(tensors[name])}) for change in changes)

    return cases


def _any(*ways: Ask) -> Ask:
    return lambda case, tensors: (one for way in ways for one in way(case, tensors))


def _neighbours(array: np.ndarray) -> np.ndarray:
    """Swap entries, or lines, with their neighbours; a last one without a neighbour stays."""
    numbers = np.arange(len(array)) ^ 1
    return array[np.where(numbers < len(array), numbers, numbers ^ 1)]


def _first(array: np.ndarray) -> np.ndarray:
    return np.broadcast_to(array[:1], array.shape).copy()


def _nibbles(array: np.ndarray) -> np.ndarray:
    return array >> 4 | array << 4


def _transposed(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.T) if array.ndim == 2 and array.shape[0] == array.shape[1] else array


def _blocks_moved(case: Case, tensors: Arrays) -> Variants:
    """Take one operand's scales from nearby blocks; beyond K they are zero."""
    blocks = case.cols // 16
    for name in ("a_scale_inv", "b_scale_inv"):
        if name not in tensors or case.flags.get(name.replace("inv", "layout")) != "compact":
            continue
        for apart in (1, 2, 4):
            padded = np.pad(tensors[name][:, :blocks], ((0, 0), (0, 2 * apart)))
            moved = tensors[name].copy()
            moved[:, :blocks] = padded[:, np.arange(blocks) ^ apart]
            yield case, {**tensors, name: moved}


def _operand_for_other(case: Case, tensors: Arrays) -> Variants:
    for part in ("data", "scale_inv", "amax"):
        one, other = f"a_{part}", f"b_{part}"
        if one in tensors and other in tensors and tensors[one].shape == tensors[other].shape:
            yield case, {**tensors, one: tensors[other]}
            yield case, {**tensors, other: tensors[one]}


def _read_as_e4m3(case: Case, tensors: Arrays) -> Variants:
    """Take bytes of ue5m3 for e4m3, of both operands or one; or for 2^8 times that.

    2^8 is the greatest value of ue5m3 over that of e4m3, so a kernel in units of the greatest has that factor.
    """
    names = [name for name in "ab" if f"{name}_scale_inv" in tensors]
    if case.scale_format != "ue5m3" or not names or not case.is_gemm:
        return
    for times, chosen in itertools.product((1, 256), dict.fromkeys((tuple(names), *names))):
        changed = dict(tensors)
        for name in chosen:
            changed |= _as_e4m3(case, tensors, name, times)
        yield case, changed


def _as_e4m3(case: Case, tensors: Arrays, name: str, times: int) -> Arrays:
    """An operand in ue5m3 with the values of its bytes in e4m3, each of which ue5m3 has, but for the sign.

    That is given to the block's codes.
    """
    values, kept = np.abs(VALUES["e4m3"]) * times, VALUES["ue5m3"]
    byte = np.where(np.isnan(values), 0xFF, np.searchsorted(kept[:0xFF], values)).astype(np.uint8)
    negative = np.repeat(operand(case, tensors, name)[1] >= 0x80, BLOCK // 2, axis=1)
    data = tensors[f"{name}_data"] ^ (negative * np.uint8(0x88))
    return {f"{name}_scale_inv": byte[tensors[f"{name}_scale_inv"]], f"{name}_data": data}


def _without_amaxes(case: Case, tensors: Arrays) -> Variants:
    if all(name in tensors for name in _AMAXES):
        yield case, {**tensors, **{name: np.ones_like(tensors[name]) for name in _AMAXES}}


def _any_order(case: Case, tensors: Arrays) -> Variants:
    """The sums of the recipe whose contract leaves their order open."""
    recipe = getattr(oracle_of(case.recipe), "ANY_ORDER", "")
    if recipe:
        defaults = suite_of(recipe).defaults
        flags = defaults.replace(**{name: value for name, value in case.flags.items() if name in defaults})
        yield replace(case, recipe=recipe, flags=flags, seed_of=case.seed_name), tensors


QUESTIONS = (
    Question("alpha ignored", "the values are those of alpha = 1", _flag("alpha", 1)),
    Question("beta ignored", "the values are those of beta = 1, or of 0",
             _any(_flag("beta", 1), _flag("beta", 0, without="c"))),
    Question("bias ignored", "the values are those without a bias", _flag("bias", False, without="bias")),
    Question("C ignored", "the values are those of an output that was overwritten",
             _flag("accumulate", False, without="c")),
    Question("e4m3_max mixed up", "the bytes fit another e4m3_max",
             _any(*(_flag(f"{of}e4m3_max", *E4M3_BOUNDS) for of in ("", "a_", "b_")))),
    Question("compact and swizzled mixed up", "the scale bytes were read in the other layout",
             _any(*(_flag(f"{of}_scale_layout", "compact", "swizzled") for of in "ab"))),
    Question("mae and mse mixed up", "the other error chooses these scales", _flag("error", "mae", "mse")),
    Question("error_math mixed up", "the error in the other arithmetic chooses these scales",
             _flag("error_math", "exact", "fp16")),
    Question("scales read as e4m3", "bytes of ue5m3 were taken for e4m3", _read_as_e4m3),
    Question("scales left out", "the values are those of an operand whose scales are all 1",
             _array(("a_scale_inv", "b_scale_inv"), lambda scales: np.full_like(scales, 0x38))),
    Question("amaxes left out", "the values are those of amaxes that are all 1",
             _any(_array(_AMAXES, np.ones_like), _without_amaxes)),
    Question("amax factor of another line", "an amax of A or B is that of the neighbouring line, or of the first",
             _array(_AMAXES, _neighbours, _first)),
    Question("bias or C of another place", "the bias of another column, or C of the transposed place, was added",
             _any(_array(("bias",), _neighbours, _first), _array(("c",), _transposed, _first))),
    Question("nibble swap", "the two codes of a byte changed places", _array(("a_data", "b_data"), _nibbles)),
    Question("scale of another block", "an operand's scales are those of blocks near by", _blocks_moved),
    Question("A and B mixed up", "a part of one operand was taken for that of the other", _operand_for_other),
)  # fmt: skip


def _other_flags(e: Evidence) -> str:
    """A flag of a user's recipe and the value whose bytes these are; ours have questions by name, above."""
    if is_ours(e.case.recipe) or not _worth_asking(e):
        return ""
    for name, values in suite_of(e.case.recipe).file.axes.items():
        for case, tensors in _flag(name, *values)(e.case, e.tensors):
            if _explains(e, case, tensors):
                return f"the bytes are those of {name}={spell(case.flags[name])}"
    return ""


def hypotheses() -> list[Hypothesis]:
    """A hypothesis for each question, then for amaxes of other granules and for arrays of the group's other tensors."""
    questions = [(*cause, lambda e, ask=ask: ask(e.case, e.tensors)) for *cause, ask in QUESTIONS]
    questions += [(*OTHER_GRANULE, _other_granules), (*OTHER_TENSOR, _mixed)]
    asked = [Hypothesis(name, explanation, _holds_for(ask)) for name, explanation, ask in questions]
    return [*asked, Hypothesis("another value of a flag", "", _other_flags)]


def patterns() -> list[Hypothesis]:
    """Patterns that say that only a rounding is wrong, and not which: another order of the sums, another product."""
    explanation = "within what rounding can do to the sums, all values are right"
    return [Hypothesis("roundings of the sums", explanation, _holds_for(lambda e: _any_order(e.case, e.tensors)))]


def _holds_for(ask: Callable[[Evidence], Variants]) -> Callable[[Evidence], bool]:
    return lambda e: _worth_asking(e) and any(_explains(e, *question) for question in ask(e))


def _worth_asking(e: Evidence) -> bool:
    return (
        e.case.work <= LARGEST
        and bool((e.wrong & e.valued).any())
        and (e.case.is_gemm or e.steps is None or bool(e.others))
    )


def _mixed(e: Evidence) -> Iterator[tuple[Case, Arrays]]:
    """Yield the case with each array of each other tensor in place of its own, and with that tensor's computed amax."""
    for other in e.others:
        for name, array in other.items():
            if name in e.tensors and array.shape == e.tensors[name].shape:
                yield e.case, {**e.tensors, name: array}
        if isinstance(e.steps, Steps) and f"{e.side}_amax" in e.expected and "input" in other:
            amax = e.steps.amax(other["input"])
            right = {name: array for name, array in e.expected.items() if name.endswith("amax")}
            if amax.shape == right[f"{e.side}_amax"].shape:
                yield _with_flags(e.case, stage="encode"), {**e.tensors, **right, f"{e.side}_amax": amax}


def _other_granules(e: Evidence) -> Iterator[tuple[Case, Arrays]]:
    """Yield the encode stage alone, with right amaxes that belong to another granule."""
    if "stage" not in e.case.flags:
        return
    encoding = _with_flags(e.case, stage="encode")
    names = [f"{side}_amax" for side in ("rowwise", "columnwise") if f"{side}_data" in e.fields]
    right = {name: e.tensors.get(name, e.expected.get(name)) for name in names}
    for name, amax in right.items():
        if amax is not None and amax.size > 1:
            for change in (_neighbours, _first):
                yield encoding, {**e.tensors, **right, name: change(amax)}


def _explains(e: Evidence, case: Case, tensors: Arrays) -> bool:
    """Whether the oracle's answer for this case and these arrays equals the actual array."""
    try:
        with np.errstate(all="ignore"):
            answer = oracle_of(case.recipe).numpy_oracle(case, dict(tensors)).get(e.root)
    except (ContractError, KeyError, ValueError, IndexError):
        return False
    actual = e.actual_of(e.root)
    if answer is None or answer.dtype.name != actual.dtype.name or answer.shape != actual.shape:
        return False
    if isinstance(answer, Interval):
        # Where exact bytes are expected, a few wrong entries may be inside an interval by chance.
        enough = e.root in e.intervals or np.count_nonzero(e.wrong) >= FEW
        return enough and bool((order(answer.nearest(actual)) == order(actual)).all())
    return answer.tobytes() == actual.tobytes()
