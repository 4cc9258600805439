"""Shapes of what a case reads, without its tensors: those of the tensors themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.contract.case import Case
from harness.suite.suite import find_case, load_suites
from harness.verify.expected import make_inputs
from harness.verify.read_arrays import read_arrays

SUITES = load_suites()


def small(suite) -> Iterator[Case]:
    """A case for each cover of flags, the first that is drawn at once."""
    seen = set()
    for name in suite.sets:
        for case in suite.cases(name):
            if str(case.flags) not in seen and max(case.elements, case.terms if case.is_gemm else 0) <= 1 << 16:
                seen.add(str(case.flags))
                yield case


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_shapes_are_those_of_the_tensors(suite):
    cases = list(small(suite))
    assert cases
    for case in cases:
        arrays = {name: (array.nbytes, array.dtype) for name, array in read_arrays(case).items()}
        assert arrays == {name: (array.nbytes, array.dtype) for name, array in make_inputs(case).items()}, case.id


def test_the_largest_case_takes_no_memory():
    (array,) = read_arrays(find_case("per_tensor/default/1048576x65536/normal/graph")).values()
    assert array.nbytes == 2 << 36 and array.strides == (0, 0)
