"""Every known mistake, made on purpose in an oracle's output, is called by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

from harness.contract.case import Case, Flags
from harness.contract.problem import Dense, Gemm
from harness.errors import ContractError
from harness.expected.expected import expect
from harness.inputs.draw import make
from harness.oracles import (
    dequantize,
    four_over_six,
    gemm_ordered,
    layout,
    nvfp4,
    per_tensor,
    row_scaled,
    swizzle,
    torch_oracle,
)
from harness.suite import cover
from harness.suite.suite import suite_of
from harness.verify.diagnosis.classify import HYPOTHESES, cause_of
from harness.verify.diagnosis.evidence import Evidence
from harness.verify.diagnosis.steps import Steps

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {"bf16": BF16, "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
AXES = {
    "dtype": ["bf16", "fp16", "fp32"],
    "block": ["block_1x16", "block_16x16"],
    "outputs": ["both", "rowwise", "columnwise"],
    "rht": [False, True],
    "rounding": ["rne", "sr"],
    "scale_layout": ["compact", "swizzled"],
    "fast_math": [False, True],
    "stage": ["full", "encode"],
    "sign_mask": [0xD7E8, 0x0000, 0x8001],
    "activation": ["none"],
}
DEFAULTS = {name: values[0] for name, values in AXES.items()}
Arrays = dict[str, np.ndarray]


def per_tensor_case(rows: int = 304, cols: int = 272, **flags) -> Case:
    return Case("per_tensor", Flags({**DEFAULTS, **flags}), Dense(rows, cols))


def tensor(rows: int = 304, cols: int = 272, dtype: str = "bf16") -> np.ndarray:
    """Full mantissas, block scales over many binades, some negative zeros, a negative element the largest."""
    rng = np.random.default_rng([rows, cols])
    x = rng.standard_normal((rows, cols)) * np.exp2(rng.integers(-12, 0, (rows, cols // 16)).repeat(16, axis=1))
    x[rng.random(x.shape) < 0.02] = -0.0
    x[5, 7], x[40, 8] = -8.625, -7.3
    x[9, 16:32] = 0
    x[9, 20:22] = 3.328125, 1.9765625  # code 6 by the reciprocal multiplier, 5 by the direct one
    return x.astype(DTYPES[dtype])


def cause(module, case: Case, tensors: Arrays, actual: Arrays, **changes: Arrays) -> str | None:
    """The name of the cause for what the oracle expects and a kernel's `actual` arrays.

    Where too few entries are wrong to know it, `perhaps` and what they fit.
    """
    expected = module.numpy_oracle(case, tensors)
    fields = module.outputs(case)
    found = cause_of(Evidence(case, tensors, fields, expected, ({**expected, **actual},)))
    few = found and re.match(r"\d+ entr.*? fits? (.*)", found.explanation)
    return f"perhaps {few[1]}" if few else found and found.name


def asked(x: np.ndarray | None = None, *extents: int, **flags) -> tuple[Case, Arrays]:
    """A case of per_tensor with these flags, and what its kernels read of x, or of `tensor`."""
    case = per_tensor_case(*extents, **flags)
    return case, per_tensor.inputs(case, tensor() if x is None else x)


def mutated(function: str, mutant: Callable, case: Case, tensors: Arrays) -> Arrays:
    """What the oracle gives with a function of `nvfp4` changed."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(nvfp4, function, mutant)
        return per_tensor.numpy_oracle(case, tensors)


def wrong_flags(case: Case, tensors: Arrays, **flags) -> Arrays:
    """The oracle's bytes under other flags, the seed kept."""
    other = Case("per_tensor", case.flags.replace(**flags), case.problem, seed_of=case.data_id)
    return per_tensor.numpy_oracle(other, tensors)


def test_the_steps_are_the_contract():
    def flags(row: tuple[int | None, ...]) -> Flags:
        return Flags({name: v[choice or 0] for (name, v), choice in zip(AXES.items(), row, strict=True)})

    def refused(row: tuple[int | None, ...]) -> bool:
        try:
            per_tensor.outputs(Case("per_tensor", flags(row), Dense(16, 16)))
        except ContractError:
            return True
        return False

    for row in cover.pairwise([len(values) for values in AXES.values()], refused):
        case = Case("per_tensor", flags(row), Dense(48, 80))
        x = tensor(48, 80, case.flags.dtype)
        x[3, 3:6] = [np.nan, np.inf, -np.inf]
        tensors = per_tensor.inputs(case, x)
        expected = wrong_flags(case, tensors, scale_layout="compact")
        for side in ("rowwise", "columnwise"):
            if f"{side}_data" not in expected:
                continue
            steps = Steps.of(case, side)
            numbers = np.arange(80 if side == "columnwise" else 48)
            amax = tensors.get(f"{side}_amax", steps.amax(x))
            encoded = steps.encode(steps.lines(x, numbers), numbers, amax)
            assert (encoded.data == expected[f"{side}_data"]).all(), case.id
            valid = encoded.scale_inv.shape
            assert (encoded.scale_inv == expected[f"{side}_scale_inv"][: valid[0], : valid[1]]).all()
            assert amax == expected.get(f"{side}_amax", amax)


