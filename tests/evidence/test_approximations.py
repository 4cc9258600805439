"""Tables of approximate instructions: what a sweep of a GPU leaves, by which the emulator has its bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from evidence import approximations
from evidence.approximations import ContradictionError, fitted, sweep, write
from evidence.commands import exhaustive
from harness.errors import Exit, UsageError
from ptx_emulator.approximate import measured
from ptx_emulator.approximate.bounds import APPROXIMATE
from ptx_emulator.approximate.formats import F16, F32
from ptx_emulator.approximate.measured import KEYS, Chip, Measured, pack, read

RCP, APART = "rcp.approx.ftz.f32", 1 << 11


def stand_in(name: str, steps: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """An instruction that is the formula's nearest value and some steps."""
    found = APPROXIMATE[name]

    def run(bits: np.ndarray) -> np.ndarray:
        within, by = found.range(np, bits), steps(bits)
        return np.where(within.fixed | (by == 0), within.bits, found.given(np, within.near + by, within.bits)).astype(
            bits.dtype
        )

    return run


def by_fraction(bits: np.ndarray) -> np.ndarray:
    """-1, 0 or 1, by the fraction alone, in stretches."""
    return (bits.astype(np.int64) & 0x7FFFFF) * 977 // (1 << 23) % 3 - 1


def some(found: Sequence[int], count: int = 3000) -> np.ndarray:
    bits = np.random.default_rng(2).integers(0, (1 << 23) // APART, count, dtype=np.uint32) * np.uint32(APART)
    return bits | np.random.default_rng(3).choice(np.array(found, np.uint32), count) << 23


@pytest.fixture(scope="module")
def table() -> Measured:
    return sweep(RCP, stand_in(RCP, by_fraction), binades=range(120, 134), apart=APART)


def test_a_table_by_key_has_every_bit(table: Measured) -> None:
    bits = some(range(120, 134))
    within = table.range(APPROXIMATE[RCP], bits)
    assert table.key == "fraction" and table.table.dtype == np.int8
    assert within.fixed.all() and (within.bits == stand_in(RCP, by_fraction)(bits)).all()


# What an H200 (driver 580.159.04) gave, each of which a sweep once took for a contradiction of PTX.
H200 = [
    ("rcp.approx.f32", 0x200001, 0x7F7FFFF8), ("sqrt.approx.f32", 0x1, 0x1A3504F3),
    ("rsqrt.approx.f32", 0x1, 0x64B504F2), ("ex2.approx.f32", 0xC2FC0001, 0x7FFFD3),
    ("lg2.approx.f32", 0x1, 0xC3150000), ("sin.approx.f32", 0x40490FDB, 0x0), ("sin.approx.ftz.f32", 0x40490FDB, 0x0),
    ("cos.approx.f32", 0x3FC90FDB, 0x0), ("cos.approx.ftz.f32", 0x3FC90FDB, 0x0), ("tanh.approx.f32", 0x1, 0x1),
    ("tanh.approx.bf16", 0x1, 0x1), ("tanh.approx.bf16", 0x807F, 0x807F),
]  # fmt: skip


@pytest.fixture(params=[False, True], ids=["subnormals", "flushed conversions"])
def flushes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether conversions of the processor take float32's subnormals for zeros, as those that CuPy compiles do."""
    if not torch.set_flush_denormal(request.param):
        pytest.skip("this processor cannot flush subnormals")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("flushes")
@pytest.mark.parametrize("name, given, result", H200, ids=[f"{name}-{given:#x}" for name, given, _ in H200])
def test_what_an_h200_gives_is_within_the_bounds_of_ptx(name: str, given: int, result: int) -> None:
    found = APPROXIMATE[name]
    bits, results = (np.array([each], found.form.unsigned(np)) for each in (given, result))
    seen = approximations._compared(np, found, bits, results)
    assert seen.usable.all() and not seen.beyond.any()


@pytest.mark.usefixtures("flushes")
@pytest.mark.parametrize("name", ["rcp.approx.f32", "tanh.approx.bf16", "sqrt.approx.ftz.f32"])
def test_what_is_too_far_from_the_nearest_is_beyond_the_bounds(name: str) -> None:
    found = APPROXIMATE[name]
    bits = found.form.rounded(np, np.array([1.7, 0.3, 1.5e-3, 40.0]))
    within = found.range(np, bits)
    for order, beyond in ((within.low, False), (within.high, False), (within.low - 1, True), (within.high + 1, True)):
        seen = approximations._compared(np, found, bits, found.given(np, order, within.bits))
        assert seen.usable.all() and (seen.beyond == beyond).all()


@pytest.mark.usefixtures("flushes")
def test_bits_of_float32_there_and_back() -> None:
    drawn = np.random.default_rng(6).integers(0, 1 << 32, 3000, dtype=np.uint32)
    small = np.array([0, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000], np.uint32)
    bits = np.concatenate([drawn, small, small | np.uint32(1 << 31)])
    with np.errstate(invalid="ignore"):  # NaN
        values = F32.values(np, bits)
    numbers = ~np.isnan(values)
    assert (F32.rounded(np, values)[numbers] == bits[numbers]).all()
    assert F32.values(np, np.array([1, 0x80000003], np.uint32)).tolist() == [2.0**-149, -3 * 2.0**-149]
    halves = F32.rounded(np, np.array([0.5, 1.5, -2.5, (1 << 23) - 0.5]) * 2.0**-149)
    assert halves.tolist() == [0, 2, 0x80000002, 0x800000]


def test_float16_is_rounded_once() -> None:
    """By way of the nearest float32 it would be a tie."""
    given = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-40, 2.0**-25 * (1 + 2.0**-30), 65520.0])
    with np.errstate(over="ignore"):
        assert F16.rounded(np, given).tolist() == [0x3C01, 0x3C01, 1, 0x7C00]


