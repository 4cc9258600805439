// Packed lines of an operand through registers, for warps that have registers to spare. A ring in shared memory would
// write and read every byte there once more, and wgmma keeps shared memory busy half of the time already.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/mma.cuh"
#include "gemm/smem_pipeline.cuh"

// A warp's sixteen lines, a stage at a time. A line beyond the last is a copy of the last, and its results are never
// stored.
// pairs: whether lines have an even number of blocks, which aligns them to 16 bytes; otherwise to 8, one block
template <bool pairs, ScaleLayout scale_layout, ScaleFormat scale_format>
struct LoadedLines {
  using Operand = GemmOperand<scale_layout, scale_format>;

  static constexpr int kCodesStep = kStageBlocks * (kBlock / 2);  // bytes to the next stage
  static constexpr int kScalesStep = 2 * Operand::four_step();

  const u8* codes[2];   // codes of lines g and g + 8, at blocks 2t and 2t + 1 of an even stage
  const u8* scales[2];  // their scales
  int left;             // blocks along K from block 2t of the next stage on
  uint4 words[2];       // codes of the last loaded stage
  u32 scale_pairs[2];   // two scale bytes

  // Loads the first stage.
  __device__ LoadedLines(const Operand& operand, int first, const MmaLane& lane)
      : left(operand.blocks - 2 * int(lane.member)) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int line = min(first + int(lane.group) + 8 * i, operand.lines - 1), block = 2 * lane.member;
      codes[i] = operand.codes_at(line, block);
      scales[i] = operand.scales_at(line, block);
      words[i] = {};
    }
    load(0);
  }

  // Loads the next stage. Beyond K, registers keep old codes, and scales of zero cancel them: set here if both blocks
  // of the pair are beyond K, read from the operand's zero padding if only the odd one is.
  // odd: the stage's number modulo 2, known to the compiler
  __device__ void load(int odd) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scale_pairs[i] = 0;
      if (left > 0) {
        const u8* const from = codes[i] + odd * kCodesStep;
        if (pairs) {
          words[i] = load_16(from);
        } else {
          const uint2 block = __ldg(reinterpret_cast<const uint2*>(from));
          words[i].x = block.x, words[i].y = block.y;
          if (left > 1) {
            const uint2 next = __ldg(reinterpret_cast<const uint2*>(from + 8));
            words[i].z = next.x, words[i].w = next.y;
          }
        }
        scale_pairs[i] = __ldg(reinterpret_cast<const u16*>(scales[i] + odd * kScalesStep));
      }
      if (odd == 1) codes[i] += 2 * kCodesStep, scales[i] += 2 * kScalesStep;
    }
    left -= kStageBlocks;
  }

  // Prefetches the surrounding 256 bytes into the L2.
  static __device__ uint4 load_16(const u8* from) {
    uint4 words;
    asm volatile("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from));
    return words;
  }

  // Passes the stage that was loaded last to take(step, upper, lower): four values of each of the lane's lines in each
  // of its eight multiplications (NUMERICS 10.2, H2).
  template <typename Take>
  __device__ void decode(const Take& take) const {
    const ScalesF16x2<scale_format> upper(scale_pairs[0]), lower(scale_pairs[1]);
    const u32 codes[2][4] = {
        {words[0].x, words[0].y, words[0].z, words[0].w}, {words[1].x, words[1].y, words[1].z, words[1].w}};
#pragma unroll
    for (int step = 0; step < 8; ++step)
      take(
          step, dequant_4<scale_format>(codes[0][step / 2], step % 2, upper.both(step / 4)),
          dequant_4<scale_format>(codes[1][step / 2], step % 2, lower.both(step / 4)));
  }
};
