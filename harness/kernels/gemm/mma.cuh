// The instructions that feed matrix units, and the fragments they work on; no numerics.
//
// Lane 4g + t of a warp is member t of group g. In a fragment it holds, of line g and of line g + 8 if there is one,
// four elements of the sixteen along K. Which four is of no matter as long as both operands agree: a sum has no order.
#pragma once

#include "numerics/types.cuh"

struct Lane {
  int group, member;

  __device__ explicit Lane(u32 thread) : group(thread % 32 / 4), member(thread % 4) {}
};

struct WideFragment {
  u32 word[4];  // 16 lines: g, g + 8, g, g + 8
};

struct NarrowFragment {
  u32 word[2];  // 8 lines
};

struct Accumulator {
  float value[4];  // (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1): line of the wide one, line of the narrow one
};

// sum += wide * narrow^T, of f16, in fp32 and in no particular order
__device__ __forceinline__ void multiply_add(Accumulator& sum, const WideFragment& wide, const NarrowFragment& narrow) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum.value[0]), "+f"(sum.value[1]), "+f"(sum.value[2]), "+f"(sum.value[3])
      : "r"(wide.word[0]), "r"(wide.word[1]), "r"(wide.word[2]), "r"(wide.word[3]), "r"(narrow.word[0]),
        "r"(narrow.word[1]));
}

// ---------------------------------------------------------------------------------------------------------------------
// Copies from global to shared memory, which land while the threads go on
// ---------------------------------------------------------------------------------------------------------------------

// target: shared memory; both aligned to `bytes`. Zeros are written if not `used`, and nothing is read.
template <int bytes>
__device__ __forceinline__ void copy_async(void* target, const void* source, bool used) {
  const u32 address = u32(__cvta_generic_to_shared(target));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source), "n"(bytes),
               "r"(used ? bytes : 0)
               : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait for this thread's copies, all but the `left` groups committed last.
template <int left>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// The value, of which the compiler forgets where it comes from: what depends on it is not made ahead of a loop and
// kept in registers.
__device__ __forceinline__ u32 made_here(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
