"""What orders the threads of a cluster: scopes, relaxed operations with fences, and who has begun; lives of mbarriers.

Relaxed arrivals at a cluster's barrier, and at an mbarrier, publish what a fence before them covers, and no more.
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
from ptx_emulator.races.borne import DEFAULT_SCOPE
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
#define ARRIVE(HOW, PLACE) asm volatile("mbarrier.arrive" HOW ".shared::cluster.b64 _, [%0];" :: "r"(PLACE) : "memory")
#define WAIT_FOR(HOW) asm volatile("{\n .reg .pred p;\n again:\n mbarrier.try_wait.parity" HOW ".shared::cta.b64 p, " \
  "[%0], 0;\n @!p bra again;\n}" :: "r"(at(&bar)) : "memory")
#define SET(SCOPE, PLACE) asm volatile("st.release." SCOPE ".global.u32 [%0], 1;" :: "l"(PLACE) : "memory")
#define POLL(SCOPE, PLACE) for (u32 v = 0; v != 1;) \
  asm volatile("ld.acquire." SCOPE ".global.u32 %0, [%1];" : "=r"(v) : "l"(PLACE) : "memory")
__device__ void put(u32 place, u32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(place), "r"(value) : "memory");
}
__device__ u32 there(u32 place) {
  u32 value; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(place) : "memory"); return value;
}
extern "C" __global__ void __cluster_dims__(2) k(u8* in, u32* out) {
  __shared__ alignas(128) u32 s[64]; __shared__ u64 bar;
  u32 t = threadIdx.x, i = 64 * blockIdx.x + t, *g = (u32*)in, *flag = g + 256, peer = in_block(&bar, rank() ^ 1);
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

READY = "if (!t) { init(bar, 64); INIT_FENCE; } RELAXED; WAIT; "
LAST = "arrive(bar); wait(bar, 0); "


def handed(stores: str, arrives: str, waits: str, reads: str) -> str:
    """All threads store, arrive at the mbarrier of the other block, wait at their own, and read."""
    return f"{READY} {stores} {arrives} {waits} {reads}"


def in_grid(first: str, second: str, third: str) -> str:
    """Block 0 hands over to block 1 of its cluster, and that to block 2 of another."""
    hands = "if (!t && blockIdx.x == 0) {{ g[5] = 7; {} }} if (!t && blockIdx.x == 1) {{ {} }}"
    return hands.format(first, second) + f" if (!t && blockIdx.x == 2) {{ {third} out[0] = g[5]; }}"


WAITS_THERE = """RELEASE; WAIT;
  asm volatile("{\\n .reg .pred p;\\n mbarrier.test_wait.parity.shared.b64 p, [%0], 0;\\n}" :: "r"(peer) : "memory");"""
PAIRS = {
    "a release of the block alone": handed(
        "s[t] = i;", 'ARRIVE(".release.@{cta||cluster}@", peer);', 'WAIT_FOR(".acquire.cluster");', READS
    ),
    "an acquisition of the block alone": handed(
        "s[t] = i;", 'ARRIVE("", peer);', 'WAIT_FOR("@{.acquire.cta||}@");', READS
    ),
    "the same of global memory": handed(
        "g[i] = i;", 'ARRIVE(".release.@{cta||cluster}@", peer);', 'WAIT_FOR(".acquire.cluster");', GLOBAL
    ),
    "global memory, acquired": handed("g[i] = i;", 'ARRIVE("", peer);', 'WAIT_FOR("@{.acquire.cta||}@");', GLOBAL),
    "fences around relaxed ones, first": handed(
        's[t] = i; ASM("fence.acq_rel.@{cta||gpu}@;");',
        'ARRIVE(".relaxed.cluster", peer);',
        'WAIT_FOR(".relaxed.cluster"); FENCE;',
        READS,
    ),
    "fences around relaxed ones, last": handed(
        "s[t] = i; FENCE;",
        'ARRIVE(".relaxed.cluster", peer);',
        'WAIT_FOR(".relaxed.cluster"); ASM("fence.acq_rel.@{cta||sys}@;");',
        READS,
    ),
    "relaxed ones of the block": (
        READY + 's[t] = g[i] = i; @{||ASM("fence.acq_rel.cta;");}@ ARRIVE(".relaxed.cta", at(&bar)); '
        'WAIT_FOR(".relaxed.cta"); ASM("fence.acq_rel.cta;"); out[i] = s[t ^ 33] + g[i ^ 33];'
    ),
    "a relaxed wait of the block": (
        READY + 'g[i] = i; arrive(bar); WAIT_FOR(".relaxed.cta"); @{||ASM("fence.acq_rel.cta;");}@ out[i] = g[i ^ 33];'
    ),
    "what a relaxed wait does not acquire": (
        READY + 'g[i] = i; ASM("fence.acq_rel.cta;"); ARRIVE(".relaxed.cta", at(&bar)); WAIT_FOR(".relaxed.cta"); '
        '@{||ASM("fence.acq_rel.cta;");}@ out[i] = g[i ^ 33];'
    ),
    "a flag of the cluster, of the grid": in_grid(
        'SET("cluster", flag);', 'POLL("cluster", flag); SET("@{cluster||gpu}@", flag + 1);', 'POLL("gpu", flag + 1);'
    ),
    "a flag of the block, of the cluster": in_grid(
        'SET("@{cta||cluster}@", flag);', 'POLL("cluster", flag); SET("gpu", flag + 1);', 'POLL("gpu", flag + 1);'
    ),
    "acquired for the block alone": in_grid(
        'SET("gpu", flag);', 'POLL("@{cta||cluster}@", flag); SET("gpu", flag + 1);', 'POLL("gpu", flag + 1);'
    ),
    "atomics of two scopes": "if (!t) @{if (rank()) atomicAdd_block(flag, 1); else||}@ atomicAdd(flag, 1);",
    "atomics of two scopes, otherwise": "if (!t) @{if (!rank()) atomicAdd_block(flag, 1); else||}@ atomicAdd(flag, 1);",
    "a store to a block that may not have begun": (
        "@{RELAXED; put(in_block(&s[t], rank() ^ 1), i);||RELAXED; WAIT; put(in_block(&s[t], rank() ^ 1), i);}@"
        " @{WAIT;||}@"
    ),
    "a flag tells that it has begun": (
        "if (!t) atomicExch(flag + blockIdx.x, 1); @{||if (!t) while (atomicAdd(flag + (blockIdx.x ^ 1), 0) != 1); }@"
        "__syncthreads(); put(in_block(&s[t], rank() ^ 1), i);"
    ),
    "an mbarrier ends while another thread looks": READY + LAST + "@{||__syncthreads();}@ if (t == 32) inval(bar);",
    "an mbarrier ends while another block arrives": (
        "if (!t) { init(bar, 1); INIT_FENCE; } RELAXED; WAIT; if (!t) arrive_at(peer); "
        "if (t == 32) { @{||wait(bar, 0);}@ inval(bar); }"
    ),
    "an mbarrier ends before it is used": (
        READY + "if (!t) { @{inval(bar);||}@ } if (t < 32) { arrive(bar); } @{||__syncthreads(); if (!t) inval(bar);}@"
    ),
    "an mbarrier begins where another thread ended one": (
        READY + LAST + "__syncthreads(); if (!t) inval(bar); @{||__syncthreads();}@ if (t == 32) init(bar, 1);"
    ),
    "an mbarrier begins again while another thread may arrive": (
        "if (!t) init(bar, 64); __syncthreads(); if (t == 32) init(bar, 64); @{||__syncthreads();}@ arrive(bar);"
        " __syncthreads();"
    ),
    "an mbarrier ends with a copy": (
        'if (!t) { init(bar, 1); ASM("fence.proxy.async;"); expect(bar, 64); load(s, in, 64, bar); '
        "@{||wait(bar, 0);}@ inval(bar); }"
    ),
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


def run(body: str, mended: bool, schedule: Schedule, **options) -> None:
    body = re.sub(r"@\{(.*?)\|\|(.*?)\}@", r"\2" if mended else r"\1", body, flags=re.DOTALL)
    source, arrays = (
        KERNEL.replace("BODY", body),
        [Buffer(name, np.arange(2048).astype(np.uint8)) for name in ("in", "out")],
    )
    launch(module(source), "k", (4, 1, 1), (64, 1, 1), arrays, schedule=schedule, **options)


@pytest.mark.sweep
@pytest.mark.parametrize("name", PAIRS)
def test_every_order_tells_the_bug_from_its_mend(name: str) -> None:
    for schedule in (ASCENDING, DESCENDING, Schedule(seed=1)):
        with pytest.raises(Fault) as raised:
            run(PAIRS[name], False, schedule)
        assert raised.value.kind in ("race", "mbarrier")
        run(PAIRS[name], True, schedule)


@pytest.mark.parametrize("reads", [READS, GLOBAL])
def test_no_scope_is_borne_as_the_clusters(reads: str) -> None:
    body = handed("s[t] = g[i] = i;", 'ARRIVE("", peer);', 'WAIT_FOR("");', reads)
    run(body, True, ASCENDING)
    with pytest.raises(Fault) as raised:
        run(body, True, ASCENDING, strict={DEFAULT_SCOPE})
    said = "has no scope, which PTX takes as .cta (strict), and orders no thread of another block"
    assert reads == GLOBAL or said in raised.value.sentence


def test_a_wait_is_for_an_mbarrier_of_its_own_block() -> None:
    with pytest.raises(Fault, match="waits at an mbarrier of another block of the cluster"):
        run(READY + LAST + WAITS_THERE, True, ASCENDING)


def test_nobody_passes_a_clusters_barrier_that_others_never_reach() -> None:
    """A thread at an mbarrier may be told in vain that its phase is not complete; one at a cluster's barrier waits."""
    stuck = "if (rank()) wait(bar, 0); RELEASE; WAIT; if (!t) put(in_block(s, rank() ^ 1), 7); out[i] = s[t];"
    with pytest.raises(Fault, match="waits for parity 0 for ever") as raised:
        run(f"{READY} s[t] = 0; {stuck}", True, ASCENDING)
    assert raised.value.kind == "deadlock"
