// mxfp8: e4m3 codes with one e8m0 scale, a power of two, for each 32 values of a row, of a column, or of both.
//
// Contract, each step rounded to nearest-even in fp32:
//   1. amax      = max |x| over 32 values, NaN dropped
//   2. v         = amax * (1/448)                       floor: amax * 2^-8
//   3. scale_inv = e8m0(v), stored as its exponent + 127, from 0 to 254
//                  ceil: the least power of two that is not below v     floor: the largest that is not above v
//                  nearest: the power of two nearest to v, of two the larger
//   4. code      = e4m3(x * (1 / scale_inv))            saturates at 448; -0 keeps its sign, NaN is 0x7F
// A block of zeros or NaNs has the byte 0, which is 2^-127; one with an infinity has the byte 254, and codes of 448.
// columnwise: blocks of 32 rows of a column. Its codes lie as the input does, because an 8-bit MMA takes either order.
//
// ceil is the rule of Transformer Engine (ptx::float_to_e8m0), FlashInfer 0.7.4 (batch_invariant, rcp rp) and torchao
// (RCEIL), floor that of the OCP MX specification 1.0, section 6.3, nearest FlashInfer's rcp rn. torchao gives a block
// with a NaN or an infinity the byte 255; its CEIL is another rule, amax * 2^-8 upward.
//
// cols, and columnwise rows, are multiples of 32, as for Transformer Engine: no layout has a scale of a shorter block.
#include "memory/scale_layout.cuh"  // ScaleExtents: scales are padded with zeros to 128x4; row_offset
#include "numerics/e4m3.cuh"        // e4m3_encode; absmax, max2 and conversions of 16-bit pairs come with it
#include "scheduler/launch.cuh"     // Launch, tile_origin

enum class ScaleRule { ceil, floor, nearest };

constexpr int kMxBlock = 32;             // values that share a scale
constexpr float kElementMax = 448.0f;    // the largest e4m3 value
constexpr float kElementPower = 256.0f;  // the largest e4m3 power of two

// A CTA takes one block of 32 rows by 256 columns, and reads it once. A thread holds 8 rows of 8 columns in registers:
// four lanes have a block of a row, the four warps a block of a column. A warp reads 512 bytes of a row at a time, and
// stores 256.
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = kMxBlock / kWarps, kCols = 8;
constexpr int kTileCols = 32 * kCols;
constexpr int kLanesOfBlock = kMxBlock / kCols;

// Step 2 and 3. amax: not NaN
template <ScaleRule rule>
__device__ u32 e8m0_of(float amax) {
  const float v = __fmul_rn(amax, rule == ScaleRule::floor ? 1.0f / kElementPower : 1.0f / kElementMax);
  // Added to the bits of v, this reaches the next exponent where v is to be rounded up. 2^-127 is a subnormal float,
  // whose mantissa goes half as far.
  constexpr u32 kUp = rule == ScaleRule::ceil ? 0x7FFFFFu : rule == ScaleRule::nearest ? 0x400000u : 0u;
  const u32 bits = __float_as_uint(v);
  return min((bits + (bits < 0x800000u ? kUp / 2 : kUp)) >> 23, 254u);
}

// 1 / 2^(byte - 127), exact
__device__ float reciprocal_of(u32 byte) { return __uint_as_float(byte == 254 ? 0x400000u : (254 - byte) << 23); }

// Two codes of step 4, the first in the low byte
__device__ u32 e4m3_pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return e4m3_encode(low) | e4m3_encode(high) << 8;
#endif
}

// Codes of a thread's eight values in a row. multiplier: that of each column
template <typename Dtype>
__device__ uint2 encode8(const u32 (&word)[4], const float (&multiplier)[kCols]) {
  u32 pair[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    // A product, and no fma with 0, which would turn -0 into +0
    pair[j] = e4m3_pair(
        __fmul_rn(low_to_float(word[j], Dtype{}), multiplier[2 * j]),
        __fmul_rn(high_to_float(word[j], Dtype{}), multiplier[2 * j + 1]));
  }
  return make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
}