def test_values_of_either_sign_have_one_table() -> None:
    def steps(bits: np.ndarray) -> np.ndarray:
        return np.where(bits >> 31, -1, 1) * by_fraction(bits)

    both = (*range(122, 132), *range(378, 388))
    found = sweep(RCP, stand_in(RCP, steps), binades=both, apart=APART)
    bits = some(both)
    within = found.range(APPROXIMATE[RCP], bits)
    assert within.fixed.all() and (within.bits == stand_in(RCP, steps)(bits)).all()


EX2 = "ex2.approx.ftz.f32"


@pytest.mark.parametrize(
    "kept", [pytest.param(23, marks=pytest.mark.slow), 24, pytest.param(25, marks=pytest.mark.slow)]
)
def test_a_chip_that_sees_a_part_of_its_operand_has_every_bit(kept: int) -> None:
    """Fixed point with `kept` bits behind the point, of which the last bits of small operands are cut off."""

    def run(bits: np.ndarray) -> np.ndarray:
        found = APPROXIMATE[EX2]
        within = found.range(np, bits)
        values = found.form.values(np, bits)
        seen = np.copysign(np.floor(np.minimum(np.abs(values), 1e3) * 2.0**kept) / 2.0**kept, values)
        key = (np.floor(np.abs(seen) * 2.0**kept) % 2.0**kept).astype(np.int64) * 61 // (1 << kept)
        order = found.form.order(np, found.rounded(np, np.exp2(seen))) + key % 3 - 1 + (bits >> 31).astype(np.int64)
        return np.where(within.fixed, within.bits, found.given(np, order, within.bits)).astype(np.uint32)

    # The last bits differ, so that something is cut off.
    apart = (1 << 11) - 1
    binades = (*range(105, 134), *range(361, 389))
    found = sweep(EX2, run, binades=binades, apart=apart)
    assert found.key == f"sign, {kept} bits behind the point" and found.conforms[[126, 120, 382, 376]].all()
    bits = np.concatenate([np.uint32(n << 23) + np.arange(0, 1 << 23, apart, dtype=np.uint32)[::7] for n in binades])
    within = found.range(APPROXIMATE[EX2], bits)
    assert within.fixed.mean() > 0.9 and (within.bits == run(bits))[within.fixed].all()


