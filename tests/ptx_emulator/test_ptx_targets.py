"""An instruction that the module's target lacks is refused; what is expected here was asked of ptxas 13.0 once."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import line_of, module

from ptx_emulator.errors import NotOnTarget
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.ptx.parser import parse
from ptx_emulator.ptx.targets import lacking, parsed

TARGETS = ("75", "80", "86", "89", "90", "90a", "100", "100a", "100f", "103a", "110a", "120", "120a", "120f", "121a")
BLACKWELL = "100a 100f 103a 110a 120a 120f 121a"
HOPPER_ON = "90 90a 100 100a 100f 103a 110a 120 120a 120f 121a"
BLACKWELL_ON = "100 100a 100f 103a 110a 120 120a 120f 121a"
ADA_ON = f"89 {HOPPER_ON}"
GA10X_ON = f"86 {ADA_ON}"
AMPERE_ON = f"80 {GA10X_ON}"
ALL = f"75 {AMPERE_ON}"

ON = {
    # conversions
    "cvt.rn.satfinite.e2m1x2.f32 b0, %f0, %f1;": BLACKWELL,
    "cvt.rn.f16x2.e2m1x2 %r0, b0;": BLACKWELL,
    "cvt.rp.satfinite.ue8m0x2.f32 %rs0, %f0, %f1;": BLACKWELL,
    "cvt.rn.bf16x2.ue8m0x2 %r0, %rs0;": BLACKWELL,
    "cvt.rs.satfinite.e2m1x4.f32 %rs0, {%f0, %f1, %f2, %f3}, %r0;": "100a 103a",
    "cvt.rs.satfinite.e4m3x4.f32 %r1, {%f0, %f1, %f2, %f3}, %r0;": "100a 103a",
    "cvt.rn.satfinite.e4m3x2.f32 %rs0, %f0, %f1;": ADA_ON,
    "cvt.rn.f16x2.e4m3x2 %r0, %rs0;": ADA_ON,
    "cvt.rn.bf16.f32 %rs0, %f0;": AMPERE_ON,
    "cvt.rn.bf16x2.f32 %r0, %f0, %f1;": AMPERE_ON,
    "cvt.f32.bf16 %f0, %rs0;": AMPERE_ON,
    "cvt.rn.relu.f16.f32 %rs0, %f0;": AMPERE_ON,
    "cvt.rn.f16x2.f32 %r0, %f0, %f1;": AMPERE_ON,
    "cvt.rn.bf16.s32 %rs0, %r0;": HOPPER_ON,
    "cvt.rzi.s32.bf16 %r0, %rs0;": HOPPER_ON,
    "cvt.f64.bf16 %fd0, %rs0;": HOPPER_ON,
    "cvt.rn.f16.f32 %rs0, %f0;": ALL,
    "cvt.rn.satfinite.f16.f32 %rs0, %f0;": ALL,
    # arithmetic
    "add.rn.f32x2 %rd0, %rd1, %rd2;": BLACKWELL_ON,
    "fma.rn.f32x2 %rd0, %rd1, %rd2, %rd3;": BLACKWELL_ON,
    "add.f32.bf16 %f0, %rs0, %f1;": BLACKWELL_ON,
    "max.f32 %f0, %f1, %f2, %f3;": BLACKWELL_ON,
    "max.f32 %f0, %f1, %f2;": ALL,
    "max.NaN.f32 %f0, %f1, %f2;": AMPERE_ON,
    "max.xorsign.abs.f32 %f0, %f1, %f2;": GA10X_ON,
    "max.bf16 %rs0, %rs1, %rs2;": AMPERE_ON,
    "max.f16x2 %r0, %r1, %r2;": AMPERE_ON,
    "abs.bf16 %rs0, %rs1;": AMPERE_ON,
    "fma.rn.bf16x2 %r0, %r1, %r2, %r3;": AMPERE_ON,
    "fma.rn.f16x2 %r0, %r1, %r2, %r3;": ALL,
    "add.bf16 %rs0, %rs1, %rs2;": HOPPER_ON,
    "mul.bf16x2 %r0, %r1, %r2;": HOPPER_ON,
    "add.f16x2 %r0, %r1, %r2;": ALL,
    "tanh.approx.bf16 %rs0, %rs1;": HOPPER_ON,
    "tanh.approx.f32 %f0, %f1;": ALL,
    "setp.lt.bf16 %p0, %rs0, %rs1;": HOPPER_ON,
    "max.s16x2 %r0, %r1, %r2;": HOPPER_ON,
    "max.s32 %r0, %r1, %r2;": ALL,
    # warps and matrices
    "redux.sync.max.f32 %f0, %f1, -1;": "100a 100f 103a",
    "redux.sync.max.u32 %r0, %r1, -1;": AMPERE_ON,
    "elect.sync %r0|%p0, -1;": HOPPER_ON,
    "setmaxnreg.inc.sync.aligned.u32 96;": f"90a {BLACKWELL}",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, "
    "{%f0, %f1, %f2, %f3};": AMPERE_ON,
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, "
    "{%f0, %f1, %f2, %f3};": ALL,
    "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;": ALL,
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [s];": ALL,
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [s], {%r0};": HOPPER_ON,
    "wgmma.fence.sync.aligned;": "90a",
    "tcgen05.wait::ld.sync.aligned;": "100a 100f 103a 110a",
    # memory
    "ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%rd0];": BLACKWELL_ON,
    "ld.global.v4.b64 {%rd0, %rd1, %rd2, %rd3}, [%rd0];": BLACKWELL_ON,
    "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd0];": ALL,
    "red.global.add.noftz.bf16x2 [%rd0], %r0;": HOPPER_ON,
    "red.global.add.f32 [%rd0], %f0;": ALL,
    "red.global.v2.f32.add [%rd0], {%f0, %f1};": HOPPER_ON,
    "ld.relaxed.cluster.global.u32 %r0, [%rd0];": HOPPER_ON,
    "applypriority.global.L2::evict_normal [%rd0], 128;": AMPERE_ON,
    "set.lt.bf16x2.bf16x2 %r0, %r1, %r2;": HOPPER_ON,
    "set.lt.f16x2.f16x2 %r0, %r1, %r2;": ALL,
    "ld.shared::cluster.u32 %r0, [s];": HOPPER_ON,
    "ld.shared::cta.u32 %r0, [s];": ALL,
    "fence.acq_rel.cluster;": HOPPER_ON,
    "fence.acq_rel.gpu;": ALL,
    # copies, barriers, clusters
    "cp.async.ca.shared.global [s], [%rd0], 4;": AMPERE_ON,
    "cp.async.bulk.commit_group;": HOPPER_ON,
    "fence.proxy.async;": HOPPER_ON,
    "fence.mbarrier_init.release.cluster;": HOPPER_ON,
    "mbarrier.init.shared.b64 [s], 1;": AMPERE_ON,
    "mbarrier.test_wait.shared.b64 %p0, [s], %rd0;": AMPERE_ON,
    "mbarrier.arrive.noComplete.shared.b64 %rd0, [s], 2;": AMPERE_ON,
    "mbarrier.arrive.shared.b64 %rd0, [s], 2;": HOPPER_ON,
    "mbarrier.arrive.expect_tx.shared.b64 %rd0, [s], 64;": HOPPER_ON,
    "mbarrier.try_wait.shared.b64 %p0, [s], %rd0;": HOPPER_ON,
    "barrier.cluster.arrive.release.aligned;": HOPPER_ON,
    "mapa.u64 %rd0, %rd1, 0;": HOPPER_ON,
    "getctarank.u64 %r0, %rd1;": HOPPER_ON,
    "griddepcontrol.wait;": HOPPER_ON,
    "mov.u32 %r0, %cluster_ctarank;": HOPPER_ON,
    "mov.u32 %r0, %ctaid.x;": ALL,
}


def text(body: str, target: str, directive: str = "") -> str:
    return f""".version 9.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 p0) {directive}
{{
 .reg .b8 b0; .reg .pred %p<2>; .reg .b16 %rs<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .f64 %fd<1>;
 .shared .align 16 .b8 s[256];
 {body}
 ret;
}}
"""


@pytest.mark.parametrize("body", ON, ids=lambda body: body.split()[0])
def test_the_targets_that_have_it(body: str) -> None:
    program = parse(text(body, "sm_90a"))
    found = [number for number in TARGETS if not lacking(program.kernel("k"), f"sm_{number}")]
    assert set(found) == set(ON[body].split())


def test_a_cluster_that_the_kernel_declares() -> None:
    kernel = parse(text("", "sm_80", ".reqnctapercluster 2, 1, 1")).kernel("k")
    assert lacking(kernel, "sm_80") == (".reqnctapercluster of k needs sm_90 or newer, and this is compiled for sm_80")
    assert not lacking(kernel, "sm_90")


def test_a_target_that_is_not_known_lacks_nothing() -> None:
    assert not lacking(parse(text("wgmma.fence.sync.aligned;", "sm_90a")).kernel("k"), "")


def test_ue5m3_needs_the_newest_of_its_family() -> None:
    for body in ("cvt.rn.satfinite.ue5m3x2.f32 %rs0, %f0, %f1;", "cvt.rn.bf16x2.ue5m3x2 %r0, %rs0;"):
        kernel = parse(text(body, "sm_107a")).kernel("k")
        taken = [number for number in (*TARGETS, "107", "107a", "107f") if not lacking(kernel, f"sm_{number}")]
        assert taken == ["107a", "107f"]


def test_the_former_name_of_a_target() -> None:
    assert parsed("sm_101a") == parsed("sm_110a") != parsed("sm_101f")


def test_what_is_never_reached_is_refused_as_by_ptxas() -> None:
    body = "bra.uni $L; redux.sync.max.u32 %r0, %r1, -1;\n$L:"
    buffers = [Buffer("out", np.zeros(4, np.uint8))]
    launch(Module(text(body, "sm_80")), "k", (1, 1, 1), (32, 1, 1), buffers)
    with pytest.raises(NotOnTarget, match=r"redux.sync.max.u32 at ptx:8 needs sm_80 or newer, .* for sm_75"):
        launch(Module(text(body, "sm_75")), "k", (1, 1, 1), (32, 1, 1), buffers)


def test_the_line_is_that_of_the_source() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  asm("{ .reg .b8 b; cvt.rn.satfinite.e2m1x2.f32 b, %1, %1; cvt.u32.u8 %0, b; }" : "=r"(*out) : "f"(1.0f));
}
"""
    arguments = "k", (1, 1, 1), (1, 1, 1), [Buffer("out", np.zeros(4, np.uint8))]
    launch(module(source, "compute_120a"), *arguments)
    with pytest.raises(NotOnTarget) as refused:
        launch(module(source, "compute_90a"), *arguments)  # NVRTC makes PTX for it, and ptxas would refuse that
    assert str(refused.value) == (
        f"cvt.rn.satfinite.e2m1x2.f32 at {line_of(source, 'asm')} needs sm_100a, sm_110a or sm_120a, or newer of their "
        "families, and this is compiled for sm_90a"
    )
