// The scales that a CTA reorders, in whole lines of either layout.
#pragma once

#include "memory/scale_layout.cuh"

// A CTA moves the scales of 512x512 elements. The tile is square, so that both directions have the same grid.
struct SwizzleTile {
  static constexpr int kRows = 512, kCols = kRows, kThreads = 256;
  static constexpr int kGemmTileRows = 128;
  static constexpr int kPanels = kRows / kGemmTileRows;
  static constexpr int kPanelBlocks = kCols / kBlock;
};

// Sixteen blocks of four rows that lie 32 apart: four words of each row, and the same sixteen bytes of four GEMM tiles.
// At the end of a row there may be fewer words.
struct ScalePatch {
  static constexpr int kWords = 4, kBlocks = 4 * kWords;
  int block, stride;        // stride: blocks of a row of the matrix, a multiple of 4
  i64 compact0, swizzled0;  // bytes of the first word
  u32 word[4][kWords];      // word[i][w]: word w of row `row + 32 * i`

  __device__ ScalePatch(int row, int block, int stride)
      : block(block),
        stride(stride),
        compact0(scale_offset<ScaleLayout::compact>(row, block, stride)),
        swizzled0(scale_offset<ScaleLayout::swizzled>(row, block, stride)) {}

  __device__ bool holds(int w) const { return block + 4 * w < stride; }
  __device__ i64 compact(int i, int w) const { return compact0 + row_offset(32 * i, stride) + 4 * w; }
  __device__ i64 swizzled(int w) const { return swizzled0 + 512 * w; }

  __device__ void load_compact(const u8* __restrict__ scale_inv) {
    if (stride % kBlocks == 0) {  // each row begins with a vector
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4 v = __ldg(reinterpret_cast<const uint4*>(scale_inv + compact(i, 0)));
        word[i][0] = v.x, word[i][1] = v.y, word[i][2] = v.z, word[i][3] = v.w;
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if (holds(w)) word[i][w] = __ldg(reinterpret_cast<const u32*>(scale_inv + compact(i, w)));
      }
    }
  }
  __device__ void store_compact(u8* __restrict__ scale_inv) const {
    if (stride % kBlocks == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<uint4*>(scale_inv + compact(i, 0)) =
            make_uint4(word[i][0], word[i][1], word[i][2], word[i][3]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if (holds(w)) *reinterpret_cast<u32*>(scale_inv + compact(i, w)) = word[i][w];
      }
    }
  }
  __device__ void load_swizzled(const u8* __restrict__ swizzled_scale_inv) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (!holds(w)) continue;
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(swizzled_scale_inv + swizzled(w)));
      word[0][w] = v.x, word[1][w] = v.y, word[2][w] = v.z, word[3][w] = v.w;
    }
  }
  __device__ void store_swizzled(u8* __restrict__ swizzled_scale_inv) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (!holds(w)) continue;
      *reinterpret_cast<uint4*>(swizzled_scale_inv + swizzled(w)) =
          make_uint4(word[0][w], word[1][w], word[2][w], word[3][w]);
    }
  }
};

// Calls move(patch) for each patch of this CTA. Four neighbouring tiles along a row of scales have four panels of 128
// rows, and each of their CTAs takes one of them for all four, because 128 blocks of a row are a whole line of memory
// where those of one tile are a sector. At the end of a row, fewer tiles share the four panels.
//
// first_row: of the scales, in the tile; tile: its number along a row of scales; whole: whether all four tiles are full
template <bool whole, typename Move>
__device__ __forceinline__ void for_each_scale_patch(const ScaleExtents& extents, u32 first_row, u32 tile, Move move) {
  constexpr u32 kPanels = SwizzleTile::kPanels, kBlocks = SwizzleTile::kPanelBlocks, kLine = kPanels * kBlocks;
  const u32 number = tile % kPanels, first_block = (tile - number) * kBlocks;
  const u32 blocks = whole ? kLine : min(kLine, extents.padded_blocks - first_block);
  const u32 ctas = (blocks + kBlocks - 1) / kBlocks, across = (blocks + ScalePatch::kBlocks - 1) / ScalePatch::kBlocks;
  // Eight lanes cover neighbouring rows, whose bytes in a GEMM tile are a line, and up to four cover neighbouring blocks.
  const u32 patches = across * 32, panels = whole ? 1 : (kPanels - number + ctas - 1) / ctas;
  for (u32 item = threadIdx.x; item < panels * patches; item += SwizzleTile::kThreads) {
    const u32 panel = number + item / patches * ctas, eight = item % patches / 8;
    const int row = int(first_row + panel * SwizzleTile::kGemmTileRows + eight / across * 8 + item % 8);
    const int block = int(first_block + eight % across * ScalePatch::kBlocks);
    if (row < extents.padded_rows) move(ScalePatch(row, block, extents.padded_blocks));
  }
}

// direction: columnwise swaps rows and cols. tile_row, tile_col: top left element of the tensor's tile, whose transpose
// swaps them
template <Outputs direction, typename Move>
__device__ __forceinline__ void for_each_scale_patch(int rows, int cols, int tile_row, int tile_col, Move move) {
  constexpr bool kByRow = direction == Outputs::rowwise;
  constexpr u32 kPanels = SwizzleTile::kPanels, kBlocks = SwizzleTile::kPanelBlocks;
  const ScaleExtents extents(kByRow ? rows : cols, u32(kByRow ? cols : rows) / kBlock);
  const u32 first_row = kByRow ? tile_row : tile_col;
  const u32 tile = u32(kByRow ? tile_col : tile_row) / SwizzleTile::kCols;
  const u32 line_end = (tile / kPanels + 1) * kPanels * kBlocks;
  if (u32(extents.padded_blocks) >= line_end && extents.padded_blocks % ScalePatch::kBlocks == 0) {
    for_each_scale_patch<true>(extents, first_row, tile, move);
  } else {
    for_each_scale_patch<false>(extents, first_row, tile, move);
  }
}
