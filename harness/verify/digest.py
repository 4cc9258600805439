"""Digests of a case's outputs, to compare two machines byte for byte without copying them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.contract.field import Field
from harness.contract.interval import Demand, Interval
from harness.device.device import Device, Outcome
from harness.expected.expected import Expected

EXACT, ORDERED, BOUNDED = "exact", "ordered", "bounded"
LARGEST = 1 << 24  # bytes of outputs; larger ones are too large for the emulator, and are not copied from a GPU

# EXACT: a digest of the fields with exact bytes on every target. ORDERED or BOUNDED: a digest of the fields whose sums
# have no stated order on some target; ORDERED if this target's order is known, so that its bytes are exact, too.
Digests = dict[str, str]


def digests(device: Device, outcome: Outcome, expected: Expected, demanded: Expected) -> Digests:
    """`{"exact": 32 hex digits}`, with `ordered` or `bounded` for sums; empty for more than LARGEST bytes.

    expected: on any target; demanded: on the target that ran
    """
    if sum(field.nbytes for field in expected.fields.values()) > LARGEST:
        return {}
    kinds = {name: _kind(value, demanded.values[name]) for name, value in expected.values.items()}
    return {
        kind: digest(
            {
                name: device.to_host(outcome.outputs[name], field)
                for name, field in expected.fields.items()
                if kinds[name] == kind
            }
        )
        for kind in sorted(set(kinds.values()))
    }


def _kind(anywhere: Demand, here: Demand) -> str:
    if not isinstance(anywhere, Interval):
        return EXACT
    return BOUNDED if isinstance(here, Interval) else ORDERED


def of_each_field(device: Device, outputs: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, str]:
    """A digest of each field, by its name; empty for more than LARGEST bytes."""
    if sum(field.nbytes for field in fields.values()) > LARGEST:
        return {}
    return {name: digest({name: device.to_host(outputs[name], field)}) for name, field in fields.items()}


def digest(fields: Mapping[str, np.ndarray]) -> str:
    """The first half of the SHA-256 of every field's name and bytes, in the order of the names."""
    found = hashlib.sha256()
    for name in sorted(fields):
        found.update(f"{name} {fields[name].nbytes}\0".encode())
        found.update(np.ascontiguousarray(fields[name]).reshape(-1).view(np.uint8))
    return found.hexdigest()[:32]
