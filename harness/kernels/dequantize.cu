// dequantize: NVFP4 back to bf16, fp16 or fp32.
//
// Contract (NUMERICS 9), each step rounded to nearest-even in fp32:
//   1. f      = (scale_inv * amax) * C,   C = 1 / (6 * e4m3_max); the scale meets the amax first. The amax is that of
//               the tensor, of the row, or of the 1x64 window.
//   2. output = cast(code * f)
// Every code and every scale byte decodes; a scale byte of 0x7F or 0xFF is NaN. A stored NaN is 0x7FFF in 16 bits,
// 0x7FFFFFFF in fp32.
//
// Run it: make verify R=dequantize          Time it: make bench R=dequantize
#include "layout.cuh"
#include "nvfp4.cuh"
#include "tile.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRepeat = 2;  // rows a thread takes
constexpr int kTileRows = kWarps * kRepeat;
constexpr int kTileCols = 32 * kBlock;

// =====================================================================================================================
// Helpers
// =====================================================================================================================

template <typename Dtype>
__device__ __forceinline__ Packed16<Dtype> decode_block(const uint2& codes, float factor) {
  float value[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i)
    value[i] = __fmul_rn(e2m1_decode((i < 8 ? codes.x : codes.y) >> (4 * (i % 8))), factor);
  return pack<Dtype>(value);
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

// 0.5625 bytes in and, for bf16, 2 bytes out for each element.
template <typename Dtype, ScaleLayout scale_layout, Granularity granularity>
__global__ void __launch_bounds__(kThreads) dequantize(
    const u8* __restrict__ data,       // (rows, cols/2) e2m1 pairs
    const u8* __restrict__ scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    const float* __restrict__ amax,    // (1,), (rows,) or (rows, cols/64)
    Dtype* __restrict__ output,        // (rows, cols)
    int rows, int cols, int e4m3_max) {
  const TileOrigin origin = tile_origin(kTileRows, kTileCols);
  const int block_col = origin.col / kBlock + threadIdx.x % 32;
  const ScaleExtents extents(rows, cols / kBlock);
#pragma unroll
  for (int i = 0; i < kRepeat; ++i) {
    const int row = origin.row + i * kWarps + threadIdx.x / 32;
    if (!extents.holds(row, block_col)) continue;
    const i64 block = row_offset(row, extents.blocks) + block_col;
    const uint2 codes = __ldg(reinterpret_cast<const uint2*>(data) + block);
    const u32 scale = __ldg(scale_inv + scale_offset<scale_layout>(row, block_col, extents.padded_blocks));
    const float granule = granule_amax<granularity>(amax, extents, row, block_col);
    const float factor = block_decode_scale(scale, granule, float(e4m3_max));
    store16(output + block * kBlock, decode_block<Dtype>(codes, factor));
  }
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch dequantize_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
