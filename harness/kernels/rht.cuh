// 2.10 random Hadamard transform of sixteen consecutive values, unnormalised, in fp32.
#pragma once

#include "nvfp4.cuh"

// Ends before the stage of stride `end`.
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

// max |r| over the sixteen rotated values, NaN dropped. Of RN(a + b) and RN(a - b) the larger magnitude is
// RN(|a| + |b|), so the last stage makes one value of two.
template <int sign_mask>
__device__ __forceinline__ float rht16_absmax(float (&x)[kBlock]) {
  rht16<sign_mask, kBlock / 2>(x);
  float m = 0.0f;
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) m = fmaxf(m, __fadd_rn(fabsf(x[i]), fabsf(x[i + kBlock / 2])));
  return m;
}

// per_tensor's rotated value: normalised and rounded to bf16, as amax and quantization both see it
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
