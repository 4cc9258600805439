// NUMERICS 6: a block encoded with its amax mapped to 4 and to 6, and the error of each.
#pragma once

#include "numerics/nvfp4.cuh"

enum class Error { mae, mse };
enum class ErrorMath { exact, fp16 };

constexpr float kMap4OverMap6 = 1.5f;  // ratio of the scale for 4 to the scale for 6

// Between these amaxes no step under- or overflows, whatever the block. Others take the contract literally, with real
// divisions.
constexpr float kOrdinaryAmaxMin = 0x1p-80f;
constexpr float kOrdinaryAmaxMax = 0x1p80f;

// value / divisor, correctly rounded without a division: RN(1 / divisor) gives a quotient within two ulp, its remainder
// is exact, and the corrected quotient rounds as the division does (Markstein 1990; tests/kernels/test_short_divisions.py
// does it for all 2^23 mantissas by each of our divisors).
// value: 0, or with a normal quotient
template <int divisor>
__device__ __forceinline__ float divide(float value) {
  constexpr float kReciprocal = 1.0f / float(divisor);
  const float quotient = __fmul_rn(value, kReciprocal);
  return __fmaf_rn(__fmaf_rn(-float(divisor), quotient, value), kReciprocal, quotient);
}

// RN(RN(q * scale_inv * amax) / bound), the decoded value of a magnitude q, for an ordinary amax. q * scale_inv has 6
// bits.
//
// If amax has a 16-bit type, scale_inv * amax has at most 15 bits and one division serves all codes: with quotient Q
// and remainder R of that product by bound, the value is q * Q + q * R. The last term is exact to 2^-22 of itself, and is
// less than 2 ulp of the sum. The sum is a fraction whose denominator has an odd part d: 1, and it has no more than 17 bits;
// or a divisor of that of the bound (3, 27, 15 or 21 for 256, 288, 320 or 448), and no tie is nearer than 1/(2 d) ulp, 1/54
// at least. The same test divides all of these products.
template <typename Dtype, int bound>
struct Decoded {
  float scale_inv, amax;
  float quotient, rest;

  __device__ Decoded(float block_scale_inv, float amax)
      : scale_inv(__fmul_rn(block_scale_inv, 1.0f / kE2m1Unit)), amax(amax) {
    const float product = __fmul_rn(scale_inv, amax);
    quotient = divide<bound>(product);
    rest = __fmul_rn(__fmaf_rn(-float(bound), quotient, product), 1.0f / float(bound));
  }
  __device__ float operator()(float magnitude) const {
    if constexpr (sizeof(Dtype) == 2) return __fmaf_rn(magnitude, quotient, __fmul_rn(magnitude, rest));
    return divide<bound>(__fmul_rn(__fmul_rn(magnitude, scale_inv), amax));
  }
};

template <Error error>
__device__ __forceinline__ float add_error(float sum, float difference) {
  if constexpr (error == Error::mae) return __fadd_rn(sum, fabsf(difference));
  return __fadd_rn(sum, __fmul_rn(difference, difference));
}

// Step 6, exact. Signs are left out: a value and its negative have the same error. magnitude: of the codes, times
// kE2m1Unit
template <typename Dtype, Error error, int e4m3_max>
__device__ __forceinline__ float exact_error(
    float (&x)[kBlock], float (&magnitude)[kBlock], float scale_inv, float amax, bool ordinary) {
  constexpr int kBound = int(kE2m1Max) * e4m3_max;
  float sum = 0.0f;
  if (ordinary) {
    const Decoded<Dtype, kBound> decoded(scale_inv, amax);
#pragma unroll
    for (int i = 0; i < kBlock; ++i) sum = add_error<error>(sum, __fsub_rn(decoded(magnitude[i]), fabsf(x[i])));
    return sum;
  }
  // A rolled loop over rotating operands: sixteen unrolled divisions would take too many registers.
#pragma unroll 1
  for (int rotation = 0; rotation < kBlock; ++rotation) {
    const float first = x[0], q = __fmul_rn(magnitude[0], 1.0f / kE2m1Unit);
    const float decoded = __fdiv_rn(__fmul_rn(__fmul_rn(q, scale_inv), amax), float(kBound));
    sum = add_error<error>(sum, __fsub_rn(decoded, fabsf(first)));
#pragma unroll
    for (int i = 1; i < kBlock; ++i) {
      x[i - 1] = x[i];
      magnitude[i - 1] = magnitude[i];
    }
    x[kBlock - 1] = first;
  }
  return sum;
}

// Step 6, fp16. code * scale_inv is exact, so the fma rounds the difference alone.
template <Error error>
__device__ __forceinline__ float fp16_error(
    const float (&x)[kBlock], const float (&magnitude)[kBlock], float scale_inv, float encode_scale) {
  scale_inv = __fmul_rn(scale_inv, 1.0f / kE2m1Unit);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    sum = add_error<error>(sum, __fmaf_rn(magnitude[i], scale_inv, -fabsf(__fmul_rn(x[i], encode_scale))));
  }
  return sum;
}

struct MappedBlock {
  EncodedBlock encoded;
  float error;
};

// Steps 3 to 6. scale: before its cast
template <typename Dtype, Error error, ErrorMath error_math, int e4m3_max>
__device__ __forceinline__ MappedBlock
map_block(float (&x)[kBlock], float scale, float amax, const GlobalScale& global, bool ordinary) {
  const E4m3 scale_inv = e4m3_round(scale);
  const E2m1x16 codes = e2m1_nearest(x, block_encode_scale<Multiplier::reciprocal>(scale_inv.value, global));
  float magnitude[kBlock];
  e2m1_magnitudes(codes, magnitude);
  const EncodedBlock encoded = {scale_inv.code, pack_codes(codes)};
  if constexpr (error_math == ErrorMath::fp16) {
    return {encoded, fp16_error<error>(x, magnitude, scale_inv.value, global.encode)};
  }
  return {encoded, exact_error<Dtype, error, e4m3_max>(x, magnitude, scale_inv.value, amax, ordinary)};
}

struct Map4Map6 {
  MappedBlock map4, map6;

  // Step 8: 4 if its error is smaller, so a tie or a NaN keeps 6
  __device__ EncodedBlock smaller_error() const {
    const bool take_map4 = map4.error < map6.error;
    const u32 low = take_map4 ? map4.encoded.codes.word[0] : map6.encoded.codes.word[0];
    const u32 high = take_map4 ? map4.encoded.codes.word[1] : map6.encoded.codes.word[1];
    return {take_map4 ? map4.encoded.scale_inv : map6.encoded.scale_inv, {{low, high}}};
  }
};

// Steps 2 to 6. block_amax: of all values that share the scale
template <typename Dtype, Error error, ErrorMath error_math, int e4m3_max>
__device__ __forceinline__ Map4Map6
map4_map6(float (&x)[kBlock], float block_amax, float amax, const GlobalScale& global) {
  const bool ordinary = amax >= kOrdinaryAmaxMin && amax <= kOrdinaryAmaxMax;
  const float sixth = ordinary ? divide<int(kE2m1Max)>(block_amax) : __fdiv_rn(block_amax, kE2m1Max);
  const float base = __fmul_rn(sixth, global.encode);
  const float step = __fmul_rn(base, kMap4OverMap6);
  return {
      map_block<Dtype, error, error_math, e4m3_max>(x, step, amax, global, ordinary),
      map_block<Dtype, error, error_math, e4m3_max>(x, base, amax, global, ordinary)};
}