@pytest.mark.slow
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "rounded"])
@pytest.mark.parametrize("name", ["sin.approx.ftz.f32", "cos.approx.f32"])
def test_a_chip_that_counts_turns_has_every_bit(name: str, cut: bool) -> None:
    """The angle is multiplied by a float32 of 1 / (2 pi), and 24 bits behind the point are left."""

    def run(bits: np.ndarray) -> np.ndarray:
        found = APPROXIMATE[name]
        within = found.range(np, bits)
        values = found.form.values(np, bits)
        product = np.abs(values) * float(np.float32(0.15915494))
        mantissa, exponent = np.frexp(product)
        turns = np.ldexp((np.floor if cut else np.rint)(mantissa * 2.0**24), exponent - 24)
        key = np.floor(turns % 1.0 * 2.0**24)
        angle = np.copysign(key / 2.0**24 * (2 * np.pi), values)
        order = (
            found.form.order(np, found.rounded(np, found.formula(np, angle)))
            + (key * 61).astype(np.int64) // (1 << 24) % 3
            - 1
        )
        return np.where(within.fixed, within.bits, found.given(np, order, within.bits)).astype(np.uint32)

    apart = (1 << 11) - 1
    binades = (*range(110, 140), *range(366, 396))
    found = sweep(name, run, binades=binades, apart=apart)
    assert found.key == f"sign, 24 bits of {'' if cut else 'rounded '}turns"
    bits = np.concatenate([np.uint32(n << 23) + np.arange(0, 1 << 23, apart, dtype=np.uint32)[::7] for n in binades])
    within = found.range(APPROXIMATE[name], bits)
    assert within.fixed.mean() > 0.9 and (within.bits == run(bits))[within.fixed].all()


SIN, PI_APART = "sin.approx.f32", 964  # which meets 0x40490FDC, just above pi


def zeros_near_pi(bits: np.ndarray) -> np.ndarray:
    """A sine whose fixed point has one zero, of whichever sign the sine is."""
    within = APPROXIMATE[SIN].range(np, bits)
    values = APPROXIMATE[SIN].form.values(np, within.bits)
    return np.where(np.abs(values) < 2.0**-21, 0, within.bits).astype(np.uint32)


def test_a_few_zeros_of_the_other_sign_stand_by_input() -> None:
    found = sweep(SIN, zeros_near_pi, binades=range(128, 129), apart=PI_APART)
    assert found.inputs.tolist() == [0x40490FDC] and found.results.tolist() == [0] and found.bounded.all()
    within = found.range(APPROXIMATE[SIN], np.array([0x40490FDC], np.uint32))
    assert within.fixed.all() and not within.bits.any()


def test_many_zeros_of_the_other_sign_are_in_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximations, "_FEW_ZEROS", 0)
    found = sweep(SIN, zeros_near_pi, binades=range(128, 129), apart=PI_APART)
    assert not len(found.inputs) and not found.conforms[128] and found.bounded.all() and found.most[128] > 1 << 28
    given = np.array([0x40490FDC, 0x40200000], np.uint32)
    within, ptx = found.range(APPROXIMATE[SIN], given), APPROXIMATE[SIN].range(np, given)
    assert not within.fixed.any() and within.low[0] <= 0 <= within.high[0]
    # Though steps of the binade reach to zero, those of PTX hold everywhere.
    assert (within.low >= ptx.low).all() and (within.high <= ptx.high).all()


def test_a_binade_beyond_the_bounds_of_ptx_has_its_own() -> None:
    def steps(bits: np.ndarray) -> np.ndarray:
        return np.where(bits >> 23 == 124, 5 * (bits.astype(np.int64) % 2), by_fraction(bits))

    found = sweep(RCP, stand_in(RCP, steps), binades=range(118, 126), apart=APART - 1)
    assert np.flatnonzero(~found.bounded).tolist() == [124]
    within = found.range(APPROXIMATE[RCP], np.array([124 << 23 | 4096], np.uint32))
    assert (within.high - within.near).tolist() == [5]
    assert approximations.row(RCP, found)["binades beyond its bounds"] == 1


