"""A mistake planted in the source of a kernel is called by its name, or not known: never by another's name.

The kernels are the one that `harness new` writes, whose recipe has no replayed steps, and row_scaled. Where a screen
says which mistakes fit, the right one is among them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import own_recipe
import pytest

from harness.device.emulator import EmulatorDevice
from harness.files import KERNELS
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.diagnosis.classify import NOT_KNOWN
from harness.verify.verify import verify

CODE = (
    "const u32 code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);"
)
CUT = "const u32 code = (a >= .5f) + (a >= 1.f) + (a >= 1.5f) + (a >= 2.f) + (a >= 3.f) + (a >= 4.f) + (a >= 6.f);"
SIGN = "return code | (signbit(v) ? 8 : 0);"
AMAX = "for (int i = 0; i < kBlock; ++i) amax = fmaxf(amax, fabsf(x[i]));"
SCALE = "e4m3_round(amax * (1.0f / 6.0f))"
MULTIPLIER = "scale_inv.value == 0.0f ? 0.0f : 1.0f / scale_inv.value"
PAIR = "e2m1(x[i] * multiplier) | e2m1(x[i + 1] * multiplier) << 4"
READ = "input[i64(row) * cols + col]"
DATA = "rowwise_data[(i64(row) * cols + block * kBlock + i) / 2]"
SCALE_AT = "rowwise_scale_inv[i64(row) * extents.padded_blocks + block]"
OWN_BLOCK = "[threadIdx.x % kBlocksAcross * kBlock]"
OTHER_LAYOUT = (
    "rowwise_scale_inv[(row / 128 * (extents.padded_blocks / 4) + block / 4) * 512 + row % 32 * 16 + "
    "row % 128 / 32 * 4 + block % 4]"
)
# name of the mistake: the right text, the wrong one, and the causes that are right; an emulator's fault has none
MISTAKES = {
    "ties away from zero": (CODE, CODE.replace("a > ", "a >= "), {"tie direction"}),
    "ties toward zero": (CODE, CODE.replace("a >= ", "a > "), {"tie direction"}),
    "a tie at 0.75 alone": (CODE, CODE.replace("a >= 0.75f", "a > 0.75f"), {"tie direction"}),
    "codes truncated": (CODE, CUT, {"codes truncated"}),
    "a bound of 1.2 for 1.25": (CODE, CODE.replace("1.25f", "1.2f"), set()),
    "no code beyond 4": (CODE, CODE.replace(" + (a > 5.0f)", ""), {"saturates too early"}),
    "sign of zero dropped": (SIGN, "return code | (v < 0.0f ? 8 : 0);", {"sign of zero dropped"}),
    "sign of codes of zero dropped": (SIGN, "return code == 0 ? 0 : code | (signbit(v) ? 8 : 0);",
                                      {"sign of zero dropped"}),
    "sign dropped": (SIGN, "return code;", {"sign dropped"}),
    "NaN is 0": ("if (v != v) return 7;", "if (v != v) return 0;", {"NaN code"}),
    "half of a block's amax": (AMAX, AMAX.replace("i < kBlock", "i < kBlock / 2"), {"amax of a part of the block"}),
    "all but the last of a block's amax": (AMAX, AMAX.replace("i < kBlock", "i < kBlock - 1"),
                                           {"amax of a part of the block"}),
    "a step of a reduction missing": (AMAX, AMAX.replace("++i", "i += 2"), {"amax of a part of the block"}),
    "amax without abs": (AMAX, AMAX.replace("fabsf(x[i])", "x[i]"), {"amax without abs"}),
    "amax of the next block": (AMAX, AMAX.replace("x[i]", "x[i + (threadIdx.x % 8 < 7 ? 16 : 0)]"), set()),
    "scale truncated": (SCALE, "e4m3_round(__uint_as_float(__float_as_uint(amax * (1.0f / 6.0f)) & 0xFFF00000u))",
                        {"scale truncated"}),
    "scale one last bit more": ("u8(scale_inv.code)", "u8(scale_inv.code + (scale_inv.code > 0u))", {"1-ulp scale"}),
    "division for a product": (PAIR, "e2m1(x[i] / scale_inv.value) | e2m1(x[i + 1] / scale_inv.value) << 4",
                               set()),
    "multiplier of the scale before its cast": (MULTIPLIER, "amax == 0.0f ? 0.0f : 6.0f / amax", set()),
    "multiplier cut to bf16": (MULTIPLIER, "__uint_as_float(__float_as_uint(1.0f / scale_inv.value) & 0xFFFF0000u)",
                               set()),
    "nibbles swapped": (PAIR, "e2m1(x[i] * multiplier) << 4 | e2m1(x[i + 1] * multiplier)", {"nibble swap"}),
    "extents swapped, by stride": (READ, "input[i64(row) * rows + col]", {"extents swapped"}),
    "extents swapped, by place": (READ, "input[i64(col) * rows + row]", {"extents swapped"}),
    "extents swapped in the output": (DATA, DATA.replace("* cols", "* rows"), None),
    "data transposed": (DATA, "rowwise_data[(i64(block) * kBlock + i) / 2 * rows + row]", {"output transposed"}),
    "scales in the other layout": (SCALE_AT, OTHER_LAYOUT, {"compact and swizzled mixed up"}),
    "scales without padding": (SCALE_AT, "rowwise_scale_inv[i64(row) * (cols / kBlock) + block]", None),
    "a barrier missing": ("__syncthreads();", "", None),
    "off by one block": (OWN_BLOCK, "[(threadIdx.x + 1) % kBlocksAcross * kBlock]", {"wrong place"}),
    "rows exchanged": ("&tile[threadIdx.x / kBlocksAcross]", "&tile[threadIdx.x / kBlocksAcross ^ 1]",
                       {"wrong place"}),
}  # fmt: skip
OF_ROWS = {
    "ties away from zero": ("numerics/e2m1.cuh", "return (__float_as_uint(v) & kLowerIsOdd) == 0", "return false",
                            {"tie direction"}),
    "reciprocal for a division": ("numerics/nvfp4.cuh", "fminf(__frcp_rn(__fmul_rn(scale_inv, global.decode))",
                                  "fminf(global.encode * __frcp_rn(scale_inv)", {"reciprocal for a division"}),
    "order of the scale product": ("numerics/nvfp4.cuh", "__fmul_rn(amax, __fmul_rn(global.encode, 1.0f / kE2m1Max))",
                                   "amax * global.encode / kE2m1Max", {"order of the scale product"}),
    "a part of a row's amax": ("encode/row_scaled.cuh", "amax = fmaxf(amax, block_amax(held[i]))",
                               "amax = fmaxf(amax, team.thread % 4 == 3 ? 0.0f : block_amax(held[i]))",
                               {"amax of a part"}),
}  # fmt: skip
INPUTS = ("normal", "ties", "specials_nan", "signed_zero")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = own_recipe.written(tmp_path_factory.mktemp("planted") / own_recipe.NAME)
    with own_recipe.in_use(folder):
        yield folder


def named(story: str) -> set[str]:
    """The causes that a screen names; none if it says that none is known."""
    line = re.search(r"^cause +(.*)$", story, re.MULTILINE)[1]
    if line.startswith(NOT_KNOWN):
        return set()
    return set(line.partition(":")[0].removeprefix("fits ").split(", "))


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_kernel_of_a_user(folder: Path, mistake: str):
    right, wrong, causes = MISTAKES[mistake]
    source = folder / f"{own_recipe.NAME}.cu"
    text, stories = source.read_text(), {}
    assert text.count(right) == 1
    try:
        source.write_text(text.replace(right, wrong))
        for drawn in INPUTS:
            case = find_case(f"{own_recipe.NAME}/default/48x80/{drawn}/eager")
            result = verify(case, EmulatorDevice())
            if result.verdict is Verdict.MISMATCH:
                stories[drawn] = result.story
            else:
                assert result.verdict is not Verdict.PASS or causes is not None
    finally:
        source.write_text(text)
    assert stories or causes is None
    for drawn, story in stories.items():
        assert not named(story) or causes & named(story), (drawn, story)
    if causes:
        assert any(causes & named(story) for story in stories.values()), stories


@pytest.mark.slow
@pytest.mark.parametrize("mistake", OF_ROWS)
def test_a_mistake_in_a_kernel_with_steps(tmp_path: Path, mistake: str):
    file, right, wrong, causes = OF_ROWS[mistake]
    copy = tmp_path / "kernels"
    shutil.copytree(KERNELS, copy)
    text = (copy / file).read_text()
    assert right in text
    (copy / file).write_text(text.replace(right, wrong))
    for drawn in ("normal", "ties", "outliers_rows"):
        case = find_case(f"row_scaled/outputs=rowwise/48x80/{drawn}/eager")
        result = verify(case, EmulatorDevice(kernels=copy))
        if result.verdict is Verdict.MISMATCH:
            assert not named(result.story) or causes & named(result.story), result.story
        else:
            assert result.verdict is Verdict.PASS
