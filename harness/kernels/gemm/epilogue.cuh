// NUMERICS 10.3: epilogues, every step rounded to nearest-even in fp32
//
//   per_tensor       D = cast(fma(beta, C, alpha' * acc) + bias_j),  alpha' = ((alpha * amax_A) * amax_B) * C_AB
//                    D = cast(alpha' * acc + bias_j) if beta is 0
//   row_scaled       D = cast(((C_AB * acc) * a_i) * b_j + bias_j),  then D = cast(D + C) if there is a C
//                    (C_AB * acc) * (a_i * b) if one amax b serves all of B
//   per_token        d = cast(C_AB * acc),  then gemm_post_scale: D = cast((d * a_i) * b_j)
//   per_token_fused  D = cast(C_AB * (b_j * (a_i * acc)) + bias_j),  then D = cast(D + C) if there is a C
//   windows          D = cast(C_AB * acc),  the amaxes being in acc
// C_AB = 1 / (36 * E_A * E_B); a_i, b_j: amaxes of row i of A and row j of B. Of per_tensor an operand may have no amax: it
// is 6 * E then, and alpha' = alpha where neither has one.
#pragma once

#include "memory/scale_layout.cuh"
#include "numerics/nvfp4.cuh"
#include "scheduler/launch.cuh"

enum class Epilogue { per_tensor, row_scaled, per_token, per_token_fused, windows };

// Whether an epilogue without C and bias does nothing before the cast but multiply every accumulator by the same
// factor
__device__ constexpr bool has_one_factor(Epilogue epilogue) {
  return epilogue == Epilogue::per_tensor || epilogue == Epilogue::per_token;
}

// The levels of scales of both operands: the format of their block scales, and whether each has an amax above them
template <ScaleFormat scale_format = ScaleFormat::e4m3, bool a_global_scale = true, bool b_global_scale = true>
struct ScaleLevels {
  static constexpr float kLargest = kE2m1Max * kScaleMax<scale_format>;  // the amax of an operand that has none

  static __device__ __forceinline__ float c_ab(int a_e4m3_max, int b_e4m3_max) {
    return accumulator_scale(scale_max<scale_format>(a_e4m3_max), scale_max<scale_format>(b_e4m3_max));
  }

  // alpha' of per_tensor
  static __device__ __forceinline__ float tensor_factor(
      const float* a_amax, const float* b_amax, float alpha, float c_ab) {
    if constexpr (!a_global_scale && !b_global_scale) return alpha;
    float factor = __fmul_rn(alpha, a_global_scale ? __ldg(a_amax) : kLargest);
    factor = __fmul_rn(factor, b_global_scale ? __ldg(b_amax) : kLargest);
    return __fmul_rn(factor, c_ab);
  }
};

// An epilogue's operands besides the accumulator
template <typename Dtype, typename Levels = ScaleLevels<>>
struct EpilogueParams {
  const float* a_amax;  // (1,) or null for per_tensor, else (M,); not read for windows
  const float* b_amax;  // (1,) or null for per_tensor, (1,) for Granularity::tensor, else (N,)
  const Dtype* c;       // (M, N) or null
  const Dtype* bias;    // (N,) or null
  int N;
  float alpha, beta;  // per_tensor only
  float c_ab;         // accumulator_scale of both largest scales
};

template <typename Dtype, typename Levels>
__device__ __forceinline__ float biased(float out, int col, const EpilogueParams<Dtype, Levels>& p) {
  if (p.bias == nullptr) return out;
  return __fadd_rn(out, to_float(p.bias[col]));
}

template <typename Dtype, typename Levels>
__device__ __forceinline__ Dtype accumulated(float out, int row, int col, const EpilogueParams<Dtype, Levels>& p) {
  if (p.c == nullptr) return rounded<Dtype>(out);
  return rounded<Dtype>(__fadd_rn(to_float(rounded<Dtype>(out)), to_float(p.c[row_offset(row, p.N) + col])));
}

// Element (row, col) of the output. b_granularity: of b_amax, for row_scaled only
template <Epilogue epilogue, Granularity b_granularity, typename Dtype, typename Levels>
__device__ __forceinline__ Dtype apply_epilogue(float acc, int row, int col, const EpilogueParams<Dtype, Levels>& p) {
  if constexpr (epilogue == Epilogue::per_tensor) {
    float out = __fmul_rn(Levels::tensor_factor(p.a_amax, p.b_amax, p.alpha, p.c_ab), acc);
    if (p.beta != 0.0f) out = __fmaf_rn(p.beta, to_float(p.c[row_offset(row, p.N) + col]), out);
    return rounded<Dtype>(biased(out, col, p));
  } else if constexpr (epilogue == Epilogue::row_scaled) {
    float out = __fmul_rn(p.c_ab, acc);
    if constexpr (b_granularity == Granularity::tensor) {
      out = __fmul_rn(out, __fmul_rn(__ldg(p.a_amax + row), __ldg(p.b_amax)));
    } else {
      out = __fmul_rn(__fmul_rn(out, __ldg(p.a_amax + row)), __ldg(p.b_amax + col));
    }
    return accumulated(biased(out, col, p), row, col, p);
  } else if constexpr (epilogue == Epilogue::per_token || epilogue == Epilogue::windows) {
    return rounded<Dtype>(__fmul_rn(p.c_ab, acc));
  } else {
    const float scaled = __fmul_rn(__ldg(p.b_amax + col), __fmul_rn(__ldg(p.a_amax + row), acc));
    return accumulated(biased(__fmul_rn(p.c_ab, scaled), col, p), row, col, p);
  }
}

// per_token's second step, on an element of the output
__device__ __forceinline__ bf16 post_scaled(bf16 value, float a_amax, float b_amax) {
  return rounded<bf16>(__fmul_rn(__fmul_rn(to_float(value), a_amax), b_amax));
}

// ---------------------------------------------------------------------------------------------------------------------
// A tile of the output
// ---------------------------------------------------------------------------------------------------------------------

// Stores neighbours of a row as vectors. target: aligned to all of them, or to 16 bytes
template <typename Dtype, int count>
__device__ __forceinline__ void store_row(Dtype* target, const Dtype (&value)[count]) {
  constexpr int kWords = count * int(sizeof(Dtype)) / 4;
  u32 word[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (sizeof(Dtype) == 4)
      word[i] = __float_as_uint(value[i]);
    else
      word[i] = value[2 * i].bits | u32(value[2 * i + 1].bits) << 16;
  }
  if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(target) = make_uint2(word[0], word[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      reinterpret_cast<uint4*>(target)[i / 4] = make_uint4(word[i], word[i + 1], word[i + 2], word[i + 3]);
  }
}

// Applies the epilogue to sums that start at a place in the tile and stores them, or nothing outside the output.
// Neighbours are all inside, or none.
template <Epilogue epilogue, Granularity b_granularity, typename Dtype, typename Levels = ScaleLevels<>>
struct TileEpilogue {
  Dtype* output;  // (M, N)
  EpilogueParams<Dtype, Levels> params;
  int M;
  TileOrigin origin;

  template <int count>
  __device__ __forceinline__ void operator()(int tile_row, int tile_col, const float (&acc)[count]) const {
    const int row = origin.row + tile_row, col = origin.col + tile_col;
    if (row >= M || col >= params.N) return;
    Dtype value[count];
#pragma unroll
    for (int i = 0; i < count; ++i) value[i] = apply_epilogue<epilogue, b_granularity>(acc[i], row, col + i, params);
    store_row(output + row_offset(row, params.N) + col, value);
  }
};
