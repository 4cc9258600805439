// four_over_six: every block is tried with two scales, its amax mapped to 6 and to 4; the one with the smaller error
// stays.
//
// Contract (NUMERICS 6), each step rounded to nearest-even in fp32, E = e4m3_max:
//   1. amax       = max |x| over the tensor, NaN dropped     row_scaled: over a row
//      S_enc      = min(6 E / amax, FLT_MAX)                 1 if amax is 0 or inf
//      S_dec      = 1 / S_enc
//   2. base       = (block_amax / 6) * S_enc                 1x16 or 16x16 blocks
//   3. scale_inv  = e4m3(base) for 6, e4m3(base * 1.5) for 4 f32->e4m3 rounds to nearest even; at most 448 for any E
//   4. multiplier = min(1 / (scale_inv * S_dec), FLT_MAX)
//   5. code       = e2m1(x * multiplier)                     f32->e2m1 rounds to nearest even
//   6. error      = sum of |d| (mae) or d * d (mse), element 0 to 15 in this order
//                   exact: d = code * scale_inv * amax / (6 E) - x       fp16: d = code * scale_inv - x * S_enc
//   7. 16x16: the errors of a block's sixteen lines are added as a tree: lines 8 apart first, then 4, 2, 1
//   8. map to 4 if its error is smaller, else to 6, which a tie or a NaN thus chooses
// -0 keeps its sign, NaN is code 7, inf is +-6 beside a scale of 448.
// rowwise: blocks along cols. columnwise: blocks of the transpose, stored transposed, with a choice of their own.
//
// Run it: make verify R=four_over_six          Time it: make bench R=four_over_six
#include "memory/block_io.cuh"
#include "numerics/map4_map6.cuh"
#include "reduce/amax_16x16.cuh"
#include "reduce/tensor_amax.cuh"
#include "scheduler/dependent_launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = TransposeTile::kThreads;
constexpr int kWarps = kThreads / 32;

// As many as registers allow without spilling.
template <typename Dtype>
constexpr int kRowwiseBlocksPerSm = sizeof(Dtype) == 4 ? 2 : 3;
constexpr int kTileBlocksPerSm = 2;

// amax_rows: a warp takes a row, a lane keeps this many blocks in flight.
constexpr int kAmaxUnroll = 2;

// rowwise: the bands of a tile lie side by side, so that a CTA stores 32 contiguous scale bytes.
constexpr int kRowwiseTileRows = kBlock;
constexpr int kRowwiseBlocks = 4;
constexpr int kRowwiseTileCols = kWarps * kRowwiseBlocks * kBlock;

// =====================================================================================================================
// Helpers
// =====================================================================================================================

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

// Steps 1 to 8 for a thread's blocks. values(i, x): the sixteen elements of line i; amax: of each line, or of the tensor
template <
    typename Dtype, Block block, Outputs direction, Error error, int e4m3_max, ErrorMath error_math, int granules,
    int lines, typename Values>
__device__ __forceinline__ void encode_lines(
    Values values, const float (&block_amax)[lines], const float (&amax)[granules], const ScaleExtents& extents,
    const int (&line)[lines], int block_in_line, u8* __restrict__ data, u8* __restrict__ scale_inv) {
  Map4Map6 tried[lines];
  GlobalScale global;
  float granule_amax;
#pragma unroll
  for (int i = 0; i < lines; ++i) {
    if (i < granules) {
      granule_amax = amax[i];
      global = global_scale(granule_amax, float(e4m3_max));
    }
    float x[kBlock];
    values(i, x);
    tried[i] = map4_map6<Dtype, error, error_math, e4m3_max>(x, block_amax[i], granule_amax, global);
    if constexpr (block == Block::block_1x16) {
      store_block<ScaleLayout::compact>(data, scale_inv, extents, line[i], block_in_line, tried[i].smaller_error());
    }
  }
  if constexpr (block == Block::block_16x16) {
    float map4[lines], map6[lines];
#pragma unroll
    for (int i = 0; i < lines; ++i) {
      map4[i] = tried[i].map4.error;
      map6[i] = tried[i].map6.error;
    }
    if constexpr (direction == Outputs::rowwise) {
      sum_rows<2 * lines>(map4);
      sum_rows<2 * lines>(map6);
    } else {
      sum_columns(map4);
      sum_columns(map6);
    }
#pragma unroll
    for (int i = 0; i < lines; ++i) {
      tried[i].map4.error = map4[i];
      tried[i].map6.error = map6[i];
      store_block<ScaleLayout::compact>(data, scale_inv, extents, line[i], block_in_line, tried[i].smaller_error());
    }
  }
}

