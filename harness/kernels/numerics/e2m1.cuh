// NUMERICS 1: e2m1 codes, f32->e2m1 to nearest-even or stochastic, saturating, and back. The sign of zero is kept, NaN
// is 0x7.
#pragma once

#include "numerics/packed16.cuh"
#include "numerics/philox.cuh"

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000
#define NVFP4_HAS_E2M1_CVT 1
#else
#define NVFP4_HAS_E2M1_CVT 0
#endif

constexpr float kE2m1Max = 6.0f;  // 6 = 1.5 * 2^2

// Code i is nibble i % 8 of word i / 8.
struct Codes16 {
  u32 word[2];
};

struct EncodedBlock {
  u32 scale_inv;  // e4m3
  Codes16 codes;
};

// ---------------------------------------------------------------------------------------------------------------------
// e2m1 in f16 arithmetic, for architectures without the conversion
//
// Values are scaled so that 1 becomes the smallest normal f16. Truncated to f16, bits 8 and up then count half steps
// between codes on every binade, because the spacing of f16 doubles at 2 and 4 as that of e2m1 does. Bits 9 and up are
// the code.
// ---------------------------------------------------------------------------------------------------------------------

constexpr float kHalfSteps = 0x1p-14f;
constexpr u32 kHalfStep = 0x01000100u;  // in both halves of a pair

