"""Compare both sides' declarations of an array before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.contract.case import Case
from harness.contract.field import granularity_of
from harness.errors import SuiteError
from harness.oracles import nvfp4
from harness.subjects.card.form import Form, is_codes, is_scales
from harness.subjects.convention import Convention
from harness.subjects.handshake.pair import Pair, Side

# A producer's promise → the demands that it satisfies, if there are more than the same word.
_ENOUGH = {
    "padding": {"written": ("written", "anything")},
    "masked": {"zero": ("zero", "anything")},
    "zeros": {each: (each, "any") for each in ("signed", "unsigned", "any")},
}


def require_agreement(pair: Pair, cases: tuple[Case, Case], forms: Mapping[str, tuple[Form, Form]]) -> None:
    """Raise SuiteError for the first demand of the consumer that the producer does not promise.

    forms: of each array of the consumer, as the producer and as the consumer keep it
    """
    for name, (ours, theirs) in forms.items():
        promised = dict(_declared(pair.producer, cases[0], ours))
        for key, demanded in _declared(pair.consumer, cases[1], theirs):
            said = promised.get(key)
            if said is None or demanded in _ENOUGH.get(key, {}).get(said, (said,)):
                continue
            wheres = [
                side.where_declared(form.name, key, _flag(key, form.name, case))
                for side, form, case in ((pair.producer, ours, cases[0]), (pair.consumer, theirs, cases[1]))
            ]
            raise SuiteError(
                wheres[1],
                f"the consumer {pair.consumer.name} takes {name} with {key}: {demanded}, and the producer "
                f"{pair.producer.name} promises {ours.name} with {key}: {said} ({wheres[0]}); one of them has to "
                "change, before anything runs",
            )
        _require_shape(pair, cases, name, ours, theirs)


def _require_shape(pair: Pair, cases: tuple[Case, Case], name: str, ours: Form, theirs: Form) -> None:
    one, other = ours.stored, theirs.stored
    flat = len(one.shape) == 1 or len(other.shape) == 1  # arrays of groups are flat, with tensors back to back
    if one.dtype != other.dtype or one.size != other.size or not (flat or one.shape == other.shape):
        raise SuiteError(
            pair.document.where("reads", name),
            f"{ours.name} of {cases[0].data_id} is {one.dtype}{list(one.shape)}, and {name} of {cases[1].data_id} is "
            f"{other.dtype}{list(other.shape)}; a handshake is one array",
        )


def _declared(side: Side, case: Case, form: Form) -> Iterator[tuple[str, str]]:
    """A side's declarations of an array, by the keys of a card and the flags of a recipe."""
    said, name = form.said, form.name
    largest = case.flags.get(_flag("e4m3_max", name, case))
    if largest is None and side.role == "producer":
        largest = nvfp4.E4M3_MAX
    if is_scales(form.field) or name.endswith("scale_inv"):
        yield "layout", "swizzled" if form.swizzled else "compact"
        yield "padding", said.padding
    if name.endswith("amax"):
        yield "form", said.form
        yield "granularity", str(case.flags.get("granularity") or granularity_of(form.field.shape))
    if largest is not None and name.endswith(("scale_inv", "amax")):
        yield "e4m3_max", str(largest)
    if is_codes(name):
        yield "nibbles", said.nibbles
        declared = side.card is not None and Convention.ZERO_SIGN in side.card.conventions
        default = "any" if declared or side.role == "consumer" else "signed"
        yield "zeros", said.zeros or default
    if form.masked:
        yield "masked", said.masked


def _flag(key: str, name: str, case: Case) -> str:
    """The recipe's flag that corresponds to a card's key."""
    operand = f"{name[0]}_" if case.is_gemm and name[:2] in ("a_", "b_") else ""
    return {"e4m3_max": f"{operand}e4m3_max", "layout": f"{operand}scale_layout"}.get(key, key)
