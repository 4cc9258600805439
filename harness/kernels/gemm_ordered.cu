// gemm_ordered: D (M, N) = A (M, K) * B (N, K)^T of two NVFP4 tensors, summed in the stated order.
//
// Contract (NUMERICS 10.1 and 10.3), each step rounded to nearest-even in fp32, for element (i, j):
//   1. p   = (sa * sb) * dot    exact: sa * sb has 8 significant bits, dot is a multiple of 1/4 up to 576
//            sa, sb: scales of a 16-block of row i of A and row j of B; dot: sum of its 16 products of codes
//   2. acc = acc + p            from 0, for each 16-block along K in order
//            windows: within a window of 64 first, then acc = acc + (a_w * b_w) * window
//   3. D   = epilogue(acc)      gemm/epilogue.cuh; per_token is completed by gemm_post_scale
// Both operands are packed along K. As e4m3 the scale bytes 0x7F and 0xFF are NaN, with scale_format=ue5m3 0xFF is. A stored
// NaN is 0x7FFF in 16 bits, 0x7FFFFFFF in fp32. a_global_scale=false, b_global_scale=false: the operand has no amax.
//
// Run it: make verify R=gemm_ordered          Time it: make bench R=gemm_ordered
#include "gemm/epilogue.cuh"
#include "numerics/nvfp4.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kTile = 16;                // rows and columns of a CTA's output
constexpr int kThreads = kTile * kTile;  // one element each

constexpr int kVector = 8;          // gemm_post_scale: elements of a thread
constexpr int kScaledRows = 8;      // rows of a CTA
constexpr int kScaledVectors = 32;  // vectors of a row

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// Decoded 16-blocks of sixteen rows of an operand
struct OperandTile {
  alignas(16) float code[kTile][kBlock];
  float scale[kTile];
};

// Each thread decodes a code, and the first kTile threads a scale. Rows beyond the last are not written.
template <ScaleLayout layout, ScaleFormat scale_format>
__device__ __forceinline__ void decode_tile(
    OperandTile& tile, const u8* __restrict__ data, const u8* __restrict__ scale_inv, const ScaleExtents& extents,
    int first_row, int block) {
  const int row = first_row + threadIdx.x / kBlock, lane = threadIdx.x % kBlock;
  if (row < extents.rows) {
    const u32 pair = __ldg(data + (row_offset(row, extents.blocks * kBlock) + block * kBlock + lane) / 2);
    tile.code[threadIdx.x / kBlock][lane] = e2m1_decode(pair >> (4 * (lane % 2)));
  }
  const int scaled_row = first_row + threadIdx.x;
  if (threadIdx.x < kTile && scaled_row < extents.rows) {
    const u32 scale = __ldg(scale_inv + scale_offset<layout>(scaled_row, block, extents.padded_blocks));
    tile.scale[threadIdx.x] = scale_decode<scale_format>(scale);
  }
}

struct alignas(16) Vector {
  bf16 element[kVector];
};

// Step 1
__device__ __forceinline__ float block_product(const OperandTile& a, const OperandTile& b, int row, int col) {
  float dot = 0.0f;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) dot = __fadd_rn(dot, __fmul_rn(a.code[row][i], b.code[col][i]));
  return __fmul_rn(__fmul_rn(a.scale[row], b.scale[col]), dot);
}

// =====================================================================================================================
// Kernels
// =====================================================================================================================

// A and B are each read by all CTAs of a row or column of tiles, N/16 and M/16 times.
template <
    typename Dtype, Epilogue epilogue, ScaleLayout a_scale_layout, ScaleLayout b_scale_layout,
    Granularity b_granularity, ScaleFormat scale_format, bool a_global_scale, bool b_global_scale>
