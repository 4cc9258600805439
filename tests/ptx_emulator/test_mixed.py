"""`xorsign`, mixed types, stochastic rounding, `ue8m0` and `ue5m3` against exact scalar arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import exact_floats as exact
import numpy as np
import pytest
from exact_floats import FORMATS, decode, encode
from expectations import Expected, Scalar, expected, mask
from operands import draw
from ptx_snippets import apply, kernel, run

from ptx_emulator.arithmetic.mixed import MIXED
from ptx_emulator.errors import NotEmulated

NAMES = [name for name in MIXED if not name.startswith("cvt.rs")]


def wanted(mnemonic: str) -> Expected:
    head, *modifiers, kind = mnemonic.split(".")
    if "xorsign" in modifiers:
        return _xorsign(head, "NaN" in modifiers, kind)
    if head == "cvt":
        return _scales(modifiers, kind)
    result, sources, function = expected(".".join([head, *modifiers]))
    narrow = 2 if head == "fma" else 1

    def mixed(*operands: int) -> int:
        exactly = [
            encode(decode(bits, FORMATS[kind]), FORMATS["f32"]) if i < narrow else bits
            for i, bits in enumerate(operands)
        ]
        return function(*exactly)

    return result, (*(kind,) * narrow, *sources[narrow:]), mixed


def _xorsign(head: str, keeps_nan: bool, kind: str) -> Expected:
    single = kind.removesuffix("x2")
    form = FORMATS[single]

    def one(a: int, b: int) -> int:
        x, y = abs(decode(a, form)), abs(decode(b, form))
        found = exact.extreme(head == "max", keeps_nan, x, y)
        return form.nan if found.is_nan else encode(found, form) | (a ^ b) & form.sign_bit

    if single == kind:
        return kind, (kind, kind), one
    half = form.width

    def both(a: int, b: int) -> int:
        return one(a & mask(half), b & mask(half)) | one(a >> half, b >> half) << half

    return kind, (kind, kind), both


def _scale(mode: str, finite: bool) -> Scalar:
    """The code of the power of two next to a magnitude."""

    def code(bits: int) -> int:
        number = decode(bits, FORMATS["f32"])
        if number.is_nan or (number.is_infinite and not finite):
            return 255
        if number.is_infinite:
            return 254
        powers = [code for code in range(255) if Fraction(2) ** (code - 127) <= number.magnitude]
        below = max(powers, default=0)
        up = mode == "rp" and number.magnitude > Fraction(2) ** (below - 127)
        return min(below + up, 254) if finite or below + up < 255 else 255

    return code


def _scales(modifiers: list[str], kind: str) -> Expected:
    if "ue5m3x2" in (kind, modifiers[-1]):
        return _ue5m3(kind)
    if kind == "ue8m0x2":

        def bf16(code: int) -> int:
            return 0x7FFF if code == 255 else encode(exact.of(Fraction(2) ** (code - 127)), FORMATS["bf16"])

        return "b32", ("b16",), lambda a: bf16(a & 255) | bf16(a >> 8) << 16
    code = _scale(modifiers[0], "satfinite" in modifiers)
    if kind == "bf16x2":
        return "b16", ("b32",), lambda a: code(a & 0xFFFF0000) << 8 | code((a & 0xFFFF) << 16)
    return "b16", ("f32", "f32"), lambda high, low: code(high) << 8 | code(low)


def _ue5m3(kind: str) -> Expected:
    def code(bits: int) -> int:
        return encode(decode(bits & 0x7FFFFFFF, FORMATS["f32"]), exact.UE5M3)

    def bf16(code: int) -> int:
        return encode(decode(code, exact.UE5M3), FORMATS["bf16"])

    if kind == "f32":
        return "b16", ("f32", "f32"), lambda high, low: code(high) << 8 | code(low)
    return "b32", ("b16",), lambda a: bf16(a & 255) | bf16(a >> 8) << 16


def test_every_edge_of_ue5m3() -> None:
    """Every byte, every tie and its neighbours, what saturates, and NaN."""
    values = [decode(code, exact.UE5M3).magnitude for code in range(255)]
    edges = values + [(a + b) / 2 for a, b in pairwise(values)] + [Fraction(122880), Fraction(131072)]
    bits = [encode(exact.of(edge), FORMATS["f32"]) for edge in edges]
    bits = [b + ulps & 0xFFFFFFFF for b in bits for ulps in (-1, 0, 1)] + [0x7F800000, 0x7FC00000, 0xFF800000]
    x = np.array(bits + [b ^ 0x80000000 for b in bits], np.uint32)
    got = apply("cvt.rn.satfinite.ue5m3x2.f32", "b16", ["f32", "f32"], [x, x[::-1].copy()])
    expected = [_ue5m3("f32")[2](int(a), int(b)) for a, b in zip(x, x[::-1], strict=True)]
    assert got.tolist() == expected and set(got & 255) == set(range(256))


@pytest.mark.sweep
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.covers(name)) for name in NAMES])
def test_matches_exact_arithmetic(name: str) -> None:
    result, kinds, function = wanted(name)
    operands = draw(name, kinds)
    got = apply(name, result, kinds, operands)
    for i, ours in enumerate(got.tolist()):
        values = [int(column[i]) for column in operands]
        assert ours == function(*values), f"{name}({', '.join(map(hex, values))})"


# ---- stochastic rounding --------------------------------------------------------------------------------------------


def rounded(bits: int, random: int, form: exact.Format) -> int:
    """The neighbour that 16 random bits choose: away from zero if the distance from the lower one carries."""
    number = decode(bits, FORMATS["f32"])
    sign = form.sign_bit if bits >> 31 else 0
    if number.is_nan:
        return form.nan
    finite = [(decode(code, form).magnitude, code) for code in range(form.largest + 1)]
    if number.is_infinite or number.magnitude >= finite[-1][0]:
        return sign | form.largest
    for (low, code), (high, above) in pairwise(finite):
        if low <= number.magnitude < high:
            distance = (number.magnitude - low) / (high - low)
            return sign | (above if int(distance * 65536) + random >= 65536 else code)
    raise AssertionError


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.covers("cvt.rs.")) for kind in ("e2m1", "e4m3", "e5m2")]
)
def test_stochastic_rounding(kind: str, relu: str) -> None:
    form, n = FORMATS[kind], 256
    rng = np.random.default_rng(5)
    largest = float(decode(form.largest, form).magnitude)
    values = (rng.uniform(-1.2, 1.2, (n, 4)) * largest * 2.0 ** rng.integers(-14, 1, (n, 4))).astype(np.float32)
    values[0] = np.nan, np.inf, -np.inf, -0.0
    bits, random = values.view(np.uint32), rng.integers(0, 1 << 32, n, dtype=np.uint32)
    random[:3] = 0, 0xFFFFFFFF, 0x0000FFFF
    out = np.zeros(n, np.uint32)
    target = "%rs0" if kind == "e2m1" else "%r20"
    body = f""" mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 16, %rd0;
 ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%rd1];
 ld.param.u64 %rd0, [p1]; mad.wide.u32 %rd1, %r0, 4, %rd0; ld.global.u32 %r1, [%rd1];
 cvt.rs{relu}.satfinite.{kind}x4.f32 {target}, {{%f0, %f1, %f2, %f3}}, %r1;
 {"cvt.u32.u16 %r20, %rs0;" if kind == "e2m1" else ""}
 ld.param.u64 %rd0, [p2]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r20;"""
    run(kernel(body, 3), {"values": bits.copy(), "random": random, "out": out}, block=n)
    for i in range(n):
        code = 0
        for value, share in zip(bits[i].tolist(), (16, 16, 0, 0), strict=True):
            value = 0 if relu and value >> 31 and value & 0x7FFFFFFF <= 0x7F800000 else value
            code = code << form.width | rounded(value, int(random[i]) >> share & 0xFFFF, form)
        assert out[i] == code, i


@pytest.mark.parametrize("head", ["add.rn", "sub", "fma.rn"])
def test_the_last_source_of_mixed_types_is_a_float(head: str) -> None:
    """Its register may be declared as one, and not as an integer."""
    sources = "%rs0, %rs0, " if head.startswith("fma") else "%rs0, "
    body = f" mov.b16 %rs0, 0x4040; {head}.f32.bf16 %f1, {sources}%f0; st.global.f32 [%rd0], %f1;\n"
    body = " ld.param.u64 %rd0, [p0]; mov.f32 %f0, 0f3F800000;\n" + body
    out = np.zeros(1, np.float32)
    run(kernel(body, 1), {"out": out}, block=1)
    assert out[0] == {"add.rn": 4.0, "sub": 2.0, "fma.rn": 10.0}[head]
    with pytest.raises(NotEmulated, match=r"is of type .u32, and .f32 is wanted"):
        run(
            kernel(" .reg .u32 whole; mov.u32 whole, 0;\n" + body.replace(", %f0;", ", whole;"), 1),
            {"out": out},
            block=1,
        )
