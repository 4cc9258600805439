// Prologue of a quantizer that multiplies its input by an activation's derivative. The products are recomputed at every
// load and never stored.
#pragma once

#include "memory/block_io.cuh"
#include "memory/transpose_tile.cuh"
#include "numerics/activations.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Pairs of columns
// ---------------------------------------------------------------------------------------------------------------------

// Rounds two neighbours to nearest-even, packed as in a ColumnPair.
template <typename Dtype>
__device__ __forceinline__ typename ColumnPair<Dtype>::Row pack_row(float2 value) {
  if constexpr (sizeof(Dtype) == 4)
    return value;
  else
    return pack2(value.x, value.y, Dtype{});
}

// Loads two neighbours. source: aligned to both
template <typename Dtype>
__device__ __forceinline__ float2 load_pair(const Dtype* __restrict__ source) {
  if constexpr (sizeof(Dtype) == 4) {
    return __ldg(reinterpret_cast<const float2*>(source));
  } else {
    const u32 word = __ldg(reinterpret_cast<const u32*>(source));
    return {low_to_float(word, Dtype{}), high_to_float(word, Dtype{})};
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Prologue
// ---------------------------------------------------------------------------------------------------------------------

// act_input: null without an activation. in_order: see load_words_in_order
template <typename Dtype, Activation activation, bool in_order = false>
struct DactPrologue {
  const Dtype* __restrict__ input;      // (rows, cols)
  const Dtype* __restrict__ act_input;  // (rows, cols)

  // Sixteen elements from `first` on, rounded to their type
  __device__ Packed16<Dtype> block(i64 first) const {
    const Packed16<Dtype> grad = load16<in_order>(input + first);
    if constexpr (activation == Activation::none) {
      return grad;
    } else {
      float v[kBlock], x[kBlock];
      unpack(grad, v);
      unpack(load16<in_order>(act_input + first), x);
#pragma unroll
      for (int i = 0; i < kBlock; ++i) v[i] = activated<activation>(v[i], x[i]);
      return pack<Dtype>(v);
    }
  }

  // A block of a line; zeros outside the matrix
  __device__ Packed16<Dtype> block(const ScaleExtents& extents, int line, int block) const {
    const BlockPlace place(extents, line, block);
    if (!place.inside) return {};
    return this->block(place.element);
  }

  // Two neighbouring columns, in fp32
  __device__ float2 pair(i64 first) const {
    const float2 grad = load_pair(input + first);
    if constexpr (activation == Activation::none) {
      return grad;
    } else {
      const float2 x = load_pair(act_input + first);
      return {activated<activation>(grad.x, x.x), activated<activation>(grad.y, x.y)};
    }
  }
};
