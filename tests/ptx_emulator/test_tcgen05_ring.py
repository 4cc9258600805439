"""A persistent kernel of three roles: one thread loads, one has the matrix unit multiply, four warps take the results.

Slots of shared memory and stages of tensor memory go round by mbarriers. It is right in every order, and a fault once
one of its handshakes is left out.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, module
from tcgen05_source import FUNCTIONS, instruction, matrix
from wgmma_source import encoded, image

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

TILES, STEPS, COLUMNS = 3, 3, 16  # a block multiplies 3 tiles of 128x16, 3 times 64 deep
BYTES = 128 * 128, COLUMNS * 128  # of a step of A and of B

RING = (
    FUNCTIONS
    + r"""
extern "C" __global__ void k(const u8* in_a, const u8* in_b, float* out) {
  constexpr u32 kA = A_BYTES, kB = B_BYTES;
  __shared__ alignas(1024) u8 a[2][kA];
  __shared__ alignas(1024) u8 b[2][kB];
  __shared__ u64 full[2], empty[2], ready[2], taken[2]; __shared__ u32 where;
  const u32 t = threadIdx.x;
  if (t < 32) { allocate(&where, 32); relinquish(); }
  if (t == 160) {
    for (int i = 0; i < 2; ++i) { init(full[i], 1); init(empty[i], 1); init(ready[i], 1); init(taken[i], 128); }
    ASM("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  const u32 d = where;
  if (t == 128) {
    for (u32 i = 0; i < TILES * STEPS; ++i) {
      const u32 slot = i & 1;
      wait(empty[slot], i / 2 & 1 ^ 1);  // slot is free
      expect(full[slot], kA + kB);
      load(a[slot], in_a + i * kA, kA, full[slot]);
      load(b[slot], in_b + i * kB, kB, full[slot]);
    }
  } else if (t == 160) {
    u32 i = 0;
    for (u32 tile = 0; tile < TILES; ++tile) {
      const u32 stage = tile & 1;
      wait(taken[stage], tile / 2 & 1 ^ 1);  // stage is free
      for (u32 step = 0; step < STEPS; ++step, ++i) {
        const u32 slot = i & 1;
        wait(full[slot], i / 2 & 1);  // slot is full
        const u64 left = MATRIX + (at(a[slot]) >> 4), right = MATRIX + (at(b[slot]) >> 4);
        for (u32 j = 0; j < 4; ++j) multiply(d + stage * 16, left + 2 * j, right + 2 * j, WHICH, step || j);
        arrive_when_done(empty[slot]);  // slot is read
      }
      arrive_when_done(ready[stage]);  // stage is full
    }
  } else if (t < 128) {
    for (u32 tile = 0; tile < TILES; ++tile) {
      const u32 stage = tile & 1;
      wait(ready[stage], tile / 2 & 1);  // stage is waited for
      u32 row[16];
      for (u32 j = 0; j < 16; ++j) row[j] = tensor_load(d + stage * 16 + j + (t / 32 << 21));
      wait_ld();  // loaded
      arrive(taken[stage]);  // stage is taken
      for (u32 j = 0; j < 16; ++j) out[(tile * 128 + t) * 16 + j] = __uint_as_float(row[j]);
    }
  }
  __syncthreads();  // all is done
  if (t < 32) deallocate(d, 32);
}
"""
)
for name, value in {
    "TILES": TILES, "STEPS": STEPS, "A_BYTES": BYTES[0], "B_BYTES": BYTES[1],
    "MATRIX": hex(matrix(0, 0, 1024, 1)) + "ull", "WHICH": hex(instruction(128, COLUMNS)),
}.items():  # fmt: skip
    RING = RING.replace(name, str(value))


def run(source: str, **options) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel writes, and what is right."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-9, 9, (TILES, n, STEPS * 64)) for n in (128, COLUMNS))
    parts = [[tile[:, k : k + 64] for tile in each for k in range(0, STEPS * 64, 64)] for each in (a, b)]
    images = [np.stack([image(encoded(part, "bf16"), 1, 0, 1024) for part in each]) for each in parts]
    out = np.zeros((TILES, 128, COLUMNS), np.float32)
    buffers = [buffer("a", images[0]), buffer("b", images[1]), buffer("out", out)]
    launch(module(source, "sm_100a"), "k", (1, 1, 1), (192, 1, 1), buffers, **options)
    return out, (a @ b.swapaxes(1, 2)).astype(np.float32)


ORDERS = (ASCENDING, DESCENDING, *(Schedule(seed=seed) for seed in range(3)))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_order_gives_the_products(order: Schedule) -> None:
    got, right = run(RING, schedule=order)
    assert (got == right).all()


def without(line: str) -> str:
    """The kernel without the line that ends with this comment."""
    lines = [text for text in RING.splitlines() if not text.rstrip().endswith(f"// {line}")]
    assert len(lines) == len(RING.splitlines()) - 1
    return "\n".join(lines)


# Each drops one synchronisation of the ring, or puts a weaker one there.
MUTANTS = {
    "the slot is loaded before it is read": without("slot is free"),
    "the product before the slot is full": without("slot is full"),
    "a product into a stage that is being taken": without("stage is free"),
    "a stage is taken before it is full": without("stage is waited for"),
    "loads are not waited for": without("loaded"),
    "a plain arrival for the slot": RING.replace("arrive_when_done(empty[slot])", "arrive(empty[slot])"),
    "a plain arrival for the stage": RING.replace("arrive_when_done(ready[stage])", "arrive(ready[stage])"),
    "nobody says that the slot is read": without("slot is read"),
    "nobody says that the stage is full": without("stage is full"),
    "nobody says that the stage is taken": without("stage is taken"),
    "taken before it is loaded": RING.replace("arrive(taken[stage]);  // stage is taken", "").replace(
        "u32 row[16];", "u32 row[16]; arrive(taken[stage]);"
    ),
    "freed at once": without("all is done"),
    "one stage for both": RING.replace("d + stage * 16 + j", "d + j").replace("d + stage * 16", "d"),
    "the wrong parity of the slot": RING.replace("wait(full[slot], i / 2 & 1)", "wait(full[slot], i / 2 & 1 ^ 1)"),
    "the wrong parity of the stage": RING.replace("wait(ready[stage], tile / 2 & 1)", "wait(ready[stage], 1)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_each_handshake_is_needed(name: str) -> None:
    assert MUTANTS[name] != RING
    with pytest.raises(Fault) as found:
        for order in ORDERS:
            run(MUTANTS[name], schedule=order)
    assert found.value.kind in ("race", "deadlock", "mbarrier", "tensor_memory", "out_of_bounds")
    assert "kernel.cu:" in found.value.sentence
