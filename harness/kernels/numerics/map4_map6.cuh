// NUMERICS 6: a block encoded with its amax mapped to 4 or to 6, by the smaller error.
#pragma once

#include "numerics/nvfp4.cuh"

enum class Error { mae, mse };
enum class ErrorMath { exact, fp16 };

constexpr float kMap4OverMap6 = 1.5f;  // ratio of the scale for 4 to the scale for 6

// Between these amaxes no step under- or overflows, whatever the block, nor does the square of an error that counts.
// Others take the contract literally, with real divisions.
constexpr float kOrdinaryAmaxMin = 0x1p-40f;
constexpr float kOrdinaryAmaxMax = 0x1p40f;

// value / divisor, correctly rounded without a division: RN(1 / divisor) gives a quotient within two ulp, its remainder
// is exact, and the corrected quotient rounds as the division does (Markstein 1990; tests/kernels/test_map4_map6.py
// does it for all 2^23 mantissas by each of our divisors).
// value: 0, or with a normal quotient
template <int divisor>
__device__ __forceinline__ float divide(float value) {
  constexpr float kReciprocal = 1.0f / float(divisor);
  const float quotient = __fmul_rn(value, kReciprocal);
  return __fmaf_rn(__fmaf_rn(-float(divisor), quotient, value), kReciprocal, quotient);
}

// Steps 2 and 3
struct Map4Map6 {
  u32 codes;  // e4m3: of map 6, and of map 4 in the next byte
  float map4, map6, base;
  bool ordinary;

  // block_amax: of all values that share the scale
  __device__ Map4Map6(float block_amax, float amax, const GlobalScale& global) {
    ordinary = amax >= kOrdinaryAmaxMin && amax <= kOrdinaryAmaxMax;
    const float sixth = ordinary ? divide<int(kE2m1Max)>(block_amax) : __fdiv_rn(block_amax, kE2m1Max);
    base = __fmul_rn(sixth, global.encode);
    const E4m3x2 scales = e4m3_round(base, __fmul_rn(base, kMap4OverMap6));
    codes = scales.codes;
    map4 = scales.high;
    map6 = scales.low;
  }
};

struct Errors {
  float map4, map6;
};

// ---------------------------------------------------------------------------------------------------------------------
// The smaller error by approximate sums, where rounding cannot change which one it is
//
// Bytes depend on the two errors only through the sign of their difference. Both are therefore first computed with fewer
// and other roundings, and the contract's own sums only where the difference is smaller than those roundings together.
//
// Let Y = |x| * 6 E / amax (exact) or |x| * S_enc (fp16), F the scale, D the distance from Y to the nearest code times F,
// u = 2^-24. 0 is a code, so D <= Y, and Y <= 6 base. To first order in u:
//   - the contract's code is that of Y / F (1 + 5 u), so that it lies at most D + 10 u Y away. Decoding it rounds twice,
//     2 u (Y + D); the difference and fifteen sums, u D each.
//   - ours is that of Y / F (1 + 5 u), and its distance is taken from there: D + 5 u Y. Difference, sums and scale, 17 u D.
// mae: for both maps together 34 u sum(Y) + 70 u sum(D), where the sum of sixteen Y is at most 96 base. 16x16: each tree
// rounds four times more, 86 u.
// mse: the same differences times 2 D, and their squares round as well: 34 u Y D + 41 u D^2 for a map, 49 for a tree's.
// 34 Y D <= 578 D^2 + Y^2 / 2, and the sum of Y^2 / 2 is at most 288 base^2.
// The constants below are larger by what second order, the bound's own roundings and the larger of both errors add.
// A NaN decides nothing, nor does an infinity. Equal scales have equal errors: of blocks of zeros, too.
// ---------------------------------------------------------------------------------------------------------------------

template <Error error>
constexpr float kErrorBoundOfBase = (error == Error::mae ? 3300.0f : 600.0f) * 0x1p-24f;  // of a 1x16 block
template <Error error>
constexpr float kErrorBoundOfError = (error == Error::mae ? 96.0f : 1300.0f) * 0x1p-24f;

// 1 / value, within an ulp
__device__ __forceinline__ float approximate_reciprocal(float value) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
  return reciprocal;
}

// In units of 1 / S_enc, or of its square. NaN for a scale of 0
template <Error error>
__device__ __forceinline__ float approximate_error(
    const float (&x)[kBlock], float scale_inv, float encode_scale, u32 half_step) {
  const float multiplier = __fmul_rn(__fmul_rn(encode_scale, kE2m1Unit), approximate_reciprocal(scale_inv));
  float sum;
#pragma unroll
  for (int i = 0; i < kBlock; i += 2) {
    const float v[2] = {__fmul_rn(fabsf(x[i]), multiplier), __fmul_rn(fabsf(x[i + 1]), multiplier)};
    const float2 q = near_magnitudes(v[0], v[1], half_step);
    const float d[2] = {__fsub_rn(q.x, v[0]), __fsub_rn(q.y, v[1])};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if constexpr (error == Error::mae)
        sum = i + j == 0 ? fabsf(d[0]) : __fadd_rn(sum, fabsf(d[j]));
      else
        sum = i + j == 0 ? __fmul_rn(d[0], d[0]) : __fmaf_rn(d[j], d[j], sum);
    }
  }
  const float unit = __fmul_rn(scale_inv, 1.0f / kE2m1Unit);
  return __fmul_rn(error == Error::mae ? unit : __fmul_rn(unit, unit), sum);
}

