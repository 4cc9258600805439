"""The model of Hopper's sums is the published one, the kernels multiply what they get, and a wrong model shows."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from evidence import __main__ as cli
from evidence.matrix_sums import compare, draws, model
from evidence.matrix_sums.draws import KINDS
from harness.device.emulator import EmulatorDevice


def fraction_of(x: float, least: int) -> tuple[Fraction, int]:
    """Significand and exponent; a number below the smallest normal keeps the exponent of that."""
    if x == 0:
        return Fraction(0), -126
    exponent = max(math.frexp(x)[1] - 1, least)
    return Fraction(x) / Fraction(2) ** exponent, exponent


def published(a, b, c, bits: int = 25) -> float:
    """MMA-Sim's sum in words and fractions: one term after the other, no arrays."""
    terms = [fraction_of(float(c), -126)]
    for x, y in zip(a, b, strict=True):
        (left, e), (right, f) = fraction_of(float(x), -14), fraction_of(float(y), -14)
        terms.append((left * right, e + f))
    largest = max(exponent for _, exponent in terms)
    unit = Fraction(2) ** (largest - bits)
    total = sum(math.trunc(digits * Fraction(2) ** exponent / unit) for digits, exponent in terms) * unit
    if total == 0:
        return 0.0
    exponent = math.frexp(float(total))[1] - 1
    last = Fraction(2) ** (max(exponent, -126) - 23)
    return float(math.trunc(total / last) * last)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "special"])
def test_the_model_is_the_published_one(kind):
    a, b, c = KINDS[kind](np.random.default_rng(1), 2, 16)
    found = compare.modelled((a, b, c)).view(np.float32)
    for t, i, j in np.ndindex(2, 16, 8):
        assert float(found[t, i, j]) == published(a[t, i], b[t, j], c[t, i, j]), (t, i, j)


@pytest.mark.parametrize(
    ("terms", "c", "pattern"),
    [
        ([(np.inf, 1)], 0, 0x7F800000), ([(np.inf, -1)], 3e38, 0xFF800000), ([(np.inf, 0)], 0, 0x7FFFFFFF),
        ([(np.inf, 1), (-np.inf, 1)], 0, 0x7FFFFFFF), ([(1, 1)], np.nan, 0x7FFFFFFF), ([(1, 1)], -np.inf, 0xFF800000),
        ([(65504, 65504)], 3.4028235e38, 0x7F7FFFFF), ([], -0.0, 0), ([(1, 1), (-1, 1)], 0, 0),
        ([(1, 1), (2.0**-13, 2.0**-12)], 0, 0x3F800000), ([(-1, 1), (2.0**-13, 2.0**-12)], 1, 0x33000000),
        ([(-1, 1), (2.0**-13, 2.0**-13)], 1, 0),
    ],
)  # fmt: skip
def test_a_sum_that_can_be_done_by_hand(terms, c, pattern):
    a, b = np.zeros((1, 16), np.float16), np.zeros((1, 16), np.float16)
    for k, (x, y) in enumerate(terms):
        a[0, k], b[0, k] = x, y
    assert model.fused_sum(a, b, np.array([c], np.float32))[0] == pattern


@pytest.mark.parametrize("instruction", compare.ROWS)
def test_the_kernels_multiply_rows_by_columns(instruction):
    """Small integers, whose sums have no order: each place of A, B, C and D is told apart."""
    rng = np.random.default_rng(2)
    rows = compare.ROWS[instruction]
    a, b = (rng.integers(-9, 10, (3, count, 16)).astype(np.float16) for count in (rows, 8))
    c = rng.integers(-999, 999, (3, rows, 8)).astype(np.float32)
    right = np.einsum("tik,tjk->tij", a.astype(np.float64), b.astype(np.float64)) + c
    found = compare.unit_of(EmulatorDevice())(instruction, (a, b, c))
    assert (found.view(np.float32) == right).all() and (found == compare.modelled((a, b, c))).all()


def unit_that_keeps(bits: int):
    """A matrix unit of another generation."""
    return lambda instruction, tiles: compare.modelled(tiles, bits)


def test_a_unit_that_is_the_model_differs_nowhere_and_others_do():
    found = compare.compare(unit_that_keeps(25), 500, 0)
    assert all(one.sums >= 500 and not one.differing for one in found)
    for bits in (24, 26):
        wrong = {one.products for one in compare.compare(unit_that_keeps(bits), 128, 0) if one.differing}
        assert wrong >= {"decoded", "alike", "any_pattern", "cut_off", "cancelled"}, bits


def test_a_sum_that_differs_is_shown_with_the_terms_that_matter():
    a, b, c = draws.cancelled(np.random.default_rng(5), 4, 16)
    unit = partial(unit_that_keeps(24), "mma")
    at = tuple(np.argwhere(unit((a, b, c)) != compare.modelled((a, b, c)))[0])
    said = compare.smallest(unit, compare.modelled, (a, b, c), at)
    assert said.count("*") <= 3 and " is 0x" in said and ", and the model has 0x" in said


def test_the_emulator_sums_as_the_model_does(capsys, tmp_path):
    with pytest.raises(SystemExit) as done:
        cli.main(["sums", "--device", "emulator", "--count", "512", "--out", str(tmp_path)])
    assert done.value.code == 0, capsys.readouterr().out
    assert "| wgmma | tiny | 512 | 0 |" in (tmp_path / "matrix_sums.md").read_text()


def test_a_unit_that_is_not_the_model_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("evidence.commands.sums.unit_of", lambda device: unit_that_keeps(24))
    with pytest.raises(SystemExit) as done:
        cli.main(["sums", "--device", "emulator", "--count", "128", "--out", str(tmp_path)])
    assert done.value.code == 1 and "mma, cancelled: " in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--count", "0"], ["--seed", "-1"], ["--device", "gpu"]])
def test_a_mistake_is_one_sentence(argv, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["sums", *argv])
    assert done.value.code == 64 and capsys.readouterr().err.count("\n") == 1
