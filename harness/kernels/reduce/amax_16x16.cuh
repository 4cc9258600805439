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

// The amaxes of 16x16 blocks whose rows are the CTA's warps': a thread's blocks x lie `warps` rows apart in one column
// of blocks, and bands of sixteen rows follow each other. All threads call this; shared memory may be reused after the
// next barrier. amax: of each band, 0 before
template <int warps, typename Dtype, int repeat, int bands>
__device__ __forceinline__ void amax_16x16_of_rows(const Packed16<Dtype> (&x)[repeat], float (&amax)[bands]) {
  __shared__ float partial[bands][warps][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < repeat; ++i) amax[i * bands / repeat] = fmaxf(amax[i * bands / repeat], block_amax(x[i]));
#pragma unroll
  for (int band = 0; band < bands; ++band) partial[band][warp][lane] = amax[band];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < bands * warps; ++i) amax[i / warps] = fmaxf(amax[i / warps], partial[i / warps][i % warps][lane]);
}
