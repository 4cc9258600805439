// A 128x128 tile of A * B^T by one block of threads, from packed operands.
//
// Codes and scales come into shared memory as they are, 4.5 bits a value, and are decoded on the way from there to the
// registers of the warp that multiplies them, each word once for 64 lines of the other operand.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/smem_pipeline.cuh"

struct GemmTile {
  static constexpr int kLines = 128;  // of A and of B
  static constexpr int kWarps = 4;    // two by two
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 2;  // one decodes while the other multiplies
  static constexpr int kWarpLines = 64;   // of A and of B
  static constexpr int kWide = kWarpLines / 16, kNarrow = kWarpLines / 8;
  static constexpr int kSlabStride = 72;  // floats; no two groups of a warp meet in a bank

  union Shared {
    StagedLines<2 * kLines> stage[2];      // lines of A, then lines of B
    float slab[kWarps][16 * kSlabStride];  // 16 rows of a warp's sums
  };

  int warp_row, warp_col;           // of this warp's 64x64
  Accumulator sum[kWide][kNarrow];  // rows 16i to 16i + 15, columns 8j to 8j + 7

  __device__ GemmTile() : warp_row(threadIdx.x / 64 * kWarpLines), warp_col(threadIdx.x / 32 % 2 * kWarpLines), sum{} {}

  // first_a, first_b: lines of the operands where the tile begins
  template <ScaleLayout a_scale_layout, ScaleLayout b_scale_layout>
  __device__ void multiply(
      Shared& shared, const PackedOperand<a_scale_layout>& a, const PackedOperand<b_scale_layout>& b, int first_a,
      int first_b) {
    // Half the threads see to each operand.
    const bool sees_to_a = threadIdx.x < kThreads / 2;
    using Feed = StageFeed<kLines, kThreads / 2>;
    Feed feed = sees_to_a ? Feed(a, first_a, 0) : Feed(b, first_b, 0);
    const auto fetch = [&](int stage) {
      feed.copy(shared.stage[stage % 2], sees_to_a ? 0 : kLines, a.blocks - stage * kStageBlocks);
      feed.advance(1);
    };
    const int stages = (a.blocks + kStageBlocks - 1) / kStageBlocks;
    fetch(0);
    for (int stage = 0; stage < stages; ++stage) {
      commit_copies();
      await_copies<0>();
      // The copies of all threads have landed, and nobody reads the other stage any more.
      __syncthreads();
      if (stage + 1 < stages) fetch(stage + 1);
      add_stage(shared.stage[stage % 2]);
    }
  }

  __device__ void add_stage(const StagedLines<2 * kLines>& stage) {
    const Lane lane(threadIdx.x);
    HalfScales a_scale[2 * kWide], b_scale[kNarrow];
#pragma unroll
    for (int i = 0; i < 2 * kWide; ++i) a_scale[i] = HalfScales(two_scales(stage.scales[a_line(lane, i)], lane.member));
#pragma unroll
    for (int i = 0; i < kNarrow; ++i) b_scale[i] = HalfScales(two_scales(stage.scales[b_line(lane, i)], lane.member));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint2 a_codes[2 * kWide], b_codes[kNarrow];
#pragma unroll
      for (int i = 0; i < 2 * kWide; ++i) a_codes[i] = stage.codes[half][a_line(lane, i)][lane.member];
#pragma unroll
      for (int i = 0; i < kNarrow; ++i) b_codes[i] = stage.codes[half][b_line(lane, i)][lane.member];
#pragma unroll
      for (int quad = 0; quad < 4; ++quad) {
        const auto decode = [&](const uint2& codes, const HalfScales& scale) {
          return half_quad(quad < 2 ? codes.x : codes.y, quad % 2, scale.both(half));
        };
        WideFragment wide[kWide];
#pragma unroll
        for (int i = 0; i < kWide; ++i) {
          const HalfQuad upper = decode(a_codes[2 * i], a_scale[2 * i]);
          const HalfQuad lower = decode(a_codes[2 * i + 1], a_scale[2 * i + 1]);
          wide[i] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
        }
#pragma unroll
        for (int j = 0; j < kNarrow; ++j) {
          const HalfQuad line = decode(b_codes[j], b_scale[j]);
#pragma unroll
          for (int i = 0; i < kWide; ++i) multiply_add(sum[i][j], wide[i], {line.pair[0], line.pair[1]});
        }
      }
    }
  }

  __device__ int a_line(const Lane& lane, int i) const { return warp_row + 8 * i + lane.group; }
  __device__ int b_line(const Lane& lane, int i) const { return kLines + warp_col + 8 * i + lane.group; }

  // The whole block calls this; store(row, col, sums) takes eight sums of a row of the tile, true ones, no unit left.
  template <typename Store>
  __device__ void finish(Shared& shared, const Store& store) {
    const Lane lane(threadIdx.x);
    float* slab = shared.slab[threadIdx.x / 32];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
#pragma unroll
      for (int j = 0; j < kNarrow; ++j) {
        float* target = slab + lane.group * kSlabStride + 8 * j + 2 * lane.member;
        const float* value = sum[i][j].value;
        *reinterpret_cast<float2*>(target) = make_float2(value[0], value[1]);
        *reinterpret_cast<float2*>(target + 8 * kSlabStride) = make_float2(value[2], value[3]);
      }
      __syncwarp();
#pragma unroll 2  // all four, and registers run short
      for (int k = 0; k < 4; ++k) {
        const int row = 4 * k + threadIdx.x % 32 / 8, col = threadIdx.x % 8 * 8;
        const float4* source = reinterpret_cast<const float4*>(slab + row * kSlabStride + col);
        const float4 low = source[0], high = source[1];
        float sums[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (float& value : sums) value = __fmul_rn(value, 1.0f / kProductUnit);
        store(warp_row + 16 * i + row, warp_col + col, sums);
      }
      __syncwarp();
    }
  }
};
