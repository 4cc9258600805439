"""Comparison of arrays to the last byte, and the screen a mismatch is told on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from harness.contract.case import Case, Flags
from harness.contract.field import Field
from harness.contract.problem import Dense
from harness.errors import ContractError
from harness.expected.expected import Expected
from harness.expected.formats import E2M1_VALUES
from harness.oracles import dequantize, per_tensor, swizzle
from harness.suite.suite import suite_of
from harness.verify.diagnosis.difference import compact_index, compare, first_input, swizzled, unswizzled
from harness.verify.diagnosis.mismatch import decoded, story_of

BF16 = np.dtype(ml_dtypes.bfloat16)
SCALES = Field((128, 4), "uint8", valid=(48, 3), block=(1, 16))
FLAGS = dict(suite_of("per_tensor").defaults)


def scales() -> np.ndarray:
    array = np.zeros((128, 4), np.uint8)
    array[:48, :3] = np.arange(144).reshape(48, 3)
    return array


def changed(array: np.ndarray, *edits: tuple[tuple[int, ...], int]) -> np.ndarray:
    array = array.copy()
    for index, value in edits:
        array[index] = value
    return array


def test_equal_bytes_are_no_difference():
    assert compare("rowwise_scale_inv", SCALES, scales(), scales()) is None


def test_bytes():
    found = compare("s", SCALES, scales(), changed(scales(), ((40, 1), 250), ((47, 0), 251), ((5, 2), 252)))
    assert (found.kind, found.count, found.total) == ("bytes", 3, 512)
    assert found.index == found.compact == (5, 2)
    assert (found.expected, found.actual) == (b"\x11", b"\xfc")
    assert found.share == 3 / 512
    assert "3 of 512" in str(found)


def test_the_first_wrong_value_comes_before_padding():
    found = compare("s", SCALES, scales(), changed(scales(), ((0, 3), 1), ((7, 0), 250)))
    assert (found.kind, found.count, found.index) == ("bytes", 2, (7, 0))


def test_padding():
    found = compare("s", SCALES, scales(), changed(scales(), ((48, 0), 1)))
    assert (found.kind, found.count, found.index) == ("padding", 1, (48, 0))


def test_swizzled_fields_name_both_coordinates():
    field = Field((256, 8), "uint8", valid=(200, 7), swizzled=True, block=(1, 16))
    compact = np.zeros((256, 8), np.uint8)
    array = swizzled(compact)
    position = {}
    for r in range(256):
        for c in range(8):
            offset = ((r // 128) * 2 + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
            position[r, c] = divmod(offset, 8)
    for (r, c), index in position.items():
        assert compact_index(field, index) == (r, c)
    found = compare("s", field, array, changed(array, (position[199, 6], 9)))
    assert (found.kind, found.index, found.compact) == ("bytes", position[199, 6], (199, 6))
    assert compare("s", field, array, changed(array, (position[199, 7], 9))).kind == "padding"
    numbers = np.arange(2048).reshape(256, 8)
    assert (unswizzled(swizzled(numbers)) == numbers).all()
    assert all(swizzled(numbers)[index] == numbers[place] for place, index in position.items())


@pytest.mark.parametrize(
    "actual, kind",
    [
        (scales().astype(np.int8), "dtype"),
        (scales().reshape(64, 8), "shape"),
        (np.asfortranarray(scales()), "strides"),
        (np.repeat(scales(), 2, axis=1)[:, ::2], "strides"),
    ],
)
def test_layout_comes_before_bytes(actual, kind):
    found = compare("s", SCALES, scales(), actual)
    assert found.kind == kind and kind in str(found)


def test_an_oracle_that_breaks_its_own_field_is_an_error():
    with pytest.raises(ContractError, match="rowwise_scale_inv"):
        compare("rowwise_scale_inv", SCALES, scales()[:, :3], scales())


def test_a_nan_amax_never_passes():
    field = Field((2,), "float32")
    nan = np.array([1, np.nan], np.float32)
    one = np.array([1, 1], np.float32)
    for expected, actual in ((nan, nan), (nan, one), (one, nan)):
        assert compare("rowwise_amax", field, expected, actual).index == (1,)
    assert compare("output", field, nan, nan) is None
    other = nan.copy()
    other.view(np.uint32)[1] ^= 1
    assert compare("output", field, nan, other).count == 1


def test_zeros_of_two_signs_differ():
    field = Field((1, 2), "bfloat16")
    found = compare("output", field, np.array([[1, 0]], BF16), np.array([[1, -0.0]], BF16))
    assert found.index == (0, 1) and found.actual == b"\x00\x80"


def test_the_input_behind_an_entry():
    assert first_input(Field((32, 8), "uint8", block=(1, 2)), (3, 5)) == (3, 10)
    assert first_input(Field((32, 8), "uint8", block=(1, 2), transposed=True), (3, 5)) == (10, 3)
    assert first_input(Field((128, 4), "uint8", valid=(32, 2), block=(16, 16), transposed=True), (19, 1)) == (16, 19)
    assert first_input(Field((1,), "float32", block=(32, 16)), (0,)) == (0, 0)
    assert first_input(Field((32,), "float32", block=(1, 16)), (7,)) == (7, 0)


def test_decoding_of_bytes():
    assert decoded("rowwise_data", np.uint8(0xA5)) == "0xA5 = e2m1 3, -1"
    assert decoded("rowwise_scale_inv", np.uint8(0x39)) == "0x39 = e4m3 1.125"
    assert decoded("rowwise_amax", np.float32(1.5)) == "0x3FC00000 = 1.5"
    assert decoded("output", np.array(-2, BF16)[()]) == "0xC000 = -2"


def normal(rows: int, cols: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((rows, cols)).astype(BF16)


def told_of(edit, **flags) -> tuple[str, tuple[str, ...]]:
    """`told` of a case of per_tensor."""
    return told(per_tensor, Case("per_tensor", Flags({**FLAGS, **flags}), Dense(304, 272)), normal(304, 272), edit)


def told(module, case: Case, x: np.ndarray, edit, poisons=(0xA5, 0x5A)) -> tuple[str, tuple[str, ...]]:
    """The screen of arrays that are the oracle's after `edit(arrays, poison)`, a run for each poison; its trace."""
    tensors = module.inputs(case, x)
    values = module.numpy_oracle(case, tensors)
    runs = []
    for poison in poisons:
        run = {name: array.copy() for name, array in values.items()}
        edit(run, poison)
        runs.append(run)
    story = story_of(case, "sm_90a", Expected(tensors, module.outputs(case), values, ("numpy",)), runs, poisons)
    text = str(story)
    assert len(text.splitlines()) <= 40
    assert all(len(line) <= 110 or case.id in line for line in text.splitlines())
    return text, story.trace