@pytest.mark.parametrize(
    "recipe, granularity, options",
    [
        ("row_scaled", "row", {}),
        ("local_1x64", "window", {"multiplier": "direct", "amax_floor": 1e-12}),
    ],
)
def test_the_steps_know_other_granularities(recipe, granularity, options):
    flags = suite_of(recipe).defaults.replace(dtype="fp32", outputs="both")
    case = Case(recipe, flags, Dense(64, 128))
    x = tensor(64, 128, "fp32")
    x[:, 64:] *= np.float32(1e-15)
    expected = torch_oracle.quantize(case, torch.from_numpy(x), granularity, **options)
    for side, count in (("rowwise", 64), ("columnwise", 128)):
        steps = Steps.of(case, side)
        amax = steps.amax(x)
        encoded = steps.encode(steps.lines(x, np.arange(count)), np.arange(count), amax)
        assert (amax == expected[f"{side}_amax"].numpy()).all()
        assert (encoded.data == expected[f"{side}_data"].numpy()).all()
    assert Steps.of(Case("four_over_six", Flags({}), Dense(16, 16)), "rowwise") is None


def test_nothing_wrong_has_no_cause():
    assert cause(per_tensor, *asked(), {}) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "base, changed, name",
    [
        ({}, {"rounding": "sr"}, "sr and rne mixed up"),
        ({"rounding": "sr"}, {"rounding": "rne"}, "sr and rne mixed up"),
        ({"rht": True, "outputs": "columnwise"}, {"rht": False}, "rht skipped"),
        ({"rht": True, "rounding": "sr"}, {"rht": False}, "rht skipped"),
        ({"rht": True, "sign_mask": 0x8001}, {"sign_mask": 0xD7E8}, "sign_mask ignored"),
        ({"rht": True}, {"sign_mask": 0}, "sign_mask ignored"),
        ({"rht": False}, {"rht": True}, "rht where none belongs"),
        ({}, {"block": "block_16x16"}, "1x16 and 16x16 blocks mixed up"),
        ({"block": "block_16x16"}, {"block": "block_1x16"}, "1x16 and 16x16 blocks mixed up"),
        ({}, {"fast_math": True}, "fast_math where exact was asked"),
        ({"fast_math": True}, {"fast_math": False}, "fast_math ignored"),
        ({}, {"scale_layout": "swizzled"}, "compact and swizzled mixed up"),
        ({"scale_layout": "swizzled"}, {"scale_layout": "compact"}, "compact and swizzled mixed up"),
    ],
)
@pytest.mark.parametrize("stage", ["full", "encode"])
def test_the_wrong_branch(base, changed, name, stage):
    case, tensors = asked(**base, stage=stage)
    assert cause(per_tensor, case, tensors, wrong_flags(case, tensors, **changed)) == name


def no_abs(v: np.ndarray, axis: int | None = None) -> np.ndarray:
    largest = np.fmax.reduce(v, axis=axis, initial=np.float32(0))
    return np.reshape(largest, 1) if axis is None else largest


def random_bytes_of(**changes) -> Callable[..., np.ndarray]:
    original = nvfp4.random_bytes

    def drawn(index, direction, offset, seed):
        if changes.get("other_direction"):
            direction = 1 - direction
        if changes.get("key"):
            seed = changes["key"](seed)
        random = original(index, direction, offset, seed)
        return random.reshape(-1, 4)[:, changes.get("order", (0, 1, 2, 3))].reshape(-1, 16)

    return drawn


@nvfp4.ieee
def unrounded(v: np.ndarray, sign_mask: int) -> np.ndarray:
    return nvfp4.hadamard(v, sign_mask) * np.float32(0.25)


def e2m1_ties(side: str) -> Callable[[np.ndarray], np.ndarray]:
    limits = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    return lambda v: (
        np.searchsorted(limits, np.abs(v), side=side).astype(np.uint8) | (np.signbit(v).astype(np.uint8) << 3)
    )


def test_divide_form():
    x = tensor()
    x[5, 7] = -8.125
    x[9, 20:22] = 3.046875, 0  # scale 176 in multiply form, 160 in divide form
    case, tensors = asked(x)
    actual = mutated("scale_inv_multiply", divide_form, case, tensors)
    assert cause(per_tensor, case, tensors, actual).startswith("perhaps divide instead of multiply scale form, ")


