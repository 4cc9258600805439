// four_over_six: a tile of rows, and a tile in both directions.
#pragma once

#include "memory/block_io.cuh"
#include "numerics/map4_map6.cuh"
#include "reduce/amax_16x16.cuh"
#include "scheduler/dependent_launch.cuh"
#include "scheduler/launch.cuh"

// rowwise: the bands of a tile lie side by side, so that a CTA stores 32 contiguous scale bytes.
struct FourOverSixRows {
  static constexpr int kThreads = 256, kBlocks = 4;
  static constexpr int kRows = kBlock, kCols = kThreads / 32 * kBlocks * kBlock;
};

// As many as registers allow without spilling.
template <typename Dtype, Block block>
constexpr int kFourOverSixBlocksPerSm =
    sizeof(Dtype) == 4 || (block == Block::block_16x16 && __CUDA_ARCH__ != 900) ? 2 : 3;

// Step 7: replaces the errors of a thread's lines by that of their 16x16 block. Lanes 16 apart hold lines farther apart
// than lanes 8 apart, and so on.
//
// RowRole: a thread's own lines are the farthest apart.
template <int blocks>
__device__ __forceinline__ void sum_rows(float (&error)[blocks / 2]) {
#pragma unroll
  for (int distance = blocks / 4; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < distance; ++i) error[i] = __fadd_rn(error[i], error[i + distance]);
  }
#pragma unroll
  for (int offset = 16; offset >= blocks; offset /= 2) {
    error[0] = __fadd_rn(error[0], __shfl_xor_sync(~0u, error[0], offset));
  }
#pragma unroll
  for (int i = 1; i < blocks / 2; ++i) error[i] = error[0];
}

// ColumnRole of 16x16 blocks: a thread's two lines are neighbours.
__device__ __forceinline__ void sum_columns(float (&error)[2]) {
#pragma unroll
  for (int offset = 16; offset >= 4; offset /= 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) error[i] = __fadd_rn(error[i], __shfl_xor_sync(~0u, error[i], offset));
  }
  error[0] = error[1] = __fadd_rn(error[0], error[1]);
}

// Step 7. line_errors(i): of a thread's line i
template <Outputs direction, int lines, typename LineErrors>
__device__ __forceinline__ Errors tile_errors(LineErrors line_errors) {
  float map4[lines], map6[lines];
#pragma unroll
  for (int i = 0; i < lines; ++i) {
    const Errors errors = line_errors(i);
    map4[i] = errors.map4;
    map6[i] = errors.map6;
  }
  if constexpr (direction == Outputs::rowwise) {
    sum_rows<2 * lines>(map4);
    sum_rows<2 * lines>(map6);
  } else {
    sum_columns(map4);
    sum_columns(map6);
  }
  return {map4[0], map6[0]};
}

// Steps 1 to 8 for a thread's blocks. values(i, x): the sixteen elements of line i; block_amax(i): its amax, or that of a
// 16x16 block; amax: of each line, or of the tensor; unrolled: of 1x16 blocks, how many lines the code has side by side
template <
    Block block, Outputs direction, Error error, int e4m3_max, ErrorMath error_math, int step, int lines, int unrolled,
    int granules, typename Values, typename BlockAmax>
__device__ __forceinline__ void encode_lines(
    Values values, BlockAmax block_amax, const float (&amax)[granules], const Quantized& output,
    const ScaleExtents& extents, int line, int block_in_line) {
  static_assert(granules == 1 || unrolled == lines, "granules are in registers, which have no index at run time");
  const TileStore<ScaleLayout::compact> target(output, extents, line, block_in_line);
  float granule_amax = amax[0];
  GlobalScale global = global_scale(granule_amax, float(e4m3_max));
  if constexpr (block == Block::block_1x16) {
#pragma unroll unrolled
    for (int i = 0; i < lines; ++i) {
      if (granules > 1 && i > 0) {
        granule_amax = amax[i];
        global = global_scale(granule_amax, float(e4m3_max));
      }
      float x[kBlock];
      values(i, x);
      const Map4Map6 scales(block_amax(i), granule_amax, global);
      Errors errors = approximate_errors<error>(x, scales, global);
      if (undecided<error, 1>(errors, scales)) {
        errors = contract_errors<error, error_math, e4m3_max>(x, scales, granule_amax, global);
      }
      target.store(i * step, encode_smaller_error(x, scales, errors, global));
    }
  } else {
    const Map4Map6 scales(block_amax(0), granule_amax, global);
    Errors errors = tile_errors<direction, lines>([&](int i) {
      float x[kBlock];
      values(i, x);
      return approximate_errors<error>(x, scales, global);
    });
    if (__any_sync(~0u, undecided<error, kBlock>(errors, scales))) {
      errors = tile_errors<direction, lines>([&](int i) {
        float x[kBlock];
        values(i, x);
        return contract_errors<error, error_math, e4m3_max>(x, scales, granule_amax, global);
      });
    }
#pragma unroll
    for (int i = 0; i < lines; ++i) {
      float x[kBlock];
      values(i, x);
      target.store(i * step, encode_smaller_error(x, scales, errors, global));
    }
  }
}