template <Error error>
__device__ __forceinline__ Errors
approximate_errors(const float (&x)[kBlock], const Map4Map6& scales, const GlobalScale& global) {
  // Plus 0, which the compiler does not know: it would put a constant into a register anew for each addition.
  const u32 half_step = kHalfStep + (__float_as_uint(global.encode) >> 31);
  return {
      approximate_error<error>(x, scales.map4, global.encode, half_step),
      approximate_error<error>(x, scales.map6, global.encode, half_step)};
}

// By how much the difference of approximate errors, each the sum of those of `blocks` 1x16 blocks, may be wrong
template <Error error, int blocks>
__device__ __forceinline__ float error_bound(const Errors& errors, const Map4Map6& scales) {
  const float base = error == Error::mae ? scales.base : __fmul_rn(scales.base, scales.base);
  return __fmaf_rn(errors.map6, kErrorBoundOfError<error>, __fmul_rn(base, kErrorBoundOfBase<error> * float(blocks)));
}

// Whether they leave open which of the contract's errors is smaller
template <Error error, int blocks>
__device__ __forceinline__ bool undecided(const Errors& errors, const Map4Map6& scales) {
  const float distance = fabsf(__fsub_rn(errors.map4, errors.map6));
  const bool close = !(distance > error_bound<error, blocks>(errors, scales));
  return !scales.ordinary || (close && scales.map4 != scales.map6);
}

// ---------------------------------------------------------------------------------------------------------------------
// Step 6. Signs are left out: a value and its negative have the same error.
// ---------------------------------------------------------------------------------------------------------------------

template <Error error>
__device__ __forceinline__ float add_error(float sum, float difference) {
  if constexpr (error == Error::mae) return __fadd_rn(sum, fabsf(difference));
  return __fadd_rn(sum, __fmul_rn(difference, difference));
}

// magnitude: of the code, times kE2m1Unit; ordinary: whether amax is
template <ErrorMath error_math, int e4m3_max, bool ordinary>
__device__ __forceinline__ float difference(float magnitude, float scale_inv, float x, float amax, float encode_scale) {
  constexpr int kBound = int(kE2m1Max) * e4m3_max;
  const float scaled = __fmul_rn(__fmul_rn(magnitude, 1.0f / kE2m1Unit), scale_inv);
  if constexpr (error_math == ErrorMath::fp16) return __fsub_rn(scaled, fabsf(__fmul_rn(x, encode_scale)));
  const float product = __fmul_rn(scaled, amax);
  return __fsub_rn(ordinary ? divide<kBound>(product) : __fdiv_rn(product, float(kBound)), fabsf(x));
}

// A rolled loop over rotating operands: code that is seldom run should be short, and take no registers. Ordinary blocks
// go through it by four values without a branch, because the other warps of a tile wait.
template <Error error, ErrorMath error_math, int e4m3_max, bool ordinary>
__device__ __forceinline__ Errors
contract_errors(float (&x)[kBlock], const Map4Map6& scales, float amax, const GlobalScale& global) {
  constexpr int kStep = ordinary ? 4 : 1;
  const float multiplier4 = block_encode_scale<Multiplier::reciprocal>(scales.map4, global);
  const float multiplier6 = block_encode_scale<Multiplier::reciprocal>(scales.map6, global);
  Errors sum = {0.0f, 0.0f};
#pragma unroll 1
  for (int rotation = 0; rotation < kBlock; rotation += kStep) {
    float first[kStep];
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const float value = x[i];
      first[i] = x[i];
      const float2 q = nearest_magnitudes(
          __fmul_rn(fabsf(__fmul_rn(value, multiplier4)), kE2m1Unit),
          __fmul_rn(fabsf(__fmul_rn(value, multiplier6)), kE2m1Unit));
      sum.map4 = add_error<error>(
          sum.map4, difference<error_math, e4m3_max, ordinary>(q.x, scales.map4, value, amax, global.encode));
      sum.map6 = add_error<error>(
          sum.map6, difference<error_math, e4m3_max, ordinary>(q.y, scales.map6, value, amax, global.encode));
    }
#pragma unroll
    for (int i = kStep; i < kBlock; ++i) x[i - kStep] = x[i];
#pragma unroll
    for (int i = 0; i < kStep; ++i) x[kBlock - kStep + i] = first[i];
  }
  return sum;
}

template <Error error, ErrorMath error_math, int e4m3_max>
__device__ __forceinline__ Errors
contract_errors(float (&x)[kBlock], const Map4Map6& scales, float amax, const GlobalScale& global) {
  // Differences of fp16 divide nothing.
  if (error_math == ErrorMath::fp16 || scales.ordinary)
    return contract_errors<error, error_math, e4m3_max, true>(x, scales, amax, global);
  return contract_errors<error, error_math, e4m3_max, false>(x, scales, amax, global);
}

// Steps 4, 5 and 8: map 4 if its error is smaller, so a tie or a NaN keeps 6
__device__ __forceinline__ EncodedBlock
encode_smaller_error(float (&x)[kBlock], const Map4Map6& scales, const Errors& errors, const GlobalScale& global) {
  const bool take_map4 = errors.map4 < errors.map6;
  float multiplier = block_encode_scale<Multiplier::reciprocal>(take_map4 ? scales.map4 : scales.map6, global);
  if (!scales.ordinary) keep_normal(x, multiplier);
  return {take_map4 ? scales.codes >> 8 : scales.codes, encode16_nearest(x, multiplier, false)};
}
