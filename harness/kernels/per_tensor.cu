// per_tensor: one amax for the whole tensor. The baseline that every other recipe is timed against.
//
// Contract (NUMERICS 3), each step rounded to nearest-even in fp32:
//   1. amax       = max |x| over the tensor, NaN dropped     rht: columnwise over the rotated y, in bf16
//   2. S_enc      = min(2688 / amax, FLT_MAX)                1 if amax is 0 or inf
//   3. S_dec      = 1 / S_enc
//   4. scale_inv  = e4m3(block_amax * (S_enc * (1/6)))       f32->e4m3 rounds to nearest even; 1x16 or 16x16 blocks
//                   scale_format=ue5m3: ue5m3(), and 688128 = 6 * 114688 in place of 2688
//   5. multiplier = min(1 / (scale_inv * S_dec), FLT_MAX)    fast_math: bf16(min(S_enc / scale_inv, BF16_MAX))
//   6. code       = e2m1(x * multiplier)                     f32->e2m1 rounds to nearest even, or stochastically
// global_scale=false: there is no amax, and S_enc and S_dec are 1.
// -0 keeps its sign, NaN is code 7, inf is +-6 beside the largest scale. If a block's scale underflows to 0, its non-zero
// elements are +-6.
// rowwise: blocks along cols. columnwise: blocks of the transpose, stored transposed; rht rotates only these.
// activation: x is silu(gate) * up, or the gradients of gate and up, rounded to Dtype before step 1 (NUMERICS 8.3).
//
// Run it: make verify R=per_tensor          Time it: make bench R=per_tensor
#include "encode/block_16x16.cuh"
#include "encode/per_tensor.cuh"
#include "memory/swiglu.cuh"
#include "reduce/rht_amax.cuh"
#include "reduce/tensor_amax.cuh"
#include "scheduler/dependent_launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// rowwise: a warp covers 32 blocks of a row, a thread takes this many rows.
constexpr int kRowwiseRepeat = 4;
constexpr int kRowwiseTileRows = kWarps * kRowwiseRepeat;
constexpr int kRowwiseTileCols = 32 * kBlock;

// As many as registers allow without spilling.
template <typename Dtype>
constexpr int kRowwiseBlocksPerSm = sizeof(Dtype) == 4 ? 2 : 3;
template <Block block, Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool fast_math>
constexpr int kTileBlocksPerSm = rounding == Rounding::rne && !(rht && fast_math) ? kTransposeBlocksPerSm : 3;
template <>
constexpr int kTileBlocksPerSm<Block::block_1x16, Outputs::both, true, Rounding::sr, ScaleLayout::compact, false> =
    kTransposeBlocksPerSm;
#if __CUDA_ARCH__ == 1000
template <>
constexpr int kTileBlocksPerSm<Block::block_16x16, Outputs::both, false, Rounding::sr, ScaleLayout::compact, false> = 2;
#endif

template <typename Dtype, Activation activation>
constexpr int kSwigluAmaxBlocksPerSm = sizeof(Dtype) == 4                 ? 2
                                       : activation == Activation::swiglu ? 4
                                                                          : 3;
template <typename Dtype>
constexpr int kSwigluRowwiseBlocksPerSm = sizeof(Dtype) == 4 ? 3 : 4;
template <typename Dtype>
constexpr int kSwigluTileBlocksPerSm = sizeof(Dtype) == 4 ? 2 : 3;

// =====================================================================================================================
// amax (step 1)
// =====================================================================================================================

template <typename Dtype>
__global__ void __launch_bounds__(TensorAmax::kThreads) per_tensor_amax(
    const Dtype* __restrict__ input,    // (rows, cols)
    Optional<float> rowwise_amax,       // (1,)
    Optional<float> columnwise_amax,    // (1,)
    GridAmax* __restrict__ amax_state,  // (1,) zero before and after
    int rows, int cols) {
  tensor_amax(input, rows, cols, amax_state, rowwise_amax, columnwise_amax);
}

