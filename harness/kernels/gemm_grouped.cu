// gemm_grouped: up to 64 GEMMs in one launch, D_g (M_g, N) = A_g (M_g, K_g) * B_g (N, K_g)^T.
//
// Contract (NUMERICS 10.4): every group has the bytes that the kernel `gemm` gives it alone, on any input, also where
// the recipe gemm takes gemm_skinny: the same tiles, the same order along K, the same epilogue. Nothing depends on the
// grid, on which CTA takes a tile, or on the other groups.
//   1. M_g differs from group to group, or K_g does (wgrad). A group without rows has no output; one without K has the
//      epilogue of sums that are 0.
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

// The epilogue for a tile. of_all: the epilogue's inputs for all groups
template <Epilogue epilogue, Granularity b_granularity, typename Dtype>
__device__ __forceinline__ TileEpilogue<epilogue, b_granularity, Dtype> epilogue_of(
    const WorkItem& work_item, Dtype* __restrict__ output, const EpilogueParams<Dtype>& of_all) {
  constexpr bool kOneOfA = epilogue == Epilogue::per_tensor;
  constexpr bool kOneOfB = kOneOfA || (epilogue == Epilogue::row_scaled && b_granularity == Granularity::tensor);
  EpilogueParams<Dtype> own = of_all;
  const int row = work_item.tensor.row, col = work_item.index * own.N;
  own.a_amax += kOneOfA ? work_item.index : row;
  own.b_amax += kOneOfB ? work_item.index : col;
  if (own.c != nullptr) own.c += row_offset(row, own.N);
  if (own.bias != nullptr) own.bias += col;
  return {output + row_offset(row, own.N), own, work_item.tensor.rows, origin_of(work_item, own.N)};
}

// =====================================================================================================================
// Kernel
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
    return epilogue_of<epilogue, b_granularity>(work_item, output, {a_amax, b_amax, c, bias, N, alpha, beta, c_ab});
  });
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch gemm_grouped_launch = {kTile, kTile, MainloopDense::kThreads, 0, Schedule::tiles};
