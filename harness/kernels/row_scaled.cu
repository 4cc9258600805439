// row_scaled: one amax for each row; columnwise, one for each column.
//
// Contract (NUMERICS 4), each step rounded to nearest-even in fp32:
//   1. amax       = max |x| over a row, NaN dropped          columnwise: over a column
//   2. S_enc      = min(2688 / amax, FLT_MAX)                1 if amax is 0 or inf
//   3. S_dec      = 1 / S_enc
//   4. scale_inv  = e4m3(block_amax * (S_enc * (1/6)))       f32->e4m3 rounds to nearest even; 1x16 blocks
//   5. multiplier = min(1 / (scale_inv * S_dec), FLT_MAX)
//   6. code       = e2m1(x * multiplier)                     f32->e2m1 rounds to nearest even
// -0 keeps its sign, NaN is code 7, inf is +-6 beside a scale of 448. If a block's scale underflows to 0, its non-zero
// elements are +-6. A row of zeros has scales of 0.
// rowwise: blocks along cols. columnwise: blocks of the transpose, stored transposed.
//
// Run it: make verify R=row_scaled          Time it: make bench R=row_scaled
#include "encode/scale_pair.cuh"
#include "memory/block_io.cuh"
#include "memory/transpose_tile.cuh"
#include "scheduler/launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// quantize: a CTA takes whole rows, each by a team of 1, 2, 4 or 8 warps whose threads hold this many blocks. A row of
// up to 8192 elements stays in registers between amax and encode; the rest is read again, from L2.
constexpr int kHold = 2;
constexpr int kRowsPerTile = kWarps;
constexpr int kWholeRow = 1 << 30;

// As many as registers allow without spilling.
template <typename Dtype>
constexpr int kQuantizeBlocksPerSm = sizeof(Dtype) == 4 ? 3 : 4;

template <typename Dtype>
constexpr int kEncodeBlocksPerSm = kTransposeBlocksPerSm;
template <>
constexpr int kEncodeBlocksPerSm<fp16> = 3;

// amax: a warp reads a row of its tile at a time, a lane this many columns of it.
constexpr int kAmaxLaneCols = 8;
constexpr int kAmaxUnroll = 4;
constexpr int kAmaxTileRows = 128;
constexpr int kAmaxTileCols = 32 * kAmaxLaneCols;
static_assert(kAmaxTileCols == kThreads, "a thread for each column");

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// The warps that share a row, a power of two of them, and a thread's place among them
struct Team {
  int log_warps, index, thread;

  __device__ explicit Team(int blocks) : log_warps(0) {
    while (warps() < kWarps && threads() * kHold < blocks) ++log_warps;
    index = threadIdx.x / 32 >> log_warps;
    thread = threadIdx.x & (threads() - 1);
  }
  __device__ int warps() const { return 1 << log_warps; }
  __device__ int threads() const { return 32 << log_warps; }
  __device__ int rows_at_a_time() const { return kWarps >> log_warps; }
  __device__ int block(int i) const { return i * threads() + thread; }

  // The maximum over the team. warp_max: one entry a warp, not written again before the next barrier
  __device__ float max(float value, u32 (&warp_max)[kWarps]) const {
    const u32 bits = __reduce_max_sync(~0u, __float_as_uint(value));
    if (threadIdx.x % 32 == 0) warp_max[threadIdx.x / 32] = bits;
    __syncthreads();
    return __uint_as_float(__reduce_max_sync(~0u, warp_max[(index << log_warps) + (threadIdx.x & (warps() - 1))]));
  }
};

// Steps 2 and 3 of a line, which may be beyond the last
__device__ __forceinline__ GlobalScale line_scale(const float* __restrict__ amax, int line, int lines) {
  return global_scale(line < lines ? __ldg(amax + line) : 0.0f, kE4m3Max);
}

// =====================================================================================================================
// rowwise: amax and encode in one pass (steps 1 to 6)
// =====================================================================================================================

