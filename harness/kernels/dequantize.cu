// dequantize: NVFP4 back to bf16, fp16 or fp32.
//
// Contract (NUMERICS 9), each step rounded to nearest-even in fp32:
//   1. f      = (scale_inv * amax) * C,  C = 1 / (6 * e4m3_max)   amax of the tensor, the row or the 1x64 window
//   2. output = cast(code * f)                                    f32->Dtype rounds to nearest even
// All codes and scale bytes decode; 0x7F and 0xFF are NaN. A stored NaN is 0x7FFF in 16 bits, 0x7FFFFFFF in fp32.
//
// Run it: make verify R=dequantize          Time it: make bench R=dequantize
#include "memory/scale_layout.cuh"
#include "numerics/nvfp4.cuh"
#include "scheduler/launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRepeat = 4;  // rows of a warp
constexpr int kTileRows = kWarps * kRepeat;
constexpr int kTileCols = 256;

// Output elements in a thread's 16-byte store, so that a warp's stores are contiguous
template <typename Dtype>
constexpr int kVector = 16 / int(sizeof(Dtype));

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// The codes of an output vector, the first in the low bits
template <typename Dtype>
__device__ __forceinline__ u32 load_codes(const u8* __restrict__ data, i64 vector) {
  if constexpr (sizeof(Dtype) == 4) return __ldg(reinterpret_cast<const u16*>(data) + vector);
  return __ldg(reinterpret_cast<const u32*>(data) + vector);
}

template <typename Dtype>
__device__ __forceinline__ uint4 decode(u32 codes, float factor) {
  float value[kVector<Dtype>];
#pragma unroll
  for (int i = 0; i < kVector<Dtype>; ++i) value[i] = __fmul_rn(e2m1_decode(codes >> (4 * i)), factor);
  u32 word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(Dtype) == 4)
      word[i] = __float_as_uint(value[i]);
    else
      word[i] = pack2(value[2 * i], value[2 * i + 1], Dtype{});
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

template <Granularity granularity>
__device__ __forceinline__ float granule_amax(
    const float* __restrict__ amax, const ScaleExtents& extents, int row, int block_col) {
  constexpr u32 kWindowBlocks = kWindow / kBlock;
  if constexpr (granularity == Granularity::tensor) return __ldg(amax);
  if constexpr (granularity == Granularity::row) return __ldg(amax + row);
  return __ldg(amax + row_offset(row, extents.blocks / kWindowBlocks) + block_col / kWindowBlocks);
}

// =====================================================================================================================
// Kernel
// =====================================================================================================================

// Moves 0.5625 bytes in and, for bf16, 2 bytes out for each element.
template <typename Dtype, ScaleLayout scale_layout, Granularity granularity>
__global__ void __launch_bounds__(kThreads) dequantize(
    const u8* __restrict__ data,       // (rows, cols/2) e2m1 pairs
    const u8* __restrict__ scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    const float* __restrict__ amax,    // (1,), (rows,) or (rows, cols/64)
    Dtype* __restrict__ output,        // (rows, cols)
    int rows, int cols, int e4m3_max) {
  constexpr int kVectors = kBlock / kVector<Dtype>;  // in a 16-block
  constexpr int kSpans = kTileCols / (32 * kVector<Dtype>), kLoads = kRepeat * kSpans;
  const TileOrigin origin = tile_origin(kTileRows, kTileCols);
  const ScaleExtents extents(rows, cols / kBlock);
  const int first_row = origin.row + threadIdx.x / 32, first_vector = origin.col / kVector<Dtype> + threadIdx.x % 32;
  u32 codes[kLoads], scale[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int row = first_row + i / kSpans * kWarps, vector = first_vector + i % kSpans * 32, block = vector / kVectors;
    if (!extents.holds(row, block)) continue;
    codes[i] = load_codes<Dtype>(data, row_offset(row, extents.blocks * kVectors) + vector);
    scale[i] = __ldg(scale_inv + scale_offset<scale_layout>(row, block, extents.padded_blocks));
  }
  const float range = decode_range(float(e4m3_max));
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int row = first_row + i / kSpans * kWarps, vector = first_vector + i % kSpans * 32, block = vector / kVectors;
    if (!extents.holds(row, block)) continue;
    const float factor = block_decode_scale(scale[i], granule_amax<granularity>(amax, extents, row, block), range);
    const i64 at = row_offset(row, extents.blocks * kVectors) + vector;
    reinterpret_cast<uint4*>(output)[at] = decode<Dtype>(codes[i], factor);
  }
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch dequantize_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
