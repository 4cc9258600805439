// 64 columns of A * B^T for at most 64 rows of A, by one block of threads, from packed operands.
//
// There is little to multiply and all of B to read, so B goes from global memory straight to the registers of the only
// lanes that want it, and the warps of a block share K: warp w takes every eighth stage of 128, from stage w on. Their
// sums are added in order of w, so that the result depends neither on the number of rows nor on chance. B is the wide
// operand of the matrix unit and A the narrow one: a single row of A is padded to 8, not to 16.
#pragma once

#include "halves.cuh"
#include "staged_operand.cuh"

struct GemmSkinny {
  static constexpr int kRows = 64, kCols = 64;  // lines of A and of B
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWide = kCols / 16;
  static constexpr int kSumRows = 16;    // added up at a time
  static constexpr int kSumStride = 68;  // floats; no two lanes that store meet in a bank

  // Stages a warp has on the way or at hand: what registers and shared memory allow.
  template <int narrow>
  static constexpr int kDepth = narrow == 8 ? 1 : 2;

  union Shared {
    StagedLines<kRows> a[kWarps];  // narrow < 8 uses this as more, but smaller stages
    float sums[kWarps][kSumRows][kSumStride];
  };

  // This lane's part of a stage of B, 16 lines: i is line 8i + g
  struct Codes {
    uint4 word[2 * kWide];
    u32 scales[2 * kWide];
  };

  template <ScaleLayout scale_layout>
  static __device__ void load(Codes& codes, const PackedOperand<scale_layout>& b, const Lane& lane, int block) {
    const int mine = block + 2 * lane.member;
    const bool inside = mine < b.blocks, pairs = b.blocks % 2 == 0;
#pragma unroll
    for (int i = 0; i < 2 * kWide; ++i) {
      const int line = 8 * i + lane.group;
      codes.scales[i] = inside ? __ldg(reinterpret_cast<const u16*>(b.scales_at(line, mine))) : 0;
      uint4 word = {};
      if (inside && pairs) {
        word = __ldg(reinterpret_cast<const uint4*>(b.codes_at(line, mine)));
      } else if (inside) {
        // Lines of an odd number of blocks are aligned to one only.
        const uint2* source = reinterpret_cast<const uint2*>(b.codes_at(line, mine));
        const uint2 low = __ldg(source), high = mine + 1 < b.blocks ? __ldg(source + 1) : make_uint2(0, 0);
        word = make_uint4(low.x, low.y, high.x, high.y);
      }
      codes.word[i] = word;
    }
  }

  template <int narrow>
  static __device__ void add_stage(
      Accumulator (&sum)[kWide][narrow], const Codes& b, const StagedLines<8 * narrow>& a, const Lane& lane) {
    HalfScales a_scale[narrow], b_scale[2 * kWide];
#pragma unroll
    for (int i = 0; i < narrow; ++i) a_scale[i] = HalfScales(staged_scales(a, 8 * i + lane.group, lane.member));
#pragma unroll
    for (int i = 0; i < 2 * kWide; ++i) b_scale[i] = HalfScales(b.scales[i]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint2 a_codes[narrow];
#pragma unroll
      for (int i = 0; i < narrow; ++i) a_codes[i] = a.codes[half][8 * i + lane.group][lane.member];
#pragma unroll
      for (int quad = 0; quad < 4; ++quad) {
        NarrowFragment line[narrow];
#pragma unroll
        for (int j = 0; j < narrow; ++j) {
          const HalfQuad codes = half_quad(quad < 2 ? a_codes[j].x : a_codes[j].y, quad % 2, a_scale[j].both(half));
          line[j] = {codes.pair[0], codes.pair[1]};
        }
#pragma unroll
        for (int i = 0; i < kWide; ++i) {
          const auto decode = [&](const uint4& word, const HalfScales& scale) {
            const u32 words[4] = {word.x, word.y, word.z, word.w};
            return half_quad(words[2 * half + quad / 2], quad % 2, scale.both(half));
          };
          const HalfQuad upper = decode(b.word[2 * i], b_scale[2 * i]);
          const HalfQuad lower = decode(b.word[2 * i + 1], b_scale[2 * i + 1]);
          const WideFragment wide = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
#pragma unroll
          for (int j = 0; j < narrow; ++j) multiply_add(sum[i][j], wide, line[j]);
        }
      }
    }
  }