// Reads the input once: 2 bytes of bf16 in, 0.5625 out.
template <typename Dtype, ScaleLayout scale_layout, Stage stage>
__global__ void __launch_bounds__(kThreads, kQuantizeBlocksPerSm<Dtype>) row_scaled_quantize(
    const Dtype* __restrict__ input,   // (rows, cols)
    float* __restrict__ rowwise_amax,  // (rows,)
    Optional<u8> rowwise_data,         // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,    // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    int rows, int cols) {
  __shared__ u32 warp_max[2][kWarps];
  const TileOrigin origin = tile_origin(kRowsPerTile, kWholeRow);
  const ScaleExtents extents(rows, u32(cols) / kBlock);
  const Team team(extents.blocks);
  int parity = 0;
  for (int first = 0; first < kRowsPerTile; first += team.rows_at_a_time(), parity ^= 1) {
    const int row = origin.row + first + team.index;
    Packed16<Dtype> held[kHold];
#pragma unroll
    for (int i = 0; i < kHold; ++i) held[i] = load_block(input, extents, row, team.block(i));
    float amax = 0.0f;
    if constexpr (stage == Stage::encode) {
      if (row < rows) amax = __ldg(rowwise_amax + row);
    } else {
#pragma unroll
      for (int i = 0; i < kHold; ++i) amax = fmaxf(amax, block_amax(held[i]));
      for (int i = kHold; team.block(i) < extents.blocks; ++i) {
        amax = fmaxf(amax, block_amax(load_block(input, extents, row, team.block(i))));
      }
      amax = team.max(amax, warp_max[parity]);
      if (team.thread == 0 && row < rows) rowwise_amax[row] = amax;
    }
    if constexpr (stage == Stage::amax) continue;

    const GlobalScale global = global_scale(amax, kE4m3Max);
    const auto encode = [&](const Packed16<Dtype>& x, int block) {
      float values[kBlock];
      unpack(x, values);
      const EncodedBlock encoded = encode_block<Multiplier::reciprocal>(values, block_amax(x), global);
      store_block<scale_layout>(rowwise_data, rowwise_scale_inv, extents, row, block, encoded);
    };
#pragma unroll
    for (int i = 0; i < kHold; ++i) {
      if (i * team.threads() >= extents.blocks) break;
      encode(held[i], team.block(i));
    }
    for (int i = kHold; team.block(i) < extents.padded_blocks; ++i) {
      encode(load_block(input, extents, row, team.block(i)), team.block(i));
    }
  }
}

// =====================================================================================================================
// both directions: amax (step 1)
// =====================================================================================================================

template <Outputs outputs>
__global__ void __launch_bounds__(kThreads) row_scaled_clear_amax(
    Optional<float> rowwise_amax,         // (rows,)
    float* __restrict__ columnwise_amax,  // (cols,)
    int rows, int cols) {
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < max(rows, cols); i += gridDim.x * kThreads) {
    if (outputs == Outputs::both && i < rows) rowwise_amax[i] = 0.0f;
    if (i < cols) columnwise_amax[i] = 0.0f;
  }
}

// Merges the maxima of a tile into amaxes that start at 0. Reads the input once.
template <typename Dtype, Outputs outputs>
__global__ void __launch_bounds__(kThreads) row_scaled_amax(
    const Dtype* __restrict__ input,      // (rows, cols)
    Optional<float> rowwise_amax,         // (rows,)
    float* __restrict__ columnwise_amax,  // (cols,)
    int rows, int cols) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no merging: use row_scaled_quantize");
  constexpr int kWords = kAmaxLaneCols * int(sizeof(Dtype)) / 4;
  __shared__ u32 warp_max[kWarps][32 * kWords];
  const TileOrigin origin = tile_origin(kAmaxTileRows, kAmaxTileCols);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_col = origin.col + lane * kAmaxLaneCols;

  u32 column_max[kWords] = {};
  for (int first = warp; first < kAmaxTileRows; first += kWarps * kAmaxUnroll) {
    u32 word[kAmaxUnroll][kWords] = {};
#pragma unroll
    for (int i = 0; i < kAmaxUnroll; ++i) {
      const int row = origin.row + first + i * kWarps;
      if (row < rows && lane_col < cols) load_words(input + row_offset(row, cols) + lane_col, word[i]);
    }
#pragma unroll
    for (int i = 0; i < kAmaxUnroll; ++i) {
      if constexpr (outputs == Outputs::both) {
        const int row = origin.row + first + i * kWarps;
        const u32 bits = __reduce_max_sync(~0u, __float_as_uint(amax_of_word<Dtype>(absmax<Dtype>(word[i]))));
        if (lane == 0 && row < rows) atomicMax(reinterpret_cast<u32*>(rowwise_amax) + row, bits);
      }
#pragma unroll
      for (int w = 0; w < kWords; ++w) column_max[w] = max2(column_max[w], abs2(word[i][w], Dtype{}), Dtype{});
    }
  }