template <int sign_mask>
__global__ void __launch_bounds__(kThreads) per_tensor_amax_rht(
    const bf16* __restrict__ input,     // (rows, cols)
    Optional<float> rowwise_amax,       // (1,)
    Optional<float> columnwise_amax,    // (1,)
    GridAmax* __restrict__ amax_state,  // (1,) zero before and after
    int rows, int cols) {
  const u32 units = RhtAmax::units(rows, cols);
  RhtAmax running;
  for (u32 unit = blockIdx.x * kThreads + threadIdx.x; unit < units; unit += gridDim.x * kThreads) {
    running.add<sign_mask>(input, cols, unit);
  }
  let_next_launch_begin();  // not earlier: its loads would compete with these for memory
  u32 bits[2];
  cta_max<kThreads>({amax_of_word<bf16>(running.input), amax_of_word<bf16>(running.rotated)}, bits);
  if (threadIdx.x != 0 || !grid_amax(amax_state, bits)) return;
  if (rowwise_amax != nullptr) *rowwise_amax = __uint_as_float(bits[0]);
  if (columnwise_amax != nullptr) *columnwise_amax = __uint_as_float(bits[1]);
}

// Stores SwiGLU or its gradients for the encode, and finds their amaxes: of bf16 and a half of H columns, 4 bytes are
// read and 2 written forward, 6 and 4 backward. A unit is 16 rows of a pair of columns of a half.
template <typename Dtype, Activation activation, bool rht, int sign_mask>
__global__ void __launch_bounds__(kThreads, kSwigluAmaxBlocksPerSm<Dtype, activation>) per_tensor_amax_swiglu(
    const Dtype* __restrict__ input,    // (rows, 2*cols) gates and ups; dswiglu: (rows, cols/2) gradients
    Optional<const Dtype> act_input,    // (rows, cols) gates and ups of dswiglu
    Optional<Dtype> activated,          // (rows, cols)
    Optional<float> rowwise_amax,       // (1,)
    Optional<float> columnwise_amax,    // (1,)
    GridAmax* __restrict__ amax_state,  // (1,) zero before and after
    int rows, int cols) {
  constexpr int kValues = rht ? 2 : 1;
  using Arrays = SwigluArrays<Dtype, activation, kThreads>;
  __shared__ typename Arrays::Smem shared;
  const Arrays arrays = {input, act_input, activated, cols};
  const u32 units = Arrays::units(rows, cols);
  float amax[kValues] = {};
  for (u32 unit = blockIdx.x * kThreads + threadIdx.x; unit < units; unit += gridDim.x * kThreads) {
    arrays.unit(shared, unit, rows, [&](const ColumnPair<Dtype>& pair) { add_amaxes<rht, sign_mask>(pair, amax); });
  }
  u32 bits[kValues];
  cta_max<kThreads>(amax, bits);
  if (threadIdx.x != 0 || !grid_amax(amax_state, bits)) return;
  if (rowwise_amax != nullptr) *rowwise_amax = __uint_as_float(bits[0]);
  if (columnwise_amax != nullptr) *columnwise_amax = __uint_as_float(bits[kValues - 1]);
}

// =====================================================================================================================
// encode (steps 2 to 6)
// =====================================================================================================================

template <
    typename Dtype, Block block, Rounding rounding, ScaleLayout scale_layout, bool fast_math, ScaleFormat scale_format,
    bool global_scale>
__global__ void __launch_bounds__(kThreads, kRowwiseBlocksPerSm<Dtype>) per_tensor_encode_rowwise(
    const Dtype* __restrict__ input,     // (rows, cols)
    Optional<const float> rowwise_amax,  // (1,)
    u8* __restrict__ rowwise_data,       // (rows, cols/2) e2m1 pairs
    u8* __restrict__ rowwise_scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) in scale_format
    int rows, int cols, u64 seed, u32 offset) {
  const TileOrigin origin = tile_origin_bottom_up(kRowwiseTileRows, kRowwiseTileCols);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int block_col = origin.col / kBlock + lane;
  const ScaleExtents extents(rows, cols / kBlock);

  Packed16<Dtype> x[kRowwiseRepeat];
#pragma unroll
  for (int i = 0; i < kRowwiseRepeat; ++i) {
    const int row = origin.row + i * kWarps + warp;
    x[i] = load_block<true>(input, extents, row, block_col);
  }
  wait_for_launch_ahead();
  const float tensor_amax = amax_of_launch_ahead<global_scale>(rowwise_amax);

  constexpr int kBands = kRowwiseTileRows / kBlock;
  float tile_amax[kBands] = {};
  if constexpr (block == Block::block_16x16) amax_16x16_of_rows<kWarps>(x, tile_amax);

  const auto global = tensor_scale<scale_format, global_scale>(tensor_amax);
#pragma unroll
  for (int i = 0; i < kRowwiseRepeat; ++i) {
    const int row = origin.row + i * kWarps + warp;
    const i64 index = block_index(extents, row, block_col);
    const float amax = block == Block::block_16x16 ? tile_amax[i * kBands / kRowwiseRepeat] : block_amax(x[i]);
    float values[kBlock];
    unpack(x[i], values);
    const EncodedBlock encoded =
        per_tensor_encode_block<rounding, fast_math>(values, amax, global, seed, index, 0, offset);
    store_block<scale_layout>(rowwise_data, rowwise_scale_inv, extents, row, block_col, encoded);
  }
}

