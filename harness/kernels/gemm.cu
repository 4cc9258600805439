// gemm: D (M, N) = A (M, K) * B (N, K)^T on tensor cores, from packed codes and scales.
//
// Contract (NUMERICS 10.2 and 10.3):
//   1. value = code * scale_inv          exact
//   2. acc   = sum of products over K    fp32, in this kernel's order, which H1 to H5 state for sm_90a;
//                                        on other architectures exact if every partial sum is, else within
//                                        the bound of NUMERICS 10.2
//   3. D     = epilogue(acc)             gemm/epilogue.cuh, each step rounded to nearest-even in fp32
// scale_inv is e4m3, or ue5m3 (NUMERICS 1.9) with scale_format=ue5m3. a_global_scale=false, b_global_scale=false: the
// operand has no amax.
// The order depends on the kernel and on K alone: a row of A gives the same row of D by one kernel for any M, in every
// run. gemm and gemm_skinny sum in different orders.
// Padding of scales is read and must be 0 (NUMERICS 1.5).
//
// gemm takes any M, gemm_skinny few rows that gemm_skinny_decode decoded, gemm_windows an amax for each 64 along K.
// gemm_decode runs before a library's bf16 GEMM. gemm_epilogue runs after it where the epilogue is more than one factor.
//
// Run it: make verify R=gemm          Time it: make bench R=gemm
#include "gemm/epilogue.cuh"
#include "gemm/mainloop_skinny.cuh"
#include "gemm/mainloop_skinny_wgmma.cuh"
#include "gemm/mainloop_wgmma.cuh"
#include "gemm/mainloop_windows.cuh"
#include "memory/block_io.cuh"
#include "numerics/nvfp4.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

// Kernels over the output: a warp takes a row of the tile at a time, a thread eight of its columns.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRowRepeat = 4;
constexpr int kVector = 8;
constexpr int kTileRows = kWarps * kRowRepeat;
constexpr int kTileCols = 32 * kVector;

// decode: a warp takes this much of a line at a time, a thread eight codes in each repeat.
constexpr int kDecodeRepeat = 4;
constexpr int kDecodeCols = 32 * kVector * kDecodeRepeat;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
using Skinny = MainloopSkinnyWgmma;
#else
using Skinny = MainloopSkinny;
#endif

// =====================================================================================================================
// GEMM
// =====================================================================================================================

template <
    typename Dtype, Epilogue epilogue, Granularity b_granularity, ScaleLayout a_scale_layout,
    ScaleLayout b_scale_layout, ScaleFormat scale_format, bool a_global_scale, bool b_global_scale>
__global__ void __launch_bounds__(MainloopDense::kThreads, MainloopDense::kBlocksPerSm) gemm(
    const u8* __restrict__ a_data,       // (M, K/2) e2m1 pairs
    const u8* __restrict__ a_scale_inv,  // (round_up(M, 128), round_up(K/16, 4)) in scale_format
    Optional<const float> a_amax,        // (1,) or (M,)
    const u8* __restrict__ b_data,       // (N, K/2) e2m1 pairs
    const u8* __restrict__ b_scale_inv,  // (round_up(N, 128), round_up(K/16, 4)) in scale_format
    Optional<const float> b_amax,        // (1,) or (N,)
    Optional<const Dtype> c,             // (M, N)
    Optional<const Dtype> bias,          // (N,)
    Dtype* __restrict__ output,          // (M, N)
    int M, int K, int N, int a_e4m3_max, int b_e4m3_max, float alpha, float beta) {
  __shared__ MainloopDense::Shared shared;
  const TileOrigin origin = tile_origin(MainloopDense::kTile, MainloopDense::kTile);
  if (origin.row >= M) return;
  using Levels = ScaleLevels<scale_format, a_global_scale, b_global_scale>;
  const GemmOperand<a_scale_layout, scale_format> a = {a_data, a_scale_inv, M, int(u32(K) / kBlock)};
  const GemmOperand<b_scale_layout, scale_format> b = {b_data, b_scale_inv, N, int(u32(K) / kBlock)};
  MainloopDense::multiply(shared, a, b, origin.row, origin.col, [&] {
    const float c_ab = Levels::c_ab(a_e4m3_max, b_e4m3_max);
    return TileEpilogue<epilogue, b_granularity, Dtype, Levels>{
        output, {a_amax, b_amax, c, bias, N, alpha, beta, c_ab}, M, origin};
  });
}