// Encodes the FourOverSixRows at `origin`, given the amaxes, and writes the padding of its scales. All threads call
// this.
// rowwise_amax: (1,), or (rows,) with row_scaled
template <typename Dtype, Block block, Error error, int e4m3_max, ErrorMath error_math, bool row_scaled>
__device__ __forceinline__ void four_over_six_rows(
    const Dtype* __restrict__ input, const float* __restrict__ rowwise_amax, const Quantized& rowwise, int rows,
    int cols, const TileOrigin& origin) {
  const RowRole<FourOverSixRows::kBlocks> role;
  const ScaleExtents extents(rows, u32(cols) / kBlock);
  const int block_col = u32(origin.col) / kBlock + role.band * FourOverSixRows::kBlocks + role.block;
  const int row[2] = {origin.row + role.row_in_band(0), origin.row + role.row_in_band(1)};
  Packed16<Dtype> x[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) x[i] = load_block<true>(input, extents, row[i], block_col);
  wait_for_launch_ahead();
  if (row_scaled && rows == 0) return;  // a thread outside the matrix takes the amax of the last row
  float granule_amax[row_scaled ? 2 : 1];
#pragma unroll
  for (int i = 0; i < (row_scaled ? 2 : 1); ++i) {
    granule_amax[i] = amax_of_launch_ahead(row_scaled ? rowwise_amax + min(row[i], rows - 1) : rowwise_amax);
  }
  float amax[2] = {block_amax(x[0]), block_amax(x[1])};
  if constexpr (block == Block::block_16x16) amax_16x16<FourOverSixRows::kBlocks>(amax);
  encode_lines<block, Outputs::rowwise, error, e4m3_max, error_math, RowRole<FourOverSixRows::kBlocks>::kStep, 2, 2>(
      [&](int i, float (&values)[kBlock]) { unpack(x[i], values); }, [&](int i) { return amax[i]; }, granule_amax,
      rowwise, extents, row[0], block_col);
}

template <typename Dtype>
using TileAmax16x16 = float[TransposePass<Dtype>::kBands][TransposePass<Dtype>::kBlocks];

// Encodes the TransposeTile at `origin`, given the amaxes, and writes the padding of its scales. All threads call this;
// shared memory may be reused after the next barrier.
template <typename Dtype, Block block, Outputs outputs, Error error, int e4m3_max, ErrorMath error_math>
__device__ __forceinline__ void four_over_six_tile(
    TransposeSmem<Dtype>& tile, TileAmax16x16<Dtype>& tile_amax, const Dtype* __restrict__ input,
    const float* __restrict__ rowwise_amax, const float* __restrict__ columnwise_amax, const Quantized& rowwise,
    const Quantized& columnwise, int rows, int cols, const TileOrigin& origin) {
  using Pass = TransposePass<Dtype>;
  const ScaleExtents rowwise_extents(rows, u32(cols) / kBlock), columnwise_extents(cols, u32(rows) / kBlock);

  for (int pass = 0; pass < Pass::kPasses; ++pass) {
    const int first_col = origin.col + pass * Pass::kCols;
    // Rowwise, on the way into shared memory
    {
      const typename Pass::Role role;
      const int block_col = u32(first_col) / kBlock + role.block;
      int row[Pass::kLines];
      Packed16<Dtype> x[Pass::kLines];
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) {
        row[i] = origin.row + role.row(i);
        x[i] = load_block(input, rowwise_extents, row[i], block_col);
      }
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) tile.store(role, i, x[i]);
      float amax[Pass::kLines];
      if constexpr (block == Block::block_16x16) {
#pragma unroll
        for (int i = 0; i < Pass::kLines; ++i) amax[i] = block_amax(x[i]);
        amax_16x16<Pass::kBlocks>(amax);
        if (role.first == 0) tile_amax[role.band][role.block] = amax[0];
      }
      if constexpr (outputs == Outputs::both) {
        const float tensor_amax[1] = {__ldg(rowwise_amax)};
        // Lines are read again from shared memory, because registers for them would leave fewer CTAs.
        encode_lines<block, Outputs::rowwise, error, e4m3_max, error_math, Pass::Role::kStep, Pass::kLines, 1>(
            [&](int i, float (&values)[kBlock]) { unpack(tile.load(role, i), values); },
            [&](int i) { return block == Block::block_16x16 ? amax[0] : block_amax(tile.load(role, i)); }, tensor_amax,
            rowwise, rowwise_extents, row[0], block_col);
      }
    }
    __syncthreads();
    // Columnwise from shared memory
    {
      const ColumnRole role = block == Block::block_16x16 ? ColumnRole::of_16x16_blocks() : ColumnRole();
      const int block_row = u32(origin.row) / kBlock + role.band;
      const float tensor_amax[1] = {__ldg(columnwise_amax)};
#pragma unroll 1
      for (int pair_index = 0; pair_index < Pass::kPairs; ++pair_index) {
        const int col_in_tile = role.pair_col(pair_index);
        const ColumnPair<Dtype> pair = tile.column_pair(role, pair_index);
        encode_lines<block, Outputs::columnwise, error, e4m3_max, error_math, 1, 2, 2>(
            [&](int i, float (&values)[kBlock]) { pair.unpack(i, values); },
            [&](int i) {
              return block == Block::block_16x16 ? tile_amax[role.band][col_in_tile / kBlock] : pair.amax(i);
            },
            tensor_amax, columnwise, columnwise_extents, first_col + col_in_tile, block_row);
      }
    }
    if (Pass::kPasses > 1) __syncthreads();
  }
}
