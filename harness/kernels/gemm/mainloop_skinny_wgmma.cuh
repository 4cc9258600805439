// The tile of mainloop_skinny.cuh with wgmma, on Hopper.
//
// The kernel is bound by reading B, which is decoded in the registers of the lanes that use it and multiplied from
// there. A is decoded into shared memory. The warpgroups split K: warpgroup w takes stages w, w + 4, w + 8, ... of 128
// elements. Their sums are added in order of w, so the result depends neither on the number of rows nor on timing.
#pragma once

#include "gemm/line_reader.cuh"
#include "gemm/split_k_reduce.cuh"
#include "gemm/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct MainloopSkinnyWgmma {
  static constexpr int kRows = 64, kCols = 64;  // lines of A and of B
  static constexpr int kGroups = 4;
  static constexpr int kThreads = kGroups * kWarpgroupThreads;
  static constexpr int kSteps = 4;  // wgmmas in half a stage, the blocks of one parity

  // Decoded A of a warpgroup's half stage: [wgmma][eight of sixteen along K][line / 8][line % 8][two of eight]
  template <int n8>
  using Decoded = u32[kSteps][2][n8][8][4];

  // Two buffers if they fit: one is written while wgmma reads the other.
  template <int n8>
  static constexpr int kBuffers = n8 <= 4 ? 2 : 1;
  // Barriers of a warpgroup in a stage: before each half is read, and with one buffer before it is written
  template <int n8>
  static constexpr int kBarriers = kBuffers<n8> == 1 ? 4 : 2;

  union Shared {
    uint4 decoded[kGroups][sizeof(Decoded<8>) / sizeof(uint4)];
    SplitKReduce<kGroups> sums;
  };

  // n8: groups of 8 rows, 1, 2, 4 or 8; first_a, first_b: first lines of the tile. store(row, col, sums) takes four
  // true sums of a row.
  template <int n8, ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, typename Store>
  static __device__ void multiply(
      Shared& shared, const GemmOperand<a_scale_layout>& a, const GemmOperand<b_scale_layout>& b, int first_a,
      int first_b, const Store& store) {
    constexpr int kDepth = n8 <= 2 ? 3 : 2;          // stages in flight
    constexpr int kPieces = n8 == 8 ? 2 : 1;         // of A that a lane decodes
    constexpr int kWords = n8 >= 4 ? 2 : 1;          // of a block's two that it decodes
    constexpr int kEightsApart = n8 == 8 ? 4 : 0;    // between its pieces, in groups of 8 rows
    constexpr u32 kToNextK = sizeof(u32[n8][8][4]);  // bytes
    const MmaLane lane(threadIdx.x);
    // Shuffled to tell the compiler that they are uniform in a warp
    const int group = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0);
    const int warp = __shfl_sync(~0u, threadIdx.x % kWarpgroupThreads / 32, 0);
    const int eight = kWords == 2 ? warp : warp / 2, word = kWords == 2 ? 0 : warp % 2;

    Decoded<n8>* const decoded = reinterpret_cast<Decoded<n8>*>(shared.decoded[group]);
    const u32 address = __shfl_sync(~0u, u32(__cvta_generic_to_shared(decoded)), 0);
    const int block = group * kStageBlocks + 2 * lane.member;
    const int line_a = first_a + 8 * eight + lane.group, line_b = first_b + 16 * warp + lane.group;
    LineReader<a_scale_layout> reader_a[2] = {{a, line_a, block}, {a, line_a + 8 * kEightsApart, block}};
    LineReader<b_scale_layout> reader_b[2] = {{b, line_b, block}, {b, line_b + 8, block}};
    Piece piece_a[kDepth][kPieces], piece_b[kDepth][2];
    FragmentM16 m16[2][kSteps];
    Accumulator sum[1][n8] = {};

    const auto advance = [&] {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        reader_a[i].advance(kGroups);
        reader_b[i].advance(kGroups);
      }
    };
    const auto fetch = [&](int slot) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) piece_a[slot][i] = reader_a[i].piece();
#pragma unroll
      for (int i = 0; i < 2; ++i) piece_b[slot][i] = reader_b[i].piece();
      advance();
    };
    const auto add_stage = [&](int slot) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int buffer = half % kBuffers<n8>;
        if (kBuffers<n8> == 1) {
          wgmma_wait();
          warpgroup_sync(group);
        }
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          const Piece& piece = piece_a[slot][i];
          const u32 scale = ScalesF16x2(piece.scales).both(half);
#pragma unroll
          for (int step = 0; step < 2 * kWords; ++step) {
            const u32 upper = piece.codes[2 * half + 1], lower = piece.codes[2 * half];
            const CodesF16x4 line = dequant_4((kWords == 2 ? step / 2 : word) ? upper : lower, step % 2, scale);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
              if (eight < n8)
                decoded[buffer][2 * word + step][k][eight + kEightsApart * i][lane.group][lane.member] = line.pair[k];
            }
          }
        }
        fence_proxy_async();
        const u32 scale[2] = {
            ScalesF16x2(piece_b[slot][0].scales).both(half), ScalesF16x2(piece_b[slot][1].scales).both(half)};
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const int from = 2 * half + step / 2;
          const CodesF16x4 upper = dequant_4(piece_b[slot][0].codes[from], step % 2, scale[0]);
          const CodesF16x4 lower = dequant_4(piece_b[slot][1].codes[from], step % 2, scale[1]);
          m16[half][step] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
        }
        wgmma_wait();
        warpgroup_sync(group);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const u32 from = address + (buffer * kSteps + step) * 2 * kToNextK;
          wgmma(sum[0], m16[half][step], smem_descriptor(from, kToNextK, sizeof(u32[8][4])));
        }
        wgmma_commit_group();
      }
    };

    // Lines with an odd number of blocks are aligned to one block only, and read a block at a time.
    const int stages = (b.blocks + kStageBlocks - 1) / kStageBlocks;
    const int whole = b.blocks % 2 == 0 ? b.blocks / kStageBlocks : 0;
    int stage = group;
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) {
      if (stage + slot * kGroups < whole) fetch(slot);
    }
    while (stage < whole) {
#pragma unroll
      for (int slot = 0; slot < kDepth; ++slot) {
        if (stage >= whole) break;
        add_stage(slot);
        if (stage + kDepth * kGroups < whole) fetch(slot);
        stage += kGroups;
      }
    }
    wgmma_wait();
    for (; stage < stages; stage += kGroups) {
      const int left = b.blocks - stage * kStageBlocks - 2 * lane.member;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) piece_a[0][i] = reader_a[i].piece(left);
#pragma unroll
      for (int i = 0; i < 2; ++i) piece_b[0][i] = reader_b[i].piece(left);
      advance();
      add_stage(0);
      wgmma_wait();
    }
    // Every warpgroup reaches as many barriers as the first; otherwise racecheck of compute-sanitizer miscounts the
    // CTA's barriers and reports false races.
    if (stage - group < round_up(stages, kGroups)) {
#pragma unroll
      for (int i = 0; i < kBarriers<n8>; ++i) warpgroup_sync(group);
    }
    shared.sums.add(sum, group, 16 * warp, lane, store);
  }
};

#endif
