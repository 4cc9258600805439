"""Double rounding and ties: fused multiply-add, and casts at every midpoint."""

from __future__ import annotations

from fractions import Fraction

import exact_floats as exact
import numpy as np
import pytest
from exact_floats import BF16, E2M1, E4M3, F16, F32, Format, decode, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_snippets import apply

from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.registers import U16, U32

PATTERN = st.integers(0, (1 << 32) - 1)
NEAR_ONE = st.builds(
    lambda s, e, m: s << 31 | e << 23 | m, st.integers(0, 1), st.integers(100, 154), st.integers(0, 15)
)
TINY = st.builds(lambda s, m: s << 31 | m, st.integers(0, 1), st.integers(0, 1 << 24))
FLOAT = st.one_of(PATTERN, NEAR_ONE, TINY)


def registers(*patterns: int, dtype: type = U32) -> list[np.ndarray]:
    return [np.array([[pattern]], dtype) for pattern in patterns]


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(FLOAT, FLOAT, FLOAT, st.sampled_from(["rn", "rz", "rm", "rp"]))
def test_fma_is_rounded_once(a: int, b: int, c: int, mode: str) -> None:
    with np.errstate(all="ignore"):
        got = int(FLOATING[f"fma.{mode}.f32"].compute(*registers(a, b, c)).item())
    product = exact.multiply(decode(a, F32), decode(b, F32))
    assert got == encode(exact.add(product, decode(c, F32), mode), F32, mode)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([("f16", F16), ("bf16", BF16)]), *[st.integers(0, (1 << 16) - 1)] * 3)
def test_sixteen_bit_fma_is_rounded_once(kind: tuple[str, Format], a: int, b: int, c: int) -> None:
    name, form = kind
    with np.errstate(all="ignore"):
        got = int(FLOATING[f"fma.rn.{name}"].compute(*registers(a, b, c, dtype=U16)).item())
    product = exact.multiply(decode(a, form), decode(b, form))
    assert got == encode(exact.add(product, decode(c, form)), form)


def bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


WITNESSES = {
    # The product lies 2^-70 below the midpoint above an odd c, too little for a float64 to hold beside it.
    "below a tie": (bits_of(1 + 2**-23), bits_of(2**-24 - 2**-47), bits_of(1 + 2**-23), bits_of(1 + 2**-23)),
    "above a tie": (bits_of(1 + 2**-23), bits_of(2**-24 + 2**-47), bits_of(1), bits_of(1 + 2**-23)),
    "tie to even": (bits_of(0.5), bits_of(2**-23), bits_of(1 + 2**-23), bits_of(1 + 2**-22)),
    "subnormal": (0x00800001, bits_of(0.5), 0x00000001, 0x00400002),
    "half of the least subnormal": (0x00000001, bits_of(0.5), 0x00000000, 0x00000000),
    "a little more than half": (0x00000001, bits_of(0.5 + 2**-24), 0x00000000, 0x00000001),
    "cancellation": (bits_of(1 + 2**-23), bits_of(1 + 2**-23), bits_of(-(1 + 2**-22)), bits_of(2**-46)),
    "overflow": (0x7F7FFFFF, bits_of(2), 0xFF7FFFFF, 0x7F7FFFFF),
}


@pytest.mark.parametrize("name", WITNESSES)
def test_fma_where_a_second_rounding_would_show(name: str) -> None:
    a, b, c, wanted = WITNESSES[name]
    columns = [np.array([pattern], np.uint32) for pattern in (a, b, c)]
    assert int(apply("fma.rn.f32", "f32", ["f32"] * 3, columns)[0]) == wanted


def around_midpoints(form: Format) -> np.ndarray:
    """float32 patterns of all values of a format, all midpoints between, and their float32 neighbours; both signs."""
    finite = [decode(code, form).magnitude for code in range(form.largest + 1)]
    beyond = finite[-1] + (finite[-1] - finite[-2])
    points = [*finite, *((low + high) / 2 for low, high in zip(finite, [*finite[1:], beyond], strict=True)), beyond]
    patterns = {encode(exact.of(point), F32) + step for point in points for step in (-1, 0, 1)}
    patterns = {pattern for pattern in patterns if pattern >= 0}
    specials = {0, 1, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF}
    return np.array(sorted({p | sign for p in patterns | specials for sign in (0, 1 << 31)}), np.uint32)


