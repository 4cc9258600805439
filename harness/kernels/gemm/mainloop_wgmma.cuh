// The tile of mainloop.cuh with wgmma, on Hopper: 128 lines of A by 128 of B.
//
// A is decoded in the registers that wgmma takes it from. B is decoded into shared memory once for both warpgroups, and
// each multiplies it by 64 lines of A. A stage is decoded while the tensor cores multiply the one before. The steps and
// their order are those of mainloop.cuh, so the sums have the same bits.
#pragma once

#include "gemm/line_reader.cuh"
#include "gemm/mainloop.cuh"
#include "gemm/store_sums.cuh"
#include "gemm/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct MainloopWgmma {
  static constexpr int kTile = 128;  // lines of A and of B
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 1;
  static constexpr int kN8 = kTile / 8;
  static constexpr int kSteps = 8;  // wgmmas in a stage: four for the blocks of each parity
  static constexpr int kSlots = 2;  // for stages: one is multiplied, the other decoded

  // A stage of B: [wgmma][eight of sixteen along K][line / 8][line % 8][two of eight]
  using Decoded = u32[kSteps][2][kN8][8][4];
  static constexpr u32 kToNextK = sizeof(u32[kN8][8][4]);  // bytes

  union Shared {
    uint4 decoded[kSlots][sizeof(Decoded) / sizeof(uint4)];
    float staging[kWarps][kStagingFloats];
  };

  Accumulator sum[kN8];  // 16 rows of this warp, columns 8j to 8j + 7

  static __device__ int warp() { return threadIdx.x / 32; }

  // The sums of a K of 0
  __device__ void clear() {
#pragma unroll
    for (Accumulator& part : sum) part = {};
  }

  // K has a block or more. first_a, first_b: first lines of the tile
  template <ScaleLayout a_scale_layout, ScaleLayout b_scale_layout>
  __device__ void multiply(
      Shared& shared, const GemmOperand<a_scale_layout>& a, const GemmOperand<b_scale_layout>& b, int first_a,
      int first_b) {
    const MmaLane lane(threadIdx.x);
    // Shuffled to tell the compiler that it is uniform in a warp
    const u32 address = __shfl_sync(~0u, u32(__cvta_generic_to_shared(shared.decoded)), 0);
    const int line = 16 * warp() + lane.group, block = 2 * lane.member;
    LineReader<a_scale_layout> reader_a[2] = {{a, first_a + line, block}, {a, first_a + line + 8, block}};
    LineReader<b_scale_layout> reader_b[2] = {{b, first_b + line, block}, {b, first_b + line + 8, block}};
    Piece piece_a[kSlots][2], piece_b[kSlots][2];
    FragmentM16 m16[kSlots][kSteps];
    int buffer = 0;  // always equals `slot`, which as a constant gives other machine code, not yet timed on a GPU

    // Lines with an odd number of blocks are aligned to one block only, and read a block at a time.
    const int stages = (b.blocks + kStageBlocks - 1) / kStageBlocks;
    const int whole = b.blocks % 2 == 0 ? b.blocks / kStageBlocks : 0;
    const auto fetch = [&](int slot, int stage) {
      const int left = b.blocks - stage * kStageBlocks - block;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        piece_a[slot][i] = stage < whole ? reader_a[i].piece() : reader_a[i].piece(left);
        piece_b[slot][i] = stage < whole ? reader_b[i].piece() : reader_b[i].piece(left);
        reader_a[i].advance(1);
        reader_b[i].advance(1);
      }
    };
    // The very first wgmma writes its sums and adds to none: given zeros to add to, the compiler would serialise all
    // wgmmas.
    const auto add_stage = [&](int slot, bool first) {
      // No wgmma reads this buffer any more: every thread waited for its own before the last barrier.
      Decoded& decoded = *reinterpret_cast<Decoded*>(shared.decoded[buffer]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Piece& piece = piece_b[slot][i];
        const ScalesF16x2 scales(piece.scales);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const CodesF16x4 values = dequant_4(piece.codes[step / 2], step % 2, scales.both(step / 4));
#pragma unroll
          for (int k = 0; k < 2; ++k) decoded[step][k][2 * warp() + i][lane.group][lane.member] = values.pair[k];
        }
      }
      fence_proxy_async();
      const ScalesF16x2 scales[2] = {ScalesF16x2(piece_a[slot][0].scales), ScalesF16x2(piece_a[slot][1].scales)};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const CodesF16x4 upper = dequant_4(piece_a[slot][0].codes[step / 2], step % 2, scales[0].both(step / 4));
        const CodesF16x4 lower = dequant_4(piece_a[slot][1].codes[step / 2], step % 2, scales[1].both(step / 4));
        m16[slot][step] = {upper.pair[0], lower.pair[0], upper.pair[1], lower.pair[1]};
      }
      wgmma_wait();
      __syncthreads();
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const u32 from = address + buffer * u32(sizeof(Decoded)) + step * 2 * kToNextK;
        wgmma_128(sum, m16[slot][step], smem_descriptor(from, kToNextK, sizeof(u32[8][4])), step > 0 || !first);
      }
      wgmma_commit_group();
      buffer = buffer == kSlots - 1 ? 0 : buffer + 1;
    };

#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) fetch(slot, slot);
    for (int stage = 0; stage < stages; stage += kSlots) {
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        add_stage(slot, stage + slot == 0);
        fetch(slot, stage + slot + kSlots);
      }
    }
    wgmma_wait();
  }

  // Passes the true sums, scaled back from kProductUnit, to store(row, col, sums), eight of a row at a time. All
  // threads call this.
  template <typename Store>
  __device__ void epilogue(Shared& shared, const Store& store) {
    __syncthreads();
#pragma unroll
    for (int col = 0; col < kTile; col += kStagedCols)
      store_sums(shared.staging[warp()], &sum[col / 8], 16 * warp(), col, store);
  }
};

using MainloopDense = MainloopWgmma;

#else

using MainloopDense = Mainloop;

#endif
