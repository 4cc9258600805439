"""The torch oracle's four_over_six on blocks worked by hand, and against its own invariances."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness.contract.case import Case, Flags
from harness.contract.problem import Dense
from harness.errors import ContractError
from harness.oracles import torch_layout, torch_source
from harness.oracles.torch_four_over_six import choose, four_over_six, map4
from harness.suite.suite import suite_of

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
ONE, ONE_AND_A_HALF = 0x38, 0x3C  # e4m3
T = 3 * 2.0**-26  # beside 0.5 it counts as 2^-24, beside 1 it is lost
ORDERED = (6.0, 4.0, 4.0, T, T, T, T, 5.0, 0.75, 0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def case(rows: int, cols: int, **flags) -> Case:
    return Case(
        "four_over_six", Flags({**suite_of("four_over_six").defaults, "dtype": "fp32", **flags}), Dense(rows, cols)
    )


def ragged(rows: int, cols: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normal values with row outliers, so that block scales reach far below the largest."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, cols, generator=generator)
    return (x * torch.exp2(torch.randint(-12, 4, (rows, 1), generator=generator))).to(dtype)


def unpacked(data: torch.Tensor) -> torch.Tensor:
    return torch.stack((data & 15, data >> 4), dim=-1).flatten(-2)


def one_block(*values: float, **flags) -> tuple[int, list[int]]:
    """Scale byte and codes of a block, where another block makes S_enc = 1: a block amax of 6 gives scales 1 and 1.5.

    Reaching 6 the grid is then 0, .5, 1, 1.5, 2, 3, 4, 6, and reaching 4 it is 0, .75, 1.5, 2.25, 3, 4.5, 6.
    """
    x = torch.zeros(16, 32)
    x[0, : len(values)] = torch.tensor(values)
    x[15, 31] = 6.0 * flags.get("e4m3_max", 256)
    out = four_over_six(case(16, 32, outputs="rowwise", **flags), x)
    return int(out["rowwise_scale_inv"][0, 0]), unpacked(out["rowwise_data"])[0, : len(values)].tolist()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert list(left) == list(right)
    for name in left:
        assert left[name].dtype == right[name].dtype and left[name].shape == right[name].shape
        assert torch.equal(left[name].view(torch.uint8), right[name].view(torch.uint8)), name


@pytest.mark.parametrize("e4m3_max", [256, 448])
@pytest.mark.parametrize("error_math", ["exact", "fp16"])
@pytest.mark.parametrize("error", ["mae", "mse"])
def test_hand_worked_blocks(error, error_math, e4m3_max):
    flags = {"error": error, "error_math": error_math, "e4m3_max": e4m3_max}
    assert one_block(6, 4, -3, 2, -0.0, **flags) == (ONE, [7, 6, 13, 4, 8])
    # 5 is 1 from either neighbour of the coarse end, and 1/2 from 4.5.
    assert one_block(6, 5, -5, 4.5, -0.0, **flags) == (ONE_AND_A_HALF, [6, 5, 13, 5, 8])


@pytest.mark.parametrize("error_math", ["exact", "fp16"])
@pytest.mark.parametrize("error", ["mae", "mse"])
@pytest.mark.parametrize("e4m3_max", [256, 448])
def test_a_candidate_is_rounded_after_every_operation(e4m3_max, error, error_math):
    """Scales and errors of both candidates beside the steps of the contract on NumPy scalars."""
    f32 = np.float32
    x, amax = ragged(16, 32), torch.tensor([9.3])
    x[0, 0], x[1, 0] = 4.75, 9.3
    flags = case(16, 32, e4m3_max=e4m3_max, error=error, error_math=error_math)
    (source, *_) = torch_source.sources(flags, x, "tensor").values()
    four, six, _ = choose(source, x.unflatten(1, (-1, 16)), amax.view(1, 1))
    s_enc = f32(6 * e4m3_max) / amax.numpy()[0]
    for row, block in np.ndindex(16, 2):
        elements = x[row, 16 * block : 16 * block + 16].numpy()
        base = abs(elements).max() / f32(6) * s_enc
        for candidate, reach in ((four, base * f32(1.5)), (six, base)):
            scale = candidate.scale[row, block].float().item()
            assert scale == torch.tensor(min(reach, f32(448))).to(torch.float8_e4m3fn).float()
            total = f32(0)
            for element, code in zip(elements, candidate.codes[row, block].tolist(), strict=True):
                decoded = f32(VALUES[code & 7] * (-1 if code & 8 else 1)) * f32(scale)
                if error_math == "exact":
                    difference = decoded * amax.numpy()[0] / f32(6 * e4m3_max) - element
                else:
                    difference = decoded - element * s_enc
                total += abs(difference) if error == "mae" else difference * difference
            assert candidate.error[row, block].item() == total


def test_equal_errors_choose_map_to_6():
    assert one_block(6, -6, 0) == (ONE, [7, 15, 0])
    # err6 = 1 from 5, err4 = 1/2 from 5 and 1/2 from 4
    assert one_block(6, 5, 4) == (ONE, [7, 6, 6])


def test_the_scale_of_map_to_4_is_half_as_much_again():
    # 4.75 / 4 = 1.1875 lies between 1.125 and 1.25, and 1.25 is even.
    assert one_block(4.75, 3.75, 3.75, 3.75) == (0x3A, [6, 5, 5, 5])


def test_the_two_errors_weigh_one_large_and_three_small_differently():
    # 4 is 1/2 away on the one grid, each 3/4 is 1/4 away on the other.
    block = (6, 4, 0.75, 0.75, 0.75)
    assert one_block(*block, error="mae")[0] == ONE_AND_A_HALF
    assert one_block(*block, error="mse")[0] == ONE


def test_the_error_is_summed_in_the_order_of_the_elements():
    # In order, the four T are lost in err4, which is 1 by then, and kept in err6, which is 0; backwards it is opposite.
    assert one_block(*ORDERED)[0] == ONE_AND_A_HALF
    assert one_block(*ORDERED[::-1])[0] == ONE


def square_tile() -> torch.Tensor:
    """A 16x16 tile whose choice depends on how its line errors are added: only the tree of offsets 8, 4, 2, 1 gives 4.

    err6 is 1 in line 0, err4 is 1 in line 15, and both are T in the odd lines below 15. The tree adds all T together
    before they meet the 1 of err6, and piece by piece to the 1 of err4. From line to line err6 loses every T, and a
    tree of neighbours makes the sums equal.
    """
    tile = torch.zeros(16, 16)
    tile[0, :4] = 0.75
    tile[15, :2] = 4
    tile[1:15:2, 0] = T
    tile[2, 0] = 6
    return tile


def test_line_errors_of_a_square_block_are_added_as_a_tree():
    x = torch.zeros(16, 32)
    x[:, :16] = square_tile()
    x[0, 31] = 6.0 * 256
    out = four_over_six(case(16, 32, outputs="rowwise", block="block_16x16"), x)
    assert out["rowwise_scale_inv"][:16, 0].tolist() == [ONE_AND_A_HALF] * 16
    columnwise = four_over_six(case(32, 16, outputs="columnwise", block="block_16x16"), x.t().contiguous())
    assert columnwise["columnwise_scale_inv"][:16, 0].tolist() == [ONE_AND_A_HALF] * 16


def test_the_two_directions_of_a_square_block_decide_independently():
    # Rowwise the block above is added in order; columnwise each of its elements is a line, and the tree prefers 6.
    x = torch.zeros(16, 32)
    x[0, : len(ORDERED)] = torch.tensor(ORDERED)
    x[0, 31] = 6.0 * 256
    chosen = map4(case(16, 32, block="block_16x16"), x)
    assert chosen["rowwise"][:, 0].all() and not chosen["columnwise"][:16].any()


def test_a_square_block_shares_its_scale_and_its_choice():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 48, generator=generator)
    x[:, 16:32] = torch.rand(64, 16, generator=generator) * 3
    out = four_over_six(case(64, 48, block="block_16x16"), x)
    tiles = out["rowwise_scale_inv"][:64, :3].reshape(4, 16, 3)
    assert (tiles == tiles[:, :1]).all()
    chosen = map4(case(64, 48, block="block_16x16"), x)["rowwise"].reshape(4, 16, 3)
    assert (chosen == chosen[:, :1]).all() and 0 < chosen.float().mean() < 1


@pytest.mark.parametrize("error_math", ["exact", "fp16"])
def test_a_nan_leaves_map_to_6_and_its_neighbours_alone(error_math):
    block = (6, 5, 5, 5)
    assert one_block(*block, error_math=error_math) == (ONE_AND_A_HALF, [6, 5, 5, 5])
    assert one_block(*block, float("nan"), error_math=error_math) == (ONE, [7, 6, 6, 6, 7])


@pytest.mark.parametrize("error_math", ["exact", "fp16"])
def test_an_infinity_makes_s_enc_one_and_caps_the_scale(error_math):
    x = torch.zeros(16, 32)
    x[0, 0], x[0, 1] = -float("inf"), 448.0 * 3
    x[1, :2] = torch.tensor([6.0, 5.0])
    out = four_over_six(case(16, 32, outputs="rowwise", error_math=error_math), x)
    assert out["rowwise_amax"].tolist() == [float("inf")]
    assert out["rowwise_scale_inv"][0, :2].tolist() == [0x7E, 0]
    assert unpacked(out["rowwise_data"])[0, :3].tolist() == [15, 5, 0]
    # Decoded by an infinite amax both candidates are infinitely wrong; before decoding 4.5 is nearer to 5.
    assert out["rowwise_scale_inv"][1, 0] == {"exact": ONE, "fp16": ONE_AND_A_HALF}[error_math]


def test_zeros_keep_their_sign_and_have_scale_zero():
    x = torch.zeros(16, 16)
    x[:, 1] = -0.0
    out = four_over_six(case(16, 16), x)
    assert not out["rowwise_scale_inv"].any() and not out["columnwise_scale_inv"].any()
    assert (out["rowwise_data"][:, 0] == 0x80).all() and (out["columnwise_data"][1] == 0x88).all()
    assert not map4(case(16, 16), x)["rowwise"].any()


def test_the_cap_of_map_to_4_is_448_under_either_bound():
    # The block of the amax: base is the bound itself, and half as much again is more than e4m3 has for 448 only.
    x = torch.zeros(16, 16)
    x[0] = 5.0
    x[0, 0] = 6.0
    for e4m3_max, largest in ((256, 384.0), (448, 448.0)):
        out = four_over_six(case(16, 16, outputs="rowwise", e4m3_max=e4m3_max), x)
        scale = out["rowwise_scale_inv"][0, 0].view(torch.float8_e4m3fn).float()
        assert scale == largest
        assert unpacked(out["rowwise_data"])[0, 0] == (6 if e4m3_max == 256 else 7)


def test_every_flag_that_may_change_a_choice_does():
    # Blocks of few values have errors that are equal but for their roundings, and those differ with each flag.
    generator = torch.Generator().manual_seed(0)
    x = torch.tensor([0, 0.75, 1, 4, 4, 5, 5, 6])[torch.randint(8, (256, 256), generator=generator)]
    x[:, 0] = 7
    x[0, 0] = 6.0 * 256
    x *= 1.3
    plain = map4(case(256, 256, outputs="rowwise"), x)["rowwise"]
    for changed in ({"error": "mse"}, {"e4m3_max": 448}, {"error_math": "fp16"}, {"row_scaled": True}):
        other = map4(case(256, 256, outputs="rowwise", **changed), x)["rowwise"]
        assert (plain != other).any(), changed


def test_the_choice_is_what_the_bytes_hold():
    x = ragged(48, 80)
    out, chosen = four_over_six(case(48, 80), x), map4(case(48, 80), x)
    for side, lines, length in (("rowwise", 48, 80), ("columnwise", 80, 48)):
        reach = unpacked(out[f"{side}_data"]).unflatten(1, (-1, 16)).bitwise_and(7).amax(2)
        scale = out[f"{side}_scale_inv"][:lines, : length // 16].view(torch.float8_e4m3fn).float()
        normal = scale > 1  # where e4m3 has all its bits, so that the block amax does land on 4 or on 6
        assert torch.equal((reach == 6)[normal], chosen[side][normal])
        assert chosen[side][normal].any() and (reach == 7)[normal].any()


@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16"}, {"row_scaled": True, "outputs": "rowwise"}], ids=str)
def test_bytes_do_not_depend_on_the_slab(monkeypatch, flags):
    x = ragged(320, 448)
    whole, chosen = four_over_six(case(320, 448, **flags), x), map4(case(320, 448, **flags), x)
    for slab_elements in (1, 128 * 256):
        monkeypatch.setattr(torch_source, "SLAB_ELEMENTS", slab_elements)
        same(four_over_six(case(320, 448, **flags), x), whole)
        same(map4(case(320, 448, **flags), x), chosen)


def test_stages_together_are_the_whole():
    x = ragged(64, 32)
    for flags in ({}, {"row_scaled": True, "outputs": "rowwise"}):
        whole = four_over_six(case(64, 32, **flags), x)
        amax = four_over_six(case(64, 32, stage="amax", **flags), x)
        assert list(amax) == [name for name in whole if name.endswith("amax")]
        encode = four_over_six(case(64, 32, stage="encode", **flags), x, amax)
        same({**{name: {**encode, **amax}[name] for name in whole}}, whole)
    with pytest.raises(ContractError, match="rowwise_amax"):
        four_over_six(case(64, 32, stage="encode"), x)


def test_a_given_amax_of_another_granularity_is_refused():
    given = {"rowwise_amax": torch.ones(1)}
    encode = case(32, 32, stage="encode", outputs="rowwise", row_scaled=True)
    with pytest.raises(ContractError, match=r"rowwise_amax must have the shape \(32,\), one amax per row, not \(1,\)"):
        four_over_six(encode, ragged(32, 32), given)


def test_columnwise_is_the_rowwise_output_of_the_transpose():
    for block in ("block_1x16", "block_16x16"):
        x = ragged(48, 80)
        columnwise = four_over_six(case(48, 80, outputs="columnwise", block=block), x)
        rowwise = four_over_six(case(80, 48, outputs="rowwise", block=block), x.t().contiguous())
        same({name.replace("columnwise", "rowwise"): tensor for name, tensor in columnwise.items()}, rowwise)


def test_row_scaled_is_the_tensor_recipe_on_every_row():
    x = ragged(32, 48)
    out = four_over_six(case(32, 48, outputs="rowwise", row_scaled=True), x)
    assert out["rowwise_amax"].shape == (32,)
    for row in range(32):
        alone = torch.zeros(16, 48)
        alone[0] = x[row]
        expected = four_over_six(case(16, 48, outputs="rowwise"), alone)
        assert torch.equal(out["rowwise_data"][row], expected["rowwise_data"][0])
        assert torch.equal(out["rowwise_scale_inv"][row], expected["rowwise_scale_inv"][0])
        assert out["rowwise_amax"][row] == expected["rowwise_amax"][0]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_narrow_input_is_its_float32_value(dtype):
    x = ragged(32, 48, {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype])
    same(four_over_six(case(32, 48, dtype=dtype), x), four_over_six(case(32, 48), x.float()))


def test_fields_shapes_and_padding():
    out = four_over_six(case(48, 80), ragged(48, 80))
    assert {name: tuple(tensor.shape) for name, tensor in out.items()} == {
        "rowwise_data": (48, 40),
        "rowwise_scale_inv": torch_layout.padded_shape(48, 5),
        "rowwise_amax": (1,),
        "columnwise_data": (80, 24),
        "columnwise_scale_inv": torch_layout.padded_shape(80, 3),
        "columnwise_amax": (1,),
    }
    assert not out["rowwise_scale_inv"][48:].any() and not out["rowwise_scale_inv"][:, 5:].any()
