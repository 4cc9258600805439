"""Approximate instructions against bounds computed in decimal arithmetic, with the special values of the PTX ISA."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

import exact_floats as exact
import numpy as np
import pytest
from exact_floats import FORMATS, decode, encode
from operands import draw
from ptx_snippets import kernel, run

from ptx_emulator.approximate import measured
from ptx_emulator.approximate.bounds import APPROXIMATE
from ptx_emulator.approximate.measured import Chip, Measured, pack
from ptx_emulator.instructions.arithmetic import mnemonics
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

getcontext().prec, getcontext().Emax, getcontext().Emin = 130, 10**9, -(10**9)
getcontext().traps = dict.fromkeys(getcontext().traps, False)
ORDERS = (ASCENDING, DESCENDING, Schedule(seed=4))
KINDS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}


def outcomes(mnemonic: str, *operands: np.ndarray, target: str = "sm_100a") -> list[np.ndarray]:
    """What each order gives. operands: of one type and shape"""
    kind = operands[0].dtype
    register, load = {2: ("%rs", "u16"), 4: ("%f", "f32")}[kind.itemsize]
    if mnemonic.endswith("x2"):
        register, load = "%r1", "b32"
    lines = [" mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r0, %r1, %r2;",
             f" setp.ge.u32 %p0, %r3, {len(operands[0])}; @%p0 ret;"]  # fmt: skip
    for i in range(len(operands) + 1):
        lines.append(f" ld.param.u64 %rd0, [p{i}]; mad.wide.u32 %rd{i + 1}, %r3, {kind.itemsize}, %rd0;")
    lines += [f" ld.global.{load} {register}{i}, [%rd{i + 1}];" for i in range(len(operands))]
    names = ", ".join(f"{register}{i}" for i in range(len(operands)))
    lines.append(f" {mnemonic} {register}9, {names}; st.global.{load} [%rd{len(operands) + 1}], {register}9;")
    found = []
    for order in ORDERS:
        arrays = {f"x{i}": each.copy() for i, each in enumerate(operands)} | {"out": np.zeros_like(operands[0])}
        text = kernel("\n".join(lines), len(operands) + 1).replace("sm_100a", target)
        run(text, arrays, grid=-(-len(operands[0]) // 128), block=128, schedule=order)
        found.append(arrays["out"])
    return found


# ---- bounds ---------------------------------------------------------------------------------------------------------

PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651328230664709384460955"
)


def sine(x: Decimal) -> Decimal:
    x = x % (2 * PI)
    total, term, k = Decimal(0), x, 1
    while abs(term) > Decimal(10) ** -110:
        total, term, k = total + term, -term * x * x / ((k + 1) * (k + 2)), k + 2
    return total


def tangent(x: Decimal) -> Decimal:
    power = (2 * min(abs(x), Decimal(300))).exp()
    return ((power - 1) / (power + 1)).copy_sign(x)


def within_angle(x: Decimal) -> Decimal:
    if abs(x) > 100 * PI - Decimal("1e-4"):
        return Decimal(2)
    return Decimal(2) ** (Decimal("-20.5") if abs(x) <= 2 * PI else Decimal("-14.7"))


def relative(bits: str) -> Callable[..., Decimal]:
    return lambda value, *_: abs(value) * Decimal(2) ** -Decimal(bits)


Bound = tuple[Callable[..., Decimal], Callable[..., Decimal]]
# Head → the exact value, and the error that PTX allows: (value, *operands) → distance; ulps are counted below.
BOUNDS: dict[str, Bound] = {
    "rcp": (lambda x: 1 / x, lambda value, x: 0),
    "sqrt": (lambda x: x.sqrt(), relative("23")),
    "rsqrt": (lambda x: 1 / x.sqrt(), relative("22.9")),
    "ex2": (lambda x: Decimal(2) ** x, lambda value, x: 0),
    "lg2": (lambda x: x.ln() / Decimal(2).ln(),
            lambda value, x: Decimal(2) ** -22 * (1 if Decimal("0.5") < x < 2 else abs(value))),
    "sin": (sine, lambda value, x: within_angle(x)),
    "cos": (lambda x: sine(x + PI / 2), lambda value, x: within_angle(x)),
    "tanh": (tangent, relative("11")),
    "div": (lambda x, y: x / y, lambda value, *_: 0),
}  # fmt: skip
NARROW = {
    "ex2.f16": relative("9.9"),
    "ex2.bf16": relative("7"),
    "tanh.f16": lambda *_: Decimal(2) ** Decimal("-10.987"),
    "tanh.bf16": lambda *_: Decimal(2) ** -8,
}
SLACK = Decimal("1e-14")  # of the formulas' own arithmetic
ULPS = {"rcp": 1, "ex2": 2, "div": 2}


def number(bits: int, form: exact.Format) -> Decimal:
    value = decode(bits, form)
    found = Decimal(value.magnitude.numerator) / Decimal(value.magnitude.denominator)
    return -found if value.negative else found


def flush(bits: int, form: exact.Format) -> int:
    return bits if bits & form.infinity else bits & form.sign_bit


def nearest(value: Decimal, form: exact.Format) -> int:
    if abs(value) < Decimal(2) ** -300:
        return 0
    return encode(exact.of(Fraction(value)), form)


# PTX's tables: operand → result, of values; s is a subnormal.
INF, NAN = math.inf, math.nan
SPECIAL = {
    "rcp": [(-INF, -0.0), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)],
    "sqrt": [(-INF, NAN), (-1.5, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, INF), (NAN, NAN)],
    "rsqrt": [(-INF, NAN), (-1.5, NAN), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)],
    "ex2": [(-INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (NAN, NAN)],
    "lg2": [(-INF, NAN), (-1.5, NAN), (-0.0, -INF), (0.0, -INF), (INF, INF), (NAN, NAN)],
    "sin": [(-INF, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, NAN), (NAN, NAN)],
    "cos": [(-INF, NAN), (-0.0, 1.0), (0.0, 1.0), (INF, NAN), (NAN, NAN)],
    "tanh": [(-INF, -1.0), (-0.0, -0.0), (0.0, 0.0), (INF, 1.0), (NAN, NAN)],
}
UNARY = [name for name in mnemonics() if not name.endswith("x2") and not name.startswith("div")]


def covering(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.covers(name))


@pytest.mark.parametrize("name", [covering(each) for each in UNARY])
def test_special_values_are_those_of_ptx_in_every_order(name: str) -> None:
    kind = name.rpartition(".")[2]
    form = APPROXIMATE[name].form
    table = SPECIAL[name.split(".")[0]]
    given, wanted = (form.rounded(np, np.array(each)) for each in zip(*table, strict=True))
    if ".ftz." in name:  # subnormals are zeros of their sign
        for sign in (0, 1):
            subnormal, zero = 1 | sign << form.bits - 1, sign << form.bits - 1
            given = np.append(given, KINDS[kind](subnormal))
            wanted = np.append(wanted, wanted[given.tolist().index(zero)])
    for found in outcomes(name, given):
        assert found.tolist() == wanted.tolist()


def samples(name: str, kind: str) -> list[int]:
    """Finite operands, where the value is a number."""
    head, form = name.split(".")[0], FORMATS[kind]
    drawn = [int(bits) & (1 << form.width) - 1 for bits in draw(name, (kind,))[0]]
    near = np.random.default_rng(1).normal(size=60) * 8.0 ** np.random.default_rng(2).integers(-3, 3, 60)
    drawn += APPROXIMATE[name].form.rounded(np, near).tolist()
    found = [bits for bits in dict.fromkeys(drawn) if bits & form.infinity != form.infinity and bits & ~form.sign_bit]
    if ".ftz." in name:
        found = [bits for bits in found if bits & form.infinity]
    if head in ("sqrt", "rsqrt", "lg2"):
        found = [bits for bits in found if not bits & form.sign_bit]
    return [bits for bits in found if head != "ex2" or abs(number(bits, form)) < 200]


@pytest.mark.parametrize("name", UNARY)
def test_every_order_is_within_the_bounds_and_no_two_agree(name: str) -> None:
    head, kind = name.split(".")[0], name.rpartition(".")[2]
    form, flushes = FORMATS[kind], ".ftz." in name
    value_of, error_of = BOUNDS[head]
    error_of = NARROW.get(f"{head}.{kind}", error_of)
    given = samples(name, kind)
    assert len(given) > 30
    results, apart = outcomes(name, np.array(given, KINDS[kind])), 0
    for i, bits in enumerate(given):
        x = number(bits, form)
        value = value_of(x)
        near = nearest(value, form)
        seen = [int(each[i]) for each in results]
        beyond = head in ("sin", "cos") and abs(x) > 100 * PI  # where nothing is promised, nor computed
        assert beyond or seen[0] == (flush(near, form) if flushes else near), f"{name}({bits:#x}), the nearest"
        for got in seen:
            if near & ~form.sign_bit >= form.infinity or (kind == "f32" and head in ULPS):
                allowed = abs(got - near) <= ULPS.get(head, 0)
            else:
                most = error_of(value, x)
                allowed = got == near or abs(number(got, form) - value) <= most + (most + abs(value)) * SLACK
            if flushes and not beyond and not got & form.infinity:
                allowed = got & ~form.sign_bit == 0 and abs(value) < Decimal(2) ** -125
            assert allowed, f"{name}({bits:#x}) = {got:#x}, nearest {near:#x}"
        apart += len(set(seen)) > 1
    assert apart > len(given) / 3, f"{name}: only {apart} of {len(given)} differ between orders"


@pytest.mark.parametrize(
    "name", [covering(each) for each in ["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"]]
)
def test_a_quotient(name: str) -> None:
    rng = np.random.default_rng(9)
    x, y = ((rng.normal(size=200) * 2.0 ** rng.integers(-40, 40, 200)).astype(np.float32) for _ in range(2))
    results = outcomes(name, x.view(np.uint32), y.view(np.uint32))
    near = (x / y).view(np.uint32).astype(np.int64)
    assert (results[0] == near).all()
    assert all((np.abs(found.astype(np.int64) - near) <= 2).all() for found in results)
    assert ((results[1] != near) & (results[2] != near) & (results[1] != results[2])).all()


def test_div_approx_beyond_the_reciprocals_that_there_are() -> None:
    huge = np.array([2.0**127, -(2.0**127), 2.0**127, 3.0], np.float32)
    x = np.array([8, 8, np.inf, np.inf], np.float32)
    for found in outcomes("div.approx.f32", x.view(np.uint32), huge.view(np.uint32)):
        assert found.tolist() == [0, 0x80000000, 0x7FFFFFFF, 0x7F800000]


@pytest.mark.parametrize("name", [covering(each) for each in [name for name in mnemonics() if name.endswith("x2")]])
def test_a_pair_is_two_of_the_same(name: str) -> None:
    single = name.removesuffix("x2")
    low, high = (np.random.default_rng(seed).integers(0, 1 << 16, 200, dtype=np.uint16) for seed in (1, 2))
    apart = [outcomes(single, each) for each in (low, high)]
    for both, first, second in zip(outcomes(name, low | high.astype(np.uint32) << 16), *apart, strict=True):
        assert (both == first | second.astype(np.uint32) << 16).all()


def test_one_operand_has_one_result_in_an_order() -> None:
    for found in outcomes("ex2.approx.f32", np.full(300, 0x3F123456, np.uint32)):
        assert len(set(found.tolist())) == 1


def test_a_quotient_of_two_does_not_cancel_what_is_open() -> None:
    x = np.random.default_rng(5).normal(size=400).astype(np.float32)
    ratios = [
        found.view(np.float32)[:200] / found.view(np.float32)[200:]
        for found in outcomes("ex2.approx.f32", x.view(np.uint32))
    ]
    assert (ratios[0] != ratios[1]).mean() > 0.4 and (ratios[1] != ratios[2]).mean() > 0.4


# ---- what is said ---------------------------------------------------------------------------------------------------


def said(line: str, value: float = 0.7, block: int = 32) -> tuple[str, ...]:
    body = (
        f" ld.param.u64 %rd1, [p0]; ld.global.f32 %f0, [%rd1]; mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 99;\n {line}"
    )
    return run(kernel(body, 1), {"x": np.array([value], np.float32)}, block=block).approximated


def test_a_launch_names_what_it_chose() -> None:
    (found,) = said("ex2.approx.ftz.f32 %f1, %f0;")
    assert found.startswith("ex2.approx.ftz.f32 at ptx:")
    assert said("ex2.approx.ftz.f32 %f1, %f0;", value=0.0) == ()  # PTX says which bits
    assert said("@%p0 ex2.approx.ftz.f32 %f1, %f0;") == ()  # no lane executes it
    assert said("mul.f32 %f1, %f0, %f0;") == ()


def test_a_table_of_the_chip_is_what_every_order_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    none, every = np.zeros(1 << 6, np.int64), np.ones(1 << 6, bool)
    table = Measured("input", (bits % 3 - 1).astype(np.int8), every, none - 1, none + 1, bits[:0], bits[:0])
    np.savez(tmp_path / "sm_100.npz", **pack(Chip("some GPU", {"tanh.approx.f16": table})))
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    measured.measured.cache_clear()
    try:
        operand = bits[0x3000:0x3C00:7].copy()
        found = outcomes("tanh.approx.f16", operand)
        within = APPROXIMATE["tanh.approx.f16"].range(np, operand)
        assert (found[0] == within.near + (operand % 3).astype(np.int64) - 1).all()
        assert (found[0] == found[1]).all() and (found[1] == found[2]).all()
        assert (outcomes("ex2.approx.f16", operand)[0] != outcomes("ex2.approx.f16", operand)[1]).any()
    finally:
        measured.measured.cache_clear()


def test_a_table_may_be_left_out_and_a_warning_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    operand = np.arange(0x3000, 0x3C00, 7, dtype=np.uint16)
    measured.measured.cache_clear()
    try:
        outcomes("tanh.approx.f16", operand, target="sm_100a")  # which never had one
        with pytest.warns(UserWarning, match=r"^sm_90\.npz, which has what an H200 gives, is not in .*:"):
            found = outcomes("tanh.approx.f16", operand, target="sm_90a")
        assert (found[0] != found[1]).any()
    finally:
        measured.measured.cache_clear()


# ---- the H200's table -----------------------------------------------------------------------------------------------

HOPPER = measured.measured("sm_90a")


def test_the_table_has_every_number_that_was_measured() -> None:
    """Whatever its file is compressed with."""
    digest = hashlib.sha256()
    for name, found in sorted(HOPPER.items()):
        digest.update(f"{name} {found.key}".encode())
        for field in fields(found)[1:]:
            array = getattr(found, field.name)
            digest.update(f"{field.name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    assert digest.hexdigest() == "6fd8dbaa83df566189e1709c52bbf05a2eb54586773ca6e0149bbaece94d7459"


@pytest.mark.parametrize("name", [name for name, found in HOPPER.items() if found.key])
def test_what_is_known_of_an_h200_is_the_same_in_every_order_and_within_ptx(name: str) -> None:
    form, found = APPROXIMATE[name].form, HOPPER[name]
    bits = np.random.default_rng(8).integers(0, 1 << form.bits, 2000).astype(form.unsigned(np))
    known = found.range(APPROXIMATE[name], bits).fixed
    within = APPROXIMATE[name].range(np, bits)
    assert known.mean() > 0.5
    given = bits[known]
    first, *others = outcomes(name, given, target="sm_90a")
    assert all((first == each).all() for each in others)
    order, open_ = form.order(np, first), ~within.fixed[known]
    assert (within.low[known] <= order)[open_].all() and (order <= within.high[known])[open_].all()
    assert (first == within.bits[known])[~open_].all()
    nearest = (first == within.bits[known])[open_].mean()
    assert 0.3 < nearest < 1, "a chip is not always the nearest"
    if form.bits == 32:  # sm_100 has no table
        apart = outcomes(name, given, target="sm_100a")
        assert (apart[0] != apart[1]).any()


def test_an_h200_has_its_tangent_of_small_numbers() -> None:
    """An H200 was measured to return each subnormal itself, so no other bits are accepted."""
    small = np.arange(0x8001, 0x8080, dtype=np.uint16)
    for found in outcomes("tanh.approx.bf16", small, target="sm_90a"):
        assert (found == small).all()
