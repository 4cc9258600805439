// The cp.async pipeline: packed lines of an operand to shared memory, 128 elements along K at a time.
#pragma once

#include "memory/cp_async.cuh"
#include "memory/scale_layout.cuh"

// Hides a value's origin from the compiler, which would otherwise hoist what depends on it out of a loop and hold it in
// registers.
__device__ __forceinline__ u32 opaque(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---------------------------------------------------------------------------------------------------------------------
// Stages
// ---------------------------------------------------------------------------------------------------------------------

constexpr int kStageBlocks = 8;  // 16-blocks along K

// Ordered so that what a warp reads at once is contiguous: member t of a group reads blocks 2t and 2t + 1 of a line.
template <int lines>
struct SmemStage {
  uint2 codes[2][lines][4];  // block % 2, line, block / 2
  u32 scales[lines][2];      // four bytes

  static __device__ int part(int block) { return block % 2; }
  static __device__ int place(int block) { return block / 2; }
};

__device__ __forceinline__ u32 two_scales(const u32 (&fours)[2], int member) {
  return reinterpret_cast<const u16*>(fours)[member];
}

// A (lines, K) operand in global memory
template <ScaleLayout scale_layout, ScaleFormat scale_format = ScaleFormat::e4m3>
struct GemmOperand {
  const u8* data;       // (lines, K/2) e2m1 pairs
  const u8* scale_inv;  // (round_up(lines, 128), round_up(K/16, 4)) in scale_format
  int lines, blocks;

  __device__ const u8* codes_at(int line, int block) const {
    return data + (row_offset(line, blocks) + block) * (kBlock / 2);
  }
  __device__ const u8* scales_at(int line, int block) const {
    return scale_inv + scale_offset<scale_layout>(line, block, round_up(blocks, 4));
  }
  // Bytes between the codes of two lines
  __device__ i64 codes_step(int lines_apart) const { return row_offset(lines_apart, blocks) * (kBlock / 2); }
  // Bytes between the scales of two lines 32 apart in the same 128
  __device__ i64 scales_step() const { return scale_offset<scale_layout>(32, 0, round_up(blocks, 4)); }
  // Bytes between groups of four scales of a line
  static constexpr __device__ int four_step() { return scale_layout == ScaleLayout::compact ? 4 : 512; }
};

// `threads` threads that load `count` lines of an operand, from line `first` on, stage by stage. Zeros beyond the last
// line and beyond K.
template <int count, int threads>
struct StageLoader {
  static constexpr int kLinesPerCopy = threads / kStageBlocks;  // lines of codes copied at a time
  static constexpr int kScaleFours = threads >= 64 ? 1 : 2;     // groups of four scales of a line that a thread copies
  static_assert(threads == 32 || threads == 64, "the lines whose scales a thread copies are 32 apart");

  const u8 *codes, *scales;     // codes and scales of this thread's first line
  u32 codes_step, scales_step;  // bytes to its next line
  int four_step;
  int codes_left;  // lines from this thread's first to the last

  // first_block: along K
  template <ScaleLayout scale_layout, ScaleFormat scale_format>
  __device__ StageLoader(const GemmOperand<scale_layout, scale_format>& operand, int first, int first_block) {
    const int line = first + thread() / kStageBlocks;
    codes = operand.codes_at(line, first_block + piece());
    codes_step = u32(operand.codes_step(kLinesPerCopy));
    codes_left = operand.lines - line;
    scales = operand.scales_at(first + scale_line(), first_block + 4 * scale_four());
    scales_step = u32(operand.scales_step());
    four_step = operand.four_step();
  }

  static __device__ int thread() { return threadIdx.x % threads; }
  static __device__ int piece() { return threadIdx.x % kStageBlocks; }
  static __device__ int scale_line() { return kScaleFours == 1 ? thread() / 2 : thread(); }
  static __device__ int scale_four() { return kScaleFours == 1 ? threadIdx.x % 2 : 0; }

  // Copies this stage to the lines of `stage` from `target` on. left: blocks along K from its first
  template <typename Stage>
  __device__ void copy(Stage& stage, int target, int left) const {
    const u32 to_next = opaque(codes_step);
    const int existing = piece() < left ? codes_left : 0;
    const u8* source = codes;
    auto* lines_target = stage.codes[Stage::part(piece())] + target + thread() / kStageBlocks;
#pragma unroll
    for (int i = 0; i < count / kLinesPerCopy; ++i) {
      cp_async<8>(&lines_target[i * kLinesPerCopy][Stage::place(piece())], source, i * kLinesPerCopy < existing);
      source += to_next;
    }
    copy_scales(stage.scales + target, left);
  }

  __device__ void copy_scales(u32 (*target)[2], int left) const {
    const u32 to_next = opaque(scales_step);
    const u8* source = scales;
#pragma unroll
    for (int i = 0; i < (count + 31) / 32; ++i) {
      const int line = scale_line() + 32 * i;
      if (count % 32 != 0 && line >= count) continue;
#pragma unroll
      for (int k = 0; k < kScaleFours; ++k) {
        const int four = scale_four() + k;
        cp_async<4>(&target[line][four], source + k * four_step, 4 * four < left);
      }
      source += to_next;
    }
  }

  // Moves on by `stages` stages along K.
  __device__ void advance(int stages) {
    codes += stages * kStageBlocks * (kBlock / 2);
    scales += stages * 2 * four_step;
  }
};
