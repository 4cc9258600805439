"""The memory between two sides: the bytes that were written, and their values by the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.expected.expected import Expected, fields_of, make_inputs
from harness.subjects.card.form import Form, is_scales
from harness.subjects.card.forms import input_fields
from harness.subjects.card.schema import ArrayForm
from harness.subjects.handshake.declared import require_agreement
from harness.subjects.handshake.pair import Pair
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
    require_agreement(pair, (producer, consumer), forms)
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