// =====================================================================================================================
// amax (step 1)
// =====================================================================================================================

template <typename Dtype>
__global__ void __launch_bounds__(TensorAmax::kThreads) four_over_six_amax(
    const Dtype* __restrict__ input,    // (rows, cols)
    Optional<float> rowwise_amax,       // (1,)
    Optional<float> columnwise_amax,    // (1,)
    GridAmax* __restrict__ amax_state,  // (1,) zero before and after
    int rows, int cols) {
  tensor_amax(input, rows, cols, amax_state, rowwise_amax, columnwise_amax);
}

template <typename Dtype>
__global__ void __launch_bounds__(kThreads) four_over_six_amax_rows(
    const Dtype* __restrict__ input,   // (rows, cols)
    float* __restrict__ rowwise_amax,  // (rows,)
    int rows, int cols) {
  let_next_launch_begin();
  const int row = tile_origin(kWarps, kWholeRow).row + threadIdx.x / 32;
  if (row >= rows) return;
  const ScaleExtents extents(rows, u32(cols) / kBlock);
  u32 running = 0;
  for (int first = threadIdx.x % 32; first < extents.blocks; first += 32 * kAmaxUnroll) {
    Packed16<Dtype> x[kAmaxUnroll];
#pragma unroll
    for (int i = 0; i < kAmaxUnroll; ++i) x[i] = load_block(input, extents, row, first + 32 * i);
#pragma unroll
    for (int i = 0; i < kAmaxUnroll; ++i) running = max2(running, absmax<Dtype>(x[i].word), Dtype{});
  }
  const u32 bits = __reduce_max_sync(~0u, __float_as_uint(amax_of_word<Dtype>(running)));
  if (threadIdx.x % 32 == 0) rowwise_amax[row] = __uint_as_float(bits);
}

// =====================================================================================================================
// encode (steps 1 to 8)
// =====================================================================================================================

// Reads the input once: 2 bytes of bf16 in, 0.5625 out.
template <typename Dtype, Block block, Error error, int e4m3_max, ErrorMath error_math, bool row_scaled>
__global__ void __launch_bounds__(kThreads, kRowwiseBlocksPerSm<Dtype>) four_over_six_encode_rowwise(
    const Dtype* __restrict__ input,         // (rows, cols)
    const float* __restrict__ rowwise_amax,  // (1,), or (rows,) with row_scaled
    u8* __restrict__ rowwise_data,           // (rows, cols/2) e2m1 pairs
    u8* __restrict__ rowwise_scale_inv,      // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    int rows, int cols) {
  static_assert(!row_scaled || block == Block::block_1x16, "the rows of a 16x16 tile have amaxes of their own");
  const TileOrigin origin = tile_origin(kRowwiseTileRows, kRowwiseTileCols);
  const RowRole<kRowwiseBlocks> role;
  const ScaleExtents extents(rows, u32(cols) / kBlock);
  const int block_col = u32(origin.col) / kBlock + role.band * kRowwiseBlocks + role.block;
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
  if constexpr (block == Block::block_16x16) amax_16x16<kRowwiseBlocks>(amax);
  encode_lines<Dtype, block, Outputs::rowwise, error, e4m3_max, error_math>(
      [&](int i, float (&values)[kBlock]) { unpack(x[i], values); }, amax, granule_amax, extents, row, block_col,
      rowwise_data, rowwise_scale_inv);
}

