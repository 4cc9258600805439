// Amaxes of 16x16 blocks.
#pragma once

#include "memory/transpose_tile.cuh"

// Replaces the amaxes of a thread's 1x16 blocks in RowRole by that of their 16x16 block.
template <int blocks>
__device__ __forceinline__ void amax_16x16(float (&amax)[RowRole<blocks>::kLines]) {
#pragma unroll
  for (const float line : amax) amax[0] = fmaxf(amax[0], line);
#pragma unroll
  for (int offset = blocks; offset < 32; offset *= 2) amax[0] = fmaxf(amax[0], __shfl_xor_sync(~0u, amax[0], offset));
#pragma unroll
  for (float& line : amax) line = amax[0];
}
