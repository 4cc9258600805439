// Sixteen elements as they lie in memory: conversions and amax.
#pragma once

#include "numerics/types.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Conversions, to nearest-even; a NaN that is stored is 0x7FFF in 16 bits
// ---------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float low_to_float(u32 word, bf16) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_to_float(u32 word, bf16) { return __uint_as_float(word & 0xFFFF0000u); }

__device__ __forceinline__ float low_to_float(u32 word, fp16) {
  float value;
  asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, lo; }" : "=f"(value) : "r"(word));
  return value;
}
__device__ __forceinline__ float high_to_float(u32 word, fp16) {
  float value;
  asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, hi; }" : "=f"(value) : "r"(word));
  return value;
}

// Rounds two floats to f16x2, the first in the low half. A NaN of either sign becomes +NaN.
__device__ __forceinline__ u32 to_f16x2(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Rounds two floats to a word of the output type, the first in the low half.
__device__ __forceinline__ u32 pack2(float low, float high, bf16) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ u32 pack2(float low, float high, fp16) { return to_f16x2(low, high); }

// Two neighbours of a row as they lie in memory: a word of a 16-bit type, or two floats
__device__ __forceinline__ float2 pack_pair(float2 pair, fp32) { return pair; }
template <typename Dtype>
__device__ __forceinline__ u32 pack_pair(float2 pair, Dtype) {
  return pack2(pair.x, pair.y, Dtype{});
}
__device__ __forceinline__ float2 unpack_pair(float2 pair, fp32) { return pair; }
template <typename Dtype>
__device__ __forceinline__ float2 unpack_pair(u32 pair, Dtype) {
  return {low_to_float(pair, Dtype{}), high_to_float(pair, Dtype{})};
}

__device__ __forceinline__ float to_float(bf16 x) { return low_to_float(x.bits, bf16{}); }
__device__ __forceinline__ float to_float(fp32 x) { return x; }

template <typename Dtype>
__device__ __forceinline__ Dtype rounded(float value) {
  if constexpr (sizeof(Dtype) == 4)
    return value;
  else
    return {u16(pack2(value, 0.0f, Dtype{}))};
}

// ---------------------------------------------------------------------------------------------------------------------
// Packed16
// ---------------------------------------------------------------------------------------------------------------------

// Word i holds elements 2i (low half) and 2i + 1 of a 16-bit type, or element i of fp32.
template <typename Dtype>
struct Packed16 {
  static constexpr int kWords = kBlock * int(sizeof(Dtype)) / 4;
  u32 word[kWords];
};

template <typename Dtype>
__device__ __forceinline__ void unpack(const Packed16<Dtype>& x, float (&value)[kBlock]) {
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) {
    value[2 * i] = low_to_float(x.word[i], Dtype{});
    value[2 * i + 1] = high_to_float(x.word[i], Dtype{});
  }
}
__device__ __forceinline__ void unpack(const Packed16<fp32>& x, float (&value)[kBlock]) {
#pragma unroll
  for (int i = 0; i < kBlock; ++i) value[i] = __uint_as_float(x.word[i]);
}

template <typename Dtype>
__device__ __forceinline__ Packed16<Dtype> pack(const float (&value)[kBlock]) {
  Packed16<Dtype> x;
  if constexpr (sizeof(Dtype) == 4) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x.word[i] = __float_as_uint(value[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) x.word[i] = pack2(value[2 * i], value[2 * i + 1], Dtype{});
  }
  return x;
}

// ---------------------------------------------------------------------------------------------------------------------
// NUMERICS 2.2: amax = max |x|, NaN dropped, exact in the input's own type
// ---------------------------------------------------------------------------------------------------------------------

// abs2 and max2 act on both halves of a word of a 16-bit type, or on the one value of fp32.
__device__ __forceinline__ u32 abs2(u32 a, bf16) {
  u32 m;
  asm("abs.bf16x2 %0, %1;" : "=r"(m) : "r"(a));
  return m;
}
__device__ __forceinline__ u32 abs2(u32 a, fp16) {
  u32 m;
  asm("abs.f16x2 %0, %1;" : "=r"(m) : "r"(a));
  return m;
}
__device__ __forceinline__ u32 abs2(u32 a, fp32) { return a & 0x7FFFFFFFu; }

__device__ __forceinline__ u32 max2(u32 a, u32 b, bf16) {
  u32 m;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
  return m;
}
__device__ __forceinline__ u32 max2(u32 a, u32 b, fp16) {
  u32 m;
  asm("max.f16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
  return m;
}
__device__ __forceinline__ u32 max2(u32 a, u32 b, fp32) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}

// Each half's max |x| over `count` words; 0 if all its values are NaN.
template <typename Dtype, int count>
__device__ __forceinline__ u32 absmax(const u32 (&word)[count]) {
  u32 m = abs2(word[0], Dtype{});
#pragma unroll
  for (int i = 1; i < count; ++i) m = max2(m, abs2(word[i], Dtype{}), Dtype{});
  return max2(m, 0u, Dtype{});
}

template <typename Dtype>
__device__ __forceinline__ float element_of_word(u32 word, int i) {
  if constexpr (sizeof(Dtype) == 4)
    return __uint_as_float(word);
  else
    return i ? high_to_float(word, Dtype{}) : low_to_float(word, Dtype{});
}

template <typename Dtype>
__device__ __forceinline__ float amax_of_word(u32 word) {
  if constexpr (sizeof(Dtype) == 4)
    return __uint_as_float(word);
  else
    return fmaxf(low_to_float(word, Dtype{}), high_to_float(word, Dtype{}));
}

template <typename Dtype>
__device__ __forceinline__ float block_amax(const Packed16<Dtype>& x) {
  return amax_of_word<Dtype>(absmax<Dtype>(x.word));
}
