// per_token: one amax for each row and one for each column; direct multipliers; rht columnwise at will.
//
// Contract (NUMERICS 7), each step rounded to nearest-even in fp32:
//   1. amax       = max |x| over a row, NaN dropped          columnwise: over a column
//                                                            rht: 0.25 * max |r|, r an unnormalised rotation
//   2. S_enc      = min(2688 / max(amax, 1e-12), FLT_MAX)    1 if amax is inf
//   3. scale_inv  = e4m3(block_amax * (S_enc * (1/6)))       f32->e4m3 rounds to nearest even; 1x16 blocks
//   4. multiplier = S_enc / scale_inv                        0 if scale_inv is 0
//   5. code       = e2m1(x * multiplier)                     f32->e2m1 rounds to nearest even, or stochastically
//                                                            rht: e2m1(r * (multiplier * 0.25))
// -0 keeps its sign, NaN is code 7, inf is +-6 beside a scale of 448. If a block's scale underflows to 0, its finite
// elements are +-0.
// weight_2d: per_tensor in 16x16 blocks (NUMERICS 3), its one amax written for every row and column.
// rowwise: blocks along cols. columnwise: blocks of the transpose, stored transposed; rht rotates only these.
// edges: whether a tile reaches beyond the matrix, so that not both rows and cols are multiples of 128.
//
// Run it: make verify R=per_token          Time it: make bench R=per_token
#include "encode/per_token_resident.cuh"
#include "reduce/row_col_amax.cuh"
#include "reduce/tensor_amax.cuh"
#include "scheduler/dependent_launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

// Two CTAs keep memory busy and merge half as many maxima as four; with rht, registers allow three.
constexpr int kAmaxBlocksPerSm = 2;
constexpr int kAmaxRhtBlocksPerSm = 3;
template <Rounding rounding>
constexpr int kEncodeBlocksPerSm = rounding == Rounding::sr ? 3 : kTransposeBlocksPerSm;

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// Step 1 by a persistent grid. A strip of columns has a team of CTAs that share its rows; members of the same number
// take the same rows in all teams.
template <Outputs outputs, bool rht, int sign_mask>
__device__ __forceinline__ void row_col_amax_by_teams(
    const bf16* __restrict__ input, const AmaxOutput& rowwise, const AmaxOutput& columnwise, int rows, int cols) {
  using Strip = RowColStrip<rht>;
  __shared__ Strip shared;
  const int strips = (u32(cols) + Strip::kCols - 1) / Strip::kCols, chunks = u32(rows) / Strip::kRows;
  const int team = max(1, min(int(gridDim.x) / strips, chunks));
  for (int item = blockIdx.x; item < strips * team; item += gridDim.x) {
    if (item != int(blockIdx.x)) __syncthreads();
    const int strip = item % strips, member = item / strips;
    const LineAmax by_row = {rowwise.amax, rowwise.state, rowwise.state + rows + member, u32(strips)};
    const LineAmax by_col = {columnwise.amax, columnwise.state, columnwise.state + cols + strip, u32(team)};
    row_col_amax<outputs, rht, sign_mask>(
        shared, input, rows, cols, {member, team, chunks, strip * Strip::kCols}, by_row, by_col);
  }
}

// =====================================================================================================================
// amax (step 1)
// =====================================================================================================================

// Both read the input once. A state holds u32: a maximum for each line, then tickets.
template <Outputs outputs>
__global__ void __launch_bounds__(RowColStrip<false>::kThreads, kAmaxBlocksPerSm) per_token_amax(
    const bf16* __restrict__ input,      // (rows, cols)
    Optional<float> rowwise_amax,        // (rows,)
    Optional<float> columnwise_amax,     // (cols,)
    u32* __restrict__ rowwise_state,     // (rows + rows/8 + 1,) zero before and after
    u32* __restrict__ columnwise_state,  // (cols + cols/256 + 1,) zero before and after
    int rows, int cols) {
  row_col_amax_by_teams<outputs, false, 0>(
      input, {rowwise_amax, rowwise_state}, {columnwise_amax, columnwise_state}, rows, cols);
}

template <Outputs outputs, int sign_mask>
__global__ void __launch_bounds__(RowColStrip<true>::kThreads, kAmaxRhtBlocksPerSm) per_token_amax_rht(
    const bf16* __restrict__ input,       // (rows, cols)
    Optional<float> rowwise_amax,         // (rows,)
    float* __restrict__ columnwise_amax,  // (cols,)
    u32* __restrict__ rowwise_state,      // (rows + rows/8 + 1,) zero before and after
    u32* __restrict__ columnwise_state,   // (cols + cols/256 + 1,) zero before and after
    int rows, int cols) {
  row_col_amax_by_teams<outputs, true, sign_mask>(
      input, {rowwise_amax, rowwise_state}, {columnwise_amax, columnwise_state}, rows, cols);
}

