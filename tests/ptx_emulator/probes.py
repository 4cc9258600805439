"""Copies of tensor maps of which no public text says what they do, for a GPU to tell: where each two bytes went.

Both sides hold a number of their own in every two bytes, so that the places show in what arrived. Nobody knows how many
bytes a load counts, so it waits a while, and then counts those that its mbarrier still lacks. There is shared memory
to spare.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from async_source import PRELUDE
from exercises import Exercise, Tensor

from ptx_emulator.tensor_map import TensorMap

ROOM = 40 << 10  # bytes of shared memory, and of the tensor
UNTOUCHED, FILLED = 0xEEEE, 0  # neither is the number of a place
EXPECTED = 1 << 13  # bytes that the mbarrier of a load is told to expect

LOAD = r"""
extern "C" __global__ void k(const __grid_constant__ Map map, u16* out, u64* uncounted, u32 bytes,
                             int x, int y, int z, int v) {
  extern __shared__ __align__(1024) u16 s[];
  u64& bar = *(u64*)((u8*)s + bytes);
  for (u32 i = threadIdx.x; i < bytes / 2; i += blockDim.x) s[i] = 0xEEEE;
  if (!threadIdx.x) init(bar, 1);
  fence(); __syncthreads();
  if (!threadIdx.x) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8192;" :: "r"(at(&bar)) : "memory");
    CALL
    for (int i = 0; i < 1000; ++i) __nanosleep(1000);  // a millisecond: the copy is long there
    u32 left = 0;
    for (u32 done = 0; left <= 8192; ++left) {
      asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done) : "r"(at(&bar)) : "memory");
      if (done) break;
      asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 1;" :: "r"(at(&bar)) : "memory");
    }
    *uncounted = left;
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < bytes / 2; i += blockDim.x) out[i] = s[i];
}
"""
STORE = r"""
extern "C" __global__ void k(const __grid_constant__ Map map, const u16* in, u32 bytes, int x, int y, int z, int v) {
  extern __shared__ __align__(1024) u16 s[];
  for (u32 i = threadIdx.x; i < bytes / 2; i += blockDim.x) s[i] = in[i];
  fence(); __syncthreads();
  if (!threadIdx.x) { CALL commit(); wait_all<0>(); }
}
"""
_COORDINATES = ("x", "x, y", "x, y, z", "x, y, z, v")


@dataclass(frozen=True)
class Probe:
    """exercise: what the GPU runs; array: the name of the one that tells; loads: whether it copies to shared memory"""

    exercise: Exercise
    array: str
    loads: bool

    @property
    def name(self) -> str:
        return self.exercise.name


def numbered() -> np.ndarray:
    """Two bytes for each number, of which the first is 1."""
    return (np.arange(ROOM // 2, dtype=np.uint16) + np.uint16(1)).view(np.uint8)


def _untouched(count: int) -> np.ndarray:
    return np.full(count // 2, UNTOUCHED, np.uint16).view(np.uint8)


PROBES: list[Probe] = []


def probe(name: str, found: TensorMap, start: Sequence[int], *, load: bool = True, store: bool = True,
          reduction: str = "") -> None:  # fmt: skip
    """A load and a store of one box, or a reduction with this operation instead of the store."""
    rank = len(found.box)
    at, places = (*start, 0, 0, 0, 0)[:4], _COORDINATES[rank - 1]
    more = {"shared": ROOM + 16, "wanted": lambda arrays: {}}
    if load:
        arrays = {"tensor": numbered(), "out": _untouched(ROOM), "left": np.zeros(8, np.uint8)}
        source = PRELUDE + LOAD.replace("CALL", f"load{rank}(s, map, bar, {places});")
        given = (Tensor("tensor", found), "out", "left", ROOM, *at)
        PROBES.append(Probe(Exercise(f"load.{name}", source, arrays, given, **more), "out", True))
    if store:
        call = f"store{rank}(map, s, {places});"
        if reduction:
            numbers, values = (
                ", ".join(f"%{i + 2}" for i in range(rank)),
                ", ".join(f'"r"({c})' for c in places.split(", ")),
            )
            call = f'STORE("cp.reduce.async.bulk", "{rank}d.global.shared::cta.{reduction}.tile", "{numbers}", '
            call += f'"l"(&map), "r"(at(s)), {values});'
        arrays = {"tensor": _untouched(ROOM), "in": numbered()}
        given = (Tensor("tensor", found), "in", ROOM, *at)
        source = PRELUDE + STORE.replace("CALL", call)
        PROBES.append(Probe(Exercise(f"{'reduce' if reduction else 'store'}.{name}", source, arrays, given, **more),
                            "tensor", False))  # fmt: skip


def _map(kind: str, extents: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: str = "none",
         interleave: str = "none") -> TensorMap:  # fmt: skip
    return TensorMap(kind, 0, tuple(extents), tuple(strides), tuple(box), (1,) * len(box), swizzle, False, interleave)


# Without a swizzle or slices, so that the probes themselves can be judged.
probe("plain", _map("uint16", (40, 12, 6), (80, 960), (16, 4, 3)), (8, 2, 1))

# Interleaved: slices of 16 bytes, of which the box has a part, one, or two.
for _box, _start in (
    ((8, 5, 3), (0, 2, 1)), ((8, 5, 3), (0, 0, 0)), ((8, 5, 1), (0, 2, 1)), ((8, 1, 3), (0, 2, 1)),
    ((8, 8, 3), (0, 2, 1)), ((8, 4, 3), (0, 2, 1)), ((4, 5, 3), (0, 2, 1)), ((16, 5, 3), (0, 2, 1)),
    ((8, 5, 3), (0, 9, 4)), ((8, 9, 2), (0, 2, 1)),
):  # fmt: skip
    _at = "x".join(map(str, _box)) + "." + ".".join(map(str, _start))
    probe(f"16B.one.{_at}", _map("uint16", (8, 12, 6), (16, 208), _box, interleave="16B"), _start)
for _box, _start in (
    ((16, 4, 2), (0, 0, 0)), ((8, 4, 2), (8, 1, 1)), ((8, 4, 2), (1, 1, 1)), ((2, 4, 2), (0, 1, 1)),
    ((2, 4, 2), (1, 1, 1)),
):  # fmt: skip
    _at = "x".join(map(str, _box)) + "." + ".".join(map(str, _start))
    probe(f"16B.two.{_at}", _map("uint16", (16, 6, 3), (112, 800), _box, interleave="16B"), _start, store=False)
probe("16B.bytes", _map("uint8", (16, 12, 6), (16, 208), (16, 5, 3), interleave="16B"), (0, 2, 1), store=False)
probe("16B.wide", _map("uint16", (8, 12, 6), (48, 640), (8, 5, 3), interleave="16B"), (0, 2, 1), store=False)
probe("16B.4d", _map("uint16", (8, 6, 5, 4), (16, 112, 592), (8, 3, 2, 2), interleave="16B"), (0, 1, 1, 1))
for _swizzled in ("32B", "64B", "128B"):
    probe(
        f"16B.{_swizzled}", _map("uint16", (8, 12, 6), (16, 208), (8, 8, 3), _swizzled, "16B"), (0, 2, 1), store=False
    )
for _box, _start in (
    ((16, 4, 3), (0, 2, 1)),
    ((16, 5, 3), (0, 2, 1)),
    ((16, 4, 3), (0, -2, 1)),
    ((16, 8, 2), (0, 0, 0)),
    ((32, 4, 2), (0, 0, 0)),
):
    _at = "x".join(map(str, _box)) + "." + ".".join(map(str, _start))
    probe(f"32B.{_at}", _map("float16", (16, 12, 6), (32, 416), _box, "32B", "32B"), _start, store=min(_start) >= 0)

# Rows shorter than the swizzle.
for _swizzled, _row in (("128B", 64), ("128B", 16), ("128B", 96), ("64B", 32), ("64B", 48), ("32B", 16)):
    probe(f"narrow.{_swizzled}.{_row}", _map("uint8", (300, 40), (304,), (_row, 16), _swizzled), (96, 8))
probe("narrow.3d", _map("uint8", (300, 12, 6), (304, 3648), (64, 5, 3), "128B"), (96, 2, 1))

# What a reduction does to the rest of 16 bytes at the end of a row, before the tensor, and with subnormals.
for _start in ((8, 2), (8, 6), (-4, 2)):
    _at = ".".join(map(str, _start))
    probe(f"end.{_at}", _map("uint32", (19, 8), (96,), (16, 4)), _start, load=False, reduction="or")
for _kind, _operation in itertools.product(("float32", "float32_ftz"), ("add", "max")):
    _found = _map(_kind, (16, 8), (64,), (16, 4))
    probe(f"{_kind}.{_operation}", _found, (0, 0), load=False, reduction=_operation)
    # Subnormals on one side, and on both.
    _arrays = PROBES[-1].exercise.arrays
    _arrays["in"][:] = np.resize(np.array([1, 0x007FFFFF, 0x80000001, 0x00400000], np.uint32), ROOM // 4).view(np.uint8)
    _arrays["tensor"][:] = np.resize(np.array([0] * 4 + [2] * 4 + [0x80000001] * 4, np.uint32), ROOM // 4).view(
        np.uint8
    )


def places(numbers: np.ndarray) -> list[str]:
    """Runs of what lies where, from (n,) uint8: bytes there, and bytes on the other side that they came from."""
    found, out = numbers.view(np.uint16).astype(np.int64), []
    at = np.arange(len(found))
    source = np.where((found == UNTOUCHED) | (found == FILLED), -found, found - 1 - at)
    cuts = [0, *(np.flatnonzero(np.diff(source)) + 1).tolist(), len(found)]
    for low, high in itertools.pairwise(cuts):
        if found[low] == UNTOUCHED:
            continue
        came = "filled" if found[low] == FILLED else f"from {2 * (found[low] - 1)}..{2 * (found[high - 1] - 1) + 1}"
        out.append(f"{2 * low}..{2 * high - 1} {came}")
    return out


def counted(left: np.ndarray) -> int | None:
    """Bytes that a load counted, by those that were left, (1,) uint64; None if there was no end of them."""
    lacked = int(left.view(np.uint64)[0])
    return EXPECTED - lacked if lacked <= EXPECTED else None


def told(each: Probe, found: dict[str, np.ndarray]) -> str:
    """What a GPU did, in a few lines."""
    head = f"{each.name}: {each.exercise.arguments[0]}"
    if each.loads:
        head += f"\n  counted {counted(found['left'])} bytes"
    if "reduce" in each.name:
        changed = np.flatnonzero(found[each.array] != each.exercise.arrays[each.array])
        words = found[each.array].view(np.uint32)[np.unique(changed // 4)]
        return f"{head}\n  words that changed: " + ", ".join(
            f"{4 * int(at)}: {int(word):#x}" for at, word in zip(np.unique(changed // 4), words, strict=True)
        )
    return "\n  ".join([head, *places(found[each.array])])
