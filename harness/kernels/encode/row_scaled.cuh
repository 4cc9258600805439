// row_scaled: whole rows in one pass, or the amaxes of rows and columns, then a tile in both directions.
#pragma once

#include "encode/scale_pair.cuh"
#include "memory/block_io.cuh"
#include "memory/transpose_tile.cuh"
#include "scheduler/dependent_launch.cuh"
#include "scheduler/launch.cuh"

// A CTA takes this many rows, each by a team of 1, 2, 4 or 8 warps whose threads hold kHold blocks. A row of up to 8192
// elements stays in registers between amax and encode; the rest is read again, from L2.
struct RowScaledRows {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kHold = 2;
  static constexpr int kRows = kWarps;
};

// A warp reads a row of its tile at a time, a lane kLaneCols columns of it.
struct RowScaledAmaxTile {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kLaneCols = 8, kUnroll = 4;
  static constexpr int kRows = 128, kCols = 32 * kLaneCols;
  template <typename Dtype>
  static constexpr int kWords = kLaneCols * int(sizeof(Dtype)) / 4;  // words of a lane in a row
  static_assert(kCols == kThreads, "a thread for each column");
};

// As many as registers allow without spilling.
template <typename Dtype>
constexpr int kRowScaledRowsBlocksPerSm = sizeof(Dtype) == 4 ? 3 : 4;

// ---------------------------------------------------------------------------------------------------------------------
// rowwise: amax and encode in one pass (steps 1 to 6)
// ---------------------------------------------------------------------------------------------------------------------

// The warps that share a row, a power of two of them, and a thread's place among them
struct RowTeam {
  int log_warps, index, thread;

  __device__ explicit RowTeam(int blocks) : log_warps(0) {
    while (warps() < RowScaledRows::kWarps && threads() * RowScaledRows::kHold < blocks) ++log_warps;
    index = threadIdx.x / 32 >> log_warps;
    thread = threadIdx.x & (threads() - 1);
  }
  __device__ int warps() const { return 1 << log_warps; }
  __device__ int threads() const { return 32 << log_warps; }
  __device__ int rows_at_a_time() const { return RowScaledRows::kWarps >> log_warps; }
  __device__ int block(int i) const { return i * threads() + thread; }

  // The maximum over the team. warp_max: one entry a warp, not written again before the next barrier
  __device__ float max(float value, u32 (&warp_max)[RowScaledRows::kWarps]) const {
    const u32 bits = __reduce_max_sync(~0u, __float_as_uint(value));
    if (threadIdx.x % 32 == 0) warp_max[threadIdx.x / 32] = bits;
    __syncthreads();
    return __uint_as_float(__reduce_max_sync(~0u, warp_max[(index << log_warps) + (threadIdx.x & (warps() - 1))]));
  }
};

// The amax of a line, which may be beyond the last. Call wait_for_launch_ahead() first.
__device__ __forceinline__ float line_amax(const float* amax, int line, int lines) {
  return line < lines ? amax_of_launch_ahead(amax + line) : 0.0f;
}

