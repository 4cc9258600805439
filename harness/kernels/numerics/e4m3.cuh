// NUMERICS 1: e4m3 (fn) block scales, f32->e4m3 to nearest-even and saturating, and back.
#pragma once

#include "numerics/packed16.cuh"

constexpr float kE4m3Max = 448.0f;           // 448 = 1.75 * 2^8
constexpr float kE4m3MinNormal = 0x1p-6f;    // subnormal below
constexpr float kE4m3MinPositive = 0x1p-9f;  // the smallest subnormal

struct E4m3 {
  u32 code;
  float value;
};

// f32->e4m3 to nearest-even. value: >= 0 or +inf, never NaN
__device__ __forceinline__ E4m3 e4m3_round(float value) {
#if __CUDA_ARCH__ >= 890
  u32 code, halves;
  asm("{ .reg .b16 pair;\n"
      "cvt.rn.satfinite.e4m3x2.f32 pair, %2, %3;\n"
      "cvt.u32.u16 %0, pair;\n"
      "cvt.rn.f16x2.e4m3x2 %1, pair; }"
      : "=r"(code), "=r"(halves)
      : "f"(0.0f), "f"(value));
  return {code, low_to_float(halves, fp16{})};
#else
  value = fminf(value, kE4m3Max);
  // One ulp of 2^20 times the value's power of two is an e4m3 step of that binade, so adding it rounds. Subnormals have
  // the step of the lowest normal binade.
  const float power = __uint_as_float(__float_as_uint(value) & 0x7F800000u);
  const float magic = __fmul_rn(fmaxf(power, kE4m3MinNormal), 0x1p20f);
  value = __fsub_rn(__fadd_rn(value, magic), magic);
  // Rebias the exponent from 127 to 7, exactly, and drop the empty mantissa bits.
  return {__float_as_uint(__fmul_rn(value, 0x1p-120f)) >> 20, value};
#endif
}

struct E4m3x2 {
  u32 codes;  // of `low` in the low byte, of `high` in the next
  float low, high;
};

// Two values like that of `e4m3_round`
__device__ __forceinline__ E4m3x2 e4m3_round(float low, float high) {
#if __CUDA_ARCH__ >= 890
  u32 codes, halves;
  asm("{ .reg .b16 pair;\n"
      "cvt.rn.satfinite.e4m3x2.f32 pair, %2, %3;\n"
      "cvt.u32.u16 %0, pair;\n"
      "cvt.rn.f16x2.e4m3x2 %1, pair; }"
      : "=r"(codes), "=r"(halves)
      : "f"(high), "f"(low));
  return {codes, low_to_float(halves, fp16{}), high_to_float(halves, fp16{})};
#else
  const E4m3 first = e4m3_round(low), second = e4m3_round(high);
  return {first.code | second.code << 8, first.value, second.value};
#endif
}

// f32->e4m3 of any float: the sign of zero is kept, NaN of either sign is 0x7F.
__device__ __forceinline__ u32 e4m3_encode(float value) {
  if (isnan(value)) return 0x7Fu;
  return e4m3_round(fabsf(value)).code | (__float_as_uint(value) >> 24 & 0x80u);
}

__device__ __forceinline__ float e4m3_decode(u32 code) {
  const u32 magnitude = code & 0x7Fu;
  // The code shifted up 20 bits is a float whose exponent is 120 too small; subnormal codes give subnormal floats.
  const float value = __fmul_rn(__uint_as_float(magnitude << 20 | (code & 0x80u) << 24), 0x1p120f);
  return magnitude == 0x7Fu ? __uint_as_float(0x7FFFFFFFu) : value;
}

// e4m3x2->f16x2, exact, the first in the low half; NaN of either sign is NaN.
__device__ __forceinline__ u32 e4m3_to_f16x2(u32 codes) {
  u32 halves;
#if __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 pair; cvt.u16.u32 pair, %1; cvt.rn.f16x2.e4m3x2 %0, pair; }" : "=r"(halves) : "r"(codes));
#else
  const u32 spread = __byte_perm(codes, 0u, 0x1404), magnitudes = spread & 0x7F007F00u;
  // A code shifted up 7 bits is an f16 whose exponent is 8 too small.
  asm("mul.f16x2 %0, %1, %2;" : "=r"(halves) : "r"((spread & 0x80008000u) | magnitudes >> 1), "r"(0x5C005C00u));
  halves |= ((magnitudes + 0x01000100u) >> 15 & 0x00010001u) * 0x7FFFu;
#endif
  return halves;
}