template <typename Dtype, Outputs outputs, ScaleRule scale_rule>
__global__ void __launch_bounds__(kThreads, 5) mxfp8_encode(
    const Dtype* __restrict__ input,    // (rows, cols)
    Optional<u8> rowwise_data,          // (rows, cols) e4m3
    Optional<u8> rowwise_scale_inv,     // (round_up(rows, 128), round_up(cols/32, 4)) e8m0
    Optional<u8> columnwise_data,       // (rows, cols) e4m3, not transposed
    Optional<u8> columnwise_scale_inv,  // (round_up(rows/32, 4), round_up(cols, 128)) e8m0
    int rows, int cols) {
  const TileOrigin origin = tile_origin(kMxBlock, kTileCols);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = origin.row + warp * kRows, col = origin.col + lane * kCols;

  u32 x[kRows][4];  // two values in each word
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool inside = first_row + i < rows && col < cols;
    const uint4* source = reinterpret_cast<const uint4*>(input + row_offset(first_row + i, cols) + col);
    const uint4 v = inside ? __ldg(source) : uint4{};  // zeros have the scale byte of padding, 0
    x[i][0] = v.x;
    x[i][1] = v.y;
    x[i][2] = v.z;
    x[i][3] = v.w;
  }

  if constexpr (outputs != Outputs::columnwise) {
    const ScaleExtents extents(rows, cols / kMxBlock);
    const int block = col / kMxBlock;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row + i;
      u32 halves = absmax<Dtype>(x[i]);  // of even and of odd columns; absmax and max2 drop NaN
#pragma unroll
      for (int apart = 1; apart < kLanesOfBlock; apart *= 2) {
        halves = max2(halves, __shfl_xor_sync(~0u, halves, apart), Dtype{});
      }
      const u32 scale = e8m0_of<scale_rule>(amax_of_word<Dtype>(halves));
      if (lane % kLanesOfBlock == 0 && extents.allocated(row, block)) {
        rowwise_scale_inv[row_offset(row, extents.padded_blocks) + block] = u8(scale);
      }
      float multiplier[kCols];
#pragma unroll
      for (float& each : multiplier) each = reciprocal_of(scale);
      if (row < rows && col < cols) {
        *reinterpret_cast<uint2*>(rowwise_data + row_offset(row, cols) + col) = encode8<Dtype>(x[i], multiplier);
      }
    }
  }

  if constexpr (outputs != Outputs::rowwise) {
    __shared__ uint4 amax_of_warp[kWarps][32];
    u32 pairs[4] = {};  // amaxes of two neighbouring columns
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) pairs[j] = max2(pairs[j], abs2(x[i][j], Dtype{}), Dtype{});
    }
    amax_of_warp[warp][lane] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    __syncthreads();
#pragma unroll
    for (int other = 1; other < kWarps; ++other) {
      const uint4 theirs = amax_of_warp[(warp + other) % kWarps][lane];
      pairs[0] = max2(pairs[0], theirs.x, Dtype{});
      pairs[1] = max2(pairs[1], theirs.y, Dtype{});
      pairs[2] = max2(pairs[2], theirs.z, Dtype{});
      pairs[3] = max2(pairs[3], theirs.w, Dtype{});
    }
    float multiplier[kCols];
    u32 scales[2] = {};  // four bytes each
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
      const u32 scale =
          e8m0_of<scale_rule>(j % 2 ? high_to_float(pairs[j / 2], Dtype{}) : low_to_float(pairs[j / 2], Dtype{}));
      multiplier[j] = reciprocal_of(scale);
      scales[j / 4] |= scale << j % 4 * 8;
    }
    // The scale of block b of a column is at [b, column]: padded as the transpose of rowwise scales.
    const int block = origin.row / kMxBlock, padded_cols = round_up(cols, 128);
    if (warp == 0 && col < padded_cols) {
      u8* target = columnwise_scale_inv + row_offset(block, padded_cols) + col;
      *reinterpret_cast<uint2*>(target) = make_uint2(scales[0], scales[1]);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row + i;
      if (row < rows && col < cols) {
        *reinterpret_cast<uint2*>(columnwise_data + row_offset(row, cols) + col) = encode8<Dtype>(x[i], multiplier);
      }
    }
  }
}

// A CTA for each tile, also of the rows and columns that only padded scales have
__constant__ Launch mxfp8_encode_launch = {kMxBlock, kTileCols, kThreads, 5, Schedule::tiles};
