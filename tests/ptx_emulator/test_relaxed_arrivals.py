"""Relaxed arrivals at a cluster's barrier, and at an mbarrier, publish what a fence before them covers, and no more.

`fence.mbarrier_init` covers the inits of its own thread (CUTLASS's `cluster_arrive_relaxed` behind
`fence_barrier_init`, DeepGEMM and Triton begin so); another fence of the cluster covers all that came before it.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import module

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

KERNEL = (
    PRELUDE
    + r"""
#define RELAXED ASM("barrier.cluster.arrive.relaxed.aligned;")
#define RELEASE ASM("barrier.cluster.arrive.release.aligned;")
#define WAIT ASM("barrier.cluster.wait.acquire.aligned;")
#define INIT_FENCE ASM("fence.mbarrier_init.release.cluster;")
#define FENCE ASM("fence.acq_rel.cluster;")
__device__ void arrive_at(u32 peer) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(peer) : "memory");
}
__device__ u32 there(u32 place) {
  u32 value; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(place) : "memory"); return value;
}
extern "C" __global__ void __cluster_dims__(2) k(u8* in, u32* out) {
  __shared__ alignas(128) u32 s[64]; __shared__ u64 bar;
  u32 t = threadIdx.x, i = 64 * blockIdx.x + t;
  BODY
  RELEASE; WAIT;
}"""
)

ARRIVES = "if (!t) arrive_at(in_block(&bar, rank() ^ 1)); wait(bar, 0);"
# Each block's thread 0 brings half of both blocks' bytes, counted at their mbarriers.
MULTICAST = """
  if (!t) expect(bar, 256);
  if (!t) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    " [%0], [%1], 128, [%2], %3;" :: "r"(at(s + 32 * rank())), "l"(in), "r"(at(&bar)), "h"((short)3) : "memory");
  wait(bar, 0); out[i] = s[t];"""
READS = "out[i] = there(in_block(&s[t ^ 9], rank() ^ 1));"
GLOBAL = "out[i] = ((u32*)in)[i ^ 64];"

PAIRS = {
    "the init behind its fence": ("if (!t) { init(bar, 1); @{||INIT_FENCE;}@ } RELAXED; WAIT; " + ARRIVES),
    "the fence of another thread": (
        "if (!t) init(bar, 1); __syncwarp(); if (t == @{5||0}@) INIT_FENCE; RELAXED; WAIT; " + ARRIVES
    ),
    "a fence before the init": (
        "if (!t) { @{INIT_FENCE;||}@ init(bar, 1); @{||INIT_FENCE;}@ } RELAXED; WAIT; " + ARRIVES
    ),
    "another fence of the init": "if (!t) { init(bar, 1); @{||FENCE;}@ } RELAXED; WAIT; " + ARRIVES,
    "the init by release": "if (!t) init(bar, 1); @{RELAXED||RELEASE}@; WAIT; " + ARRIVES,
    "no wait": "if (!t) { init(bar, 1); INIT_FENCE; } RELAXED; @{||WAIT;}@ " + ARRIVES + " @{WAIT;||}@",
    "a copy to both blocks": "if (!t) { init(bar, 1); @{||INIT_FENCE;}@ } RELAXED; WAIT; " + MULTICAST,
    "a copy to both blocks, by release": "if (!t) { init(bar, 1); @{||INIT_FENCE;}@ } RELEASE; WAIT; " + MULTICAST,
    "a store of shared memory": "s[t] = i; @{INIT_FENCE||FENCE}@; RELAXED; WAIT; " + READS,
    "a store behind the fence": "@{FENCE; s[t] = i;||s[t] = i; FENCE;}@ RELAXED; WAIT; " + READS,
    "a fence of the block alone": 's[t] = i; @{ASM("fence.acq_rel.cta;")||FENCE}@; RELAXED; WAIT; ' + READS,
    "a store of global memory": "((u32*)in)[i] = i; @{INIT_FENCE||__threadfence()}@; RELAXED; WAIT; " + GLOBAL,
    "a relaxed arrival at an mbarrier": (
        "if (!t) { init(bar, 64); INIT_FENCE; } RELAXED; WAIT; s[t] = i; @{||FENCE;}@"
        'asm volatile("mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%0];" :: "r"(at(&bar)) : "memory");'
        " wait(bar, 0); out[i] = s[t ^ 33];"
    ),
}


def run(body: str, mended: bool, schedule: Schedule) -> None:
    body = re.sub(r"@\{(.*?)\|\|(.*?)\}@", r"\2" if mended else r"\1", body, flags=re.DOTALL)
    source, arrays = (
        KERNEL.replace("BODY", body),
        [Buffer(name, np.arange(2048).astype(np.uint8)) for name in ("in", "out")],
    )
    launch(module(source), "k", (2, 1, 1), (64, 1, 1), arrays, schedule=schedule)


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_relaxed_arrival_publishes(name: str) -> None:
    for schedule in (ASCENDING, DESCENDING, Schedule(seed=1)):
        with pytest.raises(Fault) as raised:
            run(PAIRS[name], False, schedule)
        assert raised.value.kind == "race"
        run(PAIRS[name], True, schedule)
