"""Misuse of mbarriers, bulk copies, TMA and clusters: each a fault that names both sides by line, and its mend none.

A pair differs by `@{bug||mend}@` alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, line_of, module

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule
from ptx_emulator.tensor_map import TensorMap


@dataclass(frozen=True)
class Pair:
    """kind: of the fault, which names every line that is marked, and `says`; order: one that shows it"""

    name: str
    body: str
    kind: str
    says: str
    grid: int = 1
    block: int = 64
    order: Schedule = ASCENDING

    def source(self, mended: bool) -> str:
        return PRELUDE + OWN + re.sub(r"@\{(.*?)\|\|(.*?)\}@", r"\2" if mended else r"\1", self.body, flags=re.DOTALL)


MAP = TensorMap("uint8", 0, (1024,), (), (256,), (1,))


def run(source: str, pair: Pair, **options) -> None:
    arrays = {name: np.arange(4096, dtype=np.uint32).astype(np.uint8) for name in ("in", "out")}
    buffers = [buffer(name, array) for name, array in arrays.items()]
    maps = np.concatenate([np.frombuffer(replace(MAP, address=each.address).encode(), np.uint8) for each in buffers])
    launch(
        module(source), "k", (pair.grid, 1, 1), (pair.block, 1, 1), [*buffers, buffer("maps", maps.copy())], **options
    )


PAIRS: list[Pair] = []


def pair(name: str, kind: str, says: str, body: str, **more: int | Schedule) -> None:
    PAIRS.append(Pair(name, body, kind, says, **more))


# Beside those of the museum: an addition by a copy, and a look at an mbarrier that ignores what it is told.
OWN = r"""
__device__ void add(void* to, const void* from, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
               :: "l"(to), "r"(at(from)), "r"(bytes) : "memory");
}
#define LOOK(HOW) \
  asm volatile("{\n .reg .pred p;\n mbarrier." HOW ".parity.shared::cta.b64 p, [%0], 0;\n}" :: "r"(at(&bar)) : "memory")
