// Codes and block scales to f16x2, as tensor cores take them.
//
// A value is code * scale_inv * kF16Unit, exactly: the product has at most six significant bits, the lowest at least
// 2^-10, or of ue5m3 2^-18, and the smallest f16 is 2^-24. The largest is 2688, or of ue5m3 688128, in whose unit it is
// 43008, and the largest f16 is 65504. A NaN scale gives NaNs.
#pragma once

#include "numerics/ue5m3.cuh"

template <ScaleFormat format = ScaleFormat::e4m3>
constexpr float kF16Unit = format == ScaleFormat::e4m3 ? 0x1p-7f : 0x1p-4f;
template <ScaleFormat format = ScaleFormat::e4m3>
constexpr float kProductUnit = kF16Unit<format> * kF16Unit<format>;  // unit of a sum of products

__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
  u32 product;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Two block scales in f16, of e4m3 times 2^7. dequant_4 decodes a code to code * 2^-14, so a product is in units of
// kF16Unit. Of ue5m3 they are halved, because the largest is 114688, and dequant_4 decodes a code to code * 2^-3.
template <ScaleFormat format = ScaleFormat::e4m3>
struct ScalesF16x2 {
  u32 pair;

  ScalesF16x2() = default;
  // bytes: the first in the low byte
  __device__ explicit ScalesF16x2(u32 bytes) {
    if constexpr (format == ScaleFormat::e4m3) {
      pair = mul_f16x2(e4m3_to_f16x2(bytes), 0x58005800u);
    } else {
      const float low = ue5m3_decode(bytes & 0xFFu), high = ue5m3_decode(bytes >> 8 & 0xFFu);
      pair = pack2(__fmul_rn(low, 0.5f), __fmul_rn(high, 0.5f), fp16{});
    }
  }

  // Broadcasts scale `index` to both halves.
  __device__ u32 both(int index) const {
    u32 halves;
    if (index == 0)
      asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {lo, lo}; }" : "=r"(halves) : "r"(pair));
    else
      asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, hi}; }" : "=r"(halves) : "r"(pair));
    return halves;
  }
};

// Four of the eight codes of a word, code i in the half beside code i + 4
struct CodesF16x4 {
  u32 pair[2];  // codes `parity` and `parity` + 4, and `parity` + 2 and `parity` + 6
};

// parity: 0 for codes with an even index, 1 for odd ones; scale: of ScalesF16x2, in both halves
template <ScaleFormat format = ScaleFormat::e4m3>
__device__ __forceinline__ CodesF16x4 dequant_4(u32 word, int parity, u32 scale) {
  // The three magnitude bits are the top of an f16 whose exponent is 14 too small: with the sign in bit 15 they belong
  // in bits 9 to 11. The upper nibble of each byte is placed for both bytes of a half at once.
  const u32 signs = parity ? word : word << 4, magnitudes = parity ? word >> 3 : word << 1;
  // One lop3; the compiler would mask each half separately.
  u32 placed;
  asm("lop3.b32 %0, %1, %2, %3, 0xE2;" : "=r"(placed) : "r"(signs), "r"(0x80808080u), "r"(magnitudes));
  const auto decoded = [&](u32 codes) {
    return mul_f16x2(format == ScaleFormat::e4m3 ? codes : mul_f16x2(codes, 0x68006800u), scale);
  };
  return {decoded((placed << 8) & 0x8E008E00u), decoded(placed & 0x8E008E00u)};
}
