// per_tensor: one amax for the whole tensor. The baseline every other recipe is timed against.
//
// Contract (NUMERICS 3), rounding of each step to nearest-even in fp32:
//   1. amax       = max |x| over the tensor, NaN dropped; with rht, the columnwise amax is over the rotated y, in bf16
//   2. S_enc      = min(2688 / amax, FLT_MAX), 1 if amax is 0 or inf
//   3. S_dec      = 1 / S_enc
//   4. scale_inv  = e4m3(block_amax * (S_enc * (1/6)))            block: 1x16, or a 16x16 tile
//   5. multiplier = min(1 / (scale_inv * S_dec), FLT_MAX)          fast_math: bf16(min(S_enc / scale_inv, BF16_MAX))
//   6. code       = e2m1(x * multiplier), nearest-even or stochastic
// -0 keeps its sign, NaN is code 7, inf is +-6 beside a scale of 448; a block whose scale underflows to 0 encodes its
// non-zero elements as +-6.
// rowwise: blocks along cols. columnwise: the same of the transpose, stored transposed; only it is rotated by rht.
//
// Run it: make verify R=per_tensor          Time it: make bench R=per_tensor
#include "layout.cuh"
#include "nvfp4.cuh"
#include "tile.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// amax: a thread keeps this many 16-byte reads in flight.
constexpr int kAmaxUnroll = 4;
constexpr int kAmaxStep = kThreads * kAmaxUnroll;  // 16-byte vectors a block takes at a time

// amax with rht: a thread rotates this many columns of 16 rows.
constexpr int kRhtCols = 4;

// rowwise: a warp covers 32 blocks of one row, a thread takes this many rows.
constexpr int kRowwiseRepeat = 4;
constexpr int kRowwiseTileRows = kWarps * kRowwiseRepeat;
constexpr int kRowwiseTileCols = 32 * kBlock;

// Left to itself (0), the compiler gives 16-bit types 64 registers, which is right, and fp32 too few, which spills.
template <typename Dtype>
constexpr int kRowwiseBlocksPerSm = sizeof(Dtype) == 4 ? 2 : 0;

// both directions: a warp loads a band of 16 rows x 64 columns; the block turns its bands through shared memory.
constexpr int kTileRows = kWarps * kBlock;
constexpr int kTileCols = 64;
constexpr int kTileBlocks = kTileCols / kBlock;

// =====================================================================================================================
// Helpers
// =====================================================================================================================

struct EncodedBlock {
  u32 scale_inv;  // e4m3
  Codes16 codes;
};

// Steps 4 to 6 for sixteen values whose scale covers `amax`.
template <Rounding rounding, bool fast_math>
__device__ __forceinline__ EncodedBlock encode_block(
    float (&x)[kBlock], float amax, const GlobalScale& global, u64 seed, i64 block, u32 direction, u32 offset) {
  const float scale_inv = block_scale_inv(amax, global);
  const float multiplier =
      fast_math ? block_encode_scale_fast(scale_inv, global) : block_encode_scale(scale_inv, global);
  const u32 code = e4m3_code(scale_inv);
  if constexpr (rounding == Rounding::rne) return {code, encode16_nearest(x, multiplier)};
  return {code, encode16_stochastic(x, multiplier, philox(seed, u64(block), direction, offset))};
}

// Two neighbouring columns of a 16-row band.
template <typename Dtype>
struct ColumnPair {
  using Row = u32;
  Row rows[kBlock];  // both elements of a row

  __device__ float amax(int column) const {
    const u32 m = absmax<Dtype>(rows);
    return column ? high_amax<Dtype>(m) : low_amax<Dtype>(m);
  }
  __device__ float element(int row, int column) const {
    return column ? high_to_float(rows[row], Dtype{}) : low_to_float(rows[row], Dtype{});
  }
};

template <>
struct ColumnPair<fp32> {
  using Row = float2;
  Row rows[kBlock];

  __device__ float amax(int column) const {
    float m = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) m = fmaxf(m, fabsf(element(i, column)));
    return m;
  }
  __device__ float element(int row, int column) const { return column ? rows[row].y : rows[row].x; }
};

// The tile in shared memory, arranged so that neither direction's accesses meet in a bank. Each 16-row band is followed
// by 16 bytes of padding, for the eight lanes that read one column of eight bands; odd rows exchange neighbouring
// 16-byte chunks, for the quarter warp that stores two rows.
template <typename Dtype>
struct SharedTile {
  static constexpr int kChunk = 16 / int(sizeof(Dtype));
  static constexpr int kBand = kBlock * kTileCols + kChunk;
  alignas(16) Dtype elements[kWarps * kBand];

