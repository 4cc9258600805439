// Scales that two neighbouring lanes need both of, each computed by one of them.
#pragma once

#include "numerics/nvfp4.cuh"

// Both roles hold two lines of the output, and their lines' other holders are neighbours in even and odd number: even
// lanes know a value of the first line, odd lanes of the second, and afterwards all know both.
__device__ __forceinline__ void exchange_pair(float own, float (&pair)[2]) {
  const bool odd = threadIdx.x % 2 != 0;
  const float other = __shfl_xor_sync(~0u, own, 1);
  pair[0] = odd ? other : own;
  pair[1] = odd ? own : other;
}

// The scales of those two lines, of which a thread thus divides for one. S_dec is shared where the multiplier takes it.
template <Multiplier multiplier>
struct ScalePair {
  GlobalScale scale[2];

  // own: of the first line for even lanes, of the second for odd ones
  __device__ explicit ScalePair(const GlobalScale& own) {
    float encode[2], decode[2] = {};
    exchange_pair(own.encode, encode);
    if constexpr (multiplier == Multiplier::reciprocal) exchange_pair(own.decode, decode);
    scale[0] = {encode[0], decode[0]};
    scale[1] = {encode[1], decode[1]};
  }
};
