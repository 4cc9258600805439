// dbias in its stated order, chunk by chunk of rows, with amaxes from the same read. A thread holds a pair of columns.
#pragma once

#include "memory/dact_prologue.cuh"
#include "reduce/row_col_amax.cuh"
#include "scheduler/group_scheduler.cuh"

struct DbiasTile {
  static constexpr int kThreads = 256;
  static constexpr int kCols = kThreads * 2;
};

// Sums v down a pair of columns, from 0. All threads call this. Every 16 rows it calls on_band(the first row, the
// rounded v of the pair), with zeros beyond the last column.
template <typename Dtype, Activation activation, typename OnBand>
__device__ __forceinline__ float2 column_sums(
    const DactPrologue<Dtype, activation>& prologue, int rows, int cols, const TileOrigin& origin, OnBand on_band) {
  const int col = origin.col + int(threadIdx.x) * 2;
  float2 sum = {0.0f, 0.0f};
  for (int row = origin.row; row < min(origin.row + kChunkRows, rows); row += kBlock) {
    ColumnPair<Dtype> pair = {};
    if (col < cols) {
#pragma unroll
      for (int step = 0; step < kBlock; step += kActivatedRows) {
        float v[2 * kActivatedRows];
        prologue.pairs(row_offset(row + step, cols) + col, cols, v);
#pragma unroll
        for (int i = 0; i < kActivatedRows; ++i) {
          sum = {__fadd_rn(sum.x, v[2 * i]), __fadd_rn(sum.y, v[2 * i + 1])};
          pair.rows[step + i] = pack_pair({v[2 * i], v[2 * i + 1]}, Dtype{});
        }
      }
    }
    on_band(row, pair);
  }
  return sum;
}

// Stores a chunk's sums among the group's, (chunks, cols).
__device__ __forceinline__ void store_dbias_partials(
    float* __restrict__ dbias_partials, const GroupTensor& tensor, const TileOrigin& origin, float2 sum) {
  const int col = origin.col + int(threadIdx.x) * 2;
  if (dbias_partials == nullptr || origin.row >= tensor.rows || col >= tensor.cols) return;
  const int chunk = tensor.chunk + origin.row / kChunkRows;
  *reinterpret_cast<float2*>(dbias_partials + row_offset(chunk, tensor.cols) + col) = sum;
}

// per_token's amaxes of a chunk of rows and columns that other CTAs contribute to. All threads call this; `row_max` may
// be reused after the next barrier.
template <Outputs outputs, bool rht, int sign_mask, Activation activation>
__device__ __forceinline__ float2 dbias_row_col_amax(
    u32 (&row_max)[kChunkRows], const DactPrologue<bf16, activation>& prologue, int rows, int cols,
    const TileOrigin& origin, const LineAmax& by_row, const LineAmax& by_col) {
  constexpr bool kByRow = outputs != Outputs::columnwise, kByCol = outputs != Outputs::rowwise;
  const int lane = threadIdx.x % 32;
  const int col = origin.col + int(threadIdx.x) * 2;
  if (threadIdx.x < kChunkRows) row_max[threadIdx.x] = 0;
  __syncthreads();
  float column_max[2] = {};
  const float2 sum = column_sums(prologue, rows, cols, origin, [&](int row, const ColumnPair<bf16>& pair) {
    if constexpr (kByRow) {
      u32 own = 0;
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        const u32 word[1] = {pair.rows[i]};
        const u32 largest = __reduce_max_sync(~0u, __float_as_uint(amax_of_word<bf16>(absmax<bf16>(word))));
        if (lane == i) own = largest;
      }
      if (lane < kBlock) atomicMax(&row_max[row - origin.row + lane], own);
    }
#pragma unroll
    for (int column = 0; kByCol && column < 2; ++column) {
      float amax;
      if constexpr (rht) {
        float x[kBlock];
        pair.unpack(column, x);
        amax = __fmul_rn(rht16_absmax<sign_mask>(x), kRhtNorm);
      } else {
        amax = pair.amax(column);
      }
      column_max[column] = fmaxf(column_max[column], amax);
    }
  });
  __syncthreads();
  const int row = origin.row + int(threadIdx.x);
  const bool has_row = kByRow && threadIdx.x < kChunkRows && row < rows, has_cols = kByCol && col < cols;
  if (has_row) by_row.add(row, __uint_as_float(row_max[threadIdx.x]));
  if (has_cols) {
    by_col.add(col, column_max[0]);
    by_col.add(col + 1, column_max[1]);
  }
  const LastArrival& last = arrive<outputs>(by_row, by_col);
  if (has_row && last.by_row) by_row.take(row);
  if (has_cols && last.by_col) {
    by_col.take(col);
    by_col.take(col + 1);
  }
  return sum;
}

// Sums the chunks' sums of each column, from 0, into (num_tensors, cols). All threads of the grid call this.
template <int threads, typename Dtype>
__device__ __forceinline__ void group_dbias(
    const float* __restrict__ dbias_partials, const GroupExtents& extents, Dtype* __restrict__ dbias) {
  __shared__ Group group;
  read_group<Offsets::chunks>(group, extents, [](int rows, int cols) { return u32(cols + threads - 1) / threads; });
  for_each_work_item(group, [&](int index, const GroupTensor& tensor, u32 item) {
    const int col = int(item) * threads + threadIdx.x;
    if (col >= tensor.cols) return;
    const float* partial = dbias_partials + row_offset(tensor.chunk, tensor.cols) + col;
    float sum = 0.0f;
#pragma unroll 8
    for (int row = 0; row < tensor.rows; row += kChunkRows, partial += tensor.cols) sum = __fadd_rn(sum, *partial);
    dbias[row_offset(index, tensor.cols) + col] = rounded<Dtype>(sum);
  });
}
