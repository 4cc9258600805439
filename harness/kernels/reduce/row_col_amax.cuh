// Amaxes of all rows and all columns in one read, for per_token. Rows and cols are multiples of 16.
#pragma once

#include "memory/block_io.cuh"
#include "numerics/rht.cuh"
#include "scheduler/arrivals.cuh"
#include "scheduler/dependent_launch.cuh"

// A CTA takes chunks of rows, one below the other, of a strip of columns; a warp takes 32 * kLaneCols neighbouring
// columns. Column maxima stay in registers to the end. Row maxima, to which all warps contribute, are held in shared
// memory.
template <bool rht>
struct RowColStrip {
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kLaneCols = rht ? 4 : 8;
  static constexpr int kWords = kLaneCols / 2;
  static constexpr int kWarpCols = 32 * kLaneCols;
  static constexpr int kCols = kWarps * kWarpCols;
  static constexpr int kRows = rht ? kBlock : 8;  // rows of a chunk: a lane's loads in flight; with rht, a rotation
  static constexpr int kHold = 512;               // rows held until all warps have theirs

  alignas(16) u16 rows[kHold][kWarps];  // bf16
  float cols[kWarps][kWarpCols];

  // Loads a lane's columns of a row.
  __device__ static void load(const bf16* __restrict__ source, u32 (&word)[kWords]) {
    if constexpr (rht) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(source));
      word[0] = v.x, word[1] = v.y;
    } else {
      load_words(source, word);
    }
  }
};
// A CTA's part of a strip: chunks `first`, `first + step`, ... below `end`, from column `col` on. Interleaved, so that
// CTAs that run together read neighbouring memory.
struct RowColWork {
  int first, step, end;
  int col;

  // Row `r` of the chunks from `chunk` on
  template <bool rht>
  __device__ int row(int chunk, int r) const {
    constexpr int kRows = RowColStrip<rht>::kRows;
    return (chunk + r / kRows * step) * kRows + r % kRows;
  }
};

// Amaxes of all rows, or of all columns, and the scratch that merges them
struct AmaxOutput {
  float* __restrict__ amax;
  u32* __restrict__ state;  // zero before and after
};

// Merges the maxima of lines to which `arrivals` CTAs contribute.
struct LineAmax {
  float* amax;  // the result for line 0
  u32* maxima;  // the maximum of line 0; zero before and after
  u32* ticket;  // zero before and after
  u32 arrivals;

  __device__ void add(int line, float value) const {
    if (arrivals == 1)
      amax[line] = value;
    else
      atomicMax(maxima + line, __float_as_uint(value));
  }
  // True in the last CTA, which must take the results. One thread of each CTA calls this, behind a barrier.
  __device__ bool arrive() const { return arrivals != 1 && arrives_last(ticket, arrivals); }
  // Moves the result of a line out. Only the last CTA calls this.
  __device__ void take(int line) const { amax[line] = __uint_as_float(atomicExch(maxima + line, 0u)); }
};

// Whether this CTA is the last for the rows, and for the columns
struct LastArrival {
  bool by_row, by_col;
};

// All threads call this when their maxima are added. The result is in shared memory and valid until the next barrier.
template <Outputs outputs>
__device__ __forceinline__ const LastArrival& arrive(const LineAmax& by_row, const LineAmax& by_col) {
  __shared__ LastArrival last;
  __syncthreads();
  // In two warps, which wait side by side
  if (threadIdx.x == 0) last.by_row = outputs != Outputs::columnwise && by_row.arrive();
  if (threadIdx.x == 32) last.by_col = outputs != Outputs::rowwise && by_col.arrive();
  __syncthreads();
  return last;
}

