"""Small kernels of mbarriers, bulk copies, TMA and clusters, each with what it should write by a model of its own.

They run on the emulator (test_exercises) and, where there is a Hopper GPU, on that (test_exercises_gpu).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from async_source import PRELUDE

from ptx_emulator.tensor_map import BITS, TensorMap


@dataclass(frozen=True)
class Tensor:
    """A tensor map argument. array: which of the exercise's arrays the tensor lies in, from its first byte"""

    array: str
    map: TensorMap


Arrays = dict[str, np.ndarray]


@dataclass
class Exercise:
    """arguments: names of arrays, tensors, and integers; shared: dynamic bytes

    wanted: the arrays after the launch, None for one that may hold anything; since: the first architecture that has it
    """

    name: str
    source: str
    arrays: Arrays
    arguments: Sequence[str | Tensor | int]
    wanted: Callable[[Arrays], Arrays]
    grid: int = 1
    block: int = 64
    shared: int = 0
    covers: tuple[str, ...] = field(default=())
    since: int = 90


ALL: list[Exercise] = []
BEFORE: list[Exercise] = []  # stores that begin before their tensor, which a GPU ends with an illegal instruction


def exercise(name: str, body: str, arrays: Arrays, arguments: Sequence[str | Tensor | int],
             wanted: Callable[[Arrays], Arrays], **more) -> None:  # fmt: skip
    ALL.append(Exercise(name, PRELUDE + body, arrays, arguments, wanted, **more))


def _before(name: str, body: str, arrays: Arrays, arguments: Sequence[str | Tensor | int],
            wanted: Callable[[Arrays], Arrays], **more) -> None:  # fmt: skip
    BEFORE.append(Exercise(name, PRELUDE + body, arrays, arguments, wanted, **more))


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


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
    covers=("cp.async.bulk.", "mbarrier."),
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


BF16 = "bf16"


def _reduced(operation: str, kind: type | str) -> Callable[[Arrays], Arrays]:
    steps = {
        "add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum, "and": lambda a, b: a & b,
        "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "inc": lambda a, b: np.where(a >= b, 0, a + 1), "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
    }  # fmt: skip

    def numbers(data: np.ndarray) -> np.ndarray:
        bits = data.view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32) if kind is BF16 else data.view(kind)

    def wanted(arrays: Arrays) -> Arrays:
        out = numbers(arrays["out"])
        for part in numbers(arrays["in"]).reshape(2, -1):
            out = steps[operation](out, part).astype(out.dtype)
        return {
            "out": (out.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8) if kind is BF16 else out.view(np.uint8)
        }

    return wanted


_KINDS = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64,
          "f16": np.float16, "bf16": BF16, "f32": np.float32, "f64": np.float64}  # fmt: skip
