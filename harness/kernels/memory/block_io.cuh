// Loads and stores of words and of 16-blocks. A line is a row, or columnwise a row of the transpose.
#pragma once

#include "memory/scale_layout.cuh"
#include "numerics/e2m1.cuh"

// Loads consecutive words, 16 bytes at a time. source: aligned to 16 bytes
template <int count>
__device__ __forceinline__ void load_words(const void* __restrict__ source, u32 (&word)[count]) {
  const uint4* vectors = reinterpret_cast<const uint4*>(source);
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const uint4 v = __ldg(vectors + i);
    word[4 * i] = v.x;
    word[4 * i + 1] = v.y;
    word[4 * i + 2] = v.z;
    word[4 * i + 3] = v.w;
  }
}

// Like load_words, but in program order: volatile asm stays ahead of a later wait_for_launch_ahead(), whereas the
// compiler moves that wait above __ldg.
template <int count>
__device__ __forceinline__ void load_words_in_order(const void* source, u32 (&word)[count]) {
#if __CUDA_ARCH__ >= 900
#pragma unroll
  for (int i = 0; i < count; i += 4) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[i]), "=r"(word[i + 1]), "=r"(word[i + 2]), "=r"(word[i + 3])
                 : "l"(static_cast<const u32*>(source) + i));
  }
#else
  load_words(source, word);
#endif
}

// in_order: see load_words_in_order
template <bool in_order = false, typename Dtype>
__device__ __forceinline__ Packed16<Dtype> load16(const Dtype* __restrict__ source) {
  Packed16<Dtype> x;
  if constexpr (in_order)
    load_words_in_order(source, x.word);
  else
    load_words(source, x.word);
  return x;
}

// Stores the sixteen codes of block `block`, 8 bytes.
__device__ __forceinline__ void store_codes(u8* data, i64 block, const Codes16& codes) {
  reinterpret_cast<uint2*>(data)[block] = make_uint2(codes.word[0], codes.word[1]);
}

// ---------------------------------------------------------------------------------------------------------------------
// Blocks of a matrix of `extents.rows` lines, `extents.blocks` to a line
// ---------------------------------------------------------------------------------------------------------------------

// A block's first element, and whether the matrix has such a block
struct BlockPlace {
  i64 element;
  bool inside;

  __device__ BlockPlace(const ScaleExtents& extents, int line, int block)
      : element(row_offset(line, extents.blocks * kBlock) + block * kBlock), inside(extents.holds(line, block)) {}
};

// Zeros outside the matrix. in_order: see load_words_in_order
template <bool in_order = false, typename Dtype>
__device__ __forceinline__ Packed16<Dtype> load_block(
    const Dtype* __restrict__ input, const ScaleExtents& extents, int line, int block) {
  const BlockPlace place(extents, line, block);
  if (!place.inside) return {};
  return load16<in_order>(input + place.element);
}

// Prologue of a quantizer that takes its input as it is
template <typename Dtype, bool in_order = false>
struct InputPrologue {
  const Dtype* __restrict__ input;  // (rows, cols)

  __device__ Packed16<Dtype> block(i64 first) const { return load16<in_order>(input + first); }
  __device__ Packed16<Dtype> block(const ScaleExtents& extents, int line, int block) const {
    return load_block<in_order>(input, extents, line, block);
  }
};

// The number of a block, counted along lines
__device__ __forceinline__ i64 block_index(const ScaleExtents& extents, int line, int block) {
  return row_offset(line, extents.blocks) + block;
}

// Stores codes and scale byte of a block. Outside the matrix only the padding is written: load_block gave zeros there,
// so the scale byte is 0.
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

// Bytes from a block's scale to that of the block `further` lines on, within the same 128 lines. Swizzled: unless
// `further` is a multiple of 32, both lines are in the same 32.
template <ScaleLayout layout>
__device__ __forceinline__ i64 scale_stride(int further, int padded_blocks) {
  if constexpr (layout == ScaleLayout::compact) return i64(further) * padded_blocks;
  return further % 32 * 16 + further / 32 * 4;
}

// Output of one direction; null if absent
struct Quantized {
  u8* __restrict__ data;       // (lines, elements/2) e2m1 pairs
  u8* __restrict__ scale_inv;  // (lines, elements/16) e4m3, padded
};

// A thread's stores to a tile of 128 lines: the block at (line, block), and blocks below it in the same column of
// blocks.
// edges: whether the tile may reach beyond the matrix
template <ScaleLayout layout, bool edges = true>
struct TileStore {
  u8 *data, *scale_inv;        // at (line, block)
  int lines, allocated_lines;  // lines from `line` on that have the block, or have it allocated; <= 0 if none
  int blocks, padded_blocks;

  __device__ TileStore(const Quantized& output, const ScaleExtents& extents, int line, int block)
      : data(output.data + BlockPlace(extents, line, block).element / 2),
        scale_inv(output.scale_inv + scale_offset<layout>(line, block, extents.padded_blocks)),
        lines(block < extents.blocks ? extents.rows - line : 0),
        allocated_lines(block < extents.padded_blocks ? extents.padded_rows - line : 0),
        blocks(extents.blocks),
        padded_blocks(extents.padded_blocks) {}

  // Stores like `store_block`, `further` lines on.
  __device__ void store(int further, const EncodedBlock& encoded) const {
    if (!edges || further < lines) store_codes(data, row_offset(further, blocks), encoded.codes);
    if (!edges || further < allocated_lines) {
      scale_inv[scale_stride<layout>(further, padded_blocks)] = u8(encoded.scale_inv);
    }
  }
};
