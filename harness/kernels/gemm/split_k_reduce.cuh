// The reduction of split K: sums of all splits meet in shared memory and are added in order.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/mma.cuh"

// Sums of 64 columns. The mma's M lines are columns of the output, its N lines are rows.
template <int splits>
struct SplitKReduce {
  static constexpr int kRows = 16;  // rows at a time
  static constexpr int kCols = 64;
  static constexpr int kStride = kCols + 4;          // no bank conflicts between writing lanes
  static constexpr int kAdders = kRows * kCols / 4;  // threads that add

  float sum[splits][kRows][kStride];

  // own[i][j]: this lane's sums of columns 16i from `first_col` on and rows 8j. store(row, col, sums) takes four true
  // sums of a row. All threads call this.
  template <ScaleFormat scale_format, int m16, int n8, typename Store>
  __device__ void add(
      const Accumulator (&own)[m16][n8], int split, int first_col, const MmaLane& lane, const Store& store) {
#pragma unroll
    for (int first = 0; first < n8; first += kRows / 8) {
      // Until here, others may read the operand, or the sums of earlier rows, that this memory holds.
      __syncthreads();
      store_partials(own, first, split, first_col, lane);
      __syncthreads();
      const int row = threadIdx.x / (kCols / 4), col = threadIdx.x % (kCols / 4) * 4;
      if (threadIdx.x < kAdders && 8 * first + row < 8 * n8) {
        float total[4] = {};
        add_splits<scale_format>(total, row, col);
        store(8 * first + row, col, total);
      }
    }
  }

  // Stores this lane's sums of the kRows rows from 8 * first on.
  template <int m16, int n8>
  __device__ __forceinline__ void store_partials(
      const Accumulator (&own)[m16][n8], int first, int split, int first_col, const MmaLane& lane) {
#pragma unroll
    for (int j = first; j < n8 && j < first + kRows / 8; ++j) {
      const int row = (j - first) * 8 + 2 * lane.member;
#pragma unroll
      for (int i = 0; i < m16; ++i) {
        const int col = first_col + 16 * i + lane.group;
        sum[split][row][col] = own[i][j].value[0];
        sum[split][row + 1][col] = own[i][j].value[1];
        sum[split][row][col + 8] = own[i][j].value[2];
        sum[split][row + 1][col + 8] = own[i][j].value[3];
      }
    }
  }

  // Adds four neighbours of a row over the splits, in order.
  template <ScaleFormat scale_format>
  __device__ __forceinline__ void add_splits(float (&total)[4], int row, int col) const {
#pragma unroll
    for (int from = 0; from < splits; ++from) {
      const float4 value = *reinterpret_cast<const float4*>(&sum[from][row][col]);
      total[0] = __fadd_rn(total[0], value.x);
      total[1] = __fadd_rn(total[1], value.y);
      total[2] = __fadd_rn(total[2], value.z);
      total[3] = __fadd_rn(total[3], value.w);
    }
#pragma unroll
    for (float& value : total) value = __fmul_rn(value, 1.0f / kProductUnit<scale_format>);
  }
};
