// The tile of mainloop.cuh with wgmma, on Hopper: 128 lines of A by 128 of B.
//
// Every warp loads sixteen packed lines into registers, a stage ahead. Half of the warps decode B from there into a ring
// of stages in shared memory, once for both warpgroups that multiply. Each of those decodes its 64 lines of A, in the
// registers from which wgmma takes them, while its wgmmas of the stage before are under way; ptxas (CUDA 13.0) does so
// for every second stage and decodes the others behind the wait. mbarriers say which stages are decoded and which are
// read, so that no two warpgroups wait for each other to decode. Steps are those of mainloop.cuh, in its order, so that
// the sums have its bits.
#pragma once

#include "gemm/loaded_lines.cuh"
#include "gemm/mainloop.cuh"
#include "gemm/mbarrier.cuh"
#include "gemm/store_sums.cuh"
#include "gemm/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct MainloopWgmma {
  static constexpr int kTile = 128;  // lines of A and of B
  static constexpr int kMultiplyWarps = 8, kDecodeWarps = 8;
  static constexpr int kThreads = 32 * (kMultiplyWarps + kDecodeWarps);
  static constexpr int kBlocksPerSm = 1;
  static constexpr int kMultiplyRegisters = 168, kDecodeRegisters = 88;  // per thread; in total an SM's 65,536
  static constexpr int kN8 = kTile / 8;
  static constexpr int kSteps = 8;  // wgmmas in a stage
  static constexpr int kSlots = 4;  // slots for decoded stages

  // A stage of B: [wgmma][eight of sixteen along K][line / 8][line % 8][two of eight]
  using Decoded = u32[kSteps][2][kN8][8][4];
  static constexpr u32 kToNextK = sizeof(u32[kN8][8][4]);  // bytes

  struct Shared {
    uint4 decoded[kSlots][sizeof(Decoded) / sizeof(uint4)];
    float staging[kMultiplyWarps][kStagingFloats];
    Mbarrier ready[kSlots], read[kSlots];  // when a slot is decoded, and when it may be written again
  };

  // The place of a stage in the ring of decoded ones, and the parity of its use: 0 for the first, third, ...
  struct Turn {
    int slot = 0;
    u32 parity = 0;

    __device__ void advance() {
      slot = slot == kSlots - 1 ? 0 : slot + 1;
      if (slot == 0) parity ^= 1;
    }
  };

  // Like Mainloop::multiply.
  template <ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, ScaleFormat scale_format, typename MakeStore>
  static __device__ void multiply(
      Shared& shared, const GemmOperand<a_scale_layout, scale_format>& a,
      const GemmOperand<b_scale_layout, scale_format>& b, int first_a, int first_b, const MakeStore& make_store) {
    if (threadIdx.x == 0) {
      for (Mbarrier& each : shared.ready) each.init(kDecodeWarps);
      for (Mbarrier& each : shared.read) each.init(kMultiplyWarps);
    }
    __syncthreads();
    if (b.blocks % 2 == 0)
      run_warp<true>(shared, a, b, first_a, first_b, make_store);
    else
      run_warp<false>(shared, a, b, first_a, first_b, make_store);
  }

  // pairs: whether lines have an even number of blocks
  template <
      bool pairs, ScaleLayout a_scale_layout, ScaleLayout b_scale_layout, ScaleFormat scale_format, typename MakeStore>
  static __device__ void run_warp(
      Shared& shared, const GemmOperand<a_scale_layout, scale_format>& a,
      const GemmOperand<b_scale_layout, scale_format>& b, int first_a, int first_b, const MakeStore& make_store) {
    const int stages = (b.blocks + kStageBlocks - 1) / kStageBlocks, warp = threadIdx.x / 32;
    const MmaLane lane(threadIdx.x);
    if (warp >= kMultiplyWarps) {
      give_registers<kDecodeRegisters>();
      const int own = warp - kMultiplyWarps;
      using Lines = LoadedLines<pairs, b_scale_layout, scale_format>;
      decode_stages(shared, Lines(b, first_b + 16 * own, lane), own, stages, lane);
      return;
    }
    take_registers<kMultiplyRegisters>();
    Accumulator sum[kN8];  // 16 rows of this warp, columns 8j to 8j + 7
    if (stages > 0) {
      using Lines = LoadedLines<pairs, a_scale_layout, scale_format>;
      add_stages(sum, shared, Lines(a, first_a + 16 * warp, lane), stages, lane);
    } else {
#pragma unroll
      for (Accumulator& part : sum) part = {};
    }
    const auto store = make_store();
#pragma unroll
    for (int col = 0; col < kTile; col += kStagedCols)
      store_sums<scale_format>(shared.staging[warp], &sum[col / 8], 16 * warp, col, store);
  }

  template <typename Lines>
  static __device__ void add_stages(
      Accumulator (&sum)[kN8], Shared& shared, Lines lines, int stages, const MmaLane& lane) {
    // Shuffled to tell the compiler that it is uniform in a warp
    const u32 address = __shfl_sync(~0u, smem_address(shared.decoded), 0);
    const u64 descriptor = smem_descriptor(address, kToNextK, sizeof(u32[8][4]));
    FragmentM16 m16[2][kSteps];
    Turn turn;
    int slot_before = 0;
    for (int stage = 0; stage < stages; stage += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        lines.decode([&](int step, const CodesF16x4& upper, const CodesF16x4& lower) {
          m16[i][step] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
        });
        lines.load(1 - i);
        shared.ready[turn.slot].wait(turn.parity);
        // Waits for all wgmmas: ptxas (CUDA 13.0) reuses the registers of a wgmma that is still in flight.
        wgmma_wait();
        if (stage + i > 0) shared.read[slot_before].arrive();
        wgmma_fence();
        const u64 from = descriptor + turn.slot * u32(sizeof(Decoded) >> 4);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          // The very first wgmma overwrites `sum` instead of accumulating: if `sum` were zeroed first, the compiler
          // would serialize all wgmmas.
          wgmma_128(sum, m16[i][step], from + step * (2 * kToNextK >> 4), step > 0 || stage + i > 0);
        }
        wgmma_commit_group();
        slot_before = turn.slot;
        turn.advance();
      }
    }
    wgmma_wait();
  }

  // own: number among the warps that decode
  template <typename Lines>
  static __device__ void decode_stages(Shared& shared, Lines lines, int own, int stages, const MmaLane& lane) {
    Turn turn;
    for (int stage = 0; stage < stages; stage += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (stage + i >= kSlots) shared.read[turn.slot].wait(turn.parity ^ 1);
        Decoded& decoded = *reinterpret_cast<Decoded*>(shared.decoded[turn.slot]);
        lines.decode([&](int step, const CodesF16x4& upper, const CodesF16x4& lower) {
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            decoded[step][k][2 * own][lane.group][lane.member] = upper.pair[k];
            decoded[step][k][2 * own + 1][lane.group][lane.member] = lower.pair[k];
          }
        });
        lines.load(1 - i);
        fence_proxy_async();
        shared.ready[turn.slot].arrive();
        turn.advance();
      }
    }
  }
};

using MainloopDense = MainloopWgmma;

#else

using MainloopDense = Mainloop;

#endif
