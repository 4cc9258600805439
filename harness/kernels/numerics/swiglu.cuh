// NUMERICS 8.3: SwiGLU and its gradients, one fp32 rounding per written operation, then rounded to Dtype.
//
// exp takes some twenty fp64 operations. Where Dtype has 16 bits, values are first found from approximate instructions,
// within an error that follows from PTX's bounds. Only where this error leaves open to which neighbour a value rounds,
// of bf16 one in some 2,000, it is computed again as it is written. So no approximate bit reaches an output.
#pragma once

#include "numerics/activations.cuh"
#include "numerics/packed16.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// As written
// ---------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float swiglu_value(float gate, float up, float sigmoid) {
  return __fmul_rn(__fmul_rn(gate, sigmoid), up);
}

// The gradients of gate and up
__device__ __forceinline__ float2 swiglu_gradient_values(float grad, float gate, float up, float sigmoid) {
  const float silu = __fmul_rn(gate, sigmoid);
  const float slope = __fadd_rn(__fmul_rn(silu, __fsub_rn(1.0f, sigmoid)), sigmoid);
  return {__fmul_rn(__fmul_rn(slope, grad), up), __fmul_rn(grad, silu)};
}

// ---------------------------------------------------------------------------------------------------------------------
// Within an error. Errors are relative, in units of 2^-24, half a ulp of a value just above a power of two. The sigmoid of
// x is off by 5 for ex2 (2 ulp), 1.23 |x| for its argument, 3 for rcp (1 ulp) and 1 for the sum. As written it is off by 1
// for each of exp, sum and quotient, and either way by 1 for each operation behind it.
// ---------------------------------------------------------------------------------------------------------------------

constexpr float kErrorUnit = 0x1p-24f;
constexpr float kErrorOfValue = 18.0f * kErrorUnit;  // 15 of the sigmoid and two products
constexpr float kErrorOfSlope = 26.0f * kErrorUnit;  // 23 of the sigmoid, 1 - s, two products and a sum, two products
constexpr float kErrorOfX = 1.25f * kErrorUnit;      // for each 1 of |x|
constexpr float kSubnormalError = 0x1p-148f;         // two roundings of subnormals
constexpr float kSigmoidRange = 80.0f, kGradRange = 0x1p126f;  // beyond, something may overflow or underflow

// 1 / (1 + exp(-x)). x: in +-kSigmoidRange
__device__ __forceinline__ float approximate_sigmoid(float x) {
  float power, sigmoid;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(__fmul_rn(x, float(-kLog2e))));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(__fadd_rn(1.0f, power)));
  return sigmoid;
}

// pack2, with 0 for what is below
__device__ __forceinline__ u32 pack2_relu(float low, float high, bf16) {
  u32 pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ u32 pack2_relu(float low, float high, fp16) {
  u32 pair;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Two neighbours in a word, each of a certain sign and off by its error at most. Sets `open` if a value with such an
// error may round to another word.
template <typename Dtype>
__device__ __forceinline__ u32 pack_within(float2 value, float2 error, bool& open) {
  const float2 m = {fabsf(value.x), fabsf(value.y)};
  const u32 least = pack2_relu(__fsub_rn(m.x, error.x), __fsub_rn(m.y, error.y), Dtype{});
  const u32 most = pack2(__fadd_rn(m.x, error.x), __fadd_rn(m.y, error.y), Dtype{});
  open |= least != most;
  return most | (__byte_perm(__float_as_uint(value.x), __float_as_uint(value.y), 0x7632) & 0x80008000);
}

// The pairs of a thread that are still open, a few of them: a loop over them keeps the code of one, and a warp takes one
// turn where several of its threads have one.
struct OpenPairs {
  u32 mask = 0;

  __device__ void add(int i, bool is_open) { mask |= is_open ? 1u << i : 0; }

  template <typename Mend>
  __device__ __forceinline__ void for_each(Mend mend) {
#pragma unroll 1
    for (; mask != 0; mask &= mask - 1) mend(__ffs(mask) - 1);
  }
};

// Element i, where an index would move the array to memory
template <int n>
__device__ __forceinline__ u32 pair_at(const u32 (&pairs)[n], int i) {
  u32 pair = pairs[0];
#pragma unroll
  for (int k = 1; k < n; ++k) pair = i == k ? pairs[k] : pair;
  return pair;
}
template <int n>
__device__ __forceinline__ void set_pair_at(u32 (&pairs)[n], int i, u32 pair) {
#pragma unroll
  for (int k = 0; k < n; ++k) pairs[k] = i == k ? pair : pairs[k];
}

// silu(gate) * up and its error
__device__ __forceinline__ float2 approximate_swiglu(float gate, float up, bool& open) {
  open |= !(fabsf(gate) <= kSigmoidRange);
  const float value = swiglu_value(gate, up, approximate_sigmoid(gate));
  const float relative = __fmaf_rn(fabsf(gate), kErrorOfX, kErrorOfValue);
  const float subnormal = __fmaf_rn(fabsf(up), kSubnormalError, kSubnormalError);
  return {value, __fmaf_rn(fabsf(value), relative, subnormal)};
}

struct ApproximateGradient {
  float2 gate, up;  // each with its error
};

__device__ __forceinline__ ApproximateGradient approximate_gradient(float grad, float gate, float up, bool& open) {
  open |= !(fabsf(gate) <= kSigmoidRange) || !(fabsf(grad) <= kGradRange);
  const float sigmoid = approximate_sigmoid(gate);
  const float silu = __fmul_rn(gate, sigmoid);
  const float slope = __fmaf_rn(silu, __fsub_rn(1.0f, sigmoid), sigmoid);
  const float slope_error =
      __fmul_rn(__fadd_rn(fabsf(silu), sigmoid), __fmaf_rn(fabsf(gate), kErrorOfX, kErrorOfSlope));
  open |= !(fabsf(slope) > slope_error);  // its sign
  const float factor = __fmul_rn(grad, up);
  const float gate_subnormal = __fmaf_rn(fabsf(up), kSubnormalError, kSubnormalError);
  const float up_gradient = __fmul_rn(grad, silu);
  const float up_relative = __fmaf_rn(fabsf(gate), kErrorOfX, kErrorOfValue);
  const float up_subnormal = __fmaf_rn(fabsf(grad), kSubnormalError, kSubnormalError);
  return {
      {__fmul_rn(slope, factor), __fmaf_rn(fabsf(factor), slope_error, gate_subnormal)},
      {up_gradient, __fmaf_rn(fabsf(up_gradient), up_relative, up_subnormal)}};
}

// ---------------------------------------------------------------------------------------------------------------------
// Pairs of neighbours, each a word of a 16-bit type or two floats
// ---------------------------------------------------------------------------------------------------------------------

template <typename Dtype, typename Pair, int n>
__device__ __forceinline__ void sigmoids(const Pair (&gate)[n], float (&sigmoid_of)[2 * n]) {
  float x[2 * n];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const float2 pair = unpack_pair(gate[i], Dtype{});
    x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
  }
  sigmoid(x, sigmoid_of);
}

// As written. value: may be gate
template <typename Dtype, typename Pair, int n>
__device__ __forceinline__ void swiglu_as_written(const Pair (&gate)[n], const Pair (&up)[n], Pair (&value)[n]) {
  float s[2 * n];
  sigmoids<Dtype>(gate, s);
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const float2 g = unpack_pair(gate[i], Dtype{}), u = unpack_pair(up[i], Dtype{});
    value[i] = pack_pair({swiglu_value(g.x, u.x, s[2 * i]), swiglu_value(g.y, u.y, s[2 * i + 1])}, Dtype{});
  }
}

