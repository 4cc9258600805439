"""A kernel with one wrong line is caught, and the message names what is wrong with it.

Each case copies the kernels, breaks one line, and verifies on the emulator, as `make verify` would.
"""

from dataclasses import dataclass

import pytest
from emulated import with_wrong_line

from harness.device.emulator import EmulatorDevice
from harness.suite import find_case
from harness.verdict import Verdict
from harness.verify import verify


@dataclass(frozen=True)
class Wrong:
    """One broken line: `right` in `file` becomes `wrong`; the case that meets it, and what the message must say."""

    name: str
    file: str
    right: str
    wrong: str
    case: str
    verdict: Verdict
    says: str


WRONG = [
    Wrong(
        "nibble swap",
        "tile.cuh",
        "make_uint2(codes.word[0], codes.word[1])",
        "make_uint2((codes.word[0] & 0x0F0F0F0Fu) << 4 | (codes.word[0] >> 4 & 0x0F0F0F0Fu),"
        " (codes.word[1] & 0x0F0F0F0Fu) << 4 | (codes.word[1] >> 4 & 0x0F0F0F0Fu))",
        "per_tensor/outputs=rowwise/48x80/normal/eager",
        Verdict.MISMATCH,
        "nibble swap",
    ),
    Wrong(
        "dropped clamp",
        "nvfp4.cuh",
        "return fminf(__frcp_rn(__fmul_rn(scale_inv, global.decode)), kFloatMax);",
        "return __frcp_rn(__fmul_rn(scale_inv, global.decode));",
        "per_tensor/outputs=rowwise/48x80/zero_blocks/eager",
        Verdict.MISMATCH,
        "missing clamp of the multiplier",
    ),
    Wrong(
        "missing __syncthreads",
        "per_tensor.cuh",
        "    __syncthreads();\n    // Columnwise:",
        "    // Columnwise:",
        "per_tensor/default/128x128/normal/eager",
        Verdict.NONDETERMINISTIC,
        "race at turn.cuh:",
    ),
    Wrong(
        "ties away from even",
        "elements.cuh",
        '"cvt.rn.f16x2.f32 %0, %1, %2;"',
        '"cvt.rz.f16x2.f32 %0, %1, %2;"',
        "per_tensor/outputs=rowwise/48x80/ties/eager",
        Verdict.MISMATCH,
        "cause",
    ),
    Wrong(
        "padding left unwritten",
        "layout.cuh",
        "if (extents.allocated(line, block)) {",
        "if (extents.holds(line, block)) {",
        "per_tensor/outputs=rowwise/48x80/normal/eager",
        Verdict.UNWRITTEN,
        "unwritten or stale",
    ),
    Wrong(
        "one block too many",
        "layout.cuh",
        "return row < rows && block < blocks;",
        "return row < rows && block <= blocks;",
        "per_tensor/outputs=rowwise/48x80/normal/eager",
        Verdict.OUT_OF_BOUNDS,
        "out of bounds at",
    ),
    Wrong(
        "scratch not cleaned",
        "tile.cuh",
        "bits[v] = atomicExch(&state->bits[v], 0u);",
        "bits[v] = state->bits[v];",
        "per_tensor/outputs=rowwise,stage=amax/48x80/normal/eager",
        Verdict.OUT_OF_BOUNDS,
        "scratch 'amax_state' is not zero after the last launch",
    ),
    Wrong(
        "a line that does not compile",
        "per_tensor.cu",
        "const ScaleExtents extents(rows, cols / kBlock);",
        "const ScaleExtents extents(rows, cols / kBloc);",
        "per_tensor/outputs=rowwise/48x80/normal/eager",
        Verdict.COMPILE_ERROR,
        'identifier "kBloc" is undefined',
    ),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_one_wrong_line_is_caught_and_named(wrong, tmp_path):
    kernels = with_wrong_line(tmp_path, wrong.file, wrong.right, wrong.wrong)
    result = verify(find_case(wrong.case), EmulatorDevice(kernels=kernels))
    assert (result.verdict, wrong.says in result.story) == (wrong.verdict, True), result.story
    assert wrong.case in result.story
    assert f"make verify CASE='{wrong.case}'" in result.story


@pytest.mark.parametrize("case", sorted({wrong.case for wrong in WRONG}))
def test_the_same_cases_pass_with_the_right_lines(case):
    result = verify(find_case(case), EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story
    assert result.bytes_compared > 0
