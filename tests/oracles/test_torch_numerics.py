"""The torch oracle's arithmetic against exact rational arithmetic and published vectors."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch

from harness.oracles import torch_numerics

VALUES = [Fraction(v) for v in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]


def rn32(value: Fraction) -> np.float32:
    """Nearest-even float32 of an exact value, by comparing exact distances."""
    guess = np.float32(float(value))
    around = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(around, key=lambda f: (abs(Fraction(float(f)) - value), int(f.view(np.uint32)) & 1))


def nearest_even(magnitude: Fraction, grid: list[Fraction]) -> int:
    """Index of the nearest grid value, an even index at equal distance."""
    return min(range(len(grid)), key=lambda i: (abs(grid[i] - magnitude), i & 1))


def test_every_bf16_value_casts_to_the_exactly_nearest_e2m1_code():
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    value = bits.view(torch.bfloat16).float()
    codes = torch_numerics.nearest_codes(value).tolist()
    for pattern, (v, code) in enumerate(zip(value.tolist(), codes, strict=True)):
        if v != v:
            assert code == 7, hex(pattern)
            continue
        magnitude = nearest_even(Fraction(v), VALUES) if 0 < v < 8 else 7 * (v > 0)
        if v < 0:
            magnitude = nearest_even(-Fraction(v), VALUES) if v > -8 else 7
        assert code == magnitude | (pattern >> 15) << 3, hex(pattern)


def test_e2m1_midpoints_and_their_float32_neighbours():
    for i, (low, high) in enumerate(pairwise(VALUES)):
        tie = torch.tensor(float((low + high) / 2))
        below, above = torch.nextafter(tie, torch.tensor(0.0)), torch.nextafter(tie, torch.tensor(9.0))
        codes = torch_numerics.nearest_codes(torch.stack((below, tie, above, -below, -tie, -above))).tolist()
        even = i if i % 2 == 0 else i + 1
        assert codes == [i, even, i + 1, i | 8, even | 8, (i + 1) | 8]


def test_e4m3_rounds_to_the_exactly_nearest_value_and_saturates():
    grid = [Fraction(float(v)) for v in torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()]
    for i, (low, high) in enumerate(pairwise(grid)):
        tie = torch.tensor(float((low + high) / 2))
        below, above = torch.nextafter(tie, torch.tensor(0.0)), torch.nextafter(tie, torch.tensor(999.0))
        got = torch_numerics.e4m3(torch.stack((below, tie, above))).view(torch.uint8).tolist()
        assert got == [i, i + i % 2, i + 1]
    large = torch.tensor([448.0, 464.0, 480.0, 1e30, float("inf")])
    assert torch_numerics.e4m3(large).view(torch.uint8).tolist() == [0x7E] * 5


def test_constants_are_the_bits_of_the_contract():
    bits = torch.tensor([torch_numerics.SIXTH, torch_numerics.FLT_MAX, 1.0 / (6.0 * 448), 1.0 / (6.0 * 256)])
    assert bits.view(torch.int32).tolist() == [0x3E2AAAAB, 0x7F7FFFFF, 0x39C30C31, 0x3A2AAAAB]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_amax_drops_nan_and_keeps_inf(dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[nan, -3.0, 2.0], [nan, nan, -nan], [-inf, nan, 1.0], [-0.0, 0.0, -0.0]], dtype=dtype)
    assert torch_numerics.magnitude_max(x, 1).tolist() == [3.0, 0.0, inf, 0.0]


def test_tiny_tensor_uses_the_largest_encode_scale():
    tiny = torch.tensor([2.0**-149])
    assert torch_numerics.global_encode_scale(tiny).item() == torch_numerics.FLT_MAX
    assert torch_numerics.global_encode_scale(torch.tensor([float("inf")])).item() == 1.0
    assert torch_numerics.global_encode_scale(torch.zeros(1)).item() == 1.0
    floored = torch_numerics.global_encode_scale(torch.zeros(1), 1e-12)
    assert floored.item() == np.float32(2688) / np.float32(1e-12)


def test_the_bound_of_the_block_scales_is_a_parameter_of_the_encode_scale():
    amax = torch.tensor([3.0])
    assert torch_numerics.global_encode_scale(amax, e4m3_max=256).item() == 512.0
    assert torch_numerics.global_encode_scale(amax).item() == 896.0


@pytest.mark.parametrize("amax, block_amax", [(8.125, 3.046875), (6.5, 2.4375)])
def test_the_base_of_four_over_six_is_the_divide_form(amax, block_amax):
    encode_scale = torch_numerics.global_encode_scale(torch.tensor([amax]))
    base = torch_numerics.block_scale_base(torch.tensor([block_amax]), encode_scale)
    assert torch_numerics.capped_e4m3(base).float().item() == 160.0
    assert torch_numerics.block_scale_inv(torch.tensor([block_amax]), encode_scale).float().item() == 176.0


def test_the_base_divides_before_it_multiplies():
    rng = np.random.default_rng(0)
    block_amax, scale = rng.uniform(1, 2, (2, 4096)).astype(np.float32)
    expected = (block_amax / np.float32(6)) * scale
    got = torch_numerics.block_scale_base(torch.from_numpy(block_amax), torch.from_numpy(scale)).numpy()
    assert np.array_equal(got, expected)
    assert (got != block_amax * scale / np.float32(6)).any()


def test_the_cap_drops_a_nan_as_fmin_does():
    value = torch.tensor([float("nan"), float("inf"), 449.0, 3.0])
    assert torch_numerics.capped_e4m3(value).float().tolist() == [448.0, 448.0, 448.0, 3.0]


def test_decoded_gives_every_code_its_value():
    values = torch_numerics.decoded(torch.arange(16, dtype=torch.uint8))
    assert [Fraction(v) for v in values[:8].tolist()] == VALUES
    assert torch.equal(values[8:], -values[:8]) and values[8].signbit()


def test_fast_math_multiplier_is_bf16_and_finite():
    scale = torch.tensor([0.0, 3.0, 448.0]).to(torch.float8_e4m3fn)
    got = torch_numerics.fast_multiplier(scale, torch.tensor(1000.0)).view(torch.int32)
    third = torch.tensor(1000.0).div(torch.tensor(3.0)).bfloat16().float().view(torch.int32).item()
    assert got.tolist()[:2] == [0x7F7F0000, third]
    assert not (got & 0xFFFF).any()


@pytest.mark.parametrize(
    "counter, key, words",
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, words):
    got = torch_numerics.philox([torch.tensor([word]) for word in counter], key)
    assert tuple(word.item() for word in got) == words


def test_element_bits_are_the_bytes_of_the_words_in_order():
    block, seed = torch.tensor([[5, (3 << 32) + 7]]), 0x0123456789ABCDEF
    got = torch_numerics.element_bits(block, 1, seed, 4)
    assert got.shape == (1, 2, 16) and got.dtype == torch.uint8
    for b, (low, high) in enumerate([(5, 0), (7, 3)]):
        words = torch_numerics.philox([torch.tensor(w) for w in (low, high, 1, 4)], (0x89ABCDEF, 0x01234567))
        assert got[0, b].tolist() == [words[i // 4].item() >> 8 * (i % 4) & 255 for i in range(16)]


def test_stochastic_rounding_is_the_fma_of_the_contract():
    magnitudes = [0.0, 2.0**-149, 0.1, 0.49999997, 0.5, 1.0, 1.9990234, 1.99999988, 2.0, 2.7, 3.9999998, 4.0, 5.3, 6.0]
    magnitudes += [7.5, 1e30, 3e-5, 0.3333333433]
    value = torch.tensor(magnitudes)[:, None].expand(-1, 256).contiguous()
    bits = torch.arange(256, dtype=torch.uint8).expand(len(magnitudes), 256)
    codes = torch_numerics.stochastic_codes(value, bits)
    negative = torch_numerics.stochastic_codes(-value, bits)
    assert torch.equal(codes | 8, negative)
    for row, magnitude in enumerate(value[:, 0].tolist()):
        a = Fraction(magnitude)
        for r in range(256):
            t = Fraction(float(rn32(a + Fraction(r, 256) * step(a))))
            q = min(t // step(t) * step(t), Fraction(6))
            assert VALUES[codes[row, r]] == q, (magnitude, r)


def step(value: Fraction) -> Fraction:
    return Fraction(2) if value >= 4 else Fraction(1) if value >= 2 else Fraction(1, 2)


def test_stochastic_rounding_of_nan_and_inf():
    value = torch.tensor([float("nan"), -float("nan"), float("inf"), -float("inf")])
    codes = torch_numerics.stochastic_codes(value, torch.full((4,), 200, dtype=torch.uint8))
    assert codes.tolist() == [7, 7, 7, 15]


def test_rotation_is_the_signed_sylvester_matrix_over_four():
    parity = torch.tensor([[bin(i & j).count("1") % 2 for j in range(16)] for i in range(16)])
    mask = 0xD7E8
    signs = torch.tensor([-1.0 if mask >> i & 1 else 1.0 for i in range(16)])
    matrix = (1.0 - 2.0 * parity) * signs
    x = torch.randint(-4, 5, (3, 32), generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = (x.float().view(3, 2, 16) @ matrix.t()) / 4
    assert torch.equal(torch_numerics.rotate(x, mask), expected.view(3, 32).bfloat16())


def test_rotation_rounds_stage_by_stage_with_growing_strides():
    # Large values that cancel at one stride or another: what is left of the small ones tells the order of the stages.
    generator = torch.Generator().manual_seed(5)
    pool = torch.tensor([1.0, -3.0, 2.0**30, -(2.0**30), 2.0**14, 0.0])
    x = pool[torch.randint(len(pool), (64, 16), generator=generator)].bfloat16()
    got = torch_numerics.rotate(x, 0x0003)
    for row in range(len(x)):
        r = x[row].float().numpy().copy()
        r[:2] = -r[:2]
        for stride in (1, 2, 4, 8):
            for i in range(16):
                if not i & stride:
                    a, b = r[i], r[i + stride]
                    r[i], r[i + stride] = np.float32(a + b), np.float32(a - b)
        assert torch.equal(got[row], torch.from_numpy(r * np.float32(0.25)).bfloat16())
