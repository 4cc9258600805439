"""The public implementations that come with the harness, where they are installed, and what surrounds their calls."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import torch
from own_recipe import in_use

from evidence.agreement import answers
from harness.contract.problem import Dense
from harness.errors import CompileError
from harness.expected.expected import expect, expect_on, oracle_of
from harness.files import ROOT
from harness.oracles import layout, torch_layout, torch_numerics
from harness.subjects import cuda_fp4, flashinfer_contract, handover
from harness.subjects import subject as subjects
from harness.subjects.audit import conventions
from harness.suite.suite import find_case
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

W4A16 = ("humming", "humming_invariant")
PEERS = (
    "fouroversix_pytorch",
    "fouroversix_triton",
    "torchao",
    "torchao_compiled",
    "torchao_triton",
    "cuda_fp4",
    "flashinfer_contract",
    *W4A16,
)


def outputs_of(expected):
    """Poisoned arrays for every field."""
    arrays = {name: np.empty(field.shape, field.dtype) for name, field in expected.fields.items()}
    for array in arrays.values():
        array.view(np.uint8)[...] = 0x5A
    return arrays


@pytest.mark.parametrize("name", ["fouroversix_pytorch", "torchao"])
@pytest.mark.parametrize(
    "case_id",
    [
        "per_tensor/stage=encode/128x128/normal/eager",
        "per_tensor/default/48x80/outliers_rows/eager",
        "per_tensor/outputs=columnwise,scale_layout=swizzled/48x80/zero_blocks/eager",
        "per_tensor/block=block_16x16,rounding=sr/64x128/heavy_tail/eager",
        "per_tensor/default/48x80/zeros/eager",
        "four_over_six/error=mse/128x128/normal/eager",
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_every_byte_of_theirs_is_ours_or_a_convention(name, case_id):
    subject, case = subjects.load(name), find_case(case_id)
    if why := subject.absent() or subject.refuses(case):
        pytest.skip(why)
    expected = expect(case)
    written = outputs_of(expected)
    subject.quantize(case, expected.inputs, written)
    assert conventions.explain(case, expected.inputs, expected.values, written, subject.conventions) is not None


@pytest.mark.filterwarnings("ignore")
def test_a_code_beyond_six_is_a_bug_of_the_pytorch_reference():
    """It does not saturate: where a subnormal scale was rounded down, the 8 that it rounds to becomes another code."""
    subject = subjects.load("fouroversix_pytorch")
    if why := subject.absent():
        pytest.skip(why)
    case = find_case("per_tensor/default/128x256/row_scales/eager")
    expected = expect(case)
    written = outputs_of(expected)
    subject.quantize(case, expected.inputs, written)
    assert conventions.explain(case, expected.inputs, expected.values, written, subject.conventions) is None


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_a_subject_with_a_way_to_install_it(name):
    subject = subjects.load(name)
    assert name in subjects.names()
    assert subject.conventions <= set(conventions.Convention)
    assert all("pip install" in line for line in subject.needs.values())
    assert subject.refuses(find_case("dequantize/default/128x128/normal/eager"))
    if subject.needs:
        absent = subjects.Subject(name, "", subject.quantize, {"no-such-package": "pip install it"})
        assert absent.absent() == f"subject {name} is not installed; `pip install it`"


@pytest.mark.parametrize("name", ["torchao", "fouroversix_pytorch"])
@pytest.mark.parametrize("flags", ["stage=amax", "fast_math=true"])
def test_what_a_peer_has_not_is_refused_in_a_sentence(name, flags):
    assert subjects.load(name).refuses(find_case(f"per_tensor/{flags}/128x128/normal/eager"))


@pytest.fixture
def w4a16(monkeypatch):
    """A stand-in for Humming, which decodes what it is given by itself and multiplies in float64."""
    asked = {}

    def packed(tensors, n, k, schema, *, torch_dtype, device):
        assert schema == torch_dtype == torch.bfloat16
        weight, scale, factor = tensors["weight"], tensors["weight_scale"], tensors["weight_scale_2"]
        assert (weight.dtype, weight.shape) == (torch.int32, (n, k // 8))
        assert (scale.dtype, scale.shape) == (torch.float8_e4m3fn, (n, k // 16)) and scale.is_contiguous()
        assert (factor.dtype, factor.shape) == (torch.float32, (1,))
        return "config", tensors

    def tile(config, *, shape_m, use_batch_invariant):
        asked.update(shape_m=shape_m, use_batch_invariant=use_batch_invariant)
        return {"block_shape": (16, 128, 64)}

    def forward(*, config, inputs, weight, weight_scale, weight_scale_2, locks, compute_config, tuning_config):
        assert config == "config" and not locks.any() and inputs.dtype == torch.bfloat16
        assert json.loads(compute_config) == {"use_batch_invariant": asked["use_batch_invariant"]}
        assert json.loads(tuning_config) == {"block_shape": [16, 128, 64]}
        eighths = [(weight >> 4 * number) & 15 for number in range(8)]  # the first of eight in the lowest bits
        values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
        decoded = values[torch.stack(eighths, dim=-1).flatten(1).long()] * weight_scale.double().repeat_interleave(
            16, 1
        )
        return ((inputs.double() @ decoded.T).float() * weight_scale_2).bfloat16()

    class Modelopt:
        def to_humming_schema(self, dtype):
            return dtype

    for name, functions in {
        "humming": {},
        "humming.schema": {},
        "humming.schema.modelopt": {"ModeloptNvfp4WeightSchema": Modelopt},
        "humming.transform": {"prepare_and_transform_humming_tensors": packed},
        "humming.tune": {"get_heuristics_config": tile},
        "humming.forward": {"humming_forward": forward},
    }.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**functions))
    monkeypatch.setenv("HUMMING_DISABLE_PARALLEL_BUILD", "1")
    return asked


@pytest.mark.parametrize("name", W4A16)
@pytest.mark.parametrize("shape", ["1x128x128", "16x384x256", "80x256x128"])
@pytest.mark.parametrize("distribution", ["normal", "outliers_cols", "zero_blocks"])
def test_what_the_w4a16_product_is_given_is_the_case_s(w4a16, name, shape, distribution):
    case = find_case(f"gemm/default/{shape}/{distribution}/eager")
    subject, expected = subjects.load(name), expect(case)
    assert not subject.refuses(case)
    written = outputs_of(expected)
    subject.quantize(case, expected.inputs, written)
    assert w4a16 == {"shape_m": case.rows, "use_batch_invariant": name == "humming_invariant"}
    inside = expected.values["output"]
    np.testing.assert_array_equal(inside.nearest(written["output"]), written["output"])


@pytest.mark.parametrize("name", W4A16)
@pytest.mark.parametrize(
    "case_id, word",
    [
        ("per_tensor/default/128x128/normal/eager", "no per_tensor"),
        ("gemm/epilogue=per_token/128x128x128/normal/eager", "no epilogue other than per_tensor"),
        ("gemm/layout=nn/128x128x128/normal/eager", "no layout other than tn"),
        ("gemm/alpha=0.75/128x128x128/normal/eager", "no alpha other than 1"),
        ("gemm/default/16x144x128/normal/eager", "multiples of 128, not 128 and 144"),
    ],
)
def test_what_the_w4a16_product_has_not_is_refused_in_a_sentence(name, case_id, word):
    assert word in subjects.load(name).refuses(find_case(case_id))


# FlashInfer's contract


@pytest.fixture
def contract(monkeypatch):
    """A stand-in for FlashInfer's reference, made of ours; it is wrong where `wrong` says so."""
    wrong = set()

    def amax_ignoring_nan(values):
        found = torch_numerics.magnitude_max(values, -1)
        return torch.where(values.isnan().all(-1), torch.nan, found)

    def quantize_reference(x, scale, per_token):
        blocks = x.float().unflatten(1, (-1, 16))
        amax = reference.amax_ignoring_nan(blocks.abs())
        if per_token:
            scale = torch_numerics.global_encode_scale(reference.amax_ignoring_nan(x.float().abs()).unsqueeze(1))
        scales = torch_numerics.block_scale_inv(amax, scale, clamp=False)
        multiplier = torch_numerics.reciprocal_multiplier(scales, scale).unsqueeze(2)
        data = torch_layout.pack(torch_numerics.nearest_codes(blocks * multiplier).flatten(1))
        tiles = torch.from_numpy(layout.arrange(scales.view(torch.uint8).numpy(), "swizzled"))
        return data << 4 | data >> 4 if "nibbles" in wrong else data, tiles, None

    def make_nvfp4_global_scale(x, per_token):
        return torch.tensor([1 / 2688]) if per_token else (2688 / x.abs().max().float()).reshape(1)

    reference = SimpleNamespace(amax_ignoring_nan=amax_ignoring_nan, quantize_reference=quantize_reference)
    for name, module in {
        "": SimpleNamespace(),
        ".batch_invariant.quantization.nvfp4_reference": reference,
        ".batch_invariant.quantization.mx_reference": SimpleNamespace(amax_ignoring_nan=amax_ignoring_nan),
        ".quantization.nvfp4_quantization_utils": SimpleNamespace(make_nvfp4_global_scale=make_nvfp4_global_scale),
    }.items():
        monkeypatch.setitem(sys.modules, f"flashinfer{name}", module)
    of = replace(subjects.load("flashinfer_contract"), needs={})
    return wrong, lambda case_id: next(answers.answers(of, [find_case(case_id)]))


