// Derivatives of activations in fp32, one rounding per written operation.
//
// exp and tanh are computed in fp64 and rounded once. CUDA's own use approximate instructions with unspecified bits,
// which neither an oracle nor an emulator could reproduce. Inside exp fmas cost no bits: it is within 2^-55 either way.
#pragma once

enum class Activation { none, dgelu, dsilu, drelu, dqgelu, dsrelu, swiglu, dswiglu };

// ---------------------------------------------------------------------------------------------------------------------
// exp and tanh: x = k ln 2 + r, |r| <= ln(2) / 2, and exp(r) - 1 = r + r^2 p(r), p a polynomial through exp at the ten
// Chebyshev points, which is off by at most 2^-55 of exp(r). tests/kernels/test_activation_kernels.py has all values of
// 16 bits.
// ---------------------------------------------------------------------------------------------------------------------

constexpr double kLog2e = 0x1.71547652b82fep+0;    // 1 / ln 2
constexpr double kLn2High = 0x1.62e42fefa0000p-1;  // the upper 35 bits of ln 2
constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;  // the lower bits of ln 2
constexpr double kToInteger = 0x1.8p+52;           // adding it rounds to an integer, which is then the low word
constexpr float kExpRange = 200.0f;                // beyond, exp rounds to 0 or inf in fp32
constexpr double kTanhRange = 40.0;                // beyond, tanh rounds to 1 in fp64

struct ExpParts {
  double power;      // 2^k
  double remainder;  // exp(r) - 1
};

// x: in +-kExpRange, not NaN
__device__ __forceinline__ ExpParts exp_parts(double x) {
  const double shifted = __fma_rn(x, kLog2e, kToInteger);
  const double k = __dsub_rn(shifted, kToInteger);
  const double r = __fma_rn(k, -kLn2Low, __fma_rn(k, -kLn2High, x));
  constexpr double kSeries[] = {
      0x1.0000000000001p-1,  0x1.5555555555556p-3,  0x1.5555555553d63p-5,  0x1.11111111109b3p-7,  0x1.6c16c1788bd90p-10,
      0x1.a01a01a7c41d5p-13, 0x1.a019b90d2ae7ap-16, 0x1.71de0dae63bb3p-19, 0x1.289185613a3d6p-22, 0x1.af38a9b0ec855p-26,
  };
  double series = kSeries[9];
#pragma unroll
  for (int i = 8; i >= 0; --i) series = __fma_rn(series, r, kSeries[i]);
  return {__hiloint2double((__double2loint(shifted) + 1023) << 20, 0), __fma_rn(__dmul_rn(r, r), series, r)};
}

__device__ __forceinline__ float exp_rn(float x) {
  const ExpParts e = exp_parts(double(fminf(fmaxf(x, -kExpRange), kExpRange)));
  const float value = __double2float_rn(__fma_rn(e.power, e.remainder, e.power));
  return isnan(x) ? x : value;
}

// tanh |x| = e / (e + 2) with e = exp(2|x|) - 1, which does not cancel near 0.
__device__ __forceinline__ float tanh_rn(float x) {
  const double magnitude = fmin(double(fabsf(x)), kTanhRange);
  const ExpParts parts = exp_parts(__dadd_rn(magnitude, magnitude));
  const double e = __fma_rn(parts.power, parts.remainder, __dsub_rn(parts.power, 1.0));
  const float value = copysignf(__double2float_rn(__ddiv_rn(e, __dadd_rn(e, 2.0))), x);
  return isnan(x) ? x : value;
}

// ---------------------------------------------------------------------------------------------------------------------
// Derivatives
// ---------------------------------------------------------------------------------------------------------------------

constexpr float kSqrtTwoOverPi = 0.79788456f;
constexpr float kGeluCubic = 0.044715f;
constexpr float kGeluCubicSlope = 0.1070322243f;  // 3 * 0.044715 * sqrt(2 / pi)
constexpr float kQuickGeluSlope = 1.702f;

// All exps come before the first reciprocal, so that their chains of fp64 operations overlap: a reciprocal has a branch for
// values near the ends of fp32, and across it nothing does. The empty asm keeps the compiler from moving an exp down.
template <int n>
__device__ __forceinline__ void sigmoid(const float (&x)[n], float (&s)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    s[i] = exp_rn(-x[i]);
    asm volatile("" : "+f"(s[i]));
  }
#pragma unroll
  for (float& value : s) value = __frcp_rn(__fadd_rn(1.0f, value));
}

// y s (1 - s) + s with s = sigmoid(y): the derivative of x * sigmoid(x) at y = x, and of quick GELU at y = 1.702 x
template <int n>
__device__ __forceinline__ void sigmoid_linear_derivative(float (&y)[n]) {
  float s[n];
  sigmoid(y, s);
#pragma unroll
  for (int i = 0; i < n; ++i) {
    y[i] = __fadd_rn(__fmul_rn(__fmul_rn(y[i], s[i]), __fsub_rn(1.0f, s[i])), s[i]);
  }
}

__device__ __forceinline__ float gelu_derivative(float x) {
  const float cubic = __fadd_rn(1.0f, __fmul_rn(__fmul_rn(kGeluCubic, x), x));
  const float t = tanh_rn(__fmul_rn(__fmul_rn(kSqrtTwoOverPi, x), cubic));
  const float slope = __fadd_rn(kSqrtTwoOverPi, __fmul_rn(__fmul_rn(kGeluCubicSlope, x), x));
  const float bend = __fmul_rn(__fmul_rn(0.5f, x), __fmul_rn(__fsub_rn(1.0f, __fmul_rn(t, t)), slope));
  return __fadd_rn(bend, __fmul_rn(0.5f, __fadd_rn(1.0f, t)));
}

// drelu and dsrelu of a NaN are 0.
template <Activation activation, int n>
__device__ __forceinline__ void derivative(float (&x)[n]) {
  static_assert(activation != Activation::none, "without an activation there is no derivative");
  static_assert(activation < Activation::swiglu, "SwiGLU has two inputs");
  if constexpr (activation == Activation::dsilu) {
    sigmoid_linear_derivative(x);
  } else if constexpr (activation == Activation::dqgelu) {
#pragma unroll
    for (float& value : x) value = __fmul_rn(kQuickGeluSlope, value);
    sigmoid_linear_derivative(x);
  } else {
#pragma unroll
    for (float& value : x) {
      if constexpr (activation == Activation::dgelu) value = gelu_derivative(value);
      if constexpr (activation == Activation::drelu) value = value > 0.0f ? 1.0f : 0.0f;
      if constexpr (activation == Activation::dsrelu) value = value > 0.0f ? __fmul_rn(2.0f, value) : 0.0f;
    }
  }
}

// NUMERICS 8: v in fp32, which dbias sums before it is rounded for quantization. grad: becomes v
template <Activation activation, int n>
__device__ __forceinline__ void activate(float (&grad)[n], float (&act_input)[n]) {
  derivative<activation>(act_input);
#pragma unroll
  for (int i = 0; i < n; ++i) grad[i] = __fmul_rn(grad[i], act_input[i]);
}
