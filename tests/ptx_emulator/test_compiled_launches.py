"""Whole kernels write the same bytes, count the same and fault alike with and without the compiled interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from both_paths import Outcome, both
from cuda_source import buffer, module
from ptx_snippets import kernel

from ptx_emulator.errors import Fault
from ptx_emulator.launches import Module, launch

EXCHANGE = """
extern "C" __global__ void k(const unsigned* in, unsigned* out, float* sums) {
  __shared__ unsigned s[256];
  __shared__ float partial[8];
  const int t = threadIdx.x, i = blockIdx.x * 256 + t;
  unsigned v = in[i];
  for (unsigned n = v % 5; n; --n) v = v * 1664525u + 1013904223u;  // lanes leave one after another
  if (v & 1) {
    v ^= __shfl_xor_sync(__activemask(), v, 0);
  } else if (t & 2) {
    v = v / 7 + v % 11;
  }
  __syncwarp();
  s[t ^ 37] = __shfl_down_sync(~0u, v, 3, 16);
  __syncthreads();
  v = s[t] + __popc(__ballot_sync(~0u, v & 8)) + __reduce_max_sync(~0u, v >> 1);
  if (t < 100) v += __any_sync(__activemask(), v == 3u);
  float sum = float(v % 1000u) * 0.37f;
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (t % 32 == 0) partial[t / 32] = sum;
  __syncthreads();
  if (t == 0) {
    for (int w = 1; w < 8; ++w) sum += partial[w];
    sums[blockIdx.x] = sum;
  }
  if (t % 3) out[i] = v;
}
"""


@pytest.mark.parametrize("options", [{}, {"sanitize": False}, {"count_traffic": False}, {"lanes": 256}])
def test_shuffles_votes_and_shared_memory_on_diverging_lanes(options: dict) -> None:
    arrays = {
        "in": np.random.default_rng(0).integers(0, 1 << 32, 5 * 256, dtype=np.uint32),
        "out": np.zeros(5 * 256, np.uint32),
        "sums": np.zeros(5, np.float32),
    }
    got = both(module(EXCHANGE), arrays, grid=5, block=256, **options)
    assert got.counters and got.arrays["out"].any() and got.arrays["sums"].all()
    assert sum(got.handed_back.values()) < got.counters.warp_instructions / 10


WIDTHS = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "v2.b32": 8, "v4.b32": 16, "v2.b64": 16, "v4.b16": 8, "v2.b8": 2}
WIDTHS |= {"v8.b32": 32, "v4.b64": 32}
REGISTERS = {"b8": "%rs", "b16": "%rs", "b32": "%r1", "b64": "%rd1"}


@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("width", WIDTHS)
def test_loads_and_stores_of_every_width(width: str, stride: int) -> None:
    """To shared memory and back, by all lanes but those of a guard, at several distances."""
    size, vector, kind = WIDTHS[width], width.rpartition(".")[0], width.rpartition(".")[2]
    names = [f"{REGISTERS[kind]}{i}" for i in range(int(vector[1:]) if vector else 1)]
    data = "{" + ", ".join(names) + "}" if vector else names[0]
    body = f""" .shared .align 32 .b8 s[{64 * size * stride}]; mov.u32 %r0, %tid.x; mov.u32 %r1, s;
 mad.lo.u32 %r2, %r0, {size * stride}, %r1; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
 mad.wide.u32 %rd2, %r0, {size * stride}, %rd0; mad.wide.u32 %rd3, %r0, {size}, %rd1;
 setp.ne.u32 %p0, %r0, 13;
 @%p0 ld.global.{width} {data}, [%rd2]; @%p0 st.shared.{width} [%r2], {data};
 cvt.u64.u32 %rd4, %r2; @%p0 ld.shared.{width} {data}, [%rd4+0]; @%p0 st.global.{width} [%rd3], {data};
