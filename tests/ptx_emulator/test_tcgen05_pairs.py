"""`tcgen05` of a pair of blocks, `cta_group::2`: products against exact sums, and copies that the peer waits for.

Where operands lie is from CUTLASS's include/cute/atom/mma_traits_sm100.hpp and mma_traits_sm100_frag.hpp.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from cuda_source import buffer, module
from tcgen05_source import OF_PAIR, instruction, matrix, scaled_instruction
from test_tcgen05 import integers
from test_tcgen05_scaled import FORMS, decoded, drawn, swizzled, tiles
from wgmma_source import image

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.launches import launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule
from ptx_emulator.tensor_map import TensorMap

pytestmark = pytest.mark.covers("tcgen05.", "cp.async.bulk.tensor.")

ORDERS = (ASCENDING, DESCENDING, Schedule(seed=1))
# Each block has half of the rows of A and of B in shared memory; D is left as each has it in tensor memory.
PRODUCT = (
    OF_PAIR
    + r"""
extern "C" __global__ void __cluster_dims__(2) k(const uint4* in_a, const uint4* in_b, u32* out, u64 from_a,
                                                 u64 from_b, int size_a, int size_b, u32 which, int columns, int added,
                                                 int issuer) {
  __shared__ alignas(1024) uint4 a[1024], b[1024];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  if (!t) init(done, 1);
  for (int i = t; i < size_a; i += 128) a[i] = in_a[blockIdx.x * size_a + i];
  for (int i = t; i < size_b; i += 128) b[i] = in_b[blockIdx.x * size_b + i];
  fence();
  ASM("fence.mbarrier_init.release.cluster;");
  meet();
  if (t < 32) { allocate(&where, 512); relinquish(); }
  __syncthreads();
  const u32 d = where;
  for (int j = 0; added && j < columns; ++j) tensor_store(d + mine + j, out[(128 * blockIdx.x + t) * columns + j]);
  for (int j = 0; IN_TENSOR && j < 8; ++j)
    tensor_store(d + mine + 256 + j, ((u32*)in_a)[(128 * blockIdx.x + t) * 8 + j]);
  wait_st();
  meet();
  if (!t && rank() == issuer) {
    MULTIPLY;
    arrive_in(done, 3);
  }
  wait(done, 0);
  for (int j = 0; j < columns; ++j) {
    const u32 value = tensor_load(d + mine + j);
    wait_ld();
    out[(128 * blockIdx.x + t) * columns + j] = value;
  }
  meet();
  if (t < 32) deallocate(d, 512);
}
"""
)
HOW = {
    "shared": "multiply(d, from_a + in(a), from_b + in(b), which, added)",
    "tensor": "multiply_tensor(d, d + 256, from_b + in(b), which, added)",
}


def multiply(
    a: np.ndarray, b: np.ndarray, d: np.ndarray, kind: str, how: str = "shared", issuer: int = 0, added: int = 1,
    schedule: Schedule = ASCENDING,
) -> np.ndarray:  # fmt: skip
    """D (rows, columns), patterns of float32. a: (rows, 16), b: (columns, 16) uint16 patterns; d: what is added to"""
    (rows, _), columns, descriptions, images = a.shape, len(b), [], []
    for each in (a, b):
        halves = np.split(each, 2)
        leading = len(halves[0]) * 16 + 128
        parts = [np.asarray(image(half, 0, leading, 128)) for half in halves]
        width = -(-max(map(len, parts)) // 16) * 16
        images.append(np.stack([np.pad(part, (0, width - len(part))) for part in parts]))
        descriptions.append(matrix(0, leading, 128))
    if how == "tensor":
        words = np.zeros((256, 8), np.uint32)
        words[:rows] = a.view(np.uint32)
        sizes, images[0] = [0, images[1].shape[1] // 16], words
    else:
        sizes = [each.shape[1] // 16 for each in images]
    # Each block has 64 of 128 rows; the second half of their columns lies 64 lanes behind the first.
    width = columns if rows == 256 else columns // 2
    out = np.zeros((2, 128, width), np.uint32)
    cells = d.reshape(2, rows // 2, -1, width).swapaxes(1, 2).reshape(2, 128, width)
    out[:] = cells
    source = PRODUCT.replace("IN_TENSOR", str(int(how == "tensor"))).replace("MULTIPLY", HOW[how])
    source = source.replace("kind::f16", "kind::" + {"tf32": "tf32", "e4m3": "f8f6f4"}.get(kind, "f16"))
    args = [
        buffer("a", images[0]), buffer("b", images[1]), buffer("out", out),
        *(each.to_bytes(8, "little") for each in descriptions), *sizes,
        instruction(rows, columns, kind).to_bytes(4, "little"), width, added, issuer,
    ]  # fmt: skip
    launch(module(source, "sm_100a"), "k", (2, 1, 1), (128, 1, 1), args, schedule=schedule)
    return out.reshape(2, -1, rows // 2, width).swapaxes(1, 2).reshape(rows, columns)


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "how", "issuer", "orders"),
    [
        ("bf16", 256, 32, "shared", 0, ORDERS), ("f16", 256, 48, "shared", 1, ORDERS[1:2]),
        ("bf16", 256, 16, "tensor", 0, ORDERS[1:2]), ("f16", 128, 32, "shared", 0, ORDERS[1:2]),
        ("bf16", 128, 64, "shared", 1, ORDERS[2:]),
    ],
)  # fmt: skip
def test_a_pair_multiplies(
    kind: str, rows: int, columns: int, how: str, issuer: int, orders: tuple[Schedule, ...]
) -> None:
    a, b, d, wanted = integers(rows, columns, 16, kind)
    for order in orders:
        assert (multiply(a, b, d, kind, how, issuer, schedule=order).view(np.float32) == wanted).all()
    assert (multiply(a, b, d, kind, how, issuer, added=0).view(np.float32) == wanted - d.view(np.float32)).all()


@pytest.mark.parametrize("kind, element, depth", [("tf32", np.float32, 8), ("e4m3", ml_dtypes.float8_e4m3fn, 32)])
def test_a_pair_multiplies_other_types(kind: str, element: type, depth: int) -> None:
    rng = np.random.default_rng(depth)
    a, b = rng.integers(-8, 9, (256, depth)), rng.integers(-8, 9, (32, depth))
    rows = [np.ascontiguousarray(each.astype(element)).view(np.uint16) for each in (a, b)]
    got = multiply(*rows, np.zeros((256, 32), np.uint32), kind, added=0)
    assert (got.view(np.float32) == a @ b.T).all()


@pytest.mark.parametrize("rows, columns", [(64, 32), (256, 24)])
def test_shapes_that_the_manual_does_not_have_of_a_pair(rows: int, columns: int) -> None:
    a, b, d, _ = integers(256, 32, 16, "bf16")
    source = instruction
    with pytest.raises(Fault, match=f"M = {rows}, N = {columns}, which this kind does not allow") as found:
        globals()["instruction"] = lambda *_: source(rows, columns)
        try:
            multiply(a, b, d, "bf16")
        finally:
            globals()["instruction"] = source
    assert found.value.kind == "tensor_memory"


def test_a_in_tensor_memory_of_128_rows_is_refused() -> None:
    a, b, d, _ = integers(128, 32, 16, "bf16")
    with pytest.raises(NotEmulated, match=r"not emulated: tcgen05\.mma.* with the instruction descriptor"):
        multiply(a, b, d, "bf16", "tensor")


# Each block has its 128 rows of A and their scales, half of B, and the scales of all of B. One copy brings both blocks
# what they have of the scales.
SCALED = (
    OF_PAIR
    + r"""
