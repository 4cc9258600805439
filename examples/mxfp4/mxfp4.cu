// mxfp4: e2m1 codes with one e8m0 scale, a power of two, for each 32 values of a row, of a column, or of both.
//
// Contract, each step rounded to nearest-even in fp32:
//   1. amax      = max |x| over 32 values, NaN dropped
//   2. v         = amax * (1/6)                         floor: amax * 2^-2
//   3. scale_inv = e8m0(v), stored as its exponent + 127, from 0 to 254
//                  ceil: the least power of two that is not below v     floor: the largest that is not above v
//                  nearest: the power of two nearest to v, of two the larger
//   4. code      = e2m1(x * (1 / scale_inv))            saturates at 6; -0 keeps its sign, NaN is code 7
// A block of zeros or NaNs has the byte 0, which is 2^-127; one with an infinity has the byte 254, and codes of 6.
// columnwise: blocks of the transpose, stored transposed, because a 4-bit MMA wants both operands along K.
//
// ceil is the rule of FlashInfer 0.7.4 (batch_invariant, rcp rp) and torchao (RCEIL), floor that of the OCP MX
// specification 1.0, section 6.3, nearest FlashInfer's rcp rn. torchao gives a block with a NaN or an infinity the byte
// 255; its CEIL is another rule, amax * 2^-2 upward.
//
// cols, and columnwise rows, are multiples of 32: no layout has a scale of a shorter block.
#include "memory/scale_layout.cuh"  // ScaleExtents: scales are padded with zeros to 128x4; row_offset
#include "numerics/e2m1.cuh"        // encode16_nearest, with Blackwell's conversion where there is one
#include "scheduler/launch.cuh"     // Launch, tile_origin

enum class ScaleRule { ceil, floor, nearest };

constexpr int kMxBlock = 32;             // values that share a scale
constexpr float kElementMax = kE2m1Max;  // the largest e2m1 value, 6
constexpr float kElementPower = 4.0f;    // the largest e2m1 power of two

// A CTA takes 128 by 128 elements and reads them once. A thread holds 8 rows of 8 columns in registers, a warp 32 rows
// of 64 columns: four lanes have a block of a row, and four others a block of a column.
constexpr int kTile = 128, kThreads = 256;
constexpr int kPatch = 8;  // rows and columns of a thread
constexpr int kWarpCols = 64, kWarpRows = 32;
constexpr int kWords = kTile * 4 / 32;  // of codes in a line of the tile

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

// The tile as one direction stores it: lines of 128 elements, which are rows or columns of the input. It goes through
// shared memory, so that 64 bytes of a line are stored together, and all four of its scales.
struct Lines {
  u32 codes[kTile][kWords + 1];  // one more, so that the lanes of a warp write to different banks
  u8 scales[kTile][kTile / kMxBlock];

