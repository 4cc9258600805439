// The format e2m1 of the codes: nearest-even or stochastic, saturating, and back (NUMERICS 1). The sign of zero is kept
// and NaN is 0x7.
#pragma once

#include "elements.cuh"
#include "philox.cuh"

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000
#define NVFP4_HAS_E2M1_CVT 1
#else
#define NVFP4_HAS_E2M1_CVT 0
#endif

constexpr float kE2m1Max = 6.0f;  // 6 = 1.5 * 2^2

// Sixteen codes, code i in nibble i % 8 of word i / 8
struct Codes16 {
  u32 word[2];
};

// ---------------------------------------------------------------------------------------------------------------------
// 2.8 nearest-even
// ---------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 min_half2(u32 a, u32 b) {
  u32 m;
  asm("min.f16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
  return m;
}
__device__ __forceinline__ u32 abs_half2(u32 a) {
  u32 m;
  asm("abs.f16x2 %0, %1;" : "=r"(m) : "r"(a));
  return m;
}
__device__ __forceinline__ u32 add_half2(u32 a, u32 b) {
  u32 sum;
  asm("add.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

__device__ __forceinline__ u32 fma_half2(u32 a, u32 b, u32 c) {
  u32 sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// Codes of two values times a multiplier: the magnitudes in bits 0-2 and 16-18, the signs in bits 15 and 31.
struct E2m1Pair {
  u32 magnitudes, signs;
};

// f16 subnormals are integers: their step is 2^-24 whatever the value, so a float times 2^-23 casts to the bits of
// round(2a), one rounding, and likewise round(a) and round(a/2). Each of 2a, a+2 and a/2+4 is the code on its own
// binade and no less than the code elsewhere: the code is their minimum, and 7.
struct E2m1Multipliers {
  float halves, wholes, doubles;

  __device__ explicit E2m1Multipliers(float multiplier)
      : halves(__fmul_rn(multiplier, 0x1p-23f)),
        wholes(__fmul_rn(multiplier, 0x1p-24f)),
        doubles(__fmul_rn(multiplier, 0x1p-25f)) {}
};

__device__ __forceinline__ E2m1Pair e2m1_pair(float low, float high, const E2m1Multipliers& m) {
  const u32 halves = to_half2(__fmul_rn(low, m.halves), __fmul_rn(high, m.halves));
  const u32 wholes = to_half2(__fmul_rn(fabsf(low), m.wholes), __fmul_rn(fabsf(high), m.wholes));
  const u32 doubles = to_half2(__fmul_rn(fabsf(low), m.doubles), __fmul_rn(fabsf(high), m.doubles));
  const u32 above_one = min_half2(add_half2(wholes, 0x00020002u), add_half2(doubles, 0x00040004u));
  return {min_half2(min_half2(abs_half2(halves), above_one), 0x00070007u), halves};
}

// The signs of a's and b's halves, each spread over a byte, in the order a low, b low, a high, b high. `__byte_perm`
// cannot spread: it ignores the selectors' top bits.
__device__ __forceinline__ u32 spread_signs(u32 a, u32 b) {
  u32 signs;
  asm("prmt.b32 %0, %1, %2, 0xFBD9;" : "=r"(signs) : "r"(a), "r"(b));
  return signs;
}

// Pair j to nibbles j and j + 4.
__device__ __forceinline__ u32 e2m1_word(const E2m1Pair (&pair)[4]) {
  // As f16 subnormals, three nibbles stay below 2^11 and add up exactly: 16 = 0x4C00, 256 = 0x5C00.
  const u32 three =
      fma_half2(pair[2].magnitudes, 0x5C005C00u, fma_half2(pair[1].magnitudes, 0x4C004C00u, pair[0].magnitudes));
  const u32 even_signs = spread_signs(pair[0].signs, pair[2].signs) & 0x08080808u;
  const u32 odd_signs = spread_signs(pair[1].signs, pair[3].signs) & 0x80808080u;
  return three | pair[3].magnitudes << 12 | even_signs | odd_signs;
}

// Sixteen codes as the cast leaves them
#if NVFP4_HAS_E2M1_CVT

using E2m1x16 = Codes16;

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

__device__ __forceinline__ E2m1x16 e2m1_cast16(const float (&x)[kBlock], float multiplier) {
  return {{e2m1_codes8(x, multiplier), e2m1_codes8(x + 8, multiplier)}};
}

__device__ __forceinline__ Codes16 pack_codes(const E2m1x16& codes) { return codes; }

#else

struct E2m1x16 {
  E2m1Pair pair[2][4];  // pair j of word w: elements 8w + j and 8w + j + 4
};

// multiplier: 0 or at least 2^-100, so that the powers of two of E2m1Multipliers stay in the normal range
__device__ __forceinline__ E2m1x16 e2m1_cast16(const float (&x)[kBlock], float multiplier) {
  const E2m1Multipliers m(multiplier);
  E2m1x16 codes;
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) {
    const int low = i / 4 * 8 + i % 4;
    codes.pair[i / 4][i % 4] = e2m1_pair(x[low], x[low + 4], m);
  }
  return codes;
}

__device__ __forceinline__ Codes16 pack_codes(const E2m1x16& codes) {
  return {{e2m1_word(codes.pair[0]), e2m1_word(codes.pair[1])}};
}

#endif

// 2.8: sixteen values times any multiplier to the nearest codes
__device__ __forceinline__ E2m1x16 e2m1_nearest(const float (&x)[kBlock], float multiplier) {
  float v[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) v[i] = x[i];
#if !NVFP4_HAS_E2M1_CVT
  // Powers of two move from the multiplier to the values; one that underflows there was far below the smallest code.
  if (multiplier < 0x1p-100f) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) v[i] = __fmul_rn(v[i], 0x1p-64f);
    multiplier = __fmul_rn(multiplier, 0x1p64f);
  }
#endif
  return e2m1_cast16(v, multiplier);
}