__device__ void product(u32 d, u64 a, u64 b, u32 which, u32 added, u32 sa, u32 sb) {
  SCALED("KIND");
}
extern "C" __global__ void __cluster_dims__(2) k(const uint4* in_a, const uint4* in_b, const uint4* in_sa,
                                                 const uint4* in_sb, u32* out, u64 rows, u64 tile, u32 which) {
  __shared__ alignas(1024) uint4 a[1024], b[1024], s[2][32];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  if (!t) init(done, 1);
  for (int i = t; i < 1024; i += 128) {
    a[i] = in_a[1024 * blockIdx.x + i];
    b[i] = in_b[1024 * blockIdx.x + i];
  }
  if (t < 32) {
    s[0][t] = in_sa[32 * blockIdx.x + t];
    s[1][t] = in_sb[t];
  }
  fence();
  ASM("fence.mbarrier_init.release.cluster;");
  meet();
  if (t < 32) { allocate(&where, 128); relinquish(); }
  meet();
  const u32 d = where;
  if (!t && !rank()) {
    copy_scales(d + 64, tile + in(s[0]));
    copy_scales(d + 96, tile + in(s[1]));
    product(d, rows + in(a), rows + in(b), which, 0, d + 64, d + 96);
    arrive_in(done, 3);
  }
  wait(done, 0);
  for (int j = 0; j < 32; ++j) {
    const u32 value = tensor_load(d + mine + j);
    wait_ld();
    out[(128 * blockIdx.x + t) * 32 + j] = value;
  }
  meet();
  if (t < 32) deallocate(d, 128);
}
"""
)


@pytest.mark.sweep
@pytest.mark.parametrize("kind, words, block, ue8m0", [form[:4] for form in FORMS])
def test_a_pair_multiplies_e2m1_with_the_scales_that_each_has(kind: str, words: str, block: int, ue8m0: bool) -> None:
    low, high = (120, 135) if ue8m0 else (0x30, 0x48)  # so that a float64 holds every sum
    (_, codes_b), (_, scales_b) = drawn(32, 64, block, low, high)
    halves = [drawn(seed, 64, block, low, high) for seed in (8, 24)]
    a = np.concatenate([codes[0] for codes, _ in halves])
    scales_a = np.concatenate([scales[0] for _, scales in halves])
    left, right = decoded(a, scales_a, ue8m0), decoded(codes_b, scales_b, ue8m0)
    out = np.zeros((256, 32), np.uint32)
    args = [
        *(buffer(name, np.stack([swizzled(half) for half in np.split(each, 2)])) for name, each in
          (("a", a), ("b", codes_b))),
        buffer("sa", tiles(scales_a)), buffer("sb", tiles(scales_b)), buffer("out", out),
        matrix(0, 0, 1024, 1).to_bytes(8, "little"), matrix(0, 0, 128).to_bytes(8, "little"),
        (scaled_instruction(32, ue8m0) + (128 // 16 << 24)).to_bytes(4, "little"),
    ]  # fmt: skip
    source = SCALED.replace('"KIND"', f'"{kind}.block_scale{words}"')
    launch(module(source, "sm_100a"), "k", (2, 1, 1), (128, 1, 1), args)
    assert (out.view(np.float32) == (left @ right.T).astype(np.float32)).all()


# Each block has rows in shared memory, and one copy brings them to the tensor memory of both.
COPY = (
    OF_PAIR
    + r"""
