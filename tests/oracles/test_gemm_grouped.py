"""gemm_grouped: every group equals the dense recipe on it alone, wherever empty groups stand; refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from quantized import assert_arrays_refused, assert_refused

from harness.contract.interval import Interval
from harness.errors import ContractError
from harness.expected.expected import expect, high_precision
from harness.oracles import gemm, gemm_grouped, gemm_ordered
from harness.suite.suite import find_case, suite_of
from harness.text import spell

SHAPE = "0+128+0+256x48x80"
WHOLE = "128+0+128x128x256"
LAST = "shape_representation=varying_last_dim"
BOTH = "shape_representation=varying_both_dims"
EACH = "16+0+144+16+32x48+16+32+80+0x32+48+16+0+16"  # a group without rows, one without columns, and one without K
FLAGS = [
    ("alpha=-2,beta=0.5", SHAPE),
    ("dtype=fp32,layout=nn,a_scale_layout=swizzled,b_scale_layout=swizzled,a_e4m3_max=256,b_e4m3_max=256", SHAPE),
    ("epilogue=row_scaled,a_scale_layout=swizzled,a_e4m3_max=256,bias=true,accumulate=true", SHAPE),
    ("epilogue=row_scaled,layout=nn,b_e4m3_max=256,b_granularity=tensor", SHAPE),
    ("epilogue=per_token_fused,b_scale_layout=swizzled", WHOLE),
    ("epilogue=per_token_fused,layout=nn", WHOLE),
    ("epilogue=row_scaled,a_scale_layout=swizzled,bias=true", "1+130+0+17x48x80"),
    (f"{LAST},layout=nt,b_scale_layout=swizzled,b_e4m3_max=256,beta=0.5", "48x16+0+80x32"),
    (f"{LAST},epilogue=row_scaled,dtype=fp32,layout=nt,accumulate=true", "144x0+48+16x32"),
    (f"{LAST},epilogue=per_token_fused,layout=nt,bias=true", "16x0+144x144"),
    (f"{BOTH},a_e4m3_max=256,a_scale_layout=swizzled,alpha=-2,beta=0.5,bias=true", EACH),
    (f"{BOTH},epilogue=row_scaled,layout=nn,b_scale_layout=swizzled,bias=true,accumulate=true", EACH),
    (f"{BOTH},epilogue=row_scaled,b_granularity=tensor,b_e4m3_max=256", "3*16x48x32+16+48"),
    (f"{BOTH},epilogue=per_token_fused,dtype=fp32,layout=nt,accumulate=true", EACH),
    (f"{BOTH},beta=1,layout=nt", "144+16x48x32"),
]


def case_of(flags="default", shape=SHAPE, input_name="normal"):
    return find_case(f"gemm_grouped/{flags}/{shape}/{input_name}/eager")


def groups(case):
    """(number, dense case) of every group that has an output."""
    return [(g, part) for g, part in enumerate(case.parts) if part.rows and part.problem.n]


def ends(demand):
    return (demand.low, demand.high) if isinstance(demand, Interval) else (demand, demand)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize("input_name", ["normal", "exact_sum", "wide_sum", "specials_nan"])
@pytest.mark.parametrize(("flags", "shape"), FLAGS)
def test_every_group_is_the_dense_one(flags, shape, input_name):
    """With operands that the dense recipe makes, put together here and not by the oracle."""
    require_dense(case_of(flags, shape, input_name))


@pytest.mark.parametrize("seed", range(12))
def test_groups_of_any_extents_are_the_dense_ones(seed):
    rng = np.random.default_rng(seed)
    extents = rng.choice([0, 16, 32, 48, 144], (3, rng.integers(2, 7)))
    epilogue = ("per_tensor", "row_scaled", "per_token_fused")[seed % 3]
    flags = {"epilogue": epilogue, "layout": str(rng.choice(["tn", "nn", "nt"]))}
    flags |= {f"{name}_scale_layout": str(rng.choice(["compact", "swizzled"])) for name in "ab"}
    added = {"per_tensor": {"beta": 0.5, "bias": True}, "row_scaled": {"accumulate": True, "bias": True}}
    flags |= added.get(epilogue, {"accumulate": True, "dtype": "fp32"}) if rng.integers(2) else {}
    suite, shape = suite_of("gemm_grouped"), "x".join("+".join(map(str, side)) for side in extents)
    flags = {name: flags.get(name, default) for name, default in suite.defaults.items()}
    variant = ",".join(f"{name}={spell(value)}" for name, value in flags.items() if value != suite.defaults[name])
    require_dense(case_of(f"{BOTH},{variant}".rstrip(","), shape, str(rng.choice(["normal", "wide_sum"]))))


def require_dense(case):
    expected = expect(case)
    assert expected.disagreement == "" and expected.oracles == ("numpy", "torch")
    output, field = expected.values["output"], gemm_grouped.outputs(case)["output"]
    assert {end.shape for end in ends(output)} == {field.shape}
    for g, dense in groups(case):
        if not dense.cols:  # the epilogue of zeros
            continue
        alone = gemm.inputs(dense, **high_precision(dense))
        given = gemm_grouped.inputs_of(case, expected.inputs, g)
        assert given.keys() == alone.keys()
        for name, array in alone.items():
            assert given[name].shape == array.shape and given[name].tobytes() == array.tobytes(), name
        right = gemm.numpy_oracle(dense, alone)["output"]
        assert [field.part(end, g).tobytes() for end in ends(output)] == [end.tobytes() for end in ends(right)]


def test_exact_sums_are_those_of_the_stated_order():
    case = case_of("alpha=0.75", SHAPE, "exact_sum")
    expected = expect(case)
    ordered = [
        gemm_ordered.numpy_oracle(
            replace(dense, recipe="gemm_ordered"), gemm_grouped.inputs_of(case, expected.inputs, g)
        )
        for g, dense in groups(case)
    ]
    np.testing.assert_array_equal(expected.values["output"], np.concatenate([one["output"] for one in ordered]))


@pytest.mark.parametrize("input_name", ["normal", "exact_sum"])
def test_no_two_groups_read_the_same(input_name):
    """If two groups had equal data, a kernel that takes one for the other would go unnoticed."""
    case = case_of("beta=1", "128+0+128+128x64x32", input_name)
    tensors = expect(case).inputs
    given = [gemm_grouped.inputs_of(case, tensors, g) for g in range(4)]
    for name in ("b_data", "b_scale_inv"):
        assert len({one[name].tobytes() for one in given}) == 4
    for name in ("a_data", "a_scale_inv", "c"):
        assert len({given[g][name].tobytes() for g in (0, 2, 3)}) == 3
    # bf16 amaxes of 8192 and 2048 normal values are few
    assert all(len({one[name].tobytes() for one in given}) > 2 for name in ("a_amax", "b_amax"))


def test_an_empty_group_has_no_rows_and_a_b():
    case = case_of("beta=1", "0+128+0x48x32")
    tensors = expect(case).inputs
    for g in (0, 2):
        own = gemm_grouped.inputs_of(case, tensors, g)
        assert {name: own[name].shape for name in ("a_data", "a_scale_inv", "c")} == {
            "a_data": (0, 24), "a_scale_inv": (0, 4), "c": (0, 32),
        }  # fmt: skip
        assert own["a_amax"].tolist() == [0]
        assert own["b_data"].any() and own["b_amax"] > 0
    assert tensors["first_dims"].tolist() == [0, 128, 0]
    assert tensors["last_dims"].tolist() == [48, 48, 48]
    assert tensors["tensor_offsets"].tolist() == [0, 0, 128 * 48, 128 * 48]


@pytest.mark.parametrize("input_name", ["normal", "exact_sum"])
def test_nothing_but_empty_groups(input_name):
    expected = expect(case_of("dtype=fp32", "0+0x16x32", input_name))
    assert expected.disagreement == ""
    assert (expected.values["output"].shape, expected.values["output"].dtype) == ((0, 32), np.float32)


def test_a_group_alone_is_the_dense_case():
    case = case_of("alpha=-2", "128x64x48")
    assert case.shape == "128x64x48"
    dense = case.part(0)
    assert (dense.recipe, dense.shape, dense.variant) == ("gemm", "128x64x48", "alpha=-2")
    value = expect(case).values["output"]
    np.testing.assert_array_equal(value.low, expect(dense).values["output"].low)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"layout": "nt"},
            "must be varying_last_dim or varying_both_dims, not varying_first_dim: with layout nt K alone differs from "
            "group to group, or M, N and K may",
        ),
        (
            {"shape_representation": "varying_last_dim"},
            "must be varying_first_dim or varying_both_dims, not varying_last_dim: with layout tn M alone differs",
        ),
        (
            {"shape_representation": "varying_both_dims"},
            "N of each group exactly in varying_both_dims, not in varying_bo",
        ),
        ({"epilogue": "per_token"}, "epilogue must not be per_token, whose second kernel"),
        ({"recipe": "gemm_ordered"}, "recipe must be gemm, not gemm_ordered"),
        ({"shape_representation": "same_both_dims"}, "shape_representation must be varying_first_dim"),
        ({"accumulate": True}, "accumulate must be false, not true: the epilogue per_tensor"),
    ],
)
def test_refused_flags(flags, sentence):
    case = case_of()
    case = replace(case, flags=case.flags.replace(**flags))
    assert_refused(gemm_grouped, case, sentence)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (((128, 48), (128, 64)), "tensor 1 has cols = 64 where tensor 0 has 48"),
        (((128, 48),) * 65, "tensor 64 is one too many: 65 tensors; at most 64"),
    ],
)
def test_refused_groups(tensors, sentence):
    case = case_of()
    case = replace(case, problem=replace(case.problem, m=sum(rows for rows, _ in tensors), tensors=tensors))
    with pytest.raises(ContractError, match=sentence):
        gemm_grouped.outputs(case)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("a_amax", lambda x: x[:1], r"amax of operand A must have the shape \(4,\), one amax per tensor, not \(1,\)"),
        ("b_amax", lambda x: np.repeat(x, 80), r"amax of operand B must have the shape \(4,\)"),
        ("b_data", lambda x: x[80:], r"data of operand B must have the shape \(320, 24\), not \(240, 24\)"),
        ("a_scale_inv", lambda x: x[:256], r"scale_inv of operand A must have the shape \(384, 4\)"),
        ("b_scale_inv", lambda x: x[:320], r"scale_inv of operand B must have the shape \(512, 4\)"),
        ("c", lambda x: None, "c is missing"),
        ("bias", lambda x: np.zeros(320, np.float32), "bias is given, and no flag asks for it"),
        ("first_dims", lambda x: x[::-1].copy(), "tensor 0 ends at element 0"),
        ("first_dims", lambda x: x[1:], "first_dims has 3 entries and must have 4"),
        ("last_dims", lambda x: x + 16, "tensor 0 has|cols"),
        ("tensor_offsets", lambda x: x + 16, "tensor 0 starts at element 16"),
        ("tensor_offsets", lambda x: None, "tensor_offsets is missing"),
        ("b_amax", lambda x: np.array([1, 1, 1, 3e38], np.float32), "group 3: .*overflows float32"),
    ],
)  # fmt: skip
def test_refused_arrays(name, change, sentence):
    case = case_of("alpha=-2,beta=1")
    tensors = dict(expect(case).inputs)
    changed = change(tensors.get(name))
    tensors = {key: array for key, array in tensors.items() if key != name}
    if changed is not None:
        tensors[name] = changed
    assert_arrays_refused(case, tensors, sentence)


@pytest.mark.parametrize("flags", ["dtype=fp32,beta=0.5", "epilogue=per_token_fused,dtype=fp32,accumulate=true"])
def test_a_group_without_k_is_what_its_epilogue_makes_of_zeros(flags):
    epilogue, *others = flags.split(",")
    flags = ",".join([LAST, *([epilogue] if "epilogue" in epilogue else []), "dtype=fp32", "layout=nt", others[-1]])
    case = case_of(flags, "16x0+48x32", "normal")
    expected = expect(case)
    assert expected.disagreement == ""
    tensors, output = expected.inputs, expected.values["output"]
    own = gemm_grouped.inputs_of(case, tensors, 0)
    assert {name: own[name].size for name in ("a_data", "a_scale_inv", "b_data")} == dict.fromkeys(
        ("a_data", "a_scale_inv", "b_data"), 0
    )
    assert not own["a_amax"].any() and not own["b_amax"].any()
    added = tensors["c"][:16] * np.float32(case.flags.beta or 1)
    np.testing.assert_array_equal(output.low[:16], added)
    np.testing.assert_array_equal(output.high[:16], added)


def test_codes_of_groups_of_other_k_lie_back_to_back():
    case = case_of(f"{LAST},layout=nt", "48x16+0+80x32")
    tensors = expect(case).inputs
    assert tensors["a_data"].shape == (48 * (16 + 80) // 2,)
    assert tensors["b_scale_inv"].shape == (128 * 4 + 128 * 8,)
    assert tensors["tensor_offsets"].tolist() == [0, 48 * 16, 48 * 16, 48 * 96]
    assert case.problem.elements == sum(48 * k + 32 * (48 + k) for k in (16, 0, 80))


@pytest.mark.parametrize("flags", ["beta=1", "epilogue=row_scaled,accumulate=true", "epilogue=per_token_fused"])
def test_a_part_of_an_allocation_is_the_group_without_the_rest(flags):
    """Behind the groups' rows the inputs hold NaN, and the output has no interval there."""
    part, whole = (case_of(flags, shape) for shape in ("128+0+256of640x48x32", "128+0+256x48x32"))
    part = replace(part, seed_of=whole.seed_name)
    expected, right = expect(part), expect(whole)
    assert expected.disagreement == ""
    for name in ("low", "high"):
        ours, theirs = (getattr(found.values["output"], name) for found in (expected, right))
        assert ours.tobytes() == theirs.tobytes()
    field = gemm_grouped.outputs(part)["output"]
    assert (field.shape, field.slack) == ((384, 32), 256 * 32)
    for name, array in expected.inputs.items():
        if name in ("a_data", "a_scale_inv", "c") or (name == "a_amax" and "epilogue" in flags):
            own = right.inputs[name]
            assert len(array) == 640 and array[:384].tobytes() == own.tobytes(), name
            slack = array[384:]
            assert (slack == 0x7F).all() if slack.dtype == np.uint8 else np.isnan(slack.astype(np.float32)).all()
        else:
            np.testing.assert_array_equal(array, right.inputs[name])


