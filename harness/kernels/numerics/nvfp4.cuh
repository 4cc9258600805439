// NUMERICS 1 and 2: scales and blocks of NVFP4, in the contract's words. Every operation that is written is one
// rounding; NVRTC neither contracts nor flushes to zero, and `__fmul_rn` and its siblings say so where a reader might
// doubt it.
#pragma once

#include "numerics/e2m1.cuh"
#include "numerics/ue5m3.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Constants
// ---------------------------------------------------------------------------------------------------------------------

constexpr int kWindow = 64;  // elements that share an amax in local_1x64
constexpr int kWindowBlocks = kWindow / kBlock;
constexpr float kFloatMax = 3.402823466385288598e+38f;   // 0x7F7FFFFF
constexpr float kBf16Max = 3.38953138925153547590e+38f;  // 0x7F7F0000
constexpr float kWindowAmaxMin = 1e-12f;                 // floor of a window's amax

// ---------------------------------------------------------------------------------------------------------------------
// NUMERICS 2.1 to 2.7: scales
// ---------------------------------------------------------------------------------------------------------------------

// S_enc (2.1) and S_dec (2.3) of a tensor whose block scales have this format
template <ScaleFormat format = ScaleFormat::e4m3>
struct GlobalScaleOf {
  float encode;
  float decode;
};

using GlobalScale = GlobalScaleOf<>;

__device__ __forceinline__ GlobalScale global_scale(float amax, float e4m3_max) {
  float encode = fminf(__fdiv_rn(e4m3_max * kE2m1Max, amax), kFloatMax);
  if (amax == 0.0f || encode == 0.0f) encode = 1.0f;
  return {encode, __frcp_rn(encode)};
}

// Without the second level both are 1.
template <ScaleFormat format, bool two_levels>
__device__ __forceinline__ GlobalScaleOf<format> tensor_scale(float amax) {
  if constexpr (!two_levels) return {1.0f, 1.0f};
  const GlobalScale global = global_scale(amax, kScaleMax<format>);
  return {global.encode, global.decode};
}

// NUMERICS 5: S_enc of a window
__device__ __forceinline__ GlobalScale window_scale(float amax) {
  return global_scale(fmaxf(amax, kWindowAmaxMin), kE4m3Max);
}

// scale_inv = e4m3(amax * (S_enc * (1/6)))   f32->e4m3, or ue5m3, rounds to nearest even (2.4). The contract's min with
// FLT_MAX is implied: the cast saturates far below.
template <ScaleFormat format>
__device__ __forceinline__ auto block_scale_inv(float amax, const GlobalScaleOf<format>& global) {
  return scale_round<format>(__fmul_rn(amax, __fmul_rn(global.encode, 1.0f / kE2m1Max)));
}

// The multiplier of a block's values. For a scale of 0 it is 0 if direct, else the largest number.
template <Multiplier multiplier, ScaleFormat format>
__device__ __forceinline__ float block_encode_scale(float scale_inv, const GlobalScaleOf<format>& global) {
  if constexpr (multiplier == Multiplier::reciprocal) {  // 2.6
    return fminf(__frcp_rn(__fmul_rn(scale_inv, global.decode)), kFloatMax);
  } else if constexpr (multiplier == Multiplier::direct) {  // 2.7
    const float quotient = __fdiv_rn(global.encode, fmaxf(scale_inv, kE4m3MinPositive));
    return scale_inv == 0.0f ? 0.0f : quotient;
  } else {  // NUMERICS 3: rounded to bf16, so its product with a bf16 is exact
    const float quotient = fminf(__fdiv_rn(global.encode, scale_inv), kBf16Max);
    const u32 bits = __float_as_uint(quotient);
    return __uint_as_float((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// A whole block
// ---------------------------------------------------------------------------------------------------------------------

// Sixteen values to nearest-even (2.4, 2.6 or 2.7, 2.8). amax: of all values that share the scale
template <Multiplier multiplier, ScaleFormat format>
__device__ __forceinline__ EncodedBlock
encode_block(const float (&x)[kBlock], float amax, const GlobalScaleOf<format>& global) {
  const auto scale_inv = block_scale_inv(amax, global);
  return {scale_inv.code, encode16_nearest(x, block_encode_scale<multiplier>(scale_inv.value, global))};
}

// Sixteen values with stochastic rounding (2.9)
template <Multiplier multiplier, ScaleFormat format>
__device__ __forceinline__ EncodedBlock
encode_block(const float (&x)[kBlock], float amax, const GlobalScaleOf<format>& global, const Random16& random) {
  const auto scale_inv = block_scale_inv(amax, global);
  return {scale_inv.code, encode16_stochastic(x, block_encode_scale<multiplier>(scale_inv.value, global), random)};
}

// ---------------------------------------------------------------------------------------------------------------------
// NUMERICS 9 and 10: decoding
// ---------------------------------------------------------------------------------------------------------------------

// 1 / (6 E)
__device__ __forceinline__ float decode_range(float scale_max) {
  return __fdiv_rn(1.0f, __fmul_rn(kE2m1Max, scale_max));
}

// The factor of a block's codes. The scale meets the amax first; reassociated, it would round differently.
template <ScaleFormat format = ScaleFormat::e4m3>
__device__ __forceinline__ float block_decode_scale(u32 scale_inv, float amax, float range) {
  return __fmul_rn(__fmul_rn(scale_decode<format>(scale_inv), amax), range);
}

// C_AB (10.3): the factor of a sum of products that the amaxes leave. Its divisor is exact.
__device__ __forceinline__ float accumulator_scale(float a_e4m3_max, float b_e4m3_max) {
  return __fdiv_rn(1.0f, kE2m1Max * kE2m1Max * a_e4m3_max * b_e4m3_max);
}
