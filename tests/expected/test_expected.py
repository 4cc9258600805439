"""What a case reads and must write: refused inputs, tensors without rows, shapes without tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import expect, make_inputs
from harness.expected.read_arrays import read_arrays
from harness.suite.suite import find_case, load_suites
from harness.verdict import Verdict
from harness.verify.verify import verify


@pytest.mark.parametrize("turned", [lambda x: np.asfortranarray(x), lambda x: np.repeat(x, 2, axis=1)[:, ::2]])
def test_an_input_with_other_strides_is_refused(turned):
    case = find_case("per_tensor/default/48x80/normal/eager")
    x = make_inputs(case)["input"]
    result = verify(case, EmulatorDevice(), inputs={"input": turned(x)})
    assert result.verdict is Verdict.SETUP_ERROR
    assert re.search(r"input is not C-contiguous: its strides are .*ascontiguousarray\(input\)", result.reason)


@pytest.mark.parametrize(
    "case_id",
    [
        "per_tensor/default/0x80/normal/eager",
        "per_tensor/rht=true,rounding=sr,scale_layout=swizzled/0x80/normal/eager",
        "row_scaled/outputs=both,scale_layout=swizzled/0x80/normal/eager",
        "local_1x64/default/0x64/normal/eager",
        "four_over_six/default/0x80/normal/eager",
        "four_over_six/outputs=rowwise,row_scaled=true/0x80/normal/eager",
        "per_token/default/0x80/normal/eager",
        "per_token/weight_2d=true,scale_layout=swizzled/0x80/normal/eager",
    ],
)
def test_a_tensor_without_rows_has_amaxes_of_0_and_no_bytes(case_id):
    found = expect(find_case(case_id))
    assert found.disagreement == "" and set(found.oracles) == {"numpy", "torch"}
    assert found.inputs["input"].shape[0] == 0
    for name, value in found.values.items():
        assert value.shape == found.fields[name].shape
        assert not value.any() if name.endswith("_amax") else value.size == 0, name


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