extern "C" __global__ void __cluster_dims__(2) k(const u32* given, u32* out, u64 rows, int words) {
  __shared__ alignas(128) u32 s[2048];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  if (!t) init(done, 1);
  for (int i = t; i < 2048; i += 128) s[i] = given[2048 * blockIdx.x + i];
  fence();
  ASM("fence.mbarrier_init.release.cluster;");
  meet();
  if (t < 32) { ALLOCATE; relinquish(); }
  meet();
  if (!t && rank()) {
    asm volatile("tcgen05.cp.cta_group::2.NAME [%0], %1;" :: "r"(where), "l"(rows + in(s)) : "memory");
    COMMIT
  }
  wait(done, 0);
  for (int j = 0; j < words; ++j) {
    const u32 value = tensor_load(where + mine + j);
    wait_ld();
    out[(128 * blockIdx.x + t) * words + j] = value;
  }
  meet();
  if (t < 32) deallocate(where, 32);
}
"""
)
COMMITS = [  # one for both blocks, and one for each
    'tcgen05.commit.cta_group::2.mbarrier::arrive::one.multicast::cluster.b64 [%0], %1;" :: "l"(&done), "h"((u16)3)',
    'tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(in_block(&done, B))',
    'tcgen05.commit.cta_group::2.mbarrier::arrive::one.b64 [%0];" :: "l"((u64)in_block(&done, B))',
]


@pytest.mark.parametrize("commit", range(3))
@pytest.mark.parametrize("name, rows, words", [("128x256b", 128, 8), ("128x128b", 128, 4)])
def test_a_copy_of_each_blocks_rows_to_its_own_tensor_memory(name: str, rows: int, words: int, commit: int) -> None:
    source = COPY.replace("NAME", name)
    each = [COMMITS[commit].replace("B)", f"{block})") for block in range(1 if commit == 0 else 2)]
    source = source.replace("COMMIT", "".join(f'asm volatile("{text} : "memory");' for text in each))
    generic = 'asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.b32 [%0], 32;" :: "l"(&where) : "memory")'
    source = source.replace("ALLOCATE", generic if commit == 0 else "allocate(&where, 32)")
    data = np.random.default_rng(4).integers(0, 1 << 32, (2, rows, words), np.uint32)
    stored = np.zeros((2, 2048), np.uint32)
    for row, column in np.ndindex(rows, words):
        stored[:, (row // 8 * 256 + column // 4 * 128 + row % 8 * 16) // 4 + column % 4] = data[:, row, column]
    out, described = np.zeros((2, 128, words), np.uint32), matrix(0, 128, 256).to_bytes(8, "little")
    launch(module(source, "sm_100a"), "k", (2, 1, 1), (128, 1, 1),
           [buffer("in", stored), buffer("out", out), described, words])  # fmt: skip
    assert (out == data).all()


# Two blocks copy a box, each for itself or for all, and all bytes count at the mbarrier of the block WAITS of a pair.
LOADS = (
    OF_PAIR
    + r"""
