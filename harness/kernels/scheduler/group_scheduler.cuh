// Work items of a group of tensors, from extents in device memory.
//
// CTA b of a grid of G takes items b, b + G, b + 2G, ..., or counts b from the end of the grid; the bytes do not depend
// on who takes which. All four shape representations arrive as the same arrays of extents. The host sizes a grid for
// the capacity of the allocation, so CTAs may find no item, and leave.
#pragma once

#include "memory/scale_layout.cuh"
#include "scheduler/launch.cuh"

constexpr int kMaxTensors = 64;
constexpr int kChunkRows = 128;                // rows that dbias sums in order
constexpr int kScalePadding = 128;             // scale matrices cover lines rounded up to this
constexpr u32 kScaleUnit = kScalePadding * 4;  // bytes that divide every padded scale matrix

// ---------------------------------------------------------------------------------------------------------------------
// The group
// ---------------------------------------------------------------------------------------------------------------------

// The group's extents, as a kernel gets them
struct GroupExtents {
  const i64* __restrict__ first_dims;      // (num_tensors,) rows
  const i64* __restrict__ last_dims;       // (num_tensors,) columns
  const i64* __restrict__ tensor_offsets;  // (num_tensors + 1,) elements
  int num_tensors;
};

// A tensor's extents, and the sums of all tensors before it
struct GroupTensor {
  i64 element;                                  // codes take half as many bytes
  i64 rowwise_scale_inv, columnwise_scale_inv;  // bytes
  int row, col, chunk;
  int rows, cols;
  u32 item;
};

struct Group {
  GroupTensor member[kMaxTensors];
  u32 items_to[kMaxTensors];  // up to and including the tensor's own; after the last tensor, the total
};

// The offsets of a tensor that are computed besides that of its elements; the others are 0
enum class Offsets {
  none,
  lines,    // row and col
  chunks,   // row, col and chunk
  scales,   // rowwise_scale_inv and columnwise_scale_inv
  both,     // row, col, rowwise_scale_inv and columnwise_scale_inv
  product,  // for a GEMM: row and col, rowwise_scale_inv of A, and columnwise_scale_inv as if B had 128 lines
};

// Bytes of a padded scale matrix
__device__ __forceinline__ i64 scale_bytes(int lines, int elements) {
  const ScaleExtents extents(lines, elements / kBlock);
  return row_offset(extents.padded_rows, extents.padded_blocks);
}

// Prefix sums over a warp. value: of the lane's two tensors, 2 * lane and 2 * lane + 1
template <typename Number>
__device__ __forceinline__ void exclusive_sum(const Number (&value)[2], Number (&before)[2]) {
  const int lane = threadIdx.x % 32;
  const Number own = value[0] + value[1];
  Number sum = own;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const Number other = __shfl_up_sync(~0u, sum, offset);
    if (lane >= offset) sum += other;
  }
  before[0] = sum - own;
  before[1] = before[0] + value[0];
}

// The sum over the tensors before `index`
template <typename Number>
__device__ __forceinline__ u32 sum_of_earlier(int index, const Number (&value)[2]) {
  const int first = 2 * int(threadIdx.x % 32);
  return __reduce_add_sync(~0u, (first < index ? u32(value[0]) : 0u) + (first + 1 < index ? u32(value[1]) : 0u));
}

// sum_of_earlier for numbers of up to 52 bits, in two parts each of which sums up to less than 2^32
__device__ __forceinline__ i64 long_sum_of_earlier(int index, const i64 (&value)[2]) {
  constexpr int kLow = 26;
  constexpr u32 kMask = (1u << kLow) - 1;
  const u32 low[2] = {u32(value[0]) & kMask, u32(value[1]) & kMask};
  const u32 high[2] = {u32(value[0] >> kLow), u32(value[1] >> kLow)};
  return (i64(sum_of_earlier(index, high)) << kLow) + sum_of_earlier(index, low);
}

// Tensors 2t and 2t + 1, read by thread t of the first warp; empty after the last
struct TensorPair {
  int rows[2] = {}, cols[2] = {};
  i64 element[2] = {};
  u32 items[2] = {};

