// Prologue of a quantizer that multiplies its input by an activation's derivative. The products are recomputed at every
// load and never stored.
#pragma once

#include "memory/block_io.cuh"
#include "memory/transpose_tile.cuh"
#include "numerics/activations.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Pairs of columns
// ---------------------------------------------------------------------------------------------------------------------

// Rows of a pair of columns whose activation is computed at once; with more, registers leave an SM fewer CTAs
constexpr int kActivatedRows = 2;

// Loads two neighbours of each of n rows. source: aligned to both; stride: elements from a row to the next
template <typename Dtype, typename Pair, int n>
__device__ __forceinline__ void load_rows(const Dtype* __restrict__ source, i64 stride, Pair (&rows)[n]) {
#pragma unroll
  for (Pair& row : rows) {
    row = __ldg(reinterpret_cast<const Pair*>(source));
    source += stride;
  }
}

// The same, in fp32
template <typename Dtype, int values>
__device__ __forceinline__ void load_pairs(const Dtype* __restrict__ source, i64 stride, float (&pairs)[values]) {
  typename ColumnPair<Dtype>::Row rows[values / 2];
  load_rows(source, stride, rows);
#pragma unroll
  for (int i = 0; i < values / 2; ++i) {
    const float2 pair = unpack_pair(rows[i], Dtype{});
    pairs[2 * i] = pair.x, pairs[2 * i + 1] = pair.y;
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
      activate<activation>(v, x);
      return pack<Dtype>(v);
    }
  }

  // A block of a line; zeros outside the matrix
  __device__ Packed16<Dtype> block(const ScaleExtents& extents, int line, int block) const {
    const BlockPlace place(extents, line, block);
    if (!place.inside) return {};
    return this->block(place.element);
  }

  // Two neighbouring columns of values / 2 rows, in fp32
  template <int values>
  __device__ void pairs(i64 first, int cols, float (&v)[values]) const {
    load_pairs(input + first, cols, v);
    if constexpr (activation != Activation::none) {
      float x[values];
      load_pairs(act_input + first, cols, x);
      activate<activation>(v, x);
    }
  }
};