"""

HEAD = r"""
extern "C" __global__ void k(u8* in, u8* out, Map* maps) {
  __shared__ alignas(128) u8 s[2][256]; __shared__ u64 bar, empty;
  u32 t = threadIdx.x;
  asm volatile("" :: "r"(at(s)) : "memory");
"""
READY = HEAD + "  if (!t) { init(bar, 1); init(empty, 64); fence(); }\n  __syncthreads();\n"

pair("a group belongs to the thread that issued it (TE#3417)", "race",
     "no cp.async.bulk.wait_group.read of the thread that issued it", HEAD + r"""
  s[0][t] = 1; fence(); __syncthreads();
  if (!t) { store(out, s[0], 64); commit(); }  // 1st
  if (@{t == 32||t == 0}@) wait_read<0>();
  __syncthreads();
  s[0][t] = 2;  // 2nd
  @{||}@ if (!t) wait_read<0>();
}""")  # fmt: skip

pair("a ring is used again with no wait", "race", "may still read", HEAD + r"""
  for (int turn = 0; turn < 4; turn++) {
    if (!t) wait_read<@{2||1}@>();
    __syncthreads();
    s[turn % 2][t] = turn;  // 2nd
    fence(); __syncthreads();
    if (!t) { store(out + 256 * turn, s[turn % 2], 64); commit(); }  // 1st
  }
  if (!t) wait_read<0>();
}""")  # fmt: skip

pair("no proxy fence before a store (TE#2695)", "race", "with no fence.proxy.async between", HEAD + r"""
  s[0][t] = t;  // 1st
  @{||fence();}@
  __syncthreads();
  if (!t) { store(out, s[0], 64); commit(); wait_read<0>(); }  // 2nd
}""")  # fmt: skip

pair("the fence comes before the write", "race", "with no fence.proxy.async between", HEAD + r"""
  @{fence();||}@
  s[0][t] = t;  // 1st
  @{||fence();}@
  __syncthreads();
  if (!t) { store(out, s[0], 64); commit(); wait_read<0>(); }  // 2nd
}""")  # fmt: skip

pair("the thread that copies may fence, behind the barrier", "race", "with no fence.proxy.async between", HEAD + r"""
  s[0][t] = t;  // 1st
  __syncthreads();
  if (!t) { @{||fence();}@
    store(out, s[0], 64); commit(); wait_read<0>(); }  // 2nd
}""")  # fmt: skip

pair("no barrier before a store", "race", "with no barrier between that covers that thread", HEAD + r"""
  s[0][t] = t;  // 1st
  fence();
  @{||__syncthreads();}@
  if (!t) { store(out, s[0], 64); commit(); wait_read<0>(); }  // 2nd
}""")  # fmt: skip

pair("no proxy fence before a load overwrites", "race", "with no fence.proxy.async between", READY + r"""
  s[0][t] = 0;  // 1st
  @{||fence();}@
  __syncthreads();
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); }  // 2nd
  wait(bar, 0); out[t] = s[0][t];
}""")  # fmt: skip

pair("read before the phase", "race", "may still write", READY + r"""
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); }  // 1st
  @{||wait(bar, 0);}@
  out[t] = s[0][t];  // 2nd
  wait(bar, 0);
}""")  # fmt: skip

pair("one thread waits for all, with no barrier", "race", "may still write", READY + r"""
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); wait(bar, 0); }  // 1st
  @{||__syncthreads();}@
  out[t] = s[0][t];  // 2nd
}""")  # fmt: skip

RING = (
    READY
    + r"""
  if (t < 32) {
    if (!t) for (int turn = 0; turn < 3; turn++) {
      if (turn) wait(empty, (turn - 1) & 1);
      expect(bar, 256); load(s[0], in + 256 * turn, 256, bar);  // LOAD
    }
  } else for (int turn = 0; turn < 3; turn++) {
    wait(bar, WAITED);
    out[256 * turn + t] = s[0][t];  // READ
    RELEASE
  }
}"""
)
pair("the wrong parity", "deadlock", "phase 0 was completed at", RING.replace("WAITED", "@{(turn + 1) & 1||turn & 1}@")
    .replace("RELEASE", "arrive(empty); arrive(empty);")
    .replace("// LOAD", "// 1st")
    .replace("wait(bar", "/* 2nd */ wait(bar"))  # fmt: skip
pair("released before it is read", "race", "", RING.replace("WAITED", "turn & 1")
    .replace("RELEASE", "@{||arrive(empty); arrive(empty);}@")
    .replace("    out[", "    @{arrive(empty); arrive(empty);||}@\n    out[")
    .replace("// LOAD", "// SIDE A")
    .replace("// READ", "// SIDE B"))  # fmt: skip

pair("fewer bytes are expected", "mbarrier", "copies bring 128", READY + r"""
  if (!t) { expect(bar, @{64||128}@);  // 1st
    load(s[0], in, 128, bar); }  // 2nd
  wait(bar, 0); out[t] = s[0][t];
}""")  # fmt: skip

pair("more bytes are expected", "mbarrier", "copies bring 128", READY + r"""
  if (!t) { expect(bar, @{256||128}@);  // 1st
    load(s[0], in, 128, bar); }
  wait(bar, 0); out[t] = s[0][t];
}""".replace("wait(bar, 0)", "/* 2nd */ wait(bar, 0)"))  # fmt: skip

pair("a box at the edge counts whole", "mbarrier", "copies bring 256", READY + r"""
  if (!t) { expect(bar, @{32||256}@);  // 1st
    load1(s[0], maps[0], bar, 992); }  // 2nd
  wait(bar, 0); out[t] = s[0][t];
}""")  # fmt: skip

pair("a box is loaded from an odd coordinate (triton#7385)", "misaligned",
     "at innermost coordinate 40, which is 40 bytes of uint8: not a multiple of 16", READY + r"""
  if (!t) { expect(bar, 256);
    load1(s[0], maps[0], bar, @{40||48}@); }  // 1st
  wait(bar, 0); out[t] = s[0][t];
}""")  # fmt: skip

pair("a box is stored to an odd coordinate (tilelang#2527)", "misaligned",
     "at innermost coordinate 24, which is 24 bytes of uint8: not a multiple of 16", HEAD + r"""
  for (int i = t; i < 256; i += 64) s[0][i] = i;
  fence(); __syncthreads();
  if (!t) { store1(maps[1], s[0], @{24||48}@);  // 1st
    commit(); wait_read<0>(); }
}""")  # fmt: skip

pair("one lane arrives for the stores of 32 (cudnn-frontend#426)", "race",
     "with no barrier, __syncwarp or mbarrier between that covers that thread", READY + r"""
  if (t < 32) {
    s[0][t] = t;  // 1st
    @{||__syncwarp();}@
    if (!t) arrive(bar);
  } else { wait(bar, 0); out[t] = s[0][t - 32]; }  // 2nd
}""")  # fmt: skip

pair("an elected lane arrives, and electing orders nothing", "race",
     "with no barrier, __syncwarp or mbarrier between that covers that thread", READY + r"""
  if (t < 32) {
    s[0][t] = t;  // 1st
    @{||__syncwarp();}@
    asm volatile("{\n .reg .pred p; .reg .b32 r;\n elect.sync r|p, -1;\n @p mbarrier.arrive.shared::cta.b64 _, [%0];\n}"
                 :: "r"(at(&bar)) : "memory");
  } else { wait(bar, 0); out[t] = s[0][t - 32]; }  // 2nd
}""")  # fmt: skip

pair("one lane is elected to store, and the first lane waits", "race", "may still read", HEAD + r"""
  s[0][t] = t; fence(); __syncthreads();
  if (t < 32) {
    u32 elected;
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, -1;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(elected) :: "memory");
    if (elected) { store(out, s[0], 64); commit(); }  // 2nd
    if (@{!t||elected}@) wait_read<0>();
  }
  __syncthreads();
  s[0][t] = 5;  // 1st
}""", order=DESCENDING)  # fmt: skip

pair("a relaxed arrival releases nothing", "race", "with no barrier, __syncwarp or mbarrier between", READY + r"""
  if (!t) { s[0][0] = 1;  // 1st
    asm volatile("mbarrier.arrive.@{relaxed||release}@.cta.shared::cta.b64 _, [%0];" :: "r"(at(&bar)) : "memory"); }
  wait(bar, 0); out[t] = s[0][0];  // 2nd
}""")  # fmt: skip

pair("global memory is read back after .read alone", "race", "may still write", HEAD + r"""
  s[0][t] = t; fence(); __syncthreads();
  if (!t) { store(out, s[0], 64); commit();  // 1st
    @{wait_read||wait_all}@<0>(); }
  __syncthreads();
  in[t] = out[t];  // 2nd
}""")  # fmt: skip

pair("global memory is written, and loaded with no proxy fence", "race",
     "with no fence.proxy.async between", READY + r"""
  in[t] = 7;  // 1st
  @{||ASM("fence.proxy.async;");}@
  __syncthreads();
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); }  // 2nd
  wait(bar, 0); out[t] = s[0][t];
}""")  # fmt: skip

pair("a fence of shared memory is none of global memory", "race", "with no fence.proxy.async between", READY + r"""
  in[t] = 7;  // 1st
  @{fence();||ASM("fence.proxy.async.global;");}@
  __syncthreads();
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); }  // 2nd
  wait(bar, 0); out[t] = s[0][t];
}""")  # fmt: skip

pair("a tensor map is modified in flight (DeepGEMM#343)", "race", "may still read", READY + r"""
  if (!t) {
    expect(bar, 256); load1(s[0], maps[0], bar, 0);  // 1st
    @{||wait(bar, 0);}@
    maps[0].bytes[127] = 0;  // 2nd
  }
  wait(bar, 0); out[t] = s[0][t];
}""")  # fmt: skip

pair("an mbarrier with no barrier behind its init", "race", "initialised", HEAD + r"""
  if (!t) { init(bar, 1); fence(); }  // 1st
  @{||__syncthreads();}@
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); }
  /* 2nd */ wait(bar, 0);
  out[t] = s[0][t];
}""")  # fmt: skip

pair("an arrival too many", "mbarrier", "arrives 2 times", READY + r"""
  if (t < 2) arrive(@{bar||empty}@); __syncthreads();
  if (t == @{0||99}@) for (int i = 0; i < 63; i++) arrive(empty);
  if (t == @{0||99}@) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 2;" :: "r"(at(&empty)) : "memory");  // 2nd
  out[t] = 1;
}""")  # fmt: skip

pair("initialised twice", "mbarrier", "no mbarrier.inval between", HEAD + r"""
  if (!t) { init(bar, 1); arrive(bar); }  // 1st
  __syncthreads();
  if (!t) { @{||inval(bar);}@
    init(bar, 2); }  // 2nd
}""")  # fmt: skip

pair("memory of an mbarrier is used again", "mbarrier", "with no mbarrier.inval before", HEAD + r"""
  if (!t) { init(bar, 1); @{||inval(bar);}@
    bar = 0; }  // 2nd
}""")  # fmt: skip

pair("an arrival lacks", "deadlock", "63 of 64 arrivals came", READY + r"""
  if (t < @{63||64}@) arrive(empty);  // 1st
  /* 2nd */ wait(empty, 0);
  out[t] = 1;
}""")  # fmt: skip

pair("exits while its copy reads", "race", "exits while this copy may still read", HEAD + r"""
  s[0][t] = t; fence(); __syncthreads();
  if (!t) { store(out, s[0], 64); commit(); @{||wait_read<0>();}@ }  // 2nd
}""")  # fmt: skip

pair("a load that nobody waits for", "race", "with no thread having waited", READY + r"""
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); }  // 2nd
  @{||wait(bar, 0);}@
}""")  # fmt: skip

pair("a copy beyond shared memory", "out_of_bounds", "which has", READY + r"""
  if (!t) { expect(bar, 256); load(s[1] + @{4096||0}@, in, 256, bar); }  // 2nd
  wait(bar, 0);
}""")  # fmt: skip

pair("a copy beyond a buffer", "out_of_bounds", "which has 4096 bytes", READY + r"""
  if (!t) { expect(bar, 256); load(s[0], in + @{4000||3840}@, 256, bar); }  // 2nd
  wait(bar, 0);
}""")  # fmt: skip

pair("a copy that is not aligned", "misaligned", "not a multiple of 16", READY + r"""
  if (!t) { expect(bar, 64); load(s[0], in + @{8||16}@, 64, bar); }  // 2nd
  wait(bar, 0);
}""")  # fmt: skip

pair("what nothing wrote is stored", "unwritten_read", "byte 63", HEAD + r"""
  if (t < @{63||64}@) s[0][t] = t;
  fence(); __syncthreads();
  if (!t) { store(out, s[0], 64); commit(); wait_read<0>(); }  // 2nd
}""")  # fmt: skip

IN_CLUSTER = r"""
extern "C" __global__ void __cluster_dims__(2) k(u8* in, u8* out, Map* maps) {
  __shared__ u32 s[64]; __shared__ u64 bar;
  u32 t = threadIdx.x, value;
"""
pair("another block's shared memory with no barrier", "race", "no barrier", IN_CLUSTER + r"""
  s[t] = t;  // 1st
  @{__syncthreads();||meet();}@
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(in_block(&s[t], 1 - rank())) : "memory");  // 2nd
  out[64 * blockIdx.x + t] = value;
  meet();
}""", grid=2)  # fmt: skip

pair("a relaxed arrival at the cluster", "race", "no barrier", IN_CLUSTER + r"""
  s[t] = t;  // 1st
  ASM("barrier.cluster.arrive.@{relaxed||release}@.aligned;"); ASM("barrier.cluster.wait.acquire.aligned;");
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(in_block(&s[t], 1 - rank())) : "memory");  // 2nd
  out[64 * blockIdx.x + t] = value;
  meet();
}""", grid=2)  # fmt: skip

pair("a block of no cluster", "out_of_bounds", "a cluster of 2", IN_CLUSTER + r"""
  s[t] = t; meet();
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(in_block(&s[t], @{2||0}@)) : "memory");  // 2nd
  meet();
}""", grid=2)  # fmt: skip

pair("a block exits while another reads its shared memory", "race", "which may have exited", IN_CLUSTER + r"""
  s[t] = t; meet();
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(in_block(&s[t], 1 - rank())) : "memory");  // 2nd
  out[64 * blockIdx.x + t] = value;
  @{||meet();}@
}""", grid=2)  # fmt: skip

pair("a barrier of the cluster orders global memory, unless it is relaxed", "race",
     "with nothing that orders them", IN_CLUSTER + r"""
  in[64 * blockIdx.x + t] = t;  // 1st
  ASM("barrier.cluster.arrive.@{relaxed||release}@.aligned;"); ASM("barrier.cluster.wait.acquire.aligned;");
  out[64 * blockIdx.x + t] = in[64 * (1 - blockIdx.x) + t];  // 2nd
}""", grid=2)  # fmt: skip

pair("what cp.async brings for others is read before its mbarrier", "race", "wrote the same at", HEAD + r"""
  if (!t) init(bar, 64);
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(&s[0][4 * t])), "l"(in + 4 * t) : "memory");  // 1st
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(at(&bar)) : "memory");
  @{||wait(bar, 0);}@
  out[t] = s[0][255 - t];  // 2nd
  wait(bar, 0);
}""")  # fmt: skip

BY_TICKET = r"""
  u32* tickets = (u32*)(in + 1024); __shared__ u32 last;
  ((u32*)s[0])[t] = t; fence(); __syncthreads();
