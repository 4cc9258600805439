"""The public implementations that come with the harness, where they are installed, and what surrounds their calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness import emulator, subjects
from harness.errors import CompileError
from harness.expectation import expect
from harness.oracles import layout
from harness.subjects import conventions, cuda_fp4, handover
from harness.suite import find_case

PEERS = ("fouroversix_pytorch", "fouroversix_triton", "torchao", "torchao_compiled", "cuda_fp4")


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
        return emulator.Module(cuda_fp4.compiled("compute_90a", machine_code=False).decode().rstrip("\0"))
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
        emulator.Buffer(name, arrays[name].view(np.uint8).reshape(-1))
        for name in ("input", "rowwise_amax", "rowwise_data", "rowwise_scale_inv")
    ]
    emulator.launch(
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
