"""Fragments that kernels hand from one kind of instruction to another: `movmatrix`, and `wmma` with those of `mma`."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_snippets import kernel, run

HEAD = """ .reg .b32 x<16>; .reg .f32 y<16>; mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
 mul.wide.u32 %rd2, %r0, 16; add.u64 %rd3, %rd0, %rd2;
"""
TILE = ".shared .align 32 .b8 tile[768];\n"  # 16 rows of 24 elements, of which each lane moves 24 bytes
_LANES = " mul.wide.u32 %rd6, %r0, 24; mov.u64 %rd7, tile; add.u64 %rd7, %rd7, %rd6; add.u64 %rd8, %rd0, %rd6;"
_EACH = (0, 8, 16)
COPIED_IN = _LANES + "".join(f" ld.global.u64 %rd9, [%rd8+{i}]; st.shared.u64 [%rd7+{i}], %rd9;" for i in _EACH)
COPIED_IN += " bar.sync 0;"
COPIED_OUT = "".join(f" ld.shared.u64 %rd9, [%rd7+{i}]; st.global.u64 [%rd8+{i}], %rd9;" for i in _EACH)
LANE = np.arange(32)
GROUP, WITHIN = LANE[:, None] // 4, LANE[:, None] % 4 * 2 + np.arange(2)


def fragments(rows: np.ndarray) -> np.ndarray:
    """(32, 4) uint32 registers of A in mma.m16n8k16 that hold (16, 16) uint16: PTX ISA, its figure of fragments."""
    pairs = [rows[GROUP + 8 * lower, WITHIN + 8 * right] for right in (0, 1) for lower in (0, 1)]
    return np.stack([np.ascontiguousarray(pair).view(np.uint32)[:, 0] for pair in pairs], axis=1)


def floats_of(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def small(seed: int) -> np.ndarray:
    """(16, 16) bf16 bits of small integers."""
    values = np.random.default_rng(seed).integers(-8, 8, (16, 16)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.covers("movmatrix.")
def test_movmatrix() -> None:
    rows = np.random.default_rng(1).integers(0, 1 << 16, (2, 8, 8)).astype(np.uint16)
    given, out = rows.reshape(-1).view(np.uint32).copy(), np.zeros(64, np.uint32)
    body = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mul.wide.u32 %rd2, %r0, 4;
 add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2; ld.global.u32 %r1, [%rd3];
 movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.u32 [%rd4], %r2;"""
    run(kernel(body, 2), {"given": given, "out": out}, block=64)
    assert (out.view(np.uint16).reshape(2, 8, 8) == rows.swapaxes(1, 2)).all()


@pytest.mark.covers("wmma.")
@pytest.mark.parametrize("layout", ["row", "col"])
def test_wmma_takes_fragments_of_mma_and_gives_them(layout: str) -> None:
    a, b = small(2), small(3)
    columns = fragments(b.T)[:, [0, 2, 1, 3]]  # a half of eight columns after the other
    words = np.concatenate([fragments(a), columns]).reshape(-1)
    out = np.zeros((32, 8), np.float32)
    loads = " ld.global.v4.u32 {x0, x1, x2, x3}, [%rd3]; ld.global.v4.u32 {x4, x5, x6, x7}, [%rd3+512];\n"
    sums = ", ".join(f"y{i}" for i in range(8))
    body = (
        HEAD
        + loads
        + f""" mov.f32 y8, 0f00000000;
 wmma.mma.sync.aligned.{layout}.row.m16n16k16.f32.bf16.bf16.f32 {{{sums}}}, {{x0, x1, x2, x3}}, {{x4, x5, x6, x7}},
 {{y8, y8, y8, y8, y8, y8, y8, y8}}; mul.wide.u32 %rd4, %r0, 32; add.u64 %rd4, %rd1, %rd4;
 st.global.v4.f32 [%rd4], {{y0, y1, y2, y3}}; st.global.v4.f32 [%rd4+16], {{y4, y5, y6, y7}};"""
    )
    run(kernel(body, 2), {"words": words, "out": out}, block=32)
    total = floats_of(a) @ floats_of(b)
    held = [(GROUP + 8 * lower, WITHIN + 8 * right) for right in (0, 1) for lower in (0, 1)]
    assert (out == np.concatenate([total[place] for place in held], axis=1)).all()


@pytest.mark.covers("wmma.")
@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("direction", ["load", "store"])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_a_sum_of_f16_moves_two_elements_in_a_register(direction: str, layout: str, space: str) -> None:
    matrix = np.random.default_rng(4).integers(0, 1 << 16, (16, 24)).astype(np.uint16)
    kept = matrix[:, :16].T if layout == "col" else matrix[:, :16]
    form = f"wmma.{direction}.{'c' if direction == 'load' else 'd'}.sync.aligned.{layout}.m16n16k16.{space}.f16"
    place = "%rd5" if space == "global" else "tile"
    if direction == "store":
        given, out = fragments(np.ascontiguousarray(kept)).reshape(-1), np.full((16, 24), 7, np.uint16)
        body = HEAD + " mov.u64 %rd5, %rd1; ld.global.v4.u32 {x0, x1, x2, x3}, [%rd3];"
        moved = f" {form} [{place}], {{x0, x1, x2, x3}}, 24;"
        if space == "shared":
            moved = f"{COPIED_IN.replace('%rd0', '%rd1')}{moved} bar.sync 0; {COPIED_OUT}"
        run(kernel(body + moved, 2, declarations=TILE), {"given": given, "out": out}, block=32)
        assert (out[:, :16] == matrix[:, :16]).all() and (out[:, 16:] == 7).all()
        return
    out = np.zeros((32, 4), np.uint32)
    body = HEAD + " mov.u64 %rd5, %rd0;" + (COPIED_IN if space == "shared" else "")
    body += f" {form} {{x0, x1, x2, x3}}, [{place}], 24; add.u64 %rd4, %rd1, %rd2;"
    body += " st.global.v4.u32 [%rd4], {x0, x1, x2, x3};"
    run(kernel(body, 2, declarations=TILE), {"given": matrix, "out": out}, block=32)
    assert (out == fragments(np.ascontiguousarray(kept))).all()
