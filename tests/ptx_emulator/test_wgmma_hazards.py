"""Every check of the sanitizer around `wgmma`, on CUDA C++ that has the bug, and on the same code without it."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, line_of, module
from ptx_snippets import kernel
from ptx_snippets import run as run_ptx
from wgmma_source import descriptor, device_functions

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch

# Warpgroups multiply ones: A from registers, B of 8 columns, which `FILL` writes. Tests replace the names in capitals.
SOURCE = """
#define barrier() __syncthreads()
#define copy(to, from) \\
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from))
extern "C" __global__ void k(const float* in, float* out) {
  __shared__ __align__(1024) u32 b[2][64], a_tile[512];
  const int t = threadIdx.x;
  out += blockIdx.x * blockDim.x;
  const u64 at = (__cvta_generic_to_shared(b[0]) >> 4) | 8 << 16;
  const u64 a_at = (__cvta_generic_to_shared(a_tile) >> 4) | 64 << 16 | 8ull << 32;
  float d[4] = {in[0], in[1], in[2], in[3]}, e[4] = {in[4], in[5], in[6], in[7]};
  u32 a[4];
  for (int i = 0; i < 4; ++i) a[i] = ((const u32*)in)[8 + i];
  if (t < 128) b[t / 64][t % 64] = 0x3F803F80u;  // fill
  FIRST
  multiply(d, OPERAND, at, 1);
  SECOND
  commit();
  THIRD
  wait(0);
  FOURTH
  out[t] = d[0] + e[0];  // read
}
"""
GOOD = {"FIRST": "proxy(); barrier(); fence();", "SECOND": "", "THIRD": "", "FOURTH": "", "OPERAND": "a"}
MULTIPLY = "// wgmma const"


def source(**parts: str) -> str:
    text = device_functions(8) + SOURCE
    for name, usual in GOOD.items():
        text = text.replace(name, parts.get(name.lower(), usual))
    return text


def run(text: str, block: int = 128, **options) -> np.ndarray:
    out = np.zeros(2 * block, np.float32)
    ones = np.array([0] * 8 + [0x3F803F80] * 4, np.uint32)
    launch(module(text), "k", (2, 1, 1), (block, 1, 1), [buffer("in", ones), buffer("out", out)], **options)
    return out


def fault(text: str, kind: str = "race", at: str = MULTIPLY, block: int = 128) -> str:
    """The sentence of the expected fault, of this kind, at the line with this marker."""
    with pytest.raises(Fault) as caught:
        run(text, block)
    assert (caught.value.kind, caught.value.where) == (kind, line_of(text, at))
    return caught.value.sentence


def test_without_a_bug() -> None:
    assert (run(source()) == 16).all()
    assert (run(source(), 256) == 16).all()


@pytest.mark.parametrize("parts", [{"first": "barrier();"}, {"third": "out[t] = d[1];"}, {"first": "proxy();"}])
def test_nothing_is_checked_without_the_sanitizer(parts: dict[str, str]) -> None:
    assert (run(source(**parts), sanitize=False) == 16).all()


def test_a_warp_on_another_path() -> None:
    text = source(first="proxy(); barrier(); if (t < 96) { fence(); out[t] = 1; __syncwarp(); } barrier(); fence();")
    sentence = fault(text, "inactive_shuffle", "if (t < 96)")
    assert "wgmma.fence.sync.aligned takes thread 96, which waits at bar.sync" in sentence


def test_a_thread_that_exited() -> None:
    sentence = fault(
        source(first="proxy(); barrier(); if (t == 77) return;\n fence();  // alone"), "inactive_shuffle", "// alone"
    )
    assert "takes all 128 threads of a warpgroup, and thread 77 exited or never was; k, grid (2, 1, 1), bl" in sentence


def test_a_block_that_is_no_warpgroup() -> None:
    text = source(first="proxy(); barrier();\n fence();  // all")
    sentence = fault(text, "inactive_shuffle", "// all", block=96)
    assert "thread 0 is not in one: the block has 96" in sentence
    sentence = fault(text, "inactive_shuffle", "// all", block=160)
    assert "thread 128 is not in one: the block has 160" in sentence


def test_a_warpgroup_alone() -> None:
    text = source(first="proxy(); barrier(); if (t < 128) return;\n fence();")
    assert (run(text, 256).reshape(4, 128) == [[0], [16], [0], [16]]).all()


@pytest.mark.parametrize("operand, what", [("at + (t & 32)", "matrix descriptor"), ("at, t < 64);  //", "scale-d")])
def test_operands_that_differ(operand: str, what: str) -> None:
    text = source().replace("OPERAND, at, 1)", "a, at, 1)").replace("a, at, 1)", f"a, {operand}, 1)")
    sentence = fault(text, "inactive_shuffle")
    assert f"gets a {what} that is not that of its warpgroup's first thread" in sentence


SHOWN = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"


@pytest.mark.parametrize("where", ["second", "third"])
def test_an_accumulator_read_early(where: str) -> None:
    sentence = fault(source(**{where: "out[t] = d[1];  // early\n"}), at="// early")
    assert "st.global.f32 reads an accumulator of the wgmma at kernel.cu:" in sentence
    assert "before a wgmma.wait_group covers it" in sentence


def test_waiting_for_a_group_too_few() -> None:
    text = source(third="wait(1); out[t] = d[1];  // early\n")
    assert "reads an accumulator" in fault(text, at="// early")
    run(text.replace("wait(1)", "commit(); wait(1)"))


def test_a_product_that_was_never_committed() -> None:
    text = source(second="commit();", third="multiply(e, a, at, 1); wait(0); out[t] = e[1];  // early\n")
    assert "reads an accumulator" in fault(text, at="// early")
    run(text.replace("wait(0); out", "commit(); wait(0); out"))


def test_one_of_two_products_is_waited_for() -> None:
    text = source(third="multiply(e, a, at, 1); commit(); wait(1); out[t] = d[1];  // of d\n")
    run(text)
    assert "reads an accumulator" in fault(text.replace("d[1];", "e[1];"), at="// of d")


def test_an_accumulator_overwritten_early() -> None:
    text = source(third='asm volatile("ld.global.f32 %0, [%1];" : "+f"(d[1]) : "l"(in));  // early\n')
    assert "ld.global.f32 overwrites an accumulator of the wgmma" in fault(text, at="// early")


@pytest.mark.parametrize("read", ["ld.global.u32 %0, [%1];"])
def test_a_fragment_overwritten_early(read: str) -> None:
    line = f'asm volatile("{read}" : "+r"(a[2]) : "l"(in));  // early\n'
    after = "fence(); multiply(d, a, at, 1); commit(); wait(0);"
    text = source(third=f"{line} {after}")
    assert "ld.global.u32 overwrites a fragment of A of the wgmma at" in fault(text, at="// early")
    run(source(third=f"wait(0); {line} {after}"))


def test_a_fragment_may_be_read() -> None:
    run(source(third="out[t] = a[2];"))


# Two products in a row: the first of registers 0 to 3 and B of zeros, the second of registers that a test inserts.
PAIR = """ .shared .align 128 .b8 s[256];
 mov.u32 %r20, %tid.x; shl.b32 %r20, %r20, 1; mov.u32 %r21, s; add.u32 %r20, %r20, %r21; mov.u16 %rs0, 0;
 st.shared.u16 [%r20], %rs0; fence.proxy.async; bar.sync 0;
 cvt.u64.u32 %rd0, %r21; shr.u64 %rd0, %rd0, 4; or.b64 %rd0, %rd0, 524288; wgmma.fence.sync.aligned;
 MULTIPLY {%r4, %r5, %r6, %r7}, {%r0, %r1, %r2, %r3}, %rd0, 1, 1, 1, 0; wgmma.commit_group.sync.aligned;
 MULTIPLY {ACCUMULATORS}, {FRAGMENTS}, %rd0, 1, 1, 1, 0;"""


@pytest.mark.parametrize(
    "accumulators, fragments, problem",
    [
        ((4, 5, 6, 7), (0, 1, 2, 3), ""),
        ((8, 9, 10, 11), (0, 1, 2, 3), ""),
        ((8, 9, 10, 11), (12, 13, 14, 6), "reads an accumulator of the wgmma"),
        ((8, 9, 10, 2), (12, 13, 14, 15), "overwrites a fragment of A of the wgmma"),
    ],
)
def test_registers_of_two_products(accumulators: tuple[int, ...], fragments: tuple[int, ...], problem: str) -> None:
    body = PAIR.replace("MULTIPLY", SHOWN)
    for name, numbers in (("ACCUMULATORS", accumulators), ("FRAGMENTS", fragments)):
        body = body.replace(name, ", ".join(f"%r{number}" for number in numbers))
    if not problem:
        run_ptx(kernel(body, 0), {}, block=128)
        return
    with pytest.raises(Fault, match=f"{SHOWN} {problem} at ptx:\\d+ before a wgmma.wait_group covers it"):
        run_ptx(kernel(body, 0), {}, block=128)
    landed = body.replace("commit_group.sync.aligned;", "commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")
    run_ptx(kernel(landed, 0), {}, block=128)


def test_no_fence_at_all() -> None:
    sentence = fault(source(first="proxy(); barrier();"))
    assert f"{SHOWN} comes before any wgmma.fence of its warpgroup" in sentence


@pytest.mark.parametrize("of, what", [("d", "an accumulator"), ("a", "a fragment of A")])
def test_registers_written_after_the_fence(of: str, what: str) -> None:
    constraint = "f" if of == "d" else "r"
    write = f'asm volatile("ld.global.b32 %0, [%1];" : "+{constraint}"({of}[2]) : "l"(in));  // late\n'
    text = source(first=f"proxy(); barrier(); fence(); {write}")
    assert f"{SHOWN} uses {what} written at {line_of(text, '// late')} with no wgmma.fence" in fault(text)
    run(source(first=f"proxy(); barrier(); {write} fence();"))


def test_registers_written_between_two_products() -> None:
    write = 'asm volatile("ld.global.f32 %0, [%1];" : "+f"(d[2]) : "l"(in));  // late\n'
    text = source(third=f"wait(0); {write} multiply(d, a, at, 1); commit();")
    assert "uses an accumulator written at" in fault(text)
    run(source(third=f"wait(0); {write} fence(); multiply(d, a, at, 1); commit();"))


# Both warpgroups write a fragment after their fence, and the second fences once more.
SPLIT = """ mov.u32 %r22, %tid.x; setp.lt.u32 %p0, %r22, 128; wgmma.fence.sync.aligned;
 @%p0 add.u32 %r0, %r0, 1; @!%p0 add.u32 %r0, %r0, 2; @%p0 bra $go;
 wgmma.fence.sync.aligned;