// SwiGLU, encoded: 4 bytes of bf16 in, 0.5625 out
template <typename Dtype, Rounding rounding, ScaleLayout scale_layout, bool fast_math>
__global__ void __launch_bounds__(kThreads, kSwigluRowwiseBlocksPerSm<Dtype>) per_tensor_encode_rowwise_swiglu(
    const Dtype* __restrict__ input,         // (rows, 2*cols) gates and ups
    const float* __restrict__ rowwise_amax,  // (1,)
    u8* __restrict__ rowwise_data,           // (rows, cols/2) e2m1 pairs
    u8* __restrict__ rowwise_scale_inv,      // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    int rows, int cols, u64 seed, u32 offset) {
  const TileOrigin origin = tile_origin(kRowwiseTileRows, kRowwiseTileCols);
  const int block_col = origin.col / kBlock + int(threadIdx.x) % 32;
  const ScaleExtents extents(rows, cols / kBlock);
  const SwigluPrologue<Dtype> prologue = {input};
  const GlobalScale global = global_scale(__ldg(rowwise_amax), kE4m3Max);
#pragma unroll 1  // sixteen exps are enough to be in flight
  for (int row = origin.row + int(threadIdx.x) / 32; row < origin.row + kRowwiseTileRows; row += kWarps) {
    const Packed16<Dtype> x = prologue.block(extents, row, block_col);
    float values[kBlock];
    unpack(x, values);
    const EncodedBlock encoded = per_tensor_encode_block<rounding, fast_math>(
        values, block_amax(x), global, seed, block_index(extents, row, block_col), 0, offset);
    store_block<scale_layout>(rowwise_data, rowwise_scale_inv, extents, row, block_col, encoded);
  }
}

// Reads the input once: 2 bytes of bf16 in, 0.5625 out for each direction.
template <
    typename Dtype, Block block, Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool fast_math,
    int sign_mask, ScaleFormat scale_format, bool global_scale>
__global__ void __launch_bounds__(
    TransposeTile::kThreads, kTileBlocksPerSm<block, outputs, rht, rounding, scale_layout, fast_math>)
    per_tensor_encode_tile(
        const Dtype* __restrict__ input,        // (rows, cols)
        Optional<const float> rowwise_amax,     // (1,)
        Optional<const float> columnwise_amax,  // (1,)
        Optional<u8> rowwise_data,              // (rows, cols/2) e2m1 pairs
        Optional<u8> rowwise_scale_inv,         // (round_up(rows, 128), round_up(cols/16, 4)) in scale_format
        u8* __restrict__ columnwise_data,       // (cols, rows/2) e2m1 pairs
        u8* __restrict__ columnwise_scale_inv,  // (round_up(cols, 128), round_up(rows/16, 4)) in scale_format
        int rows, int cols, u64 seed, u32 offset) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use per_tensor_encode_rowwise");
  __shared__ EncodeSmem<Dtype> shared;
  const InputPrologue<Dtype, true> prologue = {input};
  per_tensor_tile<block, outputs, rht, rounding, scale_layout, fast_math, sign_mask, scale_format, global_scale>(
      shared, prologue, [&] { return amax_of_launch_ahead<global_scale>(rowwise_amax); },
      [&] { return amax_of_launch_ahead<global_scale>(columnwise_amax); }, {rowwise_data, rowwise_scale_inv},
      {columnwise_data, columnwise_scale_inv}, rows, cols,
      tile_origin_bottom_up(TransposeTile::kRows, TransposeTile::kCols), seed, offset);
}

