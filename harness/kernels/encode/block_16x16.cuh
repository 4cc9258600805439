// 16x16 blocks to nearest-even, both directions. Rows and columns of a block share its scale, so the transpose has the
// same codes: they are encoded once, and codes rather than elements are transposed through shared memory.
#pragma once

#include "memory/block_io.cuh"
#include "numerics/nvfp4.cuh"
#include "reduce/amax_16x16.cuh"
#include "scheduler/cta_tile.cuh"
#include "scheduler/dependent_launch.cuh"

// With at least 14 tiles for each SM, three and a half times what it holds at once, the last wave leaves few SMs idle.
constexpr Launch kBlock16x16Launch = {256, 256, TransposeTile::kThreads, 14, Schedule::patches};

// Codes and scales of a CTA's tile
struct CodesSmem {
  static constexpr int kBands = kBlock16x16Launch.tile_rows / kBlock, kBlocks = kBlock16x16Launch.tile_cols / kBlock;
  static constexpr int kRowBytes = kBlock16x16Launch.tile_cols / 2, kBandBytes = kBlock * kRowBytes + 8;
  alignas(8) u8 codes[kBands * kBandBytes];
  u32 scale_inv[kBands][kBlocks / 4], transposed_scale_inv[kBlocks][kBands / 4];

  // No bank conflicts in either direction: 8 bytes of padding after each band separate sixteen lanes that read the same
  // columns of sixteen bands, and the halves of odd rows are swapped for a half warp that writes half of two rows.
  __device__ static int place(int band, int row_in_band, int col) {
    return band * kBandBytes + row_in_band * kRowBytes + (col / 2 ^ row_in_band % 2 * (kRowBytes / 2));
  }

  __device__ void put(int band, int row_in_band, int block, const Codes16& block_codes) {
    u8* target = codes + place(band, row_in_band, block * kBlock);
    *reinterpret_cast<uint2*>(target) = make_uint2(block_codes.word[0], block_codes.word[1]);
  }
  __device__ Codes16 block(int row, int block) const {
    const uint2 v = *reinterpret_cast<const uint2*>(codes + place(u32(row) / kBlock, row % kBlock, block * kBlock));
    return {{v.x, v.y}};
  }
  __device__ void put_scale(int band, int block, u32 scale) {
    reinterpret_cast<u8*>(scale_inv[band])[block] = u8(scale);
    reinterpret_cast<u8*>(transposed_scale_inv[block])[band] = u8(scale);
  }
};

// A thread's four neighbouring columns of a band
struct CodesColumnRole {
  static constexpr int kCols = 4;
  int band, col;
  int step;  // columns that the CTA takes at a time

  // Neighbouring lanes hold the 8 or 16 bands of the tile, so a column is stored 64 or 128 bytes at a time.
  __device__ explicit CodesColumnRole(const CtaTile& tile) {
    const u32 bands = u32(tile.rows) / kBlock;
    band = threadIdx.x % bands;
    col = threadIdx.x / bands * kCols;
    step = kBlock16x16Launch.threads / bands * kCols;
  }
};

// The codes of columns `first` to `first + 3` of a band: a 16x4 matrix of nibbles, transposed by halves, bytes and
// nibbles
__device__ __forceinline__ void transpose_codes(
    const CodesSmem& tile, int band, int first, Codes16 (&column)[CodesColumnRole::kCols]) {
  u32 row[kBlock];  // four codes of a row
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    row[i] = *reinterpret_cast<const u16*>(tile.codes + CodesSmem::place(band, i, first));
  }
#pragma unroll
  for (int w = 0; w < 2; ++w) {  // rows 8w to 8w + 7
    const u32* eight = row + 8 * w;
    u32 pair[2][2];  // [columns 0 and 1, or 2 and 3][even rows, or odd ones], a byte for each row
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const u32 upper = __byte_perm(eight[odd], eight[odd + 4], 0x5410);
      const u32 lower = __byte_perm(eight[odd + 2], eight[odd + 6], 0x5410);
      pair[0][odd] = __byte_perm(upper, lower, 0x6240);
      pair[1][odd] = __byte_perm(upper, lower, 0x7351);
    }
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      column[2 * p].word[w] = merge_bits<0xF0F0F0F0u>(pair[p][0], pair[p][1] << 4);
      column[2 * p + 1].word[w] = merge_bits<0xF0F0F0F0u>(pair[p][0] >> 4, pair[p][1]);
    }
  }
}

