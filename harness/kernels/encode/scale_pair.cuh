// Two neighbouring lanes hold parts of the same two lines: each computes the scale of one and gets the other's.
#pragma once

#include "numerics/nvfp4.cuh"

// own: a value of the first line in even lanes, of the second in odd ones. pair: both
__device__ __forceinline__ void exchange_pair(float own, float (&pair)[2]) {
  const bool odd = threadIdx.x % 2 != 0;
  const float other = __shfl_xor_sync(~0u, own, 1);
  pair[0] = odd ? other : own;
  pair[1] = odd ? own : other;
}

// The scales of both lines for one division in each lane. S_dec is exchanged only if the multiplier uses it.
template <Multiplier multiplier>
struct ScalePair {
  GlobalScale scale[2];

  // own: of the first line in even lanes, of the second in odd ones
  __device__ explicit ScalePair(const GlobalScale& own) {
    float encode[2], decode[2] = {};
    exchange_pair(own.encode, encode);
    if constexpr (multiplier == Multiplier::reciprocal) exchange_pair(own.decode, decode);
    scale[0] = {encode[0], decode[0]};
    scale[1] = {encode[1], decode[1]};
  }
};
