// per_token: a tile in both directions, from one read. edges: whether a tile may reach beyond the matrix; without, rows
// and cols are multiples of 128 and nothing is padded.
#pragma once

#include "encode/scale_pair.cuh"
#include "memory/block_io.cuh"
#include "numerics/rht.cuh"
#include "reduce/amax_16x16.cuh"
#include "scheduler/dependent_launch.cuh"
#include "scheduler/launch.cuh"

template <bool weight_2d>
constexpr Multiplier kTokenMultiplier = weight_2d ? Multiplier::reciprocal : Multiplier::direct;

// A row's amax has the floor of a window's, the one amax of a weight has none.
template <bool weight_2d>
__device__ __forceinline__ GlobalScale token_scale(float amax) {
  return weight_2d ? global_scale(amax, kE4m3Max) : window_scale(amax);
}

// Steps 3 to 5 of sixteen values, unnormalised with rht. amax: of all values that share the scale
template <bool rht, Rounding rounding, bool weight_2d>
__device__ __forceinline__ EncodedBlock per_token_encode_block(
    const float (&x)[kBlock], float amax, const GlobalScale& global, u64 seed, i64 block, u32 direction, u32 offset) {
  const E4m3 scale_inv = block_scale_inv(amax, global);
  float multiplier = block_encode_scale<kTokenMultiplier<weight_2d>>(scale_inv.value, global);
  if constexpr (rht) multiplier = __fmul_rn(multiplier, kRhtNorm);
  if constexpr (rounding == Rounding::rne) return {scale_inv.code, encode16_nearest(x, multiplier)};
  return {scale_inv.code, encode16_stochastic(x, multiplier, philox(seed, u64(block), direction, offset))};
}

// The amax of line `line` of the tile that starts at `first`; 0 outside the matrix. Call wait_for_launch_ahead() first.
template <bool edges>
__device__ __forceinline__ float line_amax(const float* __restrict__ amax, int first, int line, int lines) {
  if (edges && first + line >= lines) return 0.0f;
  return amax_of_launch_ahead(amax + first + line);
}

// Where a row of codes is no multiple of 32 bytes, the 64 bytes of a tile's row begin anywhere in a sector, and the L2
// takes longer for parts of sectors (results/NOTES.md). So the blocks of each row may begin up to three left of the
// tile, with a sector. A last tile of one to four blocks has lanes for those that are left; with more, none are moved.
__device__ __forceinline__ int blocks_to_the_left(const TransposePass<bf16>::Role& role, int cols) {
  const u32 blocks = u32(cols) / kBlock;
  return blocks % 8 <= 4 ? int(role.first * blocks % 4) : 0;
}

struct RowBlock {
  Packed16<bf16> x;
  float amax;
};

// A thread's blocks of a tile, rowwise, with their amaxes
struct TileRows {
  using Pass = TransposePass<bf16>;
  Pass::Role role;
  Packed16<bf16> x[Pass::kLines];
  float amax[Pass::kLines];

  // Reads the blocks; zeros outside the matrix. shares: whether to store the tile to shared memory as well; sectors:
  // whether blocks begin with a sector of codes, left of the tile; meanwhile(): called while the loads are in flight
  template <bool shares, bool weight_2d, bool edges, bool sectors = false, typename Prologue, typename Meanwhile>
  __device__ static TileRows load(
      EncodeSmem<bf16>& shared, const Prologue& prologue, int matrix_rows, int cols, const TileOrigin& origin,
      Meanwhile meanwhile) {
    TileRows rows;
    typename Pass::Role role;  // in shared memory
    if constexpr (sectors) {
      rows.role.block -= blocks_to_the_left(role, cols);
      role.block = rows.role.block & (Pass::kBlocks - 1);
    }
#pragma unroll
    for (int i = 0; i < Pass::kLines; ++i) {
      if constexpr (edges) {
        const ScaleExtents extents(matrix_rows, u32(cols) / kBlock);
        const int row = origin.row + role.row(i), block = u32(origin.col) / kBlock + rows.role.block;
        if constexpr (sectors && shares) {
          // The tile's last blocks of a row belong to those left of the next tile.
          const BlockPlace place(extents, row, u32(origin.col) / kBlock + role.block);
          if (rows.role.block < 0)
            shared.tile.copy(role, i, prologue.input + (place.inside ? place.element : 0), place.inside);
        }
        rows.x[i] = sectors && block < 0 ? Packed16<bf16>{} : prologue.block(extents, row, block);
      } else {
        rows.x[i] = prologue.block(row_offset(origin.row + role.row(i), cols) + origin.col + role.block * kBlock);
      }
    }
    meanwhile();
#pragma unroll
    for (int i = 0; i < Pass::kLines; ++i) {
      rows.amax[i] = block_amax(rows.x[i]);
      if (shares && (!sectors || rows.role.block >= 0)) shared.tile.store(role, i, rows.x[i]);
    }
    if constexpr (weight_2d) {
      amax_16x16<Pass::kBlocks>(rows.amax);
      if (role.first == 0) shared.amax_16x16[role.band][role.block] = rows.amax[0];
    }
    return rows;
  }
};

