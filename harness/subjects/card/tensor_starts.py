"""The offsets at which each tensor of a group begins in the card's arrays that have a part for each tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import gemm_grouped, grouped, nvfp4
from harness.subjects.card.kept import Keeping
from harness.verify.expected import fields_of

Starts = Mapping[str, tuple[int, ...]]


def tensor_starts(keeping: Keeping, inputs: Mapping[str, np.ndarray]) -> Starts:
    """By array, the byte at which each tensor's part begins; none if the case is no group.

    inputs: in the contract's form. Extents and offsets have no parts: the device has one array of each.
    """
    case = keeping.case
    if not case.is_group:
        return {}
    fields = fields_of(case)
    known = {
        **{name: _of_fields(parts) for name, parts in _quantizer_inputs(case).items() if name in inputs},
        **(_of_products(case, inputs) if case.is_gemm else {}),
    }
    forms = {**keeping.inputs(inputs), **{name: keeping.form(name, field) for name, field in fields.items()}}
    return known | {name: _of_fields(form.kept.parts) for name, form in forms.items() if form.kept.parts}


def _of_fields(parts: Iterable[Field]) -> tuple[int, ...]:
    return (0, *accumulate(part.nbytes for part in parts))[:-1]


def _quantizer_inputs(case: Case) -> dict[str, tuple[Field, ...]]:
    if case.recipe != "grouped":
        return {}
    dtype = nvfp4.DTYPES[case.flags.dtype].name
    values = tuple(Field(extents, dtype) for extents in case.problem.tensors)
    return {"input": values, "act_input": values} | {
        name: field.parts for name, field in grouped.given_fields(case).items()
    }


def _of_products(case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    places = gemm_grouped.places(case)
    return {
        name: tuple(group[name].start * inputs[name][:1].nbytes for group in places)
        for name in places[0]
        if name in inputs
    }
