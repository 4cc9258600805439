// The amax of every tensor of a group, by a persistent grid.
#pragma once

#include "reduce/rht_amax.cuh"
#include "reduce/tensor_amax.cuh"
#include "scheduler/arrivals.cuh"
#include "scheduler/group_scheduler.cuh"

// The amaxes that an encode of per_tensor is given: one of each tensor, one for all of them, or rowwise ones alone, by
// which the columnwise output is encoded, too.
enum class GivenAmax { each, shared, rowwise };

template <GivenAmax amax>
__device__ __forceinline__ float given_amax(const float* __restrict__ amaxes, int index) {
  return __ldg(amaxes + (amax == GivenAmax::shared ? 0 : index));
}

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

// Writes each tensor's amax; either output may be null. All threads of a grid of TensorAmax::kThreads call this.
template <typename Dtype>
__device__ __forceinline__ void group_amax(
    const Dtype* __restrict__ input, const GroupExtents& extents, float* __restrict__ rowwise_amax,
    float* __restrict__ columnwise_amax, GroupAmax* __restrict__ amax_state) {
  constexpr int kPerVector = 16 / int(sizeof(Dtype)), kPerItem = TensorAmax::kStep * kPerVector;  // elements
  __shared__ Group group;
  __shared__ CtaGroupAmax<1> maxima;
  maxima.clear();
  read_group<Offsets::none>(
      group, extents, [](int rows, int cols) { return u32((i64(rows) * cols + kPerItem - 1) / kPerItem); });
  u32 running = 0;
  int current = 0;
  for_each_work_item(group, [&](int index, const GroupTensor& tensor, u32 item) {
    if (index != current) {
      maxima.merge(current, {amax_of_word<Dtype>(running)});
      current = index;
      running = 0;
    }
    const uint4* vectors = reinterpret_cast<const uint4*>(input + tensor.element);
    const i64 total = i64(tensor.rows) * tensor.cols / kPerVector;
    running = TensorAmax::step<Dtype>(vectors, i64(item) * TensorAmax::kStep, total, running);
  });
  maxima.merge(current, {amax_of_word<Dtype>(running)});
  maxima.finish(amax_state, extents.num_tensors, [&](int index, const float (&amax)[1]) {
    if (rowwise_amax != nullptr) rowwise_amax[index] = amax[0];
    if (columnwise_amax != nullptr) columnwise_amax[index] = amax[0];
  });
}

// Writes each tensor's amax, rowwise as it is, unless that is null, and columnwise rotated.
template <int threads, int sign_mask, typename Dtype>
__device__ __forceinline__ void group_amax_rht(
    const Dtype* __restrict__ input, const GroupExtents& extents, float* __restrict__ rowwise_amax,
    float* __restrict__ columnwise_amax, GroupAmax* __restrict__ amax_state) {
  static_assert(sizeof(Dtype) == 2, "rht is defined on bf16");
  constexpr int kPerItem = threads * kBlock * RhtAmax::kCols;  // elements
  __shared__ Group group;
  __shared__ CtaGroupAmax<2> maxima;
  maxima.clear();
  read_group<Offsets::none>(
      group, extents, [](int rows, int cols) { return u32((i64(rows) * cols + kPerItem - 1) / kPerItem); });
  RhtAmax running;
  int current = 0;
  for_each_work_item(group, [&](int index, const GroupTensor& tensor, u32 item) {
    if (index != current) {
      maxima.merge(current, {amax_of_word<bf16>(running.input), amax_of_word<bf16>(running.rotated)});
      current = index;
      running = {};
    }
    const u32 unit = item * threads + threadIdx.x;
    if (unit >= RhtAmax::units(tensor.rows, tensor.cols)) return;
    running.add<sign_mask>(input + tensor.element, tensor.cols, unit);
  });
  maxima.merge(current, {amax_of_word<bf16>(running.input), amax_of_word<bf16>(running.rotated)});
  maxima.finish(amax_state, extents.num_tensors, [&](int index, const float (&amax)[2]) {
    if (rowwise_amax != nullptr) rowwise_amax[index] = amax[0];
    columnwise_amax[index] = amax[1];
  });
}