#pragma unroll
  for (int w = 0; w < kWords; ++w) warp_max[warp][lane * kWords + w] = column_max[w];
  __syncthreads();

  const int col = origin.col + threadIdx.x;
  constexpr int kColsPerWord = 4 / int(sizeof(Dtype));
  u32 m = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) m = max2(m, warp_max[i][threadIdx.x / kColsPerWord], Dtype{});
  const float amax = element_of_word<Dtype>(m, threadIdx.x % kColsPerWord);
  if (col < cols) atomicMax(reinterpret_cast<u32*>(columnwise_amax) + col, __float_as_uint(amax));
}

// =====================================================================================================================
// both directions: encode (steps 2 to 6)
// =====================================================================================================================

// Reads the input once: 2 bytes of bf16 in, 0.5625 out for each direction.
template <typename Dtype, Outputs outputs, ScaleLayout scale_layout>
__global__ void __launch_bounds__(TransposeTile::kThreads, kEncodeBlocksPerSm<Dtype>) row_scaled_encode_tile(
    const Dtype* __restrict__ input,            // (rows, cols)
    Optional<const float> rowwise_amax,         // (rows,)
    const float* __restrict__ columnwise_amax,  // (cols,)
    Optional<u8> rowwise_data,                  // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,             // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    u8* __restrict__ columnwise_data,           // (cols, rows/2) e2m1 pairs
    u8* __restrict__ columnwise_scale_inv,      // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
    int rows, int cols) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use row_scaled_quantize");
  using Pass = TransposePass<Dtype>;
  __shared__ TransposeSmem<Dtype> tile;
  const TileOrigin origin = tile_origin(TransposeTile::kRows, TransposeTile::kCols);
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
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) tile.store(role, i, x[i]);
      if constexpr (outputs == Outputs::both) {
        const TileStore<scale_layout> target(
            {rowwise_data, rowwise_scale_inv}, rowwise_extents, origin.row + role.row(0), block_col);
#pragma unroll
        for (int i = 0; i < Pass::kLines; i += 2) {
          const ScalePair<Multiplier::reciprocal> lines(
              line_scale(rowwise_amax, origin.row + role.row(i + threadIdx.x % 2), rows));
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
    __syncthreads();
    // Columnwise from shared memory
    {
      const ColumnRole role;
      const int block_row = u32(origin.row) / kBlock + role.band;
      const TileStore<scale_layout> target(
          {columnwise_data, columnwise_scale_inv}, columnwise_extents, first_col + role.col, block_row);
#pragma unroll
      for (int pair_index = 0; pair_index < Pass::kPairs; ++pair_index) {
        const int col = first_col + role.pair_col(pair_index);
        const ScalePair<Multiplier::reciprocal> lines(line_scale(columnwise_amax, col + threadIdx.x % 2, cols));
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

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch row_scaled_quantize_launch = {kRowsPerTile, kWholeRow, kThreads, 0, Schedule::tiles};
__constant__ Launch row_scaled_clear_amax_launch = {kThreads, kThreads, kThreads, 1, Schedule::persistent};
__constant__ Launch row_scaled_amax_launch = {kAmaxTileRows, kAmaxTileCols, kThreads, 0, Schedule::tiles};
__constant__ Launch row_scaled_encode_tile_launch = kLaunchTiles<TransposeTile>;