// Adds the maxima of a part to `by_row` and `by_col`; the last CTA of either moves the results out. All threads call
// this; shared memory may be reused after the next barrier.
template <Outputs outputs, bool rht, int sign_mask>
__device__ __forceinline__ void row_col_amax(
    RowColStrip<rht>& shared, const bf16* __restrict__ input, int rows, int cols, const RowColWork& work,
    const LineAmax& by_row, const LineAmax& by_col) {
  using Strip = RowColStrip<rht>;
  constexpr bool kByRow = outputs != Outputs::columnwise, kByCol = outputs != Outputs::rowwise;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_col = work.col + warp * Strip::kWarpCols;
  const int lane_col = warp_col + lane * Strip::kLaneCols;

  u32 column_words[Strip::kWords] = {};
  float column_max[Strip::kLaneCols] = {};
  int held = 0;  // rows
  for (int chunk = work.first; chunk < work.end; chunk += work.step) {
    const bf16* corner = input + row_offset(chunk * Strip::kRows, cols) + lane_col;
    u32 word[Strip::kRows][Strip::kWords] = {};
    if (lane_col < cols) {
#pragma unroll
      for (int r = 0; r < Strip::kRows; ++r) Strip::load(corner + i64(r) * cols, word[r]);
    }
    if constexpr (kByRow) {
      float own = 0.0f;
#pragma unroll
      for (int r = 0; r < Strip::kRows; ++r) {
        const u32 bits = __float_as_uint(amax_of_word<bf16>(absmax<bf16>(word[r])));
        const u32 largest = __reduce_max_sync(~0u, bits);
        if (lane == r) own = __uint_as_float(largest);
      }
      if (lane < Strip::kRows) shared.rows[held + lane][warp] = u16(__float_as_uint(own) >> 16);
    }
    if constexpr (kByCol && rht) {
#pragma unroll
      for (int c = 0; c < Strip::kLaneCols; ++c) {
        float x[kBlock];
#pragma unroll
        for (int r = 0; r < kBlock; ++r) x[r] = element_of_word<bf16>(word[r][c / 2], c % 2);
        column_max[c] = fmaxf(column_max[c], rht16_absmax<sign_mask>(x));
      }
    } else if constexpr (kByCol) {
#pragma unroll
      for (int r = 0; r < Strip::kRows; ++r) {
#pragma unroll
        for (int w = 0; w < Strip::kWords; ++w) {
          column_words[w] = max2(column_words[w], abs2(word[r][w], bf16{}), bf16{});
        }
      }
    }
    if constexpr (kByRow) {
      held += Strip::kRows;
      const bool last = chunk + work.step >= work.end;
      if (held < Strip::kHold && !last) continue;
      __syncthreads();
      const int first_held = chunk - (held / Strip::kRows - 1) * work.step;
      for (int r = threadIdx.x; r < held; r += Strip::kThreads) {
        const uint4 v = *reinterpret_cast<const uint4*>(shared.rows[r]);
        const u32 warps[] = {v.x, v.y, v.z, v.w};
        by_row.add(work.row<rht>(first_held, r), amax_of_word<bf16>(absmax<bf16>(warps)));
      }
      if (!last) __syncthreads();
      held = 0;
    }
  }
  if constexpr (kByCol) {
#pragma unroll
    for (int c = 0; c < Strip::kLaneCols; ++c) {
      shared.cols[warp][lane * Strip::kLaneCols + c] =
          rht ? __fmul_rn(column_max[c], kRhtNorm) : element_of_word<bf16>(column_words[c / 2], c % 2);
    }
    __syncwarp();
    // Neighbouring lanes add neighbouring columns, because the L2 merges atomics by sector.
#pragma unroll
    for (int c = lane; c < Strip::kWarpCols; c += 32) {
      if (warp_col + c < cols) by_col.add(warp_col + c, shared.cols[warp][c]);
    }
  }

  const LastArrival& last = arrive<outputs>(by_row, by_col);
  let_next_launch_begin();  // behind the merge; behind the loads, tensors of one wave took longer (results/NOTES.md)
  if (kByRow && last.by_row) {
    const int count = (work.end - work.first + work.step - 1) / work.step;
    for (int r = threadIdx.x; r < count * Strip::kRows; r += Strip::kThreads) by_row.take(work.row<rht>(work.first, r));
  }
  if (kByCol && last.by_col) {
    for (int col = work.col + threadIdx.x; col < min(cols, work.col + Strip::kCols); col += Strip::kThreads) {
      by_col.take(col);
    }
  }
}