def test_a_binade_that_does_not_conform_has_bounds() -> None:
    def steps(bits: np.ndarray) -> np.ndarray:
        return np.where(bits >> 23 == 130, bits.astype(np.int64) % 5 - 2, by_fraction(bits))

    found = sweep(RCP, stand_in(RCP, steps), binades=range(118, 136), apart=APART)
    inside, outside = (found.range(APPROXIMATE[RCP], some(range(*ends))) for ends in ((130, 131), (131, 136)))
    assert outside.fixed.all() and not inside.fixed.any()
    assert (inside.low == inside.near - 2).all() and (inside.high == inside.near + 2).all()


def test_without_a_key_there_are_bounds_alone() -> None:
    found = sweep(
        RCP, stand_in(RCP, lambda bits: bits.astype(np.int64) * 7 // 11 % 2), binades=range(120, 124), apart=APART
    )
    assert not found.key and not len(found.table)
    within = found.range(APPROXIMATE[RCP], some(range(120, 124)))
    assert (within.low == within.near).all() and (within.high == within.near + 1).all()


def test_what_contradicts_ptx_stands_beside() -> None:
    special = np.array([0x3F800000 + 12 * APART, 0x40000000 - APART], np.uint32)
    plain = stand_in(RCP, by_fraction)

    def run(bits: np.ndarray) -> np.ndarray:
        return np.where(np.isin(bits, special), np.uint32(0x7FFFFFFF), plain(bits))

    found = sweep(RCP, run, binades=range(120, 134), apart=APART)
    within = found.range(APPROXIMATE[RCP], np.array([*special, 0x3F800000], np.uint32))
    assert within.bits[:2].tolist() == [0x7FFFFFFF] * 2 and within.fixed.all()
    with pytest.raises(ContradictionError, match=re.escape(f"{RCP}: more than 65536 results are none that PTX allows")):
        sweep(RCP, lambda bits: np.full_like(bits, 0x7FFFFFFF), binades=range(100, 140), apart=1 << 8)


@pytest.mark.parametrize("name", [name for name, found in APPROXIMATE.items() if found.form.bits == 16])
def test_every_input_of_sixteen_bits_is_known(name: str) -> None:
    run = stand_in(name, lambda bits: bits.astype(np.int64) * 7 % 3 - 1)
    found, bits = sweep(name, run), np.arange(1 << 16, dtype=np.uint16)
    within = found.range(APPROXIMATE[name], bits)
    assert within.fixed.all() and (within.bits == run(bits)).all()


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_below_its_count(name: str) -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 32, 4000, dtype=np.uint32)
    given = (
        bits.astype(np.uint16) if name == "input" else np.append(bits, np.uint32([0xBF800000, 0x7F800000, 0xB3000000]))
    )
    at = KEYS[name].of(np, given)
    assert at.min() >= 0 and at.max() < KEYS[name].count


def test_a_file_has_the_table_and_equal_ones_once(table: Measured, tmp_path: Path) -> None:
    chip = Chip("some GPU", {RCP: table, "rcp.approx.f32": table})
    size = write(chip, tmp_path / "sm_90.npz")
    assert size < 1.2 * write(Chip("some GPU", {RCP: table}), tmp_path / "other.npz") + 5000
    back = read(tmp_path / "sm_90.npz")
    assert back.name == "some GPU" and set(back.instructions) == set(chip.instructions)
    for name in ("table", "conforms", "least", "most", "inputs", "results"):
        ours, theirs = getattr(table, name), getattr(back.instructions[RCP], name)
        assert ours.dtype == theirs.dtype and (ours == theirs).all()


def test_tables_beyond_the_limit_leave_bounds(table: Measured) -> None:
    small = sweep("ex2.approx.f16", stand_in("ex2.approx.f16", lambda bits: bits.astype(np.int64) % 2))
    chip = Chip("some GPU", {RCP: table, "ex2.approx.f16": small})
    left = fitted(chip, most=sum(map(len, pack(chip).values())) - 1).instructions
    assert not left[RCP].key and left["ex2.approx.f16"].key == "input"
    assert fitted(chip).instructions == chip.instructions