$go: MULTIPLY {%r4, %r5, %r6, %r7}, {%r0, %r1, %r2, %r3}, %rd0, 1, 1, 1, 0;"""


def test_registers_written_by_two_warpgroups_of_which_one_fences() -> None:
    body = PAIR[: PAIR.index("wgmma.fence")].replace("s[256]", "s[512]") + SPLIT.replace("MULTIPLY", SHOWN)
    problem = "uses a fragment of A written at ptx:\\d+ with no wgmma.fence between; "
    problem += "k, grid .1, 1, 1., block .0, 0, 0., thread .0, 0"
    with pytest.raises(Fault, match=f"{SHOWN} {problem}"):
        run_ptx(kernel(body, 0), {}, block=256)
    run_ptx(kernel(body.replace("@%p0 bra $go;", ""), 0), {}, block=256)


def test_a_constant_needs_no_fence_after_it() -> None:
    text = source().replace("d[4] = {in[0], in[1], in[2], in[3]}", "d[4] = {}")
    assert (run(text) == 16).all()


@pytest.mark.parametrize("fenced", [False, True])
def test_a_moved_register_is_as_good_as_what_it_copies(fenced: bool) -> None:
    """The compiler copies x after the fence, wherever x was written."""
    write = 'float x; asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(in));  // late\n'
    order = f"{write} fence();" if fenced else f"fence(); {write}"
    text = source(
        third=f"{order} float c[4] = {{x, x, x, x}}; multiply(c, a, at, 1); commit(); wait(0); out[t] = c[0] + x;"
    )
    if fenced:
        run(text)
    else:
        assert f"uses an accumulator written at {line_of(text, '// late')}" in fault(text)


def test_another_warpgroups_fence() -> None:
    text = source(first="proxy(); barrier(); if (t < 128) fence();")
    assert (
        "comes before any wgmma.fence of its warpgroup; k, grid (2, 1, 1), block (0, 0, 0), thread (128, 0, 0)"
        in fault(text, block=256)
    )


@pytest.mark.parametrize("first", ["proxy(); barrier(); fence();", "barrier(); proxy(); fence();"])
def test_the_proxy_fence_may_stand_on_either_side_of_the_barrier(first: str) -> None:
    run(source(first=first))


@pytest.mark.parametrize(
    "first",
    [
        "barrier(); fence();",
        "if (t == 0) proxy(); barrier(); fence();",
        "barrier(); if (t == 0) proxy(); fence();",
        "proxy(); b[t / 64][t % 64] = 0x3F803F80u; barrier(); fence();",
        'asm volatile("fence.proxy.async.global;" ::: "memory"); barrier(); fence();',
    ],
)
def test_no_proxy_fence(first: str) -> None:
    sentence = fault(source(first=first))
    assert "reads shared bytes that thread (" in sentence and "with no fence.proxy.async between" in sentence


def test_a_proxy_fence_of_the_reader_before_the_barrier() -> None:
    """Threads 128 and up write; the other warpgroup fences before the barrier, too early."""
    text = source(first="b[1][0] = 1; if (t >= 128) b[0][t % 64] = 2; if (t < 128) proxy(); barrier(); fence();")
    text = text.replace("b[1][0] = 1; ", "").replace("b[0][t % 64] = 2;", "if (t < 192) b[0][t % 64] = 0x3F803F80u;")
    text = text.replace("if (t < 128) b[t / 64]", "if (t < 0) b[t / 64]")
    text = text.replace("fence();\n", "if (t >= 128) return; fence();\n", 1)
    assert "that thread (128, 0, 0) wrote" in fault(text, block=256)
    run(text.replace("if (t < 128) proxy(); barrier();", "barrier(); if (t < 128) proxy();"), block=256)
    run(text.replace("if (t < 128) proxy();", "if (t >= 128) proxy();"), block=256)


COPY = "copy(b[0] + t % 64, in + 8);"
LAND = 'asm volatile("cp.async.wait_all;" ::: "memory");'


def test_copies_into_the_matrix() -> None:
    copy = f"barrier(); if (t < 64) {COPY} "
    run(source(first=f"{copy} {LAND} proxy(); barrier(); fence();"))
    assert "no fence.proxy.async between" in fault(source(first=f"{copy} proxy(); {LAND} barrier(); fence();"))
    text = source(first=f"{copy} proxy(); barrier(); fence();")
    assert "which a cp.async not yet waited for will write" in fault(text, "unwritten_read")


def test_no_barrier() -> None:
    text = source(first="proxy(); fence();")
    sentence = fault(text)
    assert (
        f"reads 16 shared bytes while thread (0, 0, 0) wrote the same shared bytes at {line_of(text, '// fill')}"
        in sentence
    )
    assert "with no __syncthreads between" in sentence


def test_memory_that_nothing_wrote() -> None:
    text = source().replace("if (t < 128) b", "if (t != 11) b")
    assert "reads 16 bytes at byte 32 of shared memory, which nothing wrote before" in fault(text, "unwritten_read")


def test_a_matrix_beyond_shared_memory() -> None:
    text = source().replace("a, at, 1)", "a, at + (5 << 10), 1)")
    assert "of shared memory, which has" in fault(text, "out_of_bounds")


WRITE = "b[0][t % 64] = 1 + t / 64;  // write\n"


@pytest.mark.parametrize("before", ["", "barrier();", "barrier(); __syncwarp(); barrier();"])
def test_overwritten_before_the_wait(before: str) -> None:
    text = source(third=f"{before} if (t < 64) {WRITE}")
    sentence = fault(text, at="// write")
    at = line_of(text, MULTIPLY)
    assert f"writes 4 shared bytes while the wgmma at {at} reads them, with no wgmma.wait_group and then" in sentence


def test_overwritten_after_the_wait_without_a_barrier() -> None:
    """Other warps of the warpgroup may still wait."""
    assert "no wgmma.wait_group and then __syncthreads" in fault(source(fourth=f"if (t < 64) {WRITE}"), at="// write")
    run(source(fourth=f"barrier(); if (t < 64) {WRITE}"))


def test_overwritten_while_the_younger_of_two_groups_runs() -> None:
    text = source(third=f"multiply(e, a, at, 1); commit(); wait(1); barrier(); if (t < 64) {WRITE}")
    assert "no wgmma.wait_group" in fault(text, at="// write")
    run(text.replace("multiply(e, a, at, 1)", "multiply(e, a, at + 16, 1)"))


def test_overwritten_while_another_warpgroup_runs() -> None:
    text = source(third=f"if (t < 128) wait(0); barrier(); if (t < 64) {WRITE}")
    run(text)
    assert "no wgmma.wait_group" in fault(text, at="// write", block=256)


def test_a_copy_that_starts_while_it_runs() -> None:
    text = source(third=f"barrier(); if (t < 64) {COPY}  // copy\n")
    assert "the wgmma at" in fault(text, at="// copy")
    run(source(fourth=f"barrier(); if (t < 64) {COPY}  // copy\n"))


# Thread t's row of core matrices is that of row t / 2. With A transposed a warp's core matrices are the same.
BOTH_WAYS = pytest.mark.parametrize("transposes", ["0, 0", "1, 0"])
FILL_A = "for (int i = 0; i < 4; ++i) a_tile[t / 2 * 4 + t % 2 * 256 + i] = 0x3F803F80u; "


@BOTH_WAYS
def test_a_warps_own_rows_need_no_barrier(transposes: str) -> None:
    text = source(first=f"proxy(); barrier(); {FILL_A} proxy(); __syncwarp(); fence();", operand="a_at")
    text = text.replace("1, 1, 0, 0;", f"1, 1, {transposes};")
    assert (run(text) == 16).all()
    text = text.replace("wait(0);\n", f"wait(0); __syncwarp(); {FILL_A}\n")
    assert (run(text) == 16).all()
    with pytest.raises(Fault, match="the wgmma at .* reads them"):
        run(text.replace("wait(0); __syncwarp();", "__syncwarp();"))


@BOTH_WAYS
def test_another_warps_rows_do(transposes: str) -> None:
    other = FILL_A.replace("t / 2 * 4", "(t ^ 32) / 2 * 4")
    text = source(first=f"proxy(); barrier(); {other} proxy(); __syncwarp(); fence();", operand="a_at")
    text = text.replace("1, 1, 0, 0;", f"1, 1, {transposes};")
    assert "with no __syncthreads between" in fault(text, at="// wgmma u64")
    run(text.replace("__syncwarp()", "barrier()"))
    text = source(
        first=f"{FILL_A} proxy(); barrier(); fence();", operand="a_at", fourth=f"__syncwarp(); {other} // other\n"
    ).replace("1, 1, 0, 0;", f"1, 1, {transposes};")
    assert "the wgmma at" in fault(text, at="// other")


def test_no_proxy_fence_for_a() -> None:
    text = source(first=f"proxy(); barrier(); {FILL_A} __syncwarp(); fence();", operand="a_at")
    assert "with no fence.proxy.async between" in fault(text, at="// wgmma u64")
    assert descriptor(0, 1024, 128) == 64 << 16 | 8 << 32
