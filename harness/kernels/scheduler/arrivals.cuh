// Counts in global memory at which CTAs arrive. An arrival releases what its thread wrote and, behind a barrier, what
// its CTA wrote; the thread that sees the last arrival acquires it. With a __threadfence() on either side, which is
// fence.sc, a small tensor took a tenth longer.
#pragma once

#include "numerics/types.cuh"

__device__ __forceinline__ u32 load_acquire(const u32* count) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(count)) : "memory");
  return value;
}

// Arrives, and waits until `arrivals` have come.
__device__ __forceinline__ void arrive_and_wait(u32* count, u32 arrivals) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(count)) : "memory");
  while (load_acquire(count) < arrivals) {
  }
}

// Arrives; true for the last of `arrivals`, after which the count is zero again.
__device__ __forceinline__ bool arrives_last(u32* count, u32 arrivals) {
  u32 before;  // inc wraps to 0
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(count)), "r"(arrivals - 1)
               : "memory");
  return before == arrivals - 1;
}
