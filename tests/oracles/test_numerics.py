"""The building blocks of both oracles: exact rational arithmetic, published vectors, witnesses of the contract."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import cache
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import torch

from harness.expected.torch_calls import from_torch, to_torch
from harness.oracles import nvfp4, torch_layout, torch_numerics, torch_oracle

F32 = np.float32
ALL_BF16 = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(F32)
INF, NAN = F32(np.inf), F32(np.nan)

E2M1 = [Fraction(n, 2) for n in (0, 1, 2, 3, 4, 6, 8, 12)]
E4M3 = [Fraction(m, 8) * Fraction(2) ** -6 for m in range(8)]
E4M3 += [Fraction(8 + m, 8) * Fraction(2) ** (e - 7) for e in range(1, 16) for m in range(8)]
E4M3 = E4M3[:127]


def by_torch(function):
    """A function of tensors as one of arrays."""

    def call(*arguments):
        made = function(*(to_torch(each) if isinstance(each, np.ndarray) else each for each in arguments))
        return from_torch(made)

    return call


def _scales(scale_inv):
    return scale_inv.view(torch.float8_e4m3fn)


def _philox(counter, key):
    words = torch_numerics.philox(list(counter.long()), key)
    return torch.stack(words).numpy().astype(np.uint32)


# Both libraries by one signature: values and scales float32, codes and scale bytes uint8, `s_enc` for every multiplier
NUMPY = SimpleNamespace(
    e2m1=nvfp4.e2m1,
    e4m3=nvfp4.e4m3,
    decode_e2m1=nvfp4.decode_e2m1,
    pack=nvfp4.pack,
    convert=nvfp4.convert,
    line_amax=lambda v: nvfp4.line_amax(v.astype(F32)),
    encode_scale=nvfp4.global_encode_scale,
    multiply=nvfp4.scale_inv_multiply,
    divide=nvfp4.scale_base_divide,
    reciprocal=lambda scale_inv, s_enc: nvfp4.multiplier_reciprocal(scale_inv, nvfp4.global_decode_scale(s_enc)),
    direct=nvfp4.multiplier_direct,
    fast=nvfp4.multiplier_fast,
    philox=nvfp4.philox,
    random_bytes=nvfp4.random_bytes,
    stochastic=nvfp4.e2m1_stochastic,
    hadamard=nvfp4.hadamard,
    rht=nvfp4.rht,
)
TORCH = SimpleNamespace(
    e2m1=by_torch(torch_numerics.nearest_codes),
    e4m3=by_torch(lambda v: torch_oracle.casts(v)["e4m3_data"]),
    decode_e2m1=by_torch(torch_numerics.decoded),
    pack=by_torch(torch_layout.pack),
    convert=by_torch(torch_oracle.stored),
    line_amax=by_torch(lambda v: torch_numerics.magnitude_max(v, 1)),
    encode_scale=by_torch(lambda amax, bound=448: torch_numerics.global_encode_scale(amax, e4m3_max=bound)),
    multiply=by_torch(lambda amax, s_enc: torch_numerics.block_scale_inv(amax, s_enc).view(torch.uint8)),
    divide=by_torch(torch_numerics.block_scale_base),
    reciprocal=by_torch(lambda scale_inv, s_enc: torch_numerics.reciprocal_multiplier(_scales(scale_inv), s_enc)),
    direct=by_torch(lambda scale_inv, s_enc: torch_numerics.direct_multiplier(_scales(scale_inv), s_enc)),
    fast=by_torch(lambda scale_inv, s_enc: torch_numerics.fast_multiplier(_scales(scale_inv), s_enc)),
    philox=lambda counter, key: _philox(torch.from_numpy(counter.astype(np.int64)), key),
    random_bytes=lambda index, direction, offset, seed: torch_numerics.element_bits(
        torch.from_numpy(index.astype(np.int64)), direction, seed, offset
    ).numpy(),
    stochastic=by_torch(torch_numerics.stochastic_codes),
    hadamard=by_torch(torch_numerics.hadamard),
    rht=by_torch(lambda v, mask: torch_numerics.rotate(v, mask).float()),
)


@pytest.fixture(params=[NUMPY, TORCH], ids=["numpy", "torch"])
def lib(request):
    return request.param


def bits(value: np.ndarray | np.float32) -> int:
    return int(np.asarray(value, F32).reshape(()).view(np.uint32))


def nearest_even(v: np.float32, values: list[Fraction], sign_bit: int, nan: int) -> int:
    """The code of the nearest of `values`, a tie to the even code, beyond the last one the last one."""
    if np.isnan(v):
        return nan
    sign = sign_bit if np.signbit(v) else 0
    if np.isinf(v) or abs(float(v)) >= float(values[-1]):
        return sign | len(values) - 1
    a = abs(Fraction(float(v)))
    low = bisect_right(values, a) - 1
    below, above = a - values[low], values[low + 1] - a
    if below == above:
        return sign | low + low % 2
    return sign | (low if below < above else low + 1)


@cache  # for both libraries, because a rational takes long
def codes(kind: str, given: str) -> tuple[np.ndarray, list[int]]:
    """Values, all of bf16 or those at the edges, and their codes."""
    values, sign_bit, nan = {"e2m1": (E2M1, 0x8, 0x7), "e4m3": (E4M3, 0x80, 0x7F)}[kind]
    v = ALL_BF16 if given == "all_bf16" else edges(values)
    return v, [nearest_even(value, values, sign_bit, nan) for value in v]


def edges(values: list[Fraction]) -> np.ndarray:
    """Every value and every midpoint with its two float32 neighbours, both signs."""
    middles = [(a + b) / 2 for a, b in zip(values, values[1:], strict=False)]
    exact = np.array([float(v) for v in values + middles], F32)
    assert [Fraction(float(v)) for v in exact] == values + middles
    positive = np.concatenate([exact, np.nextafter(exact, INF), np.nextafter(exact, F32(0))])
    beyond = np.array([INF, NAN, nvfp4.FLT_MAX, 448, 464, 465, 480, 1e-45], F32)
    positive = np.concatenate([positive, beyond])
    return np.concatenate([positive, -positive])


def rn(exact: Fraction) -> np.float32:
    """The float32 nearest to a rational, ties to even, by looking at the neighbours of a first guess."""
    guess = F32(float(exact))
    around = [np.nextafter(guess, -INF), guess, np.nextafter(guess, INF)]
    return min(around, key=lambda f: (abs(Fraction(float(f)) - exact), f.view(np.uint32) & 1))


def test_constants_are_the_bits_of_the_contract():
    assert [bits(v) for v in (nvfp4.FLT_MAX, nvfp4.ONE_SIXTH, nvfp4.BF16_MAX)] == [0x7F7FFFFF, 0x3E2AAAAB, 0x7F7F0000]
    assert {v.dtype for v in (nvfp4.FLT_MAX, nvfp4.ONE_SIXTH, nvfp4.BF16_MAX)} == {np.dtype(F32)}
    of_torch = torch_numerics.FLT_MAX, torch_numerics.SIXTH, torch_numerics.BF16_MAX
    assert [bits(F32(v)) for v in of_torch] == [0x7F7FFFFF, 0x3E2AAAAB, 0x7F7F0000]
    one = nvfp4.e4m3(np.ones(1, F32))
    bits_of_c = {448: 0x39C30C31, 256: 0x3A2AAAAB, 320: 0x3A088889, 288: 0x3A17B426}
    assert sorted(bits_of_c) == [*nvfp4.E4M3_BOUNDS]
    for e4m3_max, expected in bits_of_c.items():  # f = (1 * 1) * C shows C itself
        assert bits(nvfp4.decode_factor(one, np.ones(1, F32), e4m3_max)) == expected
        assert bits(F32(1.0 / (torch_numerics.E2M1_MAX * e4m3_max))) == expected


class TestFormats:
    @pytest.mark.parametrize("given", ["all_bf16", "edges"])
    @pytest.mark.parametrize("kind", ["e2m1", "e4m3"])
    def test_a_code_is_the_nearest(self, lib, kind, given):
        v, expected = codes(kind, given)
        np.testing.assert_array_equal(getattr(lib, kind)(v), expected)

    def test_e2m1_agrees_with_ml_dtypes_except_on_nan(self):
        """ml_dtypes gives 0x8 for NaN, the contract and the hardware 0x7."""
        v = np.concatenate([ALL_BF16, edges(E2M1)])
        with np.errstate(invalid="ignore"):
            theirs = v.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 0xF
        differs = nvfp4.e2m1(v) != theirs
        np.testing.assert_array_equal(differs, np.isnan(v))

    def test_e4m3_agrees_with_ml_dtypes_up_to_464(self):
        """ml_dtypes gives NaN above 464 and keeps the sign of a NaN; the contract saturates and gives 0x7F."""
        v = np.concatenate([ALL_BF16, edges(E4M3)])
        with np.errstate(invalid="ignore"):
            theirs = v.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        inside = np.abs(v) <= 464
        np.testing.assert_array_equal(nvfp4.e4m3(v)[inside], theirs[inside])

    def test_decode_is_the_inverse_of_encode(self, lib):
        codes = np.arange(16, dtype=np.uint8)
        assert [Fraction(float(v)) for v in lib.decode_e2m1(codes)[:8]] == E2M1
        np.testing.assert_array_equal(lib.e2m1(lib.decode_e2m1(codes)), codes)
        scale_bytes = np.arange(256, dtype=np.uint8)
        decoded = nvfp4.decode_e4m3(scale_bytes)
        assert decoded.dtype == F32
        nan = (scale_bytes & 0x7F) == 0x7F
        np.testing.assert_array_equal(np.isnan(decoded), nan)
        np.testing.assert_array_equal(nvfp4.e4m3(decoded)[~nan], scale_bytes[~nan])

    def test_decode_agrees_with_ml_dtypes(self):
        scale_bytes = np.arange(256, dtype=np.uint8)
        theirs = scale_bytes.view(ml_dtypes.float8_e4m3fn).astype(F32)
        np.testing.assert_array_equal(nvfp4.decode_e4m3(scale_bytes), theirs)
        codes = np.arange(16, dtype=np.uint8)
        theirs = codes.view(ml_dtypes.float4_e2m1fn).astype(F32)
        np.testing.assert_array_equal(nvfp4.decode_e2m1(codes).view(np.uint32), theirs.view(np.uint32))

    def test_even_element_is_the_low_nibble(self, lib):
        codes = np.array([[0x1, 0xE, 0xF, 0x0]], np.uint8)
        np.testing.assert_array_equal(lib.pack(codes), [[0xE1, 0x0F]])
        np.testing.assert_array_equal(nvfp4.unpack(nvfp4.pack(codes)), codes)

    @pytest.mark.parametrize(("dtype", "nan"), [("bf16", 0x7FFF), ("fp16", 0x7FFF), ("fp32", 0x7FFFFFFF)])
    def test_convert_writes_one_nan(self, lib, dtype, nan):
        payloads = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(F32)
        out = lib.convert(payloads, dtype)
        assert set(out.view(f"u{out.itemsize}").tolist()) == {nan}

    @pytest.mark.parametrize(("dtype", "digits", "tiny", "largest"), [("bf16", 8, -133, 127), ("fp16", 11, -24, 15)])
    def test_convert_rounds_to_nearest_even(self, lib, dtype, digits, tiny, largest):
        rng = np.random.default_rng(0)
        v = np.ldexp(rng.uniform(1, 2, 4000).astype(F32), rng.integers(tiny - 3, largest, 4000))
        v[1000:2000] = np.ldexp(np.arange(1000, dtype=F32) + F32(0.5), tiny)
        ulp = [Fraction(2) ** max(int(np.frexp(f)[1]) - digits, tiny) for f in v]
        expected = [float(round(Fraction(float(f)) / u) * u) for f, u in zip(v, ulp, strict=True)]
        np.testing.assert_array_equal(lib.convert(v, dtype).astype(np.float64), expected)

    @pytest.mark.parametrize("dtype", ["bf16", "fp16"])
    def test_convert_overflows_to_inf(self, lib, dtype):
        assert lib.convert(np.array([nvfp4.FLT_MAX], F32), dtype).astype(F32) == INF


class TestScales:
    def test_encode_scale_is_one_rounded_division(self, lib):
        amax = np.abs(np.random.default_rng(1).standard_normal(2000)).astype(F32)
        expected = [rn(2688 / Fraction(float(a))) for a in amax]
        s_enc = lib.encode_scale(amax)
        assert s_enc.dtype == F32
        np.testing.assert_array_equal(s_enc, expected)

    @pytest.mark.parametrize(
        ("amax", "expected"),
        [
            (F32(0), F32(1)),
            (INF, F32(1)),
            (F32(1e-45), nvfp4.FLT_MAX),
            (F32(2688) / nvfp4.FLT_MAX / 2, nvfp4.FLT_MAX),
            (F32(2688), F32(1)),
            (nvfp4.FLT_MAX, F32(2688) / nvfp4.FLT_MAX),
        ],
    )
    def test_encode_scale_guards(self, lib, amax, expected):
        np.testing.assert_array_equal(lib.encode_scale(np.full(1, amax)), [expected])

    def test_encode_scale_for_the_reduced_maximum(self, lib):
        assert lib.encode_scale(np.full(1, 3, F32), 256) == F32(512)

    def test_nothing_is_flushed(self, lib):
        """S_dec of the largest S_enc is subnormal, and so is its product with a small scale byte."""
        s_enc = np.full(1, nvfp4.FLT_MAX)
        assert bits(nvfp4.global_decode_scale(s_enc)) == 0x00200000
        np.testing.assert_array_equal(lib.reciprocal(np.array([8], np.uint8), s_enc), [nvfp4.FLT_MAX])
        expected = [F32(1) / (F32(448) * F32(2**-128))]
        np.testing.assert_array_equal(lib.reciprocal(np.array([0x7E], np.uint8), s_enc), expected)

    def test_amax_drops_nan_and_keeps_inf(self):
        v = np.zeros((4, 32), F32)
        v[0, :3] = [1, -2, NAN]
        v[1] = NAN
        v[2, 17] = -INF
        v[3] = -0.0
        np.testing.assert_array_equal(nvfp4.block_amax(v), [[2, 0], [0, 0], [0, INF], [0, 0]])
        np.testing.assert_array_equal(nvfp4.amax(v), [INF])
        np.testing.assert_array_equal(nvfp4.amax(v[:2]), [2])
        np.testing.assert_array_equal(nvfp4.amax(v[1]), [0])
        assert not np.signbit(nvfp4.amax(v[3]))
        assert nvfp4.amax(v).shape == (1,)

    @pytest.mark.parametrize("dtype", nvfp4.DTYPES)
    def test_amax_of_lines_in_every_dtype(self, lib, dtype):
        v = np.array([[NAN, -3, 2], [NAN, NAN, -NAN], [-INF, NAN, 1], [-0.0, 0, -0.0]]).astype(nvfp4.DTYPES[dtype])
        found = lib.line_amax(v)
        assert found.dtype == F32 and found.tolist() == [3, 0, INF, 0] and not np.signbit(found).any()

    @pytest.mark.parametrize(("amax", "block_amax"), [(8.125, 3.046875), (6.5, 2.4375)])
    def test_witness_multiply_form_against_divide_form(self, lib, amax, block_amax):
        s_enc = lib.encode_scale(np.full(1, amax, F32))
        block = np.full(1, block_amax, F32)
        assert nvfp4.decode_e4m3(lib.multiply(block, s_enc)) == 176
        assert nvfp4.decode_e4m3(nvfp4.e4m3(lib.divide(block, s_enc))) == 160

    @pytest.mark.parametrize(("amax", "block_amax", "x"), [(1.125, 0.5703125, 0.328125), (8.625, 3.328125, 1.9765625)])
    def test_witness_reciprocal_against_direct_multiplier(self, lib, amax, block_amax, x):
        s_enc = lib.encode_scale(np.full(1, amax, F32))
        scale_inv = lib.multiply(np.full(1, block_amax, F32), s_enc)
        assert nvfp4.e2m1(F32(x) * lib.reciprocal(scale_inv, s_enc)) == 6
        assert nvfp4.e2m1(F32(x) * lib.direct(scale_inv, s_enc)) == 5

    def test_the_divide_form_divides_before_it_multiplies(self, lib):
        block_amax, s_enc = np.random.default_rng(0).uniform(1, 2, (2, 4096)).astype(F32)
        given = lib.divide(block_amax, s_enc)
        np.testing.assert_array_equal(given, (block_amax / F32(6)) * s_enc)
        assert (given != block_amax * s_enc / F32(6)).any()

    def test_the_cap_of_torch_drops_a_nan_as_fmin_does(self):
        capped = torch_numerics.capped_e4m3(torch.tensor([NAN, INF, 449, 3]))
        assert capped.float().tolist() == [448, 448, 448, 3]

    def test_multipliers_of_an_underflowed_block(self, lib):
        zero, s_enc = np.zeros(1, np.uint8), np.full(1, 700, F32)
        found = [multiplier(zero, s_enc) for multiplier in (lib.reciprocal, lib.direct, lib.fast)]
        assert found == [nvfp4.FLT_MAX, 0, nvfp4.BF16_MAX]

    def test_fast_multiplier_is_the_direct_one_in_bf16(self, lib):
        scale_inv = np.arange(1, 0x7F, dtype=np.uint8)
        s_enc = np.full(1, 2688 / 3.3, F32)
        quotient = [rn(Fraction(float(s_enc[0])) / v) for v in E4M3[1:]]
        expected = np.array(quotient, F32).astype(ml_dtypes.bfloat16).astype(F32)
        np.testing.assert_array_equal(lib.fast(scale_inv, s_enc), expected)

    def test_random_scale_bytes_are_exact(self, lib):
        """2.1 to 2.6 in rational arithmetic, one rounding where the contract has one."""
        rng = np.random.default_rng(2)
        sixth = Fraction(float(nvfp4.ONE_SIXTH))
        for amax in np.abs(rng.standard_normal(40)).astype(F32) + F32(0.01):
            block = (amax * rng.uniform(0, 1, 50).astype(F32)).astype(F32)
            s_enc = rn(2688 / Fraction(float(amax)))
            product = Fraction(float(rn(Fraction(float(s_enc)) * sixth)))
            expected = [nearest_even(rn(Fraction(float(b)) * product), E4M3, 0x80, 0x7F) for b in block]
            given = lib.encode_scale(np.full(1, amax))
            scale_inv = lib.multiply(block, given)
            np.testing.assert_array_equal(scale_inv, expected)

            s_dec = rn(1 / Fraction(float(s_enc)))
            decoded = [Fraction(float(rn(E4M3[s] * Fraction(float(s_dec))))) for s in expected]
            multiplier = [rn(1 / d) if d else nvfp4.FLT_MAX for d in decoded]
            np.testing.assert_array_equal(lib.reciprocal(scale_inv, given), multiplier)

    def test_each_block_meets_its_own_multiplier(self):
        v = np.ones((2, 48), F32)
        m = np.arange(6, dtype=F32).reshape(2, 3)
        np.testing.assert_array_equal(nvfp4.scaled(v, m), m.repeat(16, axis=1))

    def test_inf_times_zero_encodes_as_nan(self):
        product = nvfp4.scaled(np.full((1, 16), -INF), np.zeros((1, 1), F32))
        np.testing.assert_array_equal(nvfp4.e2m1(product), np.full((1, 16), 7))

    def test_decode_factor_keeps_its_order(self):
        """(s * amax) * C, not s * (amax * C): over all positive bytes the two differ somewhere."""
        amax, c = F32(3.3), Fraction(float(F32(1) / F32(2688)))
        scale_inv = np.arange(1, 0x7F, dtype=np.uint8)
        expected = [rn(Fraction(float(rn(v * Fraction(float(amax))))) * c) for v in E4M3[1:]]
        np.testing.assert_array_equal(nvfp4.decode_factor(scale_inv, np.full(1, amax)), expected)


class TestStochasticRounding:
    @pytest.mark.parametrize(
        ("counter", "key", "expected"),
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
    def test_philox_known_answers(self, lib, counter, key, expected):
        """The published vectors of Random123."""
        words = lib.philox(np.array(counter, np.uint32).reshape(4, 1), key)
        assert tuple(words[:, 0].tolist()) == expected

    def test_bytes_belong_to_elements(self, lib):
        """Byte i of word w serves element 4w+i; counter = (block_lo, block_hi, direction, offset), key = (lo, hi)."""
        first = (1 << 32) - 1
        given = lib.random_bytes(np.array([first, first + 1], np.uint64), 1, 9, 0x0123456789ABCDEF)
        for row, block in enumerate((first, first + 1)):
            counter = np.array([block & 0xFFFFFFFF, block >> 32, 1, 9], np.uint32).reshape(4, 1)
            words = lib.philox(counter, (0x89ABCDEF, 0x01234567))[:, 0]
            expected = [int(words[i // 4]) >> 8 * (i % 4) & 0xFF for i in range(16)]
            assert given[row].tolist() == expected

    @pytest.mark.slow
    def test_value_is_the_exact_fma(self, lib):
        """Against rational arithmetic, one rounding, for every byte and for mantissas that the sum must round."""
        rng = np.random.default_rng(3)
        a = np.abs(np.concatenate([rng.standard_normal(150) * 3, [0, 1e-45, 1.9999999, 3.9999998, 5.9999995, 7, 1e30]]))
        v, r = (grid.ravel() for grid in np.meshgrid(a.astype(F32), np.arange(256, dtype=np.uint8)))

        def step(t: np.float32) -> Fraction:
            return Fraction(2) if t >= 4 else Fraction(1) if t >= 2 else Fraction(1, 2)

        expected = []
        for value, byte in zip(v, r, strict=True):
            t = rn(Fraction(int(byte), 256) * step(value) + Fraction(float(value)))
            q = min(Fraction(float(t)) // step(t) * step(t), Fraction(6))
            expected.append(E2M1.index(q))
        np.testing.assert_array_equal(lib.stochastic(v, r), expected)
        np.testing.assert_array_equal(lib.stochastic(-v, r), np.array(expected) | 8)

    def test_unbiased_over_all_bytes(self, lib):
        """A value k/256 of the way to the next code goes up for exactly k of the 256 bytes, and never further."""
        r = np.arange(256, dtype=np.uint8)
        for code, (low, high) in enumerate(zip(E2M1, E2M1[1:], strict=False)):
            for k in range(0, 256, 5):
                v = np.full(256, float(low + (high - low) * k / 256), F32)
                codes = lib.stochastic(v, r)
                assert set(codes.tolist()) <= {code, code + 1}
                assert (codes == code + 1).sum() == k

    def test_specials(self, lib):
        v = np.array([NAN, -NAN, INF, -INF, -0.0, 0.0, -1e-45, 100, -100], F32)
        expected = [7, 7, 7, 15, 8, 0, 8, 7, 15]
        for byte in (0, 255):
            np.testing.assert_array_equal(lib.stochastic(v, np.full(v.shape, byte, np.uint8)), expected)


class TestHadamard:
    SIGNS = np.array([-1 if 0xD7E8 >> i & 1 else 1 for i in range(16)], F32)

    def test_is_the_sylvester_matrix_after_the_signs(self, lib):
        sylvester = np.array([[(-1) ** (i & j).bit_count() for j in range(16)] for i in range(16)], F32)
        given = lib.hadamard(np.eye(16, dtype=F32), 0xD7E8)
        np.testing.assert_array_equal(given, (sylvester * self.SIGNS).T)

    def test_is_orthogonal_and_its_own_inverse(self, lib):
        x = np.random.default_rng(4).integers(-50, 50, (8, 64)).astype(F32)
        r = lib.hadamard(x, 0xD7E8)
        np.testing.assert_array_equal((r * r).sum(1), 16 * (x * x).sum(1))
        signs = np.tile(self.SIGNS, 4)
        np.testing.assert_array_equal(lib.hadamard(r, 0) * signs, 16 * x)

    def test_rounds_in_the_stated_order(self, lib):
        """Strides 1, 2, 4, 8, each sum rounded; other orders round differently on these values."""
        v = np.random.default_rng(5).standard_normal((64, 16)).astype(F32)
        expected = v * self.SIGNS
        backwards = expected.copy()
        for target, strides in ((expected, (1, 2, 4, 8)), (backwards, (8, 4, 2, 1))):
            for stride in strides:
                for i in range(16):
                    if not i & stride:
                        a, b = target[:, i].copy(), target[:, i + stride].copy()
                        target[:, i], target[:, i + stride] = a + b, a - b
        np.testing.assert_array_equal(lib.hadamard(v, 0xD7E8), expected)
        assert (expected != backwards).any()

    def test_per_tensor_form_is_rounded_to_bf16(self, lib):
        v = np.random.default_rng(6).standard_normal((16, 32)).astype(F32)
        expected = (lib.hadamard(v, 0xACE1) * F32(0.25)).astype(ml_dtypes.bfloat16).astype(F32)
        np.testing.assert_array_equal(lib.rht(v, 0xACE1), expected)


@pytest.mark.parametrize("lines, length", [(1, 16), (2, 32), (5, 272), (16, 16)])
def test_a_signalling_nan_hides_no_larger_value_before_it(lines: int, length: int):
    v = np.ones((lines, length), np.float32)
    v[:, ::16] = 5
    v.view(np.uint32)[:, 1::16] = 0x7F810000
    assert (nvfp4.block_amax(v) == 5).all()
    assert (nvfp4.amax(v, axis=1) == 5).all() and nvfp4.amax(v) == 5