FILE = "file:suites/data/minilm_sample.safetensors"


@pytest.mark.parametrize("case_id, kind, said", [
    ("per_tensor/stage=encode/48x80/ties/eager", "equal", []),
    ("per_tensor/scale_layout=swizzled,stage=encode/48x80/tiny_amax/eager", "equal", []),
    ("row_scaled/outputs=both/48x80/ties/eager", "equal", []),
    ("row_scaled/default/48x80/specials_nan/eager", "convention", ["only NaN"]),
    ("per_tensor/default/48x80/specials_nan/eager", "convention", ["NaN beside numbers", "only NaN"]),
    ("per_tensor/default/48x80/specials_inf/eager", "convention", ["guards of the global scale"]),
    (f"per_tensor/default/48x80/{FILE}#ffn_up.input/eager", "order", ["order of the global scale"]),
])  # fmt: skip
def test_the_contract_differs_by_its_choices_alone(contract, case_id, kind, said):
    wrong, ask = contract
    found = ask(case_id)
    assert (found.kind, [answers.named_in(reason) for reason in found.reasons]) == (kind, said)
    if said == ["only NaN"]:
        wrong.add("nibbles")
        assert ask(case_id).kind == "bug", "no choice explains a byte that is wrong besides"


@pytest.mark.parametrize("case_id, kind", [
    ("per_tensor/stage=encode/48x80/scale_edges/eager", "equal"), ("casts/dtype=fp32/32x64/midpoints/eager", "equal"),
    ("row_scaled/default/48x80/row_scales/eager", "equal"),
    ("per_tensor/stage=encode/48x80/specials_nan/eager", "convention"),
])  # fmt: skip
def test_the_contract_where_it_is_installed(case_id, kind):
    subject = subjects.load("flashinfer_contract")
    if why := subject.absent():
        pytest.skip(why)
    case = find_case(case_id)
    assert [each.kind for each in answers.answers(subject, [case])] == [kind]
    if case.recipe == "per_tensor":  # its vectorised reference is what its exact one says, by fractions
        theirs = flashinfer_contract._nvfp4()
        x = handover.tensor(expect(case).inputs["input"])
        scale = flashinfer_contract._given_scale(handover.tensor(expect(case).inputs["rowwise_amax"]))
        data, scales, _ = theirs.exact_rows(x, scale, [0, 1])
        quick, tiles, _ = theirs.quantize_reference(x, scale)
        assert torch.equal(quick[:2], data) and torch.equal(theirs.unswizzle_sf_128x4(tiles, *x.shape)[:2], scales)


