"""Counters of a launch: instructions, bytes, sectors, bank conflicts, barriers."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, module
from ptx_snippets import kernel, run

from ptx_emulator.launches import launch


def test_instructions_of_a_divergent_loop() -> None:
    body = """ mov.u32 %r0, %tid.x; mov.u32 %r1, 0; shr.u32 %r2, %r0, 5;
$loop: add.u32 %r1, %r1, 1; setp.le.u32 %p0, %r1, %r2; @%p0 bra $loop;"""
    counters = run(kernel(body, 0), {}, grid=3, block=64)
    # Two warps a block: three instructions and `ret` each, and one and two turns of three instructions.
    assert counters.warp_instructions == 3 * (2 * 4 + 3 + 2 * 3)
    assert counters.lane_instructions == 32 * counters.warp_instructions
    assert counters.opcodes["add.u32"] == 9 and counters.opcodes["ret"] == 6


def test_lane_instructions_count_lanes() -> None:
    body = " mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 5; @%p0 bra $end;\n add.u32 %r1, %r0, 1;\n$end:"
    counters = run(kernel(body, 0), {}, block=40)
    assert counters.lane_instructions == 40 * 4 + 5
    assert counters.opcodes["add.u32"] == 1


STRIDED = """
extern "C" __global__ void k(const unsigned* in, unsigned* out, int stride) {
  out[blockIdx.x * 64 + threadIdx.x] = in[threadIdx.x * stride];
}
"""


@pytest.mark.parametrize("stride, sectors", [(1, 4), (2, 8), (8, 32), (16, 32), (0, 1)])
def test_sectors_of_a_strided_load(stride: int, sectors: int) -> None:
    inputs, out = np.zeros(1024, np.uint32), np.zeros(128, np.uint32)
    counters = launch(module(STRIDED), "k", (2, 1, 1), (64, 1, 1), [buffer("in", inputs), buffer("out", out), stride])
    assert counters.global_requests == 8
    assert counters.global_sectors == 4 * sectors + 4 * 4
    assert counters.global_bytes_read == counters.global_bytes_written == 512


def test_sectors_of_unordered_and_masked_lanes() -> None:
    body = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 1;
 sub.u32 %r2, 31, %r0; mad.wide.u32 %rd1, %r2, 32, %rd0; @%p0 ld.global.u32 %r3, [%rd1];"""
    counters = run(kernel(body, 1), {"in": np.zeros(256, np.uint32)})
    assert (counters.global_requests, counters.global_sectors, counters.global_bytes_read) == (1, 16, 64)


SHARED = """ .shared .align 16 .b8 s[{size}]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; mul.lo.u32 %r2, %r0, {stride};
add.u32 %r3, %r1, %r2;
 {line}"""


@pytest.mark.parametrize(
    "stride, line, passes",
    [
        (4, "st.shared.u32 [%r3], %r0;", 1),
        (8, "st.shared.u32 [%r3], %r0;", 2),
        (128, "st.shared.u32 [%r3], %r0;", 32),
        (132, "st.shared.u32 [%r3], %r0;", 1),
        (1, "st.shared.u8 [%r3], %r0;", 1),
        (2, "st.shared.u16 [%r3], %r0;", 1),
        (64, "st.shared.u8 [%r3], %r0;", 16),
        (8, "st.shared.v2.u32 [%r3], {%r0, %r0};", 2),
        (16, "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};", 4),
        (32, "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};", 8),
        (144, "st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};", 4),
    ],
)
def test_bank_conflicts(stride: int, line: str, passes: int) -> None:
    text = kernel(SHARED.replace("{size}", "16384").replace("{stride}", str(stride)).replace("{line}", line), 0)
    counters = run(text, {}, grid=3, block=64, sanitize=stride == 4)
    fewest = {"v2": 2, "v4": 4}.get(line.split(".")[2].split()[0], 1)
    assert counters.shared_requests == 6
    assert counters.shared_wavefronts == 6 * passes
    assert counters.shared_conflicts == 6 * (passes - fewest)


def test_broadcast_is_no_conflict() -> None:
    line = "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [s], %r0; bar.sync 0; ld.shared.u32 %r4, [s];"
    text = kernel(SHARED.format(size=8, stride=0, line=line), 0)
    counters = run(text, {}, block=64)
    assert counters.shared_conflicts == 0 and counters.shared_wavefronts == 3 and counters.barriers == 1


def test_masked_lanes_do_not_conflict() -> None:
    line = "setp.lt.u32 %p0, %r0, 3; @%p0 st.shared.u32 [%r3], %r0;"
    counters = run(kernel(SHARED.format(size=4096, stride=128, line=line), 0), {})
    assert (counters.shared_requests, counters.shared_wavefronts, counters.shared_conflicts) == (1, 3, 2)


def test_constant_memory_is_no_global_traffic() -> None:
    body = " ld.const.u32 %r0, [c+4]; mov.u64 %rd0, c; ld.const.u32 %r1, [%rd0]; add.u32 %r2, %r0, %r1;"
    body += " ld.param.u64 %rd1, [p0];"
    text = kernel(body + " st.global.u32 [%rd1], %r2;", 1, declarations=".const .align 4 .b8 c[8] = {5, 0, 0, 0, 6};")
    out = np.zeros(1, np.uint32)
    counters = run(text, {"out": out}, block=1)
    assert out[0] == 11
    assert (counters.global_bytes_read, counters.global_bytes_written, counters.global_requests) == (0, 4, 1)


def test_barriers_count_blocks() -> None:
    assert run(kernel(" bar.sync 0; bar.sync 0;", 0), {}, grid=5).barriers == 10


def test_traffic_can_be_left_out() -> None:
    counters = launch(
        module(STRIDED), "k", (1, 1, 1), (64, 1, 1),
        [buffer("in", np.zeros(64, np.uint32)), buffer("out", np.zeros(64, np.uint32)), 1], count_traffic=False,
    )  # fmt: skip
    assert counters.global_requests == 0 and counters.global_sectors == 0 and counters.warp_instructions > 0
