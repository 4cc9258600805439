"""Tables of approximate instructions: what a sweep of a GPU leaves, by which the emulator has its bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from harness.commands import exhaustive
from harness.emulator.approximate import measured
from harness.emulator.approximate.bounds import APPROXIMATE
from harness.emulator.approximate.measured import KEYS, Chip, Measured, pack, read
from harness.errors import Exit, UsageError
from harness.studies import approximations
from harness.studies.approximations import ContradictionError, fitted, sweep, write

RCP, APART = "rcp.approx.ftz.f32", 1 << 11


def stand_in(name: str, steps: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """An instruction that is the formula's nearest value and some steps."""
    found = APPROXIMATE[name]

    def run(bits: np.ndarray) -> np.ndarray:
        within, by = found.range(np, bits), steps(bits)
        return np.where(within.fixed | (by == 0), within.bits, found.given(np, within.near + by)).astype(bits.dtype)

    return run


def by_fraction(bits: np.ndarray) -> np.ndarray:
    """-1, 0 or 1, by the fraction alone, in stretches."""
    return (bits.astype(np.int64) & 0x7FFFFF) * 977 // (1 << 23) % 3 - 1


def some(found: range, count: int = 3000) -> np.ndarray:
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


def test_a_binade_that_does_not_conform_has_bounds() -> None:
    def steps(bits: np.ndarray) -> np.ndarray:
        return np.where(bits >> 23 == 130, bits.astype(np.int64) % 5 - 2, by_fraction(bits))

    found = sweep(RCP, stand_in(RCP, steps), binades=range(118, 136), apart=APART)
    inside, outside = (found.range(APPROXIMATE[RCP], some(range(*ends))) for ends in ((130, 131), (131, 136)))
    assert outside.fixed.all() and not inside.fixed.any()
    assert (inside.low == inside.near - 2).all() and (inside.high == inside.near + 2).all()


def test_without_a_key_there_are_bounds_alone() -> None:
    found = sweep(RCP, stand_in(RCP, lambda bits: bits.astype(np.int64) * 7 // 11 % 2), binades=range(120, 124), apart=APART)
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
    given = bits.astype(np.uint16) if name == "input" else np.append(bits, np.uint32([0xBF800000, 0x7F800000, 0xB3000000]))
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
    assert all(set(read(path).instructions) == set(approximations.UNARY) for path in paths)


class Gpu:
    targets = ("sm_90a",)

    def identity(self) -> dict[str, str]:
        return {"gpu": "some GPU"}


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str, table: Any = None) -> Any:
    monkeypatch.setattr(exhaustive, "select", lambda name: Gpu())
    monkeypatch.setattr(approximations, "measure", lambda names, arch: ((name, table) for name in names))
    return CliRunner().invoke(exhaustive.command, list(arguments), standalone_mode=False)


def test_the_command_writes_the_table(monkeypatch: pytest.MonkeyPatch, table: Measured, tmp_path: Path) -> None:
    done = command(monkeypatch, "--approximate", "--out", str(tmp_path), table=table)
    assert done.return_value == Exit.CLEAN and (tmp_path / "sm_90.npz").exists()
    assert f"instruction: {RCP}, key: fraction, binades known: 100 %" in done.output
    assert re.search(r"sm_90.npz: \d+ instructions of some GPU in [\d,]+ bytes, in \d+ s", done.output)


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
