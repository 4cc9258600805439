// per_token in one read and one launch, by tiles that are all resident at once. edges: whether a tile may reach beyond
// the matrix
#pragma once

#include "encode/per_token.cuh"
#include "scheduler/tile_sync.cuh"

struct ResidentSmem {
  EncodeSmem<bf16> encode;
  float row_amax[TileSync::kLines], col_amax[TileSync::kLines];
};

// What every instantiation reaches; the emulator counts with it, and a GPU's driver is asked.
constexpr int kResidentBlocksPerSm = 3;
// As many as registers allow without spilling; rne needs fewer than sr.
template <Outputs outputs, bool rht, Rounding rounding, bool edges>
constexpr int kMostResidentBlocksPerSm =
    edges || __CUDA_ARCH__ != 900 || rounding == Rounding::sr || (rht && outputs == Outputs::columnwise) ? 3 : 4;

// Outputs of a matrix; null if absent
struct PerTokenOutputs {
  float* __restrict__ rowwise_amax;
  float* __restrict__ columnwise_amax;
  Quantized rowwise, columnwise;
};

// Computes the amaxes and encodes the TransposeTile at `origin`. rowwise_bands, columnwise_bands: of the matrix.
// outputs_of(): the PerTokenOutputs, called late to keep registers free. All threads call this once.
template <
    Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, int sign_mask, bool edges,
    typename Prologue, typename OutputsOf>
__device__ __forceinline__ void per_token_resident_tile(
    ResidentSmem& shared, const Prologue& prologue, TileSync* __restrict__ rowwise_bands,
    TileSync* __restrict__ columnwise_bands, OutputsOf outputs_of, int rows, int cols, const TileOrigin& origin,
    u64 seed, u32 offset) {
  constexpr bool kByRow = outputs != Outputs::columnwise, kByCol = outputs != Outputs::rowwise;
  using Pass = TransposePass<bf16>;
  static_assert(Pass::kLines == 4 && Pass::kBlocks == 8 && Pass::kBands == 8);
  TileSync* by_row = kByRow ? rowwise_bands + u32(origin.row) / TileSync::kLines : nullptr;
  TileSync* by_col = kByCol ? columnwise_bands + u32(origin.col) / TileSync::kLines : nullptr;
  // A matrix without rows has one row of tiles, which writes its columns' amaxes of 0.
  const u32 across = u32(edges ? round_up(cols, TileSync::kLines) : cols) / TileSync::kLines;
  const u32 down = u32(edges ? round_up(max(rows, 1), TileSync::kLines) : rows) / TileSync::kLines;

  const Pass::Role row_role;
  {
    const TileRows tile = TileRows::load<true, false, edges>(shared.encode, prologue, rows, cols, origin, [] {});
    if constexpr (kByRow) by_row->add_four(tile.amax, [&](int i) { return row_role.row(i); });
  }
  if constexpr (kByCol) {
    __syncthreads();
    const ColumnRole role;
    float amax[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const ColumnPair<bf16> pair = shared.encode.tile.column_pair(role, i / 2);
      if constexpr (rht) {
        float values[kBlock];
        pair.unpack(i % 2, values);
        amax[i] = __fmul_rn(rht16_absmax<sign_mask>(values), kRhtNorm);
      } else {
        amax[i] = pair.amax(i % 2);
      }
    }
    by_col->add_four(amax, [&](int i) { return role.pair_col(i / 2) + i % 2; });
  }
  wait_for_tiles(by_row, across, by_col, down);
  const PerTokenOutputs out = outputs_of();
  if (kByRow && threadIdx.x < TileSync::kLines) {
    const int line = threadIdx.x;
    shared.row_amax[line] = by_row->maximum(line);
    if (origin.col == 0 && (!edges || origin.row + line < rows)) {
      out.rowwise_amax[origin.row + line] = shared.row_amax[line];
    }
  }
  if (kByCol && threadIdx.x >= TileSync::kLines) {
    const int line = threadIdx.x - TileSync::kLines;
    shared.col_amax[line] = by_col->maximum(line);
    if (origin.row == 0 && (!edges || origin.col + line < cols)) {
      out.columnwise_amax[origin.col + line] = shared.col_amax[line];
    }
  }
  __syncthreads();
  if (kByRow && threadIdx.x < 32) by_row->leave(across);
  if (kByCol && threadIdx.x >= TileSync::kLines && threadIdx.x < TileSync::kLines + 32) by_col->leave(down);

  if constexpr (kByRow) {
    per_token_encode_rows<rounding, scale_layout, false, edges>(
        row_role,
        [&](int i) {
          const Packed16<bf16> x = shared.encode.tile.load(row_role, i);
          return RowBlock{x, block_amax(x)};
        },
        [&](int, int row) { return shared.row_amax[row]; }, out.rowwise, rows, cols, origin, seed, offset);
  }
  if constexpr (kByCol) {
    per_token_encode_columns<rht, rounding, false, sign_mask, edges>(
        shared.encode, [&](int pair) { return shared.col_amax[ColumnRole().pair_col(pair) + threadIdx.x % 2]; },
        out.columnwise, rows, cols, origin, seed, offset);
  }
}
