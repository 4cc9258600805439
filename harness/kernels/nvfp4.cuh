// WHAT byte: every format, rounding and constant of NVFP4 quantization, and nothing about where a byte lands.
//
// The words are those of the contract (NUMERICS sections 1 and 2); every function names its step. One rounding per
// written operation: the compile turns contraction and flush-to-zero off, and `__fmul_rn` and its siblings stand
// where a reader might doubt it.
#pragma once

#include "integers.cuh"
#include "philox.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Variants: the names of a suite's axes and their values
// ---------------------------------------------------------------------------------------------------------------------

struct bf16 {
  u16 bits;
};
struct fp16 {
  u16 bits;
};
using fp32 = float;

enum class Block { block_1x16, block_16x16 };
enum class Outputs { both, rowwise, columnwise };
enum class Rounding { rne, sr };
enum class Stage { full, amax, encode };
enum class Granularity { tensor, row, window };      // of an amax
enum class Multiplier { direct, reciprocal, fast };  // fast is per_tensor's fast_math

constexpr int kBlock = 16;   // elements that share a scale byte
constexpr int kWindow = 64;  // elements that share an amax in local_1x64

// ---------------------------------------------------------------------------------------------------------------------
// Constants
// ---------------------------------------------------------------------------------------------------------------------

constexpr float kE2m1Max = 6.0f;                         // 6 = 1.5 * 2^2
constexpr float kE4m3Max = 448.0f;                       // 448 = 1.75 * 2^8
constexpr float kE4m3MinNormal = 0x1p-6f;                // below it, e4m3 counts in steps of the next
constexpr float kE4m3MinPositive = 0x1p-9f;              // code 1
constexpr float kFloatMax = 3.402823466385288598e+38f;   // 0x7F7FFFFF
constexpr float kBf16Max = 3.38953138925153547590e+38f;  // 0x7F7F0000
constexpr float kStepToFour = 1.5f;                      // 6 / 4, the scale of a block that is mapped to 4 over to 6
constexpr float kWindowAmaxMin = 1e-12f;                 // what local_1x64 takes a smaller amax for
constexpr float kRhtNorm = 0.25f;                        // 1 / sqrt(16)

// ---------------------------------------------------------------------------------------------------------------------
// Sixteen elements as they lie in memory
// ---------------------------------------------------------------------------------------------------------------------

// Word i holds elements 2i (low half) and 2i+1 of a 16-bit type, or element i of fp32.
template <typename Dtype>
struct Packed16 {
  static constexpr int kWords = kBlock * int(sizeof(Dtype)) / 4;
  u32 word[kWords];
};

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

// ---------------------------------------------------------------------------------------------------------------------
// 2.2 amax: max |x|, NaN dropped, exact in the input's own type
// ---------------------------------------------------------------------------------------------------------------------

// abs2 and max2 act on the two halves of a word of a 16-bit type, or on the one value of fp32.
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

// max |x| of each half over `count` words; a half that holds nothing but NaN counts as 0.
template <typename Dtype, int count>
__device__ __forceinline__ u32 absmax(const u32 (&word)[count]) {
  u32 m = abs2(word[0], Dtype{});
#pragma unroll
  for (int i = 1; i < count; ++i) m = max2(m, abs2(word[i], Dtype{}), Dtype{});
  return max2(m, 0u, Dtype{});
}

// Element i of a word
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

// ---------------------------------------------------------------------------------------------------------------------
// 1. e4m3 (fn): nearest-even, saturating
// ---------------------------------------------------------------------------------------------------------------------

struct E4m3 {
  u32 code;
  float value;
};

// The e4m3 value nearest to `value`. value: >= 0 or +inf, never NaN
__device__ __forceinline__ E4m3 e4m3_round(float value) {
#if __CUDA_ARCH__ >= 890
  u32 code, halves;
  asm("{ .reg .b16 pair;\n"
      "cvt.rn.satfinite.e4m3x2.f32 pair, %2, %3;\n"
      "cvt.u32.u16 %0, pair;\n"
      "cvt.rn.f16x2.e4m3x2 %1, pair; }"
      : "=r"(code), "=r"(halves)
      : "f"(0.0f), "f"(value));
  return {code, low_to_float(halves, fp16{})};
#else
  value = fminf(value, kE4m3Max);
  // A float 2^20 times the value's power of two counts in e4m3 steps of that binade, so adding it rounds; subnormals
  // share the lowest normal binade's step.
  const float power = __uint_as_float(__float_as_uint(value) & 0x7F800000u);
  const float magic = __fmul_rn(fmaxf(power, kE4m3MinNormal), 0x1p20f);
  value = __fsub_rn(__fadd_rn(value, magic), magic);
  // Rebias the exponent from 127 to 7, exactly, and drop the empty mantissa bits.
  return {__float_as_uint(__fmul_rn(value, 0x1p-120f)) >> 20, value};
#endif
}

