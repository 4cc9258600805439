// Grid-wide waiting for resident tiles: a row or column of tiles merges its amaxes while each tile holds its elements
// in registers, so nothing is read twice.
#pragma once

#include "scheduler/arrivals.cuh"

// Scratch of the 128 lines that a row or a column of tiles shares. All zero before and after a launch, so that none has
// to clear it and a graph can replay.
struct TileSync {
  static constexpr int kLines = 128;
  u32 maxima[kLines];  // bits of non-negative floats, which order as floats do
  u32 arrived, left;   // tiles that have arrived, and that have left
  u32 unused[2];

  // Adds the maxima of four lines, parts of which eight neighbouring lanes hold. line(i): the i-th line's number
  template <typename Line>
  __device__ void add_four(const float (&value)[4], Line line) {
    const int lane = threadIdx.x % 8;
    u32 own = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u32 bits = __float_as_uint(value[i]);
#pragma unroll
      for (int offset = 4; offset > 0; offset /= 2) bits = max(bits, __shfl_xor_sync(~0u, bits, offset));
      if (lane == i) own = bits;
    }
    if (lane < 4) atomicMax(maxima + line(lane), own);
  }

  // The maximum of a line, once all tiles have arrived; read from the L2, where the atomics act.
  __device__ float maximum(int line) const { return __uint_as_float(__ldcg(maxima + line)); }

  // A warp of every tile calls this when the tile has read its maxima; the last one clears the scratch.
  __device__ void leave(u32 tiles) {
    const int lane = threadIdx.x % 32;
    const bool last = lane == 0 && arrives_last(&left, tiles);
    __syncwarp();  // a vote orders no memory
    if (!__any_sync(~0u, last)) return;
#pragma unroll
    for (int i = 0; i < kLines; i += 32) maxima[i + lane] = 0;
    if (lane == 0) arrived = 0;
  }
};

// Waits until all tiles of a row and of a column have added their maxima. All threads call this; either may be null.
__device__ __forceinline__ void wait_for_tiles(TileSync* by_row, u32 across, TileSync* by_col, u32 down) {
  __syncthreads();
  // In two warps, which wait side by side
  if (by_row != nullptr && threadIdx.x == 0) arrive_and_wait(&by_row->arrived, across);
  if (by_col != nullptr && threadIdx.x == 32) arrive_and_wait(&by_col->arrived, down);
  __syncthreads();
}
