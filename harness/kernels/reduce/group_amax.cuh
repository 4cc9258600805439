// The amax of every tensor of a group, by a persistent grid.
#pragma once

#include "scheduler/arrivals.cuh"
#include "scheduler/group_scheduler.cuh"

// Scratch. All zero before and after a launch, so that none has to clear it and a graph can replay.
struct GroupAmax {
  u32 bits[2][kMaxTensors];  // maxima so far
  u32 ticket;                // CTAs that have arrived
  u32 unused[3];
};

// A CTA's maxima, in shared memory
template <int values>
struct CtaGroupAmax {
  u32 bits[values][kMaxTensors];

  // All threads call this; a barrier must follow.
  __device__ void clear() {
    for (int i = threadIdx.x; i < values * kMaxTensors; i += blockDim.x) bits[i / kMaxTensors][i % kMaxTensors] = 0;
  }
  // Merges non-negative floats of one tensor, whose bits order as they do. A whole warp calls this.
  __device__ void merge(int index, const float (&value)[values]) {
#pragma unroll
    for (int v = 0; v < values; ++v) {
      const u32 largest = __reduce_max_sync(~0u, __float_as_uint(value[v]));
      if (threadIdx.x % 32 == 0) atomicMax(&bits[v][index], largest);
    }
  }
  // All threads call this once, at the end. In the last CTA a thread for each tensor calls write(index, its maxima).
  template <typename Write>
  __device__ void finish(GroupAmax* state, int num_tensors, Write write) {
    __shared__ bool last;
    __syncthreads();
    const int index = threadIdx.x;
#pragma unroll
    for (int v = 0; v < values; ++v) {
      if (index < num_tensors && bits[v][index] != 0) atomicMax(&state->bits[v][index], bits[v][index]);
    }
    __syncthreads();
    if (threadIdx.x == 0) last = arrives_last(&state->ticket, gridDim.x);
    __syncthreads();
    if (!last || index >= num_tensors) return;
    float largest[values];
#pragma unroll
    for (int v = 0; v < values; ++v) largest[v] = __uint_as_float(atomicExch(&state->bits[v][index], 0u));
    write(index, largest);
  }
};
