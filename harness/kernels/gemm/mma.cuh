// The instructions that feed matrix units, and the fragments they work on; no numerics.
//
// Lane 4g + t of a warp is member t of group g. In a fragment it holds, of line g and of line g + 8 if there is one,
// four elements of the sixteen along K. Which four is of no matter as long as both operands agree: a sum has no order.
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
  float value[4];  // (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1): line of the wide one, line of the narrow one
};

// sum += wide * narrow^T, of f16, in fp32 and in no particular order
__device__ __forceinline__ void mma_m16n8k16(Accumulator& sum, const FragmentM16& m16, const FragmentN8& n8) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum.value[0]), "+f"(sum.value[1]), "+f"(sum.value[2]), "+f"(sum.value[3])
      : "r"(m16.word[0]), "r"(m16.word[1]), "r"(m16.word[2]), "r"(m16.word[3]), "r"(n8.word[0]), "r"(n8.word[1]));
}