  // items_of(rows, cols): a tensor's work items, which may be more than 0 for an empty one
  template <typename ItemsOf>
  __device__ TensorPair(const GroupExtents& extents, ItemsOf items_of) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int index = 2 * int(threadIdx.x) + i;
      if (index < extents.num_tensors) {
        rows[i] = int(__ldg(extents.first_dims + index));
        cols[i] = int(__ldg(extents.last_dims + index));
        // Loaded for every tensor at once: loading only the item's own, after the search, would add a memory latency.
        element[i] = __ldg(extents.tensor_offsets + index);
        items[i] = items_of(rows[i], cols[i]);
      }
    }
  }
  // Whether the group has tensor i of the pair
  __device__ bool holds(int i, const GroupExtents& extents) const {
    return 2 * int(threadIdx.x) + i < extents.num_tensors;
  }
};

// The index of an item's tensor: the number of tensors that end at or before the item, so empty ones are skipped
// anywhere. A whole warp calls this. items_to: of the lane's two tensors
__device__ __forceinline__ int tensor_of(u32 item, const u32 (&items_to)[2]) {
  return __popc(__ballot_sync(~0u, items_to[0] <= item)) + __popc(__ballot_sync(~0u, items_to[1] <= item));
}

// Fills `group` with the tensors that the first warp has read. A barrier must follow.
template <Offsets places>
__device__ __forceinline__ void fill_group(Group& group, const TensorPair& two) {
  int row[2] = {}, col[2] = {}, chunk[2] = {};
  i64 rowwise_before[2] = {}, columnwise_before[2] = {};
  if constexpr (places == Offsets::lines || places == Offsets::chunks || places == Offsets::both) {
    exclusive_sum(two.rows, row);
    exclusive_sum(two.cols, col);
  }
  if constexpr (places == Offsets::chunks) {
    int chunks[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) chunks[i] = round_up(two.rows[i], kChunkRows) / kChunkRows;
    exclusive_sum(chunks, chunk);
  }
  if constexpr (places == Offsets::scales || places == Offsets::both) {
    i64 rowwise[2], columnwise[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rowwise[i] = scale_bytes(two.rows[i], two.cols[i]);
      columnwise[i] = scale_bytes(two.cols[i], two.rows[i]);
    }
    exclusive_sum(rowwise, rowwise_before);
    exclusive_sum(columnwise, columnwise_before);
  }
  u32 item[2];
  exclusive_sum(two.items, item);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    group.member[2 * threadIdx.x + i] = {two.element[i], rowwise_before[i], columnwise_before[i], row[i], col[i],
                                         chunk[i],       two.rows[i],       two.cols[i],          item[i]};
    group.items_to[2 * threadIdx.x + i] = item[i] + two.items[i];
  }
}

// Fills `group` with the first warp. All threads call this once; a barrier is included.
template <Offsets places, typename ItemsOf>
__device__ __forceinline__ void read_group(Group& group, const GroupExtents& extents, ItemsOf items_of) {
  if (threadIdx.x < 32) fill_group<places>(group, TensorPair(extents, items_of));
  __syncthreads();
}

// ---------------------------------------------------------------------------------------------------------------------
// Work items
// ---------------------------------------------------------------------------------------------------------------------

// Whole warps call work(index of the tensor, tensor, item within it) for each item of this CTA.
template <typename Work>
__device__ __forceinline__ void for_each_work_item(const Group& group, Work work) {
  const int lane = threadIdx.x % 32;
  for (u32 item = blockIdx.x; item < group.items_to[kMaxTensors - 1]; item += gridDim.x) {
    const int index = tensor_of(item, {group.items_to[2 * lane], group.items_to[2 * lane + 1]});
    const GroupTensor& tensor = group.member[index];
    work(index, tensor, item - tensor.item);
  }
}

struct WorkItem {
  int index;  // num_tensors or more if there is no such item
  GroupTensor tensor;
  u32 item, items;  // items: the number in the whole group
};

