// Loads, stores, reductions and launch geometry; no numerics.
#pragma once

#include "nvfp4.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Launch geometry, which the host reads back from the compiled module under the name `<kernel>_launch`
// ---------------------------------------------------------------------------------------------------------------------

enum class Schedule {
  tiles,       // one block for each tile of the extents rounded up to 128; some beyond the last row
  persistent,  // blocks_per_sm blocks on each multiprocessor, but no more than there are tiles of work
};

struct Launch {
  int tile_rows, tile_cols;  // elements one block takes, in all or (persistent) at a time
  int threads;
  int blocks_per_sm;
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

// Sixteen consecutive elements, 16 bytes at a time. source: aligned to 16 bytes
template <typename Dtype>
__device__ __forceinline__ Packed16<Dtype> load16(const Dtype* __restrict__ source) {
  Packed16<Dtype> x;
  const uint4* vectors = reinterpret_cast<const uint4*>(source);
#pragma unroll
  for (int i = 0; i < Packed16<Dtype>::kWords / 4; ++i) {
    const uint4 v = __ldg(vectors + i);
    x.word[4 * i] = v.x;
    x.word[4 * i + 1] = v.y;
    x.word[4 * i + 2] = v.z;
    x.word[4 * i + 3] = v.w;
  }
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
  // atomicInc wraps to 0 when the last block arrives.
  if (atomicInc(&state->ticket, gridDim.x - 1) != gridDim.x - 1) return false;
  __threadfence();
#pragma unroll
  for (int v = 0; v < values; ++v) bits[v] = atomicExch(&state->bits[v], 0u);
  return true;
}
