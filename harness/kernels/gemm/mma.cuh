// Fragments and mma.sync.
//
// Lane 4g + t is member t of group g. A fragment holds four of the sixteen elements along K of lines g and g + 8.
// Both operands must agree on which four; they decide the order of the sum (NUMERICS 10.2, H2).
#pragma once

#include "numerics/types.cuh"

struct MmaLane {
  int group, member;

  __device__ explicit MmaLane(u32 thread) : group(thread % 32 / 4), member(thread % 4) {}
};

struct FragmentM16 {
  u32 word[4];  // 16 lines: g, g + 8, g, g + 8
};

struct FragmentN8 {
  u32 word[2];  // 8 lines
};

struct Accumulator {
  float value[4];  // (line of M, line of N): (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
};

// sum += m16 * n8^T in fp32, in the hardware's order (NUMERICS 10.2, H3)
__device__ __forceinline__ void mma_m16n8k16(Accumulator& sum, const FragmentM16& m16, const FragmentN8& n8) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum.value[0]), "+f"(sum.value[1]), "+f"(sum.value[2]), "+f"(sum.value[3])
      : "r"(m16.word[0]), "r"(m16.word[1]), "r"(m16.word[2]), "r"(m16.word[3]), "r"(n8.word[0]), "r"(n8.word[1]));
}