__global__ void __launch_bounds__(TensorAmax::kThreads) per_token_amax_2d(
    const bf16* __restrict__ input,     // (rows, cols)
    Optional<float> rowwise_amax,       // (rows,)
    Optional<float> columnwise_amax,    // (cols,)
    GridAmax* __restrict__ amax_state,  // (1,) zero before and after
    int rows, int cols) {
  __shared__ float amax;  // stays negative in every CTA but the last
  if (threadIdx.x == 0) amax = -1.0f;
  tensor_amax(input, rows, cols, amax_state, &amax, static_cast<float*>(nullptr));
  __syncthreads();
  if (amax < 0.0f) return;
  for (int i = threadIdx.x; i < max(rows, cols); i += TensorAmax::kThreads) {
    if (rowwise_amax != nullptr && i < rows) rowwise_amax[i] = amax;
    if (columnwise_amax != nullptr && i < cols) columnwise_amax[i] = amax;
  }
}

// =====================================================================================================================
// encode (steps 2 to 5)
// =====================================================================================================================

// Reads the input once: 2 bytes of bf16 in, 0.5625 out for each direction.
template <
    Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool weight_2d, int sign_mask, bool edges>
__global__ void __launch_bounds__(TransposeTile::kThreads, kEncodeBlocksPerSm<rounding>) per_token_encode(
    const bf16* __restrict__ input,         // (rows, cols)
    Optional<const float> rowwise_amax,     // (rows,)
    Optional<const float> columnwise_amax,  // (cols,)
    Optional<u8> rowwise_data,              // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,         // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    Optional<u8> columnwise_data,           // (cols, rows/2) e2m1 pairs
    Optional<u8> columnwise_scale_inv,      // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
    int rows, int cols, u64 seed, u32 offset) {
  __shared__ EncodeSmem<bf16> shared;
  const TileOrigin origin = tile_origin_bottom_up(TransposeTile::kRows, TransposeTile::kCols);
  if (origin.row >= rows) {
    wait_for_launch_ahead();
    return;
  }
  const InputPrologue<bf16, true> prologue = {input};
  constexpr bool kSectors = edges && !weight_2d && outputs != Outputs::columnwise;
  per_token_encode_tile<outputs, rht, rounding, scale_layout, weight_2d, sign_mask, edges, true, kSectors>(
      shared, prologue, rowwise_amax, columnwise_amax, {rowwise_data, rowwise_scale_inv},
      {columnwise_data, columnwise_scale_inv}, rows, cols, origin, seed, offset);
}

// =====================================================================================================================
// full (steps 1 to 5)
// =====================================================================================================================

// Reads the input once, on a device that holds all tiles at once.
template <Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, int sign_mask, bool edges>
__global__ void __launch_bounds__(TransposeTile::kThreads, kMostResidentBlocksPerSm<outputs, rht, rounding, edges>)
    per_token_resident(
        const bf16* __restrict__ input,           // (rows, cols)
        Optional<float> rowwise_amax,             // (rows,)
        Optional<float> columnwise_amax,          // (cols,)
        Optional<u8> rowwise_data,                // (rows, cols/2) e2m1 pairs
        Optional<u8> rowwise_scale_inv,           // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
        Optional<u8> columnwise_data,             // (cols, rows/2) e2m1 pairs
        Optional<u8> columnwise_scale_inv,        // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
        TileSync* __restrict__ rowwise_bands,     // (rows/128 + 1,) zero before and after
        TileSync* __restrict__ columnwise_bands,  // (cols/128 + 1,) zero before and after
        int rows, int cols, u64 seed, u32 offset) {
  __shared__ ResidentSmem shared;
  const InputPrologue<bf16> prologue = {input};
  per_token_resident_tile<outputs, rht, rounding, scale_layout, sign_mask, edges>(
      shared, prologue, rowwise_bands, columnwise_bands,
      [&] {
        return PerTokenOutputs{
            rowwise_amax, columnwise_amax, {rowwise_data, rowwise_scale_inv}, {columnwise_data, columnwise_scale_inv}};
      },
      rows, cols, tile_origin(TransposeTile::kRows, TransposeTile::kCols), seed, offset);
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch per_token_amax_launch = {
    RowColStrip<false>::kRows, RowColStrip<false>::kCols, RowColStrip<false>::kThreads, kAmaxBlocksPerSm,
    Schedule::persistent};
__constant__ Launch per_token_amax_rht_launch = {
    RowColStrip<true>::kRows, RowColStrip<true>::kCols, RowColStrip<true>::kThreads, kAmaxRhtBlocksPerSm,
    Schedule::persistent};
__constant__ Launch per_token_amax_2d_launch = TensorAmax::kLaunch;
__constant__ Launch per_token_encode_launch = kLaunchTiles<TransposeTile>;
__constant__ Launch per_token_resident_launch = {
    TransposeTile::kRows, TransposeTile::kCols, TransposeTile::kThreads, kResidentBlocksPerSm, Schedule::resident};