"""

pair("what a block's copy stored is read by the block that comes last, of whose wait the ticket tells", "race",
     "with nothing that orders them", HEAD + BY_TICKET
    + r"""
  if (!t) {
    store(out + 64 * blockIdx.x, s[0], 64); commit();
    @{||wait_all<0>();}@ __threadfence(); last = atomicAdd(tickets, 1); __threadfence();
    @{wait_all<0>();||}@
  }
  __syncthreads();
  if (last % 2 == 1) in[t] = out[t] + out[64 + t];  // 2nd
}""", grid=2)  # fmt: skip

pair("sums of a copy are read once it has read what it adds", "race",
     "may still update: no cp.async.bulk.wait_group", HEAD + BY_TICKET
    + r"""
  if (!t) {
    add(out, s[0], 256); commit();  // 1st
    @{wait_read<0>();||wait_all<0>();}@ __threadfence(); last = atomicAdd(tickets, 1); __threadfence();
  }
  __syncthreads();
  if (last % 2 == 1) ((u32*)in)[t] = ((u32*)out)[t];  // 2nd
}""", grid=2)  # fmt: skip

pair("a copy adds to zeros that threads wrote", "race", "with no fence.proxy.async between", HEAD + BY_TICKET
    + r"""
  ((u32*)out)[t] = 0; @{||ASM("fence.proxy.async;");}@ __syncthreads();
  if (!t) { add(out, s[0], 256); add(out, s[0], 256); commit(); wait_all<0>(); }
}""")  # fmt: skip

pair("sums in flight are written over", "race", "may still update", HEAD + BY_TICKET
    + r"""
  if (!t) { add(out, s[0], 256); commit(); add(out, s[0], 256); commit(); @{wait_all<1>();||wait_all<0>();}@ }
  __syncthreads();
  ((u32*)out)[t] = 0;
}""")  # fmt: skip

pair("bytes that two copies read are written once one is done", "race", "may still read", HEAD + r"""
  if (!t) { init(bar, 1); init(empty, 1); fence(); }
  __syncthreads();
  if (t == 0) { expect(bar, 64); load(s[0], out, 64, bar); }
  __syncthreads();
  if (t == 32) { expect(empty, 64); load(s[1], out, 64, empty); wait(empty, 0); @{||wait(bar, 0);}@ out[0] = 1; }
  __syncthreads();
  wait(bar, 0);
}""")  # fmt: skip

for look in ("test_wait", "try_wait"):
    pair(f"a {look} whose answer nobody asks for", "race", "no thread that waited for phase 0", READY + r"""
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); }
  @{LOOK("LOOKS");||wait(bar, 0);}@
  out[t] = s[0][t];
  wait(bar, 0);
}""".replace("LOOKS", look), order=Schedule(seed=2))  # fmt: skip

pair("a second stage arrives at an mbarrier whose first has not been waited for", "mbarrier",
     "no wait for that phase lets this thread know", READY + r"""
  if (!t) { expect(bar, 64); load(s[0], in, 64, bar); @{||wait(bar, 0);}@ expect(bar, 64); load(s[1], in, 64, bar); }
  __syncthreads();
  wait(bar, 1);
}""")  # fmt: skip

pair("a barrier that a block has not", "divergent_barrier",
     "meets at barrier 16 with 64 threads: a block has barriers 0 to 15", HEAD + r"""
  asm volatile("bar.sync %0, %1;" :: "r"(u32(in[@{16||15}@])), "r"(64) : "memory");
}""")  # fmt: skip

pair("a barrier of half a warp", "divergent_barrier",
     "meets at barrier 1 with 48 threads: a block has barriers 0 to 15, for a multiple of 32 threads", HEAD + r"""
  asm volatile("bar.sync 1, %0;" :: "r"(u32(in[@{48||64}@])) : "memory");
}""")  # fmt: skip

IDS = [each.name for each in PAIRS]


@pytest.mark.parametrize("each", PAIRS, ids=IDS)
def test_the_bug_is_caught_by_name(each: Pair) -> None:
    source = each.source(mended=False)
    with pytest.raises(Fault) as caught:
        run(source, each, schedule=each.order)
    found = caught.value
    assert (found.kind, each.says in found.sentence) == (each.kind, True), str(found)
    for marker in ("1st", "2nd", "SIDE A", "SIDE B"):
        if marker in source:
            assert re.search(rf"{line_of(source, marker)}\b", str(found)), str(found)


@pytest.mark.sweep
@pytest.mark.parametrize("each", PAIRS, ids=IDS)
def test_the_mend_is_not_accused(each: Pair) -> None:
    for order in (ASCENDING, DESCENDING, Schedule(seed=2)):
        run(each.source(mended=True), each, schedule=order)
