// per_tensor: a block, and a tile in both directions.
#pragma once

#include "memory/block_io.cuh"
#include "numerics/nvfp4.cuh"
#include "numerics/rht.cuh"
#include "reduce/amax_16x16.cuh"
#include "scheduler/dependent_launch.cuh"
#include "scheduler/launch.cuh"

// Steps 4 to 6 of sixteen values. amax: of all values that share the scale
template <Rounding rounding, bool fast_math, ScaleFormat format>
__device__ __forceinline__ EncodedBlock per_tensor_encode_block(
    float (&x)[kBlock], float amax, const GlobalScaleOf<format>& global, u64 seed, i64 block, u32 direction,
    u32 offset) {
  constexpr Multiplier multiplier = fast_math ? Multiplier::fast : Multiplier::reciprocal;
  if constexpr (rounding == Rounding::rne) return encode_block<multiplier>(x, amax, global);
  return encode_block<multiplier>(x, amax, global, philox(seed, u64(block), direction, offset));
}

// Encodes the part of the TransposeTile at `origin` inside the matrix, and writes the padding of its scales. All
// threads call this; shared memory may be reused after the next barrier.
// rowwise_amax(), columnwise_amax(): of the tensor in either direction, read only behind the wait for their launch
template <
    Block block, Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool fast_math, int sign_mask,
    ScaleFormat format = ScaleFormat::e4m3, bool two_levels = true, typename Dtype, typename Prologue,
    typename RowwiseAmax, typename ColumnwiseAmax>
__device__ __forceinline__ void per_tensor_tile(
    EncodeSmem<Dtype>& shared, const Prologue& prologue, RowwiseAmax rowwise_amax, ColumnwiseAmax columnwise_amax,
    const Quantized& rowwise, const Quantized& columnwise, int rows, int cols, const TileOrigin& origin, u64 seed,
    u32 offset) {
  static_assert(!rht || (sizeof(Dtype) == 2 && block == Block::block_1x16), "rht is defined on bf16 in 1x16 blocks");
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
        x[i] = prologue.block(rowwise_extents, origin.row + role.row(i), block_col);
      }
      if (pass == 0) wait_for_launch_ahead();
      const float tensor_amax = outputs == Outputs::both ? rowwise_amax() : 0.0f;  // ahead, to hide the latency
      float amax[Pass::kLines];
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) {
        amax[i] = block_amax(x[i]);
        shared.tile.store(role, i, x[i]);
      }
      if constexpr (block == Block::block_16x16) {
        amax_16x16<Pass::kBlocks>(amax);
        if (role.first == 0) shared.amax_16x16[role.band][role.block] = amax[0];
      }
      if constexpr (outputs == Outputs::both) {
        const auto global = tensor_scale<format, two_levels>(tensor_amax);
        const TileStore<scale_layout> target(rowwise, rowwise_extents, origin.row + role.row(0), block_col);
#pragma unroll
        for (int i = 0; i < Pass::kLines; ++i) {
          const int row = origin.row + role.row(i);
          const i64 index = block_index(rowwise_extents, row, block_col);
          float values[kBlock];
          unpack(x[i], values);
          const EncodedBlock encoded =
              per_tensor_encode_block<rounding, fast_math>(values, amax[i], global, seed, index, 0, offset);
          target.store(i * role.kStep, encoded);
        }
      }
    }
    const float tensor_amax = columnwise_amax();
    __syncthreads();
    // Columnwise from shared memory
    {
      const ColumnRole role;
      const int block_row = u32(origin.row) / kBlock + role.band;
      const auto global = tensor_scale<format, two_levels>(tensor_amax);
      const TileStore<scale_layout> target(columnwise, columnwise_extents, first_col + role.col, block_row);
#pragma unroll
      for (int pair_index = 0; pair_index < Pass::kPairs; ++pair_index) {
        const ColumnPair<Dtype> pair = shared.tile.column_pair(role, pair_index);
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          const int col_in_tile = role.pair_col(pair_index) + column, col = first_col + col_in_tile;
          float values[kBlock];
          pair.unpack(column, values);
          float amax;
          if constexpr (rht) {
            const Packed16<bf16> y = rht16_bf16_for_codes<sign_mask>(values);
            amax = block_amax(y);
            unpack(y, values);
          } else if constexpr (block == Block::block_16x16) {
            amax = shared.amax_16x16[role.band][col_in_tile / kBlock];
          } else {
            amax = pair.amax(column);
          }
          const i64 index = block_index(columnwise_extents, col, block_row);
          const EncodedBlock encoded =
              per_tensor_encode_block<rounding, fast_math>(values, amax, global, seed, index, 1, offset);
          target.store(pair_index * role.kStep + column, encoded);
        }
      }
    }
    if (Pass::kPasses > 1) __syncthreads();
  }
}
