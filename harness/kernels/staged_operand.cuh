// Lines of a packed operand on their way from global to shared memory, 128 elements along K at a time, still packed.
#pragma once

#include "layout.cuh"
#include "matrix_unit.cuh"

constexpr int kStageBlocks = 8;  // scale blocks of 16 along K

// Member t of a group takes blocks 2t and 2t + 1 of a line. What lies together here is what a warp reads at once.
template <int lines>
struct StagedLines {
  uint2 codes[2][lines][4];  // block % 2, line, block / 2
  u32 scales[lines][2];      // four e4m3 bytes
};

// A (lines, K) operand, from line `first` on; lines beyond the last are made of that one.
template <ScaleLayout scale_layout>
struct PackedOperand {
  const u8* data;       // (lines, K/2) e2m1 pairs
  const u8* scale_inv;  // (round_up(lines, 128), round_up(K/16, 4)) e4m3
  int first, left;      // left: lines from `first` to the last
  int blocks, padded_blocks;

  __device__ PackedOperand(const u8* data, const u8* scale_inv, int lines, int K, int first)
      : data(data),
        scale_inv(scale_inv),
        first(first),
        left(lines - first),
        blocks(u32(K) / kBlock),
        padded_blocks(round_up(u32(K) / kBlock, 4)) {}

  // The eight bytes of a block
  __device__ const u8* codes_at(int line, int block) const {
    return data + (row_offset(first + min(line, left - 1), blocks) + block) * (kBlock / 2);
  }
  __device__ const u8* scales_at(int line, int block) const {
    return scale_inv + scale_offset<scale_layout>(first + line, block, padded_blocks);
  }

  // `count` lines and the eight blocks from `block` on to `stage`, from its line `target` on, by `threads` threads.
  // Zeros beyond K.
  template <int count, int threads, int lines>
  __device__ void copy(StagedLines<lines>& stage, int target, int block, int thread) const {
    constexpr int kTogether = threads / kStageBlocks, kScalesTogether = threads / 2;
    const int piece = thread % kStageBlocks;
#pragma unroll
    for (int i = 0; i < count / kTogether; ++i) {
      const int line = i * kTogether + thread / kStageBlocks;
      copy_async<8>(
          &stage.codes[piece % 2][target + line][piece / 2], codes_at(line, block + piece), block + piece < blocks);
    }
    const int four = block + thread % 2 * 4;
#pragma unroll
    for (int i = 0; i < (count + kScalesTogether - 1) / kScalesTogether; ++i) {
      const int line = i * kScalesTogether + thread / 2;
      if (count % kScalesTogether == 0 || line < count)
        copy_async<4>(&stage.scales[target + line][thread % 2], scales_at(line, four), four < padded_blocks);
    }
  }
};

// The scales of blocks 2t and 2t + 1 of a line of a stage, t being this lane's member
template <int lines>
__device__ __forceinline__ u32 staged_scales(const StagedLines<lines>& stage, int line, int member) {
  return reinterpret_cast<const u16*>(stage.scales[line])[member];
}
