// A tile of at most 64 rows and 64 columns of A * B^T by a CTA, for few rows, with mma.sync.
//
// The codes of B, which bound the kernel, go from global memory straight to the registers of the lanes that use them, and
// its scales through shared memory; A is decoded already, and read from the L2. Warp w takes stages w, w + 8, w + 16, ...
// of 128 elements along K, and their sums are added in order of w, so the result depends neither on the number of rows
// nor on timing. B is the M operand of the mma and A the N operand, so that one row of A is padded to 8 and not to 16.
#pragma once

#include "gemm/decoded_lines.cuh"
#include "gemm/split_k_reduce.cuh"
#include "scheduler/dependent_launch.cuh"

struct MainloopSkinny {
  static constexpr int kRows = 64, kCols = 64;  // lines of A and of B
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kM16 = kCols / 16;

  // A warp's stages in flight, as many as registers allow
  template <int n8>
  static constexpr int kDepth = n8 >= 4 ? 1 : 2;

  // A warp's scales of a stage
  struct StageScales {
    u32 of_line[kCols][2];
  };

  union Shared {
    StageScales scales[kWarps][kDepth<1>];
    SplitKReduce<kWarps> sums;
  };

  // A lane's codes of a stage of B: blocks 2t and 2t + 1 of lines 8i + g
  struct Codes {
    uint4 word[2 * kM16];
  };

  // first: the CTA's first line of B. Beyond the last line or K some other block is loaded: such columns are never
  // stored, and beyond K both A and the scales of B are zero.
  template <ScaleLayout scale_layout, ScaleFormat scale_format>
  static __device__ void load(
      Codes& codes, const GemmOperand<scale_layout, scale_format>& b, int first, const MmaLane& lane, int block) {
    const int wanted = block + 2 * lane.member, mine = wanted < b.blocks ? wanted : 0;
    const u8* words = b.codes_at(first + lane.group, mine);
    const u32 to_next = opaque(u32(b.codes_step(8)));
    if (b.blocks % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 2 * kM16; ++i) {
        codes.word[i] = __ldg(reinterpret_cast<const uint4*>(words));
        if (first + 8 * (i + 1) < b.lines) words += to_next;
      }
    } else {
      // Lines are aligned to one block only.
      const int next = mine + 1 < b.blocks ? 1 : 0;
#pragma unroll
      for (int i = 0; i < 2 * kM16; ++i) {
        const uint2 low = __ldg(reinterpret_cast<const uint2*>(words));
        const uint2 high = __ldg(reinterpret_cast<const uint2*>(words) + next);
        codes.word[i] = make_uint4(low.x, low.y, high.x, high.y);
        if (first + 8 * (i + 1) < b.lines) words += to_next;
      }
    }
  }

  // sum[i][j]: columns 16i to 16i + 15, rows 8j to 8j + 7; a: the decoded stage
  template <ScaleFormat scale_format, int n8>
  static __device__ void add_stage(
      Accumulator (&sum)[kM16][n8], const Codes& b, const StageScales& scales, const u32* a, const MmaLane& lane) {
    u32 b_scale[2 * kM16];  // scales of half a stage
#pragma unroll
    for (int quad = 0; quad < 2 * kHalfStageSteps; ++quad) {
      const int half = quad / kHalfStageSteps, word = quad % kHalfStageSteps / 2, parity = quad % 2;
#pragma unroll
      for (int i = 0; quad % kHalfStageSteps == 0 && i < 2 * kM16; ++i) {
        // volatile, so that it is read for each half: held in registers, it would make them spill
        const volatile u16* two = reinterpret_cast<const volatile u16*>(scales.of_line[8 * i + lane.group]);
        b_scale[i] = ScalesF16x2<scale_format>(two[lane.member]).both(half);
      }
      FragmentM16 m16[kM16];
#pragma unroll
      for (int i = 0; i < kM16; ++i) {
        const auto decode = [&](int of) {
          const uint4& codes = b.word[of];
          const u32 words[4] = {codes.x, codes.y, codes.z, codes.w};
          return dequant_4<scale_format>(words[2 * half + word], parity, b_scale[of]);
        };
        const CodesF16x4 upper = decode(2 * i), lower = decode(2 * i + 1);
        m16[i] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
      }
#pragma unroll
      for (int j = 0; j < n8; ++j) {
        const u32* words = a + (2 * quad * n8 + j) * 32 + threadIdx.x % 32;
        const FragmentN8 line = {word_of_launch_ahead(words), word_of_launch_ahead(words + n8 * 32)};
#pragma unroll
        for (int i = 0; i < kM16; ++i) mma_m16n8k16(sum[i][j], m16[i], line);
      }
    }
  }

  // n8: groups of 8 rows; a: decoded lines; first_b: first line of the tile. store(row, col, sums) takes four true sums of
  // a row.
  template <int n8, ScaleLayout b_scale_layout, ScaleFormat scale_format, typename Store>
  static __device__ void multiply(
      Shared& shared, const u32* a, const GemmOperand<b_scale_layout, scale_format>& b, int first_b,
      const Store& store) {
    constexpr int kDepth = MainloopSkinny::kDepth<n8>, kStep = kWarps * kStageBlocks;
    const int first_block = threadIdx.x / 32 * kStageBlocks;
    const MmaLane lane(threadIdx.x);
    StageScales(&scales)[MainloopSkinny::kDepth<1>] = shared.scales[threadIdx.x / 32];
    Accumulator sum[kM16][n8] = {};
    Codes codes[kDepth];
    const auto fetch = [&](int slot, int block) {
      if (block < b.blocks) {
        load(codes[slot], b, first_b, lane, block);
        const StageLoader<kCols, 32> b_loader(b, opaque(first_b), block);
        b_loader.copy_scales(scales[slot].of_line, b.blocks - block);
      }
      cp_async_commit();
    };
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) fetch(slot, first_block + slot * kStep);
    wait_for_launch_ahead();  // that launch decodes A
    for (int block = first_block; block < b.blocks; block += kDepth * kStep) {
#pragma unroll
      for (int slot = 0; slot < kDepth; ++slot) {
        const int current = block + slot * kStep;
        if (current >= b.blocks) break;
        cp_async_wait<kDepth - 1>();
        __syncwarp();
        const i64 half_stages = current / kStageBlocks * 2;
        add_stage<scale_format>(sum, codes[slot], scales[slot], a + half_stages * kHalfWords<n8>, lane);
        __syncwarp();
        fetch(slot, current + kDepth * kStep);
      }
    }
    shared.sums.add<scale_format>(sum, threadIdx.x / 32, 0, lane, store);
  }
};
