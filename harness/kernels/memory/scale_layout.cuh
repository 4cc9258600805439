// Extents of padded scale matrices, and their two orders.
#pragma once

#include "numerics/types.cuh"

enum class ScaleLayout { compact, swizzled };

__host__ __device__ constexpr int round_up(int value, u32 multiple) {
  return int((u32(value) + multiple - 1) / multiple * multiple);
}

// The offset of row `row` in a matrix with `stride` columns
__device__ __forceinline__ i64 row_offset(int row, int stride) { return i64(u64(u32(row)) * u32(stride)); }

// A scale matrix of (rows, blocks) entries, padded with zeros to whole 128x4 tiles, as a GEMM reads them
struct ScaleExtents {
  int rows, blocks;                // extents that have scales
  int padded_rows, padded_blocks;  // extents that are allocated

  __device__ ScaleExtents(int rows, int blocks)
      : rows(rows), blocks(blocks), padded_rows(round_up(rows, 128)), padded_blocks(round_up(blocks, 4)) {}

  __device__ bool allocated(int row, int block) const { return row < padded_rows && block < padded_blocks; }
  __device__ bool holds(int row, int block) const { return row < rows && block < blocks; }
};

// The byte offset of entry (row, block). Swizzled: 128x4 tiles of 512 bytes, row-major; inside a tile, rows 32 apart
// are neighbours.
template <ScaleLayout layout>
__device__ __forceinline__ i64 scale_offset(int row, int block, int padded_blocks) {
  if constexpr (layout == ScaleLayout::compact) return row_offset(row, padded_blocks) + block;
  const u32 r = row, b = block;
  const u64 tile = u64(r / 128) * (u32(padded_blocks) / 4) + b / 4;
  return i64(tile * 512 + (r % 32) * 16 + (r % 128) / 32 * 4 + b % 4);
}