__device__ __forceinline__ Codes16 encode16_nearest(const float (&x)[kBlock], float multiplier) {
  return pack_codes(e2m1_nearest(x, multiplier));
}

// ---------------------------------------------------------------------------------------------------------------------
// 2.9 stochastic rounding: a random share of one e2m1 step is added and the sum truncated
// ---------------------------------------------------------------------------------------------------------------------

// The magnitude of v's code, in the top three bits. v: as a multiplication left it, so that NaN is +NaN
__device__ __forceinline__ u32 e2m1_stochastic(float v, u32 random_word, int byte) {
  const float a = fabsf(v);
  // 2^14 + r * 2^-9 is the float whose low mantissa byte is r.
  const float r = __fadd_rn(__uint_as_float(__byte_perm(random_word, 0x46800000u, 0x7650 + byte)), -0x1p14f);
  // Half the power of two in [1, 4] is the e2m1 step at a; the half is in r.
  const float power = __uint_as_float(__float_as_uint(fminf(fmaxf(a, 1.0f), 4.0f)) & 0x7F800000u);
  const float t = fminf(__fmaf_rn(r, power, a), kE2m1Max);
  // Times 2^-126, a float is subnormal exactly where e2m1 is, and the code is what is left of it above bit 22.
  return __float_as_uint(__fmul_rz(t, 0x1p-126f)) << 7;
}

__device__ __forceinline__ Codes16
encode16_stochastic(const float (&x)[kBlock], float multiplier, const Random16& random) {
  Codes16 codes = {};
#pragma unroll
  for (int i = kBlock - 1; i >= 0; --i) {
    const float v = __fmul_rn(x[i], multiplier);
    u32& word = codes.word[i / 8];
    word = __funnelshift_l(__float_as_uint(v), word, 1);
    word = __funnelshift_l(e2m1_stochastic(v, random.word[i / 4], i % 4), word, 3);
  }
  return codes;
}

// ---------------------------------------------------------------------------------------------------------------------
// Decoding
// ---------------------------------------------------------------------------------------------------------------------

// The value of the low four bits of `code`.
__device__ __forceinline__ float e2m1_decode(u32 code) {
  // The three magnitude bits read 22 bits up are a float with the exponent bias off by 126; code 1 is a subnormal
  // float.
  return __fmul_rn(__uint_as_float((code & 7u) << 22 | (code & 8u) << 28), 0x1p126f);
}

// Magnitudes of sixteen codes, times kE2m1Unit.
#if NVFP4_HAS_E2M1_CVT

constexpr float kE2m1Unit = 1.0f;

__device__ __forceinline__ void e2m1_magnitudes(const E2m1x16& codes, float (&value)[kBlock]) {
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    u32 pair[4];
    asm("{ .reg .b8 b0, b1, b2, b3;\n"
        "mov.b32 {b0, b1, b2, b3}, %4;\n"
        "cvt.rn.f16x2.e2m1x2 %0, b0;\n"
        "cvt.rn.f16x2.e2m1x2 %1, b1;\n"
        "cvt.rn.f16x2.e2m1x2 %2, b2;\n"
        "cvt.rn.f16x2.e2m1x2 %3, b3; }"
        : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
        : "r"(codes.word[w]));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      value[8 * w + 2 * j] = fabsf(low_to_float(pair[j], fp16{}));
      value[8 * w + 2 * j + 1] = fabsf(high_to_float(pair[j], fp16{}));
    }
  }
}

#else

// The three magnitude bits read 9 bits up are an f16 with the exponent bias off by 14.
constexpr float kE2m1Unit = 0x1p-14f;

__device__ __forceinline__ void e2m1_magnitudes(const E2m1x16& codes, float (&value)[kBlock]) {
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) {
    const u32 pair = codes.pair[i / 4][i % 4].magnitudes << 9;
    const int low = i / 4 * 8 + i % 4;
    value[low] = low_to_float(pair, fp16{});
    value[low + 4] = high_to_float(pair, fp16{});
  }
}

#endif
