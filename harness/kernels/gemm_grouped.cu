// gemm_grouped: up to 64 GEMMs in one launch, D_g (M_g, N) = A_g (M_g, K) * B_g (N, K)^T.
//
// Contract (NUMERICS 10.4): every group has the bytes that `gemm` gives it alone, on any input: the same tiles, the
// same order along K, the same epilogue. Nothing depends on the grid, on which CTA takes a tile, or on the other
// groups.
//   1. A, C and the output of all groups lie back to back. M_g is a multiple of 128, or 0 for an empty group, which has
//      a B but no output.
//   2. B, amaxes and biases of all groups lie back to back, too. An amax of a tensor is its group's, and so is alpha'.
//   3. Extents are read from device memory. The host knows the sum of all M_g, which tells the number of tiles; a CTA
//      beyond the last does nothing.
//
// Run it: make verify R=gemm_grouped          Time it: make bench R=gemm_grouped
#include "gemm/epilogue.cuh"
#include "gemm/mainloop.cuh"
#include "numerics/nvfp4.cuh"
#include "scheduler/group_scheduler.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kTile = Mainloop::kTile;  // rows and columns of a CTA's tile

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// Tiles that cover this many rows, or columns, of an output
__device__ __forceinline__ u32 tiles_in(int lines) { return (u32(lines) + kTile - 1) / kTile; }

// A group's operand. line, scale_line: where its data and its scales start; the scales of earlier groups are padded
template <ScaleLayout scale_layout>
__device__ __forceinline__ GemmOperand<scale_layout> operand_from(
    const u8* __restrict__ data, const u8* __restrict__ scale_inv, int line, int scale_line, int lines, int K) {
  const int blocks = int(u32(K) / kBlock);
  return {data + row_offset(line, K) / 2, scale_inv + row_offset(scale_line, round_up(blocks, 4)), lines, blocks};
}

// The tile's origin in the output of its group
__device__ __forceinline__ TileOrigin origin_of(const WorkItem& work_item, int N) {
  const u32 across = tiles_in(N);
  return {int(work_item.item / across) * kTile, int(work_item.item % across) * kTile};
}

// A tile's epilogue. of_all: what it reads, for all groups
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
__global__ void __launch_bounds__(Mainloop::kThreads, Mainloop::kBlocksPerSm) gemm_grouped(
    const u8* __restrict__ a_data,           // (M, K/2) e2m1 pairs, M being the sum of all M_g
    const u8* __restrict__ a_scale_inv,      // (M, round_up(K/16, 4)) e4m3
    const float* __restrict__ a_amax,        // (num_tensors,) or (M,)
    const u8* __restrict__ b_data,           // (num_tensors * N, K/2) e2m1 pairs
    const u8* __restrict__ b_scale_inv,      // (num_tensors * round_up(N, 128), round_up(K/16, 4)) e4m3
    const float* __restrict__ b_amax,        // (num_tensors,) or (num_tensors * N,)
    Optional<const Dtype> c,                 // (M, N)
    Optional<const Dtype> bias,              // (num_tensors * N,)
    Dtype* __restrict__ output,              // (M, N)
    const i64* __restrict__ first_dims,      // (num_tensors,), every M_g
    const i64* __restrict__ last_dims,       // (num_tensors,), K each
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,), elements of A
    int num_tensors, int K, int N, int a_e4m3_max, int b_e4m3_max, float alpha, float beta) {
  __shared__ Mainloop::Shared shared;
  __shared__ WorkItem work_item;  // reread after the mainloop, to keep registers free
  find_work_item<Offsets::lines>(
      work_item, blockIdx.x, {first_dims, last_dims, tensor_offsets, num_tensors},
      [&](int rows, int) { return tiles_in(rows) * tiles_in(N); });
  if (work_item.index >= num_tensors) return;
  const GroupTensor& group = work_item.tensor;
  const TileOrigin origin = origin_of(work_item, N);
  Mainloop mainloop;
  mainloop.multiply(
      shared, operand_from<a_scale_layout>(a_data, a_scale_inv, group.row, group.row, group.rows, K),
      operand_from<b_scale_layout>(
          b_data, b_scale_inv, work_item.index * N, work_item.index * round_up(N, kScalePadding), N, K),
      origin.row, origin.col);
  mainloop.epilogue(
      shared, epilogue_of<epilogue, b_granularity>(
                  work_item, output,
                  {a_amax, b_amax, c, bias, N, alpha, beta, accumulator_scale(float(a_e4m3_max), float(b_e4m3_max))}));
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch gemm_grouped_launch = {kTile, kTile, Mainloop::kThreads, 0, Schedule::tiles};
