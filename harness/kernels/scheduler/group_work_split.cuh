// How a group of tensors is split among CTAs, in equal runs of row chunks.
#pragma once

#include "scheduler/group_scheduler.cuh"

// A tensor is cut into strips of columns, and the row chunks of a strip go to a team of CTAs in equal parts. An empty
// tensor is one part, which writes its amaxes of 0.
template <typename Strip>
struct WorkSplit {
  int chunks_per_cta;

  __device__ explicit WorkSplit(int chunks_per_cta) : chunks_per_cta(chunks_per_cta) {}
  // Each lane of the first warp, which has read the tensors, tries a size, from 1/16 to twice a CTA's fair part, and
  // the warp takes the one with which the grid is done first. The end of a part costs as much as half a chunk.
  __device__ WorkSplit(const TensorPair& two, const GroupExtents& extents) : chunks_per_cta(1) {
    const u32 lane = threadIdx.x;
    const u32 chunks = u32(u64(__ldg(extents.tensor_offsets + extents.num_tensors)) / (Strip::kRows * Strip::kCols));
    if (chunks <= gridDim.x) return;
    chunks_per_cta = max(1, int(chunks * (lane + 1) / (16 * gridDim.x)));
    float rows[2];  // chunks of them
    u32 strips[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows[i] = two.cols[i] == 0 ? 0.0f : float(two.rows[i] / Strip::kRows);
      strips[i] = two.holds(i, extents) ? strips_of(two.cols[i]) : 0;
    }
    const float size = float(chunks_per_cta), inverse = __frcp_rn(size);
    u32 parts = 0;
    for (int pair = 0; 2 * pair < extents.num_tensors; ++pair) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // As team_of has it, without a division for each tensor
        const u32 team = max(1, int(__fmul_rn(__shfl_sync(~0u, rows[i], pair) + (size - 0.5f), inverse)));
        parts += __shfl_sync(~0u, strips[i], pair) * team;
      }
    }
    const u32 longest = min(chunks_per_cta, int(__reduce_max_sync(~0u, u32(fmaxf(rows[0], rows[1])))));
    const u32 cost = (parts + gridDim.x - 1) / gridDim.x * (2 * longest + 1);
    const u32 best = __reduce_min_sync(~0u, min(cost, ~0u >> 5) << 5 | lane) % 32;
    chunks_per_cta = __shfl_sync(~0u, chunks_per_cta, best);
  }
  __device__ static int strips_of(int cols) { return max(1, (cols + Strip::kCols - 1) / Strip::kCols); }
  __device__ int team_of(int rows, int cols) const {
    return cols == 0 ? 1 : max(1, (rows / Strip::kRows + chunks_per_cta - 1) / chunks_per_cta);
  }
};