MX = ("mxfp8", "mxfp4")


def only_nan(name):
    """A case of an example, and what must be written where one block of 32 is nothing but NaN."""
    case = find_case(f"{name}/scale_rule=nearest/32x64/normal/eager")
    x = np.zeros((32, 64), ml_dtypes.bfloat16)
    x[5, :32] = np.nan
    return case, expect_on(case, {"input": x})


@pytest.mark.parametrize("name", MX)
def test_what_the_contract_of_mx_is_given_and_gives_is_the_case_s(contract, monkeypatch, name):
    """Its stand-in answers by rows, as the example's oracle does."""
    with in_use(ROOT / "examples" / name):
        case, expected = only_nan(name)
        asked = []

        def quantize_mx_reference(x, fmt, rule, scale_layout):
            asked.append((fmt, rule, scale_layout))
            rows = replace(case, problem=Dense(*x.shape), flags=case.flags.replace(outputs="rowwise"))
            found = oracle_of(name).numpy_oracle(rows, {"input": x.float().numpy()})
            data, scales = (torch.from_numpy(found[f"rowwise_{part}"]) for part in ("data", "scale_inv"))
            return data, None, scales[: x.shape[0], : x.shape[1] // 32]

        spec = SimpleNamespace(ScaleRule=lambda norm, rounding: (norm, rounding), FORMATS={each: each for each in MX})
        monkeypatch.setitem(sys.modules, "flashinfer.batch_invariant.quantization.mx_spec", spec)
        reference = sys.modules["flashinfer.batch_invariant.quantization.mx_reference"]
        monkeypatch.setattr(reference, "quantize_mx_reference", quantize_mx_reference, raising=False)
        of = replace(subjects.load("flashinfer_contract"), needs={})
        assert answers.asked(of, case, expected) == ("equal", ())
        assert asked == [(name, ("rcp", "rn"), "linear")] * 2


@pytest.mark.parametrize("name", MX)
def test_the_contract_of_mx_where_it_is_installed(name):
    subject = subjects.load("flashinfer_contract")
    if why := subject.absent():
        pytest.skip(why)
    with in_use(ROOT / "examples" / name):
        for rule in ("ceil", "floor", "nearest"):
            case = find_case(f"{name}/scale_rule={rule}/96x160/power_edges/eager")
            assert [each.kind for each in answers.answers(subject, [case])] == ["equal"]
        case, expected = only_nan(name)
        kind, (reason,) = answers.asked(subject, case, expected)
        assert kind == "convention" and reason.startswith("only NaN: 2.2: ")
        said = answers.smallest_input(subject, case, expected, "only NaN")
        assert said.startswith("32 values, all nan: ") and "is 0xFF = e8m0 nan, must be 0x00 = e8m0 5.8" in said


def test_the_contract_s_per_token_is_row_scaled():
    refuses = subjects.load("flashinfer_contract").refuses
    assert refuses(find_case("per_token/default/48x80/normal/eager")).endswith("it is row_scaled's contract")
    assert "no rht other than False" in refuses(find_case("per_tensor/rht=true/48x80/normal/eager"))
    assert "amax alone" in refuses(find_case("row_scaled/stage=amax/48x80/normal/eager"))


# What stands around their calls


@pytest.mark.parametrize("scale_layout", ["compact", "swizzled"])
@pytest.mark.parametrize("form", ["compact", "padded", "tiles"])
@pytest.mark.parametrize("shape", ["128x64", "48x80", "144x272"])
def test_scales_are_delivered_in_the_layout_of_the_case(scale_layout, form, shape):
    case = find_case(f"per_tensor/scale_layout={scale_layout},stage=encode/{shape}/normal/eager")
    expected = expect(case)
    found = {}
    for name, value in expected.values.items():
        array = value
        if name.endswith("_scale_inv"):
            field = expected.fields[name]
            valid = layout.gather(value, field.valid, scale_layout)
            whole = layout.arrange(valid, "swizzled" if form == "tiles" else "compact")
            array = valid if form == "compact" else whole.reshape(-1) if form == "tiles" else whole
        elif form == "tiles":  # of one who pads, the data are larger, too
            array = np.pad(value, ((0, 16), (0, 8)), constant_values=9)
        found[name] = torch.from_numpy(np.ascontiguousarray(array))
    written = outputs_of(expected)
    handover.deliver(case, found, written)
    for name, value in expected.values.items():
        np.testing.assert_array_equal(written[name], value, err_msg=name)


# NVIDIA's header


@pytest.fixture
def header_kernel():
    if cuda_fp4.include_folder() is None:
        pytest.skip(cuda_fp4.refuses(find_case(ENCODE.format("normal"))))
    try:
        return Module(cuda_fp4.built("compute_90a").ptx)
    except CompileError as error:
        pytest.skip(str(error))


ENCODE = "per_tensor/outputs=rowwise,stage=encode/48x80/{}/eager"


@pytest.mark.parametrize("distribution", ["normal", "ties", "scale_edges", "specials_nan", "signed_zero"])
def test_the_kernel_on_the_header_writes_the_contract_s_bytes(header_kernel, distribution):
    case = find_case(ENCODE.format(distribution))
    expected = expect(case)
    written = outputs_of(expected)
    written["rowwise_scale_inv"][:] = 0
    blocks = case.elements // 16
    arrays = {**expected.inputs, **written}
    buffers = [
        Buffer(name, arrays[name].view(np.uint8).reshape(-1))
        for name in ("input", "rowwise_amax", "rowwise_data", "rowwise_scale_inv")
    ]
    launch(
        header_kernel, "cuda_fp4_rowwise", (-(-blocks // cuda_fp4.THREADS), 1, 1), (cuda_fp4.THREADS, 1, 1),
        [*buffers, blocks, case.cols // 16, written["rowwise_scale_inv"].shape[1]],
    )  # fmt: skip
    for name, value in expected.values.items():
        np.testing.assert_array_equal(written[name], value, err_msg=name)


def test_without_the_header_its_kernel_is_refused_with_where_it_was_sought(monkeypatch):
    monkeypatch.setattr(cuda_fp4, "HEADER", "no_such_header.h")
    reason = cuda_fp4.refuses(find_case(ENCODE.format("normal")))
    assert reason.startswith("no no_such_header.h among ")
    assert "/usr/local/cuda/include" in reason
