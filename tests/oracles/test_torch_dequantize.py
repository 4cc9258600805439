"""The torch oracle's decoder against the steps of the contract on NumPy scalars."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness.contract.case import Case, Flags
from harness.contract.problem import Dense
from harness.errors import ContractError
from harness.oracles import torch_layout, torch_oracle, torch_source

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def decoding(dtype: str, **flags) -> Case:
    base = {"dtype": dtype, "scale_layout": "compact", "block": "block_1x16", "granularity": "tensor", "e4m3_max": 448}
    return Case("dequantize", Flags({**base, "outputs": "rowwise", **flags}), Dense(0, 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("granularity", ["tensor", "row", "window"])
@pytest.mark.parametrize("e4m3_max", [448, 256])
def test_dequantize_rounds_after_every_product(monkeypatch, dtype, granularity, e4m3_max):
    generator = torch.Generator().manual_seed(7)
    data = torch.randint(0, 256, (64, 64), generator=generator).to(torch.uint8)
    scale_inv = torch.randint(0, 127, (128, 8), generator=generator).to(torch.uint8)
    amax = torch.rand({"tensor": (1,), "row": (64,), "window": (64, 2)}[granularity], generator=generator) * 1e3
    case = decoding(dtype, granularity=granularity, e4m3_max=e4m3_max)
    tensors = {"data": data, "scale_inv": scale_inv, "amax": amax}
    output = torch_oracle.dequantize(case, tensors)["output"]
    assert output.shape == (64, 128) and output.dtype == DTYPES[dtype]
    rescale = {448: np.uint32(0x39C30C31), 256: np.uint32(0x3A2AAAAB)}[e4m3_max].view(np.float32)
    scales = scale_inv.view(torch.float8_e4m3fn).float().numpy()
    for r, c in [(0, 0), (1, 17), (63, 127), (40, 64), (12, 63), (33, 98)]:
        granule = amax.reshape(-1, 1 if granularity != "window" else 2).numpy()
        a = granule[0 if granularity == "tensor" else r, c // 64 if granularity == "window" else 0]
        code = int(data[r, c // 2]) >> 4 * (c % 2) & 15
        q = np.float32(VALUES[code & 7] * (-1 if code & 8 else 1))
        expected = torch.tensor(q * ((scales[r, c // 16] * a) * rescale)).to(DTYPES[dtype])
        assert output[r, c] == expected
    tiled = decoding(dtype, granularity=granularity, e4m3_max=e4m3_max, scale_layout="swizzled")
    swizzled = {**tensors, "scale_inv": torch_layout.swizzle(scale_inv)}
    assert torch.equal(torch_oracle.dequantize(tiled, swizzled)["output"], output)
    monkeypatch.setattr(torch_source, "SLAB_ELEMENTS", 1)
    assert torch.equal(torch_oracle.dequantize(case, tensors)["output"], output)
    if (granularity, e4m3_max) != ("row", 256):
        by_column = decoding(dtype, granularity=granularity, e4m3_max=e4m3_max, outputs="columnwise")
        assert torch.equal(torch_oracle.dequantize(by_column, tensors)["output"], output.t())


@pytest.mark.parametrize("dtype, bits", [("fp32", 0x7FFFFFFF), ("bf16", 0x7FFF), ("fp16", 0x7FFF)])
def test_dequantize_stores_the_hardware_nan_and_keeps_signed_zero(dtype, bits):
    tensors = {
        "data": torch.full((1, 8), 0xF8, dtype=torch.uint8),
        "scale_inv": torch.full((128, 4), 0x38, dtype=torch.uint8),
        "amax": torch.tensor([float("inf")]),
    }
    output = torch_oracle.dequantize(decoding(dtype), tensors)["output"]
    integer = torch.int32 if dtype == "fp32" else torch.int16
    assert output.view(integer)[0, 0] == bits and output[0, 1] == -float("inf")
    tensors["amax"] = torch.tensor([1.0])
    output = torch_oracle.dequantize(decoding(dtype), tensors)["output"]
    assert output[0, 0] == 0 and output[0, 0].signbit()


def test_dequantize_refuses_an_amax_of_another_granularity():
    for shape, granularity in [((1,), "row"), ((64,), "tensor"), ((64,), "window"), ((64, 1), "row")]:
        tensors = {
            "data": torch.zeros(64, 64, dtype=torch.uint8),
            "scale_inv": torch.zeros(128, 8, dtype=torch.uint8),
            "amax": torch.ones(shape),
        }
        with pytest.raises(ContractError, match=rf"one amax per {granularity}, not \({shape[0]}"):
            torch_oracle.dequantize(decoding("bf16", granularity=granularity), tensors)
