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
#include "encode/row_scaled.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;

// As many as registers allow without spilling.
template <typename Dtype>
constexpr int kEncodeBlocksPerSm = kTransposeBlocksPerSm;
template <>
constexpr int kEncodeBlocksPerSm<fp16> = 3;

// =====================================================================================================================
// rowwise: amax and encode in one pass (steps 1 to 6)
// =====================================================================================================================

// Reads the input once: 2 bytes of bf16 in, 0.5625 out.
template <typename Dtype, ScaleLayout scale_layout, Stage stage>
__global__ void __launch_bounds__(RowScaledRows::kThreads, kRowScaledRowsBlocksPerSm<Dtype>) row_scaled_quantize(
    const Dtype* __restrict__ input,   // (rows, cols)
    float* __restrict__ rowwise_amax,  // (rows,)
    Optional<u8> rowwise_data,         // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,    // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    int rows, int cols) {
  __shared__ u32 warp_max[2][RowScaledRows::kWarps];
  row_scaled_rows<Dtype, scale_layout, stage>(
      warp_max, input, rowwise_amax, {rowwise_data, rowwise_scale_inv}, rows, cols,
      tile_origin(RowScaledRows::kRows, kWholeRow).row);
}

// =====================================================================================================================
// both directions: amax (step 1)
// =====================================================================================================================

template <Outputs outputs>
__global__ void __launch_bounds__(kThreads) row_scaled_clear_amax(
    Optional<float> rowwise_amax,         // (rows,)
    float* __restrict__ columnwise_amax,  // (cols,)
    int rows, int cols) {
  let_next_launch_begin();
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < max(rows, cols); i += gridDim.x * kThreads) {
    if (outputs == Outputs::both && i < rows) rowwise_amax[i] = 0.0f;
    if (i < cols) columnwise_amax[i] = 0.0f;
  }
}

// Merges the maxima of a tile into amaxes that start at 0. Reads the input once.
template <typename Dtype, Outputs outputs>
__global__ void __launch_bounds__(RowScaledAmaxTile::kThreads) row_scaled_amax(
    const Dtype* __restrict__ input,      // (rows, cols)
    Optional<float> rowwise_amax,         // (rows,)
    float* __restrict__ columnwise_amax,  // (cols,)
    int rows, int cols) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no merging: use row_scaled_quantize");
  wait_for_launch_ahead();  // which sets the amaxes to 0
  __shared__ u32 warp_max[RowScaledAmaxTile::kWarps][32 * RowScaledAmaxTile::kWords<Dtype>];
  row_scaled_amax_tile<Dtype, outputs>(
      warp_max, input, rowwise_amax, columnwise_amax, rows, cols,
      tile_origin(RowScaledAmaxTile::kRows, RowScaledAmaxTile::kCols));
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
  __shared__ TransposeSmem<Dtype> tile;
  row_scaled_tile<Dtype, outputs, scale_layout>(
      tile, input, rowwise_amax, columnwise_amax, {rowwise_data, rowwise_scale_inv},
      {columnwise_data, columnwise_scale_inv}, rows, cols,
      tile_origin_bottom_up(TransposeTile::kRows, TransposeTile::kCols));
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch row_scaled_quantize_launch = {
    RowScaledRows::kRows, kWholeRow, RowScaledRows::kThreads, 0, Schedule::tiles};
__constant__ Launch row_scaled_clear_amax_launch = {kThreads, kThreads, kThreads, 1, Schedule::persistent};
__constant__ Launch row_scaled_amax_launch = kLaunchTiles<RowScaledAmaxTile>;
__constant__ Launch row_scaled_encode_tile_launch = kLaunchTiles<TransposeTile>;
