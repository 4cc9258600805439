"""The formats in examples/: right in every byte, and wrong kernels are told apart, most of them by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_recipe import in_use

import harness
from harness.check import recipe_files
from harness.files import ROOT

EXAMPLES = ROOT / "examples"
NAMES = ("mxfp4", "mxfp8")
RIGHT = (
    *(f"scale_rule={rule}/96x160/power_edges" for rule in ("floor", "nearest")),
    "default/160x288/power_edges",
    "dtype=fp16/32x96/specials_nan",
    "default/32x96/specials_inf",
    "outputs=rowwise/33x96/normal",
    "outputs=rowwise/1x32/normal",
)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A copy of an example, which tests may change, in use."""
    copied = shutil.copytree(EXAMPLES / request.param, tmp_path / request.param)
    with in_use(copied):
        yield copied


def test_each_example_is_three_files():
    files = {path.name: sorted(each.name for each in path.iterdir() if each.is_file()) for path in EXAMPLES.iterdir()}
    assert files == {name: [f"{name}{suffix}" for suffix in (".cu", ".py", ".yaml")] for name in NAMES}


@pytest.mark.parametrize("folder", NAMES, indirect=True)
def test_its_files_agree_and_its_bytes_are_right(folder):
    assert recipe_files.errors() == []
    for case in RIGHT:
        result = harness.verify_case(f"{folder.name}/{case}/eager", "emulator")
        assert result.verdict is harness.Verdict.PASS, result.story


# For both examples. name: before, after, the case, and what its screen says; functions that mutants call are below
_BYTE = "return min((bits + (bits < 0x800000u ? kUp / 2 : kUp)) >> 23, 254u);"
_FUNCTIONS = """
__device__ u32 nan_max2(u32 a, u32 b, bf16) {
  u32 m;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
  return m;
}
__device__ u32 nan_max2(u32 a, u32 b, fp16) { return max2(a, b, fp16{}); }
template <typename Dtype>
__device__ u32 from_first(const u32 (&word)[4], Dtype dtype) {
  u32 m = abs2(word[0], dtype);
  for (int i = 1; i < 4; ++i) m = max2(m, abs2(word[i], dtype), dtype);
  return m;
}
__device__ float fma_0(float a, float b) { return __fmaf_rn(a, b, 0.0f); }
__device__ float early(float a, float b) { return fmaxf(fminf(a * b, kElementPower), -kElementPower); }

"""
MUTANTS = {
    "bias off by one": (
        _BYTE, _BYTE.replace("return ", "return bits == 0 ? 0 : ").replace("254u)", "253u) + 1u"),
        "default/96x160/power_edges",
        "exponent bias one too large: a mistake that the recipe's oracle names",
    ),
    "ceil as floor": ("? 0x7FFFFFu", "? 0u", "outputs=rowwise/96x160/power_edges", "1-ulp scale"),
    "another rule": (
        "e8m0_of<scale_rule>", "e8m0_of<ScaleRule::floor>", "default/96x160/power_edges",
        "another value of a flag: the bytes are those of scale_rule=floor",
    ),
    "nearest, a tie to the smaller power": (
        {"mxfp4": "0x400000u : 0u;"}, "0x3FFFFFu : 0u;", "scale_rule=nearest/96x160/power_edges", "1-ulp scale",
    ),
    "no scale below 2^-126": ("bits < 0x800000u ? kUp / 2 : kUp", "kUp", "default/32x96/subnormal", "e8m0 5.87747e-39"),
    "a subnormal scale as 0": (
        "bits = __float_as_uint(v);", "bits = v < 0x1p-126f ? 0u : __float_as_uint(v);", "default/192x288/power_edges",
        "cause",
    ),
    "an infinite amax as NaN": (", 254u);", ", 255u);", "default/32x96/specials_inf", "0xFE = e8m0 1.70141e+38"),
    "the reciprocal of 2^127 as 0": ("byte == 254 ? 0x400000u : ", "", "default/32x96/specials_inf", "cause"),
    "saturation at the largest power": (
        re.compile(r"__fmul_rn\((?!amax)"), "early(", "scale_rule=floor/96x160/power_edges", "cause",
    ),
    "NaN as max": (
        " max2(", " nan_max2(", "outputs=columnwise/32x96/specials_nan",
        "fit NaN kept in the amax",
    ),
    "an amax that begins at the first value": (
        re.compile(r"u32 halves = absmax<Dtype>\((.*?)\);"), r"u32 halves = from_first(\1, Dtype{});",
        "outputs=rowwise/32x96/nan_lines",
        "fit a block of nothing but NaN has the amax NaN",
    ),
    "a block of 16 in place of 32": (
        {"mxfp4": "__shfl_xor_sync(~0u, halves, 2)", "mxfp8": "__shfl_xor_sync(~0u, halves, apart)"},
        "__shfl_sync(~0u, halves, lane & ~3)", "outputs=rowwise/96x160/power_edges", "cause",
    ),
    "fma with 0": ("__fmul_rn(", "fma_0(", "default/32x96/signed_zero", "sign of zero dropped"),
    "padding not written": ("extents.allocated(", "extents.holds(", "outputs=rowwise/32x96/normal", "unwritten"),
}  # fmt: skip


# A dict has the text of each example; of mxfp8 no amax of 16 bits reaches a tie.
@pytest.mark.parametrize(
    ("folder", "mutant"),
    [(name, mutant) for mutant, (before, *_) in MUTANTS.items() for name in NAMES
     if not isinstance(before, dict) or name in before],
    indirect=["folder"],
)  # fmt: skip
def test_a_wrong_kernel_is_told(folder, mutant):
    before, after, case, says = MUTANTS[mutant]
    before = before[folder.name] if isinstance(before, dict) else before
    path = folder / f"{folder.name}.cu"
    head, start, rest = path.read_text().partition("// Step 2 and 3.")
    changed, count = re.subn(before if isinstance(before, re.Pattern) else re.escape(before), after, rest)
    assert count
    path.write_text(head + _FUNCTIONS + start + changed)
    result = harness.verify_case(f"{folder.name}/{case}/eager", "emulator")
    assert result.verdict in ("MISMATCH", "UNWRITTEN"), result.story
    assert says in result.story, result.story
