// gemm_grouped: up to 64 GEMMs in one launch, D_g (M_g, N_g) = A_g (M_g, K_g) * B_g (N_g, K_g)^T.
//
// Contract (NUMERICS 10.4): every group has the bytes that the kernel `gemm` gives it alone, on any input, also where
// the recipe gemm takes gemm_skinny: the same tiles, the same order along K, the same epilogue. Nothing depends on the
// grid, on which CTA takes a tile, or on the other groups.
//   1. M_g differs from group to group, or K_g does (wgrad); in gemm_grouped_varying_n all three may. A group without
//      rows or columns has no output; one without K has the epilogue of sums that are 0.
//   2. All arrays of all groups lie back to back, scales with the padding that each group has alone. An amax of a
//      tensor is its group's, and so is alpha'. Padding of scales is read and must be 0 (NUMERICS 1.5).
//   3. Extents are read from device memory. The host knows the number of tiles; a CTA beyond the last does nothing.
//
// Run it: make verify R=gemm_grouped          Time it: make bench R=gemm_grouped
#include "gemm/epilogue.cuh"
#include "gemm/mainloop_wgmma.cuh"
#include "numerics/nvfp4.cuh"
#include "scheduler/group_scheduler.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kTile = MainloopDense::kTile;  // rows and columns of a CTA's tile

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// Tiles that cover this many rows, or columns, of an output
__device__ __forceinline__ u32 tiles_in(int lines) { return (u32(lines) + kTile - 1) / kTile; }

// The tile's origin in the output of its group
__device__ __forceinline__ TileOrigin origin_of(const WorkItem& work_item, int N) {
  const u32 across = tiles_in(N);
  return {int(work_item.item / across) * kTile, int(work_item.item % across) * kTile};
}

// A tile of a group with an N of its own. tensor.columnwise_scale_inv is where the scales of its B begin, and tensor.col
// is its first column among those of all outputs.
struct ProductItem : WorkItem {
  int N;
  i64 b_element, output;  // elements of B, and of the output, before the group's
};

// A group's first column among those of all outputs, and its first element of the output and of C
__device__ __forceinline__ int first_col(const WorkItem& item, int N) { return item.index * N; }
__device__ __forceinline__ int first_col(const ProductItem& item, int) { return item.tensor.col; }
__device__ __forceinline__ i64 first_output(const WorkItem&, int row, int N) { return row_offset(row, N); }
__device__ __forceinline__ i64 first_output(const ProductItem& item, int, int) { return item.output; }

// The epilogue for a tile. of_all: the epilogue's inputs for all groups, with the N of this one
template <Epilogue epilogue, Granularity b_granularity, typename Item, typename Dtype>
__device__ __forceinline__ TileEpilogue<epilogue, b_granularity, Dtype> epilogue_of(
    const Item& work_item, Dtype* __restrict__ output, const EpilogueParams<Dtype>& of_all) {
  constexpr bool kOneOfA = epilogue == Epilogue::per_tensor;
  constexpr bool kOneOfB = kOneOfA || (epilogue == Epilogue::row_scaled && b_granularity == Granularity::tensor);
  EpilogueParams<Dtype> own = of_all;
  const int row = work_item.tensor.row, col = first_col(work_item, own.N);
  own.a_amax += kOneOfA ? work_item.index : row;
  own.b_amax += kOneOfB ? work_item.index : col;
  if (own.c != nullptr) own.c += first_output(work_item, row, own.N);
  if (own.bias != nullptr) own.bias += col;
  return {output + first_output(work_item, row, own.N), own, work_item.tensor.rows, origin_of(work_item, own.N)};
}

