// local_1x64: a tile in both directions, from one read.
#pragma once

#include "encode/scale_pair.cuh"
#include "memory/block_io.cuh"
#include "memory/transpose_tile.cuh"
#include "scheduler/launch.cuh"

static_assert(
    TransposePass<fp32>::kCols % kWindow == 0 && TransposePass<bf16>::kRows % kWindow == 0,
    "a tile holds whole windows");

// Step 1. A role's two lines have a window each, across four neighbouring lanes: even lanes return the amax of the
// first, odd lanes of the second.
__device__ __forceinline__ float window_amax(const float (&block_amax)[2]) {
  const bool odd = threadIdx.x % 2 != 0;
  const float passed_on = odd ? block_amax[0] : block_amax[1];
  const float amax = fmaxf(odd ? block_amax[1] : block_amax[0], __shfl_xor_sync(~0u, passed_on, 1));
  return fmaxf(amax, __shfl_xor_sync(~0u, amax, 2));
}

// Stores two windows' amaxes by the first two of their four lanes. own: from window_amax, for block `block` of line
// `line`
__device__ __forceinline__ void store_window_amax(
    float* __restrict__ amax, float own, const ScaleExtents& extents, int line, int block) {
  const int window = u32(block) / kWindowBlocks, windows = u32(extents.blocks) / kWindowBlocks;
  if (threadIdx.x % kWindowBlocks < 2 && line < extents.rows && window < windows)
    amax[row_offset(line, windows) + window] = own;
}

// Output of one direction; null if absent
struct WindowOutput {
  float* __restrict__ amax;  // (lines, elements/64)
  Quantized quantized;
};

// Quantizes the TransposeTile at `origin`. All threads call this; shared memory may be reused after the next barrier.
template <typename Dtype, Outputs outputs, Multiplier multiplier, ScaleLayout scale_layout>
__device__ __forceinline__ void local_1x64_tile(
    TransposeSmem<Dtype>& tile, const Dtype* __restrict__ input, const WindowOutput& rowwise,
    const WindowOutput& columnwise, int rows, int cols, const TileOrigin& origin) {
  using Pass = TransposePass<Dtype>;
  const ScaleExtents rowwise_extents(rows, u32(cols) / kBlock), columnwise_extents(cols, u32(rows) / kBlock);

  for (int pass = 0; pass < Pass::kPasses; ++pass) {
    const int first_col = origin.col + pass * Pass::kCols;
    // Rowwise from registers, on the way into shared memory
    {
      const typename Pass::Role role;
      const int block_col = u32(first_col) / kBlock + role.block;
      Packed16<Dtype> x[Pass::kLines];
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) {
        x[i] = load_block(input, rowwise_extents, origin.row + role.row(i), block_col);
      }
      if constexpr (outputs != Outputs::rowwise) {
#pragma unroll
        for (int i = 0; i < Pass::kLines; ++i) tile.store(role, i, x[i]);
      }
      if constexpr (outputs != Outputs::columnwise) {
        const TileStore<scale_layout> target(rowwise.quantized, rowwise_extents, origin.row + role.row(0), block_col);
#pragma unroll
        for (int pair = 0; pair < Pass::kPairs; ++pair) {
          const float amax[2] = {block_amax(x[2 * pair]), block_amax(x[2 * pair + 1])};
          const float own = window_amax(amax);
          const ScalePair<multiplier> windows(window_scale(own));
          store_window_amax(
              rowwise.amax, own, rowwise_extents, origin.row + role.row(2 * pair + threadIdx.x % 2), block_col);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float values[kBlock];
            unpack(x[2 * pair + i], values);
            const EncodedBlock encoded = encode_block<multiplier>(values, amax[i], windows.scale[i]);
            target.store((2 * pair + i) * role.kStep, encoded);
          }
        }
      }
    }
    if constexpr (outputs == Outputs::rowwise) continue;
    __syncthreads();
    // Columnwise from shared memory
    {
      const ColumnRole role;
      const int block_row = u32(origin.row) / kBlock + role.band;
      const TileStore<scale_layout> target(columnwise.quantized, columnwise_extents, first_col + role.col, block_row);
#pragma unroll
      for (int pair_index = 0; pair_index < Pass::kPairs; ++pair_index) {
        const int col = first_col + role.pair_col(pair_index);
        const ColumnPair<Dtype> pair = tile.column_pair(role, pair_index);
        const float amax[2] = {pair.amax(0), pair.amax(1)};
        const float own = window_amax(amax);
        const ScalePair<multiplier> windows(window_scale(own));
        store_window_amax(columnwise.amax, own, columnwise_extents, col + threadIdx.x % 2, block_row);
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          float values[kBlock];
          pair.unpack(column, values);
          const EncodedBlock encoded = encode_block<multiplier>(values, amax[column], windows.scale[column]);
          target.store(pair_index * role.kStep + column, encoded);
        }
      }
    }
    if (Pass::kPasses > 1) __syncthreads();
  }
}