// Stores `blocks` scales, four at a time, of each of `lines` lines from (line, block) on, where allocated. scale: one
// word for sixteen lines
template <ScaleLayout layout, int bands, int words>
__device__ __forceinline__ void store_scales_16x16(
    const u32 (&scale)[bands][words], u8* __restrict__ scale_inv, const ScaleExtents& extents, int line, int block,
    int lines, int blocks) {
  const int word = threadIdx.x % words, at_block = block + word * 4;
  if (word * 4 >= blocks || at_block >= extents.padded_blocks) return;
#pragma unroll
  for (int first = 0; first < bands * kBlock; first += kBlock16x16Launch.threads / words) {
    const int further = first + threadIdx.x / words;
    if (further < lines && line + further < extents.padded_rows) {
      const i64 offset = scale_offset<layout>(line + further, at_block, extents.padded_blocks);
      *reinterpret_cast<u32*>(scale_inv + offset) = scale[further / kBlock][word];
    }
  }
}

// Encodes the part of a CTA's tile inside the matrix, and writes the padding of its scales. All threads call this once.
// amax: of the whole matrix, the same for both directions; not read without the second level
template <
    Outputs outputs, ScaleLayout scale_layout, ScaleFormat format = ScaleFormat::e4m3, bool two_levels = true,
    typename Dtype>
__device__ __forceinline__ void encode_block_16x16(
    CodesSmem& shared, const Dtype* __restrict__ input, const float* __restrict__ amax, const Quantized& rowwise,
    const Quantized& columnwise, int rows, int cols, const CtaTile& tile) {
  using Pass = TransposePass<Dtype>;
  const ScaleExtents rowwise_extents(rows, u32(cols) / kBlock), columnwise_extents(cols, u32(rows) / kBlock);
  GlobalScaleOf<format> global = {};
  for (int row = 0; row < tile.rows; row += Pass::kRows) {
#pragma unroll 1
    for (int col = 0; col < tile.cols; col += Pass::kCols) {
      const typename Pass::Role role;
      const int band = u32(row) / kBlock + role.band, block = u32(col) / kBlock + role.block;
      const int first_row = tile.row + row + role.row(0), block_col = u32(tile.col) / kBlock + block;
      Packed16<Dtype> x[Pass::kLines];
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) {
        x[i] = load_block<true>(input, rowwise_extents, first_row + i * role.kStep, block_col);
      }
      if (row == 0 && col == 0) {
        wait_for_launch_ahead();
        global = tensor_scale<format, two_levels>(amax_of_launch_ahead<two_levels>(amax));
      }
      float tile_amax[Pass::kLines];
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) tile_amax[i] = block_amax(x[i]);
      amax_16x16<Pass::kBlocks>(tile_amax);
#pragma unroll
      for (int i = 0; i < Pass::kLines; ++i) {
        float values[kBlock];
        unpack(x[i], values);
        const EncodedBlock encoded = encode_block<Multiplier::reciprocal>(values, tile_amax[0], global);
        shared.put(band, role.row_in_band(i), block, encoded.codes);
        if (i == 0 && role.first == 0) shared.put_scale(band, block, encoded.scale_inv);
      }
    }
  }
  __syncthreads();
  const int block_row = u32(tile.row) / kBlock, block_col = u32(tile.col) / kBlock;
  if constexpr (outputs != Outputs::columnwise) {
    // Neighbouring lanes hold the blocks of a row.
    const u32 blocks = u32(tile.cols) / kBlock;
    const int block = threadIdx.x % blocks;
#pragma unroll 4
    for (int row = threadIdx.x / blocks; row < tile.rows; row += kBlock16x16Launch.threads / blocks) {
      const BlockPlace place(rowwise_extents, tile.row + row, block_col + block);
      if (place.inside) store_codes(rowwise.data + place.element / 2, 0, shared.block(row, block));
    }
    store_scales_16x16<scale_layout>(
        shared.scale_inv, rowwise.scale_inv, rowwise_extents, tile.row, block_col, tile.rows, blocks);
  }
  const CodesColumnRole role(tile);
#pragma unroll 1
  for (int col = role.col; col < tile.cols; col += role.step) {
    Codes16 column[CodesColumnRole::kCols];
    transpose_codes(shared, role.band, col, column);
#pragma unroll
    for (int i = 0; i < CodesColumnRole::kCols; ++i) {
      const BlockPlace place(columnwise_extents, tile.col + col + i, block_row + role.band);
      if (place.inside) store_codes(columnwise.data + place.element / 2, 0, column[i]);
    }
  }
  store_scales_16x16<scale_layout>(
      shared.transposed_scale_inv, columnwise.scale_inv, columnwise_extents, tile.col, block_row, tile.cols,
      tile.rows / kBlock);
}