"""
    content = np.random.default_rng(size).integers(0, 256, 64 * size * stride, np.uint8)
    arrays = {"in": content, "out": np.full(64 * size, 7, np.uint8)}
    got = both(Module(kernel(body, 2)), arrays)
    assert got.handed_back.total() == 0 and got.counters.shared_requests == 4
    wanted = content.reshape(64, stride, size)[:, 0].copy()
    wanted[13] = 7
    np.testing.assert_array_equal(got.arrays["out"].reshape(64, size), wanted)


@pytest.mark.parametrize("spread", [0, 1, 3, 7, 8, 33])
def test_sectors_and_bank_conflicts_are_counted_alike(spread: int) -> None:
    """Lanes in descending order, some at one place, some rows apart."""
    body = f""" .shared .align 16 .b8 s[8192]; mov.u32 %r0, %tid.x; sub.u32 %r0, 63, %r0; mov.u32 %r1, s;
 mul.lo.u32 %r2, %r0, {4 * spread}; and.b32 %r2, %r2, 8188; ld.param.u64 %rd0, [p0]; cvt.u64.u32 %rd1, %r2;
 add.u64 %rd2, %rd0, %rd1; add.u32 %r3, %r1, %r2; mov.u32 %r4, 1; st.shared.u32 [%r3], %r4;
 and.b32 %r5, %r3, 4294967280; ld.shared.u32 %r6, [%r3]; st.global.u32 [%rd2], %r6;
 ld.global.u32 %r7, [%rd2]; ld.shared.u16 %r8, [%r3+2]; ld.global.u8 %r9, [%rd2+1];
"""
    got = both(Module(kernel(body, 1)), {"out": np.zeros(2048, np.uint32)}, sanitize=False)
    assert got.handed_back.total() == 0 and got.counters.global_sectors >= 3


SPECIAL_HALVES = [0, 0x8000, 1, 0x8001, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x0400, 0x3555]


def product(kind: str, special: bool, result: str = "%r20, %r21, %r22, %r23") -> Outcome:
    """`mma` of two warps, with C in %r8 to %r11. special: with subnormals, infinities and NaN among A and B"""
    body = " mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd2, %r0, 40, %rd0;\n"
    body += "".join(f" ld.global.u32 %r{2 + i}, [%rd2+{4 * i}];\n" for i in range(10))
    body += f""" mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{{result}}},
 {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}}, {{%r8, %r9, %r10, %r11}}; mad.wide.u32 %rd3, %r0, 16, %rd1;
 st.global.v4.u32 [%rd3], {{{result}}};
"""
    rng = np.random.default_rng(5)
    operands = rng.standard_normal((64, 12)).astype(np.float16).view(np.uint16)
    if kind == "bf16":
        operands = (rng.standard_normal((64, 12)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if special:
        operands = np.where(rng.random(operands.shape) < 0.3, rng.choice(SPECIAL_HALVES, operands.shape), operands)
    sums = rng.standard_normal((64, 4)).astype(np.float32).view(np.uint16)
    arrays = {"in": np.concatenate([operands.astype(np.uint16), sums], axis=1), "out": np.zeros((64, 4), np.float32)}
    return both(Module(kernel(body, 2)), arrays)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_products_of_a_warp(kind: str, special: bool) -> None:
    assert bool(product(kind, special).handed_back) == special


@pytest.mark.parametrize("result", ["%r8, %r9, %r10, %r11", "%r9, %r8, %r11, %r10", "%r11, %r8, %r9, %r10",
                                    "%r2, %r4, %r6, %r7"])  # fmt: skip
def test_a_product_over_its_own_operands(result: str) -> None:
    wanted = product("f16", False).arrays["out"]
    np.testing.assert_array_equal(product("f16", False, result).arrays["out"], wanted)


START = """ .shared .align 16 .b8 s[260]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2;
 add.u32 %r3, %r1, %r2; ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; setp.eq.u32 %p0, %r0, 40;
 st.shared.u32 [%r3], %r0;
