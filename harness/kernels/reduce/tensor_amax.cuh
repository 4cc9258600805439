// The amax of a tensor, by a persistent grid.
#pragma once

#include "numerics/packed16.cuh"
#include "reduce/grid_amax.cuh"
#include "scheduler/dependent_launch.cuh"
#include "scheduler/launch.cuh"

struct TensorAmax {
  static constexpr int kThreads = 256;
  static constexpr int kUnroll = 4;                 // 16-byte loads in flight of a thread
  static constexpr int kStep = kThreads * kUnroll;  // 16-byte vectors a CTA takes at a time; of fp32, a tile is two
  static constexpr Launch kLaunch = {1, kStep * 8, kThreads, 8, Schedule::persistent};

  // Merges a CTA's vectors from `first` on, as far as `total`, into `running`.
  template <typename Dtype>
  __device__ static u32 step(const uint4* __restrict__ vectors, i64 first, i64 total, u32 running) {
    uint4 v[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const i64 index = first + i * kThreads + threadIdx.x;
      v[i] = index < total ? __ldg(vectors + index) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (const uint4& vector : v) {
      const u32 word[4] = {vector.x, vector.y, vector.z, vector.w};
      running = max2(running, absmax<Dtype>(word), Dtype{});
    }
    return running;
  }
};

// Reads the input once. Either result may be null.
template <typename Dtype>
__device__ __forceinline__ void tensor_amax(
    const Dtype* __restrict__ input, int rows, int cols, GridAmax* __restrict__ state, float* __restrict__ rowwise_amax,
    float* __restrict__ columnwise_amax) {
  const uint4* vectors = reinterpret_cast<const uint4*>(input);
  const i64 total = i64(rows) * cols * sizeof(Dtype) / sizeof(uint4);
  u32 running = 0;
  for (i64 first = i64(blockIdx.x) * TensorAmax::kStep; first < total; first += i64(gridDim.x) * TensorAmax::kStep) {
    running = TensorAmax::step<Dtype>(vectors, first, total, running);
  }
  let_next_launch_begin();  // not earlier: its loads would compete with these for memory
  u32 bits[1];
  cta_max<TensorAmax::kThreads>({amax_of_word<Dtype>(running)}, bits);
  if (threadIdx.x != 0 || !grid_amax(state, bits)) return;
  if (rowwise_amax != nullptr) *rowwise_amax = __uint_as_float(bits[0]);
  if (columnwise_amax != nullptr) *columnwise_amax = __uint_as_float(bits[0]);
}
