// cp.async: copies from global to shared memory that take no registers.
#pragma once

#include "numerics/types.cuh"

// Starts a copy, or a fill with zeros if not `used`. target: shared memory; both aligned to `bytes`
template <int bytes>
__device__ __forceinline__ void cp_async(void* target, const void* source, bool used) {
  const u32 address = u32(__cvta_generic_to_shared(target));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source), "n"(bytes),
               "r"(used ? bytes : 0)
               : "memory");
}

// Like cp_async<16>, but bypasses the L1 and prefetches the surrounding 256 bytes into the L2.
__device__ __forceinline__ void cp_async_16(void* target, const void* source, bool used) {
  const u32 address = u32(__cvta_generic_to_shared(target));
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(address), "l"(source), "r"(used ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for this thread's copies, all but the `left` groups committed last.
template <int left>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Waits for all copies of this thread, committed or not.
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
