// per_token for a matrix at a pointer: the amax of a share of it, and the encoding of a tile. Rows and cols are
// multiples of 128, so no line has padding and no tile an edge.
#pragma once

#include "layout.cuh"
#include "nvfp4.cuh"
#include "rht.cuh"
#include "source.cuh"
#include "tile.cuh"
#include "turn.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// amax: the largest magnitude of every row and of every column, in one read
// ---------------------------------------------------------------------------------------------------------------------

// A block of threads takes chunks of rows, one below the other, of a strip of columns. Its warps are `kAcross` side by
// side and `kDown` one below the other; a lane has `kLaneCols` columns of `kWarpRows` rows in flight. Column maxima stay
// in registers to the end, row maxima of `kHold` rows in shared memory. A flat strip would merge columns more often, a
// steep one rows.
template <bool rht>
struct AmaxStrip {
  static constexpr int kThreads = 256;
  static constexpr int kAcross = 2;
  static constexpr int kDown = kThreads / 32 / kAcross;
  static constexpr int kLaneCols = rht ? 4 : 8;
  static constexpr int kWords = kLaneCols / 2;
  static constexpr int kWarpCols = 32 * kLaneCols;
  static constexpr int kCols = kAcross * kWarpCols;
  static constexpr int kWarpRows = rht ? kBlock : 8;
  static constexpr int kRows = kDown * kWarpRows;
  static constexpr int kHold = 1024;

  alignas(4) u16 rows[kHold][kAcross];  // bf16
  float cols[kDown][kCols];

  // A lane's columns of a row.
  __device__ static void load(const bf16* __restrict__ source, u32 (&word)[kWords]) {
    if constexpr (rht) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(source));
      word[0] = v.x, word[1] = v.y;
    } else {
      load_words(source, word);
    }
  }
};
// Chunks `first`, `first + step`, ... before `end` of the strip whose first column is `col`. Chunks rather than bands:
// blocks that run together read neighbouring memory.
struct AmaxShare {
  int first, step, end;
  int col;

  // Row `r` of the chunks from `chunk` on.
  template <bool rht>
  __device__ int row(int chunk, int r) const {
    constexpr int kRows = AmaxStrip<rht>::kRows;
    return (chunk + r / kRows * step) * kRows + r % kRows;
  }
};

// Where the maxima of lines go to which `arrivals` blocks contribute.
struct LineMerge {
  float* amax;  // of line 0: the result
  u32* maxima;  // of line 0; zero before and after
  u32* ticket;  // one; zero before and after
  u32 arrivals;

  __device__ void add(int line, float value) const {
    if (arrivals == 1)
      amax[line] = value;
    else
      atomicMax(maxima + line, __float_as_uint(value));
  }
  // Called by one thread of every block once all its maxima are added. True in the block that arrives last.
  __device__ bool arrive() const { return arrivals != 1 && atomicInc(ticket, arrivals - 1) == arrivals - 1; }
  // By the last block: the result of a line.
  __device__ void take(int line) const { amax[line] = __uint_as_float(atomicExch(maxima + line, 0u)); }
};

