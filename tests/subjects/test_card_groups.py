"""Cards of grouped recipes: one pointer for each tensor, to its part of an array, in memory of the device."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.device.emulator import EmulatorDevice
from harness.errors import SuiteError
from harness.expected.expected import expect, make_inputs, oracle_of
from harness.subjects.card.card import Card, read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.forms import CardForms, tensor_starts
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case
from harness.verdict import Verdict

SWIZZLE = "swizzle_grouped/default/0+128+0+256x144/normal/eager"
AMAX = "grouped/outputs=rowwise,stage=amax/128+0+256x192/normal/eager"
DIMS = "{array: first_dims}, {array: last_dims}"
TILES = f"[{{tensors: scale_inv}}, {{tensors: swizzled_scale_inv}}, {DIMS}]"
LARGEST = f"[{{struct: [tensors: input, tensors: rowwise_amax]}}, {DIMS}]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(__file__).with_name("group_tensors.cu"), tmp_path)
    return tmp_path


def card(recipe: str, kernel: str, arguments: str, more: str = "") -> Card:
    launch = f"  - kernel: {kernel}\n    grid: num_tensors\n    block: 128\n    arguments: {arguments}\n"
    Path("card.yaml").write_text(f"code: group_tensors.cu\nrecipe: {recipe}\n{more}launches:\n{launch}")
    return read_card("card.yaml")


def judged(case_id: str, card: Card):
    case = find_case(case_id)
    card.check([case])
    return verify_card(case, with_card(EmulatorDevice(), card))


@pytest.mark.parametrize(
    ("case_id", "kernel", "arguments"), [(SWIZZLE, "tiles_of_each", TILES), (AMAX, "amax_of_each", LARGEST)]
)
def test_pointers_to_each_tensor_of_inputs_and_outputs(case_id: str, kernel: str, arguments: str):
    result = judged(case_id, card(case_id.partition("/")[0], kernel, arguments))
    assert (result.verdict, result.reason) == (Verdict.PASS, ""), result.story
    fields = expect(find_case(case_id)).fields
    assert result.bytes_compared == 3 * sum(field.nbytes for field in fields.values())


def test_tensors_that_are_taken_for_each_other_are_wrong_bytes():
    arguments = TILES.replace("first_dims}, {array: last_dims", "last_dims}, {array: first_dims")
    assert judged(SWIZZLE, card("swizzle_grouped", "tiles_of_each", arguments)).verdict is not Verdict.PASS


def test_parts_begin_as_the_card_keeps_the_array():
    """Without padding a tensor's scales are fewer, and so begin elsewhere."""
    case = find_case("grouped/outputs=rowwise,stage=encode/128+0+256x144/normal/eager")
    inputs = make_inputs(case)
    padded = tensor_starts(CardForms(case, {}, frozenset()), inputs)
    Path("card.yaml").write_text(
        "code: group_tensors.cu\nrecipe: grouped\narrays: {rowwise_scale_inv: {padding: absent}}\nlaunches: "
        "[{kernel: amax_of_each}]\n"
    )
    absent = read_card("card.yaml").tensor_starts(case)
    assert padded["rowwise_scale_inv"] == (0, 128 * 12, 128 * 12)
    assert absent["rowwise_scale_inv"] == (0, 128 * 9, 128 * 9)
    assert absent["rowwise_data"] == padded["rowwise_data"] == (0, 128 * 72, 128 * 72)


@pytest.mark.parametrize(
    "case_id",
    [
        SWIZZLE,
        "swizzle_grouped/direction=columnwise,to=compact/0+128+0+256x144/normal/eager",
        AMAX,
        "grouped/stage=encode/128+0+256x192/normal/eager",
        "grouped/recipe=row_scaled,stage=encode/128+0+256x192/normal/eager",
        "gemm_grouped/default/256+0+128x128x192/normal/eager",
    ],
)
def test_every_array_that_the_oracle_divides_has_a_pointer_to_each_tensor(case_id: str):
    case = find_case(case_id)
    inputs = make_inputs(case)
    starts = tensor_starts(CardForms(case, {}, frozenset()), inputs)
    outputs = {name for name, field in expect(case).fields.items() if field.parts}
    assert outputs <= set(starts) <= outputs | set(inputs)
    assert not {"first_dims", "last_dims", "tensor_offsets"} & set(starts)
    for g in range(len(case.problem.tensors)):
        divided = oracle_of(case.recipe).inputs_of(case, inputs, g)
        assert {*divided} | outputs == {*starts}
        for name, part in divided.items():
            flat = np.ascontiguousarray(inputs[name]).reshape(-1).view(np.uint8)
            begin = starts[name][g]
            assert flat[begin : begin + part.nbytes].tobytes() == part.tobytes(), name


@pytest.mark.parametrize(("amax", "divided"), [("shared", set()), ("rowwise", {"rowwise_amax"})])
def test_one_amax_for_all_tensors_is_not_divided(amax: str, divided: set[str]):
    case = find_case(f"grouped/stage=encode,amax={amax}/128+0+256x192/normal/eager")
    starts = tensor_starts(CardForms(case, {}, frozenset()), make_inputs(case))
    assert {name for name in starts if name.endswith("amax")} == divided


@pytest.mark.parametrize(
    ("recipe", "kernel", "arguments", "sentence"),
    [
        (
            "swizzle", "tiles_of_each", "[{tensors: scale_inv}, {array: swizzled_scale_inv}, {u64: 0}, {u64: 0}]",
            r"card.yaml:7: swizzle is of one tensor, and `tensors` points to each of a group; pass "
            r"`array: scale_inv`",
        ),
        (
            "swizzle_grouped", "tiles_of_each", TILES.replace("array: first_dims", "tensors: first_dims"),
            "'first_dims' has no part for each tensor; these have: ",
        ),
        (
            "swizzle_grouped", "tiles_of_each", TILES.replace("tensors: scale_inv", "tensors: scale_inb"),
            r"there is no array 'scale_inb' in swizzle_grouped.*; did you mean 'scale_inv'\?",
        ),
        (
            "swizzle_grouped", "tiles_of_each", TILES.replace("tensors: scale_inv", "tensors: scale_inv, offset: 4"),
            "offset goes with array",
        ),
        (
            "swizzle_grouped", "tiles_of_each", TILES.replace("tensors: scale_inv", "i32: 1"),
            r"argument 1 of 'tiles_of_each' is i32",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(recipe: str, kernel: str, arguments: str, sentence: str):
    case = find_case(SWIZZLE if recipe.endswith("grouped") else "swizzle/default/48x80/normal/eager")
    with pytest.raises(SuiteError, match=sentence):
        card(recipe, kernel, arguments).check([case])
