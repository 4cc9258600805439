// NUMERICS 2.10: random Hadamard transform of sixteen consecutive values, unnormalised, in fp32.
#pragma once

#include "numerics/packed16.cuh"

constexpr float kRhtNorm = 0.25f;  // 1 / sqrt(16)

// end: the transform stops before the butterfly stage of this stride
template <int sign_mask, int end = kBlock>
__device__ __forceinline__ void rht16(float (&x)[kBlock]) {
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    if ((sign_mask >> i) & 1) x[i] = -x[i];
  }
#pragma unroll
  for (int stride = 1; stride < end; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      if (i & stride) continue;
      const float a = x[i], b = x[i + stride];
      x[i] = __fadd_rn(a, b);
      x[i + stride] = __fsub_rn(a, b);
    }
  }
}

// max |r| over the sixteen rotated values, NaN dropped. The larger of |RN(a + b)| and |RN(a - b)| is RN(|a| + |b|), so
// the last stage needs one addition for two values.
template <int sign_mask>
__device__ __forceinline__ float rht16_absmax(float (&x)[kBlock]) {
  rht16<sign_mask, kBlock / 2>(x);
  float m = 0.0f;
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) m = fmaxf(m, __fadd_rn(fabsf(x[i]), fabsf(x[i + kBlock / 2])));
  return m;
}

// per_tensor's rotated values, normalised and rounded to bf16 before amax and quantization.
template <int sign_mask>
__device__ __forceinline__ Packed16<bf16> rht16_bf16(float (&x)[kBlock]) {
  rht16<sign_mask>(x);
  Packed16<bf16> y;
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) {
    y.word[i] = pack2(__fmul_rn(x[2 * i], kRhtNorm), __fmul_rn(x[2 * i + 1], kRhtNorm), bf16{});
  }
  return y;
}

// rht16_bf16 for codes only, eight instructions cheaper: it normalises before the last addition, so a sum from 2^126 on
// that would overflow to inf stays finite.
//
// The codes are the same. Bf16 values and their sums are multiples of 2^-133, so all quarters are exact. Beside an inf
// the tensor's amax is inf and S_enc is 1, so 2^126 has a scale of 448 and the code of 6, as inf has.
template <int sign_mask>
__device__ __forceinline__ Packed16<bf16> rht16_bf16_for_codes(float (&x)[kBlock]) {
  constexpr int kHalf = kBlock / 2;
  rht16<sign_mask, kHalf>(x);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float quarter = __fmul_rn(x[i], kRhtNorm), other = x[i + kHalf];
    x[i] = __fmaf_rn(other, kRhtNorm, quarter);
    x[i + kHalf] = __fmaf_rn(other, -kRhtNorm, quarter);
  }
  return pack<bf16>(x);
}
