"""Digests of a case's outputs, to compare two machines byte for byte without copying them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.contract.field import Field
from harness.contract.interval import Interval
from harness.device.device import Device, Outcome
from harness.verify.expected import Expected

EXACT, BOUNDED = "exact", "bounded"
LARGEST = 1 << 24  # bytes of outputs; more is too large for the emulator, and not copied from a GPU

Digests = dict[
    str, str
]  # by EXACT and BOUNDED: of the fields of which every byte must be equal, and of those with an interval, if any


def digests(device: Device, outcome: Outcome, expected: Expected) -> Digests:
    """`{"exact": 32 hex digits}`, with `bounded` where the oracles leave room; nothing of more than LARGEST bytes."""
    if sum(field.nbytes for field in expected.fields.values()) > LARGEST:
        return {}
    kinds = {name: BOUNDED if isinstance(value, Interval) else EXACT for name, value in expected.values.items()}
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


def of_each_field(device: Device, outputs: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, str]:
    """A digest of each field, by its name; nothing of more than LARGEST bytes."""
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
