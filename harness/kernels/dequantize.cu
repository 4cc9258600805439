// dequantize: NVFP4 back to bf16, fp16 or fp32.
//
// Contract (NUMERICS 9), each step rounded to nearest-even in fp32:
//   1. f      = (scale_inv * amax) * C,  C = 1 / (6 * E)          amax of the tensor, the row or the 1x64 window
//   2. output = cast(code * f)                                    f32->Dtype rounds to nearest even
// E is e4m3_max, or 114688 for scale_format=ue5m3. global_scale=false: there is no amax array, and amax is 6 * E.
// All codes and scale bytes decode: as e4m3 0x7F and 0xFF are NaN, as ue5m3 0xFF. A stored NaN is 0x7FFF in 16 bits,
// 0x7FFFFFFF in fp32.
// dequantize reads the rowwise copy. dequantize_columnwise reads the copy whose lines are the columns.
//
// Run it: make verify R=dequantize          Time it: make bench R=dequantize
#include "memory/scale_layout.cuh"
#include "memory/transpose_tile.cuh"
#include "numerics/nvfp4.cuh"
#include "scheduler/launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRepeat = 4;  // rows per warp
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

template <Granularity granularity, ScaleFormat format, bool two_levels>
__device__ __forceinline__ float granule_amax(
    const float* __restrict__ amax, const ScaleExtents& extents, int line, int block) {
  if constexpr (!two_levels) return kE2m1Max * kScaleMax<format>;
  if constexpr (granularity == Granularity::tensor) return __ldg(amax);
  if constexpr (granularity == Granularity::row) return __ldg(amax + line);
  return __ldg(amax + row_offset(line, u32(extents.blocks) / kWindowBlocks) + u32(block) / kWindowBlocks);
}

// A block of a line in memory
struct LoadedBlock {
  uint2 codes;
  u32 scale_inv;

  __device__ float value(int i, float factor) const {
    return __fmul_rn(e2m1_decode((i < 8 ? codes.x : codes.y) >> (4 * (i % 8))), factor);
  }
};

// =====================================================================================================================
// Rowwise
// =====================================================================================================================

// Moves 0.5625 bytes in and, for bf16, 2 bytes out for each element.
template <
    typename Dtype, ScaleLayout scale_layout, Granularity granularity, ScaleFormat scale_format, bool global_scale>
__global__ void __launch_bounds__(kThreads) dequantize(
    const u8* __restrict__ data,       // (rows, cols/2) e2m1 pairs
    const u8* __restrict__ scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) in scale_format
    Optional<const float> amax,        // (1,), (rows,) or (rows, cols/64)
    Dtype* __restrict__ output,        // (rows, cols)
    int rows, int cols, int e4m3_max) {
  constexpr int kVectors = kBlock / kVector<Dtype>;  // vectors in a 16-block
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
  const float range = decode_range(scale_max<scale_format>(e4m3_max));
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int row = first_row + i / kSpans * kWarps, vector = first_vector + i % kSpans * 32, block = vector / kVectors;
    if (!extents.holds(row, block)) continue;
    const float factor = block_decode_scale<scale_format>(
        scale[i], granule_amax<granularity, scale_format, global_scale>(amax, extents, row, block), range);
    const i64 at = row_offset(row, extents.blocks * kVectors) + vector;
    reinterpret_cast<uint4*>(output)[at] = decode<Dtype>(codes[i], factor);
  }
}

// =====================================================================================================================
// Columnwise
// =====================================================================================================================

// Moves as many bytes. A thread decodes a block of each of its columns into the tile, then the CTA stores whole rows.
template <
    typename Dtype, ScaleLayout scale_layout, Granularity granularity, ScaleFormat scale_format, bool global_scale>
__global__ void __launch_bounds__(TransposeTile::kThreads) dequantize_columnwise(
    const u8* __restrict__ data,       // (cols, rows/2) e2m1 pairs
    const u8* __restrict__ scale_inv,  // (round_up(cols, 128), round_up(rows/16, 4)) in scale_format
    Optional<const float> amax,        // (1,), (cols,) or (cols, rows/64)
    Dtype* __restrict__ output,        // (rows, cols)
    int rows, int cols, int e4m3_max) {
  using Pass = TransposePass<Dtype>;
  __shared__ TransposeSmem<Dtype> tile;
  const TileOrigin origin = tile_origin(TransposeTile::kRows, TransposeTile::kCols);
  const ScaleExtents extents(cols, u32(rows) / kBlock);
  const ColumnRole role;
  const int block = u32(origin.row) / kBlock + role.band;
  const float range = decode_range(scale_max<scale_format>(e4m3_max));
#pragma unroll
  for (int pass = 0; pass < Pass::kPasses; ++pass) {
    const int first_col = origin.col + pass * Pass::kCols;
    LoadedBlock loaded[Pass::kPairs][2];
    float line_amax[Pass::kPairs][2];
#pragma unroll
    for (int i = 0; i < Pass::kLines; ++i) {
      const int col = first_col + role.pair_col(i / 2) + i % 2;
      if (!extents.holds(col, block)) continue;
      LoadedBlock& own = loaded[i / 2][i % 2];
      own.codes = __ldg(reinterpret_cast<const uint2*>(data) + row_offset(col, extents.blocks) + block);
      own.scale_inv = __ldg(scale_inv + scale_offset<scale_layout>(col, block, extents.padded_blocks));
      line_amax[i / 2][i % 2] = granule_amax<granularity, scale_format, global_scale>(amax, extents, col, block);
    }
    if (pass > 0) __syncthreads();
#pragma unroll
    for (int pair = 0; pair < Pass::kPairs; ++pair) {
      if (!extents.holds(first_col + role.pair_col(pair), block)) continue;
      const LoadedBlock &left = loaded[pair][0], &right = loaded[pair][1];
      const float left_factor = block_decode_scale<scale_format>(left.scale_inv, line_amax[pair][0], range);
      const float right_factor = block_decode_scale<scale_format>(right.scale_inv, line_amax[pair][1], range);
#pragma unroll
      for (int row = 0; row < kBlock; ++row) {
        tile.store_pair(role, pair, row, left.value(row, left_factor), right.value(row, right_factor));
      }
    }
    __syncthreads();
    // Neighbouring lanes store neighbouring 16 bytes of a row.
    constexpr int kChunk = TransposeSmem<Dtype>::kChunk, kAcross = Pass::kCols / kChunk;
    const int chunk_col = int(threadIdx.x) % kAcross * kChunk, col = first_col + chunk_col;
#pragma unroll
    for (int row = threadIdx.x / kAcross; row < Pass::kRows; row += TransposeTile::kThreads / kAcross) {
      if (origin.row + row >= rows || col >= cols) continue;
      const uint4 chunk = tile.chunk(row, chunk_col);
      *reinterpret_cast<uint4*>(output + row_offset(origin.row + row, cols) + col) = chunk;
    }
  }
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch dequantize_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
__constant__ Launch dequantize_columnwise_launch = kLaunchTiles<TransposeTile>;