// Encodes a thread's blocks, rowwise. block_of(i): the role's block i; amax_of(pair, row in the tile): the amax of
// the row it divides for in a pair
template <Rounding rounding, ScaleLayout scale_layout, bool weight_2d, bool edges, typename BlockOf, typename AmaxOf>
__device__ __forceinline__ void per_token_encode_rows(
    const TransposePass<bf16>::Role& role, BlockOf block_of, AmaxOf amax_of, const Quantized& rowwise, int rows,
    int cols, const TileOrigin& origin, u64 seed, u32 offset) {
  const bool odd = threadIdx.x % 2 != 0;
  const int block_col = u32(origin.col) / kBlock + role.block, blocks = u32(cols) / kBlock;
  const ScaleExtents extents(edges ? rows : origin.row + TransposeTile::kRows, blocks);  // else to the end of this tile
  const bool left = edges && block_col < 0;  // of the matrix; nothing is stored beyond its padding, either
  const TileStore<scale_layout, edges> target(
      rowwise, extents, origin.row + role.row(0), left ? extents.padded_blocks : block_col);
#pragma unroll
  for (int i = 0; i < TransposePass<bf16>::kLines; i += 2) {
    const ScalePair<kTokenMultiplier<weight_2d>> lines(token_scale<weight_2d>(amax_of(i / 2, role.row(i + odd))));
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int row = origin.row + role.row(i + k);
      const i64 index = row_offset(row, blocks) + block_col;
      const RowBlock block = block_of(i + k);
      float values[kBlock];
      unpack(block.x, values);
      const EncodedBlock encoded = per_token_encode_block<false, rounding, weight_2d>(
          values, block.amax, lines.scale[k], seed, index, 0, offset);
      target.store((i + k) * role.kStep, encoded);
    }
  }
}

// Unpacks sixteen values of a column, rotates them with rht, and returns the amax of the normalised values.
template <bool rht, int sign_mask>
__device__ __forceinline__ float column_block(const ColumnPair<bf16>& pair, int column, float (&values)[kBlock]) {
  pair.unpack(column, values);
  if constexpr (!rht) return pair.amax(column);
  rht16<sign_mask>(values);
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) amax = fmaxf(amax, fabsf(values[i]));
  return __fmul_rn(amax, kRhtNorm);
}

// Amaxes read ahead: for each of a thread's pairs of lines, the amax of the line that it divides for
struct PairAmaxes {
  static_assert(TransposePass<bf16>::kPairs == 2);
  float first, second;

  __device__ float of_pair(int index) const {
    return index == 0 ? first : second;
  }  // an array would go to local memory
};