@pytest.mark.parametrize("name, form", [("e2m1", E2M1), ("e4m3", E4M3)])
def test_narrow_casts_at_every_midpoint(name: str, form: Format) -> None:
    high = around_midpoints(form)
    low = high[::-1].copy()
    got = apply(f"cvt.rn.satfinite.{name}x2.f32", "b8" if form is E2M1 else "b16", ["f32", "f32"], [high, low])
    codes = {int(p): encode(decode(int(p), F32), form, saturates=True) for p in high}
    assert got.tolist() == [codes[int(h)] << form.width | codes[int(v)] for h, v in zip(high, low, strict=True)]


@pytest.mark.parametrize("name, form", [("f16", F16), ("bf16", BF16)])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_sixteen_bit_casts_around_midpoints(name: str, form: Format, mode: str) -> None:
    codes = np.random.default_rng(6).choice(form.infinity, 400, replace=False).tolist() + [
        0,
        1,
        form.largest,
        0x3FF,
        0x400,
    ]
    points = [(decode(c, form).magnitude + decode(min(c + 1, form.largest), form).magnitude) / 2 for c in codes]
    patterns = [encode(exact.of(Fraction(p)), F32) + step for p in points for step in (0, 1)]
    x = np.array(patterns + [p | 1 << 31 for p in patterns], np.uint32)
    wanted = [encode(decode(int(p), F32), form, mode) for p in x]
    assert apply(f"cvt.{mode}.{name}.f32", name, ["f32"], [x]).tolist() == wanted


def test_every_code_decodes() -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    pairs = apply("cvt.rn.f16x2.e4m3x2", "b32", ["b16"], [codes])
    values = [encode(decode(code, E4M3), F16) for code in range(256)]
    assert (pairs & 0xFFFF == np.tile(values, 256)).all() and (pairs >> 16 == np.repeat(values, 256)).all()
    pairs = apply("cvt.rn.f16x2.e2m1x2", "b32", ["b8"], [codes[:256]])
    values = [encode(decode(code, E2M1), F16) for code in range(16)]
    assert (pairs & 0xFFFF == np.tile(values, 16)).all() and (pairs >> 16 == np.repeat(values, 16)).all()


NAN = np.array([0x7F800001, 0xFF800001, 0x7FC12345, 0xFFFFFFFF], np.uint32)
ONE = np.full(4, 0x3F800000, np.uint32)


@pytest.mark.parametrize("name", ["add.f32", "sub.f32", "mul.f32", "div.rn.f32", "max.NaN.f32", "min.NaN.f32"])
def test_nan_results_have_one_pattern(name: str) -> None:
    assert (apply(name, "f32", ["f32", "f32"], [NAN, ONE]) == 0x7FFFFFFF).all()
    assert (apply(name, "f32", ["f32", "f32"], [ONE, NAN]) == 0x7FFFFFFF).all()


@pytest.mark.parametrize("name", ["max.f32", "min.f32"])
def test_min_and_max_drop_one_nan(name: str) -> None:
    assert (apply(name, "f32", ["f32", "f32"], [NAN, ONE]) == ONE).all()
    assert (apply(name, "f32", ["f32", "f32"], [NAN, NAN]) == 0x7FFFFFFF).all()


@pytest.mark.parametrize("target, pattern", [("f16", 0x7FFF), ("bf16", 0x7FFF)])
def test_nan_converts_to_one_pattern(target: str, pattern: int) -> None:
    assert (apply(f"cvt.rn.{target}.f32", target, ["f32"], [NAN]) == pattern).all()
    assert (apply("cvt.rn.satfinite.e4m3x2.f32", "b16", ["f32", "f32"], [NAN, NAN]) == 0x7F7F).all()
    assert (apply("cvt.rn.satfinite.e2m1x2.f32", "b8", ["f32", "f32"], [NAN, NAN]) == 0x77).all()