// As written, in place of gate and up
template <typename Dtype, typename Pair, int n>
__device__ __forceinline__ void gradient_as_written(const Pair (&grad)[n], Pair (&gate)[n], Pair (&up)[n]) {
  float s[2 * n];
  sigmoids<Dtype>(gate, s);
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const float2 d = unpack_pair(grad[i], Dtype{}), g = unpack_pair(gate[i], Dtype{}), u = unpack_pair(up[i], Dtype{});
    const float2 left = swiglu_gradient_values(d.x, g.x, u.x, s[2 * i]);
    const float2 right = swiglu_gradient_values(d.y, g.y, u.y, s[2 * i + 1]);
    gate[i] = pack_pair({left.x, right.x}, Dtype{});
    up[i] = pack_pair({left.y, right.y}, Dtype{});
  }
}

// silu(gate) * up. value: may be gate
template <typename Dtype, typename Pair, int n>
__device__ __forceinline__ void swiglu(const Pair (&gate)[n], const Pair (&up)[n], Pair (&value)[n]) {
  if constexpr (sizeof(Dtype) == 4) {
    swiglu_as_written<Dtype>(gate, up, value);
  } else {
    OpenPairs open;
    u32 found[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float2 g = unpack_pair(gate[i], Dtype{}), u = unpack_pair(up[i], Dtype{});
      bool is_open = false;
      const float2 left = approximate_swiglu(g.x, u.x, is_open), right = approximate_swiglu(g.y, u.y, is_open);
      found[i] = pack_within<Dtype>({left.x, right.x}, {left.y, right.y}, is_open);
      open.add(i, is_open);
    }
    open.for_each([&](int i) {
      const u32 g[] = {pair_at(gate, i)}, u[] = {pair_at(up, i)};
      u32 exact[1];
      swiglu_as_written<Dtype>(g, u, exact);
      set_pair_at(found, i, exact[0]);
    });
#pragma unroll
    for (int i = 0; i < n; ++i) value[i] = found[i];
  }
}

// The gradients of gate and up, in their places. grad: of silu(gate) * up
template <typename Dtype, typename Pair, int n>
__device__ __forceinline__ void swiglu_gradient(const Pair (&grad)[n], Pair (&gate)[n], Pair (&up)[n]) {
  if constexpr (sizeof(Dtype) == 4) {
    gradient_as_written<Dtype>(grad, gate, up);
  } else {
    OpenPairs open;
    u32 found_gate[n], found_up[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float2 d = unpack_pair(grad[i], Dtype{}), g = unpack_pair(gate[i], Dtype{}),
                   u = unpack_pair(up[i], Dtype{});
      bool is_open = false;
      const ApproximateGradient left = approximate_gradient(d.x, g.x, u.x, is_open);
      const ApproximateGradient right = approximate_gradient(d.y, g.y, u.y, is_open);
      found_gate[i] = pack_within<Dtype>({left.gate.x, right.gate.x}, {left.gate.y, right.gate.y}, is_open);
      found_up[i] = pack_within<Dtype>({left.up.x, right.up.x}, {left.up.y, right.up.y}, is_open);
      open.add(i, is_open);
    }
    open.for_each([&](int i) {
      const u32 d[] = {pair_at(grad, i)};
      u32 g[] = {pair_at(gate, i)}, u[] = {pair_at(up, i)};
      gradient_as_written<Dtype>(d, g, u);
      set_pair_at(found_gate, i, g[0]);
      set_pair_at(found_up, i, u[0]);
    });
#pragma unroll
    for (int i = 0; i < n; ++i) gate[i] = found_gate[i], up[i] = found_up[i];
  }
}
