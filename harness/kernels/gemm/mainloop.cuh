// A 128x128 tile of A * B^T by a CTA.
//
// Codes and scales are staged in shared memory as they are, 4.5 bits a value, and decoded on the way to registers, each
// word once for 64 lines of the other operand.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/mma.cuh"
#include "gemm/smem_pipeline.cuh"
#include "gemm/store_sums.cuh"

struct Mainloop {
  static constexpr int kTile = 128;  // lines of A and of B
  static constexpr int kWarps = 4;   // a 2x2 arrangement
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 2;  // one decodes while the other multiplies
  static constexpr int kWarpLines = 64;   // lines of A and of B
  static constexpr int kM16 = kWarpLines / 16, kN8 = kWarpLines / 8;

  union Shared {
    SmemStage<2 * kTile> stage[2];  // lines of A, then lines of B
    float staging[kWarps][kStagingFloats];
  };

  int warp_row, warp_col;      // origin of this warp's 64x64
  Accumulator sum[kM16][kN8];  // rows 16i to 16i + 15, columns 8j to 8j + 7

  __device__ Mainloop() : warp_row(threadIdx.x / 64 * kWarpLines), warp_col(threadIdx.x / 32 % 2 * kWarpLines), sum{} {}

  // Passes the true sums, scaled back from kProductUnit, to make_store()(row, col, sums), eight of a row at a time. If
  // K is 0, the sums are 0. All threads call this. first_a, first_b: first lines of the tile
  template <ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, ScaleFormat scale_format, typename MakeStore>
  static __device__ void multiply(
      Shared& shared, const GemmOperand<a_scale_layout, scale_format>& a,
      const GemmOperand<b_scale_layout, scale_format>& b, int first_a, int first_b, const MakeStore& make_store) {
    Mainloop mainloop;
    mainloop.add_stages(shared, a, b, first_a, first_b);
    mainloop.epilogue<scale_format>(shared, make_store());
  }

  template <ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, ScaleFormat scale_format>
  __device__ void add_stages(
      Shared& shared, const GemmOperand<a_scale_layout, scale_format>& a,
      const GemmOperand<b_scale_layout, scale_format>& b, int first_a, int first_b) {
    // Half of the threads load each operand.
    const bool loads_a = threadIdx.x < kThreads / 2;
    using Loader = StageLoader<kTile, kThreads / 2>;
    Loader loader = loads_a ? Loader(a, first_a, 0) : Loader(b, first_b, 0);
    const auto fetch = [&](int stage) {
      loader.copy(shared.stage[stage % 2], loads_a ? 0 : kTile, a.blocks - stage * kStageBlocks);
      loader.advance(1);
    };
    const int stages = (a.blocks + kStageBlocks - 1) / kStageBlocks;
    if (stages > 0) fetch(0);
    for (int stage = 0; stage < stages; ++stage) {
      cp_async_commit();
      cp_async_wait<0>();
      // All copies have landed, and no thread reads the other stage any more.
      __syncthreads();
      if (stage + 1 < stages) fetch(stage + 1);
      add_stage<scale_format>(shared.stage[stage % 2]);
    }
  }

  template <ScaleFormat scale_format>
  __device__ void add_stage(const SmemStage<2 * kTile>& stage) {
    using Scales = ScalesF16x2<scale_format>;
    const MmaLane lane(threadIdx.x);
    // Offsets from one address fit the instructions; an address for each line would take a register.
    const int a_line = warp_row + lane.group, b_line = kTile + warp_col + lane.group;
    const auto *a_scales = stage.scales + a_line, *b_scales = stage.scales + b_line;
    Scales a_scale[2 * kM16], b_scale[kN8];
#pragma unroll
    for (int i = 0; i < 2 * kM16; ++i) a_scale[i] = Scales(two_scales(a_scales[8 * i], lane.member));
#pragma unroll
    for (int i = 0; i < kN8; ++i) b_scale[i] = Scales(two_scales(b_scales[8 * i], lane.member));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto *a_lines = stage.codes[half] + a_line, *b_lines = stage.codes[half] + b_line;
      uint2 a_codes[2 * kM16], b_codes[kN8];
#pragma unroll
      for (int i = 0; i < 2 * kM16; ++i) a_codes[i] = a_lines[8 * i][lane.member];
#pragma unroll
      for (int i = 0; i < kN8; ++i) b_codes[i] = b_lines[8 * i][lane.member];
#pragma unroll
      for (int quad = 0; quad < 4; ++quad) {
        const auto decode = [&](const uint2& codes, const Scales& scale) {
          return dequant_4<scale_format>(quad < 2 ? codes.x : codes.y, quad % 2, scale.both(half));
        };
        FragmentM16 m16[kM16];
#pragma unroll
        for (int i = 0; i < kM16; ++i) {
          const CodesF16x4 upper = decode(a_codes[2 * i], a_scale[2 * i]);
          const CodesF16x4 lower = decode(a_codes[2 * i + 1], a_scale[2 * i + 1]);
          m16[i] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
        }
#pragma unroll
        for (int j = 0; j < kN8; ++j) {
          const CodesF16x4 line = decode(b_codes[j], b_scale[j]);
#pragma unroll
          for (int i = 0; i < kM16; ++i) mma_m16n8k16(sum[i][j], m16[i], {line.pair[0], line.pair[1]});
        }
      }
    }
  }

  template <ScaleFormat scale_format, typename Store>
  __device__ void epilogue(Shared& shared, const Store& store) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kM16; ++i)
      store_sums<scale_format>(shared.staging[threadIdx.x / 32], sum[i], warp_row + 16 * i, warp_col, store);
  }
};