extern "C" __global__ void __cluster_dims__(CLUSTER) k(const __grid_constant__ Map map, u32* out) {
  __shared__ alignas(128) u32 s[2][128];
  __shared__ u64 full;
  const u32 t = threadIdx.x;
  if (!t) init(full, 1);
  ASM("fence.mbarrier_init.release.cluster;");
  meet();
  if (!t && rank() % 2 == WAITS) expect(full, BYTES);
  if (!t && rank() < 2) {
    const u32 bar = BARRIER;
    BRING;  // load
  }
  if (rank() % 2 == WAITS) wait(full, 0);
  meet();
  for (int i = FIRST; i < 2; i += STEP) out[(2 * blockIdx.x + i) * 128 + t] = s[i][t];
}
"""
)
ALONE = r"""asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
  ".cta_group::2 [%0], [%1, {%2}], [%3];" :: "r"(at(s[rank()])), "l"(&map), "r"(128 * rank()), "r"(bar) : "memory")"""
# CUTLASS has the group before the state spaces.
TO_ALL = r"""asm volatile("cp.async.bulk.tensor.1d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes"
  ".multicast::cluster [%0], [%1, {%2}], [%3], %4;"
  :: "r"(at(s[rank()])), "l"(&map), "r"(128 * rank()), "r"(bar), "h"((u16)0xF) : "memory")"""
EVEN, ODD = "at(&full) & 0xFEFFFFFF", "at(&full) | 1 << 24"
HOLES = {"CLUSTER": "2", "WAITS": "0", "BARRIER": EVEN, "BYTES": "1024", "BRING": ALONE, "FIRST": "rank()", "STEP": "2"}


def loads(schedule: Schedule = ASCENDING, **holes: str) -> tuple[np.ndarray, str]:
    """What each block has of two boxes, (blocks, 2, 128), and the source."""
    source = LOADS
    for name, text in (HOLES | holes).items():
        source = re.sub(rf"\b{name}\b", lambda _, text=text: text, source)
    blocks = int(holes.get("CLUSTER", 2))
    data, out = buffer("data", np.arange(256, dtype=np.uint32)), np.full((blocks, 2, 128), 7, np.uint32)
    box = TensorMap("uint32", data.address, (256,), (), (128,), (1,)).encode()
    launch(module(source, "sm_100a"), "k", (blocks, 1, 1), (128, 1, 1), [box, buffer("out", out)], memory=[data],
           schedule=schedule)  # fmt: skip
    return out, source


@pytest.mark.parametrize("holes", [{}, {"WAITS": "1", "BARRIER": ODD}], ids=["of the even block", "of the odd block"])
def test_a_copy_counts_its_bytes_at_the_mbarrier_of_the_peer(holes: dict[str, str]) -> None:
    for order in ORDERS:
        out, _ = loads(order, **holes)
        assert (out[0] == [np.arange(128), np.full(128, 7)]).all()
        assert (out[1] == [np.full(128, 7), np.arange(128, 256)]).all()


@pytest.mark.parametrize("holes", [{}, {"WAITS": "1", "BARRIER": ODD}], ids=["of the even blocks", "of the odd blocks"])
def test_a_multicast_counts_its_bytes_in_one_block_of_each_pair(holes: dict[str, str]) -> None:
    out, _ = loads(BRING=TO_ALL, CLUSTER="4", BYTES="2048", FIRST="0", STEP="1", **holes)
    assert (out == np.arange(256).reshape(2, 128)).all()


@pytest.mark.parametrize(
    ("holes", "kind", "says"),
    [
        ({"BRING": ALONE.replace(".cta_group::2", "")}, "mbarrier", "of another block than that of its target"),
        ({"CLUSTER": "4", "BARRIER": "at(&full) | 2 << 24"}, "mbarrier", "than that of its target, or its peer"),
        ({"BARRIER": "at(&full) | 3 << 24"}, "out_of_bounds", "of shared memory of block 3 of a cluster of 2"),
        ({"BYTES": "512"}, "race", "reads 4 shared bytes that the copy of thread .* of block .* may still write"),
        ({"BYTES": "2048"}, "mbarrier", "2048 bytes are expected .* and copies bring 1024"),
    ],
    ids=["of no pair", "of another pair", "of no block", "too few bytes", "too many bytes"],
)
def test_faults_of_a_copy_that_counts_in_the_peer(holes: dict[str, str], kind: str, says: str) -> None:
    with pytest.raises(Fault, match=says) as found:
        loads(**holes)
    assert found.value.kind == kind
