// A tile transposed through shared memory, so that both directions are quantized from one read.
#pragma once

#include "memory/cp_async.cuh"
#include "numerics/packed16.cuh"

// A CTA takes 128x128 elements and stores 64 contiguous bytes of codes and 8 of scales either way, because the L2 takes
// as long for a few bytes as for many. 16-bit types take one pass, fp32 two, whose halves fit into shared memory.
struct TransposeTile {
  static constexpr int kRows = 128, kCols = 128, kThreads = 256;
};
constexpr int kTransposeBlocksPerSm = __CUDA_ARCH__ == 900 ? 4 : 3;  // as many as registers allow without spilling

// Rowwise, a warp holds a band of 16 rows, with the blocks of a row in neighbouring lanes. A thread takes one block in
// each of kLines rows.
template <int blocks>
struct RowRole {
  static constexpr int kLines = blocks / 2;
  static constexpr int kStep = 32 / blocks;  // rows between a thread's blocks
  int band, first, block;

  __device__ RowRole() : band(threadIdx.x / 32), first(threadIdx.x % 32 / blocks), block(threadIdx.x % blocks) {}
  __device__ int row_in_band(int i) const { return i * kStep + first; }
  __device__ int row(int i) const { return band * kBlock + row_in_band(i); }
};

template <typename Dtype>
struct TransposePass {
  static constexpr int kRows = TransposeTile::kRows;
  static constexpr int kBands = kRows / kBlock;
  static constexpr int kCols = TransposeTile::kCols / (sizeof(Dtype) == 4 ? 2 : 1);
  static constexpr int kBlocks = kCols / kBlock;
  static constexpr int kPasses = TransposeTile::kCols / kCols;
  using Role = RowRole<kBlocks>;
  static constexpr int kLines = Role::kLines;  // lines of a thread, rowwise and columnwise
  static constexpr int kPairs = kLines / 2;
};

// Columnwise, a thread holds a band of kPairs pairs of columns, 64 columns apart.
struct ColumnRole {
  static constexpr int kStep = 64;
  int band, col;  // the first column of the first pair

  // Eight neighbouring lanes hold the eight bands, so a column is stored 64 bytes at a time.
  __device__ ColumnRole() : band(threadIdx.x % 8), col(threadIdx.x / 8 * 2) {}
  __device__ ColumnRole(int band, int col) : band(band), col(col) {}

  // A warp holds four 16x16 blocks one below the other, four neighbouring lanes a pair of their columns. Shared loads
  // have two-way bank conflicts.
  __device__ static ColumnRole of_16x16_blocks() {
    const int warp = threadIdx.x / 32;
    return {warp / 4 * 4 + int(threadIdx.x % 4), warp % 4 * kBlock + int(threadIdx.x % 32 / 4 * 2)};
  }
  __device__ int pair_col(int pair) const { return col + pair * kStep; }
};

// Two neighbouring columns of a band
template <typename Dtype>
struct ColumnPair {
  using Row = u32;
  Row rows[kBlock];  // both columns of each row

  __device__ float amax(int column) const {
    const u32 m = absmax<Dtype>(rows);
    return column ? high_to_float(m, Dtype{}) : low_to_float(m, Dtype{});
  }
  __device__ void unpack(int column, float (&value)[kBlock]) const {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      value[i] = column ? high_to_float(rows[i], Dtype{}) : low_to_float(rows[i], Dtype{});
    }
  }
};

template <>
struct ColumnPair<fp32> {
  using Row = float2;
  Row rows[kBlock];

  __device__ float amax(int column) const {
    float m = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) m = fmaxf(m, fabsf(column ? rows[i].y : rows[i].x));
    return m;
  }
  __device__ void unpack(int column, float (&value)[kBlock]) const {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) value[i] = column ? rows[i].y : rows[i].x;
  }
};

// The tile, laid out so that neither direction has bank conflicts. 16 bytes of padding after each band separate the
// eight lanes that read one column of eight bands. 16-byte chunks swap with their neighbours in odd rows, for the
// quarter warp that stores two rows, and right of column 64, for one that stores more than 128 bytes of a row.
template <typename Dtype>
struct TransposeSmem {
  static constexpr int kCols = TransposePass<Dtype>::kCols;
  static constexpr int kChunk = 16 / int(sizeof(Dtype));
  static constexpr int kBand = kBlock * kCols + kChunk;
  alignas(16) Dtype elements[TransposePass<Dtype>::kBands * kBand];

  __device__ static int place(int band, int row_in_band, int col) {
    return band * kBand + row_in_band * kCols + (col ^ (row_in_band + col / 64) % 2 * kChunk);
  }

  // x: the role's row `i`
  __device__ void store(const typename TransposePass<Dtype>::Role& role, int i, const Packed16<Dtype>& x) {
#pragma unroll
    for (int j = 0; j < kBlock / kChunk; ++j) {
      const u32* word = x.word + 4 * j;
      const int at = place(role.band, role.row_in_band(i), role.block * kBlock + j * kChunk);
      *reinterpret_cast<uint4*>(elements + at) = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  // Starts to copy a block to the role's row `i`, or zeros if not `used`.
  __device__ void copy(
      const typename TransposePass<Dtype>::Role& role, int i, const Dtype* __restrict__ source, bool used) {
#pragma unroll
    for (int j = 0; j < kBlock / kChunk; ++j) {
      const int at = place(role.band, role.row_in_band(i), role.block * kBlock + j * kChunk);
      cp_async<16>(elements + at, source + j * kChunk, used);
    }
  }

  __device__ Packed16<Dtype> load(const typename TransposePass<Dtype>::Role& role, int i) const {
    Packed16<Dtype> x;
#pragma unroll
    for (int j = 0; j < kBlock / kChunk; ++j) {
      const int at = place(role.band, role.row_in_band(i), role.block * kBlock + j * kChunk);
      const uint4 v = *reinterpret_cast<const uint4*>(elements + at);
      x.word[4 * j] = v.x;
      x.word[4 * j + 1] = v.y;
      x.word[4 * j + 2] = v.z;
      x.word[4 * j + 3] = v.w;
    }
    return x;
  }

  __device__ ColumnPair<Dtype> column_pair(const ColumnRole& role, int pair_index) const {
    ColumnPair<Dtype> pair;
#pragma unroll
    for (int row = 0; row < kBlock; ++row) {
      const Dtype* source = elements + place(role.band, row, role.pair_col(pair_index));
      pair.rows[row] = *reinterpret_cast<const typename ColumnPair<Dtype>::Row*>(source);
    }
    return pair;
  }

  // Stores a row of a pair of columns, rounded to Dtype.
  __device__ void store_pair(const ColumnRole& role, int pair_index, int row, float left, float right) {
    Dtype* target = elements + place(role.band, row, role.pair_col(pair_index));
    if constexpr (sizeof(Dtype) == 4)
      *reinterpret_cast<float2*>(target) = make_float2(left, right);
    else
      *reinterpret_cast<u32*>(target) = pack2(left, right, Dtype{});
  }

  // 16 bytes of a row of the tile, from column `col` on, a multiple of kChunk
  __device__ uint4 chunk(int row, int col) const {
    return *reinterpret_cast<const uint4*>(elements + place(row / kBlock, row % kBlock, col));
  }
};

// Shared memory of a CTA that encodes a tile
template <typename Dtype>
struct EncodeSmem {
  TransposeSmem<Dtype> tile;
  float amax_16x16[TransposePass<Dtype>::kBands][TransposePass<Dtype>::kBlocks];  // of 16x16 blocks
};
