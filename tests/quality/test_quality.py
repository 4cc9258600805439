"""What `harness quality` measures: numbers worked by hand, variants, scopes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from harness.errors import UsageError
from harness.quality import compare, tensors, variants
from harness.quality.compare import Comparison
from harness.quality.measure import Quality, block_snr, measure

BF16 = np.dtype(ml_dtypes.bfloat16)


def unit(*rows: list[float], e4m3_max: int = 448) -> np.ndarray:
    """(16, 16) bf16: the given rows, zeros, and last what makes S_enc 1, so that a block amax of 6 has the scale 1."""
    x = np.zeros((16, 16), BF16)
    for row, values in zip(x, rows, strict=False):
        row[: len(values)] = values
    x[15, 15] = 6 * e4m3_max
    return x


def quality(spec: str, x: np.ndarray, name: str = "x") -> Quality:
    return measure(variants.place(variants.find(spec, "bf16"), *x.shape, name), x)


# Numbers


def test_snr_and_errors_by_hand():
    found = quality("per_tensor", unit([6, 5, -5, 0.25]))  # 5 becomes 4, and 0.25 becomes 0
    signal, noise = 36 + 25 + 25 + 1 / 16 + 2688**2, 1 + 1 + 1 / 16
    assert found.snr_db == 10 * math.log10(signal / noise)
    assert (found.max_error, found.mean_error) == (1, 2.25 / 256)
    # One block is exact and one is not; the others are zero and have no SNR. The median of two is the lower.
    assert found.block_snr_db == 10 * math.log10((36 + 25 + 25 + 1 / 16) / noise)


def test_nothing_lost_is_infinite_and_nothing_there_is_no_number():
    exact = quality("per_tensor", unit([6, 4, 3, 0.5]))
    assert (exact.snr_db, exact.block_snr_db, exact.max_error) == (math.inf, math.inf, 0)
    empty = quality("per_tensor", np.zeros((16, 16), BF16))
    assert math.isnan(empty.snr_db) and math.isnan(empty.block_snr_db)
    assert (empty.max_error, empty.saturated, empty.zeroed) == (0, 0, 0)


def test_an_element_is_saturated_if_the_largest_code_does_not_reach_it():
    # 6.1875 / 6 rounds to a scale of 1, so it becomes 6; 6 and 5.5 have the same code and are reached.
    assert quality("per_tensor", unit([6.1875, -6.1875, 6, 5.5, 4.5])).saturated == 2 / 256
    assert quality("per_tensor", unit([6, -6, 5.5])).saturated == 0


@pytest.mark.parametrize("recipe", ["row_scaled", "local_1x64"])
def test_the_amax_of_a_granule_is_reached_though_its_decoding_is_rounded(recipe):
    x = np.zeros((1024, 64), np.float32)
    x[:, 7] = np.random.default_rng(0).uniform(1, 2, 1024)
    found = measure(variants.place(variants.find(recipe, "fp32"), *x.shape, "x"), x)
    assert 0 < found.max_error < 2.0**-20 and found.saturated == 0


def test_an_element_is_zeroed_by_its_code_or_by_the_scale_of_its_block():
    # 1/4 rounds to code 0. A block of 2^-8 has the scale 2^-8/6, less than half of the least e4m3 value.
    found = quality("per_tensor", unit([6, 0.25, -0.25, 0, -0.0, 0.5], [2.0**-8] * 16))
    assert found.zeroed == 18 / 256
    assert found.saturated == 0  # though the codes of that block are the largest


def test_the_share_of_map_4_by_hand():
    x = unit([6, 5, 5], [6, 4, 3], [6, 6, 5, 4.5], e4m3_max=256)
    assert quality("four_over_six", x).map4 == 2 / 16
    assert quality("per_tensor", x).map4 is None


def test_rht_is_measured_after_rotating_back():
    x = np.zeros((32, 16), BF16)
    x[3, 5], x[20, 7] = 4, -4  # each rotates to sixteen ones, of either sign
    found = quality("per_tensor/outputs=columnwise,rht=true", x)
    assert found.snr_db == math.inf and found.zeroed == 0
    x[4, 5] = 0.25
    assert 10 < quality("per_tensor/outputs=columnwise,rht=true", x).snr_db < 60


def test_infinite_and_nan_elements_count_in_no_error():
    x = unit([6, 5])
    x[1, :2] = np.nan, -np.nan
    found = quality("per_tensor", x)
    assert (found.max_error, found.mean_error) == (1, 1 / 254)
    x[2, 0] = np.inf
    assert quality("per_tensor", x).max_error == math.inf  # under an infinite amax nothing decodes to a number


def test_block_snr_lies_where_the_block_does():
    x = np.zeros((32, 48), BF16)
    x[:] = 6
    x[20, 40] = 5
    for spec, shape, where in (("per_tensor", (32, 3), (20, 2)), ("per_tensor/outputs=columnwise", (2, 48), (1, 40))):
        blocks = block_snr(variants.place(variants.find(spec, "bf16"), 32, 48, "x"), x)
        assert blocks.shape == shape
        assert blocks[where] < 30 and blocks[where] == blocks.min()
        assert (blocks > 100).sum() == blocks.size - 1


def test_one_amax_loses_small_rows_and_one_for_each_row_does_not():
    x = tensors.named("row_scales", 128, 128, "bf16").values
    whole, rows, windows = (quality(spec, x) for spec in ("per_tensor", "row_scaled", "local_1x64"))
    assert whole.zeroed > 0.4 and whole.block_snr_db < 15
    assert rows.zeroed < 0.1 and rows.block_snr_db > 20
    assert windows.zeroed < 0.1 and windows.block_snr_db > 20


def test_each_variant_is_decoded_by_its_own_bound():
    x = tensors.named("normal", 64, 64, "bf16").values
    for spec in ("four_over_six", "four_over_six/e4m3_max=448", "four_over_six/row_scaled=true"):
        assert 20 < quality(spec, x).snr_db < 23


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_same_name_gives_the_same_numbers(dtype):
    x, again = (tensors.named("heavy_tail", 64, 64, dtype) for _ in range(2))
    found = [
        measure(variants.place(case, 64, 64, "heavy_tail"), values)
        for values in (x.values, again.values)
        for case in variants.parse((), dtype)[0]
    ]
    half = len(found) // 2
    assert found[:half] == found[half:]
    assert half == len(variants.defaults()) - (dtype != "bf16")


# Variants


def test_a_recipe_stands_for_its_variants_and_a_variant_for_itself():
    labels = [variants.label(case) for case in variants.parse(["per_tensor", "four_over_six/error=mse"], "bf16")[0]]
    own = [name.removesuffix("/default") for name in variants.defaults() if name.startswith("per_tensor/")]
    assert labels == [*own, "four_over_six/error=mse"] and len(own) > 1
    assert [variants.label(case) for case in variants.parse(["per_tensor/default"], "bf16")[0]] == ["per_tensor"]
    twice = ["row_scaled", "row_scaled/outputs=rowwise"]
    assert len(variants.parse(twice, "bf16")[0]) == 1


def test_a_default_variant_that_the_dtype_lacks_is_left_out_with_the_reason():
    cases, left_out = variants.parse((), "fp16")
    assert not any(case.flags.get("rht") for case in cases)
    assert left_out == [
        "per_tensor/outputs=columnwise,rht=true: per_tensor excludes this combination: "
        "the rotation is defined on bf16 inputs only"
    ]


@pytest.mark.parametrize(
    "spec, sentence",
    [
        ("per_tenser", "there is no recipe 'per_tenser'; did you mean 'per_tensor'?"),
        ("per_tensor/rounding=up", "per_tensor/rounding=up: flag rounding has no value 'up'; choose rne or sr"),
        ("per_tensor/block_16x16", "'block_16x16' is not `flag=value`"),
        ("four_over_six/rht=true", "four_over_six excludes this combination"),
        ("per_tensor/stage=amax", "stage=amax writes no whole tensor"),
        ("per_tensor/dtype=fp16", "its dtype is chosen by --dtype"),
        ("swizzle", "swizzle quantizes no matrix"),
    ],
)
def test_a_variant_that_cannot_be_is_one_sentence(spec, sentence):
    with pytest.raises(UsageError) as caught:
        variants.parse([spec], "bf16")
    assert sentence in str(caught.value)


# Scopes


@pytest.mark.parametrize(
    "name, kind",
    [
        ("layers.0.ffn_up.weight", compare.WEIGHT),
        ("ffn_up.input", compare.ACTIVATION),
        ("ffn_up.grad_output", compare.GRADIENT),
        ("ffn_up.weight.grad", compare.GRADIENT),
    ],
)
def test_the_kind_of_a_tensor_is_in_its_name(name, kind):
    assert compare.kind(name) == kind
    taken = [choice for choice in compare.SCOPES if compare.takes(choice, name)]
    assert taken == [*({compare.WEIGHT: ["weights"], compare.ACTIVATION: ["activations"]}.get(kind, [])), "all"]


def test_the_total_of_a_scope_by_hand():
    by = {False: {"a.weight": (10.0, 0.5), "b": (20.0, 0.0)}, True: {"a.weight": (16.0, 0.25), "b": (21.0, 0.0)}}

    def measured(name: str, within: bool) -> Quality:
        snr, zeroed = by[within][name]
        rows = 64 if name == "b" else 192
        return Quality("v", name, rows, 64, snr, snr, 0, 0, 0, zeroed, None)

    none, weights, every = (compare.total(name, ["a.weight", "b"], measured) for name in ("none", "weights", "all"))
    assert (none.inside, none.elements, none.snr_db, none.lowest_db, none.lowest) == (0, 0, 15, 10, "a.weight")
    assert (weights.inside, weights.elements, weights.snr_db) == (1, 0.75, 18)
    assert none.zeroed == 0.375 and weights.zeroed == 0.1875
    assert (every.inside, every.elements, every.snr_db, every.lowest_db) == (2, 1, 18.5, 16)


def test_a_scope_uses_the_chosen_variants_and_the_defaults_of_others():
    comparison = Comparison([variants.find("four_over_six/error=mse", "bf16")])
    tensor = tensors.named("normal", 64, 64, "bf16")
    every, none = (comparison.total(name, [tensor]) for name in ("all", "none"))
    assert every.snr_db == quality("four_over_six/error=mse", tensor.values, "normal").snr_db
    assert none.snr_db == quality("per_tensor", tensor.values, "normal").snr_db