// Reads the input once: 2 bytes of bf16 in, 0.5625 out for each direction.
template <typename Dtype, Block block, Outputs outputs, Error error, int e4m3_max, ErrorMath error_math>
__global__ void __launch_bounds__(kThreads, kTileBlocksPerSm) four_over_six_encode_tile(
    const Dtype* __restrict__ input,            // (rows, cols)
    Optional<const float> rowwise_amax,         // (1,)
    const float* __restrict__ columnwise_amax,  // (1,)
    Optional<u8> rowwise_data,                  // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,             // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    u8* __restrict__ columnwise_data,           // (cols, rows/2) e2m1 pairs
    u8* __restrict__ columnwise_scale_inv,      // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
    int rows, int cols) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use four_over_six_encode_rowwise");
  using Pass = TransposePass<Dtype>;
  __shared__ TransposeSmem<Dtype> tile;
  __shared__ float tile_amax[Pass::kBands][Pass::kBlocks];  // of 16x16 blocks
  const TileOrigin origin = tile_origin(TransposeTile::kRows, TransposeTile::kCols);
  const ScaleExtents rowwise_extents(rows, u32(cols) / kBlock), columnwise_extents(cols, u32(rows) / kBlock);

  for (int pass = 0; pass < Pass::kPasses; ++pass) {
    const int first_col = origin.col + pass * Pass::kCols;
    // Rowwise from registers, on the way into shared memory
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
      float amax[Pass::kLines];
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) {
        amax[i] = block_amax(x[i]);
        tile.store(role, i, x[i]);
      }
      if constexpr (block == Block::block_16x16) {
        amax_16x16<Pass::kBlocks>(amax);
        if (role.first == 0) tile_amax[role.band][role.block] = amax[0];
      }
      if constexpr (outputs == Outputs::both) {
        const float tensor_amax[1] = {__ldg(rowwise_amax)};
        encode_lines<Dtype, block, Outputs::rowwise, error, e4m3_max, error_math>(
            [&](int i, float (&values)[kBlock]) { unpack(x[i], values); }, amax, tensor_amax, rowwise_extents, row,
            block_col, rowwise_data, rowwise_scale_inv);
      }
    }
    __syncthreads();
    // Columnwise from shared memory
    {
      const ColumnRole role = block == Block::block_16x16 ? ColumnRole::of_16x16_blocks() : ColumnRole();
      const int block_row = u32(origin.row) / kBlock + role.band;
      const float tensor_amax[1] = {__ldg(columnwise_amax)};
#pragma unroll
      for (int pair_index = 0; pair_index < Pass::kPairs; ++pair_index) {
        const int col_in_tile = role.pair_col(pair_index);
        const int col[2] = {first_col + col_in_tile, first_col + col_in_tile + 1};
        const ColumnPair<Dtype> pair = tile.column_pair(role, pair_index);
        float amax[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          amax[i] = block == Block::block_16x16 ? tile_amax[role.band][col_in_tile / kBlock] : pair.amax(i);
        }
        encode_lines<Dtype, block, Outputs::columnwise, error, e4m3_max, error_math>(
            [&](int i, float (&values)[kBlock]) { pair.unpack(i, values); }, amax, tensor_amax, columnwise_extents, col,
            block_row, columnwise_data, columnwise_scale_inv);
      }
    }
    if (Pass::kPasses > 1) __syncthreads();
  }
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch four_over_six_amax_launch = TensorAmax::kLaunch;
__constant__ Launch four_over_six_amax_rows_launch = {kWarps, kWholeRow, kThreads, 0, Schedule::tiles};
__constant__ Launch four_over_six_encode_rowwise_launch = {
    kRowwiseTileRows, kRowwiseTileCols, kThreads, 0, Schedule::tiles};
__constant__ Launch four_over_six_encode_tile_launch = kLaunchTiles<TransposeTile>;