  __device__ void store(int band, int row, int block, const Packed16<Dtype>& x) {
    Dtype* target = elements + band * kBand + row * kTileCols + block * kBlock;
#pragma unroll
    for (int i = 0; i < kBlock / kChunk; ++i) {
      const u32* word = x.word + 4 * i;
      uint4* chunk = reinterpret_cast<uint4*>(target + (i * kChunk ^ row % 2 * kChunk));
      *chunk = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  __device__ ColumnPair<Dtype> column_pair(int band, int col) const {
    ColumnPair<Dtype> pair;
#pragma unroll
    for (int row = 0; row < kBlock; ++row) {
      const Dtype* source = elements + band * kBand + row * kTileCols + (col ^ row % 2 * kChunk);
      pair.rows[row] = *reinterpret_cast<const typename ColumnPair<Dtype>::Row*>(source);
    }
    return pair;
  }
};

// =====================================================================================================================
// amax (step 1)
// =====================================================================================================================

template <typename Dtype>
__global__ void __launch_bounds__(kThreads) per_tensor_amax(
    const Dtype* __restrict__ input,      // (rows, cols)
    float* __restrict__ rowwise_amax,     // (1,), or null
    float* __restrict__ columnwise_amax,  // (1,), or null
    GridMax* __restrict__ amax_state,     // (1,) zero before and after
    int rows, int cols) {
  const uint4* vectors = reinterpret_cast<const uint4*>(input);
  const i64 total = i64(rows) * cols * sizeof(Dtype) / sizeof(uint4);
  u32 running = 0;
  for (i64 first = i64(blockIdx.x) * kAmaxStep; first < total; first += i64(gridDim.x) * kAmaxStep) {
    uint4 v[kAmaxUnroll];
#pragma unroll
    for (int i = 0; i < kAmaxUnroll; ++i) {
      const i64 index = first + i * kThreads + threadIdx.x;
      v[i] = index < total ? __ldg(vectors + index) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kAmaxUnroll; ++i) {
      const u32 word[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
      running = max2(running, absmax<Dtype>(word), Dtype{});
    }
  }
  u32 bits[1];
  block_max<kThreads>({amax_of_word<Dtype>(running)}, bits);
  if (threadIdx.x != 0 || !grid_max(amax_state, bits)) return;
  if (rowwise_amax != nullptr) *rowwise_amax = __uint_as_float(bits[0]);
  if (columnwise_amax != nullptr) *columnwise_amax = __uint_as_float(bits[0]);
}

template <int sign_mask>
__global__ void __launch_bounds__(kThreads) per_tensor_amax_rht(
    const bf16* __restrict__ input,       // (rows, cols)
    float* __restrict__ rowwise_amax,     // (1,), or null
    float* __restrict__ columnwise_amax,  // (1,), or null
    GridMax* __restrict__ amax_state,     // (1,) zero before and after
    int rows, int cols) {
  const u32 units_across = u32(cols) / kRhtCols;
  const u32 units = u32(rows) / kBlock * units_across;
  u32 running = 0, running_rotated = 0;
  for (u32 unit = blockIdx.x * kThreads + threadIdx.x; unit < units; unit += gridDim.x * kThreads) {
    const bf16* corner = input + i64(unit / units_across) * kBlock * cols + unit % units_across * kRhtCols;
    uint2 row[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) row[i] = __ldg(reinterpret_cast<const uint2*>(corner + i64(i) * cols));
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      const u32 word[2] = {row[i].x, row[i].y};
      running = max2(running, absmax<bf16>(word), bf16{});
    }
#pragma unroll
    for (int column = 0; column < kRhtCols; ++column) {
      float x[kBlock];
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        const u32 pair = column < 2 ? row[i].x : row[i].y;
        x[i] = column % 2 ? high_to_float(pair, bf16{}) : low_to_float(pair, bf16{});
      }
      running_rotated = max2(running_rotated, absmax<bf16>(rht16_bf16<sign_mask>(x).word), bf16{});
    }
  }
  u32 bits[2];
  block_max<kThreads>({amax_of_word<bf16>(running), amax_of_word<bf16>(running_rotated)}, bits);
  if (threadIdx.x != 0 || !grid_max(amax_state, bits)) return;
  if (rowwise_amax != nullptr) *rowwise_amax = __uint_as_float(bits[0]);
  if (columnwise_amax != nullptr) *columnwise_amax = __uint_as_float(bits[1]);
}

// =====================================================================================================================
// encode (steps 2 to 6)
// =====================================================================================================================

template <typename Dtype, Block block, Rounding rounding, ScaleLayout scale_layout, bool fast_math>
__global__ void __launch_bounds__(kThreads, kRowwiseBlocksPerSm<Dtype>) per_tensor_encode_rowwise(
    const Dtype* __restrict__ input,         // (rows, cols)
    const float* __restrict__ rowwise_amax,  // (1,)
    u8* __restrict__ rowwise_data,           // (rows, cols/2) e2m1 pairs
    u8* __restrict__ rowwise_scale_inv,      // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    int rows, int cols, u64 seed, u32 offset) {
  const TileOrigin origin = tile_origin(kRowwiseTileRows, kRowwiseTileCols);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int block_col = origin.col / kBlock + lane;
  const ScaleExtents extents(rows, cols / kBlock);

  Packed16<Dtype> x[kRowwiseRepeat];
#pragma unroll
  for (int i = 0; i < kRowwiseRepeat; ++i) {
    const int row = origin.row + i * kWarps + warp;
    x[i] =
        extents.holds(row, block_col) ? load16(input + row_offset(row, cols) + block_col * kBlock) : Packed16<Dtype>{};
  }

  constexpr int kBands = kRowwiseTileRows / kBlock;
  constexpr int kRowsPerBand = kRowwiseRepeat / kBands;
  float tile_amax[kBands] = {};
  if constexpr (block == Block::block_16x16) {
    __shared__ float partial[kBands][kWarps][32];
#pragma unroll
    for (int i = 0; i < kRowwiseRepeat; ++i) {
      tile_amax[i / kRowsPerBand] = fmaxf(tile_amax[i / kRowsPerBand], block_amax(x[i]));
    }
#pragma unroll
    for (int band = 0; band < kBands; ++band) partial[band][warp][lane] = tile_amax[band];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBands * kWarps; ++i) {
      tile_amax[i / kWarps] = fmaxf(tile_amax[i / kWarps], partial[i / kWarps][i % kWarps][lane]);
    }
  }