// Truncates two floats to f16x2, the first in the low half. A NaN of either sign becomes +NaN.
__device__ __forceinline__ u32 truncate_f16x2(float low, float high) {
  u32 pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Magnitudes as half steps, saturated at 6, NaN included
__device__ __forceinline__ u32 saturated(u32 pair) {
  u32 steps;
  asm("{ .reg .b32 m; abs.f16x2 m, %1; min.f16x2 %0, m, %2; }" : "=r"(steps) : "r"(pair), "r"(0x0E000E00u));
  return steps;
}

// The bits of `b` where the mask is 1, of `a` elsewhere, in one lop3: the compiler would mask both.
template <u32 mask>
__device__ __forceinline__ u32 merge_bits(u32 a, u32 b) {
  u32 merged;
  asm("lop3.b32 %0, %1, %2, %3, 0xD8;" : "=r"(merged) : "r"(a), "r"(b), "r"(mask));
  return merged;
}

// a + 2 b in one mad: the compiler would double `b` before masking it, which no add can absorb.
__device__ __forceinline__ u32 plus_twice(u32 a, u32 b) {
  u32 sum;
  asm("mad.lo.u32 %0, %1, 2, %2;" : "=r"(sum) : "r"(b), "r"(a));
  return sum;
}

// The signs of both halves of a and b, each spread over a byte: a low, a high, b low, b high. `__byte_perm` ignores the
// selector bits that replicate a sign.
__device__ __forceinline__ u32 spread_signs(u32 a, u32 b) {
  u32 signs;
  asm("prmt.b32 %0, %1, %2, 0xFDB9;" : "=r"(signs) : "r"(a), "r"(b));
  return signs;
}

// Pair j of eight elements holds element `first_of_pair(j)` and the one two further on.
__device__ __forceinline__ constexpr int first_of_pair(int j) { return j / 2 * 4 + j % 2; }

// Half steps (bit 8 up in each half) and signs of four pairs to eight codes. more: added to the half steps, a nibble
// each
__device__ __forceinline__ u32 e2m1_word(const u32 (&steps)[4], const u32 (&sign)[4], u32 more) {
  const u32 even = __byte_perm(steps[0], steps[2], 0x7531), odd = __byte_perm(steps[1], steps[3], 0x7531);
  const u32 signs = merge_bits<0xF0F0F0F0u>(spread_signs(sign[0], sign[2]), spread_signs(sign[1], sign[3]));
  return merge_bits<0x88888888u>((even + odd * 16u + more) >> 1, signs);
}

// Moves 2^64 from the values to a tiny multiplier, so that it stays normal when kHalfSteps meets it. A value that
// underflows is far below the smallest code.
__device__ __forceinline__ void keep_normal(float (&x)[kBlock], float& multiplier) {
  if (multiplier < 0x1p-100f) {
#pragma unroll
    for (float& value : x) value = __fmul_rn(value, 0x1p-64f);
    multiplier = __fmul_rn(multiplier, 0x1p64f);
  }
}

// Sixteen values and the multiplier that scales them for `truncate_f16x2`
struct Steps16 {
  float value[kBlock], multiplier;

  // may_be_tiny: whether the multiplier may need `keep_normal`
  __device__ Steps16(const float (&x)[kBlock], float multiplier, bool may_be_tiny = true) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) value[i] = x[i];
    if (may_be_tiny) keep_normal(value, multiplier);
    this->multiplier = __fmul_rn(multiplier, kHalfSteps);
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// NUMERICS 2.8: code = e2m1(x * multiplier)   f32->e2m1 rounds to nearest even
// ---------------------------------------------------------------------------------------------------------------------

#if NVFP4_HAS_E2M1_CVT

constexpr float kE2m1Unit = 1.0f;

__device__ __forceinline__ u32 e2m1_codes8(const float* x, float multiplier) {
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(x[i], multiplier);
  u32 word;
  asm("{ .reg .b8 b0, b1, b2, b3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %7;\n"
      "mov.b32 %0, {b0, b1, b2, b3}; }"
      : "=r"(word)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
  return word;
}

__device__ __forceinline__ Codes16
encode16_nearest(const float (&x)[kBlock], float multiplier, bool /*may_be_tiny*/ = true) {
  return {{e2m1_codes8(x, multiplier), e2m1_codes8(x + 8, multiplier)}};
}

// The magnitudes nearest to two values >= 0, all times kE2m1Unit; of a tie that of the even code
__device__ __forceinline__ float2 nearest_magnitudes(float a, float b) {
  u32 pair;
  asm("{ .reg .b8 codes; cvt.rn.satfinite.e2m1x2.f32 codes, %2, %1; cvt.rn.f16x2.e2m1x2 %0, codes; }"
      : "=r"(pair)
      : "f"(a), "f"(b));
  return make_float2(low_to_float(pair, fp16{}), high_to_float(pair, fp16{}));
}

// The same, but a tie may go either way. half_step: kHalfStep
__device__ __forceinline__ float2 near_magnitudes(float a, float b, u32) { return nearest_magnitudes(a, b); }

#else

constexpr float kE2m1Unit = kHalfSteps;

// Adding one half step before truncation rounds to nearest with ties up. A tie whose lower code is even must round
// down, so it is nudged below the tie first.
__device__ __forceinline__ float below_even_tie(float v) {
  constexpr u32 kLowerIsOdd = 0x00400000u;   // set in a tie whose lower code is odd
  constexpr float kBelow = 1.0f - 0x1p-24f;  // multiplied and truncated, gives the next smaller float
  return (__float_as_uint(v) & kLowerIsOdd) == 0 ? __fmul_rz(v, kBelow) : v;
}

// may_be_tiny: see Steps16
__device__ __forceinline__ Codes16
encode16_nearest(const float (&x)[kBlock], float multiplier, bool may_be_tiny = true) {
  Steps16 steps(x, multiplier, may_be_tiny);
#pragma unroll
  for (float& v : steps.value) v = below_even_tie(__fmul_rn(v, steps.multiplier));
  Codes16 codes;
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    u32 pair[4], half_steps[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int low = 8 * w + first_of_pair(j);
      pair[j] = truncate_f16x2(steps.value[low], steps.value[low + 2]);
      half_steps[j] = saturated(pair[j]);
    }
    codes.word[w] = e2m1_word(half_steps, pair, 0x11111111u);
  }
  return codes;
}

__device__ __forceinline__ float2 near_magnitudes(float a, float b, u32 half_step) {
  u32 pair = truncate_f16x2(a, b);
#if __CUDA_ARCH__ >= 900
  // One instruction; a NaN is larger than 6.
  asm("{ .reg .b32 up; add.u16x2 up, %1, %2; min.u16x2 %0, up, %3; }"
      : "=r"(pair)
      : "r"(pair), "r"(half_step), "r"(0x0E000E00u));
#else
  pair = saturated(pair) + half_step;
#endif
  pair &= 0x0E000E00u;
  return make_float2(low_to_float(pair, fp16{}), high_to_float(pair, fp16{}));
}

__device__ __forceinline__ float2 nearest_magnitudes(float a, float b) {
  return near_magnitudes(below_even_tie(a), below_even_tie(b), kHalfStep);
}

#endif

// ---------------------------------------------------------------------------------------------------------------------
// NUMERICS 2.9: a random fraction of a step is added to x * multiplier, and the sum truncated
// ---------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ Codes16
encode16_stochastic(const float (&x)[kBlock], float multiplier, const Random16& random) {
  // r / 256 of a step is r * 2 in half steps from bit 0 up, on every binade. The contract rounds the sum to a float,
  // which matters below 1/4 only: a value less than 2^-26 below a fraction of a step counts as that fraction. From 1/4
  // on floats are too far apart for kRounding to change the truncated sum.
  constexpr float kRounding = 0x1p-26f * kHalfSteps;
  Steps16 steps(x, multiplier);
  Codes16 codes;
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    u32 sum[4], sign[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int first = first_of_pair(j);
      const float low = __fmul_rn(steps.value[8 * w + first], steps.multiplier);
      const float high = __fmul_rn(steps.value[8 * w + first + 2], steps.multiplier);
      const u32 bits = random.word[2 * w + first / 4];
      sign[j] = truncate_f16x2(low, high);
      const u32 half_steps =
          saturated(truncate_f16x2(__fadd_rz(fabsf(low), kRounding), __fadd_rz(fabsf(high), kRounding)));
      sum[j] = j % 2 ? half_steps + ((bits & 0xFF00FF00u) >> 7) : plus_twice(half_steps, bits & 0x00FF00FFu);
    }
    codes.word[w] = e2m1_word(sum, sign, 0u);
  }
  return codes;
}

// ---------------------------------------------------------------------------------------------------------------------
// Decoding
// ---------------------------------------------------------------------------------------------------------------------

// e2m1->f32 of the low four bits of `code`, exact
__device__ __forceinline__ float e2m1_decode(u32 code) {
  // The three magnitude bits shifted up 22 are a float whose exponent is 126 too small; code 1 is a subnormal float.
  return __fmul_rn(__uint_as_float((code & 7u) << 22 | (code & 8u) << 28), 0x1p126f);
}