// Decodes A for gemm_skinny: 0.5625 bytes in and 2 out for each element.
template <ScaleLayout a_scale_layout, ScaleFormat scale_format>
__global__ void __launch_bounds__(kThreads) gemm_skinny_decode(
    const u8* __restrict__ a_data,       // (M, K/2) e2m1 pairs
    const u8* __restrict__ a_scale_inv,  // (round_up(M, 128), round_up(K/16, 4)) in scale_format
    u32* __restrict__ a_decoded,         // (round_up(K, 128)/64,) DecodedHalf
    int M, int K) {
  let_next_launch_begin();
  const GemmOperand<a_scale_layout, scale_format> a = {a_data, a_scale_inv, M, int(u32(K) / kBlock)};
  decode_lines(a, a_decoded, blockIdx.x * kWarps + threadIdx.x / 32, gridDim.x * kWarps);
}

// At most 64 rows. 0.5625 bytes of B in for each element.
template <
    typename Dtype, Epilogue epilogue, Granularity b_granularity, ScaleLayout b_scale_layout, ScaleFormat scale_format,
    bool a_global_scale, bool b_global_scale>
__global__ void __launch_bounds__(Skinny::kThreads, 1) gemm_skinny(
    const u32* __restrict__ a_decoded,   // (round_up(K, 128)/64,) DecodedHalf
    Optional<const float> a_amax,        // (1,) or (M,)
    const u8* __restrict__ b_data,       // (N, K/2) e2m1 pairs
    const u8* __restrict__ b_scale_inv,  // (round_up(N, 128), round_up(K/16, 4)) in scale_format
    Optional<const float> b_amax,        // (1,) or (N,)
    Optional<const Dtype> c,             // (M, N)
    Optional<const Dtype> bias,          // (N,)
    Dtype* __restrict__ output,          // (M, N)
    int M, int K, int N, int a_e4m3_max, int b_e4m3_max, float alpha, float beta) {
  __shared__ Skinny::Shared shared;
  const TileOrigin origin = tile_origin(Skinny::kRows, Skinny::kCols);
  using Levels = ScaleLevels<scale_format, a_global_scale, b_global_scale>;
  const GemmOperand<b_scale_layout, scale_format> b = {b_data, b_scale_inv, N, int(u32(K) / kBlock)};
  const float c_ab = Levels::c_ab(a_e4m3_max, b_e4m3_max);
  const TileEpilogue<epilogue, b_granularity, Dtype, Levels> tile_epilogue = {
      output, {a_amax, b_amax, c, bias, N, alpha, beta, c_ab}, M, origin};
  switch (decoded_n8(M)) {
    case 1:
      return Skinny::multiply<1>(shared, a_decoded, b, origin.col, tile_epilogue);
    case 2:
      return Skinny::multiply<2>(shared, a_decoded, b, origin.col, tile_epilogue);
    case 4:
      return Skinny::multiply<4>(shared, a_decoded, b, origin.col, tile_epilogue);
    default:
      return Skinny::multiply<8>(shared, a_decoded, b, origin.col, tile_epilogue);
  }
}

// An amax for each window: acc is a sum over windows of (a_w * b_w) * (sum of the window), each step rounded.
template <typename Dtype, Epilogue epilogue, ScaleLayout a_scale_layout, ScaleLayout b_scale_layout>
__global__ void __launch_bounds__(MainloopWindows::kThreads, MainloopWindows::kBlocksPerSm) gemm_windows(
    const u8* __restrict__ a_data,       // (M, K/2) e2m1 pairs
    const u8* __restrict__ a_scale_inv,  // (round_up(M, 128), round_up(K/16, 4)) e4m3
    const float* __restrict__ a_amax,    // (M, K/64)
    const u8* __restrict__ b_data,       // (N, K/2) e2m1 pairs
    const u8* __restrict__ b_scale_inv,  // (round_up(N, 128), round_up(K/16, 4)) e4m3
    const float* __restrict__ b_amax,    // (N, K/64)
    Dtype* __restrict__ output,          // (M, N)
    int M, int K, int N, int a_e4m3_max, int b_e4m3_max) {
  __shared__ MainloopWindows::Shared shared;
  const TileOrigin origin = tile_origin(MainloopWindows::kTile, MainloopWindows::kTile);
  if (origin.row >= M) return;
  const int blocks = int(u32(K) / kBlock), windows = blocks / kWindowBlocks;
  const GemmOperand<a_scale_layout> a = {a_data, a_scale_inv, M, blocks};
  const GemmOperand<b_scale_layout> b = {b_data, b_scale_inv, N, blocks};
  MainloopWindows mainloop;
  mainloop.multiply(shared, a, b, {a_amax, M, windows}, {b_amax, N, windows}, origin.row, origin.col);
  const float c_ab = accumulator_scale(float(a_e4m3_max), float(b_e4m3_max));
  mainloop.epilogue(
      TileEpilogue<epilogue, Granularity::row, Dtype>{
          output, {nullptr, nullptr, nullptr, nullptr, N, 1.0f, 0.0f, c_ab}, M, origin});
}