for _name in ("add.u32", "add.s32", "add.u64", "min.u32", "max.u32", "min.s32", "max.s32", "min.u64", "max.u64",
              "min.s64", "max.s64", "and.b32", "or.b32", "xor.b32", "and.b64", "or.b64", "xor.b64", "inc.u32", "dec.u32",
              "min.f16", "max.f16", "add.noftz.f16", "add.f32", "add.f64",
              "min.bf16", "max.bf16", "add.noftz.bf16"):  # fmt: skip
    _operation, _kind = _name.split(".")[0], _KINDS[_name.split(".")[-1]]
    _rng = np.random.default_rng(1)  # small integers, whose sums are exact in any order
    if _kind is BF16:
        _in, _out = (
            (_rng.integers(-40, 40, n * 128).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
            for n in (2, 1)
        )
    elif np.dtype(_kind).kind == "f":
        _count = 256 // np.dtype(_kind).itemsize
        _in, _out = (_rng.integers(-40, 40, n * _count).astype(_kind).view(np.uint8) for n in (2, 1))
    else:
        _in, _out = noise(512, 1), noise(256, 2)
    if _operation in ("inc", "dec"):  # of two blocks in any order, with one bound
        _in = np.full(128, 0x20000000, np.uint32).view(np.uint8)
    exercise(
        f"reduce.{_name}", REDUCE.replace("OPERATION", _name), {"in": _in, "out": _out}, ("in", "out"),
        _reduced(_operation, _kind), grid=2,
        covers=("cp.reduce.async.bulk.", "cp.async.bulk.wait_group"),
    )  # fmt: skip


def elements(found: TensorMap, start: Sequence[int], stores: bool = False) -> Iterator[tuple[int, int, bool]]:
    """For each element of a box: its byte in shared memory, its byte in global memory, whether it is in the tensor.

    The byte in shared memory is counted from an aligned box.
    stores: a row of the tensor reaches to the next multiple of 16 bytes
    """
    bits = BITS[found.kind]
    ends = [found.extents[0] * bits // 8, *found.extents[1:]]
    if stores:
        ends[0] = -(-ends[0] // 16) * 16
    counts = [found.box[0], *(-(-extent // step) for extent, step in zip(found.box[1:], found.steps[1:], strict=True))]
    for number, index in enumerate(itertools.product(*(range(count) for count in reversed(counts)))):
        where = [s + i * (step if axis else 1)
                 for axis, (s, i, step) in enumerate(zip(start, reversed(index), found.steps, strict=True))]  # fmt: skip
        places = [where[0] * bits // 8, *where[1:]]
        inside = all(0 <= each < end for each, end in zip(places, ends, strict=True))
        outer = where[0] * bits // 8 + sum(i * stride for i, stride in zip(where[1:], found.strides, strict=True))
        yield swizzle(number * bits // 8, found.swizzle), outer, inside


def swizzle(byte: int, kind: str) -> int:
    """Chunks of 16, 32 or 64 bytes change places in a row of 32, 64 or 128 bytes, by the number of 128 bytes that lie
    before; `flip_8B`: in every other line of 128 bytes the halves of 16 bytes do, too."""
    if kind == "none":
        return byte
    row, size, flips = SWIZZLED[kind]
    line, count = byte // 128, row // size
    chunk = byte // size
    found = (chunk - chunk % count + (chunk % count ^ line % count)) * size + byte % size
    return found - 8 + 16 * (found % 16 < 8) if flips and line % 2 else found


# Bytes of a row, bytes of a chunk, whether it flips.
SWIZZLED = {
    "32B": (32, 16, False), "64B": (64, 16, False), "128B": (128, 16, False), "128B_atom_32B": (128, 32, False),
    "128B_atom_32B_flip_8B": (128, 32, True), "128B_atom_64B": (128, 64, False),
}  # fmt: skip


LOAD_BOX = r"""
extern "C" __global__ void k(const __grid_constant__ Map map, u8* out, u32 bytes, int x, int y, int z, int v, int w) {
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
extern "C" __global__ void k(const __grid_constant__ Map map, const u8* in, u32 bytes, int x, int y, int z, int v, int w) {
  extern __shared__ __align__(1024) u8 s[];
  for (u32 i = threadIdx.x; i < bytes; i += blockDim.x) s[i] = in[i];
  fence(); __syncthreads();
  if (!threadIdx.x) { CALL commit(); wait_all<0>(); }
}
"""
_COORDINATES = ("x", "x, y", "x, y, z", "x, y, z, v", "x, y, z, v, w")
_NAN = {"float16": 0x7FF7, "bfloat16": 0x7FF7, "float32": 0x7FF77FF7, "float64": 0x7FF77FF77FF77FF7,
        "tfloat32": 0x7FF77FF7}  # fmt: skip


def arrives(element: np.ndarray, kind: str) -> np.ndarray:
    """Bytes of an element, as a load writes them: tfloat32 to nearest, ties to even. Subnormals of `_ftz` stay."""
    if not kind.startswith("tfloat32"):
        return element
    bits = int.from_bytes(element.tobytes(), "little")
    sign, exponent, fraction = bits >> 31, bits >> 23 & 255, bits & 0x7FFFFF
    number = exponent << 23 | fraction
    if exponent < 255:
        below, rest = number >> 13, number & 0x1FFF
        up = rest > 0x1000 or (rest == 0x1000 and below & 1)
        number = below + up << 13
    elif fraction:
        sign, number = 0, 0x7FFFE000
    return np.frombuffer((sign << 31 | number).to_bytes(4, "little"), np.uint8)


def special(content: np.ndarray, kind: str) -> np.ndarray:
    """The bytes, where a load changes elements, with subnormals, ties, infinities and NaN among them."""
    if "_ftz" in kind or kind.startswith("tfloat32"):
        values = [0x80000001, 0x007FFFFF, 0x3F801000, 0xBF803000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0xFF800001,
                  0xBF801000, 0x3F803000, 0x00402000]  # fmt: skip
        words = content.view(np.uint32)
        words[::3] = np.resize(np.array(values, np.uint32), len(words[::3]))
    return content


def box(name: str, kind: str, extents: Sequence[int], strides: Sequence[int], shape: Sequence[int],
        start: Sequence[int], swizzled: str = "none", steps: Sequence[int] = (), nan: bool = False,
        interleave: str = "none", since: int = 90, stores: bool = True) -> None:  # fmt: skip
    """A load and, where the map allows it, a store of one box, which is one of BEFORE if it begins before the tensor."""
    steps = steps or (1,) * len(shape)
    found = TensorMap(kind, 0, tuple(extents), tuple(strides), tuple(shape), tuple(steps), swizzled, nan, interleave)
    rank, width = len(shape), BITS[kind] // 8
    size = (extents[0] * width if rank == 1 else strides[-1] * extents[-1]) + 64
    bytes_ = found.bytes
    at = (*start, 0, 0, 0, 0)[:5]
    more: dict[str, Any] = {"shared": -(-bytes_ // 128) * 128 + 16, "since": since}

    def loaded(arrays: Arrays) -> Arrays:
        out = np.full(len(arrays["out"]), 0xCD, np.uint8)
        for inner, outer, inside in elements(found, start):
            fill = _NAN[kind].to_bytes(width, "little") if nan else bytes(width)
            if not inside:
                out[inner : inner + width] = np.frombuffer(fill, np.uint8)
                continue
            element = arrives(arrays["tensor"][outer : outer + width], kind)
            out[inner : inner + width] = element
        return {"out": out}

    def stored(arrays: Arrays) -> Arrays:
        tensor = arrays["tensor"].copy()
        for inner, outer, inside in elements(found, start, stores=True):
            if inside:
                tensor[outer : outer + width] = arrays["in"][inner : inner + width]
        return {"tensor": tensor}

    call = f"({_COORDINATES[rank - 1]});".replace("(", "(s, map, bar, ")
    exercise(
        f"load.{name}", LOAD_BOX.replace("CALL", f"load{rank}{call}"),
        {"tensor": special(noise(size, 3), kind), "out": np.full(bytes_, 0xCD, np.uint8)},
        (Tensor("tensor", found), "out", bytes_, *at), loaded, **more,
        covers=(f"cp.async.bulk.tensor.{rank}d.",),
    )  # fmt: skip
    if stores and not nan:
        (exercise if min(start) >= 0 else _before)(
            f"store.{name}", STORE_BOX.replace("CALL", f"store{rank}(map, s, {_COORDINATES[rank - 1]});"),
            {"tensor": noise(size, 3), "in": noise(bytes_, 4)}, (Tensor("tensor", found), "in", bytes_, *at), stored,
            **more, covers=(f"cp.async.bulk.tensor.{rank}d.",),
        )  # fmt: skip


box("1d", "uint8", (200,), (), (64,), (48,))
box("1d.edge", "uint32", (100,), (), (32,), (88,))
box("1d.before", "uint16", (100,), (), (64,), (-24,))
box("2d", "bfloat16", (64, 20), (160,), (32, 8), (16, 4))
for _rows, _swizzled in itertools.product((8, 24), ("32B", "64B", "128B")):
    _width = int(_swizzled[:-1])
    box(f"2d.{_swizzled}.{_rows}", "float16", (100, 40), (208,), (_width // 2, _rows), (8, 3), _swizzled)
box("2d.128B.bytes", "uint8", (300, 40), (304,), (128, 16), (112, 8), "128B")
box("2d.corner", "uint8", (100, 20), (112,), (48, 8), (80, 15))
box("2d.odd", "uint8", (97, 20), (112,), (48, 8), (64, 15))
box("1d.odd", "uint8", (203,), (), (64,), (144,))
box("2d.odd.wide", "uint8", (97, 20), (176,), (80, 8), (64, 15))
box("2d.odd.u16", "uint16", (91, 20), (192,), (32, 8), (72, 3), "64B")
box("2d.before", "uint16", (100, 20), (208,), (32, 8), (-8, -3), "64B")
box("2d.outside", "uint8", (100, 20), (112,), (48, 8), (112, 3))
box("2d.steps", "float32", (40, 30), (176,), (16, 9), (4, 1), steps=(1, 2))
box("2d.nan", "bfloat16", (40, 10), (80,), (32, 4), (16, 8), nan=True)
box("2d.nan.f16", "float16", (40, 10), (80,), (32, 4), (16, 8), nan=True)
box("2d.nan.f32", "float32", (40, 10), (160,), (32, 4), (20, 8), nan=True)
box("2d.nan.f64", "float64", (20, 10), (160,), (16, 4), (10, 8), nan=True)
box("2d.nan.tf32", "tfloat32", (40, 10), (160,), (32, 4), (20, 8), nan=True)
for _kind in ("tfloat32", "tfloat32_ftz", "float32_ftz"):
    box(f"2d.{_kind}", _kind, (40, 10), (160,), (32, 8), (4, 1), stores=False)
for _atom in ("32B", "32B_flip_8B", "64B"):
    box(f"2d.atom.{_atom}", "float16", (100, 40), (208,), (64, 24), (8, 3), f"128B_atom_{_atom}", since=100,
        stores=_atom != "32B_flip_8B")  # fmt: skip
box("3d", "uint16", (40, 12, 6), (80, 960), (16, 4, 3), (8, 2, 1))
box("3d.corner.32B", "uint8", (60, 12, 6), (64, 768), (32, 5, 3), (48, 9, 4), "32B")
for _end, _last in (("", 2), (".before", -1)):
    box(f"4d{_end}", "uint8", (40, 5, 4, 3), (48, 240, 960), (16, 2, 3, 2), (32, 4, 2, _last))
    box(f"5d{_end}", "uint8", (40, 3, 3, 3, 2), (48, 144, 432, 1296), (16, 2, 2, 2, 2), (32, 2, _last, 1, 1))
box("3d.before", "float32", (30, 7, 5), (128, 1024), (8, 3, 2), (-4, -1, -1))

_STEPS = {
    "add": lambda a, b: a + b, "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "inc": lambda a, b: 0 if a >= b else a + 1, "dec": lambda a, b: b if a == 0 or a > b else a - 1,
}  # fmt: skip


def reduce_boxes(rank: int) -> None:
    """Each operation on a box of its own, one behind another along the outermost dimension."""
    extents = (*((20, 3, 2, 3)[: rank - 1]), 16 * 8 if rank == 1 else 8)
    strides = [80]
    for extent in extents[1:-1]:
        strides.append(strides[-1] * extent)
    strides = strides[: rank - 1]
    found = TensorMap(
        "uint32",
        0,
        extents,
        tuple(strides),
        (16, 2, 2, 2, 1)[:rank] if rank == 1 else (16, *(2, 2, 2)[: rank - 2], 1),
        (1,) * rank,
    )
    starts = [(16 * i,) if rank == 1 else (8, *(1, 1, 1)[: rank - 2], i) for i in range(8)]
    calls = ""
    for operation, start in zip(_STEPS, starts, strict=True):
        places = ", ".join(f"%{i + 2}" for i in range(rank))
        values = ", ".join(f'"r"({each})' for each in start)
        calls += f'STORE("cp.reduce.async.bulk", "{rank}d.global.shared::cta.{operation}.tile", "{places}", "l"(&map), "r"(at(s)), {values});\n'

    def wanted(arrays: Arrays) -> Arrays:
        tensor, fresh = arrays["tensor"].view(np.uint32).copy(), arrays["in"].view(np.uint32)
        for step, start in zip(_STEPS.values(), starts, strict=True):
            for inner, outer, inside in elements(found, start):
                if inside:
                    tensor[outer // 4] = step(int(tensor[outer // 4]), int(fresh[inner // 4])) & 0xFFFFFFFF
        return {"tensor": tensor.view(np.uint8)}

    size = 512 + 64 if rank == 1 else strides[-1] * 8 + 64
    exercise(
        f"reduce.{rank}d", STORE_BOX.replace("CALL", calls), {"tensor": noise(size, 5), "in": noise(found.bytes, 6)},
        (Tensor("tensor", found), "in", found.bytes, 0, 0, 0, 0, 0), wanted, shared=found.bytes + 16,
        covers=(f"cp.reduce.async.bulk.tensor.{rank}d.",),
    )  # fmt: skip


for _rank in range(1, 6):
    reduce_boxes(_rank)

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


exercise("phases", PHASES, {"out": np.zeros(512, np.uint8)}, ("out",), _phases, covers=("mbarrier.",))

STATES = r"""
extern "C" __global__ void k(u32* out) {
  __shared__ u64 bar, other;
  if (threadIdx.x) return;
  init(bar, 3);
  u64 state, next; u32 done[9];
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
  inval(bar); init(bar, 2);
  ASK(7, "test_wait.parity.shared::cta.b64 p, [%1], 0;", "r"(at(&bar)))
  asm volatile("mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [%0], 0;" :: "r"(at(&bar)) : "memory");
  arrive(bar);
  ASK(8, "test_wait.parity.shared::cta.b64 p, [%1], 0;", "r"(at(&bar)))
  for (int i = 0; i < 9; i++) out[i] = done[i];
}
"""
exercise(
    "states", STATES, {"out": np.zeros(36, np.uint8)}, ("out",),
    lambda a: {"out": np.array([0, 1, 1, 1, 0, 1, 1, 0, 1], np.uint32).view(np.uint8)}, block=32,
    covers=("mbarrier.",),
)  # fmt: skip

NEIGHBOUR = r"""
extern "C" __global__ void __cluster_dims__(4) k(const u32* in, u32* out) {
  __shared__ u32 s[64]; __shared__ u32 sums[4];
  s[threadIdx.x] = in[64 * blockIdx.x + threadIdx.x];
  if (threadIdx.x < 4) sums[threadIdx.x] = 0;
  meet();
  u32 value, of, to = (rank() + 1) % 4;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(in_block(&s[threadIdx.x], to)) : "memory");
  asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(of) : "r"(in_block(s, to)));
  u32* there; asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(sums), "r"(to));
  u32 again; asm volatile("getctarank.u64 %0, %1;" : "=r"(again) : "l"(there));
  of = of == again ? of : 99;
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
    grid=8, covers=("mapa.", "getctarank.", "barrier.cluster.", "ld."),
)  # fmt: skip

MULTICAST = r"""
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
    covers=("cp.async.bulk.", "fence.mbarrier_init.", "mbarrier.", "mapa."),
)  # fmt: skip

BETWEEN = r"""
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
    covers=("cp.async.bulk.", "st.async."),
)  # fmt: skip

OWN = r"""
extern "C" __global__ void k(const u8* in, u8* out) {
  __shared__ alignas(128) u8 s[256]; __shared__ u64 bar;
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  if (!threadIdx.x) { init(bar, 1); fence(); }
  __syncthreads();
  asm volatile("setmaxnreg.inc.sync.aligned.u32 64;");
  u32 chosen, lane;
  asm volatile("{\n .reg .pred p;\n elect.sync %1|p, -1;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(chosen), "=r"(lane));
  if (threadIdx.x < 32 && chosen) {
    expect(bar, 256);
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                 :: "r"(at(s)), "l"(in), "r"(at(&bar)) : "memory");
  }
  wait(bar, 0);
  for (int i = threadIdx.x; i < 256; i += blockDim.x) out[i] = s[i] + lane;
}
"""
exercise(
    "own", OWN, {"in": noise(256, 10), "out": np.zeros(256, np.uint8)}, ("in", "out"), lambda a: {"out": a["in"]},
    block=128, covers=("cp.async.bulk.", "setmaxnreg.", "elect.sync"),
)  # fmt: skip

STMATRIX = r"""
extern "C" __global__ void k(const u32* in, u8* out) {
  __shared__ alignas(16) u8 s[2][512];
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, r[4];
  for (int i = 0; i < 4; i++) r[i] = in[4 * threadIdx.x + i];
  for (int i = lane; i < 512; i += 32) s[warp][i] = 0xAB;
  __syncwarp();
  asm volatile("stmatrix.sync.aligned.m8n8.xCOUNTTRANS.shared::cta.b16 [%0], {VALUES};"
               :: "r"(at(s[warp]) + (lane ^ 3) * 16), INPUTS : "memory");
  __syncwarp();
  for (int i = lane; i < 512; i += 32) out[512 * warp + i] = s[warp][i];
}
"""
for _count, _trans in itertools.product((1, 2, 4), ("", ".trans")):

    def _stored(arrays: Arrays, count: int = _count, trans: str = _trans) -> Arrays:
        registers = arrays["in"].view(np.uint16).reshape(2, 32, 4, 2)
        out = np.full((2, 512), 0xAB, np.uint8)
        for warp, i, row, column in itertools.product(range(2), range(count), range(8), range(8)):
            r, c = (column, row) if trans else (row, column)
            value = registers[warp, 4 * r + c // 2, i, c % 2]
            start = ((8 * i + row) ^ 3) * 16 + 2 * column
            out[warp, start : start + 2] = value & 255, value >> 8
        return {"out": out.reshape(-1)}

    exercise(
        f"stmatrix.x{_count}{_trans}",
        STMATRIX.replace("COUNT", str(_count)).replace("TRANS", _trans)
        .replace("VALUES", ", ".join(f"%{i + 1}" for i in range(_count)))
        .replace("INPUTS", ", ".join(f'"r"(r[{i}])' for i in range(_count))),
        {"in": noise(1024, 11), "out": np.zeros(1024, np.uint8)}, ("in", "out"), _stored, covers=("stmatrix.",),
    )  # fmt: skip

WMMA = r"""
extern "C" __global__ void k(const u16* a, const u16* b, const float* c, float* out) {
  __shared__ alignas(32) u16 sa[16 * 24], sb[16 * 24]; __shared__ alignas(32) float sc[16 * 20], sd[16 * 20];
  u32 lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) {
    sa[i / 16 * 24 + i % 16] = a[i]; sb[i / 16 * 24 + i % 16] = b[i]; sc[i / 16 * 20 + i % 16] = c[i];
  }
  __syncwarp();
  asm volatile("{\n .reg .b32 a<8>, b<8>;\n .reg .f32 c<8>, d<8>;\n"
    "wmma.load.a.sync.aligned.LA.m16n16k16.shared.KIND {A}, [%0], %4;\n"
    "wmma.load.b.sync.aligned.LB.m16n16k16.shared.KIND {B}, [%1], %4;\n"
    "wmma.load.c.sync.aligned.LC.m16n16k16.shared.f32 {c0, c1, c2, c3, c4, c5, c6, c7}, [%2], %5;\n"
    "wmma.mma.sync.aligned.LA.LB.m16n16k16.f32TYPES.f32 {d0, d1, d2, d3, d4, d5, d6, d7}, {A}, {B},"
    " {c0, c1, c2, c3, c4, c5, c6, c7};\n"
    "wmma.store.d.sync.aligned.LD.m16n16k16.shared.f32 [%3], {d0, d1, d2, d3, d4, d5, d6, d7}, %5;\n}"
    :: "r"(at(sa)), "r"(at(sb)), "r"(at(sc)), "r"(at(sd)), "r"(24), "r"(20) : "memory");
  __syncwarp();
  for (int i = lane; i < 256; i += 32) out[i] = sd[i / 16 * 20 + i % 16];
}
"""
for _kind, (_a, _b), (_c, _d) in zip(
    ("f16", "bf16") * 4, itertools.chain(*((each, each) for each in itertools.product(("row", "col"), repeat=2))),
    [*itertools.product(("row", "col"), repeat=2)] * 2, strict=True,
):  # fmt: skip

    def _product(arrays: Arrays, a: str = _a, b: str = _b, c: str = _c, d: str = _d, kind: str = _kind) -> Arrays:
        def matrix(bits: np.ndarray, layout: str, kind: str = kind) -> np.ndarray:
            values = bits.view(np.float16) if kind == "f16" else (bits.astype(np.uint32) << 16).view(np.float32)
            rows = values.astype(np.float64).reshape(16, 16)
            return rows.T if layout == "col" else rows

        added = arrays["c"].view(np.float32).reshape(16, 16)
        total = matrix(arrays["a"].view(np.uint16), a) @ matrix(arrays["b"].view(np.uint16), b) + (
            added.T if c == "col" else added
        )
        return {
            "out": np.ascontiguousarray((total.T if d == "col" else total).astype(np.float32))
            .reshape(-1)
            .view(np.uint8)
        }

    _rng = np.random.default_rng(12)
    _bits = [
        _rng.integers(-8, 8, 256).astype(np.float16).view(np.uint16)
        if _kind == "f16" else (_rng.integers(-8, 8, 256).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for _ in range(2)
    ]  # fmt: skip
    _listed = {name: ", ".join(f"{name.lower()}{i}" for i in range(8 if _kind == "f16" else 4)) for name in "AB"}
    _text = WMMA.replace("LA", _a).replace("LB", _b).replace("LC", _c).replace("LD", _d).replace("KIND", _kind)
    _text = _text.replace("TYPES", "" if _kind == "f16" else ".bf16.bf16")
    exercise(
        f"wmma.{_kind}.{_a}.{_b}", _text.replace("{A}", "{" + _listed["A"] + "}").replace("{B}", "{" + _listed["B"] + "}"),
        {"a": _bits[0].view(np.uint8), "b": _bits[1].view(np.uint8),
         "c": _rng.integers(-99, 99, 256).astype(np.float32).view(np.uint8), "out": np.zeros(1024, np.uint8)},
        ("a", "b", "c", "out"), _product, block=32, covers=("wmma.",),
    )  # fmt: skip

REPLACE = r"""
extern "C" __global__ void k(const __grid_constant__ Map map, u8* other, Map* maps, u8* out) {
  __shared__ alignas(128) Map mine;
  __shared__ alignas(1024) u8 s[512];
  __shared__ u64 bar;
  u32 t = threadIdx.x;
  for (int i = t; i < 128; i += 32) mine.bytes[i] = map.bytes[i];
  if (t == 0) init(bar, 1);
  fence(); __syncwarp();
  if (t == 0) {
#define REPLACE(FIELD, TYPE, ...) asm volatile("tensormap.replace.tile." FIELD ".shared::cta.b1024." TYPE " [%0], " __VA_ARGS__ : "memory")
    REPLACE("global_address", "b64", "%1;" :: "r"(at(&mine)), "l"(other));
    REPLACE("rank", "b32", "%1;" :: "r"(at(&mine)), "r"(1));
    REPLACE("global_dim", "b32", "0, %1;" :: "r"(at(&mine)), "r"(40));
    REPLACE("global_dim", "b32", "1, %1;" :: "r"(at(&mine)), "r"(6));
    REPLACE("global_stride", "b64", "0, %1;" :: "r"(at(&mine)), "l"(96ull));
    REPLACE("box_dim", "b32", "0, %1;" :: "r"(at(&mine)), "r"(32));
    REPLACE("box_dim", "b32", "1, %1;" :: "r"(at(&mine)), "r"(8));
    REPLACE("element_stride", "b32", "1, %1;" :: "r"(at(&mine)), "r"(1));
    REPLACE("elemtype", "b32", "1;" :: "r"(at(&mine)));
    REPLACE("interleave_layout", "b32", "0;" :: "r"(at(&mine)));
    REPLACE("swizzle_mode", "b32", "2;" :: "r"(at(&mine)));
    REPLACE("fill_mode", "b32", "0;" :: "r"(at(&mine)));
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
               :: "l"(maps), "r"(at(&mine)) : "memory");
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(maps) : "memory");
  if (t == 0) { expect(bar, 512); load2(s, maps[0], bar, 16, 1); }
  wait(bar, 0);
  for (int i = t; i < 512; i += 32) out[i] = s[i];
}
"""
_CHANGED = TensorMap("uint16", 0, (40, 6), (96,), (32, 8), (1, 1), "64B")


def _replaced(arrays: Arrays) -> Arrays:
    out = np.zeros(512, np.uint8)
    for inner, outer, inside in elements(_CHANGED, (16, 1)):
        if inside:
            out[inner : inner + 2] = arrays["other"][outer : outer + 2]
    return {"out": out, "maps": None}


exercise(
    "tensormap.replace", REPLACE,
    {"in": noise(4096), "other": noise(1024, 13), "maps": np.zeros(128, np.uint8), "out": np.zeros(512, np.uint8)},
    (Tensor("in", TensorMap("uint8", 0, (64, 64), (64,), (16, 16), (1, 1))), "other", "maps", "out"), _replaced, block=32,
    covers=("tensormap.", "fence.proxy.tensormap::generic.acquire.gpu"),
)  # fmt: skip

PRODUCT = r"""
// Thread 128 loads A (64, 16) and B (16, 8) of each step as core matrices; a warpgroup multiplies.
extern "C" __global__ void k(const u8* a, const u8* b, float* out, int steps) {
  __shared__ alignas(128) u8 sa[2][2048], sb[2][256];
  __shared__ u64 full[2], empty[2];
  u32 t = threadIdx.x;
  if (t == 0) { for (int i = 0; i < 2; i++) { init(full[i], 1); init(empty[i], 128); } fence(); }
  __syncthreads();
  if (t >= 128) {
    if (t == 128)
      for (int step = 0; step < steps; step++) {
        int slot = step % 2;
        if (step >= 2) wait(empty[slot], step / 2 - 1 & 1);
        expect(full[slot], 2304);
        load(sa[slot], a + 2048 * step, 2048, full[slot]);
        load(sb[slot], b + 256 * step, 256, full[slot]);
      }
    return;
  }
  float d[4] = {0, 0, 0, 0};
  for (int step = 0; step < steps; step++) {
    int slot = step % 2;
    FULL
    u64 left = (u64)(at(sa[slot]) >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
    u64 right = (u64)(at(sb[slot]) >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
    ASM("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(left), "l"(right) : "memory");
    ASM("wgmma.commit_group.sync.aligned;");
    EARLY
    ASM("wgmma.wait_group.sync.aligned 0;");
    LATE
  }
  u32 row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
  for (int i = 0; i < 4; i++) out[(row + i / 2 * 8) * 8 + column + i % 2] = d[i];
}
"""


def product(full: str = "wait(full[slot], step / 2 & 1);", early: str = "", late: str = "arrive(empty[slot]);") -> str:
    return PRODUCT.replace("FULL", full).replace("EARLY", early).replace("LATE", late)


def _multiplied(arrays: Arrays) -> Arrays:
    def values(name: str, rows: int) -> np.ndarray:
        """(steps, rows, 16) from core matrices of 8 rows by 8, the two of a row of 16 side by side."""
        bits = arrays[name].view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(-1, rows // 8, 2, 8, 8).swapaxes(2, 3).reshape(-1, rows, 16)

    total = (values("a", 64) @ values("b", 8).swapaxes(1, 2)).sum(axis=0)
    return {"out": total.astype(np.float32).reshape(-1).view(np.uint8)}


def _small(count: int, seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).integers(-8, 8, count).astype(np.float32)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


exercise(
    "product", product(), {"a": _small(5 * 1024, 14), "b": _small(5 * 128, 15), "out": np.zeros(2048, np.uint8)},
    ("a", "b", "out", 5), _multiplied, block=160, covers=("wgmma.",),
)  # fmt: skip

MULTICAST_RING = r"""
// Each of two blocks loads half of every tile into both; all warps of both tell both when they have read.
extern "C" __global__ void __cluster_dims__(2) k(const u8* in, u32* out, int turns) {
  __shared__ alignas(128) u8 s[2][512];
  __shared__ u64 full[2], empty[2];
  u32 t = threadIdx.x, me = rank(), sum = 0;
  if (t == 0) {
    for (int i = 0; i < 2; i++) { init(full[i], 1); init(empty[i], 4); }
    ASM("fence.mbarrier_init.release.cluster;");
  }
  meet();
  for (int turn = 0; turn < turns; turn++) {
    int slot = turn % 2;
    if (t == 0) {
      if (turn >= 2) wait(empty[slot], turn / 2 - 1 & 1);
      expect(full[slot], 512);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;"
                   :: "r"(at(s[slot] + 256 * me)), "l"(in + 512 * turn + 256 * me), "r"(at(&full[slot])), "h"((u16)3) : "memory");
    }
    wait(full[slot], turn / 2 & 1);
    for (int i = 0; i < 8; i++) sum = sum * 3 + s[slot][8 * t + i];
    __syncwarp();
    if (t % 32 < 2)
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
                   :: "r"(in_block(&empty[slot], t % 32)) : "memory");
  }
  out[64 * blockIdx.x + t] = sum;
  meet();
}
"""


def _summed(arrays: Arrays) -> Arrays:
    sums = np.zeros(64, np.uint32)
    for tile in arrays["in"].reshape(6, 64, 8).astype(np.uint32):
        for i in range(8):
            sums = sums * np.uint32(3) + tile[:, i]
    return {"out": np.tile(sums, 4).view(np.uint8)}


exercise(
    "cluster.ring", MULTICAST_RING, {"in": noise(3072, 16), "out": np.zeros(1024, np.uint8)}, ("in", "out", 6), _summed,
    grid=4, covers=("mbarrier.",),
)  # fmt: skip

COPIES_ARRIVE = r"""
extern "C" __global__ void k(const u8* in, u8* out) {
  __shared__ alignas(16) u8 s[2][1024];
  __shared__ u64 counted, added;
  u32 t = threadIdx.x;
  if (t == 0) { init(counted, 64); init(added, 64); }
  __syncthreads();
  for (int i = 0; i < 2; i++)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at(&s[i][16 * t])), "l"(in + 1024 * i + 16 * t) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(at(&counted)) : "memory");
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" :: "r"(at(&added)) : "memory");
  arrive(added);
  wait(counted, 0); wait(added, 0);
  for (int i = 0; i < 32; i++) out[i * 64 + t] = s[i / 16][(i * 64 + t ^ 48) % 1024];
}
"""
exercise(
    "copies.arrive", COPIES_ARRIVE, {"in": noise(2048, 17), "out": np.zeros(2048, np.uint8)}, ("in", "out"),
    lambda a: {"out": a["in"][np.arange(2048) ^ 48]}, covers=("cp.async.",),
)  # fmt: skip
