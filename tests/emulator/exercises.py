"""Small kernels of mbarriers, bulk copies, TMA and clusters, each with what it should write by a model of its own.

They run on the emulator (test_exercises) and, where there is a Hopper GPU, on that (test_exercises_gpu).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from async_source import PRELUDE

from harness.emulator.tensor_map import BITS, TensorMap


@dataclass(frozen=True)
class Tensor:
    """A tensor map argument. array: which of the exercise's arrays the tensor lies in, from its first byte"""

    array: str
    map: TensorMap


Arrays = dict[str, np.ndarray]


@dataclass
class Exercise:
    """arguments: names of arrays, tensors, and integers; wanted: the arrays after the launch; shared: dynamic bytes"""

    name: str
    source: str
    arrays: Arrays
    arguments: Sequence[str | Tensor | int]
    wanted: Callable[[Arrays], Arrays]
    grid: int = 1
    block: int = 64
    shared: int = 0
    covers: tuple[str, ...] = field(default=())


ALL: list[Exercise] = []


def exercise(name: str, body: str, arrays: Arrays, arguments: Sequence[str | Tensor | int],
             wanted: Callable[[Arrays], Arrays], **more) -> None:  # fmt: skip
    ALL.append(Exercise(name, PRELUDE + body, arrays, arguments, wanted, **more))


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


# ---- contiguous copies ----------------------------------------------------------------------------------------------

RING = r"""
extern "C" __global__ void k(const u8* in, u8* out, int turns) {
  __shared__ alignas(128) u8 s[3][512]; __shared__ u64 full[3];
  if (!threadIdx.x) { for (int i = 0; i < 3; i++) init(full[i], 1); fence(); }
  __syncthreads();
  for (int turn = 0; turn < turns; turn++) {
    int slot = turn % 3;
    if (!threadIdx.x) {
      if (turn >= 3) wait_read<2>();
      expect(full[slot], 512); load(s[slot], in + 512 * turn, 512, full[slot]);
    }
    wait(full[slot], turn / 3 & 1);
    for (int i = threadIdx.x; i < 512; i += blockDim.x) s[slot][i] = s[slot][i] * 3 + turn;
    fence(); __syncthreads();
    if (!threadIdx.x) { store(out + 512 * turn, s[slot], 512); commit(); }
  }
  if (!threadIdx.x) wait_read<0>();
}
"""
exercise(
    "ring", RING, {"in": noise(512 * 8), "out": np.zeros(512 * 8, np.uint8)}, ("in", "out", 8),
    lambda a: {"out": (a["in"].reshape(8, 512) * 3 + np.arange(8, dtype=np.uint8)[:, None]).reshape(-1)},
    covers=("cp.async.bulk.shared::cluster.global", "cp.async.bulk.global", "cp.async.bulk.commit_group",
            "cp.async.bulk.wait_group", "mbarrier.init", "mbarrier.arrive.expect_tx", "mbarrier.try_wait"),
)  # fmt: skip

REDUCE = r"""
extern "C" __global__ void k(const u8* in, u8* out) {
  __shared__ alignas(128) u8 s[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) s[i] = in[256 * blockIdx.x + i];
  fence(); __syncthreads();
  if (!threadIdx.x) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.OPERATION [%0], [%1], 256;"
                 :: "l"(out), "r"(at(s)) : "memory");
    commit(); wait_all<0>();
  }
}
"""


def _reduced(operation: str, kind: type) -> Callable[[Arrays], Arrays]:
    steps = {
        "add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum, "and": lambda a, b: a & b,
        "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "inc": lambda a, b: np.where(a >= b, 0, a + 1), "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
    }  # fmt: skip

    def wanted(arrays: Arrays) -> Arrays:
        out = arrays["out"].view(kind)
        for part in arrays["in"].view(kind).reshape(2, -1):
            out = steps[operation](out, part).astype(kind)
        return {"out": out.view(np.uint8)}

    return wanted


