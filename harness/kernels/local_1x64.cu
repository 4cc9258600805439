// local_1x64: one amax for each window of 64 elements, both directions from one read.
//
// Contract (NUMERICS 5), each step rounded to nearest-even in fp32:
//   1. amax       = max |x| over a 1x64 window, NaN dropped
//   2. S_enc      = min(2688 / max(amax, 1e-12), FLT_MAX)    1 if amax is inf
//   3. scale_inv  = e4m3(block_amax * (S_enc * (1/6)))       f32->e4m3 rounds to nearest even; 1x16 blocks
//   4. multiplier = S_enc / scale_inv, 0 if scale_inv is 0   reciprocal: min(1 / (scale_inv * (1/S_enc)), FLT_MAX)
//   5. code       = e2m1(x * multiplier)                     f32->e2m1 rounds to nearest even
// -0 keeps its sign, NaN is code 7, inf is +-6 beside a scale of 448. If a block's scale underflows to 0, direct makes
// zeros with their signs, reciprocal +-6 of its non-zero elements.
// rowwise: windows along cols. columnwise: windows of the transpose, stored transposed.
//
// Run it: make verify R=local_1x64          Time it: make bench R=local_1x64
#include "encode/local_1x64.cuh"

// =====================================================================================================================
// Kernel
// =====================================================================================================================

// Reads the input once: 2 bytes of bf16 in, 0.5625 + 0.0625 out for each direction.
template <typename Dtype, Outputs outputs, Multiplier multiplier, ScaleLayout scale_layout>
__global__ void __launch_bounds__(TransposeTile::kThreads, kTransposeBlocksPerSm) local_1x64_quantize(
    const Dtype* __restrict__ input,    // (rows, cols)
    Optional<float> rowwise_amax,       // (rows, cols/64)
    Optional<u8> rowwise_data,          // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,     // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    Optional<float> columnwise_amax,    // (cols, rows/64)
    Optional<u8> columnwise_data,       // (cols, rows/2) e2m1 pairs
    Optional<u8> columnwise_scale_inv,  // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
    int rows, int cols) {
  static_assert(multiplier != Multiplier::fast, "windows have no fast_math");
  __shared__ TransposeSmem<Dtype> tile;
  local_1x64_tile<Dtype, outputs, multiplier, scale_layout>(
      tile, input, {rowwise_amax, {rowwise_data, rowwise_scale_inv}},
      {columnwise_amax, {columnwise_data, columnwise_scale_inv}}, rows, cols,
      tile_origin(TransposeTile::kRows, TransposeTile::kCols));
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch local_1x64_quantize_launch = kLaunchTiles<TransposeTile>;
