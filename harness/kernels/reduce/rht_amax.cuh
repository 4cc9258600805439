// Amaxes of a tensor and of its rotation, in one read.
#pragma once

#include "numerics/rht.cuh"

// A thread's running maxima, two to a word. A unit is 16 rows of 4 columns.
struct RhtAmax {
  static constexpr int kCols = 4;
  u32 input = 0, rotated = 0;

  __device__ static u32 units(int rows, int cols) { return u32(rows) / kBlock * (u32(cols) / kCols); }

  // unit: its number in the (rows, cols) matrix
  template <int sign_mask>
  __device__ void add(const bf16* __restrict__ matrix, int cols, u32 unit) {
    const u32 across = u32(cols) / kCols;
    const bf16* line = matrix + i64(unit / across) * kBlock * cols + unit % across * kCols;
    uint2 row[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i, line += cols) row[i] = __ldg(reinterpret_cast<const uint2*>(line));
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      const u32 word[2] = {row[i].x, row[i].y};
      input = max2(input, absmax<bf16>(word), bf16{});
    }
#pragma unroll
    for (int column = 0; column < kCols; ++column) {
      float x[kBlock];
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        const u32 pair = column < 2 ? row[i].x : row[i].y;
        x[i] = column % 2 ? high_to_float(pair, bf16{}) : low_to_float(pair, bf16{});
      }
      rotated = max2(rotated, absmax<bf16>(rht16_bf16<sign_mask>(x).word), bf16{});
    }
  }
};
