"""The arrays between two sides: what both declare of them, the bytes that were written, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.field import granularity_of
from harness.contract.interval import Interval
from harness.errors import SuiteError
from harness.expected.expected import Expected, fields_of, make_inputs
from harness.subjects.card.form import Form, is_codes, is_scales
from harness.subjects.card.forms import input_fields
from harness.subjects.card.schema import ArrayForm
from harness.subjects.convention import Convention
from harness.subjects.handshake.pair import Pair, Side
from harness.subjects.handshake.side import Given


@dataclass(frozen=True)
class Array:
    """One array of the interface: its name and its form on both sides."""

    source: str
    ours: Form
    theirs: Form

    @property
    def promised(self) -> np.ndarray:
        """Mask of the bytes, flat, that the producer promises and the consumer relies on."""
        return self.ours.promised & self.theirs.promised

    def value(self, written: np.ndarray, expected: np.ndarray | Interval) -> np.ndarray:
        """The written values, in the form of the consumer's recipe. expected: by the producer's recipe"""
        if isinstance(expected, Interval):
            return np.ascontiguousarray(written[: expected.shape[0]])
        value, wanted = self.ours.take(written, expected), self.theirs.field
        if is_scales(self.ours.field):
            plain = replace(self.theirs, said=ArrayForm()).swizzled
            value = Form("", self.ours.field, ArrayForm(layout="swizzled" if plain else "compact")).put(value)
        return value.reshape(wanted.shape)


def arrays_between(pair: Pair, producer: Case, consumer: Case) -> dict[str, Array]:
    """The interface, by the consumer's names. Raises SuiteError unless both sides agree on it."""
    written, read = fields_of(producer), input_fields(consumer, make_inputs(consumer))
    ours, theirs = pair.producer.forms(producer), pair.consumer.forms(consumer)
    found = {
        name: Array(source, ours.form(source, written[source]), theirs.form(name, read[name]))
        for name, source in pair.reads(producer, consumer).items()
    }
    forms = {name: (each.ours, each.theirs) for name, each in found.items()}
    _require_agreement(pair, (producer, consumer), forms)
    return found


def handed_over(arrays: Mapping[str, Array], written: Mapping[str, np.ndarray]) -> dict[str, Given]:
    """The arrays that the consumer is given, by its own names."""
    return {name: Given(written[each.source], each.promised, each.source) for name, each in arrays.items()}


def consumed(
    arrays: Mapping[str, Array], written: Mapping[str, np.ndarray], expected: Expected, consumer: Case
) -> dict[str, np.ndarray]:
    """The inputs for the consumer's oracles: its own, with the written arrays in place."""
    return make_inputs(consumer) | {
        name: each.value(written[each.source], expected.values[each.source]) for name, each in arrays.items()
    }


# A producer's promise → the demands that it satisfies, if there are more than the same word.
_ENOUGH = {
    "padding": {"written": ("written", "anything")},
    "masked": {"zero": ("zero", "anything")},
    "zeros": {each: (each, "any") for each in ("signed", "unsigned", "any")},
}


def _require_agreement(pair: Pair, cases: tuple[Case, Case], forms: Mapping[str, tuple[Form, Form]]) -> None:
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
    bound = _flag("e4m3_max", name, case)
    largest = case.flags.get(bound)
    if bound == "e4m3_max" and (largest is not None or side.role == "producer"):
        largest = case.e4m3_max
    if is_scales(form.field) or name.endswith("scale_inv"):
        yield "layout", "swizzled" if form.swizzled else "compact"
        yield "padding", said.padding
        yield "scale_format", case.scale_format
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