// The tile of this CTA: find_work_item with N of every group. A barrier is included.
__device__ __forceinline__ void find_product_item(
    ProductItem& found, const GroupExtents& extents, const i64* __restrict__ n_dims) {
  if (threadIdx.x < 32) {
    TensorPair two(extents, [](int rows, int) { return tiles_in(rows); });
    int n[2] = {};
    u32 before[2], a_scales[2], b_scales[2];
    i64 b_elements[2], outputs[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (two.holds(i, extents)) n[i] = int(__ldg(n_dims + 2 * threadIdx.x + i));
      two.items[i] *= tiles_in(n[i]);
      a_scales[i] = u32(scale_bytes(two.rows[i], two.cols[i]) / kScaleUnit);
      b_scales[i] = u32(scale_bytes(n[i], two.cols[i]) / kScaleUnit);
      b_elements[i] = row_offset(n[i], two.cols[i]);
      outputs[i] = row_offset(two.rows[i], n[i]);
    }
    exclusive_sum(two.items, before);
    const u32 to_here = before[1] + two.items[1];
    const int index = tensor_of(blockIdx.x, {before[0] + two.items[0], to_here});
    const u32 items = __shfl_sync(~0u, to_here, 31);
    GroupTensor tensor = {};
    tensor.row = int(sum_of_earlier(index, two.rows));
    tensor.col = int(sum_of_earlier(index, n));
    tensor.rowwise_scale_inv = i64(kScaleUnit) * sum_of_earlier(index, a_scales);
    tensor.columnwise_scale_inv = i64(kScaleUnit) * sum_of_earlier(index, b_scales);
    const i64 b_element = long_sum_of_earlier(index, b_elements), output = long_sum_of_earlier(index, outputs);
    if (threadIdx.x == (index < extents.num_tensors ? index / 2 : 0)) {
      const int own = index % 2;
      tensor.element = own ? two.element[1] : two.element[0];
      tensor.rows = own ? two.rows[1] : two.rows[0];
      tensor.cols = own ? two.cols[1] : two.cols[0];
      tensor.item = own ? before[1] : before[0];
      found = {{index, tensor, blockIdx.x - tensor.item, items}, own ? n[1] : n[0], b_element, output};
    }
  }
  __syncthreads();
}

// =====================================================================================================================
// Kernels
// =====================================================================================================================

template <
    typename Dtype, Epilogue epilogue, Granularity b_granularity, ScaleLayout a_scale_layout,
    ScaleLayout b_scale_layout>
__global__ void __launch_bounds__(MainloopDense::kThreads, MainloopDense::kBlocksPerSm) gemm_grouped(
    const u8* __restrict__ a_data,           // (M_g, K_g/2) e2m1 pairs of every group; M below is the sum of all M_g
    const u8* __restrict__ a_scale_inv,      // (round_up(M_g, 128), round_up(K_g/16, 4)) e4m3 of every group
    const float* __restrict__ a_amax,        // (num_tensors,) or (M,)
    const u8* __restrict__ b_data,           // (N, K_g/2) e2m1 pairs of every group
    const u8* __restrict__ b_scale_inv,      // (round_up(N, 128), round_up(K_g/16, 4)) e4m3 of every group
    const float* __restrict__ b_amax,        // (num_tensors,) or (num_tensors * N,)
    Optional<const Dtype> c,                 // (M, N)
    Optional<const Dtype> bias,              // (num_tensors * N,)
    Dtype* __restrict__ output,              // (M, N)
    const i64* __restrict__ first_dims,      // (num_tensors,), every M_g
    const i64* __restrict__ last_dims,       // (num_tensors,), every K_g
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,), elements of A
    int num_tensors, int N, int a_e4m3_max, int b_e4m3_max, float alpha, float beta) {
  __shared__ MainloopDense::Shared shared;
  __shared__ WorkItem work_item;  // read again after the mainloop, to keep registers free
  find_work_item<Offsets::product>(
      work_item, blockIdx.x, {first_dims, last_dims, tensor_offsets, num_tensors},
      [&](int rows, int) { return tiles_in(rows) * tiles_in(N); });
  if (work_item.index >= num_tensors) return;
  const GroupTensor& group = work_item.tensor;
  const TileOrigin origin = origin_of(work_item, N);
  const int blocks = int(u32(group.cols) / kBlock);
  const GemmOperand<a_scale_layout> a = {
      a_data + group.element / 2, a_scale_inv + group.rowwise_scale_inv, group.rows, blocks};
  const i64 scale_tiles = round_up(N, kScalePadding) / kScalePadding;  // of 128 lines of B
  const GemmOperand<b_scale_layout> b = {
      b_data + row_offset(group.col, N) / 2, b_scale_inv + scale_tiles * group.columnwise_scale_inv, N, blocks};
  MainloopDense::multiply(shared, a, b, origin.row, origin.col, [&] {
    const float c_ab = accumulator_scale(float(a_e4m3_max), float(b_e4m3_max));
    return epilogue_of<epilogue, b_granularity>(
        work_item, output, EpilogueParams<Dtype>{a_amax, b_amax, c, bias, N, alpha, beta, c_ab});
  });
}

