"""Random bits: our kernels are not accused, and each way to have bad ones is found by the test that is about it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from harness.device.emulator import EmulatorDevice
from harness.errors import LaunchError, UsageError
from harness.random_bits import design, significance, study
from harness.random_bits.sample import Sampler, case_of, under_test
from harness.random_bits.significance import Count
from harness.random_bits.study import BitTest, Plan

SOURCE = Path(__file__).with_name("stochastic.cu")
MUTANTS = [word.strip() for word in SOURCE.read_text().partition("enum {")[2].partition("}")[0].split(",")]
SHAPE = "352x80"  # more rows than 256, behind those that are not counted


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("stochastic.cu").write_text(SOURCE.read_text())
    return tmp_path


def card(mutant: str, dtype: str = "bf16", sides: tuple[str, ...] = ("rowwise",)) -> str:
    """A card of the kernel with one mistake."""
    kind = {"bf16": "unsigned short", "fp32": "float"}[dtype]
    amaxes = [f"{sides[0]}_amax", f"{sides[-1]}_amax"]
    launches = [{"zero": name} for name in amaxes] + [{
        "kernel": f"amax_of<{kind}>", "grid": 4, "block": 128,
        "arguments": [{"array": "input"}, *({"array": name} for name in amaxes), {"i32": "elements"}],
    }]  # fmt: skip
    for number, side in enumerate(sides):
        arrays = [{"array": name} for name in ("input", f"{side}_amax", f"{side}_data", f"{side}_scale_inv")]
        numbers = [{"i32": "rows"}, {"i32": "cols"}, {"u64": "seed"}, {"u32": "offset"}, {"i32": number}]
        launches.append({"kernel": f"encode<{kind}>", "grid": "(elements // 16 + 127) // 128", "block": 128,
                         "arguments": arrays + numbers})  # fmt: skip
    said = {"code": "stochastic.cu", "recipe": "per_tensor", "options": [f"-DMUTANT={MUTANTS.index(mutant)}"],
            "flags": {"rounding": "sr", "dtype": dtype, "outputs": "both" if len(sides) > 1 else sides[0]},
            "launches": launches}  # fmt: skip
    Path("card.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in said.items()))
    return "card.yaml"


def examined(subject: str | None, flags: Sequence[str] = (), shape: str = SHAPE, launches: int = 2) -> list[BitTest]:
    with under_test(EmulatorDevice(), subject) as device:
        case = case_of("per_tensor", flags, shape, device)
        plan = Plan(case.rows, case.cols, launches, 1e-6, 8, str(case.flags.dtype))
        return study.examine(Sampler(device, case), plan)


def wrong(rows: Sequence[BitTest]) -> set[str]:
    return {row.what for row in rows if row.wrong}


# The statistics


def test_the_smallest_bias_is_seen_as_often_as_it_says():
    random, alpha = np.random.default_rng(0), 1e-4
    for n, fraction in ((2000, 0.5), (5000, 1 / 64), (5000, 63 / 64)):
        seen = significance.exact(Count(round(n * fraction), n, fraction), alpha).seen
        chance = fraction + seen if fraction < 0.9 else fraction - seen
        ups = random.binomial(n, chance, size=150)
        assert np.mean([significance.chance(Count(int(k), n, fraction)) < alpha for k in ups]) > 0.96
        ups = random.binomial(n, fraction, size=150)
        assert not any(significance.chance(Count(int(k), n, fraction)) < alpha / 100 for k in ups)


def test_what_leaves_nothing_to_chance():
    for test in (significance.exact, lambda count, alpha: significance.pooled([count], alpha)):
        assert [test(Count(ups, 1000, 0.0), 1e-9).p for ups in (0, 1)] == [1, 0]
    assert math.isnan(significance.exact(Count(0, 0, 0.5), 1e-9).seen)


def test_pooled_counts_are_as_likely_as_their_sum():
    random, counts = np.random.default_rng(1), []
    for fraction in (1 / 64, 0.25, 0.5, 0.75, 63 / 64):
        counts.append([Count(int(k), 1000, fraction) for k in random.binomial(1000, fraction, size=1000)])
    p = [significance.pooled(each, 1e-6).p for each in zip(*counts, strict=True)]
    for level in (0.5, 0.1, 0.01):
        assert abs(np.mean(np.array(p) < level) - level) < 5 * math.sqrt(level / 1000)


def test_a_share_of_bits_that_repeat_is_seen_from_where_it_says():
    random = np.random.default_rng(2)
    one = random.choice([-1.0, 1.0], size=(96, 64))
    other = random.choice([-1.0, 1.0], size=(96, 64))
    honest = significance.strongest(one, other, 1e-7)
    assert not honest.found and not significance.strongest(one, one, 1e-7, itself=True).found
    again = random.random(one.shape) < 1.05 * honest.seen
    found = significance.strongest(one, np.where(again, one, other), 1e-7)
    assert found.found and found.lag == (0, 0)
    moved = np.roll(one, (5, -3), axis=(0, 1))
    assert significance.strongest(one, moved, 1e-7).lag == (5, -3)
    assert significance.strongest(one, -one, 1e-7).share == -1
    half = one.copy()
    half[48:] = half[:48]
    assert significance.strongest(half, half, 1e-7, itself=True).lag in ((48, 0), (-48, 0))


def test_false_alarms_are_as_rare_as_alpha():
    """At a rate that can be counted: of 150 pairs of fair bits."""
    random = np.random.default_rng(3)
    alarms = sum(significance.strongest(*random.choice([-1.0, 1.0], size=(2, 48, 32)), 0.05).found for _ in range(150))
    assert alarms <= 15


def test_the_tensors_have_a_scale_of_one_in_both_directions():
    from harness.oracles import nvfp4

    x = design.tensor(design.halves(64, 96))
    for lines in (x, x.T):
        amax = nvfp4.block_amax(np.ascontiguousarray(lines))
        assert (amax[16:, 1:] == 6).all() and lines.max() == 2688 and (lines.max(axis=1) == 2688).all()
    for dtype in design.FINEST:
        from harness.contract.dtypes import DTYPES

        values = np.array([cell.value for cell in design.cells(dtype, 8)])
        assert (values.astype(DTYPES[dtype]).astype(float) == values).all()


# Kernels


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("dtype=fp32", "outputs=rowwise"), ("block=block_16x16", "outputs=rowwise")])
def test_our_kernels_are_not_accused(flags: tuple[str, ...]):
    assert wrong(examined(None, flags)) == set()


def test_ours_is_not_accused_with_other_seeds(monkeypatch: pytest.MonkeyPatch):
    for seed in (1 << 40, (1 << 64) - 3):
        monkeypatch.setattr(study, "SEED", seed)
        monkeypatch.setattr(study, "OFFSET", seed % 1000)
        assert wrong(examined(None, ("outputs=rowwise",), "144x80", 1)) == set()


ALL = "all intervals"
FOUND = {
    "RIGHT": set(),
    "NEAREST": {ALL, "one place of 16 in a block", "+[4, 6]", "-[0, 0.5]"},
    "ZEROS": {"neither neighbour"},
    "FOUR_BITS": {"one place, the worst of 89", "0.015625 of the way up"},
    "SEVEN_BITS": {"one place, the worst of 89"},
    "EARLY": {"one place, the worst of 89", "0 of the way up"},
    "PERIOD_OF_256": {"within a launch"},
    "OF_THE_CTA": {"within a launch"},
    "CONSTANT_SEED": {"a launch and seed + 1", "a launch and seed + 2^32"},
    "NO_OFFSET": {"a launch and offset + 1"},
    "LOW_SEED": {"a launch and seed + 2^32"},
    "SUM_OF_BOTH": {"seed + 1 and offset + 1", "a launch and seed + 1, offset - 1"},
    "SAME_DIRECTION": {"rowwise and columnwise, in their order"},
    "BYTE_OF_FOUR": {"within a launch"},
    "ONE_INTERVAL": {"+[4, 6]", "-[4, 6]"},
    "ONE_SIGN": {"-[1, 1.5]"},
    "ONE_PLACE": {"one place of 16 in a block"},
    "MIRRORED": {"within a launch"},
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", FOUND)
def test_bad_bits_are_found_by_the_test_that_is_about_them(mutant: str):
    of_bias = FOUND[mutant] & {ALL, "0.015625 of the way up", "0 of the way up", "+[4, 6]", "-[1, 1.5]"}
    launches = 8 if mutant in ("RIGHT", "SEVEN_BITS") else 4 if of_bias else 1
    both = {"SAME_DIRECTION": ("rowwise", "columnwise")}.get(mutant, ("rowwise",))
    rows = examined(card(mutant, sides=both), launches=launches)
    found, finest = wrong(rows), next(row.found for row in rows if row.what == "how fine they are")
    assert finest == {"SEVEN_BITS": 2.0**-7, "FOUR_BITS": 2.0**-4, "RIGHT": 2.0**-8}.get(mutant, finest)
    assert found >= FOUND[mutant]
    if mutant in ("RIGHT", "PERIOD_OF_256", "NO_OFFSET", "LOW_SEED", "SAME_DIRECTION", "CONSTANT_SEED", "SUM_OF_BOTH"):
        assert not found & {ALL, "neither neighbour", "one place, the worst of 89", "one place of 16 in a block"}
    if mutant == "ONE_SIGN":
        assert "+[1, 1.5]" not in found


def test_a_threshold_that_is_off_by_one_is_seen_in_a_type_that_shows_a_single_step():
    found = wrong(examined(card("LATE", "fp32"), launches=8))
    assert "0.00390625 of the way up" in found
    assert wrong(examined(card("RIGHT", "fp32"))) == set()


FUNCTION = """
import ml_dtypes
import numpy as np

