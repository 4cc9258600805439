"""Other bytes are explained where a declared convention makes them, and are a bug one step further."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from harness.contract.field import Field
from harness.expected.expected import expect
from harness.oracles import layout, nvfp4
from harness.subjects.audit import conventions, differing
from harness.subjects.audit.conventions import Convention, explain
from harness.suite.suite import find_case
from harness.verify.diagnosis.steps import Steps

ALL = frozenset(Convention)
REAL = "file:suites/data/minilm_sample.safetensors#ffn_down.input"
NORMAL = "per_tensor/default/128x256/normal/eager"


@cache
def expected(case_id):
    case = find_case(case_id)
    return case, expect(case)


def asked(case_id, written, declared=ALL):
    case, demanded = expected(case_id)
    return explain(case, demanded.inputs, demanded.values, written, declared)


def right(case_id):
    """A copy of the demanded arrays."""
    return {name: value.copy() for name, value in expected(case_id)[1].values.items()}


def done_otherwise(case_id, **steps):
    """What an implementation with other steps writes; a zero scale takes the place of one below `floor`."""
    floor = steps.pop("floor", 0)
    case, demanded = expected(case_id)
    written = right(case_id)
    x = np.asarray(demanded.inputs["input"])
    for side in ("rowwise", "columnwise"):
        own = replace(Steps.of(case, side), **steps)
        numbers = np.arange(len(written[f"{side}_data"]))
        made = own.encode(own.lines(x, numbers), numbers, own.amax(x))
        scale_inv, data = made.scale_inv, made.data
        if floor:
            scale_inv = np.maximum(scale_inv, np.uint8(floor))
            with np.errstate(all="ignore"):
                product = nvfp4.scaled(
                    made.values, own._multiplier(nvfp4.decode_e4m3(scale_inv), made.encode_scale, made.decode_scale)
                )
            data = nvfp4.pack(nvfp4.e2m1(product))
        written[f"{side}_data"] = data
        written[f"{side}_scale_inv"] = layout.arrange(scale_inv, case.flags.scale_layout)
    return written


def names(reasons):
    return [reason.partition(":")[0] for reason in reasons]


def test_the_right_bytes_need_no_reason():
    assert asked(NORMAL, right(NORMAL)) == ()


@pytest.mark.parametrize(
    "case_id, steps, convention",
    [
        ("per_tensor/default/256x256/ties/eager", {"multiplier": "direct"}, Convention.DIVIDER_ORDER),
        ("per_tensor/scale_layout=swizzled/256x256/ties/eager", {"multiplier": "direct"}, Convention.DIVIDER_ORDER),
        (f"per_tensor/default/256x128/{REAL}/eager", {"scale_form": "divide"}, Convention.SCALE_ORDER),
        (f"per_tensor/block=block_16x16/256x128/{REAL}/eager", {"scale_form": "divide"}, Convention.SCALE_ORDER),
        ("per_tensor/default/128x256/zero_blocks/eager", {"floor": 0x08}, Convention.SCALE_FLOOR),
        ("per_tensor/rounding=sr/128x128/normal/eager", {"seed": 1}, Convention.RANDOM_BITS),
    ],
)  # fmt: skip
def test_another_implementation_is_explained_by_what_it_does(case_id, steps, convention):
    written = done_otherwise(case_id, **steps)
    assert convention in names(asked(case_id, written))
    assert asked(case_id, written, ALL - {convention}) is None, "nobody declared it"


@pytest.mark.parametrize("side", ["rowwise", "columnwise"])
@pytest.mark.parametrize(("kind", "steps"), [("data", (1, 2, 8)), ("scale_inv", (1, 2, 0x80))])
def test_a_byte_that_is_merely_wrong_is_a_bug(side, kind, steps):
    for step in steps:
        written = right(NORMAL)
        written[f"{side}_{kind}"][3, 5] ^= step
        assert asked(NORMAL, written) is None, step


def test_random_bits_choose_between_two_neighbours():
    case_id = "per_tensor/rounding=sr/128x128/normal/eager"
    written = done_otherwise(case_id, seed=1)
    codes = nvfp4.unpack(written["rowwise_data"])
    large = np.argwhere((codes & 7) == 6)[0]
    codes[tuple(large)] -= 2
    written["rowwise_data"] = nvfp4.pack(codes)
    assert asked(case_id, written) is None


def test_an_amax_that_differs_is_a_bug_and_with_a_nan_a_convention():
    written = right(NORMAL)
    written["rowwise_amax"] *= 2
    assert asked(NORMAL, written) is None
    with_nan = "per_tensor/default/128x128/specials_nan/eager"
    written = right(with_nan)
    written["rowwise_amax"][:] = np.nan
    assert names(asked(with_nan, written)) == [Convention.SPECIALS]
    assert asked(with_nan, written, ALL - {Convention.SPECIALS}) is None


def test_codes_under_a_zero_scale_may_be_any():
    case_id = "per_tensor/default/128x256/zero_blocks/eager"
    written = right(case_id)
    scales = written["rowwise_scale_inv"]
    row, block = np.argwhere(scales[:128, :16] == 0)[0]
    written["rowwise_data"][row, 8 * block : 8 * block + 8] ^= 0x77
    assert asked(case_id, written) == ("codes under a zero scale: 16 codes",)


def test_the_sign_of_a_zero_is_counted():
    written = right(NORMAL)
    codes = nvfp4.unpack(written["rowwise_data"])
    zeros = (codes & 7) == 0
    codes[zeros] ^= 8
    written["rowwise_data"] = nvfp4.pack(codes)
    assert asked(NORMAL, written) == (f"sign of zero: {zeros.sum():,} codes",)


def test_the_sign_of_a_zero_is_all_that_differs_of_fast_math():
    case = "per_tensor/fast_math=true,outputs=rowwise/48x80/signed_zero/eager"
    written = right(case)
    codes = written["rowwise_data"]
    low, high = (np.where(codes & mask == 0, 0xFF ^ sign, 0xFF) for mask, sign in ((7, 8), (0x70, 0x80)))
    codes &= (low & high).astype(np.uint8)
    (reason,) = asked(case, written, {Convention.ZERO_SIGN})
    assert reason.startswith("sign of zero: ")
    odd = codes & 7 == 4
    codes[odd] ^= 8  # a sign of another value
    assert odd.any() and asked(case, written) is None


def test_the_sign_of_a_zero_is_all_that_differs_of_a_product():
    case = "gemm/default/80x48x16/tiny_amax/eager"
    bounds = expected(case)[1].values["output"]
    written = {"output": bounds.low.copy()}
    minus = (written["output"] == 0) & np.signbit(written["output"].astype(np.float32))
    assert minus.any() and asked(case, written) == ()
    written["output"][minus] = 0
    assert asked(case, written) == (f"sign of zero: {np.count_nonzero(minus):,} values",)
    assert asked(case, written, ALL - {Convention.ZERO_SIGN}) is None
    written["output"][0, 0] = 1
    assert asked(case, written) is None


def test_padding_is_its_own_convention():
    case_id = "per_tensor/default/48x80/normal/eager"
    written = right(case_id)
    written["rowwise_scale_inv"][48:] = 0xA5
    assert asked(case_id, written) == ("padding: 640 bytes",)
    assert asked(case_id, written, ALL - {Convention.PADDING}) is None


def test_a_floor_is_one_byte_and_only_below_it():
    case_id = "per_tensor/default/128x256/zero_blocks/eager"
    written = done_otherwise(case_id, floor=0x08)
    scales = written["rowwise_scale_inv"]
    scales[tuple(np.argwhere(scales == 0x08)[0])] = 0x09
    assert asked(case_id, written) is None


SUM_TIES = "four_over_six/default/128x128/four_over_six_ties/eager"


def chosen_otherwise(case_id, other):
    """The arrays of a case with every rowwise block the other way for which `other(err4, err6)`."""
    from harness.oracles import four_over_six

    case, demanded = expected(case_id)
    written = right(case_id)
    x = np.asarray(demanded.inputs["input"]).astype(np.float32)
    slab = layout.Slab(layout.ROWWISE, slice(0, 128), x)
    four, six = four_over_six.candidates(case, slab, written["rowwise_amax"])
    to_four = (four.error < six.error) ^ other(four.error, six.error)
    codes = np.where(np.repeat(to_four, 16, axis=1), four.codes, six.codes)
    written["rowwise_data"] = nvfp4.pack(codes)
    written["rowwise_scale_inv"] = layout.arrange(np.where(to_four, four.scale_inv, six.scale_inv), "compact")
    return written


def test_a_near_tie_of_errors_may_fall_the_other_way():
    written = chosen_otherwise(SUM_TIES, lambda four, six: np.isclose(four, six, rtol=1e-6, atol=0) & (four != 0))
    assert names(asked(SUM_TIES, written)) == [Convention.ERROR_ORDER]
    assert asked(SUM_TIES, written, ALL - {Convention.ERROR_ORDER}) is None


def test_the_worse_of_two_scales_is_a_bug():
    case_id = "four_over_six/default/128x128/normal/eager"
    assert asked(case_id, chosen_otherwise(case_id, lambda four, six: four < 0.9 * six)) is None


def test_of_many_blocks_some_are_looked_at_and_the_reason_says_so(monkeypatch):
    monkeypatch.setattr(differing, "MOST_BLOCKS", 100)
    case_id = "per_tensor/rounding=sr/128x128/normal/eager"
    (*_, reason) = asked(case_id, done_otherwise(case_id, seed=1))
    assert " blocks that differ" in reason


def test_codes_of_eight_bits_are_not_explained_as_if_they_were_two_of_four(monkeypatch):
    """0x88 for 0x08 is a sign in one code of 8 bits, and that of a zero in one of two codes of 4."""
    case = find_case("per_tensor/outputs=rowwise/16x32/normal/eager")
    inputs = {"input": np.ones((16, 32), np.float32)}
    for width, found in ((32, None), (16, ("sign of zero: 512 codes",))):
        fields = {"rowwise_data": Field((16, width), "uint8"), "rowwise_scale_inv": Field((16, 2), "uint8")}
        monkeypatch.setattr(conventions, "fields_of", lambda case, fields=fields: fields)
        expected = {"rowwise_data": np.zeros((16, width), np.uint8), "rowwise_scale_inv": np.ones((16, 2), np.uint8)}
        expected["rowwise_amax"] = np.ones(1, np.float32)
        actual = expected | {"rowwise_data": expected["rowwise_data"] | 0x88}
        assert explain(case, inputs, expected, actual, frozenset(Convention)) == found
    del expected["rowwise_amax"]
    assert explain(case, inputs, expected, actual, frozenset(Convention)) is None


def test_other_recipes_are_not_explained():
    case_id = "dequantize/default/128x128/normal/eager"
    written = right(case_id)
    for value in written.values():
        value.view(np.uint8).reshape(-1)[0] ^= 1
    assert asked(case_id, written) is None
