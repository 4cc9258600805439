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
