"""The PTX to mutate: small kernels of ours, and short kernels with the features that ours lack."""

from __future__ import annotations

from functools import cache

from harness.suite.instantiations import instantiations

SMALL = ("casts", "swizzle", "row_scaled_amax", "gemm_post_scale", "dequantize")
ARCHES = ("compute_90a", "compute_100a")

_HEAD = """.version 8.6
.target sm_100a
.address_size 64
.global .align 4 .u32 counter = 7;
.const .align 8 .b8 table[24] = {64, 0, 0, 0, 32, 0, 0, 0, 128};
.visible .entry k(
 .param .u64 .ptr .align 1 p0,
 .param .u64 p1,
 .param .u32 n,
 .param .align 4 .b8 pair[8]
)
.maxntid 128, 1, 1
{
 .reg .pred %p<8>; .reg .b16 %rs<12>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<12>; .reg .f64 %fd<4>;
 .shared .align 16 .b8 s[1040];
 .local .align 8 .b8 mine[16];
 .loc 1 7 0
 ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u32 %r31, [n]; mov.u32 %r0, %tid.x;
 mad.wide.u32 %rd2, %r0, 16, %rd0; mad.wide.u32 %rd3, %r0, 16, %rd1; mov.u32 %r1, s; shl.b32 %r2, %r0, 2;
 add.u32 %r3, %r1, %r2; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2];
"""
_TAIL = """ st.global.v4.u32 [%rd3], {%r4, %r5, %r6, %r7};
 ret;
}
"""
_BODIES = (
    # integers
    """ add.u32 %r4, %r4, %r5; sub.s32 %r5, %r5, -4; mul.lo.u32 %r6, %r6, 3; mul.hi.s32 %r7, %r7, %r4;
 and.b32 %r8, %r4, 0xFF; shr.s32 %r9, %r5, 3; bfe.u32 %r10, %r6, 4, 8; prmt.b32 %r11, %r7, %r4, 0x3210;
 lop3.b32 %r4, %r8, %r9, %r10, 0x96; popc.b32 %r5, %r11; clz.b32 %r6, %r11; selp.b32 %r7, %r8, %r9, %p0;
 mul.wide.u32 %rd4, %r4, %r5; shl.b64 %rd5, %rd4, 3; cvt.u32.u64 %r6, %rd5; mov.b64 {%r7, %r8}, %rd5;
 div.u32 %r9, %r7, %r5; rem.u32 %r10, %r7, 11; min.s32 %r4, %r4, %r10; shf.l.wrap.b32 %r5, %r9, %r8, %r10;
""",
    # floats
    """ mov.b32 %f0, %r4; mov.b32 %f1, %r5; add.rn.f32 %f2, %f0, %f1; mul.rn.f32 %f3, %f0, 0f3F000000;
 fma.rn.f32 %f4, %f2, %f3, %f1; div.rn.f32 %f5, %f0, %f1; sqrt.rn.f32 %f6, %f0; abs.f32 %f7, %f1;
 max.NaN.f32 %f8, %f4, %f5; setp.gt.f32 %p1, %f8, %f7; selp.f32 %f9, %f8, %f6, %p1; mov.b32 %r4, %f9;
 cvt.rn.bf16.f32 %rs1, %f0; cvt.rn.f16.f32 %rs2, %f1; mov.b32 %r5, {%rs1, %rs2}; cvt.f64.f32 %fd0, %f2;
 add.rn.f64 %fd1, %fd0, %fd0; cvt.rn.f32.f64 %f10, %fd1; mov.b32 %r6, %f10; cvt.rzi.s32.f32 %r7, %f0;
 cvt.rn.satfinite.e4m3x2.f32 %rs3, %f0, %f1; cvt.u32.u16 %r8, %rs3; mul.f16x2 %r7, %r5, %r5;
""",
    # shared and local memory
    """ st.shared.u32 [%r3], %r4; bar.sync 0; xor.b32 %r8, %r2, 12; add.u32 %r8, %r1, %r8; ld.shared.u32 %r5, [%r8];
 bar.sync 0; st.shared.v2.u16 [%r3], {%rs1, %rs2}; @%p2 st.shared.u8 [%r3+2], %rs1; bar.warp.sync -1;
 ld.shared.u16 %r6, [%r3+2]; st.local.u32 [mine+4], %r4; ld.local.u32 %r7, [mine+4]; cvta.shared.u64 %rd6, %rd4;
 st.shared.u32 [%r3+512], %r0; bar.sync 0; atom.shared.add.u32 %r9, [s+512], 1; bar.red.popc.u32 %r4, 0, %p0;
""",
    # exchanges
    """ shfl.sync.bfly.b32 %r8|%p1, %r4, 16, 31, -1; shfl.sync.down.b32 %r9, %r5, 3, 0x101f, 0xffffffff;
 setp.lt.u32 %p2, %r8, %r9; vote.sync.ballot.b32 %r10, %p2, -1; vote.sync.any.pred %p3, %p2, 0xffffffff;
 redux.sync.max.u32 %r11, %r10, -1; activemask.b32 %r12; match.any.sync.b32 %r13, %r0, -1; elect.sync %r14|%p4, -1;
 add.u32 %r4, %r8, %r9; add.u32 %r5, %r10, %r11; xor.b32 %r6, %r12, %r13; @%p3 add.u32 %r7, %r7, 1;
""",
    # branches
    """ and.b32 %r8, %r0, 3; mov.u32 %r9, 0;
$L_loop:
 add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, %r8; @%p1 bra $L_loop;
 setp.eq.s32 %p2, %r8, 2; @!%p2 bra $L_else;
 add.u32 %r4, %r4, %r9; bra.uni $L_end;
$L_else:
 sub.u32 %r4, %r4, %r9;
$L_end:
 $L_table: .branchtargets $L_one, $L_two;
 and.b32 %r10, %r9, 1; brx.idx %r10, $L_table;
$L_one: add.u32 %r5, %r5, 1;
$L_two: { .reg .b32 %r8; mov.u32 %r8, 5; add.u32 %r6, %r6, %r8; }
 @%p3 ret; setp.lt.u32 %p4, %r31, 1000; @%p4 bra $L_fine; trap;
$L_fine:
""",
    # atomics and copies
    """ red.global.add.u32 [%rd1], 1; atom.global.max.u32 %r8, [%rd1+4], %r4; membar.gl; fence.acq_rel.gpu;
 atom.global.cas.b32 %r9, [%rd1+8], %r8, %r5; ld.volatile.global.u32 %r10, [%rd1+8]; ld.global.u32 %r11, [counter];
 ld.const.u32 %r12, [table+4]; ld.param.u32 %r13, [pair+4]; shl.b32 %r14, %r0, 3; add.u32 %r15, %r1, %r14;
 cp.async.ca.shared.global [%r15], [%rd2], 8; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
 ld.shared.v2.u32 {%r4, %r5}, [%r15]; mov.u32 %r6, %r12; add.u32 %r7, %r13, %r11; st.global.u8 [%rd3+3], %rs1;
""",
    # products
    """ mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3},
 {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%f4, %f5, %f6, %f7};
 shl.b32 %r8, %r0, 4; and.b32 %r8, %r8, 511; add.u32 %r9, %r1, %r8; st.shared.v4.u32 [%r9], {%r4, %r5, %r6, %r7};
 bar.sync 0; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, [%r9]; mov.b32 %r4, %f0; add.u32 %r5, %r10, %r11;
""",
)


@cache
def short() -> tuple[str, ...]:
    """Texts with one kernel, `k`, of a few dozen instructions."""
    return tuple(_HEAD + body + _TAIL for body in _BODIES)


@cache
def ours() -> tuple[str, ...]:
    """One instantiation of each small kernel, for each architecture."""
    found: dict[tuple[str, str], str] = {}
    for job in instantiations(("smoke",), ARCHES):
        if job.signature.name in SMALL and (job.signature.name, job.arch) not in found:
            found[job.signature.name, job.arch] = job.compile().ptx
    return tuple(found.values())
