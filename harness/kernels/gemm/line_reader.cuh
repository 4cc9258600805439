// Packed lines of an operand straight to registers, for mainloops in which each lane decodes what it read itself.
#pragma once

#include "gemm/smem_pipeline.cuh"

// A lane's part of a stage of a line: blocks 2t and 2t + 1
struct Piece {
  u32 codes[4];
  u32 scales;
};

// A lane's reads along a line. Beyond the last line it reads the last, whose results are never stored.
template <ScaleLayout scale_layout>
struct LineReader {
  const u8 *codes, *scales;

  __device__ LineReader(const GemmOperand<scale_layout>& operand, int line, int block) {
    const int existing = line < operand.lines ? line : operand.lines - 1;
    codes = operand.codes_at(existing, block);
    scales = operand.scales_at(existing, block);
  }

  __device__ Piece piece() const {
    Piece piece;
    // Prefetches the next stages of the line into L2: 256 bytes are four.
    asm volatile("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(piece.codes[0]), "=r"(piece.codes[1]), "=r"(piece.codes[2]), "=r"(piece.codes[3])
                 : "l"(codes));
    piece.scales = __ldg(reinterpret_cast<const u16*>(scales));
    return piece;
  }

  // Reads one block at a time, with zeros beyond K. left: blocks to the end of the line
  __device__ Piece piece(int left) const {
    Piece piece = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= left) continue;
      const uint2 codes_of_block = __ldg(reinterpret_cast<const uint2*>(codes) + i);
      piece.codes[2 * i] = codes_of_block.x;
      piece.codes[2 * i + 1] = codes_of_block.y;
      piece.scales |= u32(__ldg(scales + i)) << 8 * i;
    }
    return piece;
  }

  __device__ void advance(int stages) {
    codes += stages * kStageBlocks * (kBlock / 2);
    scales += stages * (scale_layout == ScaleLayout::compact ? kStageBlocks : kStageBlocks / 4 * 512);
  }
};
