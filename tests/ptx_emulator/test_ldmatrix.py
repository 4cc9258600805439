"""`ldmatrix` against the manual's layout, and faults in the rows it reads."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, line_of, module
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch

pytestmark = pytest.mark.covers("ldmatrix.")

FILL = """ .shared .align 16 .b8 s[1024]; mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
 ld.param.u64 %rd2, [p2]; mul.wide.u32 %rd3, %r0, 16; add.u64 %rd3, %rd0, %rd3; mov.u32 %r1, s; shl.b32 %r2, %r0, 4;
 add.u32 %r2, %r1, %r2; ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd3]; st.shared.v4.u32 [%r2], {%r10, %r11, %r12,
 %r13}; mul.wide.u32 %rd4, %r0, 4; add.u64 %rd4, %rd1, %rd4; ld.global.u32 %r3, [%rd4]; add.u32 %r3, %r3, %r1;
 mul.wide.u32 %rd5, %r0, 16; add.u64 %rd5, %rd2, %rd5;
"""


def loaded(count: int, trans: str, start: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray]:
    """Shared memory, (512,) uint16, and the registers of 64 threads, (64, count). start: (64,) row bytes"""
    data = np.random.default_rng(1).integers(0, 1 << 16, 512, dtype=np.uint16)
    names = [f"%r{20 + i}" for i in range(count)]
    space, head = options.pop("space", ".shared"), options.pop("head", f"m8n8.x{count}")
    address = "%r3" if space else "%rd7"
    body = FILL + " bar.sync 0; cvta.shared.u64 %rd6, 0; cvt.u64.u32 %rd7, %r3; add.u64 %rd7, %rd7, %rd6;\n"
    body += f" ldmatrix.sync.aligned.{head}{trans}{space}.b16 {{{', '.join(names)}}}, [{address}];\n"
    body += "".join(f" st.global.u32 [%rd5+{4 * i}], {name};\n" for i, name in enumerate(names))
    out = np.zeros((64, 4), np.uint32)
    arrays = {"data": data, "start": start.astype(np.uint32), "out": out}
    run(kernel(body, 3), arrays, block=64, **options)
    return data, out[:, :count]


@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, trans: str, space: str) -> None:
    start = 16 * np.random.default_rng(count).permutation(64)
    data, got = loaded(count, trans, start, space=space)
    for thread in range(64):
        first_lane, lane = thread // 32 * 32, thread % 32
        for i in range(count):

            def element(row: int, column: int, i: int = i, first_lane: int = first_lane) -> int:
                return int(data[start[first_lane + 8 * i + row] // 2 + column])

            pair = [(lane // 4, lane % 4 * 2 + half) for half in (0, 1)]
            low, high = (element(*(place[::-1] if trans else place)) for place in pair)
            assert got[thread, i] == low | high << 16


def test_words_in_another_order() -> None:
    start = 16 * np.random.default_rng(3).permutation(64)
    wanted = loaded(4, ".trans", start)[1]
    assert (loaded(4, "", start, space=".shared.trans")[1] == wanted).all()
    assert (loaded(4, ".trans", start, space=".shared", head="x4.m8n8")[1] == wanted).all()


@pytest.mark.parametrize("count", [1, 2])
def test_addresses_of_lanes_beyond_the_last_matrix_do_not_matter(count: int) -> None:
    start = 16 * np.arange(64)
    wanted = loaded(count, "", start)[1]
    start[np.arange(64) % 32 >= 8 * count] = 12345
    assert (loaded(count, "", start)[1] == wanted).all()


@pytest.mark.parametrize("lane, byte, count, says, kind", [
    (45, 8, 4, "multiple of 16; .*", "misaligned"), (3, 1024, 2, "", "out_of_bounds"),
])  # fmt: skip
def test_a_row_in_a_wrong_place(lane: int, byte: int, count: int, says: str, kind: str) -> None:
    start = 16 * np.arange(64)
    start[lane] = byte
    where = rf"byte {byte} of shared memory, .* {says} ?thread \({lane}, 0, 0\)"
    with pytest.raises(Fault, match=where) as caught:
        loaded(count, "", start)
    assert caught.value.kind == kind


# ---- ldmatrix after stores ------------------------------------------------------------------------------------------

# The asm is one line, because versions of NVRTC differ in which line of a longer statement they name.
TRANSPOSE = """
extern "C" __global__ void k(const uint4* in, unsigned* out, int rows) {
  __shared__ uint4 s[64];
  const int t = threadIdx.x;
  if (t < rows) s[t] = in[t];  // store
  FIRST;
  unsigned r[4];
  const unsigned at = __cvta_generic_to_shared(s + (t ^ TURN));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" \
: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");  // load
  SECOND;
  s[t ^ AGAIN] = make_uint4(r[0], r[1], r[2], r[3]);  // again
  __syncthreads();
  out[t] = s[t].x;
}
"""


def transposed(first: str, turn: int, second: str = "__syncthreads()", again: int = 0, rows: int = 64) -> str:
    """The source of a kernel whose result is checked, or that faults."""
    source = TRANSPOSE.replace("FIRST", first).replace("SECOND", second)
    source = source.replace("TURN", str(turn)).replace("AGAIN", str(again))
    data, out = np.random.default_rng(3).integers(0, 1 << 16, (64, 8), dtype=np.uint16), np.zeros(64, np.uint32)
    args = [buffer("in", data), buffer("out", out), rows]
    try:
        launch(module(source), "k", (1, 1, 1), (64, 1, 1), args)
    except Fault as error:
        markers = [name for name in ("store", "load", "again") if line_of(source, f"// {name}") == error.where]
        return f"{error.kind} at {markers[0]}: {error.sentence}"
    lanes = np.arange(64)
    first_row = (lanes & 32) ^ (turn & 32)
    rows_of = data[(first_row[:, None] + np.arange(8)) ^ (turn & 31), lanes[:, None] % 32 // 4]
    low, high = (rows_of[lanes, lanes % 4 * 2 + i].astype(np.uint32) for i in (0, 1))
    assert (out[lanes ^ again] == (low | high << 16)).all()
    return ""


def test_barriers_order_ldmatrix() -> None:
    assert transposed("__syncthreads()", 37) == ""
    assert transposed("__syncwarp()", 5) == ""


def test_no_barrier_between_stores_and_ldmatrix() -> None:
    for first in ("", "__syncwarp()"):
        assert transposed(first, 32).startswith("race at load: reads 16 shared bytes while thread (32, 0, 0) wrote")
    sentence = transposed("", 5)
    assert sentence.startswith("race at load: reads 16 shared bytes while thread (5, 0, 0) wrote")
    assert "no __syncwarp between" in sentence and "thread (0, 0, 0)" in sentence


def test_no_barrier_between_ldmatrix_and_the_next_stores() -> None:
    assert transposed("__syncthreads()", 0, "", 32).startswith(
        "race at again: writes 16 shared bytes while thread (32, 0, 0) read"
    )


def test_ldmatrix_of_a_row_nothing_wrote() -> None:
    sentence = transposed("__syncthreads()", 1, rows=41)
    assert sentence.startswith("unwritten_read at load: reads 16 bytes at byte 656 of shared memory")
    assert "thread (40, 0, 0)" in sentence


def test_ldmatrix_by_half_a_warp() -> None:
    source = TRANSPOSE.replace("FIRST", "if (t == 63) return").replace("SECOND", "").replace("TURN", "0")
    source = source.replace("AGAIN", "0")
    args = [buffer("in", np.zeros(512, np.uint16)), buffer("out", np.zeros(64, np.uint32)), 64]
    with pytest.raises(Fault, match="takes all 32 lanes of a warp, and lane 31 exited or never was") as caught:
        launch(module(source), "k", (1, 1, 1), (64, 1, 1), args)
    assert (caught.value.kind, caught.value.where) == ("inactive_shuffle", line_of(source, "// load"))


def test_passes_over_the_banks_of_ldmatrix() -> None:
    """Contiguous rows need one wavefront per matrix; rows 128 bytes apart share four banks and need eight."""
    for stride, passes in ((1, 4), (8, 32)):
        body = f""" .shared .align 16 .b8 s[4096]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; mad.lo.u32 %r2, %r0,
 {16 * stride}, %r1; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r3, %r4, %r5, %r6}}, [%r2];"""
        assert run(kernel(body, 0), {}, sanitize=False).shared_wavefronts == passes
