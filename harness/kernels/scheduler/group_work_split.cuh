// per_token's amaxes of a group: how its tensors are shared out among blocks, and where their lines are merged.
#pragma once

#include "reduce/row_col_amax.cuh"
#include "scheduler/group_scheduler.cuh"

// A tensor is cut into strips of columns, and a strip's chunks of rows go to a team of shares with equal work. An empty
// tensor is one share: its amaxes, if it has any, are 0.
template <bool rht>
struct Shares {
  using Strip = AmaxStrip<rht>;
  int chunks_per_share;

  // Every lane of a warp calls this. The lanes try sizes from 1/16 to twice the work of a block, and the one with which
  // the grid is done first is taken; the end of a share costs as much as half a chunk.
  __device__ Shares(
      const i64* __restrict__ first_dims, const i64* __restrict__ last_dims, const i64* __restrict__ tensor_offsets,
      int num_tensors)
      : chunks_per_share(1) {
    const u32 lane = threadIdx.x % 32;
    const u64 chunks = u64(__ldg(tensor_offsets + num_tensors)) / (Strip::kRows * Strip::kCols);
    if (chunks <= gridDim.x) return;
    chunks_per_share = max(1, int(chunks * (lane + 1) / 16 / gridDim.x));
    u32 shares = 0, longest = 0;
    for (int i = 0; i < num_tensors; ++i) {
      const int cols = int(__ldg(last_dims + i));
      const u32 rows = u32(__ldg(first_dims + i)) / Strip::kRows, team = team_of(int(__ldg(first_dims + i)), cols);
      shares += strips_of(cols) * team;
      longest = max(longest, (rows + team - 1) / team);
    }
    const u32 cost = (shares + gridDim.x - 1) / gridDim.x * (2 * longest + 1);
    const u32 best = __reduce_min_sync(~0u, min(cost, ~0u >> 5) << 5 | lane) % 32;
    chunks_per_share = __shfl_sync(~0u, chunks_per_share, best);
  }
  __device__ static int strips_of(int cols) { return max(1, (cols + Strip::kCols - 1) / Strip::kCols); }
  __device__ int team_of(int rows, int cols) const {
    return cols == 0 ? 1 : max(1, (rows / Strip::kRows + chunks_per_share - 1) / chunks_per_share);
  }
};

// The states of a tensor's lines start at its part of the input: with lines of at least 128 elements, neither maxima
// nor tickets reach those of the next tensor.
struct GroupLines {
  u32* state;
  i64 elements;            // of all tensors
  int elements_of_ticket;  // at least so many of a tensor

  __device__ LineMerge merge(float* amax, const Member& tensor, int ticket, int arrivals) const {
    u32* tickets = state + elements / 128 + tensor.element / elements_of_ticket;
    return {amax, state + tensor.element / 128, tickets + ticket, u32(arrivals)};
  }
};

// Rows are merged 8 or more at a time, columns 128 or more.
__device__ __forceinline__ GroupLines group_rows(u32* state, i64 elements) { return {state, elements, 8 * 128}; }
__device__ __forceinline__ GroupLines group_cols(u32* state, i64 elements) { return {state, elements, 128 * 128}; }

// The amaxes of all tensors, by a persistent grid. The whole block calls this once.
template <Outputs outputs, bool rht, int sign_mask>
__device__ __forceinline__ void amax_by_shares(
    const bf16* __restrict__ input, const i64* __restrict__ first_dims, const i64* __restrict__ last_dims,
    const i64* __restrict__ tensor_offsets, float* __restrict__ rowwise_amax, float* __restrict__ columnwise_amax,
    u32* __restrict__ rowwise_state, u32* __restrict__ columnwise_state, int num_tensors) {
  using Strip = AmaxStrip<rht>;
  __shared__ Group group;
  __shared__ Strip shared;
  const Shares<rht> shares(first_dims, last_dims, tensor_offsets, num_tensors);
  read_group(group, first_dims, last_dims, tensor_offsets, num_tensors, [&](int rows, int cols) {
    return u32(shares.strips_of(cols) * shares.team_of(rows, cols));
  });
  for_each_item(group, [&](int, const Member& tensor, u32 item) {
    const i64 elements = __ldg(tensor_offsets + num_tensors);
    const int strips = shares.strips_of(tensor.cols), team = shares.team_of(tensor.rows, tensor.cols);
    const int strip = int(item) % strips, number = int(item) / strips;
    __syncthreads();
    per_token_amax_share<outputs, rht, sign_mask>(
        shared, input + tensor.element, tensor.rows, tensor.cols,
        {number, team, tensor.rows / Strip::kRows, strip * Strip::kCols},
        group_rows(rowwise_state, elements).merge(rowwise_amax + tensor.row, tensor, number, strips),
        group_cols(columnwise_state, elements).merge(columnwise_amax + tensor.col, tensor, strip, team));
  });
}
