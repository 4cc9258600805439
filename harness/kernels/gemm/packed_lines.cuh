// Packed lines of an operand through a ring of stages in shared memory, for gemm_skinny, where each lane decodes the
// codes that it copied itself.
//
// Loads into registers would be simpler, but the compiler waits for all of them at once. cp.async waits for one stage
// and leaves the others in flight.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/mma.cuh"
#include "gemm/smem_pipeline.cuh"

// A stage of sixteen lines. A lane reads only codes that it copied itself, but scales that any lane of its warp copied.
struct PackedStage {
  uint4 codes[2][32];  // [line g, or g + 8][lane]: blocks 2t and 2t + 1
  u16 scales[16][4];   // [line][t]: blocks 2t and 2t + 1
};

// The blocks that a lane decodes of one line of a stage: 2t and 2t + 1
template <ScaleFormat scale_format>
struct PackedPiece {
  u32 codes[4];
  ScalesF16x2<scale_format> scales;

  // line: 0 for line g, 1 for line g + 8
  __device__ PackedPiece(const PackedStage& stage, int line, const MmaLane& lane)
      : scales(stage.scales[lane.group + 8 * line][lane.member]) {
    const uint4 words = stage.codes[line][threadIdx.x % 32];
    codes[0] = words.x, codes[1] = words.y, codes[2] = words.z, codes[3] = words.w;
  }

  // The four elements of this lane in multiplication `step` of the stage's eight (NUMERICS 10.2, H2)
  __device__ CodesF16x4 values(int step) const {
    return dequant_4<scale_format>(codes[step / 2], step % 2, scales.both(step / 4));
  }
};

// A warp's copies of sixteen lines, of every `apart`-th stage. A line beyond the last is a copy of the last, and its
// results are never stored.
template <int apart>
struct PackedLines {
  const u8* codes[2];  // codes of lines g and g + 8, at the lane's first block
  const u8* scales;    // scales of scale_line(), four blocks from 4 * scale_four() on
  int left;            // blocks along K from the next stage's first on
  int four_step;

  template <ScaleLayout scale_layout, ScaleFormat scale_format>
  __device__ PackedLines(
      const GemmOperand<scale_layout, scale_format>& operand, int first, int first_block, const MmaLane& lane)
      : left(operand.blocks - first_block), four_step(operand.four_step()) {
    const int last = operand.lines - 1, block = first_block + 2 * lane.member;
    codes[0] = operand.codes_at(min(first + lane.group, last), block);
    codes[1] = operand.codes_at(min(first + lane.group + 8, last), block);
    scales = operand.scales_at(min(first + scale_line(), last), first_block + 4 * scale_four());
  }

  // The line and the half of its eight scales that this lane copies
  static __device__ int scale_line() { return threadIdx.x % 32 / 2; }
  static __device__ int scale_four() { return threadIdx.x % 2; }

  // Starts the copy of a stage and moves on to the next; zeros beyond K.
  // pairs: whether lines have an even number of blocks, which aligns them to 16 bytes; otherwise to 8, one block
  __device__ void copy(PackedStage& stage, bool pairs) {
    const int mine = left - threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      u8* const target = reinterpret_cast<u8*>(&stage.codes[i][threadIdx.x % 32]);
      if (pairs) {
        cp_async_16(target, codes[i], mine > 0);
      } else {
        cp_async<8>(target, codes[i], mine > 0);
        cp_async<8>(target + 8, codes[i] + (mine > 1 ? 8 : 0), mine > 1);
      }
      codes[i] += apart * kStageBlocks * (kBlock / 2);
    }
    cp_async<4>(&stage.scales[scale_line()][2 * scale_four()], scales, 4 * scale_four() < left);
    scales += apart * 2 * four_step;
    left -= apart * kStageBlocks;
  }
};
