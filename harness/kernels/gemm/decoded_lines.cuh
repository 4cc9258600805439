// A few lines of an operand as f16, decoded once for all CTAs that multiply them.
//
// They are in the order in which wgmma reads them from shared memory: half stages, one after the other, each with the
// even or the odd blocks of 128 elements along K. Zeros pad the lines to 8, 16, 32 or 64, and K to whole stages.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/mma.cuh"
#include "gemm/smem_pipeline.cuh"

constexpr int kHalfStageSteps = 4;  // matrix multiplications, of 16 along K, in half a stage

// Half a stage of 8 * n8 lines: [multiplication][eight of sixteen along K][line / 8][line % 8][two of eight]
template <int n8>
using DecodedHalf = u32[kHalfStageSteps][2][n8][8][4];
template <int n8>
constexpr int kHalfWords = sizeof(DecodedHalf<n8>) / sizeof(u32);

// Groups of 8 lines, with the padding, for this many lines
__device__ __forceinline__ int decoded_n8(int lines) { return lines <= 8 ? 1 : lines <= 16 ? 2 : lines <= 32 ? 4 : 8; }

__device__ __forceinline__ int stages_of(int blocks) { return (blocks + kStageBlocks - 1) / kStageBlocks; }

// Decodes all lines; a warp takes half a stage of eight lines at a time. warp: number in the grid, of `warps`
template <ScaleLayout scale_layout, ScaleFormat scale_format>
__device__ __forceinline__ void decode_lines(
    const GemmOperand<scale_layout, scale_format>& operand, u32* __restrict__ decoded, int warp, int warps) {
  const MmaLane lane(threadIdx.x);
  const int n8 = decoded_n8(operand.lines), parts = 2 * stages_of(operand.blocks) * n8;
  for (int part = warp; part < parts; part += warps) {
    const int half = part / n8, eight = part % n8;
    const int line = 8 * eight + lane.group, block = half / 2 * kStageBlocks + 2 * lane.member + half % 2;
    uint2 codes = make_uint2(0, 0);
    u32 byte = 0;
    if (line < operand.lines && block < operand.blocks) {
      codes = __ldg(reinterpret_cast<const uint2*>(operand.codes_at(line, block)));
      byte = __ldg(operand.scales_at(line, block));
    }
    const u32 scale = ScalesF16x2<scale_format>(byte).both(0);
    u32* target = decoded + (i64(half) * kHalfStageSteps * 2 * n8 + eight) * 32 + threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kHalfStageSteps; ++step) {
      const CodesF16x4 values = dequant_4<scale_format>(step / 2 ? codes.y : codes.x, step % 2, scale);
      target[(2 * step) * n8 * 32] = values.pair[0];
      target[(2 * step + 1) * n8 * 32] = values.pair[1];
    }
  }
}