// One item, without a Group in shared memory. Only the first warp reads the extents: the others wait without issuing
// instructions, which CTAs that encode on the same SM need.
template <Offsets places, typename ItemsOf>
__device__ __forceinline__ void find_work_item(
    WorkItem& work_item, u32 item, const GroupExtents& extents, ItemsOf items_of) {
  if (threadIdx.x < 32) {
    const TensorPair two(extents, items_of);
    u32 before[2];
    exclusive_sum(two.items, before);
    const u32 to_here = before[1] + two.items[1];
    const int index = tensor_of(item, {before[0] + two.items[0], to_here});
    const u32 items = __shfl_sync(~0u, to_here, 31);
    GroupTensor tensor = {};
    if constexpr (places != Offsets::scales) {
      tensor.row = int(sum_of_earlier(index, two.rows));
      tensor.col = int(sum_of_earlier(index, two.cols));
    }
    if constexpr (places != Offsets::lines) {
      constexpr bool kProduct = places == Offsets::product;
      u32 rowwise[2], columnwise[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int rows = two.rows[i], cols = two.cols[i];
        rowwise[i] = u32(scale_bytes(rows, cols) / kScaleUnit);
        columnwise[i] = u32((kProduct ? scale_bytes(kScalePadding, cols) : scale_bytes(cols, rows)) / kScaleUnit);
      }
      tensor.rowwise_scale_inv = i64(kScaleUnit) * sum_of_earlier(index, rowwise);
      tensor.columnwise_scale_inv = i64(kScaleUnit) * sum_of_earlier(index, columnwise);
    }
    if (threadIdx.x == (index < extents.num_tensors ? index / 2 : 0)) {
      const int own = index % 2;
      tensor.element = own ? two.element[1] : two.element[0];
      tensor.rows = own ? two.rows[1] : two.rows[0];
      tensor.cols = own ? two.cols[1] : two.cols[0];
      tensor.item = own ? before[1] : before[0];
      work_item = {index, tensor, item - tensor.item, items};
    }
  }
  __syncthreads();
}

// The item with which the grid of Schedule::tiles begins: an encode begins with the last, because the L2 still holds
// what the amax ahead read last.
enum class From { first, last };

// All threads call work(index of the tensor, tensor, item within it) for each item of this CTA. Schedule::tiles finds
// each item anew, because a CTA has one or two; Schedule::persistent reads the extents once.
template <Schedule schedule, Offsets places, From from = From::first, typename ItemsOf, typename Work>
__device__ __forceinline__ void for_each_work_item(const GroupExtents& extents, ItemsOf items_of, Work work) {
  if constexpr (schedule == Schedule::persistent) {
    __shared__ Group group;
    read_group<places>(group, extents, items_of);
    for_each_work_item(group, [&](int index, const GroupTensor& tensor, u32 item) {
      work(index, tensor, item);
      __syncthreads();  // before the next item takes over the work's shared memory
    });
  } else {
    __shared__ WorkItem work_item;
    for (u32 item = from == From::last ? gridDim.x - 1 - blockIdx.x : blockIdx.x;;) {
      find_work_item<places>(work_item, item, extents, items_of);
      if (work_item.index >= extents.num_tensors) return;
      work(work_item.index, work_item.tensor, work_item.item);
      item += gridDim.x;
      if (item >= work_item.items) return;
      __syncthreads();
    }
  }
}

// Tiles that cover a tensor and the padding of its scales, numbered along rows of tiles
template <int tile_rows, int tile_cols>
struct GroupTiles {
  __device__ static u32 across(int cols) { return (u32(round_up(cols, kScalePadding)) + tile_cols - 1) / tile_cols; }
  __device__ static u32 count(int rows, int cols) {
    return (u32(round_up(rows, kScalePadding)) + tile_rows - 1) / tile_rows * across(cols);
  }
  __device__ static TileOrigin origin(int cols, u32 item) {
    const u32 width = across(cols);
    return {int(item / width) * tile_rows, int(item % width) * tile_cols};
  }
};

// Tiles of whole rows, also of rows without elements, which have amaxes of 0
template <int tile_rows>
struct GroupRows {
  __device__ static u32 count(int rows, int) { return u32(round_up(rows, kScalePadding)) / tile_rows; }
};
