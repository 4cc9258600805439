// The tile of mainloop_skinny.cuh with wgmma, on Hopper.
//
// The kernel is bound by reading and decoding B, which is decoded in the registers that wgmma takes it from. A, decoded
// already, comes by bulk copies. The warpgroups split K: warpgroup w takes stages w, w + 4, w + 8, ... of 128 elements.
// Their sums are added in order of w, so the result depends neither on the number of rows nor on timing.
#pragma once

#include "gemm/decoded_lines.cuh"
#include "gemm/mbarrier.cuh"
#include "gemm/packed_lines.cuh"
#include "gemm/split_k_reduce.cuh"
#include "gemm/wgmma.cuh"
#include "scheduler/dependent_launch.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct MainloopSkinnyWgmma {
  static constexpr int kRows = 64, kCols = 64;  // lines of A and of B
  static constexpr int kGroups = 4;
  static constexpr int kThreads = kGroups * kWarpgroupThreads;
  static constexpr int kDepth = 3;      // stages of B in a warp's ring
  static constexpr int kMostParts = 5;  // parts of A in a warpgroup's ring, as many as shared memory holds

  // A part of A is what one bulk copy loads: a stage, or half a stage of 64 lines.
  template <int n8>
  static constexpr int kHalves = n8 == 8 ? 1 : 2;
  template <int n8>
  static constexpr int kParts = n8 == 8 ? kMostParts : 4;
  template <int n8>
  static constexpr u32 kPartBytes = kHalves<n8> * sizeof(DecodedHalf<n8>);

  struct Shared {
    union {
      struct {
        PackedStage b[kThreads / 32][kDepth];
        uint4 a[kGroups][kMostParts * kPartBytes<8> / sizeof(uint4)];
      };
      SplitKReduce<kGroups> sums;
    };
    Mbarrier arrived[kGroups][kMostParts];  // one for each part of A
  };

  // A warpgroup's parts of A in order, copied by one of its threads
  template <int n8>
  struct PartsOfA {
    const u8* source;
    int left;                  // stages of A from the next part's on
    int half = 0, number = 0;  // the next part: its half of the stage, its place in the ring

    __device__ void copy(uint4* ring, Mbarrier (&arrived)[kMostParts]) {
      constexpr u32 kBytes = kPartBytes<n8>;
      if (left > 0) arrived[number].copy(ring + number * (kBytes / sizeof(uint4)), source + half * kBytes, kBytes);
      number = number == kParts<n8> - 1 ? 0 : number + 1;
      if (kHalves<n8> == 1) half ^= 1;
      if (half == 0) source += kGroups * 2 * sizeof(DecodedHalf<n8>), left -= kGroups;
    }
  };

  // n8: groups of 8 rows, 1, 2, 4 or 8; a: decoded lines; first_b: first line of the tile; pairs: whether lines of B have
  // an even number of blocks. store(row, col, sums) takes four true sums of a row.
  template <int n8, bool pairs, ScaleLayout b_scale_layout, ScaleFormat scale_format, typename Store>
  static __device__ void multiply(
      Shared& shared, const u32* a, const GemmOperand<b_scale_layout, scale_format>& b, int first_b,
      const Store& store) {
    constexpr u32 kToNextK = sizeof(u32[n8][8][4]);  // bytes
    const MmaLane lane(threadIdx.x);
    // Shuffled to tell the compiler that they are uniform in a warp
    const int group = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0);
    const int warp = __shfl_sync(~0u, threadIdx.x % kWarpgroupThreads / 32, 0);
    const u32 address = __shfl_sync(~0u, smem_address(shared.a[group]), 0);
    const u64 descriptor = smem_descriptor(address, kToNextK, sizeof(u32[8][4]));
    const int stages = stages_of(b.blocks);

    PackedStage(&ring)[kDepth] = shared.b[threadIdx.x / 32];
    PackedLines<kGroups> lines(b, first_b + 16 * warp, group * kStageBlocks, lane);
    int next_b = 0;
    const auto copy_b = [&] {
      lines.copy(ring[next_b], pairs);
      cp_async_commit();
      next_b = next_b == kDepth - 1 ? 0 : next_b + 1;
    };
