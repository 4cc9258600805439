// Packed codes and block scales to pairs of f16, as matrix units take them.
//
// A half holds code * scale_inv * kF16Unit, exactly: a product has at most six significant bits, its lowest is worth
// at least 2^-10, and f16 counts down to 2^-24. A scale that is NaN makes NaNs.
#pragma once

#include "numerics/e4m3.cuh"

constexpr float kF16Unit = 0x1p-7f;
constexpr float kProductUnit = kF16Unit * kF16Unit;  // of a sum of products of two such halves

__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
  u32 product;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Two block scales as halves, times 2^7, which is what the codes' halves lack: they are in units of 2^-14.
struct ScalesF16x2 {
  u32 pair;

  ScalesF16x2() = default;
  // bytes: e4m3, the first in the low byte
  __device__ explicit ScalesF16x2(u32 bytes) : pair(mul_f16x2(e4m3_to_f16x2(bytes), 0x58005800u)) {}

  // Scale `index` in both halves
  __device__ u32 both(int index) const {
    u32 halves;
    if (index == 0)
      asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {lo, lo}; }" : "=r"(halves) : "r"(pair));
    else
      asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, hi}; }" : "=r"(halves) : "r"(pair));
    return halves;
  }
};

// Four of the eight codes of a word, two to a register. Code i lies beside code i + 4.
struct CodesF16x4 {
  u32 pair[2];  // codes `parity` and `parity` + 4, and `parity` + 2 and `parity` + 6
};

// parity: 0 for the codes with even index, 1 for those with odd
__device__ __forceinline__ CodesF16x4 dequant_4(u32 word, int parity, u32 scale) {
  // The three magnitude bits are the top of an f16 whose exponent is off by 14: with the sign in bit 15 they belong in
  // bits 9 to 11. Of two neighbouring nibbles in a byte, the upper is put in place for both bytes of a half.
  const u32 signs = parity ? word : word << 4, magnitudes = parity ? word >> 3 : word << 1;
  // Written out, because the compiler would mask for each half instead.
  u32 placed;
  asm("lop3.b32 %0, %1, %2, %3, 0xE2;" : "=r"(placed) : "r"(signs), "r"(0x80808080u), "r"(magnitudes));
  return {mul_f16x2((placed << 8) & 0x8E008E00u, scale), mul_f16x2(placed & 0x8E008E00u, scale)};
}