// The share's row maxima to `by_row`, its column maxima to `by_col`; the last block of either moves the results out.
// Called by all threads; shared memory may be used again after the next barrier.
template <Outputs outputs, bool rht, int sign_mask>
__device__ __forceinline__ void per_token_amax_share(
    AmaxStrip<rht>& shared, const bf16* __restrict__ input, int rows, int cols, const AmaxShare& share,
    const LineMerge& by_row, const LineMerge& by_col) {
  using Strip = AmaxStrip<rht>;
  constexpr bool kByRow = outputs != Outputs::columnwise, kByCol = outputs != Outputs::rowwise;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int across = warp % Strip::kAcross, down = warp / Strip::kAcross;
  const int strip_col = across * Strip::kWarpCols + lane * Strip::kLaneCols;  // in the strip
  const bool inside = share.col + strip_col < cols;

  u32 column_words[Strip::kWords] = {};
  float column_max[Strip::kLaneCols] = {};
  int held = 0;  // rows
  for (int chunk = share.first; chunk < share.end; chunk += share.step) {
    const int row = chunk * Strip::kRows + down * Strip::kWarpRows;
    const bf16* corner = input + row_offset(row, cols) + share.col + strip_col;
    u32 word[Strip::kWarpRows][Strip::kWords] = {};
    if (inside) {
#pragma unroll
      for (int r = 0; r < Strip::kWarpRows; ++r) Strip::load(corner + i64(r) * cols, word[r]);
    }
    if constexpr (kByRow) {
      u32 own = 0;
#pragma unroll
      for (int r = 0; r < Strip::kWarpRows; ++r) {
        const u32 bits = __float_as_uint(amax_of_word<bf16>(absmax<bf16>(word[r])));
        const u32 largest = __reduce_max_sync(~0u, bits);
        if (lane == r) own = largest;
      }
      if (lane < Strip::kWarpRows) {
        shared.rows[held + down * Strip::kWarpRows + lane][across] = u16(own >> 16);
      }
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
      for (int r = 0; r < Strip::kWarpRows; ++r) {
#pragma unroll
        for (int w = 0; w < Strip::kWords; ++w) {
          column_words[w] = max2(column_words[w], abs2(word[r][w], bf16{}), bf16{});
        }
      }
    }
    if constexpr (kByRow) {
      held += Strip::kRows;
      const bool last = chunk + share.step >= share.end;
      if (held < Strip::kHold && !last) continue;
      __syncthreads();
      const int first_held = chunk - (held / Strip::kRows - 1) * share.step;
      for (int r = threadIdx.x; r < held; r += Strip::kThreads) {
        u32 warps[Strip::kAcross / 2];
#pragma unroll
        for (int w = 0; w < Strip::kAcross / 2; ++w) warps[w] = reinterpret_cast<const u32*>(shared.rows[r])[w];
        by_row.add(share.row<rht>(first_held, r), amax_of_word<bf16>(absmax<bf16>(warps)));
      }
      if (!last) __syncthreads();
      held = 0;
    }
  }
  if constexpr (kByCol) {
#pragma unroll
    for (int c = 0; c < Strip::kLaneCols; ++c) {
      shared.cols[down][strip_col + c] =
          rht ? __fmul_rn(column_max[c], kRhtNorm) : element_of_word<bf16>(column_words[c / 2], c % 2);
    }
    __syncthreads();
    // Neighbouring lanes add neighbouring columns: the L2 merges a sector at a time.
    for (int c = threadIdx.x; c < Strip::kCols && share.col + c < cols; c += Strip::kThreads) {
      float m = shared.cols[0][c];
#pragma unroll
      for (int i = 1; i < Strip::kDown; ++i) m = fmaxf(m, shared.cols[i][c]);
      by_col.add(share.col + c, m);
    }
  }

  __shared__ bool last[2];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last[0] = kByRow && by_row.arrive();
    last[1] = kByCol && by_col.arrive();
    __threadfence();
  }
  __syncthreads();
  if (kByRow && last[0]) {
    const int count = (share.end - share.first + share.step - 1) / share.step;
    for (int r = threadIdx.x; r < count * Strip::kRows; r += Strip::kThreads)
      by_row.take(share.row<rht>(share.first, r));
  }
  if (kByCol && last[1]) {
    for (int col = share.col + threadIdx.x; col < min(cols, share.col + Strip::kCols); col += Strip::kThreads) {
      by_col.take(col);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// encode: a tile in both directions, in one read
// ---------------------------------------------------------------------------------------------------------------------

struct EncodeTile {
  SharedTile<bf16> tile;
  float square_amax[Turn<bf16>::kBands][Turn<bf16>::kBlocks];  // of 16x16 tiles
};

// Global scales of the two lines of a RowRole or ColumnRole. A thread divides for one of them.
template <bool weight_2d>
struct ScalePair {
  GlobalScale scale[2];

  // amax: of the first line for even lanes, of the second for odd ones
  __device__ explicit ScalePair(float amax) {
    // The floor of the amax is that of a window; the one amax of a weight has none.
    const GlobalScale own = weight_2d ? global_scale(amax, kE4m3Max) : window_scale(amax);
    float encode[2], decode[2] = {};
    share_pair(own.encode, encode);
    if constexpr (weight_2d) share_pair(own.decode, decode);
    scale[0] = {encode[0], decode[0]};
    scale[1] = {encode[1], decode[1]};
  }
};

// Sixteen values, with rht unnormalised ones, whose scale covers `amax`.
template <bool rht, Rounding rounding, bool weight_2d>
__device__ __forceinline__ EncodedBlock per_token_encode_block(
    const float (&x)[kBlock], float amax, const GlobalScale& global, u64 seed, i64 block, u32 direction, u32 offset) {
  const E4m3 scale_inv = block_scale_inv(amax, global);
  float multiplier =
      block_encode_scale<weight_2d ? Multiplier::reciprocal : Multiplier::direct>(scale_inv.value, global);
  if constexpr (rht) multiplier = __fmul_rn(multiplier, kRhtNorm);
  if constexpr (rounding == Rounding::rne) return {scale_inv.code, encode16_nearest(x, multiplier)};
  return {scale_inv.code, encode16_stochastic(x, multiplier, philox(seed, u64(block), direction, offset))};
}

// Block `block` of line `line`, of `blocks`.
template <ScaleLayout layout>
__device__ __forceinline__ void store_inner_block(
    u8* __restrict__ data, u8* __restrict__ scale_inv, int line, int block, int blocks, const EncodedBlock& encoded) {
  store_codes(data, row_offset(line, blocks) + block, encoded.codes);
  scale_inv[scale_offset<layout>(line, block, blocks)] = u8(encoded.scale_inv);
}

// The tile of kTurnLaunch at `origin`. Called by all its threads; shared memory may be used again after the next
// barrier.
template <
    Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool weight_2d, int sign_mask,
    Activation activation>
__device__ __forceinline__ void per_token_encode_tile(
    EncodeTile& shared, const Source<bf16, activation>& source, const float* __restrict__ rowwise_amax,
    const float* __restrict__ columnwise_amax, u8* __restrict__ rowwise_data, u8* __restrict__ rowwise_scale_inv,
    u8* __restrict__ columnwise_data, u8* __restrict__ columnwise_scale_inv, int rows, int cols,
    const TileOrigin& origin, u64 seed, u32 offset) {
  static_assert(!rht || !weight_2d, "a rotated column has no 16x16 tile in common with the rowwise output");
  using Turn = ::Turn<bf16>;
  const bool odd = threadIdx.x % 2 != 0;

  // Rowwise: from registers, on the way into shared memory.
  {
    const typename Turn::Role role;
    const int block_col = u32(origin.col) / kBlock + role.block, blocks = u32(cols) / kBlock;
    Packed16<bf16> x[Turn::kLines];
#pragma unroll
    for (int i = 0; i < Turn::kLines; ++i) {
      x[i] = source.block(row_offset(origin.row + role.row(i), cols) + block_col * kBlock);
    }
    float amax[Turn::kLines];
#pragma unroll
    for (int i = 0; i < Turn::kLines; ++i) {
      amax[i] = block_amax(x[i]);
      if constexpr (outputs != Outputs::rowwise) shared.tile.store(role, i, x[i]);
    }
    if constexpr (weight_2d) {
#pragma unroll
      for (int i = 1; i < Turn::kLines; ++i) amax[0] = fmaxf(amax[0], amax[i]);
      amax[0] = band_max<Turn::kBlocks>(amax[0]);
#pragma unroll
      for (int i = 1; i < Turn::kLines; ++i) amax[i] = amax[0];
      if (role.first == 0) shared.square_amax[role.band][role.block] = amax[0];
    }
    if constexpr (outputs != Outputs::columnwise) {
#pragma unroll
      for (int i = 0; i < Turn::kLines; i += 2) {
        const ScalePair<weight_2d> lines(__ldg(rowwise_amax + origin.row + role.row(i + odd)));
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int row = origin.row + role.row(i + k);
          const i64 index = row_offset(row, blocks) + block_col;
          float values[kBlock];
          unpack(x[i + k], values);
          const EncodedBlock encoded = per_token_encode_block<false, rounding, weight_2d>(
              values, amax[i + k], lines.scale[k], seed, index, 0, offset);
          store_inner_block<scale_layout>(rowwise_data, rowwise_scale_inv, row, block_col, blocks, encoded);
        }
      }
    }
  }
  // Columnwise: the same of the transpose.
  if constexpr (outputs != Outputs::rowwise) {
    __syncthreads();
    const ColumnRole role;
    const int block_row = u32(origin.row) / kBlock + role.band, blocks = u32(rows) / kBlock;
#pragma unroll
    for (int pair_index = 0; pair_index < Turn::kPairs; ++pair_index) {
      const int col_in_tile = role.pair_col(pair_index);
      const ScalePair<weight_2d> lines(__ldg(columnwise_amax + origin.col + col_in_tile + odd));
      const ColumnPair<bf16> pair = shared.tile.column_pair(role, pair_index);
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int col = origin.col + col_in_tile + column;
        const i64 index = row_offset(col, blocks) + block_row;
        float values[kBlock];
        pair.unpack(column, values);
        float amax;
        if constexpr (rht) {
          rht16<sign_mask>(values);
          amax = 0.0f;
#pragma unroll
          for (int i = 0; i < kBlock; ++i) amax = fmaxf(amax, fabsf(values[i]));
          amax = __fmul_rn(amax, kRhtNorm);
        } else if constexpr (weight_2d) {
          amax = shared.square_amax[role.band][col_in_tile / kBlock];
        } else {
          amax = pair.amax(column);
        }
        const EncodedBlock encoded =
            per_token_encode_block<rht, rounding, weight_2d>(values, amax, lines.scale[column], seed, index, 1, offset);
        store_inner_block<ScaleLayout::compact>(columnwise_data, columnwise_scale_inv, col, block_row, blocks, encoded);
      }
    }
  }
}