"""
FAULTS = {
    "nothing wrong": (None, "bar.sync 0; ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd1], %r4;"),
    "a read": ("race", "ld.shared.u32 %r4, [%r1+12];"),
    "stores of one instruction": ("race", "bar.sync 0; st.shared.u32 [%r1+8], %r0;"),
    "a lane of the warp": ("race", "xor.b32 %r4, %r3, 4; ld.shared.u32 %r5, [%r4];"),
    "the lane of a guard": ("race", "@%p0 st.shared.u32 [%r1], %r0;"),
    "a word nothing wrote": ("unwritten_read", "bar.sync 0; ld.shared.u32 %r4, [%r3+4];"),
    "a byte nothing wrote": ("unwritten_read", "bar.sync 0; ld.shared.u8 %r4, [%r3+7];"),
    "a half on an odd byte": ("misaligned", "ld.shared.u16 %r4, [%r3+1];"),
    "a vector on half of itself": ("misaligned", "@%p0 ld.global.v2.u32 {%r4, %r5}, [%rd1+4];"),
    "one lane on an odd byte": ("misaligned", "@%p0 add.u64 %rd1, %rd1, 1; st.global.u16 [%rd1], 1;"),
    "behind a buffer": ("out_of_bounds", "st.global.u32 [%rd1+4], %r0;"),
    "before a buffer": ("out_of_bounds", "ld.global.u32 %r4, [%rd1+-4];"),
    "far from a buffer": ("out_of_bounds", "@%p0 add.u64 %rd1, %rd1, 1048576; ld.global.u32 %r4, [%rd1];"),
    "behind shared memory": ("out_of_bounds", "st.shared.u32 [%r3+8], %r0;"),
    "before shared memory": ("out_of_bounds", "bar.sync 0; ld.shared.u32 %r4, [%r3+-4];"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_alike(name: str) -> None:
    kind, lines = FAULTS[name]
    got = both(Module(kernel(START + lines, 1)), {"out": np.zeros(64, np.uint32)}, who="one instruction" not in name)
    assert (got.fault and got.fault[0]) == kind


@pytest.mark.parametrize("names", [("read-only", "write"), ("write-only", "read")])
def test_a_buffer_that_may_not_be_used_so(names: tuple[str, str]) -> None:
    what, verb = names
    line = "st.global.u32 [%rd0], 1;" if verb == "write" else "ld.global.u32 %r0, [%rd0];"
    text = Module(kernel(f" ld.param.u64 %rd0, [p0]; {line}", 1))
    options = {"writable": False} if what == "read-only" else {"readable": False}
    with pytest.raises(Fault, match=what):
        launch(text, "k", (1, 1, 1), (32, 1, 1), [buffer("x", np.zeros(1, np.uint32), **options)])


def test_bytes_of_a_buffer_that_are_written_may_be_read() -> None:
    text = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u16 [%rd1], %r0;
 ld.global.LOADED %r1, [%rd1];"""
    fresh = buffer("x", np.zeros(32, np.uint32), initialised=False)
    launch(Module(kernel(text.replace("LOADED", "u16"), 1)), "k", (1, 1, 1), (32, 1, 1), [fresh])
    fresh = buffer("x", np.zeros(32, np.uint32), initialised=False)
    with pytest.raises(Fault, match="which nothing wrote before"):
        launch(Module(kernel(text.replace("LOADED", "u32"), 1)), "k", (1, 1, 1), (32, 1, 1), [fresh])


BETWEEN_BLOCKS = " mov.u32 %r0, %ctaid.x; ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, STRIDE, %rd0; "


@pytest.mark.parametrize("lanes", [32, 1 << 14])
@pytest.mark.parametrize(
    "stride, lines, kind",
    [
        (0, "ld.global.u32 %r1, [%rd1];", None),
        (4, "st.global.u32 [%rd1], %r0;", None),
        (0, "st.global.u32 [%rd1], %r0;", "race"),
        (1, "st.global.u8 [%rd1], %r0; ld.global.u32 %r1, [%rd0];", "race"),
        (4, "st.global.u32 [%rd1], %r0; membar.gl; atom.global.add.u32 %r1, [%rd0+64], 1;", None),
    ],
)
def test_races_between_blocks(stride: int, lines: str, kind: str | None, lanes: int) -> None:
    text = Module(kernel(BETWEEN_BLOCKS.replace("STRIDE", str(stride)) + lines, 1))
    got = both(text, {"x": np.zeros(32, np.uint32)}, grid=4, block=1, lanes=lanes, who=False)
    assert (got.fault and got.fault[0]) == kind