// Any float: the sign of zero is kept, NaN of either sign is 0x7F.
__device__ __forceinline__ u32 e4m3_encode(float value) {
  if (isnan(value)) return 0x7Fu;
  return e4m3_round(fabsf(value)).code | (__float_as_uint(value) >> 24 & 0x80u);
}

__device__ __forceinline__ float e4m3_decode(u32 code) {
  const u32 magnitude = code & 0x7Fu;
  // The code read 20 bits up is a float with the exponent bias off by 120; a subnormal code is a subnormal float.
  const float value = __fmul_rn(__uint_as_float(magnitude << 20 | (code & 0x80u) << 24), 0x1p120f);
  return magnitude == 0x7Fu ? __uint_as_float(0x7FFFFFFFu) : value;
}

// Two codes, the first in the low byte, to two f16, exactly; NaN of either sign is NaN.
__device__ __forceinline__ u32 e4m3_to_half2(u32 codes) {
  u32 halves;
#if __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 pair; cvt.u16.u32 pair, %1; cvt.rn.f16x2.e4m3x2 %0, pair; }" : "=r"(halves) : "r"(codes));
#else
  const u32 spread = __byte_perm(codes, 0u, 0x1404), magnitudes = spread & 0x7F007F00u;
  // A code read 7 bits up is an f16 with the exponent bias off by 8.
  asm("mul.f16x2 %0, %1, %2;" : "=r"(halves) : "r"((spread & 0x80008000u) | magnitudes >> 1), "r"(0x5C005C00u));
  halves |= ((magnitudes + 0x01000100u) >> 15 & 0x00010001u) * 0x7FFFu;
#endif
  return halves;
}

// ---------------------------------------------------------------------------------------------------------------------
// 2.1 to 2.7 scales
// ---------------------------------------------------------------------------------------------------------------------

// 2.1 S_enc and 2.3 S_dec of a granule
struct GlobalScale {
  float encode;
  float decode;
};

__device__ __forceinline__ GlobalScale global_scale(float amax, float e4m3_max) {
  float encode = fminf(__fdiv_rn(e4m3_max * kE2m1Max, amax), kFloatMax);
  if (amax == 0.0f || encode == 0.0f) encode = 1.0f;
  return {encode, __frcp_rn(encode)};
}

// 5. S_enc of a window
__device__ __forceinline__ GlobalScale window_scale(float amax) {
  return global_scale(fmaxf(amax, kWindowAmaxMin), kE4m3Max);
}

// 2.4 multiply form. The contract's fmin with FLT_MAX is inside the cast, which saturates far below
// it.
__device__ __forceinline__ E4m3 block_scale_inv(float amax, const GlobalScale& global) {
  return e4m3_round(__fmul_rn(amax, __fmul_rn(global.encode, 1.0f / kE2m1Max)));
}

