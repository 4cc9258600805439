// The amax of every tensor of a group, by a persistent grid.
#pragma once

#include "scheduler/group_scheduler.cuh"
#include "scheduler/last_arrival.cuh"

// Scratch: all zero before a launch and after it, so that no launch has to clear it and a graph can replay.
struct GroupAmax {
  u32 bits[2][kMaxTensors];  // largest values so far
  u32 ticket;                // blocks that have arrived
  u32 unused[3];
};

// The maxima that a block knows of, in shared memory
template <int values>
struct CtaGroupAmax {
  u32 bits[values][kMaxTensors];

  // The whole block calls this; a barrier must follow.
  __device__ void clear() {
    for (int i = threadIdx.x; i < values * kMaxTensors; i += blockDim.x) bits[i / kMaxTensors][i % kMaxTensors] = 0;
  }
  // A whole warp calls this with non-negative floats of one tensor, which order as their bits do.
  __device__ void merge(int index, const float (&value)[values]) {
#pragma unroll
    for (int v = 0; v < values; ++v) {
      const u32 largest = __reduce_max_sync(~0u, __float_as_uint(value[v]));
      if (threadIdx.x % 32 == 0) atomicMax(&bits[v][index], largest);
    }
  }
  // The whole block calls this once, at its end. In the block that arrives last, a thread for each tensor calls
  // write(index, its maxima).
  template <typename Write>
  __device__ void finish(GroupAmax* state, int num_tensors, Write write) {
    __shared__ bool last;
    __syncthreads();
    const int index = threadIdx.x;
#pragma unroll
    for (int v = 0; v < values; ++v) {
      if (index < num_tensors && bits[v][index] != 0) atomicMax(&state->bits[v][index], bits[v][index]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = arrives_last(&state->ticket, gridDim.x);
    __syncthreads();
    if (!last || index >= num_tensors) return;
    __threadfence();
    float largest[values];
#pragma unroll
    for (int v = 0; v < values; ++v) largest[v] = __uint_as_float(atomicExch(&state->bits[v][index], 0u));
    write(index, largest);
  }
};
