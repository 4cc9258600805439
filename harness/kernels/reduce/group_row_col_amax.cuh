// Amaxes of all rows and columns of a group, for per_token.
#pragma once

#include "reduce/row_col_amax.cuh"
#include "scheduler/group_work_split.cuh"

// A tensor's scratch starts in proportion to its place in the input. A line has at least this many elements, so maxima
// and tickets of tensors do not overlap. An empty tensor has none. edges: whether extents need not be multiples of 128
template <bool edges>
constexpr int kShortestLine = edges ? 16 : 128;

template <bool edges>
struct GroupLines {
  u32* state;
  i64 elements;            // elements of all tensors
  int elements_of_ticket;  // a tensor has at least this many elements per ticket

  __device__ LineAmax merge(float* amax, const GroupTensor& tensor, int ticket, int arrivals) const {
    u32* tickets = state + elements / kShortestLine<edges> + tensor.element / elements_of_ticket;
    return {amax, state + tensor.element / kShortestLine<edges>, tickets + ticket, u32(arrivals)};
  }
};

// A ticket serves at least 8 rows, or at least kShortestLine columns; a line has at least kShortestLine elements.
template <bool edges>
__device__ __forceinline__ GroupLines<edges> group_rows(u32* state, i64 elements) {
  return {state, elements, 8 * kShortestLine<edges>};
}
template <bool edges>
__device__ __forceinline__ GroupLines<edges> group_cols(u32* state, i64 elements) {
  return {state, elements, kShortestLine<edges> * kShortestLine<edges>};
}

// Run by a persistent grid. All threads call this once.
template <Outputs outputs, bool rht, int sign_mask, bool edges>
__device__ __forceinline__ void group_row_col_amax(
    const bf16* __restrict__ input, const GroupExtents& extents, const AmaxOutput& rowwise,
    const AmaxOutput& columnwise) {
  using Strip = RowColStrip<rht>;
  __shared__ Group group;
  __shared__ Strip shared;
  __shared__ int chunks_per_cta;
  if (threadIdx.x < 32) {
    TensorPair two(extents, [](int, int) { return 0u; });
    const WorkSplit<Strip> split(two, extents);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!two.holds(i, extents)) continue;
      two.items[i] = split.strips_of(two.cols[i]) * split.team_of(two.rows[i], two.cols[i]);
    }
    fill_group<Offsets::lines>(group, two);
    if (threadIdx.x == 0) chunks_per_cta = split.chunks_per_cta;
  }
  __syncthreads();
  const WorkSplit<Strip> split(chunks_per_cta);
  for_each_work_item(group, [&](int, const GroupTensor& tensor, u32 item) {
    const i64 elements = __ldg(extents.tensor_offsets + extents.num_tensors);
    const int strips = split.strips_of(tensor.cols), team = split.team_of(tensor.rows, tensor.cols);
    const int strip = int(item) % strips, number = int(item) / strips;
    const int row_arrivals = tensor.rows == 0 ? 1 : strips;  // an empty tensor has no ticket of its own
    __syncthreads();
    row_col_amax<outputs, rht, sign_mask>(
        shared, input + tensor.element, tensor.rows, tensor.cols,
        {number, team, tensor.rows / Strip::kRows, strip * Strip::kCols},
        group_rows<edges>(rowwise.state, elements).merge(rowwise.amax + tensor.row, tensor, number, row_arrivals),
        group_cols<edges>(columnwise.state, elements).merge(columnwise.amax + tensor.col, tensor, strip, team));
  });
}

// Clears the amaxes of tensors that have lines but no elements; either may be null. All threads call this.
__device__ __forceinline__ void clear_amaxes_of_empty(
    const i64* __restrict__ first_dims, const i64* __restrict__ last_dims, float* __restrict__ rowwise_amax,
    float* __restrict__ columnwise_amax, int num_tensors) {
  i64 row = 0, col = 0;
  for (int index = 0; index < num_tensors; ++index) {
    const int rows = int(__ldg(first_dims + index)), cols = int(__ldg(last_dims + index));
    for (int i = threadIdx.x; cols == 0 && rowwise_amax != nullptr && i < rows; i += RowColStrip<false>::kThreads) {
      rowwise_amax[row + i] = 0.0f;
    }
    for (int i = threadIdx.x; rows == 0 && columnwise_amax != nullptr && i < cols; i += RowColStrip<false>::kThreads) {
      columnwise_amax[col + i] = 0.0f;
    }
    row += rows;
    col += cols;
  }
}
