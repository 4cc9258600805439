// How a group of tensors is split among CTAs, in equal runs of row chunks.
#pragma once

#include "scheduler/group_scheduler.cuh"

// A tensor is cut into strips of columns, and the row chunks of a strip go to a team of CTAs in equal parts. An empty
// tensor is one part, which writes its amaxes of 0.
template <typename Strip>
struct WorkSplit {
  int chunks_per_cta;

  // Each lane of a warp tries a size, from 1/16 to twice a CTA's fair part, and the warp takes the one with which the
  // grid is done first. The end of a part costs as much as half a chunk.
  __device__ explicit WorkSplit(const GroupExtents& extents) : chunks_per_cta(1) {
    const u32 lane = threadIdx.x % 32;
    const u64 chunks = u64(__ldg(extents.tensor_offsets + extents.num_tensors)) / (Strip::kRows * Strip::kCols);
    if (chunks <= gridDim.x) return;
    chunks_per_cta = max(1, int(chunks * (lane + 1) / 16 / gridDim.x));
    u32 parts = 0, longest = 0;
    for (int i = 0; i < extents.num_tensors; ++i) {
      const int cols = int(__ldg(extents.last_dims + i));
      const u32 rows = u32(__ldg(extents.first_dims + i)) / Strip::kRows;
      const u32 team = team_of(int(__ldg(extents.first_dims + i)), cols);
      parts += strips_of(cols) * team;
      longest = max(longest, (rows + team - 1) / team);
    }
    const u32 cost = (parts + gridDim.x - 1) / gridDim.x * (2 * longest + 1);
    const u32 best = __reduce_min_sync(~0u, min(cost, ~0u >> 5) << 5 | lane) % 32;
    chunks_per_cta = __shfl_sync(~0u, chunks_per_cta, best);
  }
  __device__ static int strips_of(int cols) { return max(1, (cols + Strip::kCols - 1) / Strip::kCols); }
  __device__ int team_of(int rows, int cols) const {
    return cols == 0 ? 1 : max(1, (rows / Strip::kRows + chunks_per_cta - 1) / chunks_per_cta);
  }
};