#pragma unroll
    for (int i = 0; i < kDepth - 1; ++i) copy_b();

    const bool copies_a = threadIdx.x % kWarpgroupThreads == 0;
    PartsOfA<n8> parts = {reinterpret_cast<const u8*>(a) + group * 2 * sizeof(DecodedHalf<n8>), stages - group};
    if (copies_a) {
      for (Mbarrier& each : shared.arrived[group]) each.init();
      fence_proxy_async();
      wait_for_launch_ahead();  // that launch decodes A
      for (int i = 0; i < kParts<n8> - 1; ++i) parts.copy(shared.a[group], shared.arrived[group]);
    }

    FragmentM16 m16[2][kHalfStageSteps];  // two, because one is decoded while wgmmas under way still read the other
    Accumulator sum[1][n8] = {};
    int now_b = 0, now_a = 0;
    u32 parity = 0;
    // Every warpgroup reaches as many barriers as the first; otherwise racecheck of compute-sanitizer miscounts the
    // CTA's barriers and reports false races.
    for (int stage = group; stage - group < stages; stage += kGroups) {
      copy_b();
      cp_async_wait<kDepth - 1>();
      __syncwarp();
      // warpgroup_sync below keeps the next copy to this slot behind these reads.
      const PackedPiece<scale_format> upper(ring[now_b], 0, lane), lower(ring[now_b], 1, lane);
      now_b = now_b == kDepth - 1 ? 0 : now_b + 1;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int step = 0; step < kHalfStageSteps; ++step) {
          const CodesF16x4 up = upper.values(kHalfStageSteps * half + step);
          const CodesF16x4 low = lower.values(kHalfStageSteps * half + step);
          m16[half][step] = {up.pair[0], low.pair[0], up.pair[1], low.pair[1]};
        }
        // Waits for all wgmmas, though one would do: ptxas (CUDA 13.0) reuses registers of a wgmma in flight.
        wgmma_wait();
        const bool first_of_part = kHalves<n8> == 1 || half == 0, last_of_part = kHalves<n8> == 1 || half == 1;
        if (first_of_part) {
          warpgroup_sync(group);  // no wgmma reads the part of A that the next copy overwrites
          if (copies_a) parts.copy(shared.a[group], shared.arrived[group]);
        }
        if (stage >= stages) continue;
        if (first_of_part) shared.arrived[group][now_a].wait(parity);
        wgmma_fence();
        const u64 from =
            descriptor + now_a * (kPartBytes<n8> >> 4) + (first_of_part ? 0 : sizeof(DecodedHalf<n8>) >> 4);
#pragma unroll
        for (int step = 0; step < kHalfStageSteps; ++step)
          wgmma(sum[0], m16[half][step], from + step * (2 * kToNextK >> 4));
        wgmma_commit_group();
        if (last_of_part) {
          now_a = now_a == kParts<n8> - 1 ? 0 : now_a + 1;
          if (now_a == 0) parity ^= 1;
        }
      }
    }
    wgmma_wait();
    cp_async_wait<0>();  // copies beyond K are zeros, written to where the sums go
    shared.sums.add<scale_format>(sum, group, 16 * warp, lane, store);
  }

  template <int n8, ScaleLayout b_scale_layout, ScaleFormat scale_format, typename Store>
  static __device__ void multiply(
      Shared& shared, const u32* a, const GemmOperand<b_scale_layout, scale_format>& b, int first_b,
      const Store& store) {
    if (b.blocks % 2 == 0)
      multiply<n8, true>(shared, a, b, first_b, store);
    else
      multiply<n8, false>(shared, a, b, first_b, store);
  }
};

#endif
