"""Moves, selections, permutations and look-ups by constants, comparisons with two results, address conversions."""

from __future__ import annotations

import numpy as np
import pytest
from expectations import expected, in_parts, permuted
from operands import draw, edges
from ptx_snippets import HEADER, apply, kernel, run

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.launches import Module

KINDS = [f"{kind}{width}" for kind in "bus" for width in (16, 32, 64)] + ["f32", "f64"]


@pytest.mark.covers("mov.", "selp.")
@pytest.mark.parametrize("kind", KINDS)
def test_mov_and_selp(kind: str) -> None:
    a, b, p = draw(kind, (kind, kind, "pred"))
    assert (apply(f"mov.{kind}", kind, [kind], [a]) == a).all()
    assert (apply(f"selp.{kind}", kind, [kind, kind, "pred"], [a, b, p]) == np.where(p, a, b)).all()


@pytest.mark.covers("slct.")
@pytest.mark.parametrize("kind", KINDS)
def test_slct(kind: str) -> None:
    a, b, c = draw(kind, (kind, kind, "s32"))
    picked = apply(f"slct.{kind}.s32", kind, [kind, kind, "s32"], [a, b, c])
    assert (picked == np.where(c < 1 << 31, a, b)).all()


@pytest.mark.covers("mov.pred")
def test_mov_pred() -> None:
    p = np.array([True, False, True])
    assert (apply("mov.pred", "pred", ["pred"], [p]) == p).all()


@pytest.mark.covers("prmt.b32")
@pytest.mark.parametrize("selector", [0x5410, 0x7632, 0x3210, 0x0123, 0x4440, 0x7651, 0x8888, 0xFB73, 0x5140, 0xC480])
def test_prmt_by_a_constant(selector: int) -> None:
    a, b = draw(f"prmt{selector}", ("b32", "b32"))
    wanted = [permuted(int(x), int(y), selector) for x, y in zip(a, b, strict=True)]
    assert apply("prmt.b32", "b32", ["b32", "b32"], [a, b], f", {selector}").tolist() == wanted