def test_arrays_of_groups_that_share_no_extent_lie_back_to_back():
    case = case_of(f"{BOTH},beta=1,bias=true", EACH)
    tensors = expect(case).inputs
    groups = [(16, 48, 32), (0, 16, 48), (144, 32, 16), (16, 80, 0), (32, 0, 16)]
    sizes = {
        "a_data": sum(m * k // 2 for m, k, _ in groups),
        "b_data": sum(n * k // 2 for _, k, n in groups),
        "c": sum(m * n for m, _, n in groups),
        "bias": sum(n for *_, n in groups),
        "a_scale_inv": 128 * 4 + 256 * 4 + 128 * 8,
        "b_scale_inv": 128 * 4 + 128 * 4 + 128 * 4,
        "a_amax": 5,
        "b_amax": 5,
        "tensor_offsets": 6,
    }
    assert {name: tensors[name].size for name in sizes} == sizes
    assert tensors["n_dims"].tolist() == [32, 48, 16, 0, 16]
    assert (tensors["a_amax"] == 0).tolist() == [False, True, False, False, True]
    assert (tensors["b_amax"] == 0).tolist() == [False, False, False, True, True]
    assert case.problem.terms == 16 * 48 * 32 + 144 * 32 * 16
    assert case.problem.elements == sum(m * k + n * (m + k) for m, k, n in groups)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda n: None, "n_dims is missing"),
        (lambda n: n[1:], "n_dims has 4 entries and must have 5"),
        (lambda n: n + [0, 0, 16, 0, 0], "n_dims has 32 of N for group 2, and the case 16"),
        (lambda n: n.astype(float), r"n_dims\[0\] is 32.0; it must be an integer"),
    ],
)
def test_an_array_of_other_ns(change, sentence):
    case = case_of(BOTH, EACH)
    tensors = dict(expect(case).inputs)
    changed = change(tensors.pop("n_dims"))
    if changed is not None:
        tensors["n_dims"] = changed
    assert_arrays_refused(case, tensors, sentence)


@pytest.mark.parametrize(
    ("flags", "shape", "dims", "offsets", "sentence"),
    [
        (f"{LAST},layout=nt", "48x16+32x32", ("last_dims", [32, 16]), [0, 48 * 32, 48 * 48], "last_dims has 32 of K"),
        ("default", "128+256x16x16", ("first_dims", [256, 128]), [0, 4096, 6144], "first_dims has 256 rows"),
    ],
)
def test_dims_that_are_legal_and_not_the_case(flags, shape, dims, offsets, sentence):
    case, (name, extents) = case_of(flags, shape), dims
    tensors = expect(case).inputs | {name: np.array(extents), "tensor_offsets": np.array(offsets)}
    right = 16 if name == "last_dims" else 128
    assert_arrays_refused(case, tensors, f"{sentence} for group 0, and the case {right}")


def test_what_the_suite_excludes_the_oracle_refuses():
    suite = suite_of("gemm_grouped")
    for exclusion in suite.file.exclude:
        flags = suite.defaults.replace(**{name: values[0] for name, values in exclusion.when.items()})
        case = replace(case_of("default", WHOLE), flags=flags)
        with pytest.raises(ContractError):
            gemm_grouped.refuse(case)