// A scale of 0 gives 0 in the direct form, the largest number in the others.
template <Multiplier multiplier>
__device__ __forceinline__ float block_encode_scale(float scale_inv, const GlobalScale& global) {
  if constexpr (multiplier == Multiplier::reciprocal) {  // 2.6
    return fminf(__frcp_rn(__fmul_rn(scale_inv, global.decode)), kFloatMax);
  } else if constexpr (multiplier == Multiplier::direct) {  // 2.7
    const float quotient = __fdiv_rn(global.encode, fmaxf(scale_inv, kE4m3MinPositive));
    return scale_inv == 0.0f ? 0.0f : quotient;
  } else {  // 3. rounded to bf16, so that its product with a bf16 is exact
    const float quotient = fminf(__fdiv_rn(global.encode, scale_inv), kBf16Max);
    const u32 bits = __float_as_uint(quotient);
    return __uint_as_float((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// 1. e2m1, nearest-even and saturating; the sign of zero is kept and NaN is 0x7
// ---------------------------------------------------------------------------------------------------------------------

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000
#define NVFP4_HAS_E2M1_CVT 1
#else
#define NVFP4_HAS_E2M1_CVT 0
#endif

// Two floats to f16, the first in the low half; NaN of either sign becomes +NaN.
__device__ __forceinline__ u32 to_half2(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ u32 min_half2(u32 a, u32 b) {
  u32 m;
  asm("min.f16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
  return m;
}
__device__ __forceinline__ u32 abs_half2(u32 a) {
  u32 m;
  asm("abs.f16x2 %0, %1;" : "=r"(m) : "r"(a));
  return m;
}
__device__ __forceinline__ u32 add_half2(u32 a, u32 b) {
  u32 sum;
  asm("add.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

__device__ __forceinline__ u32 fma_half2(u32 a, u32 b, u32 c) {
  u32 sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// Codes of two values times a multiplier: the magnitudes in bits 0-2 and 16-18, the signs in bits 15 and 31.
struct E2m1Pair {
  u32 magnitudes, signs;
};

// f16 subnormals are integers: their step is 2^-24 whatever the value, so a float times 2^-23 casts to the bits of
// round(2a), one rounding, and likewise round(a) and round(a/2). Each of 2a, a+2 and a/2+4 is the code on its own
// binade and no less than the code elsewhere: the code is their minimum, and 7.
struct E2m1Multipliers {
  float halves, wholes, doubles;

  __device__ explicit E2m1Multipliers(float multiplier)
      : halves(__fmul_rn(multiplier, 0x1p-23f)),
        wholes(__fmul_rn(multiplier, 0x1p-24f)),
        doubles(__fmul_rn(multiplier, 0x1p-25f)) {}
};

__device__ __forceinline__ E2m1Pair e2m1_pair(float low, float high, const E2m1Multipliers& m) {
  const u32 halves = to_half2(__fmul_rn(low, m.halves), __fmul_rn(high, m.halves));
  const u32 wholes = to_half2(__fmul_rn(fabsf(low), m.wholes), __fmul_rn(fabsf(high), m.wholes));
  const u32 doubles = to_half2(__fmul_rn(fabsf(low), m.doubles), __fmul_rn(fabsf(high), m.doubles));
  const u32 above_one = min_half2(add_half2(wholes, 0x00020002u), add_half2(doubles, 0x00040004u));
  return {min_half2(min_half2(abs_half2(halves), above_one), 0x00070007u), halves};
}

// The signs of a's and b's halves, each spread over a byte, in the order a low, b low, a high, b high. `__byte_perm`
// cannot spread: it ignores the selectors' top bits.
__device__ __forceinline__ u32 spread_signs(u32 a, u32 b) {
  u32 signs;
  asm("prmt.b32 %0, %1, %2, 0xFBD9;" : "=r"(signs) : "r"(a), "r"(b));
  return signs;
}

// Pair j to nibbles j and j + 4.
__device__ __forceinline__ u32 e2m1_word(const E2m1Pair (&pair)[4]) {
  // As f16 subnormals, three nibbles stay below 2^11 and add up exactly: 16 = 0x4C00, 256 = 0x5C00.
  const u32 three =
      fma_half2(pair[2].magnitudes, 0x5C005C00u, fma_half2(pair[1].magnitudes, 0x4C004C00u, pair[0].magnitudes));
  const u32 even_signs = spread_signs(pair[0].signs, pair[2].signs) & 0x08080808u;
  const u32 odd_signs = spread_signs(pair[1].signs, pair[3].signs) & 0x80808080u;
  return three | pair[3].magnitudes << 12 | even_signs | odd_signs;
}

// Sixteen codes, code i in nibble i % 8 of word i / 8
struct Codes16 {
  u32 word[2];
};

// Sixteen codes as the cast leaves them
#if NVFP4_HAS_E2M1_CVT

using E2m1x16 = Codes16;

__device__ __forceinline__ u32 e2m1_codes8(const float* x, float multiplier) {
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(x[i], multiplier);
  u32 word;
  asm("{ .reg .b8 b0, b1, b2, b3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %7;\n"
      "mov.b32 %0, {b0, b1, b2, b3}; }"
      : "=r"(word)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
  return word;
}

__device__ __forceinline__ E2m1x16 e2m1_cast16(const float (&x)[kBlock], float multiplier) {
  return {{e2m1_codes8(x, multiplier), e2m1_codes8(x + 8, multiplier)}};
}

__device__ __forceinline__ Codes16 pack_codes(const E2m1x16& codes) { return codes; }

#else

struct E2m1x16 {
  E2m1Pair pair[2][4];  // pair j of word w: elements 8w + j and 8w + j + 4
};

// multiplier: 0 or at least 2^-100, so that the powers of two of E2m1Multipliers stay in the normal range
__device__ __forceinline__ E2m1x16 e2m1_cast16(const float (&x)[kBlock], float multiplier) {
  const E2m1Multipliers m(multiplier);
  E2m1x16 codes;
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) {
    const int low = i / 4 * 8 + i % 4;
    codes.pair[i / 4][i % 4] = e2m1_pair(x[low], x[low + 4], m);
  }
  return codes;
}

__device__ __forceinline__ Codes16 pack_codes(const E2m1x16& codes) {
  return {{e2m1_word(codes.pair[0]), e2m1_word(codes.pair[1])}};
}

#endif

// 2.8: sixteen values times any multiplier to the nearest codes
__device__ __forceinline__ E2m1x16 e2m1_nearest(const float (&x)[kBlock], float multiplier) {
  float v[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) v[i] = x[i];
#if !NVFP4_HAS_E2M1_CVT
  // Powers of two move from the multiplier to the values; one that underflows there was far below the smallest code.
  if (multiplier < 0x1p-100f) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) v[i] = __fmul_rn(v[i], 0x1p-64f);
    multiplier = __fmul_rn(multiplier, 0x1p64f);
  }
#endif
  return e2m1_cast16(v, multiplier);
}

__device__ __forceinline__ Codes16 encode16_nearest(const float (&x)[kBlock], float multiplier) {
  return pack_codes(e2m1_nearest(x, multiplier));
}

// ---------------------------------------------------------------------------------------------------------------------
// 2.9 stochastic rounding: a random share of one e2m1 step is added and the sum truncated
// ---------------------------------------------------------------------------------------------------------------------

// The magnitude of v's code, in the top three bits. v: as a multiplication left it, so that NaN is +NaN
__device__ __forceinline__ u32 e2m1_stochastic(float v, u32 random_word, int byte) {
  const float a = fabsf(v);
  // 2^14 + r * 2^-9 is the float whose low mantissa byte is r.
  const float r = __fadd_rn(__uint_as_float(__byte_perm(random_word, 0x46800000u, 0x7650 + byte)), -0x1p14f);
  // Half the power of two in [1, 4] is the e2m1 step at a; the half is in r.
  const float power = __uint_as_float(__float_as_uint(fminf(fmaxf(a, 1.0f), 4.0f)) & 0x7F800000u);
  const float t = fminf(__fmaf_rn(r, power, a), kE2m1Max);
  // Times 2^-126, a float is subnormal exactly where e2m1 is, and the code is what is left of it above bit 22.
  return __float_as_uint(__fmul_rz(t, 0x1p-126f)) << 7;
}

__device__ __forceinline__ Codes16
encode16_stochastic(const float (&x)[kBlock], float multiplier, const Random16& random) {
  Codes16 codes = {};
#pragma unroll
  for (int i = kBlock - 1; i >= 0; --i) {
    const float v = __fmul_rn(x[i], multiplier);
    u32& word = codes.word[i / 8];
    word = __funnelshift_l(__float_as_uint(v), word, 1);
    word = __funnelshift_l(e2m1_stochastic(v, random.word[i / 4], i % 4), word, 3);
  }
  return codes;
}

// ---------------------------------------------------------------------------------------------------------------------
// A whole block
// ---------------------------------------------------------------------------------------------------------------------

struct EncodedBlock {
  u32 scale_inv;  // e4m3
  Codes16 codes;
};

// 2.4, 2.6 or 2.7, and 2.8: sixteen values whose scale covers `amax`
template <Multiplier multiplier>
__device__ __forceinline__ EncodedBlock encode_block(const float (&x)[kBlock], float amax, const GlobalScale& global) {
  const E4m3 scale_inv = block_scale_inv(amax, global);
  return {scale_inv.code, encode16_nearest(x, block_encode_scale<multiplier>(scale_inv.value, global))};
}

// The same with 2.9
template <Multiplier multiplier>
__device__ __forceinline__ EncodedBlock
encode_block(const float (&x)[kBlock], float amax, const GlobalScale& global, const Random16& random) {
  const E4m3 scale_inv = block_scale_inv(amax, global);
  return {scale_inv.code, encode16_stochastic(x, block_encode_scale<multiplier>(scale_inv.value, global), random)};
}

// ---------------------------------------------------------------------------------------------------------------------
// Decoding
// ---------------------------------------------------------------------------------------------------------------------

// The value of the low four bits of `code`.
__device__ __forceinline__ float e2m1_decode(u32 code) {
  // The three magnitude bits read 22 bits up are a float with the exponent bias off by 126; code 1 is a subnormal
  // float.
  return __fmul_rn(__uint_as_float((code & 7u) << 22 | (code & 8u) << 28), 0x1p126f);
}

// Magnitudes of sixteen codes, times kE2m1Unit.
#if NVFP4_HAS_E2M1_CVT

constexpr float kE2m1Unit = 1.0f;

__device__ __forceinline__ void e2m1_magnitudes(const E2m1x16& codes, float (&value)[kBlock]) {
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    u32 pair[4];
    asm("{ .reg .b8 b0, b1, b2, b3;\n"
        "mov.b32 {b0, b1, b2, b3}, %4;\n"
        "cvt.rn.f16x2.e2m1x2 %0, b0;\n"
        "cvt.rn.f16x2.e2m1x2 %1, b1;\n"
        "cvt.rn.f16x2.e2m1x2 %2, b2;\n"
        "cvt.rn.f16x2.e2m1x2 %3, b3; }"
        : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
        : "r"(codes.word[w]));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      value[8 * w + 2 * j] = fabsf(low_to_float(pair[j], fp16{}));
      value[8 * w + 2 * j + 1] = fabsf(high_to_float(pair[j], fp16{}));
    }
  }
}

#else

// The three magnitude bits read 9 bits up are an f16 with the exponent bias off by 14.
constexpr float kE2m1Unit = 0x1p-14f;

__device__ __forceinline__ void e2m1_magnitudes(const E2m1x16& codes, float (&value)[kBlock]) {
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) {
    const u32 pair = codes.pair[i / 4][i % 4].magnitudes << 9;
    const int low = i / 4 * 8 + i % 4;
    value[low] = low_to_float(pair, fp16{});
    value[low + 4] = high_to_float(pair, fp16{});
  }
}

#endif

// The factor of a block's codes. Not reassociated: the scale meets the amax before the constant.
__device__ __forceinline__ float block_decode_scale(u32 scale_inv, float amax, float e4m3_max) {
  const float per_range = __fdiv_rn(1.0f, __fmul_rn(kE2m1Max, e4m3_max));
  return __fmul_rn(__fmul_rn(e4m3_decode(scale_inv), amax), per_range);
}

// Two floats to a word of the output type, the first in the low half.
__device__ __forceinline__ u32 pack2(float low, float high, bf16) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ u32 pack2(float low, float high, fp16) { return to_half2(low, high); }

// One element between memory and arithmetic; a NaN that is stored is 0x7FFF in 16 bits.
__device__ __forceinline__ float to_float(bf16 x) { return low_to_float(x.bits, bf16{}); }
__device__ __forceinline__ float to_float(fp32 x) { return x; }

template <typename Dtype>
__device__ __forceinline__ Dtype rounded(float value) {
  if constexpr (sizeof(Dtype) == 4)
    return value;
  else
    return {u16(pack2(value, 0.0f, Dtype{}))};
}

// 10.3 C_AB: what a product of two quantized tensors is multiplied by besides their amaxes. The divisor is exact.
__device__ __forceinline__ float accumulator_scale(float a_e4m3_max, float b_e4m3_max) {
  return __fdiv_rn(1.0f, kE2m1Max * kE2m1Max * a_e4m3_max * b_e4m3_max);
}
