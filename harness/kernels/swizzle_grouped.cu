// swizzle_grouped: the scale matrices of up to 64 tensors into the 128x4 tiles that a GEMM reads, or back, in one launch.
//
// Contract (NUMERICS 1.7 and 8.1): each tensor's matrix as `swizzle` moves it. The matrices lie back to back, each with
// the padding it has alone; an empty tensor has none.
//
// Run it: make verify R=swizzle_grouped          Time it: make bench R=swizzle_grouped
#include "memory/swizzle_tile.cuh"
#include "scheduler/group_scheduler.cuh"

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// Calls move(the thread's patch, the first byte of its tensor's matrix) for each tile of this CTA.
template <Outputs direction, typename Move>
__device__ __forceinline__ void for_each_tile(const GroupExtents& group, Move move) {
  using Tiles = GroupTiles<SwizzleTile::kRows, SwizzleTile::kCols>;
  for_each_work_item<Schedule::tiles, Offsets::scales>(
      group, Tiles::count, [&](int, const GroupTensor& tensor, u32 item) {
        const TileOrigin tile = Tiles::origin(tensor.cols, item);
        const ScalePatch patch = scale_patch<direction>(tensor.rows, tensor.cols, tile.row, tile.col);
        if (!patch.allocated()) return;
        move(patch, direction == Outputs::rowwise ? tensor.rowwise_scale_inv : tensor.columnwise_scale_inv);
      });
}

// =====================================================================================================================
// Kernels: a byte in and a byte out for each scale
// =====================================================================================================================

template <Outputs direction>
__global__ void __launch_bounds__(SwizzleTile::kThreads) swizzle_grouped(
    const u8* __restrict__ scale_inv,        // (bytes of all,) e4m3, compact
    u8* __restrict__ swizzled_scale_inv,     // (bytes of all,) e4m3, in 128x4 tiles
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    int num_tensors) {
  for_each_tile<direction>({first_dims, last_dims, tensor_offsets, num_tensors}, [&](ScalePatch patch, i64 matrix) {
    patch.load_compact(scale_inv + matrix);
    patch.store_swizzled(swizzled_scale_inv + matrix);
  });
}

template <Outputs direction>
__global__ void __launch_bounds__(SwizzleTile::kThreads) unswizzle_grouped(
    const u8* __restrict__ swizzled_scale_inv,  // (bytes of all,) e4m3, in 128x4 tiles
    u8* __restrict__ scale_inv,                 // (bytes of all,) e4m3, compact
    const i64* __restrict__ first_dims,         // (num_tensors,)
    const i64* __restrict__ last_dims,          // (num_tensors,)
    const i64* __restrict__ tensor_offsets,     // (num_tensors + 1,)
    int num_tensors) {
  for_each_tile<direction>({first_dims, last_dims, tensor_offsets, num_tensors}, [&](ScalePatch patch, i64 matrix) {
    patch.load_swizzled(swizzled_scale_inv + matrix);
    patch.store_compact(scale_inv + matrix);
  });
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch swizzle_grouped_launch = kLaunchTiles<SwizzleTile>;
__constant__ Launch unswizzle_grouped_launch = kLaunchTiles<SwizzleTile>;