  // narrow: groups of 8 rows. store(row, col, sums) takes four sums of a row, true ones, no unit left.
  template <int narrow, ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, typename Store>
  static __device__ void multiply(
      Shared& shared, const PackedOperand<a_scale_layout>& a, const PackedOperand<b_scale_layout>& b, Store store) {
    constexpr int kDepth = GemmSkinny::kDepth<narrow>, kStep = kWarps * kStageBlocks;
    using AStage = StagedLines<8 * narrow>;
    static_assert(kDepth * sizeof(AStage) <= sizeof(StagedLines<kRows>), "stages of A in the memory of one of 64 lines");
    const Lane lane;
    const int warp = threadIdx.x / 32;
    AStage* a_stage = reinterpret_cast<AStage*>(&shared.a[warp]);
    Accumulator sum[kWide][narrow] = {};
    Codes codes[kDepth];
    const auto fetch = [&](int slot, int block) {
      if (block < b.blocks) {
        load(codes[slot], b, lane, block);
        a.template copy<8 * narrow, 32>(a_stage[slot], 0, block, threadIdx.x % 32);
      }
      commit_copies();
    };
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) fetch(slot, warp * kStageBlocks + slot * kStep);
    for (int block = warp * kStageBlocks; block < b.blocks; block += kDepth * kStep) {
#pragma unroll
      for (int slot = 0; slot < kDepth; ++slot) {
        const int current = block + slot * kStep;
        if (current >= b.blocks) break;
        await_copies<kDepth - 1>();
        __syncwarp();
        add_stage(sum, codes[slot], a_stage[slot], lane);
        __syncwarp();
        fetch(slot, current + kDepth * kStep);
      }
    }
    await_copies<0>();
    add_warps(shared, sum, lane, store);
  }

  template <int narrow, typename Store>
  static __device__ void add_warps(
      Shared& shared, const Accumulator (&sum)[kWide][narrow], const Lane& lane, Store store) {
    float (&mine)[kSumRows][kSumStride] = shared.sums[threadIdx.x / 32];
#pragma unroll
    for (int first = 0; first < narrow; first += kSumRows / 8) {
      __syncthreads();
#pragma unroll
      for (int j = first; j < narrow && j < first + kSumRows / 8; ++j) {
        const int row = (j - first) * 8 + 2 * lane.member;
#pragma unroll
        for (int i = 0; i < kWide; ++i) {
          const int col = 16 * i + lane.group;
          mine[row][col] = sum[i][j].value[0];
          mine[row + 1][col] = sum[i][j].value[1];
          mine[row][col + 8] = sum[i][j].value[2];
          mine[row + 1][col + 8] = sum[i][j].value[3];
        }
      }
      __syncthreads();
      const int row = threadIdx.x / 16, col = threadIdx.x % 16 * 4;
      if (8 * first + row >= 8 * narrow) continue;
      float sums[4] = {};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        const float4 part = *reinterpret_cast<const float4*>(&shared.sums[warp][row][col]);
        sums[0] = __fadd_rn(sums[0], part.x);
        sums[1] = __fadd_rn(sums[1], part.y);
        sums[2] = __fadd_rn(sums[2], part.z);
        sums[3] = __fadd_rn(sums[3], part.w);
      }
#pragma unroll
      for (float& value : sums) value = __fmul_rn(value, 1.0f / kProductUnit);
      store(8 * first + row, col, sums);
    }
  }
};
