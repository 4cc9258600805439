"""Floating-point arithmetic by definition: exact rational numbers, rounded once.

Slow, scalar, and shares nothing with the emulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt


@dataclass(frozen=True, eq=False)
class Format:
    """A binary format. nan: the pattern NVIDIA writes for NaN; infinity: None if the top exponent holds numbers."""

    width: int
    mantissa: int
    bias: int
    nan: int
    infinity: int | None
    largest: int

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)


F16 = Format(16, 10, 15, 0x7FFF, 0x7C00, 0x7BFF)
BF16 = Format(16, 7, 127, 0x7FFF, 0x7F80, 0x7F7F)
F32 = Format(32, 23, 127, 0x7FFFFFFF, 0x7F800000, 0x7F7FFFFF)
F64 = Format(64, 52, 1023, 0xFFF8000000000000, 0x7FF0000000000000, 0x7FEFFFFFFFFFFFFF)
E4M3 = Format(8, 3, 7, 0x7F, None, 0x7E)
E5M2 = Format(8, 2, 15, 0x7F, 0x7C, 0x7B)
E2M1 = Format(4, 1, 1, 0x7, None, 0x7)
UE5M3 = Format(9, 3, 15, 0xFF, None, 0xFE)  # of magnitudes, in eight bits
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "e4m3": E4M3, "e5m2": E5M2, "e2m1": E2M1}


@dataclass(frozen=True)
class Number:
    """A real number with a signed zero, an infinity (magnitude None), or NaN."""

    negative: bool = False
    magnitude: Fraction | None = Fraction(0)
    is_nan: bool = False

    @property
    def is_infinite(self) -> bool:
        return self.magnitude is None and not self.is_nan

    @property
    def is_zero(self) -> bool:
        return self.magnitude == 0 and not self.is_nan

    @property
    def value(self) -> Fraction:
        return -self.magnitude if self.negative else self.magnitude

    def __neg__(self) -> Number:
        return Number(not self.negative, self.magnitude, self.is_nan)

    def __abs__(self) -> Number:
        return Number(False, self.magnitude, self.is_nan)


NAN = Number(is_nan=True, magnitude=None)
ZERO = Number()
INFINITY = Number(magnitude=None)


def of(value: Fraction, zero_negative: bool = False) -> Number:
    """An exact value; the sign of a zero is given."""
    return Number(value < 0 or (value == 0 and zero_negative), abs(value))


@cache
def power_of_two(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


@cache
def decode(bits: int, form: Format) -> Number:
    """The value of a pattern."""
    negative, bits = bool(bits & form.sign_bit), bits & (form.sign_bit - 1)
    if form.infinity is not None and bits >= form.infinity:
        return Number(negative, None) if bits == form.infinity else NAN
    if form.infinity is None and bits > form.largest:
        return NAN
    power, fraction = bits >> form.mantissa, bits & ((1 << form.mantissa) - 1)
    significand = fraction + ((1 << form.mantissa) if power else 0)
    return Number(negative, Fraction(significand) * power_of_two(max(power, 1) - form.bias - form.mantissa))


def encode(number: Number, form: Format, mode: str = "rn", saturates: bool = False) -> int:
    """The pattern of the rounded number. saturates: clamp to the largest value"""
    if number.is_nan:
        return form.nan
    sign = form.sign_bit if number.negative else 0
    beyond = form.largest if saturates or form.infinity is None else form.infinity
    if number.is_infinite:
        return sign | beyond
    if number.magnitude == 0:
        return sign
    exponent = _floor_log2(number.magnitude)
    exponent = max(exponent, 1 - form.bias)
    scaled = number.magnitude * power_of_two(form.mantissa - exponent)
    count, rest = divmod(scaled.numerator, scaled.denominator)
    half = 2 * rest - scaled.denominator
    away = {
        "rn": half > 0 or (half == 0 and count % 2 == 1),
        "rz": False,
        "rm": number.negative and rest > 0,
        "rp": not number.negative and rest > 0,
    }[mode]
    count += away
    pattern = count + ((exponent + form.bias - 1) << form.mantissa)
    if pattern > form.largest:
        toward_zero = mode == "rz" or (mode == "rm" and not number.negative) or (mode == "rp" and number.negative)
        pattern = form.largest if toward_zero else beyond
    return sign | pattern


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if power_of_two(guess) <= value else guess - 1


def add(a: Number, b: Number, mode: str = "rn") -> Number:
    """Exact sum; `mode` decides the sign of an exact zero."""
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_infinite and a.negative != b.negative):
        return NAN
    if a.is_infinite or b.is_infinite:
        return a if a.is_infinite else b
    total = a.value + b.value
    if total == 0 and a.is_zero and b.is_zero and a.negative == b.negative:
        return a
    return of(total, zero_negative=mode == "rm")


def multiply(a: Number, b: Number) -> Number:
    """Exact product."""
    negative = a.negative != b.negative
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_zero) or (a.is_zero and b.is_infinite):
        return NAN
    if a.is_infinite or b.is_infinite:
        return Number(negative, None)
    return Number(negative, a.magnitude * b.magnitude)


def divide(a: Number, b: Number) -> Number:
    """Exact quotient."""
    negative = a.negative != b.negative
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_infinite) or (a.is_zero and b.is_zero):
        return NAN
    if a.is_infinite or b.is_zero:
        return Number(negative, None)
    return Number(negative, Fraction(0) if b.is_infinite else a.magnitude / b.magnitude)


def square_root(a: Number) -> Number:
    """The root to many more bits than any format has, with a sticky last bit: rounding it is rounding the root."""
    if a.is_nan or (a.negative and not a.is_zero):
        return NAN
    if a.is_infinite or a.is_zero:
        return a
    shift = 1400
    whole = (a.magnitude.numerator << 2 * shift) // a.magnitude.denominator
    root = isqrt(whole)
    exact = root * root == whole and (a.magnitude * 4**shift).denominator == 1
    return Number(False, Fraction(2 * root + (not exact), 2 << shift))


def extreme(largest: bool, keeps_nan: bool, *numbers: Number) -> Number:
    """min or max: NaN loses unless it is kept, -0 is less than +0."""
    if any(number.is_nan for number in numbers) and (keeps_nan or all(number.is_nan for number in numbers)):
        return NAN
    ranked = sorted((number for number in numbers if not number.is_nan), key=rank)
    return ranked[-1] if largest else ranked[0]


def rank(number: Number) -> tuple[Fraction, int]:
    """Sort key with -0 before +0."""
    huge = power_of_two(5000)
    value = (-huge if number.negative else huge) if number.is_infinite else number.value
    return value, -1 if number.negative else 1


def integral(a: Number, mode: str) -> Number:
    """Rounded to an integer, in mode `rni`, `rzi`, `rmi` or `rpi`."""
    if a.is_nan or a.is_infinite:
        return a
    value = a.value
    down = value.numerator // value.denominator
    if mode == "rni":
        result = round(value)
    elif mode == "rzi":
        result = down if value >= 0 or value == down else down + 1
    else:
        result = down if mode == "rmi" or value == down else down + 1
    return of(Fraction(result), zero_negative=a.negative)
