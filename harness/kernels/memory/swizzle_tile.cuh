// The scales that a CTA reorders, in whole lines of either layout.
#pragma once

#include "memory/scale_layout.cuh"

// A CTA moves as many scales as 256x256 elements have. The tile is square, so that both directions have the same grid.
struct SwizzleTile {
  static constexpr int kRows = 256, kCols = kRows, kThreads = 64;
  static constexpr int kGemmTileRows = 128;
  static constexpr int kBlocksAcross = kCols / kBlock;
};

// Sixteen blocks of four rows that lie 32 apart: four words of each row, and the same sixteen bytes of four GEMM tiles.
// At the end of a row there may be fewer words.
struct ScalePatch {
  static constexpr int kWords = 4, kBlocks = 4 * kWords;
  int row, block;
  ScaleExtents extents;
  u32 word[4][kWords];  // word[i][w]: word w of row `row + 32 * i`

  __device__ ScalePatch(int row, int block, const ScaleExtents& extents) : row(row), block(block), extents(extents) {}

  __device__ bool allocated() const { return extents.allocated(row, block); }
  __device__ bool holds(int w) const { return block + 4 * w < extents.padded_blocks; }
  // Whether each row of the matrix begins with a vector
  __device__ bool of_vectors() const { return extents.padded_blocks % kBlocks == 0; }
  __device__ i64 compact(int i, int w) const {
    return scale_offset<ScaleLayout::compact>(row + 32 * i, block + 4 * w, extents.padded_blocks);
  }
  __device__ i64 swizzled(int w) const {
    return scale_offset<ScaleLayout::swizzled>(row, block + 4 * w, extents.padded_blocks);
  }

  __device__ void load_compact(const u8* __restrict__ scale_inv) {
    const bool of_vectors = this->of_vectors();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (of_vectors) {
        const uint4 v = __ldg(reinterpret_cast<const uint4*>(scale_inv + compact(i, 0)));
        word[i][0] = v.x, word[i][1] = v.y, word[i][2] = v.z, word[i][3] = v.w;
        continue;
      }
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if (holds(w)) word[i][w] = __ldg(reinterpret_cast<const u32*>(scale_inv + compact(i, w)));
      }
    }
  }
  __device__ void store_compact(u8* __restrict__ scale_inv) const {
    const bool of_vectors = this->of_vectors();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (of_vectors) {
        const uint4 v = make_uint4(word[i][0], word[i][1], word[i][2], word[i][3]);
        *reinterpret_cast<uint4*>(scale_inv + compact(i, 0)) = v;
        continue;
      }
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
      const uint4 v = make_uint4(word[0][w], word[1][w], word[2][w], word[3][w]);
      *reinterpret_cast<uint4*>(swizzled_scale_inv + swizzled(w)) = v;
    }
  }
};

// The patch of this thread. Sixteen blocks of a row are half a sector and 128 are a line, so eight neighbouring tiles
// along a row of scales share their rows out: each takes some for all eight, as many as it has itself. Eight lanes cover
// neighbouring rows, whose bytes in a GEMM tile are a line, and the next eight the next sixteen blocks.
//
// direction: columnwise swaps rows and cols. tile_row, tile_col: top left element of the tensor's tile, whose transpose
// swaps them
template <Outputs direction>
__device__ __forceinline__ ScalePatch scale_patch(int rows, int cols, int tile_row, int tile_col) {
  constexpr bool kByRow = direction == Outputs::rowwise;
  constexpr u32 kTiles = 8, kRowsAtOnce = 8, kBlocks = SwizzleTile::kBlocksAcross;
  static_assert(kBlocks == ScalePatch::kBlocks && SwizzleTile::kThreads * 4 == SwizzleTile::kRows, "a patch a thread");
  const ScaleExtents extents(kByRow ? rows : cols, (kByRow ? cols : rows) / kBlock);
  const u32 tile = u32(kByRow ? tile_col : tile_row) / SwizzleTile::kCols, number = tile % kTiles;
  const u32 first_block = (tile - number) * kBlocks;
  const u32 across = min(kTiles, (extents.padded_blocks - first_block + kBlocks - 1) / kBlocks);
  const u32 strip = (number * SwizzleTile::kThreads + threadIdx.x) / kRowsAtOnce;
  const u32 group = across == kTiles ? strip / kTiles : strip / across;
  constexpr u32 kGroups = 32 / kRowsAtOnce;  // of a GEMM tile: rows r, r + 32, r + 64 and r + 96 are in one
  const u32 row =
      group / kGroups * SwizzleTile::kGemmTileRows + group % kGroups * kRowsAtOnce + threadIdx.x % kRowsAtOnce;
  return {(kByRow ? tile_row : tile_col) + int(row), int(first_block + (strip - group * across) * kBlocks), extents};
}