// The second step of per_token: multiplies every element by the amaxes of its row and its column.
__global__ void __launch_bounds__(kThreads) gemm_post_scale(
    const float* __restrict__ a_amax,  // (M,)
    const float* __restrict__ b_amax,  // (N,)
    InPlace<bf16> output,              // (M, N)
    int M, int N) {
  const TileOrigin origin = tile_origin(kTileRows, kTileCols);
  const int col = origin.col + threadIdx.x % 32 * kVector;
  if (col >= N) return;
#pragma unroll
  for (int i = 0; i < kRowRepeat; ++i) {
    const int row = origin.row + i * kWarps + threadIdx.x / 32;
    if (row >= M) continue;
    bf16* target = output + row_offset(row, N) + col;
    const uint4 v = *reinterpret_cast<const uint4*>(target);
    const u32 word[4] = {v.x, v.y, v.z, v.w};
    bf16 value[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      value[j] = post_scaled({u16(word[j / 2] >> 16 * (j % 2))}, __ldg(a_amax + row), __ldg(b_amax + col + j));
    store_row(target, value);
  }
}

// =====================================================================================================================
// Before and after a library's GEMM
// =====================================================================================================================

// Two neighbours, in the same half of two pairs, to bf16
template <ScaleFormat scale_format>
__device__ __forceinline__ u32 neighbours(u32 even, u32 odd, bool high) {
  const float first = high ? high_to_float(even, fp16{}) : low_to_float(even, fp16{});
  const float second = high ? high_to_float(odd, fp16{}) : low_to_float(odd, fp16{});
  constexpr float kToValue = 1.0f / kF16Unit<scale_format>;
  return pack2(__fmul_rn(first, kToValue), __fmul_rn(second, kToValue), bf16{});
}

// Decodes eight codes of a line to bf16.
template <ScaleLayout scale_layout, ScaleFormat scale_format>
__device__ __forceinline__ void decode_8(
    const u8* __restrict__ data, const u8* __restrict__ scale_inv, bf16* __restrict__ target, int line, int col,
    int K) {
  const i64 element = row_offset(line, K) + col;
  const u32 word = __ldg(reinterpret_cast<const u32*>(data + element / 2));
  const int padded_blocks = round_up(u32(K) / kBlock, 4);
  const u32 byte = __ldg(scale_inv + scale_offset<scale_layout>(line, u32(col) / kBlock, padded_blocks));
  const u32 scale = ScalesF16x2<scale_format>(byte).both(0);
  const CodesF16x4 even = dequant_4<scale_format>(word, 0, scale), odd = dequant_4<scale_format>(word, 1, scale);
  const uint4 decoded = {
      neighbours<scale_format>(even.pair[0], odd.pair[0], false),
      neighbours<scale_format>(even.pair[1], odd.pair[1], false),
      neighbours<scale_format>(even.pair[0], odd.pair[0], true),
      neighbours<scale_format>(even.pair[1], odd.pair[1], true)};
  *reinterpret_cast<uint4*>(target + element) = decoded;
}

// Step 1 for both operands: 0.5625 bytes in and 2 out for each element; bf16 holds the values exactly. And the factor of
// step 3, if the library applies it: its alpha, and a beta of 0.
template <
    Epilogue epilogue, ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, ScaleFormat scale_format,
    bool a_global_scale, bool b_global_scale>
__global__ void __launch_bounds__(kThreads) gemm_decode(
    const u8* __restrict__ a_data,       // (M, K/2) e2m1 pairs
    const u8* __restrict__ a_scale_inv,  // (round_up(M, 128), round_up(K/16, 4)) in scale_format
    Optional<const float> a_amax,        // (1,) or (M,)
    const u8* __restrict__ b_data,       // (N, K/2) e2m1 pairs
    const u8* __restrict__ b_scale_inv,  // (round_up(N, 128), round_up(K/16, 4)) in scale_format
    Optional<const float> b_amax,        // (1,) or (N,)
    bf16* __restrict__ a_decoded,        // (M, K)
    bf16* __restrict__ b_decoded,        // (N, K)
    Optional<float> factor,              // (2,)
    int M, int K, int N, int a_e4m3_max, int b_e4m3_max, float alpha) {
  if constexpr (has_one_factor(epilogue)) {
    if (factor != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
      using Levels = ScaleLevels<scale_format, a_global_scale, b_global_scale>;
      const float c_ab = Levels::c_ab(a_e4m3_max, b_e4m3_max);
      factor[0] = epilogue == Epilogue::per_tensor ? Levels::tensor_factor(a_amax, b_amax, alpha, c_ab) : c_ab;
      factor[1] = 0.0f;
    }
  }
  const u32 across = (u32(K) + kDecodeCols - 1) / kDecodeCols;
  const u64 parts = u64(u32(M) + u32(N)) * across;
  for (u64 part = u64(blockIdx.x) * kWarps + threadIdx.x / 32; part < parts; part += u64(gridDim.x) * kWarps) {
    const int line = int(part / across), first = int(part % across) * kDecodeCols + threadIdx.x % 32 * kVector;
#pragma unroll
    for (int i = 0; i < kDecodeRepeat; ++i) {
      const int col = first + i * 32 * kVector;
      if (col >= K) continue;
      if (line < M)
        decode_8<a_scale_layout, scale_format>(a_data, a_scale_inv, a_decoded, line, col, K);
      else
        decode_8<b_scale_layout, scale_format>(b_data, b_scale_inv, b_decoded, line - M, col, K);
    }
  }
}

// Step 3 for sums from a library: 4 bytes in and, for bf16, 2 out for each element.
template <
    typename Dtype, Epilogue epilogue, Granularity b_granularity, ScaleFormat scale_format, bool a_global_scale,
    bool b_global_scale>
__global__ void __launch_bounds__(kThreads) gemm_epilogue(
    const float* __restrict__ acc,  // (M, N)
    Optional<const float> a_amax,   // (1,) or (M,)
    Optional<const float> b_amax,   // (1,) or (N,)
    Optional<const Dtype> c,        // (M, N)
    Optional<const Dtype> bias,     // (N,)
    Dtype* __restrict__ output,     // (M, N)
    int M, int N, int a_e4m3_max, int b_e4m3_max, float alpha, float beta) {
  using Levels = ScaleLevels<scale_format, a_global_scale, b_global_scale>;
  const TileOrigin origin = tile_origin(kTileRows, kTileCols);
  const float c_ab = Levels::c_ab(a_e4m3_max, b_e4m3_max);
  const TileEpilogue<epilogue, b_granularity, Dtype, Levels> tile_epilogue = {
      output, {a_amax, b_amax, c, bias, N, alpha, beta, c_ab}, M, origin};
  const int col = threadIdx.x % 32 * kVector;
#pragma unroll
  for (int i = 0; i < kRowRepeat; ++i) {
    const int row = i * kWarps + threadIdx.x / 32;
    if (origin.row + row >= M || origin.col + col >= N) continue;
    u32 word[kVector];
    load_words(acc + row_offset(origin.row + row, N) + origin.col + col, word);
    float sums[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) sums[j] = __uint_as_float(word[j]);
    tile_epilogue(row, col, sums);
  }
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

// The host counts the CTAs of every kernel here by tiles of the output. Both decodes read operands, so their tiles only
// limit how many persistent CTAs a small output gets; whatever the number, they share all lines.
__constant__ Launch gemm_launch = {
    MainloopDense::kTile, MainloopDense::kTile, MainloopDense::kThreads, 0, Schedule::tiles};
__constant__ Launch gemm_skinny_decode_launch = {Skinny::kRows, Skinny::kCols, kThreads, 1, Schedule::persistent};
__constant__ Launch gemm_skinny_launch = {Skinny::kRows, Skinny::kCols, Skinny::kThreads, 0, Schedule::tiles};
__constant__ Launch gemm_windows_launch = {
    MainloopWindows::kTile, MainloopWindows::kTile, MainloopWindows::kThreads, 0, Schedule::tiles};
__constant__ Launch gemm_post_scale_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
__constant__ Launch gemm_decode_launch = {kWarps, kVector, kThreads, 8, Schedule::persistent};
__constant__ Launch gemm_epilogue_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