// per_tensor_encode_tile of SwiGLU: 4 bytes of bf16 in, 0.5625 out for each direction
template <
    typename Dtype, Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool fast_math,
    int sign_mask>
__global__ void __launch_bounds__(TransposeTile::kThreads, kSwigluTileBlocksPerSm<Dtype>) per_tensor_encode_tile_swiglu(
    const Dtype* __restrict__ input,            // (rows, 2*cols) gates and ups
    Optional<const float> rowwise_amax,         // (1,)
    const float* __restrict__ columnwise_amax,  // (1,)
    Optional<u8> rowwise_data,                  // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,             // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    u8* __restrict__ columnwise_data,           // (cols, rows/2) e2m1 pairs
    u8* __restrict__ columnwise_scale_inv,      // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
    int rows, int cols, u64 seed, u32 offset) {
  __shared__ EncodeSmem<Dtype> shared;
  const SwigluPrologue<Dtype> prologue = {input};
  per_tensor_tile<Block::block_1x16, outputs, rht, rounding, scale_layout, fast_math, sign_mask>(
      shared, prologue, [&] { return __ldg(rowwise_amax); }, [&] { return __ldg(columnwise_amax); },
      {rowwise_data, rowwise_scale_inv}, {columnwise_data, columnwise_scale_inv}, rows, cols,
      tile_origin(TransposeTile::kRows, TransposeTile::kCols), seed, offset);
}

// per_tensor_encode_tile for 16x16 blocks to nearest-even, which encodes each block once for both directions. Both
// amaxes are the tensor's, so one is read.
template <typename Dtype, Outputs outputs, ScaleLayout scale_layout, ScaleFormat scale_format, bool global_scale>
__global__ void __launch_bounds__(kBlock16x16Launch.threads, kTransposeBlocksPerSm) per_tensor_encode_square(
    const Dtype* __restrict__ input,        // (rows, cols)
    Optional<const float> columnwise_amax,  // (1,)
    Optional<u8> rowwise_data,              // (rows, cols/2) e2m1 pairs
    Optional<u8> rowwise_scale_inv,         // (round_up(rows, 128), round_up(cols/16, 4)) in scale_format
    u8* __restrict__ columnwise_data,       // (cols, rows/2) e2m1 pairs
    u8* __restrict__ columnwise_scale_inv,  // (round_up(cols, 128), round_up(rows/16, 4)) in scale_format
    int rows, int cols) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use per_tensor_encode_rowwise");
  __shared__ CodesSmem shared;
  const CtaTile tile = cta_tile(kBlock16x16Launch, rows, cols);
  if (tile.rows <= 0) {  // y times z may exceed the rows of tiles, and threads are divided by the rows of a tile
    wait_for_launch_ahead();
    return;
  }
  encode_block_16x16<outputs, scale_layout, scale_format, global_scale>(
      shared, input, columnwise_amax, {rowwise_data, rowwise_scale_inv}, {columnwise_data, columnwise_scale_inv}, rows,
      cols, tile);
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch per_tensor_amax_launch = TensorAmax::kLaunch;
__constant__ Launch per_tensor_amax_rht_launch = {kBlock, kThreads * RhtAmax::kCols, kThreads, 4, Schedule::persistent};
__constant__ Launch per_tensor_encode_rowwise_launch = {
    kRowwiseTileRows, kRowwiseTileCols, kThreads, 0, Schedule::tiles};
__constant__ Launch per_tensor_encode_tile_launch = kLaunchTiles<TransposeTile>;
__constant__ Launch per_tensor_encode_square_launch = kBlock16x16Launch;
__constant__ Launch per_tensor_amax_swiglu_launch = {kBlock, kThreads * 2, kThreads, 0, Schedule::persistent};
__constant__ Launch per_tensor_encode_rowwise_swiglu_launch = {
    kRowwiseTileRows, kRowwiseTileCols, kThreads, 0, Schedule::tiles};
__constant__ Launch per_tensor_encode_tile_swiglu_launch = kLaunchTiles<TransposeTile>;
