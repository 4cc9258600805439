// From sums that lie together in a row of the output to its bytes, in stores as wide as they allow.
#pragma once

#include "gemm/epilogue.cuh"

// Neighbours in a row, in one store or two. target: aligned to all of them, or to 16 bytes
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

// The epilogue of a tile of the output: called with a place in the tile and the sums that begin there. Places outside
// the output are passed over; of neighbours, either all are inside or none.
template <Epilogue epilogue, Granularity b_granularity, typename Dtype>
struct Finish {
  Dtype* output;  // (M, N)
  EpilogueParams<Dtype> params;
  int M;
  TileOrigin origin;

  template <int count>
  __device__ __forceinline__ void operator()(int tile_row, int tile_col, const float (&acc)[count]) const {
    const int row = origin.row + tile_row, col = origin.col + tile_col;
    if (row >= M || col >= params.N) return;
    Dtype value[count];
#pragma unroll
    for (int i = 0; i < count; ++i) value[i] = epilogue_value<epilogue, b_granularity>(acc[i], row, col + i, params);
    store_row(output + row_offset(row, params.N) + col, value);
  }
};
