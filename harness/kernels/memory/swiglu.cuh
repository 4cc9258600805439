// SwiGLU in front of a quantizer. A row of its input is a half of gates and, behind it, a half of ups.
//
// Where amaxes are given, a prologue computes the values at each load. Where they are not, the kernel that finds them
// stores the values: to read and compute them twice would move as many bytes, and take two exps for one.
#pragma once

#include "memory/dact_prologue.cuh"
#include "numerics/rht.cuh"

// silu(gate) * up, rounded to Dtype. in_order: see load_words_in_order
template <typename Dtype, bool in_order = false>
struct SwigluPrologue {
  const Dtype* __restrict__ input;      // (rows, 2 * cols) gates and ups
  const Dtype* __restrict__ act_input;  // none, as it stands beside the gradients that DactPrologue reads

  // A block of a line; zeros outside the matrix
  __device__ Packed16<Dtype> block(const ScaleExtents& extents, int line, int block) const {
    const BlockPlace place(extents, line, block);
    if (!place.inside) return {};
    const i64 cols = i64(extents.blocks) * kBlock;
    const Dtype* gates = input + place.element + line * cols;  // a row is twice as long
    float gate[kBlock], up[kBlock];
    unpack(load16<in_order>(gates), gate);
    unpack(load16<in_order>(gates + cols), up);
#pragma unroll
    for (int i = 0; i < kBlock; ++i) gate[i] = swiglu(gate[i], up[i]);
    return pack<Dtype>(gate);
  }
};

// Inputs and output of SwiGLU, forward or backward
template <typename Dtype, Activation activation>
struct SwigluArrays {
  static_assert(activation == Activation::swiglu || activation == Activation::dswiglu, "others have no halves");
  static constexpr int kHalves = activation == Activation::dswiglu ? 2 : 1;  // of a row of `activated`

  const Dtype* __restrict__ input;      // (rows, 2 * half) gates and ups; dswiglu: (rows, half) gradients
  const Dtype* __restrict__ act_input;  // dswiglu: (rows, 2 * half) gates and ups
  Dtype* __restrict__ activated;        // (rows, cols); null if only amaxes are asked for
  int half;                             // columns of a half

  // element: the first of `activated`, of a tensor in a group
  __device__ SwigluArrays(const Dtype* input, const Dtype* act_input, Dtype* activated, int cols, i64 element = 0)
      : input(input + (activation == Activation::swiglu ? 2 * element : element / 2)),
        act_input(act_input + element),
        activated(activated == nullptr ? nullptr : activated + element),
        half(cols / kHalves) {}

  // A unit is sixteen rows of a pair of columns of a half. cols: of `activated`
  __device__ static i64 units(int rows, int cols) { return i64(rows / kBlock) * (cols / kHalves / 2); }

  // Computes a unit, if there is one of this number, stores it, and calls on_pair(a pair of columns) for each half of
  // `activated`.
  template <typename OnPair>
  __device__ __forceinline__ void unit(i64 number, int rows, OnPair on_pair) const {
    using Row = typename ColumnPair<Dtype>::Row;
    if (number >= units(rows, half * kHalves)) return;
    const int col = int(number % u32(half / 2)) * 2;
    i64 at = row_offset(int(number / u32(half / 2)) * kBlock, half);
    ColumnPair<Dtype> pairs[kHalves];
#pragma unroll
    for (int i = 0; i < kBlock; ++i, at += half) {
      if constexpr (activation == Activation::swiglu) {
        const Dtype* gates = input + 2 * at + col;
        const float2 x = load_pair(gates), u = load_pair(gates + half);
        pairs[0].rows[i] = pack_row<Dtype>({swiglu(x.x, u.x), swiglu(x.y, u.y)});
      } else {
        const Dtype* gates = act_input + 2 * at + col;
        const float2 g = load_pair(input + at + col), x = load_pair(gates), u = load_pair(gates + half);
        const SwigluGradient left = swiglu_gradient(g.x, x.x, u.x), right = swiglu_gradient(g.y, x.y, u.y);
        pairs[0].rows[i] = pack_row<Dtype>({left.gate, right.gate});
        pairs[1].rows[i] = pack_row<Dtype>({left.up, right.up});
      }
#pragma unroll
      for (int part = 0; activated != nullptr && part < kHalves; ++part) {
        *reinterpret_cast<Row*>(activated + kHalves * at + i64(part) * half + col) = pairs[part].rows[i];
      }
    }
#pragma unroll
    for (const ColumnPair<Dtype>& pair : pairs) on_pair(pair);
  }
};

// The prologue of an encode in a group, and the elements of its input for one that is encoded
template <typename Dtype, Activation activation>
struct GroupPrologue {
  using Type = DactPrologue<Dtype, activation>;
  static constexpr int kInputs = 1;
};
template <typename Dtype>
struct GroupPrologue<Dtype, Activation::swiglu> {
  using Type = SwigluPrologue<Dtype>;
  static constexpr int kInputs = 2;
};

// Merges the amax of a pair of columns into amax[0], and that of its rotation into amax[1].
template <bool rht, int sign_mask, typename Dtype, int values>
__device__ __forceinline__ void add_amaxes(const ColumnPair<Dtype>& pair, float (&amax)[values]) {
#pragma unroll
  for (int column = 0; column < 2; ++column) {
    amax[0] = fmaxf(amax[0], pair.amax(column));
    if constexpr (rht) {
      float x[kBlock];
      pair.unpack(column, x);
      amax[1] = fmaxf(amax[1], block_amax(rht16_bf16<sign_mask>(x)));
    }
  }
}
