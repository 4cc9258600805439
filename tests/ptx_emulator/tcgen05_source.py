"""CUDA C++ around `tcgen05`, and descriptors by the manual's tables."""

from __future__ import annotations

from async_source import PRELUDE

MODES = {0: 0, 1: 2, 2: 4, 3: 6}  # of swizzling: as `wgmma_source` counts them, and as a descriptor has them

FUNCTIONS = (
    PRELUDE
    + r"""
__device__ void allocate(u32* where, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
               :: "r"(at(where)), "r"(columns) : "memory");
}
__device__ void relinquish() { ASM("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"); }
__device__ void deallocate(u32 address, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;"
               :: "r"(address), "r"(columns) : "memory");
}
__device__ void arrive_when_done(u64& bar) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
               :: "r"(at(&bar)) : "memory");
}
__device__ void wait_ld() { ASM("tcgen05.wait::ld.sync.aligned;"); }
__device__ void wait_st() { ASM("tcgen05.wait::st.sync.aligned;"); }
__device__ u32 tensor_load(u32 address) {
  u32 out;
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(out) : "r"(address) : "memory");
  return out;
}
__device__ void tensor_store(u32 address, u32 value) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};"
               :: "r"(address), "r"(value) : "memory");
}
__device__ void multiply(u32 d, u64 a, u64 b, u32 which, u32 added) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; "
               "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"
               :: "r"(d), "l"(a), "l"(b), "r"(which), "r"(added) : "memory");
}
__device__ void multiply_some(u32 d, u64 a, u64 b, u32 which, u32 added, u32 m0, u32 m1, u32 m2, u32 m3) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; "
               "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, {%5, %6, %7, %8}, p; }"
               :: "r"(d), "l"(a), "l"(b), "r"(which), "r"(added),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3) : "memory");
}
__device__ void multiply_tensor(u32 d, u32 a, u64 b, u32 which, u32 added) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; "
               "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }"
               :: "r"(d), "r"(a), "l"(b), "r"(which), "r"(added) : "memory");
}
__device__ void copy_scales(u32 to, u64 from) {
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"
               :: "r"(to), "l"(from) : "memory");
}
#define SCALED(KIND) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; " \
               "tcgen05.mma.cta_group::1.kind::" KIND " [%0], %1, %2, %3, [%5], [%6], p; }" \
               :: "r"(d), "l"(a), "l"(b), "r"(which), "r"(added), "r"(sa), "r"(sb) : "memory")
"""
)

# The same for two blocks of a cluster.
OF_PAIR = (
    FUNCTIONS.replace("cta_group::1", "cta_group::2")
    + r"""
__device__ void arrive_in(u64& bar, u16 blocks) {
  asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
               :: "r"(at(&bar)), "h"(blocks) : "memory");
}
__device__ u64 in(const void* matrix) { return (at(matrix) & 0x3FFFF) >> 4; }
"""
)


def matrix(start: int, leading: int, stride: int, mode: int = 0) -> int:
    """The 64 bits of a matrix in shared memory; to move it by some bytes, add bytes >> 4. mode: as in MODES"""
    fields = (start & 0x3FFFF) >> 4 | (leading & 0x3FFFF) >> 4 << 16 | (stride & 0x3FFFF) >> 4 << 32
    return fields | 1 << 46 | MODES[mode] << 61


# The end of a kernel of 128 threads: each writes the words of its lane to `out` once `done` has its phase.
WRITE_OUT = r"""
  wait(done, 0);
  for (int j = 0; j < WORDS; ++j) {
    const u32 value = tensor_load(d + mine + j);
    wait_ld();
    out[t * WORDS + j] = value;
  }
  __syncthreads();
  if (t < 32) deallocate(d, ALLOCATED);
}
"""


def write_out(words: str, allocated: int) -> str:
    """WRITE_OUT of so many words, whose number has this name, from so many columns of tensor memory."""
    return WRITE_OUT.replace("WORDS", words).replace("ALLOCATED", str(allocated))


def instruction(
    rows: int, columns: int, kind: str = "bf16", signs: tuple[int, int] = (1, 1), across: tuple[int, int] = (0, 0)
) -> int:
    """The 32 bits that describe a product with a float32 D. kind: of A and B, or of both with a comma between"""
    types = [{"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1}[each] for each in (kind.split(",") * 2)[:2]]
    negated = [sign < 0 for sign in signs]
    out = (
        1 << 4
        | types[0] << 7
        | types[1] << 10
        | negated[0] << 13
        | negated[1] << 14
        | across[0] << 15
        | across[1] << 16
    )
    return out | columns // 8 << 17 | rows // 16 << 24


def scaled_instruction(columns: int, ue8m0: bool = False, ids: tuple[int, int] = (0, 0)) -> int:
    """The 32 bits that describe a product of e2m1 with scales, of 128 rows. ids: bytes where the scales begin"""
    return ids[1] << 4 | 1 << 7 | 1 << 10 | columns // 8 << 17 | ue8m0 << 23 | 128 // 16 << 24 | ids[0] << 29


def lane_of(row: int, rows: int) -> int:
    """The lane of tensor memory of a row of D, from the manual's figures of 128 and of 64 rows."""
    return row if rows == 128 else row // 16 * 32 + row % 16
