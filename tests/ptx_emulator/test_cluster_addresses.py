"""Addresses in shared memory of a cluster: a block's own hold its rank, where a kernel may reach another block."""

from __future__ import annotations

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, module

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch

pytestmark = pytest.mark.covers("mapa.", "getctarank.")

# Each block writes to its own memory by the variable's name, an address and a generic pointer, and reads it back.
OWN = (
    PRELUDE
    + r"""
extern "C" __global__ void __cluster_dims__(4) k(u32* out) {
  __shared__ u32 s[3][32];
  __shared__ u64 bar;
  const u32 t = threadIdx.x;
  BEGIN
  s[0][t] = blockIdx.x;
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(at(&s[1][t])), "r"(blockIdx.x + 10) : "memory");
  asm volatile("st.u32 [%0], %1;" :: "l"(&s[2][t]), "r"(blockIdx.x + 20) : "memory");
  __syncthreads();
  u32* const other = s[0] + (t + 1) % 32;
  out[(blockIdx.x * 32 + t) * 4] = other[0];
  out[(blockIdx.x * 32 + t) * 4 + 1] = other[32];
  out[(blockIdx.x * 32 + t) * 4 + 2] = other[64];
  out[(blockIdx.x * 32 + t) * 4 + 3] = WORD;
  LAST
}
"""
)
MBARRIER = "if (!t) init(bar, 32); __syncthreads(); arrive(bar); wait(bar, 0);"
CLEARED = r"""[&] { u32 v; asm volatile("ld.shared::cluster.u32 %0, [%1];"
  : "=r"(v) : "r"(at(&s[0][t]) & ~(3u << 24))); return v; }()"""


def run(begin: str = "", word: str = "0", end: str = "") -> np.ndarray:
    out = np.zeros((8, 32, 4), np.uint32)
    source = OWN.replace("BEGIN", begin).replace("WORD", word).replace("LAST", end)
    launch(module(source, "sm_90a"), "k", (8, 1, 1), (32, 1, 1), [buffer("out", out)])
    assert (out[..., :3] == np.arange(8)[:, None, None] + [0, 10, 20]).all()
    return out[:, 0, 3]


@pytest.mark.parametrize("begin", ["", MBARRIER, "meet();"], ids=["no other block", "mbarriers", "a cluster's barrier"])
def test_a_block_finds_its_own_memory(begin: str) -> None:
    assert (run(begin) == 0).all()


def test_an_address_holds_the_rank_of_its_block() -> None:
    assert (run("meet();", "at(s) >> 24") == [0, 1, 2, 3] * 2).all()
    assert (run("meet();", "in_block(s, 2) >> 24") == 2).all()


def test_an_address_without_its_bits_of_a_rank_is_the_first_blocks() -> None:
    """As CUTLASS reaches the even block of a pair."""
    assert (run("meet();", f"(meet(), {CLEARED})", "meet();") == [0, 0, 0, 0, 4, 4, 4, 4]).all()


def test_an_address_of_a_block_that_is_not_there() -> None:
    with pytest.raises(Fault, match="of shared memory of block 7 of a cluster of 4") as found:
        run("meet();", CLEARED.replace("& ~(3u << 24)", "| 7u << 24"), "meet();")
    assert found.value.kind == "out_of_bounds"