@pytest.mark.parametrize("side, nibble", [("rowwise", 1), ("columnwise", 16)])
def test_the_screen_of_a_wrong_code(side, nibble):
    case = Case("per_tensor", Flags(FLAGS), Dense(304, 272))
    x = normal(304, 272)

    def edit(run, poison):
        run[f"{side}_data"][33, 21] ^= nibble

    text, options = told(per_tensor, case, x, edit)
    element = 42 + (nibble == 16)
    at = f"{element},33" if side == "columnwise" else f"33,{element}"
    right = per_tensor.numpy_oracle(case, {"input": x})[f"{side}_data"]
    assert f"{side}_data uint8 {right.shape}: 1 of {right.size} entries differ" in text
    assert "[33, 21], from input" in text
    assert decoded("data", right[33, 21]) in text and decoded("data", right[33, 21] ^ np.uint8(nibble)) in text
    inputs = x[32:48, 33] if side == "columnwise" else x[33, 32:48]
    assert all(f"{float(value):.5g}" in text for value in inputs)
    assert "block 2 of line 33" in text.replace("     ", " ")
    codes = [code for byte in right[33, 16:24] for code in (byte & 15, byte >> 4)]
    values = [f"{E2M1_VALUES[code]:g}" for code in codes]
    assert ["expected", *values] in [line.split() for line in text.splitlines()]
    assert "one code off" in text
    assert options == ("--field", f"{side}_data", "--at", at)


def test_the_screen_of_a_wrong_swizzled_scale_names_what_else_is_wrong():
    def edit(run, poison):
        run["rowwise_scale_inv"][1, 3] += 1
        run["rowwise_data"][0, 0] ^= 7
        run["columnwise_amax"][0] += 1

    text, _ = told_of(edit, scale_layout="swizzled", block="block_16x16", rounding="sr")
    assert "field     columnwise_amax" in text
    assert "also      rowwise_scale_inv" in text and "also      rowwise_data" in text


def test_the_screen_of_a_rotated_block():
    def edit(run, poison):
        run["columnwise_scale_inv"][1, 3] += 1

    text, _ = told_of(edit, rht=True, scale_layout="swizzled")
    assert "1-ulp scale" in text and "rotated" in text and "compact" in text and "e4m3" in text


def test_the_screen_of_unwritten_bytes():
    def edit(run, poison):
        run["columnwise_data"][256:] = poison

    text, _ = told_of(edit)
    assert "unwritten or stale" in text
    assert "[256, 0]" in text


def test_a_difference_in_a_later_run_alone_is_shown():
    def edit(run, poison):
        if poison == 0x5A:
            run["rowwise_data"][9, 9] ^= 1

    assert "differs between runs" in told_of(edit)[0]


def test_the_screen_of_a_wrong_shape_and_of_padding():
    def reshape(run, poison):
        run["rowwise_amax"] = np.zeros(304, np.float32)

    text, options = told_of(reshape)
    assert "shape is (304,), must be (1,)" in text and options == ("--field", "rowwise_amax")

    def pad(run, poison):
        run["rowwise_scale_inv"][300:, 18:] = 1

    text, _ = told_of(pad)
    assert "all in the padding" in text and "padding not zeroed" in text


def test_the_screens_of_the_other_recipes():
    flags = dict(suite_of("dequantize").defaults)

    def zero(run, poison):
        run["output"][run["output"] == 0] = 0

    for outputs, line in (("rowwise", "row"), ("columnwise", "column")):
        case = Case("dequantize", Flags({**flags, "outputs": outputs}), Dense(48, 80))
        text, options = told(dequantize, case, normal(48, 80), zero)
        assert "sign of zero dropped" in text and "factor" in text
        assert options[:3] == ("--field", "output", "--at")
        assert f" of {line} " in text
    case = Case("swizzle", Flags({"direction": "columnwise", "to": "swizzled"}), Dense(48, 80))

    def roll(run, poison):
        run["swizzled_scale_inv"][:] = np.roll(run["swizzled_scale_inv"], 16, axis=0)

    assert "wrong place" in told(swizzle, case, normal(48, 80), roll)[0]


def test_no_difference_says_so():
    case = Case("per_tensor", Flags(FLAGS), Dense(16, 16))
    assert told(per_tensor, case, normal(16, 16), lambda run, poison: None)[0].startswith("no byte differs")