@pytest.mark.parametrize("name", approximations.UNARY)
def test_the_kernel_of_each_instruction_compiles_to_machine_code(name: str) -> None:
    assert approximations.compiled(name, "sm_90a").startswith(b"\x7fELF")


def test_committed_tables_are_small_and_whole() -> None:
    paths = sorted(measured.FOLDER.glob("*.npz"))
    assert sum(path.stat().st_size for path in paths) <= approximations.MOST_BYTES
    assert all(set(read(path).instructions) <= set(approximations.UNARY) for path in paths)


class Gpu:
    targets = ("sm_90a",)

    def identity(self) -> dict[str, str]:
        return {"gpu": "some GPU"}


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str, table: Any = None) -> Any:
    monkeypatch.setattr(exhaustive, "select", lambda name: Gpu())
    monkeypatch.setattr(approximations, "measure", lambda name, arch: table)
    return CliRunner().invoke(exhaustive.command, list(arguments), standalone_mode=False)


def test_the_command_writes_the_table(monkeypatch: pytest.MonkeyPatch, table: Measured, tmp_path: Path) -> None:
    done = command(monkeypatch, "--approximate", "--out", str(tmp_path), table=table)
    assert done.return_value == Exit.CLEAN and (tmp_path / "sm_90.npz").exists()
    assert f"instruction: {RCP}, key: fraction, binades known: 100 %" in done.output
    assert re.search(r"sm_90.npz: \d+ instructions of some GPU in [\d,]+ bytes, in \d+ s", done.output)


def test_what_contradicts_ptx_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exhaustive, "select", lambda name: Gpu())
    small = sweep("ex2.approx.f16", stand_in("ex2.approx.f16", lambda bits: bits.astype(np.int64) % 2))

    def measure(name: str, arch: str) -> Measured:
        if name.startswith("sin"):
            raise ContradictionError(f"{name}: more than 65536 results are none that PTX allows; 0x1 gives 0x2")
        return small

    monkeypatch.setattr(approximations, "measure", measure)
    done = CliRunner().invoke(exhaustive.command, ["--approximate", "--out", str(tmp_path)], standalone_mode=False)
    assert done.return_value == Exit.BYTES_DIFFER and "0x1 gives 0x2; it is left out" in done.output
    left = set(approximations.UNARY) - {"sin.approx.f32", "sin.approx.ftz.f32"}
    assert set(read(tmp_path / "sm_90.npz").instructions) == left


def test_a_flushed_operand_keeps_the_sign_of_its_zero() -> None:
    """As a chip may treat subnormals: zeros of their sign, which are as many steps away as there are subnormals."""

    def run(bits: np.ndarray) -> np.ndarray:
        return APPROXIMATE["sin.approx.f32"].range(np, APPROXIMATE["sin.approx.ftz.f32"].form.flushed(np, bits)).bits

    found = sweep("sin.approx.f32", run, binades=range(256, 257), apart=APART)
    assert not len(found.inputs) and found.most[256] > 1 << 22


def test_a_part_is_not_written(monkeypatch: pytest.MonkeyPatch, table: Measured, tmp_path: Path) -> None:
    done = command(monkeypatch, "--approximate", "--only", "rcp", "--out", str(tmp_path), table=table)
    assert done.return_value == Exit.CLEAN and not list(tmp_path.iterdir())
    assert "2 instructions on some GPU" in done.output


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("--approximate", "--only", "exp"), "no instruction has 'exp' in its name; there are rcp.approx.f32"),
        (("--only", "ex2"), "--only and --out go with --approximate"),
    ],
)
def test_wrong_options_are_refused(monkeypatch: pytest.MonkeyPatch, arguments: tuple, sentence: str) -> None:
    found = command(monkeypatch, *arguments)
    assert isinstance(found.exception, UsageError) and sentence in str(found.exception)
