// Integer and element types, and the axes that several suites have: a flag's value is spelled as its enumerator.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// The conversions are for users' recipes; kernels here convert two at a time (packed16.cuh).
struct bf16 {
  u16 bits;
  __device__ __forceinline__ explicit operator float() const { return __uint_as_float(u32(bits) << 16); }
};
struct fp16 {
  u16 bits;
  __device__ __forceinline__ explicit operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};
using fp32 = float;

constexpr int kBlock = 16;  // elements that share a scale byte

enum class Block { block_1x16, block_16x16 };
enum class Outputs { both, rowwise, columnwise };
enum class Rounding { rne, sr };
enum class Stage { full, amax, encode };
enum class Granularity { tensor, row, window };      // the extent that shares an amax
enum class ScaleFormat { e4m3, ue5m3 };              // of block scales
enum class Multiplier { direct, reciprocal, fast };  // fast is per_tensor's fast_math

// Marks of a kernel's pointers, which the launch reads from the signature. Optional: null where the case has no such
// array. InPlace: read, then written.
template <typename T>
using Optional = T* __restrict__;
template <typename T>
using InPlace = T* __restrict__;
