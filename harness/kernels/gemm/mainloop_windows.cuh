// A 64x64 tile of A * B^T by a CTA, for operands with an amax for each window of 64 along K.
//
// The sum of a window stays apart until it is multiplied by the amaxes of its two lines, so every output has two sums in
// registers. Stages are ordered so that an mma never mixes windows.
#pragma once

#include "gemm/dequant_f16.cuh"
#include "gemm/mma.cuh"
#include "gemm/smem_pipeline.cuh"
#include "numerics/nvfp4.cuh"

// The amaxes of an operand's windows
struct WindowAmaxes {
  const float* amax;  // (lines, windows)
  int lines, windows;

  // A line beyond the last is read as the last, and its results are never stored.
  __device__ float at(int line, int window) const {
    return __ldg(amax + row_offset(min(line, lines - 1), windows) + window);
  }
};

// A SmemStage in another order: member t of a group reads block t of each window of a line.
template <int lines>
struct WindowStage {
  uint2 codes[2][lines][4];  // window, line, block within it
  u32 scales[lines][2];      // four e4m3 bytes of each window

  static __device__ int part(int block) { return block / kWindowBlocks; }
  static __device__ int place(int block) { return block % kWindowBlocks; }
};

struct MainloopWindows {
  static constexpr int kTile = 64;  // lines of A and of B
  static constexpr int kWarps = 4;  // a 2x2 arrangement
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kWarpLines = 32;  // lines of A and of B
  static constexpr int kM16 = kWarpLines / 16, kN8 = kWarpLines / 8;
  static constexpr int kStageWindows = kStageBlocks / kWindowBlocks;

  struct Shared {
    WindowStage<2 * kTile> stage[2];  // lines of A, then lines of B
  };

  int warp_row, warp_col;      // origin of this warp's 32x32
  Accumulator sum[kM16][kN8];  // rows 16i to 16i + 15, columns 8j to 8j + 7

  __device__ MainloopWindows()
      : warp_row(threadIdx.x / 64 * kWarpLines), warp_col(threadIdx.x / 32 % 2 * kWarpLines), sum{} {}

  // first_a, first_b: first lines of the tile
  template <ScaleLayout a_scale_layout, ScaleLayout b_scale_layout>
  __device__ void multiply(
      Shared& shared, const GemmOperand<a_scale_layout>& a, const GemmOperand<b_scale_layout>& b,
      const WindowAmaxes& a_amax, const WindowAmaxes& b_amax, int first_a, int first_b) {
    // Half of the threads load each operand.
    const bool loads_a = threadIdx.x < kThreads / 2;
    using Loader = StageLoader<kTile, kThreads / 2>;
    Loader loader = loads_a ? Loader(a, first_a, 0) : Loader(b, first_b, 0);
    const auto fetch = [&](int stage) {
      loader.copy(shared.stage[stage % 2], loads_a ? 0 : kTile, a.blocks - stage * kStageBlocks);
      loader.advance(1);
    };
    const int stages = (a.blocks + kStageBlocks - 1) / kStageBlocks;
    fetch(0);
    for (int stage = 0; stage < stages; ++stage) {
      cp_async_commit();
      cp_async_wait<0>();
      // All copies have landed, and no thread reads the other stage any more.
      __syncthreads();
      if (stage + 1 < stages) fetch(stage + 1);
#pragma unroll
      for (int i = 0; i < kStageWindows; ++i) {
        const int window = stage * kStageWindows + i;
        if (window < a_amax.windows) add_window(shared.stage[stage % 2], i, a_amax, b_amax, window, first_a, first_b);
      }
    }
  }

  // sum += (amax of the line of A * amax of the line of B) * sum of the window
  __device__ void add_window(
      const WindowStage<2 * kTile>& stage, int part, const WindowAmaxes& a_amax, const WindowAmaxes& b_amax, int window,
      int first_a, int first_b) {
    const MmaLane lane(threadIdx.x);
    const int a_line = warp_row + lane.group, b_line = kTile + warp_col + lane.group;
    uint2 a_codes[2 * kM16], b_codes[kN8];
    u32 a_scale[2 * kM16], b_scale[kN8];
    const auto read = [&](int line, uint2& codes, u32& scale) {
      codes = stage.codes[part][line][lane.member];
      scale = ScalesF16x2<>(stage.scales[line][part] >> 8 * lane.member & 0xFF).both(0);
    };
#pragma unroll
    for (int i = 0; i < 2 * kM16; ++i) read(a_line + 8 * i, a_codes[i], a_scale[i]);
#pragma unroll
    for (int i = 0; i < kN8; ++i) read(b_line + 8 * i, b_codes[i], b_scale[i]);
    Accumulator own[kM16][kN8] = {};
#pragma unroll
    for (int quad = 0; quad < 4; ++quad) {
      const auto decode = [&](const uint2& codes, u32 scale) {
        return dequant_4(quad < 2 ? codes.x : codes.y, quad % 2, scale);
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
        for (int i = 0; i < kM16; ++i) mma_m16n8k16(own[i][j], m16[i], {line.pair[0], line.pair[1]});
      }
    }
    float of_row[2 * kM16], of_col[kN8][2];
#pragma unroll
    for (int i = 0; i < 2 * kM16; ++i) of_row[i] = a_amax.at(first_a + a_line + 8 * i, window);
#pragma unroll
    for (int j = 0; j < kN8; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) of_col[j][k] = b_amax.at(first_b + warp_col + 8 * j + 2 * lane.member + k, window);
    }
#pragma unroll
    for (int i = 0; i < kM16; ++i) {
#pragma unroll
      for (int j = 0; j < kN8; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float factor = __fmul_rn(of_row[2 * i + k / 2], of_col[j][k % 2]);
          const float of_window = __fmul_rn(own[i][j].value[k], 1.0f / kProductUnit<>);
          sum[i][j].value[k] = __fadd_rn(sum[i][j].value[k], __fmul_rn(factor, of_window));
        }
      }
    }
  }

  // Passes the sums to store(row, col, sums), four of a row at a time. Neighbours exchange halves for that: even members
  // of a group take the upper row, odd ones the lower.
  template <typename Store>
  __device__ void epilogue(const Store& store) const {
    const MmaLane lane(threadIdx.x);
    const bool odd = lane.member % 2;
    const int col = warp_col + lane.member / 2 * 4;
#pragma unroll
    for (int i = 0; i < kM16; ++i) {
      const int row = warp_row + 16 * i + lane.group + (odd ? 8 : 0);
#pragma unroll
      for (int j = 0; j < kN8; ++j) {
        const float* value = sum[i][j].value;
        const float first = __shfl_xor_sync(~0u, odd ? value[0] : value[2], 1);
        const float second = __shfl_xor_sync(~0u, odd ? value[1] : value[3], 1);
        const float sums[4] = {
            odd ? first : value[0], odd ? second : value[1], odd ? value[2] : first, odd ? value[3] : second};
        store(row, col + 8 * j, sums);
      }
    }
  }
};