_KINDS = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64,
          "f16": np.float16, "f32": np.float32, "f64": np.float64}  # fmt: skip
for _name in ("add.u32", "add.s32", "add.u64", "min.u32", "max.u32", "min.s32", "max.s32", "min.u64", "max.u64",
              "min.s64", "max.s64", "and.b32", "or.b32", "xor.b32", "and.b64", "or.b64", "xor.b64", "inc.u32", "dec.u32",
              "min.f16", "max.f16", "add.noftz.f16", "add.f32", "add.f64"):  # fmt: skip
    _operation, _kind = _name.split(".")[0], _KINDS[_name.split(".")[-1]]
    _count = 256 // np.dtype(_kind).itemsize
    if np.dtype(_kind).kind == "f":
        # Small integers, whose sums are exact in any order.
        _rng = np.random.default_rng(1)
        _in, _out = (_rng.integers(-40, 40, n * _count).astype(_kind).view(np.uint8) for n in (2, 1))
    else:
        _in, _out = noise(512, 1), noise(256, 2)
    if _operation in ("inc", "dec"):  # of two blocks in any order, with one bound
        _in = np.full(128, 0x20000000, np.uint32).view(np.uint8)
    exercise(
        f"reduce.{_name}", REDUCE.replace("OPERATION", _name), {"in": _in, "out": _out}, ("in", "out"),
        _reduced(_operation, _kind), grid=2, covers=(f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{_name}",),
    )  # fmt: skip


# ---- boxes ----------------------------------------------------------------------------------------------------------


def elements(found: TensorMap, start: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """Byte in shared memory (of an aligned box), byte in global memory and whether it is in the tensor, of each element,
    one by one."""
    bits = BITS[found.kind]
    counts = [found.box[0], *(-(-extent // step) for extent, step in zip(found.box[1:], found.steps[1:], strict=True))]
    for number, index in enumerate(itertools.product(*(range(count) for count in reversed(counts)))):
        where = [s + i * (step if axis else 1)
                 for axis, (s, i, step) in enumerate(zip(start, reversed(index), found.steps, strict=True))]  # fmt: skip
        inside = all(0 <= each < extent for each, extent in zip(where, found.extents, strict=True))
        outer = where[0] * bits // 8 + sum(i * stride for i, stride in zip(where[1:], found.strides, strict=True))
        yield swizzle(number * bits // 8, found.swizzle), outer, inside


def swizzle(byte: int, kind: str) -> int:
    """Chunks of 16 bytes change places in a row of 32, 64 or 128 bytes, by the number of 128 bytes that lie before."""
    if kind == "none":
        return byte
    row = int(kind[:-1])
    within = byte // 128 % (row // 16)
    chunk = byte // 16
    return ((chunk // (row // 16)) * (row // 16) + (chunk % (row // 16) ^ within)) * 16 + byte % 16


LOAD_BOX = r"""
extern "C" __global__ void k(const __grid_constant__ Map map, u8* out, u32 bytes, int x, int y, int z) {
  extern __shared__ __align__(1024) u8 s[];
  u64& bar = *(u64*)(s + (bytes + 127) / 128 * 128);
  for (u32 i = threadIdx.x; i < bytes; i += blockDim.x) s[i] = 0xEE;
  if (!threadIdx.x) init(bar, 1);
  fence(); __syncthreads();
  if (!threadIdx.x) { expect(bar, bytes); CALL }
  wait(bar, 0);
  for (u32 i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = s[i];
}
"""
STORE_BOX = r"""
extern "C" __global__ void k(const __grid_constant__ Map map, const u8* in, u32 bytes, int x, int y, int z) {
  extern __shared__ __align__(1024) u8 s[];
  for (u32 i = threadIdx.x; i < bytes; i += blockDim.x) s[i] = in[i];
  fence(); __syncthreads();
  if (!threadIdx.x) { CALL commit(); wait_all<0>(); }
}
"""
_COORDINATES = ("x", "x, y", "x, y, z")
_NAN = {"float16": 0x7FFF, "bfloat16": 0x7FFF, "float32": 0x7FFFFFFF}


def box(name: str, kind: str, extents: Sequence[int], strides: Sequence[int], shape: Sequence[int],
        start: Sequence[int], swizzled: str = "none", steps: Sequence[int] = (), nan: bool = False) -> None:  # fmt: skip
    """A load and a store of one box."""
    steps = steps or (1,) * len(shape)
    found = TensorMap(kind, 0, tuple(extents), tuple(strides), tuple(shape), tuple(steps), swizzled, nan)
    rank, width = len(shape), BITS[kind] // 8
    size = (extents[0] * width if rank == 1 else strides[-1] * extents[-1]) + 64
    bytes_ = found.bytes
    x, y, z = (*start, 0, 0, 0)[:3]
    more = {"shared": -(-bytes_ // 128) * 128 + 16}

    def loaded(arrays: Arrays) -> Arrays:
        out = np.full(len(arrays["out"]), 0xCD, np.uint8)
        for inner, outer, inside in elements(found, start):
            fill = _NAN[kind].to_bytes(width, "little") if nan else bytes(width)
            out[inner : inner + width] = np.frombuffer(
                arrays["tensor"][outer : outer + width].tobytes() if inside else fill, np.uint8
            )
        return {"out": out}

    def stored(arrays: Arrays) -> Arrays:
        tensor = arrays["tensor"].copy()
        for inner, outer, inside in elements(found, start):
            if inside:
                tensor[outer : outer + width] = arrays["in"][inner : inner + width]
        return {"tensor": tensor}

    call = f"({_COORDINATES[rank - 1]});".replace("(", "(s, map, bar, ")
    exercise(
        f"load.{name}", LOAD_BOX.replace("CALL", f"load{rank}{call}"),
        {"tensor": noise(size, 3), "out": np.full(bytes_, 0xCD, np.uint8)},
        (Tensor("tensor", found), "out", bytes_, x, y, z), loaded, **more,
        covers=(f"cp.async.bulk.tensor.{rank}d.shared::cluster.global",),
    )  # fmt: skip
    if not nan:
        exercise(
            f"store.{name}", STORE_BOX.replace("CALL", f"store{rank}(map, s, {_COORDINATES[rank - 1]});"),
            {"tensor": noise(size, 3), "in": noise(bytes_, 4)}, (Tensor("tensor", found), "in", bytes_, x, y, z), stored,
            **more, covers=(f"cp.async.bulk.tensor.{rank}d.global.shared::cta",),
        )  # fmt: skip


box("1d", "uint8", (200,), (), (64,), (40,))
box("1d.edge", "uint32", (100,), (), (32,), (90,))
box("1d.before", "uint16", (100,), (), (64,), (-24,))
box("2d", "bfloat16", (64, 20), (160,), (32, 8), (16, 4))
for _rows, _swizzled in itertools.product((8, 24), ("32B", "64B", "128B")):
    _width = int(_swizzled[:-1])
    box(f"2d.{_swizzled}.{_rows}", "float16", (100, 40), (208,), (_width // 2, _rows), (8, 3), _swizzled)
box("2d.128B.bytes", "uint8", (300, 40), (304,), (128, 16), (100, 8), "128B")
box("2d.narrow.128B", "uint8", (300, 40), (304,), (64, 16), (96, 8), "128B")
box("2d.corner", "uint8", (100, 20), (112,), (48, 8), (80, 15))
box("2d.before", "uint16", (100, 20), (208,), (32, 8), (-10, -3), "64B")
box("2d.outside", "uint8", (100, 20), (112,), (48, 8), (100, 3))
box("2d.steps", "float32", (40, 30), (176,), (16, 9), (2, 1), steps=(1, 2))
box("2d.nan", "bfloat16", (40, 10), (80,), (32, 4), (20, 8), nan=True)
box("2d.nan.f16", "float16", (40, 10), (80,), (32, 4), (20, 8), nan=True)
box("2d.nan.f32", "float32", (40, 10), (160,), (32, 4), (20, 8), nan=True)
box("3d", "uint16", (40, 12, 6), (80, 1024), (16, 4, 3), (8, 2, 1))
box("3d.corner.32B", "uint8", (60, 12, 6), (64, 768), (32, 5, 3), (40, 9, 4), "32B")
box("3d.before", "float32", (30, 7, 5), (128, 1024), (8, 3, 2), (-3, -1, -1))

REDUCE_BOX = STORE_BOX.replace("CALL", 'STORE("cp.reduce.async.bulk", "2d.global.shared::cta.OPERATION.tile", "%2, %3", '
                               '"l"(&map), "r"(at(s)), "r"(x), "r"(y));')  # fmt: skip
for _operation in ("add", "min", "max", "and", "or", "xor"):
    _map = TensorMap("uint32", 0, (20, 10), (80,), (16, 4), (1, 1))

    def _wanted(arrays: Arrays, operation: str = _operation, found: TensorMap = _map) -> Arrays:
        tensor = arrays["tensor"].copy()
        for inner, outer, inside in elements(found, (8, 8)):
            if inside:
                a, b = (int(each.view(np.uint32)[0]) for each in (tensor[outer : outer + 4], arrays["in"][inner : inner + 4]))
                value = {"add": a + b, "min": min(a, b), "max": max(a, b), "and": a & b, "or": a | b, "xor": a ^ b}
                tensor[outer : outer + 4] = np.array([value[operation] & 0xFFFFFFFF], np.uint32).view(np.uint8)
        return {"tensor": tensor}

    exercise(
        f"reduce.2d.{_operation}", REDUCE_BOX.replace("OPERATION", _operation),
        {"tensor": noise(864, 5), "in": noise(_map.bytes, 6)}, (Tensor("tensor", _map), "in", _map.bytes, 8, 8, 0),
        _wanted, shared=_map.bytes + 16, covers=(f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{_operation}",),
    )  # fmt: skip

# ---- mbarriers ------------------------------------------------------------------------------------------------------

PHASES = r"""
// Two warps hand a number to and fro; each arrival of the last kind is asked about by another form of wait.
extern "C" __global__ void k(u32* out) {
  __shared__ u64 ping, pong; __shared__ u32 number;
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (!threadIdx.x) { init(ping, 32); init(pong, 1); number = 7; }
  __syncthreads();
  for (int turn = 0; turn < 4; turn++) {
    if (warp == 0) {
      wait(pong, (turn & 1) ^ 1);  // the first passes: no phase is complete yet
      u32 seen = number; __syncwarp();
      if (!lane) number = seen * 2 + 1;
      arrive(ping);
      out[turn * 32 + lane] = seen;
    } else {
      wait(ping, turn & 1);
      if (!lane) { number += 100; arrive(pong); }
    }
  }
}
"""


def _phases(arrays: Arrays) -> Arrays:
    number, out = 7, []
    for _ in range(4):
        out += [number] * 32
        number = number * 2 + 1 + 100
    return {"out": np.array(out, np.uint32).view(np.uint8)}


exercise("phases", PHASES, {"out": np.zeros(512, np.uint8)}, ("out",), _phases, covers=("mbarrier.arrive.", "mbarrier.init"))

STATES = r"""
extern "C" __global__ void k(u32* out) {
  __shared__ u64 bar, other;
  if (threadIdx.x) return;
  init(bar, 3);
  u64 state, next; u32 done[8];
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(at(&bar)) : "memory");
#define ASK(I, FORM, ...) { u32 yes; asm volatile("{\n .reg .pred p;\n mbarrier." FORM \
  "\n selp.u32 %0, 1, 0, p;\n}" : "=r"(yes) : __VA_ARGS__ : "memory"); done[I] = yes; }
  ASK(0, "test_wait.shared::cta.b64 p, [%1], %2;", "r"(at(&bar)), "l"(state))
  ASK(1, "test_wait.parity.shared::cta.b64 p, [%1], 1;", "r"(at(&bar)))
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 2;" :: "r"(at(&bar)) : "memory");
  ASK(2, "test_wait.acquire.cta.shared::cta.b64 p, [%1], %2;", "r"(at(&bar)), "l"(state))
  ASK(3, "try_wait.shared::cta.b64 p, [%1], %2, 100;", "r"(at(&bar)), "l"(state))
  // One leaves for good, so that two arrivals are a phase; bytes are expected by one call and counted by another.
  asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1];" : "=l"(next) : "r"(at(&bar)) : "memory");
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 64;" :: "r"(at(&bar)) : "memory");
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 2;" :: "r"(at(&bar)) : "memory");
  ASK(4, "test_wait.shared::cta.b64 p, [%1], %2;", "r"(at(&bar)), "l"(next))
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 64;" :: "r"(at(&bar)) : "memory");
  ASK(5, "test_wait.shared::cta.b64 p, [%1], %2;", "r"(at(&bar)), "l"(next))
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], 2;" :: "r"(at(&bar)) : "memory");
  ASK(6, "test_wait.parity.shared::cta.b64 p, [%1], 0;", "r"(at(&bar)))
  inval(bar); init(bar, 1);
  ASK(7, "test_wait.parity.shared::cta.b64 p, [%1], 0;", "r"(at(&bar)))
  for (int i = 0; i < 8; i++) out[i] = done[i];
}
"""
exercise(
    "states", STATES, {"out": np.zeros(32, np.uint8)}, ("out",),
    lambda a: {"out": np.array([0, 1, 1, 1, 0, 1, 1, 0], np.uint32).view(np.uint8)}, block=32,
    covers=("mbarrier.test_wait", "mbarrier.try_wait", "mbarrier.arrive_drop", "mbarrier.expect_tx",
            "mbarrier.complete_tx", "mbarrier.inval"),
)  # fmt: skip

# ---- clusters -------------------------------------------------------------------------------------------------------

CLUSTER = r"""
__device__ u32 in_block(const void* p, u32 rank) {
  u32 out; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(at(p)), "r"(rank)); return out; }
__device__ void meet() { ASM("barrier.cluster.arrive.release.aligned;"); ASM("barrier.cluster.wait.acquire.aligned;"); }
__device__ u32 rank() { u32 out; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(out)); return out; }
"""
NEIGHBOUR = CLUSTER + r"""
extern "C" __global__ void __cluster_dims__(4) k(const u32* in, u32* out) {
  __shared__ u32 s[64]; __shared__ u32 sums[4];
  s[threadIdx.x] = in[64 * blockIdx.x + threadIdx.x];
  if (threadIdx.x < 4) sums[threadIdx.x] = 0;
  meet();
  u32 value, of, to = (rank() + 1) % 4;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(in_block(&s[threadIdx.x], to)) : "memory");
  asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(of) : "r"(in_block(s, to)));
  u32* there; asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(sums), "r"(to));
  atomicAdd(there + rank(), value & 0xFFFF);
  out[64 * blockIdx.x + threadIdx.x] = value * 4 + of;
  meet();
  if (threadIdx.x < 4) out[512 + 4 * blockIdx.x + threadIdx.x] = sums[threadIdx.x];
}
"""


def _neighbour(arrays: Arrays) -> Arrays:
    source, out = arrays["in"].view(np.uint32).reshape(2, 4, 64), np.zeros(512 + 32, np.uint32)
    for cluster, rank in itertools.product(range(2), range(4)):
        to = (rank + 1) % 4
        block = 4 * cluster + rank
        out[64 * block : 64 * block + 64] = source[cluster, to] * 4 + to
        out[512 + 4 * (4 * cluster + to) + rank] = (source[cluster, to] & 0xFFFF).sum()
    return {"out": out.view(np.uint8)}


exercise(
    "cluster.neighbour", NEIGHBOUR, {"in": noise(2048, 7), "out": np.zeros(2176, np.uint8)}, ("in", "out"), _neighbour,
    grid=8, covers=("mapa.", "getctarank.", "barrier.cluster.", "ld.shared::cluster"),
)  # fmt: skip

MULTICAST = CLUSTER + r"""
extern "C" __global__ void __cluster_dims__(2) k(const __grid_constant__ Map map, const u8* in, u8* out) {
  __shared__ alignas(128) u8 s[2][512]; __shared__ u64 bar, ready;
  if (!threadIdx.x) { init(bar, 1); init(ready, 2); ASM("fence.mbarrier_init.release.cluster;"); expect(bar, 1024); }
  meet();
  if (!threadIdx.x) {
    // Each block sends its half of the first row to both, and its half of the second, as a box.
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;"
                 :: "r"(at(s[0] + 256 * rank())), "l"(in + 256 * rank()), "r"(at(&bar)), "h"((u16)3) : "memory");
    if (!rank())
      asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                   "[%0], [%1, {%2}], [%3], %4;"
                   :: "r"(at(s[1])), "l"(&map), "r"(512), "r"(at(&bar)), "h"((u16)3) : "memory");
    if (rank())
      asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                   "[%0], [%1, {%2}], [%3], %4;"
                   :: "r"(at(s[1] + 256)), "l"(&map), "r"(768), "r"(at(&bar)), "h"((u16)3) : "memory");
  }
  wait(bar, 0);
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) out[1024 * blockIdx.x + i] = s[0][i];
  // A thread of each block tells both blocks that it has read.
  if (threadIdx.x < 2)
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(in_block(&ready, threadIdx.x)) : "memory");
  wait(ready, 0);
  meet();
}
"""
exercise(
    "cluster.multicast", MULTICAST, {"in": noise(1536, 8), "out": np.zeros(4096, np.uint8)},
    (Tensor("in", TensorMap("uint8", 0, (1536,), (), (256,), (1,))), "in", "out"),
    lambda a: {"out": np.tile(a["in"][:1024], 4)}, grid=4,
    covers=("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
            "fence.mbarrier_init", "mbarrier.arrive.release.cluster"),
)  # fmt: skip

BETWEEN = CLUSTER + r"""
extern "C" __global__ void __cluster_dims__(2) k(const u8* in, u8* out) {
  __shared__ alignas(128) u8 mine[256], other[256]; __shared__ u32 words[64]; __shared__ u64 bar, few;
  u32 to = 1 - rank();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = in[256 * blockIdx.x + i];
  if (!threadIdx.x) { init(bar, 1); init(few, 1); ASM("fence.mbarrier_init.release.cluster;"); }
  fence(); meet();
  if (!threadIdx.x) {
    expect(bar, 256); expect(few, 256);
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                 :: "r"(in_block(other, to)), "r"(at(mine)), "r"(in_block(&bar, to)) : "memory");
  }
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
               :: "r"(in_block(&words[threadIdx.x], to)), "r"(1000 * rank() + threadIdx.x), "r"(in_block(&few, to)) : "memory");
  wait(bar, 0); wait(few, 0);
  for (int i = threadIdx.x; i < 256; i += blockDim.x) out[512 * blockIdx.x + i] = other[i];
  ((u32*)(out + 512 * blockIdx.x + 256))[threadIdx.x] = words[threadIdx.x];
  meet();
}
"""


def _between(arrays: Arrays) -> Arrays:
    out = []
    for block in range(4):
        other = block ^ 1
        words = np.arange(64, dtype=np.uint32) + 1000 * (other % 2)
        out += [arrays["in"][256 * other : 256 * other + 256], words.view(np.uint8)]
    return {"out": np.concatenate(out)}


exercise(
    "cluster.between", BETWEEN, {"in": noise(1024, 9), "out": np.zeros(2048, np.uint8)}, ("in", "out"), _between, grid=4,
    covers=("cp.async.bulk.shared::cluster.shared::cta", "st.async."),
)  # fmt: skip