def divide_form(block_amax: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    return nvfp4.e4m3(nvfp4.scale_base_divide(block_amax, s_enc))


def direct(scale_inv: np.ndarray, s_dec: np.ndarray) -> np.ndarray:
    return nvfp4.multiplier_direct(scale_inv, nvfp4.global_encode_scale(np.array([8.625], np.float32)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags, function, mutant, name",
    [
        ({}, "multiplier_reciprocal", direct, "direct instead of reciprocal multiplier"),
        ({}, "amax", no_abs, "amax without abs"),
        ({"rht": True}, "rht", unrounded, "rht kept in float32"),
        ({"rounding": "sr"}, "random_bytes", random_bytes_of(other_direction=True), "sr bits of the other direction"),
        ({"rounding": "sr"}, "random_bytes", random_bytes_of(order=(3, 2, 1, 0)), "sr bits in another order"),
        ({"rounding": "sr"}, "random_bytes", random_bytes_of(order=(1, 0, 3, 2)), "sr bits in another order"),
        ({"rounding": "sr"}, "random_bytes", random_bytes_of(key=lambda seed: 0), "sr key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_wrong_step(flags, function, mutant, name):
    case, tensors = asked(**flags)
    right = per_tensor.numpy_oracle(case, tensors)
    actual = mutated(function, mutant, case, tensors)
    assert any((actual[field] != right[field]).any() for field in right)
    assert name in cause(per_tensor, case, tensors, actual)  # the one amax is that of a part as well


def test_a_sum_of_sr_that_is_not_rounded():
    case = per_tensor_case(dtype="fp32", rounding="sr")
    tensors = per_tensor.inputs(case, make("sr_edges", case.rows, case.cols, "fp32", 1))

    def in_float64(v: np.ndarray, random_byte: np.ndarray) -> np.ndarray:
        a = np.abs(v).astype(np.float64)
        step = np.where(a >= 4, 2, np.where(a >= 2, 1, 0.5))
        magnitude = np.searchsorted([0.5, 1, 1.5, 2, 3, 4, 6], a + random_byte / 256 * step, side="right")
        return (magnitude + 8 * np.signbit(v)).astype(np.uint8)

    actual = mutated("e2m1_stochastic", in_float64, case, tensors)
    assert cause(per_tensor, case, tensors, actual) == "fits sum of sr not rounded, product cut to bf16"


def test_448_for_256():
    case, tensors = asked(stage="encode")
    bounded = nvfp4.global_encode_scale
    actual = mutated("global_encode_scale", lambda amax, largest: bounded(amax, 256), case, tensors)
    assert cause(per_tensor, case, tensors, actual) == "e4m3_max mixed up"


def tie_tensor() -> np.ndarray:
    """S_enc = 1 and scales of 1: codes are the cast of the values, of which half are midpoints."""
    rng = np.random.default_rng(1)
    x = rng.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 0.5, 1.625, 3], (64, 64)) * rng.choice([1, -1], (64, 64))
    x[:, ::16] = 6
    x[0, 0] = 2688
    return x.astype(BF16)


@pytest.mark.parametrize("side", ["left", "right"])
def test_tie_direction(side):
    case, tensors = asked(tie_tensor(), 64, 64, outputs="rowwise")
    actual = mutated("e2m1", e2m1_ties(side), case, tensors)
    found = cause(per_tensor, case, tensors, actual)
    assert "tie direction, " in found  # a multiplier that is too large or too small breaks all ties, too


def codes_changed(case: Case, tensors: Arrays, change: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    data = per_tensor.numpy_oracle(case, tensors)["rowwise_data"]
    return {"rowwise_data": nvfp4.pack(change(nvfp4.unpack(data)))}


def test_a_wrong_code_at_a_tie_that_is_no_neighbour_is_not_a_tie():
    case, tensors = asked(tie_tensor(), 64, 64, outputs="rowwise")

    def far(codes: np.ndarray) -> np.ndarray:
        codes[tie_tensor() == 0.25] = 6
        return codes

    assert cause(per_tensor, case, tensors, codes_changed(case, tensors, far)) == "not known"


def test_a_mistake_in_a_part_of_the_tensor():
    case, tensors = asked()
    data = per_tensor.numpy_oracle(case, tensors)["rowwise_data"]
    data[32:64, 64:128] = wrong_flags(case, tensors, rounding="sr")["rowwise_data"][32:64, 64:128]
    assert cause(per_tensor, case, tensors, {"rowwise_data": data}) == "sr and rne mixed up"


def one_off(codes: np.ndarray) -> np.ndarray:
    codes[4, 4] = (codes[4, 4] & 8) | (3 if codes[4, 4] & 7 == 2 else abs(int(codes[4, 4] & 7) - 1))
    return codes


def spoiled(codes: np.ndarray, where: tuple[slice, slice]) -> np.ndarray:
    codes[where] ^= 5
    return codes


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, name",
    [
        (lambda codes: np.where(codes == 8, np.uint8(0), codes), "sign of zero dropped"),
        (one_off, "not known (one code off)"),
        (np.zeros_like, "not known (zeros written)"),
        (lambda codes: spoiled(codes, np.s_[288:, 3::5]), "not known (tile edge)"),
        (lambda codes: spoiled(codes, np.s_[::7, 3::50]), "not known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_codes(change, name):
    case, tensors = asked()
    assert cause(per_tensor, case, tensors, codes_changed(case, tensors, change)) == name


@pytest.mark.parametrize("code", [0, 8, 15])
def test_nan_code(code):
    x = tensor()
    x[::40, ::19] = np.nan
    case, tensors = asked(x)
    actual = codes_changed(case, tensors, lambda codes: np.where(np.isnan(x), np.uint8(code), codes))
    assert cause(per_tensor, case, tensors, actual) == "NaN code"


def test_codes_of_an_underflowed_block():
    x = tensor()
    x[17, 32:48] = (np.linspace(1, 2, 16) * 2**-17).astype(BF16)
    case, tensors = asked(x)
    underflowed = per_tensor.numpy_oracle(case, tensors)["rowwise_scale_inv"][17, 2] == 0
    assert underflowed

    def of(code: int) -> Arrays:
        def changed(codes: np.ndarray) -> np.ndarray:
            codes[17, 32:48] = codes[17, 32:48] & 8 | code
            return codes

        return codes_changed(case, tensors, changed)

    assert cause(per_tensor, case, tensors, of(3)) == "not known (underflowed blocks)"
    assert cause(per_tensor, case, tensors, of(0)).startswith("fits zeros for an underflowed block")


def put(array: np.ndarray, *edits: tuple[tuple[int, int], int]) -> np.ndarray:
    for index, value in edits:
        array[index] = value
    return array


def largest(values: np.ndarray) -> np.ndarray:
    return np.abs(values.astype(np.float32)).max().reshape(1)


SWIZZLED = {"scale_layout": "swizzled"}
PADDING = tuple(np.argwhere(layout.swizzle(np.pad(np.ones((304, 17)), ((0, 80), (0, 3)))) == 0)[3])
# Flags, a field, what a kernel writes for the right array, and the cause
CHANGED = [
    ({}, "rowwise_data", lambda data: data >> 4 | data << 4, "nibble swap"),
    ({}, "rowwise_data", lambda data: np.roll(data, 8, axis=1), "wrong place"),
    ({}, "rowwise_data", lambda data: data.reshape(-1)[::-1].reshape(data.shape).copy(),
     "not known (right bytes in other places)"),
    *(({"outputs": outputs}, "rowwise_data", lambda data: columns().reshape(data.shape), "row/column mix")
      for outputs in ("both", "rowwise")),
    *(({"outputs": outputs, "rht": True}, "columnwise_amax", lambda amax: largest(tensor()), "perhaps row/column mix")
      for outputs in ("both", "columnwise")),
    ({"stage": "amax"}, "rowwise_amax", lambda amax: largest(tensor()[16:]), "perhaps amax of a part"),
    ({"stage": "amax", "rht": True}, "columnwise_amax",
     lambda amax: largest(unrounded(tensor().astype(np.float32).T, 0xD7E8)),
     "perhaps amax before rounding, rht kept in float32"),
    ({}, "columnwise_amax", lambda amax: np.zeros(272, np.float32), "wrong dtype, shape or strides"),
    (SWIZZLED, "rowwise_scale_inv", layout.swizzle, "swizzled twice"),
    (SWIZZLED, "rowwise_scale_inv", layout.unswizzle, "compact and swizzled mixed up"),
    (SWIZZLED, "rowwise_scale_inv", lambda scales: put(scales, (PADDING, 9)), "padding not zeroed"),
    ({}, "rowwise_scale_inv", lambda scales: put(scales, ((350, 0), 9)), "padding not zeroed"),
    # It did not overflow, so that no saturation is missing.
    ({}, "rowwise_scale_inv", lambda scales: put(scales, ((5, 0), 0x7F)), "not known (NaN scales)"),
    ({}, "rowwise_scale_inv", lambda scales: put(scales, ((3, 4), scales[3, 4] + 1), ((200, 9), scales[200, 9] - 1)),
     "not known (1-ulp scale)"),
]  # fmt: skip


def columns() -> np.ndarray:
    return per_tensor.numpy_oracle(*asked())["columnwise_data"]


@pytest.mark.slow
@pytest.mark.parametrize("flags, field, change, name", CHANGED, ids=lambda each: each if isinstance(each, str) else "")
def test_a_changed_array(flags, field, change, name):
    case, tensors = asked(**flags)
    actual = {field: change(per_tensor.numpy_oracle(case, tensors)[field])}
    assert cause(per_tensor, case, tensors, actual) == name


@pytest.mark.parametrize("scale_format", ["e4m3", "ue5m3"])
def test_scales_of_either_format(scale_format):
    case, tensors = asked(outputs="rowwise", scale_format=scale_format, global_scale=False)
    right = per_tensor.numpy_oracle(case, tensors)["rowwise_scale_inv"]
    assert ((right > 0) & (right < 8)).any() and (right >= 16).any()

    def called(scales: np.ndarray) -> str | None:
        return cause(per_tensor, case, tensors, {"rowwise_scale_inv": scales})

    stored = right.astype(int)
    assert called(np.where(stored >= 8, stored + 8, 2 * stored).astype(np.uint8)) == "scale stored under another bias"
    assert called(np.where(stored >= 16, stored - 8, stored // 2).astype(np.uint8)) == "scale stored under another bias"
    assert called(np.where(stored < 8, 0, stored).astype(np.uint8)) == "small scales flushed to 0"
    assert called(np.where(stored > 0, stored + 1, 0).astype(np.uint8)) == "1-ulp scale"
    assert called(put(right.copy(), ((3, 4), right[3, 4] + 8))).startswith("not known")


@pytest.mark.parametrize("scale_format", ["e4m3", "ue5m3"])
def test_casts_of_scales_to_either_format(scale_format):
    x = (tensor().astype(np.float32) * 2**13).astype(BF16)
    case, tensors = asked(x, outputs="rowwise", scale_format=scale_format, global_scale=False)
    cast = getattr(nvfp4, scale_format)
    for name, wrong in {
        "scale saturates too early": lambda v: cast(np.fmin(v, np.float32(240))),
        "scale truncated": lambda v: cast((v.view(np.uint32) & np.uint32(0xFFF00000)).view(np.float32)),
    }.items():
        assert cause(per_tensor, case, tensors, mutated(scale_format, wrong, case, tensors)) == name


def test_s_enc_of_an_amax_of_1_where_there_is_none():
    case, tensors = asked(global_scale=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "ones_like", lambda amax: np.full_like(amax, 2688))
        wrong = per_tensor.numpy_oracle(case, tensors)
    assert cause(per_tensor, case, tensors, wrong) == "global scale mixed up"


def test_swizzled_backwards():
    case = Case("swizzle", Flags({"direction": "rowwise", "to": "swizzled"}), Dense(304, 272))
    tensors = swizzle.inputs(case, tensor())
    actual = {"swizzled_scale_inv": layout.unswizzle(tensors["scale_inv"])}
    assert cause(swizzle, case, tensors, actual) == "swizzled backwards"
    assert (
        cause(swizzle, case, tensors, {"swizzled_scale_inv": tensors["scale_inv"]}) == "compact and swizzled mixed up"
    )


def test_nan_in_an_amax():
    x = tensor()
    x[100, 100] = np.nan
    case, tensors = asked(x, stage="amax")
    nan = np.array([np.nan], np.float32)
    assert (
        cause(per_tensor, case, tensors, {"rowwise_amax": nan, "columnwise_amax": nan})
        == "perhaps NaN kept in the amax"
    )


@pytest.mark.parametrize("nans", [16, 3])
def test_nan_in_the_amax_of_a_block(nans):
    """Signalling NaNs, for which NumPy's `fmax` is a NaN in some of its loops."""
    x = tensor()
    x.view(np.uint16)[3, 16 : 16 + nans] = 0x7F81
    case, tensors = asked(x, stage="encode", outputs="rowwise")
    kept = replace(Steps.of(case, "rowwise"), block_nans="kept")
    encoded = kept.encode(kept.lines(x, np.arange(304)), np.arange(304), tensors["rowwise_amax"])
    scale_inv = per_tensor.numpy_oracle(case, tensors)["rowwise_scale_inv"]
    scale_inv[:304, :17] = encoded.scale_inv
    found = cause(per_tensor, case, tensors, {"rowwise_scale_inv": scale_inv, "rowwise_data": encoded.data})
    assert found == "perhaps NaN kept in the amax"


@pytest.mark.parametrize("side", ["rowwise", "columnwise"])
def test_an_amax_that_became_inf_is_no_rotation(side):
    """The rotated values are inf, so every scale is 448: as with any other mistake that makes an amax inf.

    A rowwise output is never rotated.
    """
    case, tensors = asked(huge(), 16, 16, stage="encode", outputs=side)
    assert cause(per_tensor, case, tensors, saturated(case, tensors, side)) != "rht where none belongs"


@pytest.mark.parametrize(
    ("s_enc", "named"),
    [(0, "S_enc of a huge amax"), (1, "fits S_enc of a huge amax, an amax of 0 or none")],
)
def test_a_division_that_gives_0_for_a_huge_amax(s_enc, named):
    x = np.tile(huge(), (2, 2)) * BF16.type(0.5) ** np.arange(32).astype(BF16)
    case, tensors = asked(x, 32, 32, stage="encode", outputs="both")
    actual = mutated("global_encode_scale", lambda amax, *_: np.full_like(amax, s_enc), case, tensors)
    assert cause(per_tensor, case, tensors, actual) == named


def huge() -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.uniform(2e38, 3e38, (16, 16)) * rng.choice([1, -1], (16, 16))).astype(BF16)


def saturated(case: Case, tensors: Arrays, side: str) -> Arrays:
    """What the rotation gives: scales of 448, and the codes of products with its multiplier."""
    other = replace(Steps.of(case, side), rotation=0xD7E8)
    numbers = np.arange(16)
    encoded = other.encode(other.lines(tensors["input"], numbers), numbers, tensors[f"{side}_amax"])
    assert not np.isfinite(encoded.values).all(axis=1).any()
    scale_inv = per_tensor.numpy_oracle(case, tensors)[f"{side}_scale_inv"]
    scale_inv[:16, :1] = encoded.scale_inv
    return {f"{side}_scale_inv": scale_inv, f"{side}_data": encoded.data}


def test_a_cause_that_one_byte_suggests_names_the_others():
    case = replace(
        per_tensor_case(16, 16, outputs="rowwise", stage="encode"), philox_seed=1
    )  # by which sr gives 5, too
    x = np.full((16, 16), 0.5, np.float32)
    x[:, 0], x[3, 5] = 6, 2.5
    tensors = {**per_tensor.inputs(case, x.astype(BF16)), "rowwise_amax": np.array([2688], np.float32)}
    right = per_tensor.numpy_oracle(case, tensors)
    data = nvfp4.pack(np.where(x == 2.5, np.uint8(5), nvfp4.unpack(right["rowwise_data"])))
    evidence = Evidence(case, tensors, per_tensor.outputs(case), right, ({**right, "rowwise_data": data},))
    found = cause_of(evidence)
    assert found.name == "not known"
    assert found.explanation.startswith("1 entry fits sr and rne mixed up, tie direction, ")


def test_amax_of_the_wrong_granule():
    case, tensors = asked(outputs="rowwise")
    actual = dict(per_tensor.numpy_oracle(case, tensors))
    for row in range(304):
        line = np.zeros((16, 272), BF16)
        line[0] = tensors["input"][row]
        alone = per_tensor.numpy_oracle(per_tensor_case(16, 272, outputs="rowwise"), {"input": line})
        actual["rowwise_data"][row] = alone["rowwise_data"][0]
        actual["rowwise_scale_inv"][row] = alone["rowwise_scale_inv"][0]
    assert cause(per_tensor, case, tensors, actual) == "amax of the wrong granule"


def test_unwritten_and_unstable_runs():
    case, tensors = asked()
    right, fields = per_tensor.numpy_oracle(case, tensors), per_tensor.outputs(case)

    def run(poison: int) -> Arrays:
        data = right["rowwise_data"].copy()
        data[256:, :64] = poison
        return {**right, "rowwise_data": data}

    unwritten = cause_of(Evidence(case, tensors, fields, right, (run(0xA5), run(0x5A)), (0xA5, 0x5A)))
    assert unwritten.name == "unwritten or stale"
    unstable = cause_of(Evidence(case, tensors, fields, right, (run(0x11), run(0x22)), (0xA5, 0x5A)))
    assert unstable.name == "differs between runs"


def test_a_wrong_amax_is_blamed_before_what_it_spoils():
    case, tensors = asked()
    actual = per_tensor.numpy_oracle(case, {"input": (tensors["input"].astype(np.float32) / 2).astype(BF16)})
    found = cause(per_tensor, case, tensors, actual)
    assert found == "not known"
    right = per_tensor.numpy_oracle(case, tensors)
    assert cause(per_tensor, case, tensors, {**actual, "rowwise_amax": right["rowwise_amax"]}) == found


def decoding(**flags) -> tuple[Case, Arrays]:
    case = Case("dequantize", Flags({**suite_of("dequantize").defaults, **flags}), Dense(304, 272))
    return case, dequantize.inputs(case, tensor())


@pytest.mark.parametrize(
    "base, other, name",
    [
        ({}, {"e4m3_max": 256}, "e4m3_max mixed up"),
        ({}, {"scale_layout": "swizzled"}, "compact and swizzled mixed up"),
        ({"scale_layout": "swizzled"}, {"scale_layout": "compact"}, "compact and swizzled mixed up"),
    ],
)
def test_dequantize_under_wrong_flags(base, other, name):
    case, tensors = decoding(**base)
    wrong = replace(case, flags=case.flags.replace(**other))
    assert cause(dequantize, case, tensors, dequantize.numpy_oracle(wrong, tensors)) == name


def test_dequantize_mistakes():
    case, tensors = decoding(dtype="fp32")
    swapped = {**tensors, "data": tensors["data"] >> 4 | tensors["data"] << 4}
    assert cause(dequantize, case, tensors, dequantize.numpy_oracle(case, swapped)) == "nibble swap"
    right = dequantize.numpy_oracle(case, tensors)["output"]
    assert cause(dequantize, case, tensors, {"output": right + np.float32(0)}) == "not known (sign of zero dropped)"
    ulp = right.copy()
    ulp[3, 3] = np.nextafter(ulp[3, 3], np.float32(9))
    assert cause(dequantize, case, tensors, {"output": ulp}) == "not known (1-ulp value)"
    q = nvfp4.decode_e2m1(nvfp4.unpack(tensors["data"]))
    scale = nvfp4.decode_e4m3(tensors["scale_inv"][:304, :17])
    factor = scale * (tensors["amax"] * (np.float32(1) / np.float32(2688)))
    assert cause(dequantize, case, tensors, {"output": nvfp4.scaled(q, factor)}) == "scale and amax reassociated"


@pytest.mark.parametrize("granularity", ["row", "window"])
def test_dequantize_by_another_amax(granularity):
    case = Case("dequantize", suite_of("dequantize").defaults.replace(granularity=granularity), Dense(64, 128))
    tensors = expect(case).inputs
    wrong = {**tensors, "amax": np.roll(tensors["amax"], 5)}
    assert cause(dequantize, case, tensors, dequantize.numpy_oracle(case, wrong)) == "amax of another granule"


def test_dequantize_nan_bits():
    case, tensors = decoding(dtype="fp32")
    tensors["amax"] = np.array([np.inf], np.float32)
    right = dequantize.numpy_oracle(case, tensors)["output"]
    other = np.where(np.isnan(right), np.float32(np.nan), right)
    assert cause(dequantize, case, tensors, {"output": other}) == "not known (NaN bits)"


def test_every_cause_has_a_name():
    texts = {}
    for hypothesis in HYPOTHESES:
        texts.setdefault(hypothesis.name, set()).add(hypothesis.explanation)
    assert all(name.strip() == name for name in texts)
    assert "not known" not in texts


@pytest.mark.slow
def test_the_butterflies_of_the_rotation():
    case, tensors = asked(rht=True, outputs="columnwise")
    steps = Steps.of(case, "columnwise")
    for change, name in (
        ({"rotation_strides": (1, 2, 8)}, "a stage of the rht left out"),
        ({"rotation_norm": 0.5}, "rht of another length"),
        ({"rotation_turned": True}, "rht of another sign"),
    ):
        other, numbers = replace(steps, **change), np.arange(case.cols)
        amax = other.amax(tensors["input"])
        encoded = other.encode(other.lines(tensors["input"], numbers), numbers, amax)
        actual = {"columnwise_amax": amax, "columnwise_data": encoded.data}
        actual["columnwise_scale_inv"] = layout.arrange(encoded.scale_inv, "compact")
        assert cause(per_tensor, case, tensors, actual).removeprefix("perhaps ") == name


def row_case(**flags) -> Case:
    defaults = suite_of("row_scaled").defaults
    return Case("row_scaled", defaults.replace(outputs="rowwise", **flags), Dense(48, 80))


@pytest.mark.parametrize("other", [lambda amax: amax[np.arange(48) ^ 1], lambda amax: amax[np.arange(48) ^ 4]])
def test_an_amax_of_another_line(other):
    case = row_case(stage="encode")
    tensors = row_scaled.inputs(case, tensor(48, 80))
    wrong = {**tensors, "rowwise_amax": other(tensors["rowwise_amax"])}
    assert cause(row_scaled, case, tensors, row_scaled.numpy_oracle(case, wrong)) == "amax of another granule"


def test_the_amax_of_a_part_of_a_line():
    case = row_case(stage="amax")
    tensors = row_scaled.inputs(case, tensor(48, 80))
    part = abs(tensors["input"][:, :40].astype(np.float32)).max(axis=1)
    assert cause(row_scaled, case, tensors, {"rowwise_amax": part}) == "amax of a part"


def gemm_case(input_name: str = "normal", **flags) -> tuple[Case, Arrays]:
    defaults = suite_of("gemm_ordered").defaults
    case = Case("gemm_ordered", defaults.replace(dtype="fp32", **flags), Gemm(48, 64, 32), input_name)
    return case, expect(case).inputs


@pytest.mark.parametrize(
    ("flags", "other", "name"),
    [
        ({"alpha": -2}, {"alpha": 1}, "alpha ignored"),
        ({"beta": 0.5}, {"beta": 1}, "beta ignored"),
        ({"b_e4m3_max": 256}, {"b_e4m3_max": 448}, "e4m3_max mixed up"),
        ({"b_scale_layout": "swizzled"}, {"b_scale_layout": "compact"}, "compact and swizzled mixed up"),
    ],
)
def test_a_gemm_under_other_flags(flags, other, name):
    case, tensors = gemm_case(**flags)
    wrong = replace(case, flags=case.flags.replace(**other))
    assert cause(gemm_ordered, case, tensors, gemm_ordered.numpy_oracle(wrong, tensors)) == name


@pytest.mark.parametrize(
    ("array", "change", "name"),
    [
        ("a_amax", np.ones_like, "amax factor of another line"),
        ("a_amax", lambda amax: amax[np.arange(48) ^ 1], "amax factor of another line"),
        ("b_scale_inv", lambda scales: np.full_like(scales, 0x38), "scales left out"),
        ("a_data", lambda data: data >> 4 | data << 4, "nibble swap"),
        ("b_scale_inv", lambda scales: scales[:, [1, 0, 3, 2]], "scale of another block"),
    ],
)
def test_a_gemm_of_other_arrays(array, change, name):
    case, tensors = gemm_case(epilogue="row_scaled")
    wrong = {**tensors, array: change(tensors[array])}
    expected = name if change is not np.ones_like else "amaxes left out"
    assert cause(gemm_ordered, case, tensors, gemm_ordered.numpy_oracle(case, wrong)) == expected


@pytest.mark.parametrize("layout", ["compact", "swizzled"])
@pytest.mark.parametrize("factor", [2.0**-16, 1])  # of ue5m3's greatest value for the bytes, and of e4m3's
def test_a_gemm_that_reads_ue5m3_as_e4m3(layout, factor):
    case, tensors = gemm_case("wide_sum", scale_format="ue5m3", b_scale_layout=layout)
    assert (tensors["a_scale_inv"] >= 0x80).any()  # which are negative as e4m3
    wrong = replace(case, flags=case.flags.replace(scale_format="e4m3", alpha=factor))
    actual = gemm_ordered.numpy_oracle(wrong, tensors)
    assert cause(gemm_ordered, case, tensors, actual) == "scales read as e4m3"
    one = {**tensors, "b_scale_inv": tensors["b_scale_inv"][::-1].copy()}
    assert cause(gemm_ordered, case, tensors, gemm_ordered.numpy_oracle(case, one)) != "scales read as e4m3"


def test_parts_of_the_sums_of_a_gemm():
    case, tensors = gemm_case()
    cut = {**tensors, "a_data": tensors["a_data"].copy()}
    cut["a_data"][:, 8:16] = 0
    assert cause(gemm_ordered, case, tensors, gemm_ordered.numpy_oracle(case, cut)) == "a part of the sum"
    right = gemm_ordered.numpy_oracle(case, tensors)["output"]
    assert cause(gemm_ordered, case, tensors, {"output": right * np.float32(128)}) == "not known (a constant factor)"


def test_sums_that_no_parts_give_are_no_parts_of_them():
    """An average over all outputs would be near whole counts of the parts."""
    defaults = suite_of("gemm_ordered").defaults
    case = Case("gemm_ordered", defaults.replace(epilogue="per_token_fused"), Gemm(80, 144, 144), "exact_sum")
    tensors = expect(case).inputs
    wrong = {**tensors, "b_amax": tensors["b_amax"].copy()}
    wrong["b_amax"][128:] = wrong["b_amax"][:16]
    assert cause(gemm_ordered, case, tensors, gemm_ordered.numpy_oracle(case, wrong)) != "a part of the sum"


def test_roundings_of_the_sums():
    case, tensors = gemm_case("wide_sum")
    turned = dict(tensors)
    for name in "ab":
        turned[f"{name}_data"] = tensors[f"{name}_data"].reshape(-1, 4, 8)[:, ::-1].reshape(-1, 32)
        scales = tensors[f"{name}_scale_inv"].copy()
        scales[:, :4] = scales[:, 3::-1]
        turned[f"{name}_scale_inv"] = scales
    told = "not known (roundings of the sums)"
    assert cause(gemm_ordered, case, tensors, gemm_ordered.numpy_oracle(case, turned)) == told


def test_the_other_candidate():
    defaults = suite_of("four_over_six").defaults
    case = Case("four_over_six", defaults.replace(outputs="rowwise"), Dense(48, 80))
    tensors = four_over_six.inputs(case, tensor(48, 80))
    other = replace(case, flags=case.flags.replace(error="mse"))
    assert cause(four_over_six, case, tensors, four_over_six.numpy_oracle(other, tensors)) == "mae and mse mixed up"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(four_over_six, "STEP_TO_FOUR", np.float32(1))
        six = four_over_six.numpy_oracle(case, tensors)
    assert cause(four_over_six, case, tensors, six) == "another candidate"


def test_other_random_bits():
    case, tensors = asked(rounding="sr", outputs="rowwise")
    random = nvfp4.random_bytes
    actual = mutated("random_bytes", lambda *of: random(*of) ^ 0x55, case, tensors)
    assert cause(per_tensor, case, tensors, actual) == "other random bits"
