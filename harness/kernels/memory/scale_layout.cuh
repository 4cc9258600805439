// WHERE a byte lands: extents of padded arrays, and the two orders of a scale matrix.
#pragma once

#include "numerics/nvfp4.cuh"
#include "scheduler/launch.cuh"

enum class ScaleLayout { compact, swizzled };

__host__ __device__ constexpr int round_up(int value, u32 multiple) {
  return int((u32(value) + multiple - 1) / multiple * multiple);
}

// A scale matrix of (rows, blocks) entries, padded to whole 128x4 GEMM tiles; padding bytes are 0.
struct ScaleExtents {
  int rows, blocks;                // entries that hold a scale
  int padded_rows, padded_blocks;  // entries that are allocated

  __device__ ScaleExtents(int rows, int blocks)
      : rows(rows), blocks(blocks), padded_rows(round_up(rows, 128)), padded_blocks(round_up(blocks, 4)) {}

  __device__ bool allocated(int row, int block) const { return row < padded_rows && block < padded_blocks; }
  __device__ bool holds(int row, int block) const { return row < rows && block < blocks; }
};

// Byte offset of entry (row, block). Swizzled: tiles of 128 rows x 4 blocks, 512 bytes each, row-major; inside a
// tile, rows 32 apart are neighbours.
template <ScaleLayout layout>
__device__ __forceinline__ i64 scale_offset(int row, int block, int padded_blocks) {
  if constexpr (layout == ScaleLayout::compact) return row_offset(row, padded_blocks) + block;
  const u32 r = row, b = block;
  const u64 tile = u64(r / 128) * (u32(padded_blocks) / 4) + b / 4;
  return i64(tile * 512 + (r % 32) * 16 + (r % 128) / 32 * 4 + b % 4);
}

// ---------------------------------------------------------------------------------------------------------------------
// Blocks of a matrix of `extents.rows` lines, each of `extents.blocks` blocks
// ---------------------------------------------------------------------------------------------------------------------

// Where a block lies: its first element, and whether the matrix holds it at all.
struct BlockPlace {
  i64 element;
  bool inside;

  __device__ BlockPlace(const ScaleExtents& extents, int line, int block)
      : element(row_offset(line, extents.blocks * kBlock) + block * kBlock), inside(extents.holds(line, block)) {}
};

// Zeros outside the matrix.
template <typename Dtype>
__device__ __forceinline__ Packed16<Dtype> load_block(
    const Dtype* __restrict__ input, const ScaleExtents& extents, int line, int block) {
  const BlockPlace place(extents, line, block);
  if (!place.inside) return {};
  return load16(input + place.element);
}

// How manyth block of the matrix it is
__device__ __forceinline__ i64 block_index(const ScaleExtents& extents, int line, int block) {
  return row_offset(line, extents.blocks) + block;
}

// Codes and scale byte of a block. Outside the matrix, where load_block made zeros and so the scale byte is the 0 of
// the padding, nothing but the padding is written.
template <ScaleLayout layout>
__device__ __forceinline__ void store_block(
    u8* __restrict__ data, u8* __restrict__ scale_inv, const ScaleExtents& extents, int line, int block,
    const EncodedBlock& encoded) {
  const BlockPlace place(extents, line, block);
  if (place.inside) store_codes(data + place.element / 2, 0, encoded.codes);
  if (extents.allocated(line, block)) {
    scale_inv[scale_offset<layout>(line, block, extents.padded_blocks)] = u8(encoded.scale_inv);
  }
}

// Bytes from the scale of a block to that of the same block `further` lines on in the same 128. Swizzled: without what
// is whole 32s, it ends in the same 32.
template <ScaleLayout layout>
__device__ __forceinline__ i64 scale_stride(int further, int padded_blocks) {
  if constexpr (layout == ScaleLayout::compact) return i64(further) * padded_blocks;
  return further % 32 * 16 + further / 32 * 4;
}

// Where a thread stores its blocks of a tile of 128 lines: one of `line`, and one each of lines further on.
// edges: whether the tile may reach beyond the matrix
template <ScaleLayout layout, bool edges = true>
struct TileBlocks {
  u8 *data, *scale_inv;        // of the first
  int lines, allocated_lines;  // from the first on, that hold such a block, and that are allocated; 0 or less if none
  int blocks, padded_blocks;

  __device__ TileBlocks(u8* data, u8* scale_inv, const ScaleExtents& extents, int line, int block)
      : data(data + BlockPlace(extents, line, block).element / 2),
        scale_inv(scale_inv + scale_offset<layout>(line, block, extents.padded_blocks)),
        lines(block < extents.blocks ? extents.rows - line : 0),
        allocated_lines(block < extents.padded_blocks ? extents.padded_rows - line : 0),
        blocks(extents.blocks),
        padded_blocks(extents.padded_blocks) {}

  // As `store_block`
  __device__ void store(int further, const EncodedBlock& encoded) const {
    if (!edges || further < lines) store_codes(data, row_offset(further, blocks), encoded.codes);
    if (!edges || further < allocated_lines) {
      scale_inv[scale_stride<layout>(further, padded_blocks)] = u8(encoded.scale_inv);
    }
  }
};
