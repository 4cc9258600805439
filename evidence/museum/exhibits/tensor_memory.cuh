// Tensor memory and products of bf16 on Blackwell in inline PTX, as short functions.
#pragma once

#include "asynchronous.cuh"

// Matrices of rows of 128 swizzled bytes in shared memory, and a product of 128x16 by 16x16 that replaces D.
constexpr u64 kSwizzled = 2ull << 61 | 1ull << 46 | (u64)(1024 >> 4) << 32;
constexpr u32 kProduct = 1 << 4 | 1 << 7 | 1 << 10 | 16 / 8 << 17 | 128 / 16 << 24;

__device__ void allocate(u32* where, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(at(where)), "r"(columns)
               : "memory");
}
__device__ void deallocate(u32 address, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}
__device__ void multiply(u32 d, const void* a, const void* b) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, 0, 0;\n tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::"r"(d),
      "l"(kSwizzled | at(a) >> 4), "l"(kSwizzled | at(b) >> 4), "r"(kProduct)
      : "memory");
}
__device__ void arrive_when_done(u64& bar) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(at(&bar))
               : "memory");
}
__device__ u32 tensor_load(u32 address) {
  u32 out;
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(out) : "r"(address) : "memory");
  return out;
}
__device__ void tensor_store(u32 address, u32 value) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(address), "r"(value) : "memory");
}
__device__ void wait_ld() { ASM("tcgen05.wait::ld.sync.aligned;"); }
__device__ void wait_st() { ASM("tcgen05.wait::st.sync.aligned;"); }
// A warp of each block of a pair allocates, and frees, together with the other's.
__device__ void allocate_in_pair(u32* where, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(at(where)), "r"(columns)
               : "memory");
}
__device__ void deallocate_in_pair(u32 address, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}