// Encodes a thread's columns. amax_of(pair): the amax of the column it divides for
template <bool rht, Rounding rounding, bool weight_2d, int sign_mask, bool edges, typename AmaxOf>
__device__ __forceinline__ void per_token_encode_columns(
    const EncodeSmem<bf16>& shared, AmaxOf amax_of, const Quantized& columnwise, int rows, int cols,
    const TileOrigin& origin, u64 seed, u32 offset) {
  const ColumnRole role;
  const int block_row = u32(origin.row) / kBlock + role.band, blocks = u32(rows) / kBlock;
  const ScaleExtents extents(edges ? cols : origin.col + TransposeTile::kCols, blocks);  // else to the end of this tile
  const TileStore<ScaleLayout::compact, edges> target(columnwise, extents, origin.col + role.col, block_row);
#pragma unroll(rht ? 1 : TransposePass<bf16>::kPairs)
  for (int pair_index = 0; pair_index < TransposePass<bf16>::kPairs; ++pair_index) {
    const int col_in_tile = role.pair_col(pair_index);
    const ScalePair<kTokenMultiplier<weight_2d>> lines(token_scale<weight_2d>(amax_of(pair_index)));
    const ColumnPair<bf16> pair = shared.tile.column_pair(role, pair_index);
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int col = origin.col + col_in_tile + column;
      const i64 index = row_offset(col, blocks) + block_row;
      float values[kBlock];
      float amax = column_block<rht, sign_mask>(pair, column, values);
      if constexpr (weight_2d) amax = shared.amax_16x16[role.band][col_in_tile / kBlock];
      const EncodedBlock encoded =
          per_token_encode_block<rht, rounding, weight_2d>(values, amax, lines.scale[column], seed, index, 1, offset);
      target.store(pair_index * role.kStep + column, encoded);
    }
  }
}

// Encodes the TransposeTile at `origin`, given the amaxes. All threads call this; shared memory may be reused after the
// next barrier. ahead: whether to read the amaxes of rows early, which hides the latency and takes registers; sectors:
// see TileRows::load
template <
    Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool weight_2d, int sign_mask, bool edges,
    bool ahead, bool sectors = false, typename Prologue>
__device__ __forceinline__ void per_token_encode_tile(
    EncodeSmem<bf16>& shared, const Prologue& prologue, const float* __restrict__ rowwise_amax,
    const float* __restrict__ columnwise_amax, const Quantized& rowwise, const Quantized& columnwise, int rows,
    int cols, const TileOrigin& origin, u64 seed, u32 offset) {
  static_assert(!rht || !weight_2d, "a rotated column has no 16x16 tile in common with the rowwise output");
  {
    PairAmaxes amaxes = {};
    const TileRows tile = TileRows::load<outputs != Outputs::rowwise, weight_2d, edges, sectors>(
        shared, prologue, rows, cols, origin, [&] {
          wait_for_launch_ahead();
          if constexpr (ahead && outputs != Outputs::columnwise) {
            const TransposePass<bf16>::Role role;
            const int odd = threadIdx.x % 2;
            amaxes.first = line_amax<edges>(rowwise_amax, origin.row, role.row(odd), rows);
            amaxes.second = line_amax<edges>(rowwise_amax, origin.row, role.row(2 + odd), rows);
          }
        });
    if constexpr (outputs != Outputs::columnwise) {
      per_token_encode_rows<rounding, scale_layout, weight_2d, edges>(
          tile.role, [&](int i) { return RowBlock{tile.x[i], tile.amax[i]}; },
          [&](int pair, int row) {
            return ahead ? amaxes.of_pair(pair) : line_amax<edges>(rowwise_amax, origin.row, row, rows);
          },
          rowwise, rows, cols, origin, seed, offset);
    }
  }
  if constexpr (outputs != Outputs::rowwise) {
    const ColumnRole role;
    const int odd = threadIdx.x % 2;
    const PairAmaxes amaxes = {
        // before the barrier, to hide the latency
        line_amax<edges>(columnwise_amax, origin.col, role.pair_col(0) + odd, cols),
        line_amax<edges>(columnwise_amax, origin.col, role.pair_col(1) + odd, cols)};
    if constexpr (sectors) cp_async_wait_all();
    __syncthreads();
    per_token_encode_columns<rht, rounding, weight_2d, sign_mask, edges>(
        shared, [&](int pair) { return amaxes.of_pair(pair); }, columnwise, rows, cols, origin, seed, offset);
  }
}