__global__ void __launch_bounds__(kThreads) gemm_ordered(
    const u8* __restrict__ a_data,       // (M, K/2) e2m1 pairs
    const u8* __restrict__ a_scale_inv,  // (round_up(M, 128), round_up(K/16, 4)) in scale_format
    Optional<const float> a_amax,        // (1,) or (M,) or (M, K/64)
    const u8* __restrict__ b_data,       // (N, K/2) e2m1 pairs
    const u8* __restrict__ b_scale_inv,  // (round_up(N, 128), round_up(K/16, 4)) in scale_format
    Optional<const float> b_amax,        // (1,) or (N,) or (N, K/64)
    Optional<const Dtype> c,             // (M, N)
    Optional<const Dtype> bias,          // (N,)
    Dtype* __restrict__ output,          // (M, N)
    int M, int N, int K, float alpha, float beta, int a_e4m3_max, int b_e4m3_max) {
  __shared__ OperandTile a, b;
  const TileOrigin origin = tile_origin(kTile, kTile);
  const int tile_row = threadIdx.x / kTile, tile_col = threadIdx.x % kTile;
  const ScaleExtents a_extents(M, K / kBlock), b_extents(N, K / kBlock);
  const int row = origin.row + tile_row, col = origin.col + tile_col;
  const bool inside = row < M && col < N;

  float acc = 0.0f, window_sum = 0.0f;
  for (int block = 0; block < K / kBlock; ++block) {
    decode_tile<a_scale_layout, scale_format>(a, a_data, a_scale_inv, a_extents, origin.row, block);
    decode_tile<b_scale_layout, scale_format>(b, b_data, b_scale_inv, b_extents, origin.col, block);
    __syncthreads();
    if constexpr (epilogue == Epilogue::windows) {
      if (inside) window_sum = __fadd_rn(window_sum, block_product(a, b, tile_row, tile_col));
      if (inside && block % kWindowBlocks == kWindowBlocks - 1) {
        const int window = block / kWindowBlocks, windows = K / kBlock / kWindowBlocks;
        const float a_w = __ldg(a_amax + row_offset(row, windows) + window);
        const float b_w = __ldg(b_amax + row_offset(col, windows) + window);
        acc = __fadd_rn(acc, __fmul_rn(__fmul_rn(a_w, b_w), window_sum));
        window_sum = 0.0f;
      }
    } else {
      if (inside) acc = __fadd_rn(acc, block_product(a, b, tile_row, tile_col));
    }
    __syncthreads();
  }
  if (!inside) return;
  using Levels = ScaleLevels<scale_format, a_global_scale, b_global_scale>;
  const float c_ab = Levels::c_ab(a_e4m3_max, b_e4m3_max);
  const EpilogueParams<Dtype, Levels> params = {a_amax, b_amax, c, bias, N, alpha, beta, c_ab};
  output[row_offset(row, N) + col] = apply_epilogue<epilogue, b_granularity>(acc, row, col, params);
}

// Moves 2 bytes in and 2 out for each element. N is a multiple of 16.
__global__ void __launch_bounds__(kThreads) gemm_post_scale(
    InPlace<bf16> output,              // (M, N)
    const float* __restrict__ a_amax,  // (M,)
    const float* __restrict__ b_amax,  // (N,)
    int M, int N) {
  const TileOrigin origin = tile_origin(kScaledRows, kScaledVectors * kVector);
  const int row = origin.row + threadIdx.x / kScaledVectors;
  const int col = origin.col + threadIdx.x % kScaledVectors * kVector;
  if (row >= M || col >= N) return;
  Vector* place = reinterpret_cast<Vector*>(output + row_offset(row, N) + col);
  Vector vector = *place;
  const float a = __ldg(a_amax + row);
#pragma unroll
  for (int i = 0; i < kVector; ++i) vector.element[i] = post_scaled(vector.element[i], a, __ldg(b_amax + col + i));
  *place = vector;
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch gemm_ordered_launch = {kTile, kTile, kThreads, 0, Schedule::tiles};
__constant__ Launch gemm_post_scale_launch = {kScaledRows, kScaledVectors * kVector, kThreads, 0, Schedule::tiles};