  // line, element: the tile's first; lines, length: the extents of the whole output
  __device__ void store(u8* data, u8* scale_inv, int line, int element, int lines, int length) const {
    for (int i = threadIdx.x; i < kTile * kWords / 4; i += kThreads) {
      const int down = i / (kWords / 4), across = i % (kWords / 4);  // a block has 16 bytes of codes
      if (line + down < lines && element + across * kMxBlock < length) {
        const u32* word = codes[down] + across * 4;
        u8* target = data + row_offset(line + down, length / 2) + element / 2;
        reinterpret_cast<uint4*>(target)[across] = make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
    const ScaleExtents extents(lines, length / kMxBlock);
    const int down = threadIdx.x, block = element / kMxBlock;
    if (down < kTile && extents.allocated(line + down, block)) {
      u8* target = scale_inv + row_offset(line + down, extents.padded_blocks) + block;
      *reinterpret_cast<u32*>(target) = *reinterpret_cast<const u32*>(scales[down]);
    }
  }
};

template <typename Dtype, Outputs outputs, ScaleRule scale_rule>
__global__ void __launch_bounds__(kThreads, 2) mxfp4_encode(
    const Dtype* __restrict__ input,    // (rows, cols)
    Optional<u8> rowwise_data,          // (rows, cols/2) e2m1 pairs, the first value in the low half
    Optional<u8> rowwise_scale_inv,     // (round_up(rows, 128), round_up(cols/32, 4)) e8m0
    Optional<u8> columnwise_data,       // (cols, rows/2) e2m1 pairs
    Optional<u8> columnwise_scale_inv,  // (round_up(cols, 128), round_up(rows/32, 4)) e8m0
    int rows, int cols) {
  __shared__ Lines by_row, by_column;
  const TileOrigin origin = tile_origin(kTile, kTile);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / 2 * kWarpRows + lane / 8 * kPatch;  // in the tile
  const int col = warp % 2 * kWarpCols + lane % 8 * kPatch;

  u32 x[kPatch][4];  // two values in each word
#pragma unroll
  for (int i = 0; i < kPatch; ++i) {
    const bool inside = origin.row + row + i < rows && origin.col + col < cols;
    const Dtype* source = input + row_offset(origin.row + row + i, cols) + origin.col + col;
    const uint4 v = inside ? __ldg(reinterpret_cast<const uint4*>(source)) : uint4{};  // zeros give the padding's 0
    x[i][0] = v.x;
    x[i][1] = v.y;
    x[i][2] = v.z;
    x[i][3] = v.w;
  }

  // Two rows, or two columns, at a time. The product is made first, because they have scales of their own, and with no
  // fma, which would turn -0 into +0; the product with 1 is exact.
  float product[kBlock];
  if constexpr (outputs != Outputs::columnwise) {
#pragma unroll
    for (int i = 0; i < kPatch; ++i) {
      u32 halves = absmax<Dtype>(x[i]);  // of even and of odd columns; absmax and max2 drop NaN
      halves = max2(halves, __shfl_xor_sync(~0u, halves, 1), Dtype{});
      halves = max2(halves, __shfl_xor_sync(~0u, halves, 2), Dtype{});
      const u32 scale = e8m0_of<scale_rule>(amax_of_word<Dtype>(halves));
      const float multiplier = reciprocal_of(scale);
      if (lane % 4 == 0) by_row.scales[row + i][col / kMxBlock] = u8(scale);
#pragma unroll
      for (int j = 0; j < kPatch; ++j) {
        const u32 word = x[i][j / 2];
        const float value = j % 2 ? high_to_float(word, Dtype{}) : low_to_float(word, Dtype{});
        product[i % 2 * kPatch + j] = __fmul_rn(value, multiplier);
      }
      if (i % 2) {
        const Codes16 codes = encode16_nearest(product, 1.0f, false);
        by_row.codes[row + i - 1][col / kPatch] = codes.word[0];
        by_row.codes[row + i][col / kPatch] = codes.word[1];
      }
    }
  }
  if constexpr (outputs != Outputs::rowwise) {
#pragma unroll
    for (int pair = 0; pair < kPatch / 2; ++pair) {
      u32 halves = 0;  // of the left and of the right column
#pragma unroll
      for (int i = 0; i < kPatch; ++i) halves = max2(halves, abs2(x[i][pair], Dtype{}), Dtype{});
      halves = max2(halves, __shfl_xor_sync(~0u, halves, 8), Dtype{});
      halves = max2(halves, __shfl_xor_sync(~0u, halves, 16), Dtype{});
      const int column = col + 2 * pair;
#pragma unroll
      for (int right = 0; right < 2; ++right) {
        const float amax = right ? high_to_float(halves, Dtype{}) : low_to_float(halves, Dtype{});
        const u32 scale = e8m0_of<scale_rule>(amax);
        const float multiplier = reciprocal_of(scale);
        if (lane < 8) by_column.scales[column + right][row / kMxBlock] = u8(scale);
#pragma unroll
        for (int i = 0; i < kPatch; ++i) {
          const float value = right ? high_to_float(x[i][pair], Dtype{}) : low_to_float(x[i][pair], Dtype{});
          product[right * kPatch + i] = __fmul_rn(value, multiplier);
        }
      }
      const Codes16 codes = encode16_nearest(product, 1.0f, false);
      by_column.codes[column][row / kPatch] = codes.word[0];
      by_column.codes[column + 1][row / kPatch] = codes.word[1];
    }
  }
  __syncthreads();
  if constexpr (outputs != Outputs::columnwise) {
    by_row.store(rowwise_data, rowwise_scale_inv, origin.row, origin.col, rows, cols);
  }
  if constexpr (outputs != Outputs::rowwise) {
    by_column.store(columnwise_data, columnwise_scale_inv, origin.col, origin.row, cols, rows);
  }
}

// A CTA for each tile, also of the rows and columns that only padded scales have
__constant__ Launch mxfp4_encode_launch = {kTile, kTile, kThreads, 2, Schedule::tiles};