SIZES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 8], np.float32)


def quantize(case, inputs, outputs):
    x = np.asarray(inputs["input"]).view(ml_dtypes.bfloat16).reshape(case.rows, case.cols).astype(np.float32)
    outputs["rowwise_amax"][...] = amax = np.abs(x).max()
    blocks = np.abs(x).reshape(case.rows, -1, 16).max(axis=2)
    scales = (blocks * np.float32(2688 / amax / 6)).astype(ml_dtypes.float8_e4m3fn)
    outputs["rowwise_scale_inv"][...] = 0
    outputs["rowwise_scale_inv"][: case.rows, : case.cols // 16] = scales.view(np.uint8)
    v = x * np.repeat(2688 / amax / scales.astype(np.float32), 16, axis=1)
    low = np.searchsorted(SIZES, np.abs(v), side="right") - 1
    part = (np.abs(v) - SIZES[low]) / (SIZES[np.minimum(low + 1, 8)] - SIZES[low])
    up = np.random.default_rng(case.seed % 2**32).random(v.shape) < part  # the same for every offset
    codes = np.minimum(low + up, 7).astype(np.uint8) | (np.signbit(v) * np.uint8(8))
    outputs["rowwise_data"][...] = codes[:, ::2] | codes[:, 1::2] << 4
"""


def test_a_function_with_random_numbers_of_its_own():
    Path("mine.py").write_text(FUNCTION)
    with under_test(EmulatorDevice(), "mine:quantize") as device:
        case = case_of("per_tensor", ("outputs=rowwise",), "144x80", device)
        found = study.examine(Sampler(device, case), Plan(144, 80, 1, 1e-6, 8, "bf16"))
    assert wrong(found) == {
        "a launch and offset + 1", "a launch and seed + 2^32", "offset + 1 and seed + 2^32",
        "seed + 1 and seed + 1, offset - 1",
    }  # fmt: skip


def test_there_is_a_test_for_each_mutant():
    assert {*FOUND, "LATE"} == set(MUTANTS)


# The command


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["sr", "--device", "emulator", "--shape", "144x80", "--launches", "1", *words])
    return ended.value.code


def test_the_command(capsys: pytest.CaptureFixture):
    assert run("--flag", "outputs=rowwise") == 0
    said = capsys.readouterr().out
    assert "none wrong; a kernel that is right is accused with a chance of 1e-06 at most" in said
    assert run("--subject", card("ZEROS")) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, code, sentence",
    [
        (("gemm",), 64, "gemm has no stochastic rounding of one tensor; choose per_tensor or per_token"),
        (("--flag", "rht=true"), 64, "what is rotated, or not encoded, is not rounded at known places"),
        (("--flag", "rht"), 64, "--flag rht is not flag=value"),
        (("--flag", "output=both"), 64, "per_tensor has no flag 'output'; did you mean 'outputs'?"),
        (("--shape", "100x"), 64, "--shape '100x' is not a shape"),
        (("--shape", "100x100"), 64, "rows = 100 is not a positive multiple of 16"),
        (("--shape", "16x1600"), 64, "a tensor of 16x1600 has too few elements behind its first 16 rows and columns"),
        (("--shape", "2048x2048"), 4, "more than 1048576 elements"),
        (("--subject", "nosuch.yaml"), 64, "nosuch.yaml:1: the file cannot be read"),
        (("--alpha", "2"), 64, "alpha"),
    ],
)
def test_bad_words_are_one_sentence(words: tuple[str, ...], code: int, sentence: str, capsys: pytest.CaptureFixture):
    assert run(*words) == code
    said = capsys.readouterr().err
    assert sentence in said and "Traceback" not in said


def test_a_kernel_with_other_scales_is_told_to_be_verified_first(folder: Path):
    text = SOURCE.read_text().replace("e4m3(largest *", "e4m3(2 * largest *")
    Path("stochastic.cu").write_text(text)
    with pytest.raises(LaunchError, match="have a scale of 1 in rowwise_scale_inv; verify the kernel with"):
        examined(card("RIGHT"), shape="144x80", launches=1)


def test_scipy_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch):
    import sys

    from harness.random_bits.sample import require

    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(UsageError, match=r"pip install 'nvfp4-harness\[stats\]'"):
        require()