  const GlobalScale global = global_scale(*rowwise_amax, kE4m3Max);
  static_assert(kRowwiseTileRows == 32, "scale_step holds inside one group of 32 rows");
  const i64 first_scale = scale_offset<scale_layout>(origin.row + warp, block_col, extents.padded_blocks);
  const int scale_step = scale_row_step<scale_layout>(kWarps, extents.padded_blocks);
#pragma unroll
  for (int i = 0; i < kRowwiseRepeat; ++i) {
    const int row = origin.row + i * kWarps + warp;
    u32 scale_inv = 0;
    if (extents.holds(row, block_col)) {
      const i64 index = row_offset(row, extents.blocks) + block_col;
      const float amax = block == Block::block_16x16 ? tile_amax[i / kRowsPerBand] : block_amax(x[i]);
      float values[kBlock];
      unpack(x[i], values);
      const EncodedBlock encoded = encode_block<rounding, fast_math>(values, amax, global, seed, index, 0, offset);
      store_codes(rowwise_data, index, encoded.codes);
      scale_inv = encoded.scale_inv;
    }
    if (extents.allocated(row, block_col)) rowwise_scale_inv[first_scale + i * scale_step] = u8(scale_inv);
  }
}

// Reads the input once: 2 bytes of bf16 in, 0.5625 out for each direction.
template <
    typename Dtype, Block block, Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool fast_math,
    int sign_mask>
