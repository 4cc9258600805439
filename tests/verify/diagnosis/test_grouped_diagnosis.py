"""A mismatch in a group names the tensor and then tells the dense story of that tensor; a trace shows one tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from grouped_toy import Toy

from harness.contract.case import Case, Flags
from harness.contract.problem import Grouped
from harness.errors import UsageError
from harness.expected.expected import Expected, expect
from harness.oracles import grouped, per_tensor
from harness.suite.suite import suite_of
from harness.verify.diagnosis.mismatch import story_of
from harness.verify.diagnosis.trace import trace

SHAPE = "128+0+256+128x128"
POISONS = (0xA5, 0x5A)
Edit = Callable[[dict[str, np.ndarray], int], None]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    return Toy(tmp_path, monkeypatch)


def written(case: Case, edit: Edit) -> tuple[Expected, list[dict[str, np.ndarray]]]:
    """What the case demands, and two runs of a kernel that wrote it after `edit(arrays, poison)`."""
    expected = expect(case)
    runs = [{name: array.copy() for name, array in expected.values.items()} for _ in POISONS]
    for run, poison in zip(runs, POISONS, strict=True):
        edit(run, poison)
    return expected, runs


def told(case: Case, edit: Edit) -> tuple[str, tuple[str, ...]]:
    expected, runs = written(case, edit)
    story = story_of(case, "sm_90a", expected, runs, POISONS)
    text = str(story)
    assert len(text.splitlines()) <= 40
    assert all(len(line) <= 110 or case.id in line for line in text.splitlines())
    return text, story.trace


@pytest.mark.slow
@pytest.mark.parametrize("side", ["rowwise", "columnwise"])
@pytest.mark.parametrize("flags", [{}, {"scale_layout": "swizzled"}, {"rounding": "sr"}, {"stage": "encode"}], ids=str)
def test_a_wrong_code_is_told_as_that_of_its_tensor(toy: Toy, side: str, flags: dict[str, str]):
    case = toy.case(SHAPE, **{"outputs": "both", "stage": "full", **flags})
    expected = expect(case)
    field = expected.fields[f"{side}_data"]

    def edit(run, poison):
        field.part(run[f"{side}_data"], 2)[33, 21] ^= 1

    text, options = told(case, edit)
    at = "42,33" if side == "columnwise" else "33,42"
    assert f"{side}_data uint8 ({512 * 128 // 2},): 1 of {512 * 128 // 2} entries differ" in text
    assert "tensor    2 of 4, 256x128; the first is 0\nfirst     [33, 21], from input [" in text
    x = expected.inputs["input"][128 * 128 : 384 * 128].reshape(256, 128)
    sixteen = x[32:48, 33] if side == "columnwise" else x[33, 32:48]
    assert all(f"{float(value):.5g}" in text for value in sixteen)
    assert options == ("--tensor", "2", "--field", f"{side}_data", "--at", at)
    assert "cause     not known (one code off)" in text or flags == {"rounding": "sr"}


def test_of_several_wrong_tensors_the_first_of_the_earliest_field_is_told(toy: Toy):
    case = toy.case(SHAPE, outputs="both", stage="full")
    fields = expect(case).fields

    def edit(run, poison):
        fields["rowwise_data"].part(run["rowwise_data"], 0)[0, 0] ^= 1
        fields["rowwise_scale_inv"].part(run["rowwise_scale_inv"], 3)[5, 6] += 1

    text, _ = told(case, edit)
    assert "field     rowwise_scale_inv" in text and "also      rowwise_data" in text
    assert "tensor    3 of 4, 128x128" in text and "[5, 6], from input [5, 96]" in text
    assert "1-ulp scale" in text


def test_padding_of_a_tensor_in_the_middle(toy: Toy):
    case = toy.case("3*48x80", shape_representation="same_both_dims", outputs="both", stage="full")
    fields = expect(case).fields

    def edit(run, poison):
        fields["rowwise_scale_inv"].part(run["rowwise_scale_inv"], 1)[48, 0] = poison

    text, _ = told(case, edit)
    assert "all in the padding" in text and "tensor    1 of 3, 48x80" in text
    assert "first     [48, 0]\n" in text and "unwritten or stale" in text


def test_the_amax_of_an_empty_tensor(toy: Toy):
    case = toy.case(SHAPE, stage="amax")

    def edit(run, poison):
        run["rowwise_amax"][1] = 3

    text, options = told(case, edit)
    assert "tensor    1 of 4, 0x128" in text and "actual    0x40400000 = 3" in text
    assert "empty tensor: without elements it has amaxes of 0" in text
    assert options == ()


def test_random_bits_of_the_first_tensor_are_recognised(toy: Toy):
    case = toy.case("2*128x64", rounding="sr", stage="full")
    expected = expect(case)
    dense = case.part(1)
    x = expected.inputs["input"][128 * 64 :].reshape(128, 64)
    wrong = per_tensor.numpy_oracle(replace(dense, philox_offset=0), {"input": x})["rowwise_data"]

    def edit(run, poison):
        expected.fields["rowwise_data"].part(run["rowwise_data"], 1)[...] = wrong

    text, _ = told(case, edit)
    assert "tensor    1 of 2, 128x64" in text
    assert "sr bits of the first tensor" in text


def test_a_field_of_the_wrong_size_is_told_without_a_tensor(toy: Toy):
    case = toy.case(SHAPE, stage="full")
    text, options = told(case, lambda run, poison: run.update(rowwise_data=run["rowwise_data"][:-1].copy()))
    assert "shape is" in text and "tensor " not in text
    assert options == ("--field", "rowwise_data")


@pytest.mark.parametrize("flags", [{}, {"rounding": "sr"}, {"stage": "encode"}, {"scale_layout": "swizzled"}], ids=str)
@pytest.mark.parametrize("tensor", [0, 2, 3])
def test_a_trace_shows_one_tensor(toy: Toy, flags: dict[str, str], tensor: int):
    case = toy.case(SHAPE, **{"outputs": "both", "stage": "full", **flags})
    expected, (run, _) = written(case, lambda run, poison: None)
    text = trace(case, "columnwise_data", (37, 65), run, expected.inputs, tensor)
    rows = case.problem.tensors[tensor][0]
    assert f"tensor {tensor} of 4, {rows}x128: columnwise_data: block 2 of line 65, from input [37, 65]" in text
    assert "all agree on this block" in text
    expected.fields["columnwise_data"].part(run["columnwise_data"], tensor)[65, 18] ^= 1
    assert "first difference from the steps: kernel at 4" in trace(
        case, "columnwise_data", (37, 65), run, expected.inputs, tensor
    )


@pytest.mark.parametrize(
    ("tensor", "at", "sentence"),
    [
        (1, (0, 0), "tensor 1 of 4, 0x128, of toy_group/.* has no elements"),
        (4, (0, 0), "has no tensor 4; its 4 tensors count from 0"),
        (-1, (0, 0), "has no tensor -1"),
        (0, (128, 0), "element 128,0 is outside the 128x128 tensor of"),
    ],
)
def test_a_place_that_no_tensor_has(toy: Toy, tensor: int, at: tuple[int, int], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        trace(toy.case(SHAPE, stage="full"), "rowwise_data", at, tensor=tensor)


def test_a_dense_case_has_one_tensor(toy: Toy):
    with pytest.raises(UsageError, match="has one tensor; tensor 1 is one of a group"):
        trace(toy.case(SHAPE).part(0), tensor=1)


def test_what_came_out_of_an_activation_is_what_is_replayed():
    """By the real recipe, because the toy knows no activations."""
    flags = {
        "recipe": "per_tensor",
        "dtype": "bf16",
        "shape_representation": "varying_first_dim",
        "outputs": "both",
        "rht": False,
        "rounding": "rne",
        "scale_layout": "compact",
        "stage": "full",
        "activation": "dsilu",
        "dbias": True,
        **grouped.OWN_FLAGS,
        "amax": "each",
        "block": "block_1x16",
    }
    case = Case(
        "grouped",
        Flags(flags),
        Grouped(384, 64, ((128, 64), (0, 64), (256, 64))),
        dense_defaults=suite_of("grouped").dense_defaults,
    )
    expected = expect(case)
    x = grouped.inputs_of(case, expected.inputs, 2)["input"]
    assert not (x == expected.inputs["input"][128 * 64 :].reshape(256, 64)).all()

    def edit(run, poison):
        expected.fields["rowwise_data"].part(run["rowwise_data"], 2)[33, 3] ^= 1

    text, _ = told(case, edit)
    assert all(f"{float(value):.5g}" in text for value in x[33, :16])
    assert "all agree" in trace(case, "columnwise_data", (200, 9), None, expected.inputs, 2)

    text, options = told(case, lambda run, poison: run["dbias"].reshape(3, 64)[2].put(5, 1))
    assert "tensor    2 of 3, 256x64" in text and "first     [5], from input [0, 5]" in text
    assert options[-4:] == ("--field", "dbias", "--at", "0,5")
    assert "all agree" in trace(case, "dbias", (0, 5), None, expected.inputs, 2)
