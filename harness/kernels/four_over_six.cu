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
//      Shorter sums decide this where they are farther apart than all roundings (numerics/map4_map6.cuh); elsewhere a warp
//      takes step 6 as it stands: for one block in two thousand of normal bf16 data, and for every block that both maps
//      hold exactly, as those of one magnitude. That is 2.7 times the instructions. Blocks of zeros are decided at once.
// -0 keeps its sign, NaN is code 7, inf is +-6 beside a scale of 448.
// rowwise: blocks along cols. columnwise: blocks of the transpose, stored transposed, with a choice of their own.
//
// Run it: make verify R=four_over_six          Time it: make bench R=four_over_six
#include "encode/four_over_six.cuh"
#include "reduce/tensor_amax.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = TransposeTile::kThreads;
constexpr int kWarps = kThreads / 32;

// amax_rows: a warp takes a row, a lane keeps this many blocks in flight.
constexpr int kAmaxUnroll = 2;

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
__global__ void __launch_bounds__(kThreads, kFourOverSixBlocksPerSm<Dtype, block>) four_over_six_encode_rowwise(
    const Dtype* __restrict__ input,         // (rows, cols)
    const float* __restrict__ rowwise_amax,  // (1,), or (rows,) with row_scaled
    u8* __restrict__ rowwise_data,           // (rows, cols/2) e2m1 pairs
    u8* __restrict__ rowwise_scale_inv,      // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    int rows, int cols) {
  static_assert(!row_scaled || block == Block::block_1x16, "the rows of a 16x16 tile have amaxes of their own");
  four_over_six_rows<Dtype, block, error, e4m3_max, error_math, row_scaled>(
      input, rowwise_amax, {rowwise_data, rowwise_scale_inv}, rows, cols,
      tile_origin(FourOverSixRows::kRows, FourOverSixRows::kCols));
}

// Reads the input once: 2 bytes of bf16 in, 0.5625 out for each direction.
template <typename Dtype, Block block, Outputs outputs, Error error, int e4m3_max, ErrorMath error_math>
__global__ void __launch_bounds__(kThreads, kFourOverSixBlocksPerSm<Dtype, block>) four_over_six_encode_tile(
    const Dtype* __restrict__ input,            // (rows, cols)
    Optional<const float> rowwise_amax,         // (1,)
    const float* __restrict__ columnwise_amax,  // (1,)
    Optional<u8> rowwise_data,                  // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,             // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    u8* __restrict__ columnwise_data,           // (cols, rows/2) e2m1 pairs
    u8* __restrict__ columnwise_scale_inv,      // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
    int rows, int cols) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use four_over_six_encode_rowwise");
  __shared__ TransposeSmem<Dtype> tile;
  __shared__ TileAmax16x16<Dtype> tile_amax;
  four_over_six_tile<Dtype, block, outputs, error, e4m3_max, error_math>(
      tile, tile_amax, input, rowwise_amax, columnwise_amax, {rowwise_data, rowwise_scale_inv},
      {columnwise_data, columnwise_scale_inv}, rows, cols, tile_origin(TransposeTile::kRows, TransposeTile::kCols));
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch four_over_six_amax_launch = TensorAmax::kLaunch;
__constant__ Launch four_over_six_amax_rows_launch = {kWarps, kWholeRow, kThreads, 0, Schedule::tiles};
__constant__ Launch four_over_six_encode_rowwise_launch = kLaunchTiles<FourOverSixRows>;
__constant__ Launch four_over_six_encode_tile_launch = kLaunchTiles<TransposeTile>;