@pytest.mark.parametrize("mode", ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_prmt_in_a_mode_by_a_constant(mode: str) -> None:
    a, b = draw(mode, ("b32", "b32"))
    wanted = expected(f"prmt.b32.{mode}")[2]
    for choice in (0, 1, 2, 3, 6):
        got = apply(f"prmt.b32.{mode}", "b32", ["b32", "b32"], [a, b], f", {choice}").tolist()
        assert got == [wanted(int(x), int(y), choice) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(
    "name",
    ["lt.and.u32.u32", "ge.xor.f32.f64", "ne.or.s32.b16", "gtu.and.ftz.f32.f32", "lt.f16.s64", "leu.bf16.f32",
     "eq.xor.ftz.f16.f16", "lt.and.ftz.s16.f16", "geu.or.bf16.bf16", "num.bf16.f16", "lt.xor.f16x2.f16x2",
     "gt.ftz.u32.f16x2", "ne.and.bf16x2.bf16x2", "nan.s32.bf16x2"],
)  # fmt: skip
def test_set_with_a_predicate_or_results_of_16_bits(name: str) -> None:
    name = f"set.{name}"
    result, kinds, function = expected(name)
    operands = draw(name, kinds)
    wanted = [function(*map(int, row)) for row in zip(*operands, strict=True)]
    assert apply(name, result, kinds, operands).tolist() == wanted


@pytest.mark.parametrize("line", ["eq.f32.f16", "eq.u16.f32", "eq.f16.bf16", "eq.ftz.bf16.f32", "eq.f16x2.f16",
                                  "eq.f32.ftz.f32", "lo.u32.s32"])  # fmt: skip
def test_set_that_ptxas_refuses(line: str) -> None:
    with pytest.raises(NotEmulated):
        one_lane(f" set.{line} %r1, %r2, %r3;")


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_setp_of_a_pair_has_a_result_for_each_half(kind: str) -> None:
    a, b, c = draw(kind, (kind, kind, "pred"))
    half = expected(f"setp.ltu.{kind[:-2]}")[2]
    text = "{{ .reg .pred low, high, c; setp.ne.u32 c, %r12, 0; setp.ltu.xor.{kind} low|high, %r10, %r11, c; "
    text += "selp.u32 %r1, 1, 0, low; selp.u32 %r2, 2, 0, high; or.b32 %r20, %r1, %r2; }} //"
    got = apply(text.format(kind=kind), "b32", ["b32"] * 3, [a, b, c.astype(np.uint32)]).tolist()
    wanted = [
        (half(x & 0xFFFF, y & 0xFFFF) ^ z) | (half(x >> 16, y >> 16) ^ z) << 1
        for x, y, z in zip(a.tolist(), b.tolist(), c.astype(int).tolist(), strict=True)
    ]
    assert got == wanted


@pytest.mark.parametrize(
    ("name", "of"),
    [("vabsdiff4.s32.s32.s32.sat", ("", "", "")), ("vabsdiff4.u32.u32.u32.add", ("b20", "b7045", "b1166")),
     ("vadd4.u32.s32.u32.sat", ("b3", "b0123", "b4567")), ("vsub2.s32.u32.s32", ("h1", "h03", "h21")),
     ("vavrg4.s32.s32.u32", ("b210", "", "b3210")), ("vmin2.s32.s32.s32.add", ("", "h32", ""))],
)  # fmt: skip
def test_bytes_and_halves_of_two_words_are_chosen(name: str, of: tuple[str, str, str]) -> None:
    _, kinds, function = in_parts(name, *of)
    operands = draw(name, kinds)
    d, a, b = (f"{register}.{of}".rstrip(".") for register, of in zip(("%r20", "%r10", "%r11"), of, strict=True))
    wanted = [function(*map(int, row)) for row in zip(*operands, strict=True)]
    assert apply(f"{name} {d}, {a}, {b}, %r12; //", "b32", ["b32"] * 3, operands).tolist() == wanted


def test_parts_of_a_register_of_an_inner_scope_and_what_is_no_part() -> None:
    body = """ mov.u32 %r1, 0x01020304; { .reg .b32 x; mov.u32 x, 0x01010101;
 vabsdiff4.u32.u32.u32.add %r2, %r1.b3210, x.b7654, 5; } cvt.u64.u32 %rd2, %r2; st.global.u64 [%rd1], %rd2;"""
    assert one_lane(body) == [0 + 1 + 2 + 3 + 5]
    for wrong in ("%r1.b321, %r1.b7654", "%r1.b8210, %r1", "%r1, %r1.h10"):
        with pytest.raises(NotEmulated, match="vabsdiff4"):
            one_lane(f" mov.u32 %r1, 1; vabsdiff4.u32.u32.u32 %r2, {wrong}, 5;")


@pytest.mark.covers("applypriority.")
def test_a_priority_of_a_cache_line_changes_nothing() -> None:
    assert one_lane(" applypriority.global.L2::evict_normal [%rd1], 128; st.global.u64 [%rd1], 7;") == [7]


@pytest.mark.covers("lop3.b32")
def test_lop3_every_table() -> None:
    a, b, c = (column[:40] for column in draw("lop3", ("b32", "b32", "b32")))
    lines, tables = [], range(256)
    for table in tables:
        lines.append(f" lop3.b32 %r20, %r10, %r11, %r12, {table}; st.global.u32 [%rd4+{table * 4}], %r20;")
    body = """ mov.u32 %r0, %tid.x;
 ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; ld.global.u32 %r10, [%rd1];
 ld.param.u64 %rd0, [p1]; mad.wide.u32 %rd2, %r0, 4, %rd0; ld.global.u32 %r11, [%rd2];
 ld.param.u64 %rd0, [p2]; mad.wide.u32 %rd3, %r0, 4, %rd0; ld.global.u32 %r12, [%rd3];
 ld.param.u64 %rd0, [p3]; mad.wide.u32 %rd4, %r0, 1024, %rd0;
""" + "\n".join(lines)
    out = np.zeros((40, 256), np.uint32)
    arrays = {"a": a.astype(np.uint32), "b": b.astype(np.uint32), "c": c.astype(np.uint32), "out": out}
    run(kernel(body, 4), arrays, block=40)
    for table in tables:
        wanted = np.zeros(40, np.uint64)
        for row in range(8):
            if table >> row & 1:
                wanted |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        assert (out[:, table] == wanted & np.uint64(0xFFFFFFFF)).all(), f"table {table:#x}"


def one_lane(body: str, results: int = 1, **options) -> list[int]:
    """What a kernel of one thread stores at [%rd1], [%rd1+8], ... as 64-bit words."""
    out = np.zeros(results, np.uint64)
    run(kernel(f" ld.param.u64 %rd1, [p0];\n{body}", 1), {"out": out}, block=1, **options)
    return out.tolist()


def test_vector_moves() -> None:
    body = """ mov.b64 %rd2, 0x1122334455667788;
 mov.b64 {%r0, %r1}, %rd2; mov.b64 {%rs0, %rs1, %rs2, %rs3}, %rd2; mov.b64 {_, %r2}, %rd2;
 mov.b64 %rd3, {%r1, %r0}; st.global.u64 [%rd1], %rd3;
 mov.b64 %rd3, {%rs3, %rs2, %rs1, %rs0}; st.global.u64 [%rd1+8], %rd3;
 mov.b32 %r3, {%rs0, %rs3}; cvt.u64.u32 %rd3, %r3; st.global.u64 [%rd1+16], %rd3;
 { .reg .b8 b0, b1; mov.b16 {b0, b1}, %rs0; mov.b32 %r4, {b1, b0, b0, b0}; }
 cvt.u64.u32 %rd3, %r4; st.global.u64 [%rd1+24], %rd3; cvt.u64.u32 %rd3, %r2; st.global.u64 [%rd1+32], %rd3;"""
    assert one_lane(body, 5) == [
        0x5566778811223344, 0x7788556633441122, 0x11227788, 0x88888877, 0x11223344,
    ]  # fmt: skip


@pytest.mark.covers("mov.b128")
@pytest.mark.parametrize("compiled", [True, False])
def test_a_register_of_128_bits_is_loaded_moved_and_stored(compiled: bool) -> None:
    body = """ .shared .align 16 .b8 s[48]; .reg.b128 q0; mov.u64 %rd2, 0x1122334455667788; mov.u64 %rd3, 5;
 mov.b128 q0, {%rd2, %rd3}; { .reg .b128 q<2>; mov.u64 %rd9, s; ld.shared.b128 q0, [%rd9+16]; mov.b128 q1, q0;
 mov.b128 {%rd4, %rd5}, q1; st.shared.b128 [s], q1; } st.global.b128 [%rd1], q0;
 st.global.u64 [%rd1+16], %rd4; st.global.u64 [%rd1+24], %rd5; ld.shared.v2.b64 {%rd6, %rd7}, [s];
 st.global.v2.b64 [%rd1+32], {%rd6, %rd7}; mov.b128 {_, %rd8}, q0; st.global.u64 [%rd1+48], %rd8;"""
    body = body.replace("{ .reg", "st.shared.u64 [s+16], %rd3; st.shared.u64 [s+24], %rd2; { .reg")
    big = 0x1122334455667788
    assert one_lane(body, 7, compiled=compiled) == [big, 5, 5, big, 5, big, 5]


@pytest.mark.parametrize(
    "line",
    [
        "add.u64 q0, %rd2, %rd3;",
        "mov.b64 %rd2, q0;",
        "mov.b128 {%rd2, %rd3}, {%rd3, %rd2};",
        "atom.global.exch.b128 q0, [%rd1], q0;",
        "mov.b128 %rd2, q0;",
    ],
)
def test_other_uses_of_a_register_of_128_bits_are_refused(line: str) -> None:
    with pytest.raises(NotEmulated, match=line.split()[0]):
        one_lane(f" .reg .b128 q0; mov.u64 %rd2, 1; mov.u64 %rd3, 1; mov.b128 q0, {{%rd2, %rd3}}; {line}")


def test_registers_of_128_bits_are_aligned() -> None:
    with pytest.raises(Fault, match="not a multiple of 16"):
        one_lane(" .reg .b128 q0; mov.u64 %rd2, 1; mov.b128 q0, {%rd2, %rd2}; st.global.b128 [%rd1+8], q0;", 4)


def test_inner_registers_hide_outer_ones() -> None:
    body = """ .reg .b32 t; mov.u32 t, 1;
 { .reg .b32 t; mov.u32 t, 2; { .reg .b32 t; mov.u32 t, 3; } st.global.u32 [%rd1], t; }
 st.global.u32 [%rd1+4], t;"""
    assert one_lane(body) == [1 << 32 | 2]


def test_immediates() -> None:
    body = """ mov.f32 %f0, 0fC0490FDB; mov.f64 %fd0, 0d400921FB54442D18; mov.u32 %r0, -1; mov.u32 %r1, 0b1011; mov.u32
    %r2, 017;
 st.global.f32 [%rd1], %f0; st.global.f64 [%rd1+8], %fd0; st.global.u32 [%rd1+16], %r0; st.global.u32 [%rd1+24], %r1;
 st.global.u32 [%rd1+32], %r2; mov.f32 %f1, 1.5; st.global.f32 [%rd1+40], %f1;"""
    assert one_lane(body, 6) == [0xC0490FDB, 0x400921FB54442D18, 0xFFFFFFFF, 11, 15, 0x3FC00000]


@pytest.mark.covers("createpolicy.")
def test_a_cache_policy_is_taken_by_the_hint_that_reads_it() -> None:
    body = """ createpolicy.fractional.L2::evict_first.b64 %rd2, 0.5; createpolicy.cvt.L2.b64 %rd3, 0x12;
 mov.u64 %rd4, 7; st.global.L2::cache_hint.u64 [%rd1], %rd4, %rd2;
 add.u64 %rd3, %rd3, 9; st.global.u64 [%rd1+8], %rd3; membar.gl;
 ld.global.L2::cache_hint.u64 %rd5, [%rd1], %rd2; atom.global.add.L2::cache_hint.u64 %rd6, [%rd1+8], %rd5, %rd2;
 red.global.add.L2::cache_hint.u64 [%rd1+8], %rd6, %rd2; st.global.u64 [%rd1+16], %rd5;"""
    assert one_lane(body, 3) == [7, 25, 7]


def test_setp_with_two_results() -> None:
    body = """ mov.u32 %r0, 5; mov.u32 %r9, 0;
 setp.lt.u32 %p0|%p1, %r0, 9; setp.eq.and.u32 %p2|%p3, %r0, 5, !%p1; setp.gt.u32 %p4|_, %r0, 9;
"""
    for bit in range(5):
        body += f" selp.u32 %r1, {1 << bit}, 0, %p{bit}; or.b32 %r9, %r9, %r1;"
    assert one_lane(body + " st.global.u32 [%rd1], %r9;") == [0b00101]


def test_results_widen_into_larger_registers() -> None:
    body = """ mov.u16 %rs0, -3; cvt.s8.s16 %r0, %rs0; cvt.u8.u16 %r1, %rs0;
 st.global.u32 [%rd1], %r0; st.global.u32 [%rd1+4], %r1;"""
    assert one_lane(body) == [0xFD << 32 | 0xFFFFFFFD]


@pytest.mark.covers("cvta.")
@pytest.mark.parametrize("space", ["global", "const", "param", "shared", "local"])
def test_cvta_there_and_back(space: str) -> None:
    body = (
        f" mov.u64 %rd2, 4096; cvta.{space}.u64 %rd3, %rd2; cvta.to.{space}.u64 %rd4, %rd3; st.global.u64 [%rd1], %rd4;"
    )
    assert one_lane(body) == [4096]


@pytest.mark.covers("ld.u32", "st.u32")
def test_generic_addresses_reach_every_space() -> None:
    body = """ .shared .align 8 .b8 s[16]; .local .align 8 .b8 l[16];
 mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2; mov.u64 %rd4, l; cvta.local.u64 %rd5, %rd4;
 mov.u32 %r0, 11; mov.u32 %r1, 22; st.u32 [%rd3+4], %r0; st.local.u32 [%rd4+8], %r1;
 ld.shared.u32 %r2, [s+4]; ld.u32 %r3, [%rd5+8]; st.u32 [%rd1], %r2; st.u32 [%rd1+4], %r3;"""
    assert one_lane(body) == [22 << 32 | 11]


@pytest.mark.parametrize("compiled", [True, False])
def test_shared_memory_takes_generic_addresses_of_its_own(compiled: bool) -> None:
    body = """ .shared .align 8 .b8 s[16]; mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2; mov.u32 %r0, 5;
 st.shared.u32 [%rd3+4], %r0; ld.shared.u32 %r1, [s+4]; st.global.u32 [%rd1], %r1; cvta.to.global.u64 %rd4, %rd1;"""
    assert one_lane(body, compiled=compiled) == [5]
    with pytest.raises(Fault, match="at byte .* of shared memory, which has 16 bytes"):
        one_lane(body + " ld.shared.u32 %r2, [%rd4];", compiled=compiled)


@pytest.mark.parametrize(
    "line", ["rcp.approx.ftz.f64 %fd0, %fd1;", "add.cc.u32 %r0, %r1, %r2;", "tcgen05.shift.cta_group::1.down [%r0];"]
)
def test_what_it_lacks_is_named_where_it_is_reached(line: str) -> None:
    body = " ld.param.u64 %rd1, [p0]; ld.global.u32 %r9, [%rd1]; setp.eq.u32 %p0, %r9, 0; @%p0 ret;"
    text = kernel(f"{body}\n .loc 1 77 3\n {line}", 1)
    text = text + '.file 1 "/somewhere/file.cu"\n'
    run(text, {"x": np.zeros(1, np.uint32)})
    with pytest.raises(NotEmulated, match=rf"^not emulated: {line.rstrip(';').split()[0]} at file.cu:77$"):
        run(text, {"x": np.ones(1, np.uint32)})


@pytest.mark.parametrize(
    "register",
    ["%smid", "%nsmid", "%gridid", "%pm7", "%pm0_64", "%envreg31",
     "%reserved_smem_offset_begin", "%aggr_smem_size", "%current_graph_exec"],
)  # fmt: skip
def test_a_special_register_that_it_lacks_is_named(register: str) -> None:
    with pytest.raises(NotEmulated) as refused:
        run(kernel(f" mov.u64 %rd2, {register};", 0), {})
    assert str(refused.value) == f"not emulated: mov.u64 at ptx:8: the special register {register}"


def test_a_register_that_is_nowhere_declared_is_no_special_register() -> None:
    with pytest.raises(NotEmulated, match=r"^not emulated: mov.u64 at ptx:8$"):
        run(kernel(" mov.u64 %rd2, %clocks;", 0), {})


def test_operand_edges_are_within_their_types() -> None:
    assert all(0 <= edge < 1 << 16 for edge in edges("s16") + edges("f16"))


def test_header_is_a_module() -> None:
    assert Module(HEADER).kernels == ()