__global__ void __launch_bounds__(kThreads) per_tensor_encode_tile(
    const Dtype* __restrict__ input,            // (rows, cols)
    const float* __restrict__ rowwise_amax,     // (1,), or null
    const float* __restrict__ columnwise_amax,  // (1,)
    u8* __restrict__ rowwise_data,              // (rows, cols/2) e2m1 pairs, or null
    u8* __restrict__ rowwise_scale_inv,         // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, or null
    u8* __restrict__ columnwise_data,           // (cols, rows/2) e2m1 pairs
    u8* __restrict__ columnwise_scale_inv,      // (round_up(cols, 128), round_up(rows/16, 4)) e4m3
    int rows, int cols, u64 seed, u32 offset) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use per_tensor_encode_rowwise");
  static_assert(!rht || (sizeof(Dtype) == 2 && block == Block::block_1x16), "rht is defined on bf16 in 1x16 blocks");
  __shared__ SharedTile<Dtype> tile;
  __shared__ float tile_amax[kWarps][kTileBlocks];  // of 16x16 tiles
  const TileOrigin origin = tile_origin(kTileRows, kTileCols);

  // Rowwise: from registers, on the way into shared memory. Warp w holds band w, a lane two blocks of it, 8 rows apart.
  {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int block_in_tile = lane % kTileBlocks;
    const int block_col = origin.col / kBlock + block_in_tile;
    const ScaleExtents extents(rows, cols / kBlock);
    Packed16<Dtype> x[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = origin.row + warp * kBlock + i * 8 + lane / kTileBlocks;
      x[i] = extents.holds(row, block_col) ? load16(input + row_offset(row, cols) + block_col * kBlock)
                                           : Packed16<Dtype>{};
    }
    float amax[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      amax[i] = block_amax(x[i]);
      tile.store(warp, i * 8 + lane / kTileBlocks, block_in_tile, x[i]);
    }
    if constexpr (block == Block::block_16x16) {
      float m = fmaxf(amax[0], amax[1]);
#pragma unroll
      for (int offset = kTileBlocks; offset < 32; offset *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, offset));
      if (lane < kTileBlocks) tile_amax[warp][lane] = m;
      amax[0] = amax[1] = m;
    }
    if constexpr (outputs == Outputs::both) {
      const GlobalScale global = global_scale(*rowwise_amax, kE4m3Max);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = origin.row + warp * kBlock + i * 8 + lane / kTileBlocks;
        u32 scale_inv = 0;
        if (extents.holds(row, block_col)) {
          const i64 index = row_offset(row, extents.blocks) + block_col;
          float values[kBlock];
          unpack(x[i], values);
          const EncodedBlock encoded =
              encode_block<rounding, fast_math>(values, amax[i], global, seed, index, 0, offset);
          store_codes(rowwise_data, index, encoded.codes);
          scale_inv = encoded.scale_inv;
        }
        if (extents.allocated(row, block_col)) {
          rowwise_scale_inv[scale_offset<scale_layout>(row, block_col, extents.padded_blocks)] = u8(scale_inv);
        }
      }
    }
  }
  __syncthreads();
  // Columnwise: eight neighbouring lanes take the eight bands of one pair of columns, so that a column is stored 64
  // bytes at a time.
  {
    const int band = threadIdx.x % kWarps;
    const int pair_col = threadIdx.x / kWarps * 2;
    const int block_row = origin.row / kBlock + band;
    const ScaleExtents extents(cols, rows / kBlock);
    const GlobalScale global = global_scale(*columnwise_amax, kE4m3Max);
    const ColumnPair<Dtype> pair = tile.column_pair(band, pair_col);
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int col = origin.col + pair_col + column;
      u32 scale_inv = 0;
      if (extents.holds(col, block_row)) {
        const i64 index = row_offset(col, extents.blocks) + block_row;
        float values[kBlock];
#pragma unroll
        for (int i = 0; i < kBlock; ++i) values[i] = pair.element(i, column);
        float amax;
        if constexpr (rht) {
          const Packed16<bf16> y = rht16_bf16<sign_mask>(values);
          amax = block_amax(y);
          unpack(y, values);
        } else if constexpr (block == Block::block_16x16) {
          amax = tile_amax[band][pair_col / kBlock];
        } else {
          amax = pair.amax(column);
        }
        const EncodedBlock encoded = encode_block<rounding, fast_math>(values, amax, global, seed, index, 1, offset);
        store_codes(columnwise_data, index, encoded.codes);
        scale_inv = encoded.scale_inv;
      }
      if (extents.allocated(col, block_row)) {
        columnwise_scale_inv[scale_offset<scale_layout>(col, block_row, extents.padded_blocks)] = u8(scale_inv);
      }
    }
  }
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch per_tensor_amax_launch = {1, kAmaxStep * 8, kThreads, 8, Schedule::persistent};
__constant__ Launch per_tensor_amax_rht_launch = {kBlock, kThreads * kRhtCols, kThreads, 4, Schedule::persistent};
__constant__ Launch per_tensor_encode_rowwise_launch = {
    kRowwiseTileRows, kRowwiseTileCols, kThreads, 0, Schedule::tiles};
__constant__ Launch per_tensor_encode_tile_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
