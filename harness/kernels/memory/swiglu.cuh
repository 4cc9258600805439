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
    swiglu(gate, up);
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
  __device__ static u32 units(int rows, int cols) { return u32(rows) / kBlock * (u32(cols) / kHalves / 2); }

  // Computes a unit, if there is one of this number, stores it, and calls on_pair(a pair of columns) for each half of
  // `activated`.
  template <typename OnPair>
  __device__ __forceinline__ void unit(u32 number, int rows, OnPair on_pair) const {
    using Row = typename ColumnPair<Dtype>::Row;
    if (number >= units(rows, half * kHalves)) return;
    const int col = int(number % u32(half / 2)) * 2;
    i64 at = row_offset(int(number / u32(half / 2)) * kBlock, half);
    ColumnPair<Dtype> pairs[kHalves];
#pragma unroll
    for (int step = 0; step < kBlock; step += kActivatedRows) {
      constexpr int kValues = 2 * kActivatedRows;
      float gate[kValues], up[kValues];
      const Dtype* gates = (activation == Activation::swiglu ? input : act_input) + 2 * at + col;
      load_pairs(gates, 2 * half, gate);
      load_pairs(gates + half, 2 * half, up);
      if constexpr (activation == Activation::swiglu) {
        swiglu(gate, up);
      } else {
        float grad[kValues];
        load_pairs(input + at + col, half, grad);
        swiglu_gradient(grad, gate, up);
      }
#pragma unroll
      for (int i = 0; i < kActivatedRows; ++i, at += half) {
#pragma unroll
        for (int part = 0; part < kHalves; ++part) {
          const float* values = part == 0 ? gate : up;
          const Row row = pack_row<Dtype>({values[2 * i], values[2 * i + 1]});
          pairs[part].rows[step + i] = row;
          if (activated != nullptr) *reinterpret_cast<Row*>(activated + kHalves * at + i64(part) * half + col) = row;
        }
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
