"""What a case reads and must write: refused inputs, tensors without rows, shapes without tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Interval
from harness.device.emulator import EmulatorDevice
from harness.expected import torch_calls
from harness.expected.expected import _disagreement, expect, expect_on, make_inputs
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


@pytest.mark.sweep
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


# What the oracles disagree on


def spoil(array: np.ndarray, byte: int) -> np.ndarray:
    """A copy with one bit of one byte turned."""
    copy = np.array(array)
    copy.reshape(-1).view(np.uint8)[byte] ^= 1
    return copy


@pytest.fixture
def torch_answers(monkeypatch: pytest.MonkeyPatch):
    """Change the answer of the torch oracle, given as a function of all fields."""
    ask = torch_calls.ask_torch

    def change(changed):
        monkeypatch.setattr(torch_calls, "ask_torch", lambda *given, **more: changed(dict(ask(*given, **more))))

    return change


BOTH = find_case("per_tensor/default/16x32/normal/eager")


@pytest.mark.parametrize("name", sorted(expect(BOTH).fields))
@pytest.mark.parametrize("byte", [0, -1])
def test_one_byte_at_either_end_of_any_field_is_a_disagreement(torch_answers, name: str, byte: int):
    inputs = make_inputs(BOTH)
    torch_answers(lambda fields: fields | {name: spoil(fields[name], byte)})
    found = expect_on(BOTH, inputs)
    field = found.fields[name]
    at = byte % field.nbytes
    entry = tuple(int(i) for i in np.unravel_index(at // np.dtype(field.dtype).itemsize, field.shape))
    assert found.disagreement.startswith(f"the oracles disagree on 1 bytes of {name}, first at byte {at}: entry ")
    assert found.differing == (name, entry)


def test_of_several_fields_the_earliest_in_the_dataflow_is_told(torch_answers):
    torch_answers(lambda fields: {name: spoil(array, -1) for name, array in fields.items()})
    found = expect_on(BOTH, make_inputs(BOTH))
    assert found.differing[0] == next(name for name in found.fields if name.endswith("amax"))


@pytest.mark.parametrize("end", ["low", "high", "ordered", "sums", "sizes"])
@pytest.mark.parametrize("entry", [0, -1])
def test_one_entry_at_either_end_of_an_interval_is_a_disagreement(torch_answers, end: str, entry: int):
    case = find_case("gemm/dtype=fp32/16x32x16/normal/eager")

    def changed(fields):
        interval = fields["output"]
        array = np.array(getattr(interval, end))
        array.reshape(-1)[entry] = np.nextafter(array.reshape(-1)[entry], array.dtype.type(np.inf))
        if end in ("sums", "sizes"):
            array.reshape(-1)[entry] *= 1.5
        return {"output": replace(interval, **{end: array})}

    inputs = make_inputs(case)
    assert expect_on(case, inputs).disagreement == ""
    torch_answers(changed)
    found = expect_on(case, inputs)
    at = [0, 0] if entry == 0 else [15, 15]
    assert found.disagreement.startswith("the oracles disagree on output: 1 ")
    assert found.disagreement.endswith(f"first at {at}")


@pytest.mark.parametrize("name", ["dw.output", "dy.bias"])
def test_a_field_behind_an_interval_is_compared(name: str):
    own, sums = np.ones((2, 3), np.float32), np.ones((2, 3))
    answer = {"dw.output": Interval(own, own, sums, sums), "dx.output": Interval(own, own, sums, sums), "dy.bias": own}
    fields = dict.fromkeys(answer, Field((2, 3), "float32"))
    for order in (answer, dict(reversed(answer.items()))):
        assert _disagreement(order, answer, fields) == ("", ("", None))
        wrong = spoil(own, -1)
        other = wrong if name == "dy.bias" else Interval(own, wrong, sums, sums)
        assert _disagreement(order, answer | {name: other}, fields)[1][0] == name
