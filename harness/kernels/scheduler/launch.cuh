// Loads, stores, reductions and launch geometry; no numerics.
#pragma once

#include "numerics/nvfp4.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Launch geometry, which the host reads back from the compiled module under the name `<kernel>_launch`
// ---------------------------------------------------------------------------------------------------------------------

enum class Schedule {
  tiles,       // one block for each tile of the extents rounded up to 128; some beyond the last row
  persistent,  // blocks_per_sm blocks on each multiprocessor, but no more than there are tiles of work
  resident,    // one block for each tile, all at once, so that they may wait for each other
  patches,     // one block for each tile if that makes blocks_per_sm for each multiprocessor; if not, for each 128x128
};

struct Launch {
  int tile_rows, tile_cols;  // elements one block takes, in all or (persistent) at a time
  int threads;
  int blocks_per_sm;  // that a multiprocessor holds at once, or (patches) is given at least; 0 if it does not matter
  Schedule schedule;
};

// Top left element of this block's tile under Schedule::tiles: column tiles along x, row tiles along y and, since y
// ends at 65535, z.
struct TileOrigin {
  int row, col;
};

__device__ __forceinline__ TileOrigin tile_origin(int tile_rows, int tile_cols) {
  return {int(blockIdx.z * gridDim.y + blockIdx.y) * tile_rows, int(blockIdx.x) * tile_cols};
}

// Elements before row `row` of a matrix with `stride` columns.
__device__ __forceinline__ i64 row_offset(int row, int stride) { return i64(u64(u32(row)) * u32(stride)); }

// ---------------------------------------------------------------------------------------------------------------------
// Memory
// ---------------------------------------------------------------------------------------------------------------------

// Consecutive words, 16 bytes at a time. source: aligned to 16 bytes
template <int count>
__device__ __forceinline__ void load_words(const void* __restrict__ source, u32 (&word)[count]) {
  const uint4* vectors = reinterpret_cast<const uint4*>(source);
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const uint4 v = __ldg(vectors + i);
    word[4 * i] = v.x;
    word[4 * i + 1] = v.y;
    word[4 * i + 2] = v.z;
    word[4 * i + 3] = v.w;
  }
}

template <typename Dtype>
__device__ __forceinline__ Packed16<Dtype> load16(const Dtype* __restrict__ source) {
  Packed16<Dtype> x;
  load_words(source, x.word);
  return x;
}

template <typename Dtype>
__device__ __forceinline__ void store16(Dtype* target, const Packed16<Dtype>& x) {
  uint4* vectors = reinterpret_cast<uint4*>(target);
#pragma unroll
  for (int i = 0; i < Packed16<Dtype>::kWords / 4; ++i) {
    vectors[i] = make_uint4(x.word[4 * i], x.word[4 * i + 1], x.word[4 * i + 2], x.word[4 * i + 3]);
  }
}

// Sixteen codes of block `block`, 8 bytes.
__device__ __forceinline__ void store_codes(u8* data, i64 block, const Codes16& codes) {
  reinterpret_cast<uint2*>(data)[block] = make_uint2(codes.word[0], codes.word[1]);
}

// ---------------------------------------------------------------------------------------------------------------------
// Reductions
// ---------------------------------------------------------------------------------------------------------------------

// Largest of `values` sets of non-negative floats over a block; thread 0 has the results, as bits. Such floats order
// as their bits do.
template <int threads, int values>
__device__ __forceinline__ void block_max(const float (&value)[values], u32 (&bits)[values]) {
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

// Called by one thread of each of `arrivals` blocks, between fences. True in the one that arrives last, which finds
// what the others wrote. ticket: zero before the first and after the last
__device__ __forceinline__ bool arrives_last(u32* ticket, u32 arrivals) {
  // atomicInc wraps to 0 when the last block arrives.
  return atomicInc(ticket, arrivals - 1) == arrivals - 1;
}

// Maxima over the whole grid. All zero before a launch and after it, so that no launch has to clear it and a graph
// can replay.
struct GridMax {
  u32 bits[2];  // largest values so far
  u32 ticket;   // blocks that have arrived
  u32 unused;
};

// Called by one thread of every block. True in the block that arrives last, which then holds the results.
template <int values>
__device__ __forceinline__ bool grid_max(GridMax* state, u32 (&bits)[values]) {
#pragma unroll
  for (int v = 0; v < values; ++v) atomicMax(&state->bits[v], bits[v]);
  __threadfence();
  if (!arrives_last(&state->ticket, gridDim.x)) return false;
  __threadfence();
#pragma unroll
  for (int v = 0; v < values; ++v) bits[v] = atomicExch(&state->bits[v], 0u);
  return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// The amax of a tensor, by a persistent grid
// ---------------------------------------------------------------------------------------------------------------------

struct TensorAmax {
  static constexpr int kThreads = 256;
  static constexpr int kUnroll = 4;                 // 16-byte reads a thread keeps in flight
  static constexpr int kStep = kThreads * kUnroll;  // 16-byte vectors a block takes at a time
  static constexpr Launch kLaunch = {1, kStep * 8, kThreads, 8, Schedule::persistent};

  // `running`, and the magnitudes of a block's vectors from `first` on that are before `total`
  template <typename Dtype>
  __device__ static u32 step(const uint4* __restrict__ vectors, i64 first, i64 total, u32 running) {
    uint4 v[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const i64 index = first + i * kThreads + threadIdx.x;
      v[i] = index < total ? __ldg(vectors + index) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const u32 word[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
      running = max2(running, absmax<Dtype>(word), Dtype{});
    }
    return running;
  }
};

// Reads the input once. Either result may be null.
template <typename Dtype>
__device__ __forceinline__ void tensor_amax(
    const Dtype* __restrict__ input, int rows, int cols, GridMax* __restrict__ state, float* __restrict__ rowwise_amax,
    float* __restrict__ columnwise_amax) {
  const uint4* vectors = reinterpret_cast<const uint4*>(input);
  const i64 total = i64(rows) * cols * sizeof(Dtype) / sizeof(uint4);
  u32 running = 0;
  for (i64 first = i64(blockIdx.x) * TensorAmax::kStep; first < total; first += i64(gridDim.x) * TensorAmax::kStep) {
    running = TensorAmax::step<Dtype>(vectors, first, total, running);
  }
  u32 bits[1];
  block_max<TensorAmax::kThreads>({amax_of_word<Dtype>(running)}, bits);
  if (threadIdx.x != 0 || !grid_max(state, bits)) return;
  if (rowwise_amax != nullptr) *rowwise_amax = __uint_as_float(bits[0]);
  if (columnwise_amax != nullptr) *columnwise_amax = __uint_as_float(bits[0]);
}
