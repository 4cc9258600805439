// NUMERICS 1.9: ue5m3 block scales, f32->ue5m3 to nearest-even and saturating, and back; and either format by its name.
#pragma once

#include "numerics/e4m3.cuh"

constexpr float kUe5m3Max = 114688.0f;       // 114688 = 1.75 * 2^16
constexpr float kUe5m3MinNormal = 0x1p-14f;  // subnormal below
constexpr u32 kUe5m3Nan = 0xFFu;             // the only one; there is no inf

struct Ue5m3 {
  u32 code;
  float value;
};

// f32->ue5m3 to nearest-even. value: >= 0 or +inf, never NaN
__device__ __forceinline__ Ue5m3 ue5m3_round(float value) {
  value = fminf(value, kUe5m3Max);
  // One ulp of 2^20 times the value's power of two is a ue5m3 step of that binade, so adding it rounds. Subnormals have
  // the step of the lowest normal binade.
  const float power = __uint_as_float(__float_as_uint(value) & 0x7F800000u);
  const float magic = __fmul_rn(fmaxf(power, kUe5m3MinNormal), 0x1p20f);
  value = __fsub_rn(__fadd_rn(value, magic), magic);
  // Rebias the exponent from 127 to 15, exactly, and drop the empty mantissa bits.
  return {__float_as_uint(__fmul_rn(value, 0x1p-112f)) >> 20, value};
}

// code: a byte
__device__ __forceinline__ float ue5m3_decode(u32 code) {
  // The code shifted up 20 bits is a float whose exponent is 112 too small; subnormal codes give subnormal floats.
  const float value = __fmul_rn(__uint_as_float(code << 20), 0x1p112f);
  return code == kUe5m3Nan ? __uint_as_float(0x7FFFFFFFu) : value;
}

// ---------------------------------------------------------------------------------------------------------------------
// Either format
// ---------------------------------------------------------------------------------------------------------------------

template <ScaleFormat format>
constexpr float kScaleMax = format == ScaleFormat::e4m3 ? kE4m3Max : kUe5m3Max;

// The largest scale that a tensor aims at
template <ScaleFormat format>
__device__ __forceinline__ float scale_max(int e4m3_max) {
  return format == ScaleFormat::e4m3 ? float(e4m3_max) : kScaleMax<format>;
}

template <ScaleFormat format>
__device__ __forceinline__ auto scale_round(float value) {
  if constexpr (format == ScaleFormat::e4m3)
    return e4m3_round(value);
  else
    return ue5m3_round(value);
}

template <ScaleFormat format>
__device__ __forceinline__ float scale_decode(u32 code) {
  if constexpr (format == ScaleFormat::e4m3)
    return e4m3_decode(code);
  else
    return ue5m3_decode(code);
}
