// Sums of a warp, through shared memory, to an epilogue that takes neighbours of a row.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/mma.cuh"

constexpr int kStagedCols = 64;
constexpr int kStagingStride = 72;  // floats; no bank conflicts between groups of a warp
constexpr int kStagingFloats = 16 * kStagingStride;

// Passes 16 rows by 64 columns of true sums, scaled back from kProductUnit, to store(row, col, sums), eight of a row at a
// time. staging: kStagingFloats of this warp alone; sum: columns 8j to 8j + 7 of the rows from first_row on
template <ScaleFormat scale_format, typename Store>
__device__ __forceinline__ void store_sums(
    float* staging, const Accumulator* sum, int first_row, int first_col, const Store& store) {
  const MmaLane lane(threadIdx.x);
#pragma unroll
  for (int j = 0; j < kStagedCols / 8; ++j) {
    float* target = staging + lane.group * kStagingStride + 8 * j + 2 * lane.member;
    const float* value = sum[j].value;
    *reinterpret_cast<float2*>(target) = make_float2(value[0], value[1]);
    *reinterpret_cast<float2*>(target + 8 * kStagingStride) = make_float2(value[2], value[3]);
  }
  __syncwarp();
#pragma unroll 2  // unrolled by 4, registers spill
  for (int k = 0; k < 4; ++k) {
    const int row = 4 * k + threadIdx.x % 32 / 8, col = threadIdx.x % 8 * 8;
    const float4* source = reinterpret_cast<const float4*>(staging + row * kStagingStride + col);
    const float4 low = source[0], high = source[1];
    float sums[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (float& value : sums) value = __fmul_rn(value, 1.0f / kProductUnit<scale_format>);
    store(first_row + row, first_col + col, sums);
  }
  __syncwarp();
}
