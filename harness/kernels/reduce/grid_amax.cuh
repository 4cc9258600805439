// Maxima over a CTA, and over the grid.
#pragma once

#include "scheduler/arrivals.cuh"

// Maxima over a CTA of `values` sets of non-negative floats, whose bits order as they do. Thread 0 has the results, as
// bits.
template <int threads, int values>
__device__ __forceinline__ void cta_max(const float (&value)[values], u32 (&bits)[values]) {
  __shared__ u32 warp_max[values][threads / 32];
#pragma unroll
  for (int v = 0; v < values; ++v) {
    bits[v] = __float_as_uint(value[v]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) bits[v] = max(bits[v], __shfl_xor_sync(~0u, bits[v], offset));
    if (threadIdx.x % 32 == 0) warp_max[v][threadIdx.x / 32] = bits[v];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int v = 0; v < values; ++v) {
#pragma unroll
    for (int warp = 1; warp < threads / 32; ++warp) bits[v] = max(bits[v], warp_max[v][warp]);
  }
}

// Scratch of grid_amax. All zero before and after a launch, so that none has to clear it and a graph can replay.
struct GridAmax {
  u32 bits[2];  // maxima so far
  u32 ticket;   // CTAs that have arrived
  u32 unused;
};

// One thread of every CTA calls this. True in the last CTA, which then has the results in `bits`.
template <int values>
__device__ __forceinline__ bool grid_amax(GridAmax* state, u32 (&bits)[values]) {
#pragma unroll
  for (int v = 0; v < values; ++v) atomicMax(&state->bits[v], bits[v]);
  if (!arrives_last(&state->ticket, gridDim.x)) return false;
#pragma unroll
  for (int v = 0; v < values; ++v) bits[v] = atomicExch(&state->bits[v], 0u);
  return true;
}
