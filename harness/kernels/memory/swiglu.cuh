// SwiGLU in front of a quantizer. A row of its input is a half of gates and, behind it, a half of ups.
//
// Where amaxes are given, a prologue computes the values at each load. Where they are not, the kernel that finds them
// stores the values: to read and compute them twice would move as many bytes, and take two exps for one.
#pragma once

#include "memory/dact_prologue.cuh"
#include "numerics/rht.cuh"
#include "numerics/swiglu.cuh"

// Sixteen neighbours, and as pairs of them
template <typename Dtype>
union Pairs16 {
  Packed16<Dtype> packed;
  typename ColumnPair<Dtype>::Row pair[kBlock / 2];
};

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
    Pairs16<Dtype> gate = {load16<in_order>(gates)}, up = {load16<in_order>(gates + cols)};
    swiglu<Dtype>(gate.pair, up.pair, gate.pair);
    return gate.packed;
  }
};

// Inputs and output of SwiGLU, forward or backward. threads: of a CTA
template <typename Dtype, Activation activation, int threads>
struct SwigluArrays {
  static_assert(activation == Activation::swiglu || activation == Activation::dswiglu, "others have no halves");
  static constexpr int kHalves = activation == Activation::dswiglu ? 2 : 1;  // of a row of `activated`
  static constexpr int kRowsAtOnce =
      sizeof(Dtype) == 4 || __CUDA_ARCH__ > 900 ? 2 : 4;  // in a thread, without spilling
  using Row = typename ColumnPair<Dtype>::Row;

  // Where a unit has both halves, its rows wait here. In registers an SM would have fewer CTAs, and the loop that is
  // unrolled for them does not fit into the instruction cache. fp32 would not fit here.
  static constexpr bool kInSmem = kHalves == 2 && sizeof(Dtype) == 2;
  struct Smem {
    Row rows[kInSmem ? kHalves : 1][kInSmem ? kBlock : 1][kInSmem ? threads : 1];
  };

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
  __device__ __forceinline__ void unit(Smem& shared, u32 number, int rows, OnPair on_pair) const {
    if (number >= units(rows, half * kHalves)) return;
    const int col = int(number % u32(half / 2)) * 2;
    const i64 first = row_offset(int(number / u32(half / 2)) * kBlock, half);
    const Dtype* gates = (activation == Activation::swiglu ? input : act_input) + 2 * first + col;
    const Dtype* grads = input + first + col;
    Dtype* target = activated == nullptr ? nullptr : activated + kHalves * first + col;
    ColumnPair<Dtype> pairs[kHalves];

    // Rows are loaded while those before them are computed.
    Row next_gate[kRowsAtOnce], next_up[kRowsAtOnce], next_grad[kRowsAtOnce];
    const auto load_next = [&] {
      load_rows(gates, 2 * half, next_gate);
      load_rows(gates + half, 2 * half, next_up);
      gates += 2 * kRowsAtOnce * i64(half);
      if constexpr (activation == Activation::dswiglu) {
        load_rows(grads, half, next_grad);
        grads += kRowsAtOnce * i64(half);
      }
    };
    load_next();
#pragma unroll(kInSmem ? 1 : kBlock / kRowsAtOnce)
    for (int step = 0; step < kBlock; step += kRowsAtOnce) {
      Row gate[kRowsAtOnce], up[kRowsAtOnce], grad[kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) gate[i] = next_gate[i], up[i] = next_up[i], grad[i] = next_grad[i];
      if (step + kRowsAtOnce < kBlock) load_next();
      if constexpr (activation == Activation::swiglu)
        swiglu<Dtype>(gate, up, gate);
      else
        swiglu_gradient<Dtype>(grad, gate, up);
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
        for (int part = 0; part < kHalves; ++part) {
          const Row row = part == 0 ? gate[i] : up[i];
          if constexpr (kInSmem)
            shared.rows[part][step + i][threadIdx.x] = row;
          else
            pairs[part].rows[step + i] = row;
          if (target != nullptr) *reinterpret_cast<Row*>(target + i64(part) * half) = row;
        }
        if (target != nullptr) target += kHalves * half;
      }
    }
#pragma unroll(kInSmem ? 1 : kHalves)
    for (int part = 0; part < kHalves; ++part) {
      ColumnPair<Dtype> pair;
#pragma unroll
      for (int row = 0; row < kBlock; ++row) {
        if constexpr (kInSmem)
          pair.rows[row] = shared.rows[part][row][threadIdx.x];
        else
          pair.rows[row] = pairs[part].rows[row];
      }
      on_pair(pair);
    }
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