// Quantizes RowScaledRows::kRows rows from `first_row` on. All threads call this.
template <typename Dtype, ScaleLayout scale_layout, Stage stage>
__device__ __forceinline__ void row_scaled_rows(
    u32 (&warp_max)[2][RowScaledRows::kWarps], const Dtype* __restrict__ input, float* __restrict__ amax_of_rows,
    const Quantized& rowwise, int rows, int cols, int first_row) {
  const ScaleExtents extents(rows, u32(cols) / kBlock);
  const RowTeam team(extents.blocks);
  int parity = 0;
  for (int first = 0; first < RowScaledRows::kRows; first += team.rows_at_a_time(), parity ^= 1) {
    const int row = first_row + first + team.index;
    Packed16<Dtype> held[RowScaledRows::kHold];
#pragma unroll
    for (int i = 0; i < RowScaledRows::kHold; ++i) held[i] = load_block(input, extents, row, team.block(i));
    float amax = 0.0f;
    if constexpr (stage == Stage::encode) {
      if (row < rows) amax = __ldg(amax_of_rows + row);
    } else {
#pragma unroll
      for (int i = 0; i < RowScaledRows::kHold; ++i) amax = fmaxf(amax, block_amax(held[i]));
      for (int i = RowScaledRows::kHold; team.block(i) < extents.blocks; ++i) {
        amax = fmaxf(amax, block_amax(load_block(input, extents, row, team.block(i))));
      }
      amax = team.max(amax, warp_max[parity]);
      if (team.thread == 0 && row < rows) amax_of_rows[row] = amax;
    }
    if constexpr (stage == Stage::amax) continue;

    const GlobalScale global = global_scale(amax, kE4m3Max);
    const auto encode = [&](const Packed16<Dtype>& x, int block) {
      float values[kBlock];
      unpack(x, values);
      const EncodedBlock encoded = encode_block<Multiplier::reciprocal>(values, block_amax(x), global);
      store_block<scale_layout>(rowwise.data, rowwise.scale_inv, extents, row, block, encoded);
    };
#pragma unroll
    for (int i = 0; i < RowScaledRows::kHold; ++i) {
      if (i * team.threads() >= extents.blocks) break;
      encode(held[i], team.block(i));
    }
    for (int i = RowScaledRows::kHold; team.block(i) < extents.padded_blocks; ++i) {
      encode(load_block(input, extents, row, team.block(i)), team.block(i));
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// both directions: amax (step 1)
// ---------------------------------------------------------------------------------------------------------------------

// Merges the maxima of the tile at `origin` into amaxes that start at 0. All threads call this.
template <typename Dtype, Outputs outputs>
__device__ __forceinline__ void row_scaled_amax_tile(
    u32 (&warp_max)[RowScaledAmaxTile::kWarps][32 * RowScaledAmaxTile::kWords<Dtype>], const Dtype* __restrict__ input,
    float* __restrict__ rowwise_amax, float* __restrict__ columnwise_amax, int rows, int cols,
    const TileOrigin& origin) {
  using Tile = RowScaledAmaxTile;
  constexpr int kWords = Tile::kWords<Dtype>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_col = origin.col + lane * Tile::kLaneCols;

  u32 column_max[kWords] = {};
  for (int first = warp; first < Tile::kRows; first += Tile::kWarps * Tile::kUnroll) {
    u32 word[Tile::kUnroll][kWords] = {};
#pragma unroll
    for (int i = 0; i < Tile::kUnroll; ++i) {
      const int row = origin.row + first + i * Tile::kWarps;
      if (row < rows && lane_col < cols) load_words(input + row_offset(row, cols) + lane_col, word[i]);
    }
#pragma unroll
    for (int i = 0; i < Tile::kUnroll; ++i) {
      if constexpr (outputs == Outputs::both) {
        const int row = origin.row + first + i * Tile::kWarps;
        const u32 bits = __reduce_max_sync(~0u, __float_as_uint(amax_of_word<Dtype>(absmax<Dtype>(word[i]))));
        if (lane == 0 && row < rows) atomicMax(reinterpret_cast<u32*>(rowwise_amax) + row, bits);
      }
#pragma unroll
      for (int w = 0; w < kWords; ++w) column_max[w] = max2(column_max[w], abs2(word[i][w], Dtype{}), Dtype{});
    }
  }
  let_next_launch_begin();  // not earlier: its loads would compete with these for memory
#pragma unroll
  for (int w = 0; w < kWords; ++w) warp_max[warp][lane * kWords + w] = column_max[w];
  __syncthreads();

  const int col = origin.col + threadIdx.x;
  constexpr int kColsPerWord = 4 / int(sizeof(Dtype));
  u32 m = 0;
#pragma unroll
  for (int i = 0; i < Tile::kWarps; ++i) m = max2(m, warp_max[i][threadIdx.x / kColsPerWord], Dtype{});
  const float amax = element_of_word<Dtype>(m, threadIdx.x % kColsPerWord);
  if (col < cols) atomicMax(reinterpret_cast<u32*>(columnwise_amax) + col, __float_as_uint(amax));
}

// ---------------------------------------------------------------------------------------------------------------------
// both directions: encode (steps 2 to 6)
// ---------------------------------------------------------------------------------------------------------------------

// Encodes the TransposeTile at `origin`, given the amaxes. All threads call this; shared memory may be reused after the
// next barrier.
template <typename Dtype, Outputs outputs, ScaleLayout scale_layout>
__device__ __forceinline__ void row_scaled_tile(
    TransposeSmem<Dtype>& tile, const Dtype* __restrict__ input, const float* __restrict__ rowwise_amax,
    const float* __restrict__ columnwise_amax, const Quantized& rowwise, const Quantized& columnwise, int rows,
    int cols, const TileOrigin& origin) {
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
        x[i] = load_block<true>(input, rowwise_extents, origin.row + role.row(i), block_col);
      }
      if (pass == 0) wait_for_launch_ahead();
      float amax[Pass::kPairs];  // read ahead, to hide the latency: of the row the thread divides for in each pair
#pragma unroll
      for (int pair = 0; outputs == Outputs::both && pair < Pass::kPairs; ++pair) {
        amax[pair] = line_amax(rowwise_amax, origin.row + role.row(2 * pair + threadIdx.x % 2), rows);
      }
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) tile.store(role, i, x[i]);
      if constexpr (outputs == Outputs::both) {
        const TileStore<scale_layout> target(rowwise, rowwise_extents, origin.row + role.row(0), block_col);
#pragma unroll
        for (int i = 0; i < Pass::kLines; i += 2) {
          const ScalePair<Multiplier::reciprocal> lines(global_scale(amax[i / 2], kE4m3Max));
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            float values[kBlock];
            unpack(x[i + k], values);
            const EncodedBlock encoded =
                encode_block<Multiplier::reciprocal>(values, block_amax(x[i + k]), lines.scale[k]);
            target.store((i + k) * role.kStep, encoded);
          }
        }
      }
    }
    const ColumnRole role;
    float amax[Pass::kPairs];  // before the barrier, to hide the latency
#pragma unroll
    for (int pair = 0; pair < Pass::kPairs; ++pair) {
      amax[pair] = line_amax(columnwise_amax, first_col + role.pair_col(pair) + threadIdx.x % 2, cols);
    }
    __syncthreads();
    // Columnwise from shared memory
    {
      const int block_row = u32(origin.row) / kBlock + role.band;
      const TileStore<scale_layout> target(columnwise, columnwise_extents, first_col + role.col, block_row);
#pragma unroll
      for (int pair_index = 0; pair_index < Pass::kPairs; ++pair_index) {
        const ScalePair<Multiplier::reciprocal> lines(global_scale(amax[pair_index], kE4m3Max));
        const ColumnPair<Dtype> pair = tile.column_pair(role, pair_index);
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          float values[kBlock];
          pair.unpack(column, values);
          const EncodedBlock encoded =
              encode_block<Multiplier::reciprocal>(values, pair.amax(column), lines.scale[column]);
          target.store(pair_index * role.kStep + column, encoded);
        }
      }
    }
    if (Pass::kPasses > 1) __syncthreads();
  }
}
