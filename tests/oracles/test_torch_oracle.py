"""The torch oracle against hand-worked blocks and its own invariances."""

from __future__ import annotations

import pytest
import torch

from harness.contract.case import Case
from harness.contract.problem import Dense
from harness.errors import ContractError
from harness.oracles import torch_layout, torch_numerics, torch_oracle, torch_source
from harness.suite.suite import suite_of

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def per_tensor(rows: int, cols: int, **flags) -> Case:
    return Case("per_tensor", suite_of("per_tensor").defaults.replace(**flags), Dense(rows, cols))


def ragged(rows: int, cols: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    """Normal values with row outliers, so that block scales reach far below the largest."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, cols, generator=generator)
    return (x * torch.exp2(torch.randint(-12, 4, (rows, 1), generator=generator))).to(dtype)


def one_block(*values: float, amax: float, dtype: str = "bf16") -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of the first block (16 uint8) and its scale as float32, where another block holds the amax."""
    x = torch.zeros(16, 32, dtype=DTYPES[dtype])
    x[0, : len(values)] = torch.tensor(values)
    x[15, 31] = amax
    out = torch_oracle.quantize(per_tensor(16, 32, outputs="rowwise", dtype=dtype), x)
    data = out["rowwise_data"][0, :8]
    codes = torch.stack((data & 15, data >> 4), dim=1).flatten()
    return codes, out["rowwise_scale_inv"][0, 0].view(torch.float8_e4m3fn).float()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert list(left) == list(right)
    for name in left:
        assert left[name].dtype == right[name].dtype and left[name].shape == right[name].shape
        assert torch.equal(left[name].view(torch.uint8), right[name].view(torch.uint8)), name


@pytest.mark.parametrize("amax, block_amax", [(8.125, 3.046875), (6.5, 2.4375)])
def test_block_scale_is_the_multiply_form(amax, block_amax):
    assert one_block(block_amax, amax=amax)[1] == 176.0


@pytest.mark.parametrize("amax, block_amax, x", [(1.125, 0.5703125, 0.328125), (8.625, 3.328125, 1.9765625)])
def test_multiplier_is_the_reciprocal_form_unless_asked(amax, block_amax, x):
    assert one_block(block_amax, x, amax=amax)[0][1] == 6
    case = per_tensor(16, 16, outputs="rowwise", stage="encode")
    tensor = torch.zeros(16, 16, dtype=torch.bfloat16)
    tensor[0, :2] = torch.tensor([block_amax, x])
    given = {"rowwise_amax": torch.tensor([amax])}
    direct = torch_oracle.quantize(case, tensor, amax=given, multiplier="direct")
    assert direct["rowwise_data"][0, 0] >> 4 == 5
    assert list(direct) == ["rowwise_data", "rowwise_scale_inv"]


def test_hand_worked_block():
    # amax 2688 makes S_enc = S_dec = 1; block amax 6 gives RN(6 * RN(1/6)) = 1, so codes are the e2m1 cast of x itself.
    values = (6, -6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.0, 0.0, -0.125, 0.26171875, 4.96875, 5.03125, -2)
    codes, scale = one_block(*values, amax=2688.0)
    assert scale == 1.0
    assert codes.tolist() == [7, 15, 0, 2, 2, 4, 4, 6, 6, 8, 0, 8, 1, 6, 7, 12]


def test_even_element_is_in_the_low_nibble():
    assert torch_layout.pack(torch.tensor([[1, 2, 15, 8]], dtype=torch.uint8)).tolist() == [[0x21, 0x8F]]


def test_underflowed_block_encodes_as_largest_codes_and_zeros():
    codes, scale = one_block(2.0**-20, -(2.0**-20), 0.0, -0.0, amax=448.0)
    assert scale == 0.0
    assert codes[:4].tolist() == [7, 15, 0, 8]


def test_direct_multiplier_of_an_underflowed_block_is_zero():
    x = torch.full((16, 16), 2.0**-20, dtype=torch.bfloat16)
    case = per_tensor(16, 16, outputs="rowwise", stage="encode")
    out = torch_oracle.quantize(case, x, amax={"rowwise_amax": torch.tensor([448.0])}, multiplier="direct")
    assert not out["rowwise_data"].any()


def test_nan_and_inf_in_a_block():
    codes, scale = one_block(float("nan"), 6.0, -float("nan"), amax=2688.0)
    assert scale == 1.0 and codes[:3].tolist() == [7, 7, 7]
    codes, scale = one_block(-float("inf"), 448.0 * 3, 448.0, float("nan"), amax=1.0)
    assert scale == 448.0 and codes[:4].tolist() == [15, 5, 2, 7]


def test_zero_tensor_keeps_the_sign_of_zero():
    x = torch.zeros(16, 16, dtype=torch.float32)
    x[:, 1] = -0.0
    out = torch_oracle.quantize(per_tensor(16, 16, dtype="fp32"), x)
    assert not out["rowwise_scale_inv"].any() and not out["columnwise_scale_inv"].any()
    assert (out["rowwise_data"][:, 0] == 0x80).all() and not out["rowwise_data"][:, 1:].any()
    assert (out["columnwise_data"][1] == 0x88).all()
    assert out["rowwise_amax"].tolist() == [0.0]


def test_fast_math_changes_codes_and_no_scale():
    x = ragged(64, 64)
    plain = torch_oracle.quantize(per_tensor(64, 64), x)
    fast = torch_oracle.quantize(per_tensor(64, 64, fast_math=True), x)
    assert torch.equal(plain["rowwise_scale_inv"], fast["rowwise_scale_inv"])
    assert not torch.equal(plain["rowwise_data"], fast["rowwise_data"])


def test_the_two_directions_draw_different_bits():
    x = torch.full((16, 16), 0.3, dtype=torch.bfloat16)
    x[0, 0] = 6.0
    x = torch.maximum(x, x.t())
    out = torch_oracle.quantize(per_tensor(16, 16, rounding="sr"), x)
    assert torch.equal(out["rowwise_scale_inv"], out["columnwise_scale_inv"])
    assert not torch.equal(out["rowwise_data"], out["columnwise_data"])


def test_rht_rotates_the_columnwise_output_only():
    x = ragged(32, 48)
    rotated = torch_oracle.quantize(per_tensor(32, 48, rht=True), x)
    plain = torch_oracle.quantize(per_tensor(32, 48), x)
    y = torch_numerics.rotate(x.t().contiguous(), 0xD7E8)
    as_rows = torch_oracle.quantize(per_tensor(48, 32, outputs="rowwise"), y)
    for name in ("data", "scale_inv", "amax"):
        assert torch.equal(rotated[f"rowwise_{name}"], plain[f"rowwise_{name}"])
        assert torch.equal(rotated[f"columnwise_{name}"], as_rows[f"rowwise_{name}"])


def test_fields_shapes_and_padding():
    out = torch_oracle.quantize(per_tensor(48, 80), ragged(48, 80))
    shapes = {name: tuple(tensor.shape) for name, tensor in out.items()}
    assert shapes == {
        "rowwise_data": (48, 40),
        "rowwise_scale_inv": (128, 8),
        "rowwise_amax": (1,),
        "columnwise_data": (80, 24),
        "columnwise_scale_inv": (128, 4),
        "columnwise_amax": (1,),
    }
    assert list(shapes) == list(out)
    assert not out["rowwise_scale_inv"][48:].any() and not out["rowwise_scale_inv"][:, 5:].any()
    assert not out["columnwise_scale_inv"][80:].any() and not out["columnwise_scale_inv"][:, 3:].any()


def test_stages_together_are_the_whole():
    x = ragged(64, 32)
    whole = torch_oracle.quantize(per_tensor(64, 32, rht=True), x)
    amax = torch_oracle.quantize(per_tensor(64, 32, rht=True, stage="amax"), x)
    assert list(amax) == ["rowwise_amax", "columnwise_amax"]
    case = per_tensor(64, 32, rht=True, stage="encode")
    parts = {**torch_oracle.quantize(case, x, amax=amax), **amax}
    same({name: parts[name] for name in whole}, whole)
    with pytest.raises(ContractError, match="rowwise_amax"):
        torch_oracle.quantize(case, x)


def test_columnwise_is_the_rowwise_output_of_the_transpose():
    x = ragged(48, 80)
    columnwise = torch_oracle.quantize(per_tensor(48, 80, outputs="columnwise"), x)
    rowwise = torch_oracle.quantize(per_tensor(80, 48, outputs="rowwise"), x.t().contiguous())
    assert [name.replace("columnwise", "rowwise") for name in columnwise] == list(rowwise)
    same(dict(zip(rowwise, columnwise.values(), strict=True)), rowwise)


def test_square_blocks_share_one_scale_in_both_directions():
    x = ragged(64, 48)
    out = torch_oracle.quantize(per_tensor(64, 48, block="block_16x16"), x)
    tiles = out["rowwise_scale_inv"][:64, :3].reshape(4, 16, 3)
    assert (tiles == tiles[:, :1]).all()
    assert torch.equal(out["columnwise_scale_inv"][:48, :4].reshape(3, 16, 4)[:, 0], tiles[:, 0].t())
    columns = out["columnwise_data"]
    codes = torch.stack((columns & 15, columns >> 4), dim=2).flatten(1)
    assert torch.equal(torch_layout.pack(codes.t()), out["rowwise_data"])


def test_swizzle_is_the_offset_formula():
    compact = torch.randint(0, 256, (256, 12), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    swizzled = torch_layout.swizzle(compact).flatten()
    for r in range(256):
        for c in range(12):
            offset = ((r // 128) * 3 + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
            assert swizzled[offset] == compact[r, c]
    assert torch.equal(torch_layout.unswizzle(torch_layout.swizzle(compact)), compact)
    ragged_scales = compact[:130, :5].contiguous()
    assert torch_layout.swizzle(ragged_scales).shape == (256, 8)
    assert torch_layout.unswizzle(torch_layout.swizzle(ragged_scales))[130:].sum() == 0


def test_swizzled_flag_swizzles_both_scale_fields():
    x = ragged(272, 304)
    compact = torch_oracle.quantize(per_tensor(272, 304), x)
    swizzled = torch_oracle.quantize(per_tensor(272, 304, scale_layout="swizzled"), x)
    for name, tensor in swizzled.items():
        expected = torch_layout.swizzle(compact[name]) if name.endswith("scale_inv") else compact[name]
        assert torch.equal(tensor, expected), name


@pytest.mark.parametrize("granularity", ["tensor", "row", "window"])
@pytest.mark.parametrize("flags", [{}, {"rounding": "sr"}, {"rht": True, "rounding": "sr"}], ids=str)
def test_bytes_do_not_depend_on_the_slab(monkeypatch, granularity, flags):
    x = ragged(320, 448)
    case = per_tensor(320, 448, **flags)
    whole = torch_oracle.quantize(case, x, granularity)
    for slab_elements in (1, 128 * 256):
        monkeypatch.setattr(torch_source, "SLAB_ELEMENTS", slab_elements)
        same(torch_oracle.quantize(case, x, granularity), whole)


def test_slabs_cover_every_element_once():
    seen = torch.zeros(400, 272, dtype=torch.int32)
    count = 0
    for slab in torch_layout.slabs(400, 272, 128 * 128):
        seen[slab] += 1
        count += 1
    assert (seen == 1).all() and count == 12
    assert list(torch_layout.slabs(0, 128, 100)) == []


@pytest.mark.parametrize("outputs", ["rowwise", "columnwise"])
def test_row_granularity_is_the_tensor_recipe_on_every_row(outputs):
    x = ragged(32, 48)
    if outputs == "columnwise":
        x = x.t().contiguous()
    out = torch_oracle.quantize(per_tensor(*x.shape, outputs=outputs), x, "row")
    lines = x if outputs == "rowwise" else x.t()
    assert out[f"{outputs}_amax"].shape == (32,)
    for row in range(32):
        alone = torch.zeros(16, 48, dtype=torch.bfloat16)
        alone[0] = lines[row]
        expected = torch_oracle.quantize(per_tensor(16, 48, outputs="rowwise"), alone)
        assert torch.equal(out[f"{outputs}_data"][row], expected["rowwise_data"][0])
        assert torch.equal(out[f"{outputs}_scale_inv"][row], expected["rowwise_scale_inv"][0])
        assert out[f"{outputs}_amax"][row] == expected["rowwise_amax"][0]


@pytest.mark.parametrize("multiplier", ["direct", "reciprocal"])
@pytest.mark.parametrize("outputs", ["rowwise", "columnwise"])
def test_window_granularity_is_the_tensor_recipe_on_every_window(outputs, multiplier):
    x = ragged(64, 192, seed=3)
    x[3] = 0.0
    if outputs == "columnwise":
        x = x.t().contiguous()
    options = {"multiplier": multiplier, "amax_floor": 1e-12, "clamp_scale": False}
    out = torch_oracle.quantize(per_tensor(*x.shape, outputs=outputs), x, "window", **options)
    lines = x if outputs == "rowwise" else x.t()
    assert out[f"{outputs}_amax"].shape == (64, 3)
    for row in range(64):
        for window in range(3):
            alone = torch.zeros(16, 64, dtype=torch.bfloat16)
            alone[0] = lines[row, 64 * window : 64 * window + 64]
            expected = torch_oracle.quantize(per_tensor(16, 64, outputs="rowwise"), alone, **options)
            data = out[f"{outputs}_data"][row, 32 * window : 32 * window + 32]
            assert torch.equal(data, expected["rowwise_data"][0])
            scales = out[f"{outputs}_scale_inv"][row, 4 * window : 4 * window + 4]
            assert torch.equal(scales, expected["rowwise_scale_inv"][0, :4])
            assert out[f"{outputs}_amax"][row, window] == expected["rowwise_amax"][0]


@pytest.mark.parametrize("granularity", ["tensor", "row", "window"])
def test_encode_refuses_an_amax_of_another_granularity(granularity):
    given = {"rowwise_amax": torch.ones(3)}
    with pytest.raises(
        ContractError, match=rf"rowwise_amax must have the shape .*, one amax per {granularity}, not \(3,\)"
    ):
        torch_oracle.quantize(per_tensor(64, 64, stage="encode", outputs="rowwise"), ragged(64, 64), granularity, given)


def test_the_amax_fields_stay_raw_under_a_floor():
    x = torch.full((64, 64), 2.0**-60, dtype=torch.bfloat16)
    out = torch_oracle.quantize(per_tensor(64, 64), x, "window", multiplier="direct", amax_floor=1e-12)
    assert (out["rowwise_amax"] == 2.0**-60).all() and (out["columnwise_amax"] == 2.0**-60).all()
    # S_enc = 2688/1e-12, so the block scale is 448 * 2^-60/1e-12 = 3.9e-4, less than half of the least e4m3 value.
    assert not out["rowwise_scale_inv"].any() and not out["rowwise_data"].any()


def test_the_largest_window_amax_is_the_per_tensor_amax():
    x = ragged(192, 128)
    windows = torch_oracle.quantize(per_tensor(192, 128, stage="amax"), x, "window")
    tensor = torch_oracle.quantize(per_tensor(192, 128, stage="amax"), x)
    for side, amax in tensor.items():
        assert windows[side].max() == amax[0]
