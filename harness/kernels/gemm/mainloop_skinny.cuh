// 64 columns of A * B^T for at most 64 rows of A, by one block of threads, from packed operands.
//
// There is little to multiply and all of B to read, so B goes from global memory straight to the registers of the only
// lanes that want it, and the warps of a block share K: warp w takes every eighth stage of 128, from stage w on. Their
// sums are added in order of w, so that the result depends neither on the number of rows nor on chance. B is the wide
// operand of the matrix unit and A the narrow one: a single row of A is padded to 8, not to 16.
#pragma once

#include "gemm/smem_pipeline.cuh"
#include "gemm/split_k_reduce.cuh"

struct GemmSkinny {
  static constexpr int kRows = 64, kCols = 64;  // lines of A and of B
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWide = kCols / 16;

  // Stages a warp has on the way or at hand: what registers and shared memory allow.
  template <int narrow>
  static constexpr int kDepth = narrow == 8   ? 1
                                : narrow == 2 ? 3
                                              : 2;

  // What a warp has in shared memory of a stage
  template <int narrow>
  struct WarpStage {
    StagedLines<8 * narrow> a;
    u32 b_scales[kCols][2];
  };

  static constexpr int kStagesBytes = kDepth<4> * sizeof(WarpStage<4>);  // of a warp

  union Shared {
    uint4 stages[kWarps][kStagesBytes / sizeof(uint4)];
    PartialSums<kWarps> sums;
  };

  // This lane's codes of a stage of B: blocks 2t and 2t + 1 of lines 8i + g
  struct Codes {
    uint4 word[2 * kWide];
  };

  // first: line of B where the block's columns begin. What is beyond the last line or beyond K is made of something
  // inside: those columns are never stored, and of A there are zeros beyond K.
  template <ScaleLayout scale_layout>
  static __device__ void load(
      Codes& codes, const PackedOperand<scale_layout>& b, int first, const Lane& lane, int block) {
    const int wanted = block + 2 * lane.member, mine = wanted < b.blocks ? wanted : 0;
    const u8* words = b.codes_at(first + lane.group, mine);
    const u32 to_next = made_here(u32(b.codes_step(8)));
    if (b.blocks % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 2 * kWide; ++i) {
        codes.word[i] = __ldg(reinterpret_cast<const uint4*>(words));
        if (first + 8 * (i + 1) < b.lines) words += to_next;
      }
    } else {
      // Lines are aligned to one block only.
      const int next = mine + 1 < b.blocks ? 1 : 0;
#pragma unroll
      for (int i = 0; i < 2 * kWide; ++i) {
        const uint2 low = __ldg(reinterpret_cast<const uint2*>(words));
        const uint2 high = __ldg(reinterpret_cast<const uint2*>(words) + next);
        codes.word[i] = make_uint4(low.x, low.y, high.x, high.y);
        if (first + 8 * (i + 1) < b.lines) words += to_next;
      }
    }
  }

  // sum[i][j]: columns 16i to 16i + 15, rows 8j to 8j + 7
  template <int narrow>
  static __device__ void add_stage(
      Accumulator (&sum)[kWide][narrow], const Codes& b, const WarpStage<narrow>& stage, const Lane& lane) {
    const StagedLines<8 * narrow>& a = stage.a;
    HalfScales a_scale[narrow], b_scale[2 * kWide];
#pragma unroll
    for (int i = 0; i < narrow; ++i) a_scale[i] = HalfScales(two_scales(a.scales[8 * i + lane.group], lane.member));
#pragma unroll
    for (int i = 0; i < 2 * kWide; ++i)
      b_scale[i] = HalfScales(two_scales(stage.b_scales[8 * i + lane.group], lane.member));
#pragma unroll
    for (int quad = 0; quad < 8; ++quad) {
      const int half = quad / 4, word = quad % 4 / 2, parity = quad % 2;
      WideFragment wide[kWide];
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const auto decode = [&](int of) {
          const uint4& codes = b.word[of];
          const u32 words[4] = {codes.x, codes.y, codes.z, codes.w};
          return half_quad(words[2 * half + word], parity, b_scale[of].both(half));
        };
        const HalfQuad upper = decode(2 * i), lower = decode(2 * i + 1);
        wide[i] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
      }
#pragma unroll
      for (int j = 0; j < narrow; ++j) {
        const uint2* codes = &a.codes[half][8 * j + lane.group][lane.member];
        // volatile: read for each half of its codes anew, or registers run short
        const u32 a_word = reinterpret_cast<const volatile u32*>(codes)[word];
        const HalfQuad line = half_quad(a_word, parity, a_scale[j].both(half));
#pragma unroll
        for (int i = 0; i < kWide; ++i) multiply_add(sum[i][j], wide[i], {line.pair[0], line.pair[1]});
      }
    }
  }

  // narrow: groups of 8 rows; first_a, first_b: lines of the operands where they begin. store(row, col, sums) takes
  // four sums of a row, true ones, no unit left.
  template <int narrow, ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, typename Store>
  static __device__ void multiply(
      Shared& shared, const PackedOperand<a_scale_layout>& a, const PackedOperand<b_scale_layout>& b, int first_a,
      int first_b, const Store& store) {
    constexpr int kDepth = GemmSkinny::kDepth<narrow>, kStep = kWarps * kStageBlocks;
    static_assert(kDepth * sizeof(WarpStage<narrow>) <= kStagesBytes, "stages of a warp beyond its memory");
    const int first_block = threadIdx.x / 32 * kStageBlocks;
    const Lane lane(threadIdx.x);
    WarpStage<narrow>* stage = reinterpret_cast<WarpStage<narrow>*>(shared.stages[threadIdx.x / 32]);
    Accumulator sum[kWide][narrow] = {};
    Codes codes[kDepth];
    const auto fetch = [&](int slot, int block) {
      if (block < b.blocks) {
        load(codes[slot], b, first_b, lane, block);
        const StageFeed<8 * narrow, 32> a_feed(a, made_here(first_a), block);
        const StageFeed<kCols, 32> b_feed(b, made_here(first_b), block);
        a_feed.copy(stage[slot].a, 0, b.blocks - block);
        b_feed.copy_scales(stage[slot].b_scales, b.blocks - block);
      }
      commit_copies();
    };
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) fetch(slot, first_block + slot * kStep);
    for (int block = first_block; block < b.blocks; block += kDepth * kStep) {
#pragma unroll
      for (int slot = 0; slot < kDepth; ++slot) {
        const int current = block + slot * kStep;
        if (current >= b.blocks) break;
        await_copies<kDepth - 1>();
        __syncwarp();
        add_stage(sum, codes[slot], stage[slot], lane);
        __syncwarp();
        fetch(slot, current + kDepth * kStep);
      }
    }
    await_copies<0>();
    shared.sums.add(sum, threadIdx.x / 32, 0, lane, store);
  }
};
