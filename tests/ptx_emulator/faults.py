"""Launch CUDA C++ under the sanitizer, and expect a fault."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import line_of, module

from ptx_emulator.counters import Counters
from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch


def run(source: str, *args, grid=1, block=64, arch="sm_90a", **options) -> Counters:
    return launch(module(source, arch), "k", (grid, 1, 1), (block, 1, 1), args, **options)


def fault(source: str, *args, kind: str, marker: str, **options) -> str:
    """The sentence of the expected fault, of this kind, at the line with this marker."""
    with pytest.raises(Fault) as caught:
        run(source, *args, **options)
    assert caught.value.kind == kind
    assert caught.value.where == line_of(source, marker)
    return caught.value.sentence


def words(count: int) -> np.ndarray:
    return np.zeros(count, np.uint32)