// shape_representation: varying_both_dims. M, N and K below are sums of all M_g, N_g and K_g.
template <
    typename Dtype, Epilogue epilogue, Granularity b_granularity, ScaleLayout a_scale_layout,
    ScaleLayout b_scale_layout>
__global__ void __launch_bounds__(MainloopDense::kThreads, MainloopDense::kBlocksPerSm) gemm_grouped_varying_n(
    const u8* __restrict__ a_data,           // (M_g, K_g/2) e2m1 pairs of every group
    const u8* __restrict__ a_scale_inv,      // (round_up(M_g, 128), round_up(K_g/16, 4)) e4m3 of every group
    const float* __restrict__ a_amax,        // (num_tensors,) or (M,)
    const u8* __restrict__ b_data,           // (N_g, K_g/2) e2m1 pairs of every group
    const u8* __restrict__ b_scale_inv,      // (round_up(N_g, 128), round_up(K_g/16, 4)) e4m3 of every group
    const float* __restrict__ b_amax,        // (num_tensors,) or (N,)
    Optional<const Dtype> c,                 // (M_g, N_g) of every group
    Optional<const Dtype> bias,              // (N,)
    Dtype* __restrict__ output,              // (M_g, N_g) of every group
    const i64* __restrict__ first_dims,      // (num_tensors,), every M_g
    const i64* __restrict__ last_dims,       // (num_tensors,), every K_g
    const i64* __restrict__ n_dims,          // (num_tensors,), every N_g
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,), elements of A
    int num_tensors, int a_e4m3_max, int b_e4m3_max, float alpha, float beta) {
  __shared__ MainloopDense::Shared shared;
  __shared__ ProductItem work_item;  // read again after the mainloop, to keep registers free
  find_product_item(work_item, {first_dims, last_dims, tensor_offsets, num_tensors}, n_dims);
  if (work_item.index >= num_tensors) return;
  const GroupTensor& group = work_item.tensor;
  const TileOrigin origin = origin_of(work_item, work_item.N);
  const int blocks = int(u32(group.cols) / kBlock);
  const GemmOperand<a_scale_layout> a = {
      a_data + group.element / 2, a_scale_inv + group.rowwise_scale_inv, group.rows, blocks};
  const GemmOperand<b_scale_layout> b = {
      b_data + work_item.b_element / 2, b_scale_inv + group.columnwise_scale_inv, work_item.N, blocks};
  MainloopDense::multiply(shared, a, b, origin.row, origin.col, [&] {
    const float c_ab = accumulator_scale(float(a_e4m3_max), float(b_e4m3_max));
    return epilogue_of<epilogue, b_granularity>(
        work_item, output, EpilogueParams<Dtype>{a_amax, b_amax, c, bias, work_item.N, alpha, beta, c_ab});
  });
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

constexpr Launch kLaunch = {kTile, kTile, MainloopDense::kThreads, 0, Schedule::tiles};
__constant__ Launch gemm_grouped_launch = kLaunch;
__constant__ Launch gemm_grouped_varying_n_launch = kLaunch;
