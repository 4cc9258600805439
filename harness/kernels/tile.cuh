// Loads, stores, reductions and launch geometry; no numerics.
#pragma once

#include "nvfp4.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Launch geometry, which the host reads back from the compiled module under the name `<kernel>_launch`
// ---------------------------------------------------------------------------------------------------------------------

enum class Schedule {
  tiles,       // one block for each tile of the extents rounded up to 128; some beyond the last row
  persistent,  // blocks_per_sm blocks on each multiprocessor, but no more than there are tiles of work
};

struct Launch {
  int tile_rows, tile_cols;  // elements one block takes, in all or (persistent) at a time
  int threads;
  int blocks_per_sm;
  Schedule schedule;
};

// Top left element of this block's tile under Schedule::tiles: column tiles along x, row tiles along y and, since y
// ends at 65535, z.
struct TileOrigin {
  int row, col;
};

__device__ __forceinline__ TileOrigin tile_origin(int tile_rows, int tile_cols) {
  return {int(blockIdx.z * gridDim.y + blockIdx.y) * tile_rows, int(blockIdx.x) * tile_cols};
}

// Elements before row `row` of a matrix with `stride` columns.
__device__ __forceinline__ i64 row_offset(int row, int stride) { return i64(u64(u32(row)) * u32(stride)); }

// ---------------------------------------------------------------------------------------------------------------------
// Memory
// ---------------------------------------------------------------------------------------------------------------------

// Consecutive words, 16 bytes at a time. source: aligned to 16 bytes
template <int count>
__device__ __forceinline__ void load_words(const void* __restrict__ source, u32 (&word)[count]) {
  const uint4* vectors = reinterpret_cast<const uint4*>(source);
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const uint4 v = __ldg(vectors + i);
    word[4 * i] = v.x;
    word[4 * i + 1] = v.y;
    word[4 * i + 2] = v.z;
    word[4 * i + 3] = v.w;
  }
}

template <typename Dtype>
__device__ __forceinline__ Packed16<Dtype> load16(const Dtype* __restrict__ source) {
  Packed16<Dtype> x;
  load_words(source, x.word);
  return x;
}

template <typename Dtype>
__device__ __forceinline__ void store16(Dtype* target, const Packed16<Dtype>& x) {
  uint4* vectors = reinterpret_cast<uint4*>(target);
#pragma unroll
  for (int i = 0; i < Packed16<Dtype>::kWords / 4; ++i) {
    vectors[i] = make_uint4(x.word[4 * i], x.word[4 * i + 1], x.word[4 * i + 2], x.word[4 * i + 3]);
  }
}

// Sixteen codes of block `block`, 8 bytes.
__device__ __forceinline__ void store_codes(u8* data, i64 block, const Codes16& codes) {
  reinterpret_cast<uint2*>(data)[block] = make_uint2(codes.word[0], codes.word[1]);
}

// ---------------------------------------------------------------------------------------------------------------------
// Both directions: 256 threads turn a tile of 128 rows x 64 columns through shared memory
// ---------------------------------------------------------------------------------------------------------------------

struct Turn {
  static constexpr int kThreads = 256;
  static constexpr int kBands = kThreads / 32;  // of 16 rows
  static constexpr int kRows = kBands * kBlock;
  static constexpr int kCols = 64;
  static constexpr int kBlocks = kCols / kBlock;
};

// Rowwise a warp holds a band, four neighbouring lanes a row of it. A thread takes two rows, 8 apart.
struct RowRole {
  int band, first, block;

  __device__ RowRole()
      : band(threadIdx.x / 32), first(threadIdx.x % 32 / Turn::kBlocks), block(threadIdx.x % Turn::kBlocks) {}
  __device__ int row_in_band(int i) const { return i * 8 + first; }
  __device__ int row(int i) const { return band * kBlock + row_in_band(i); }
};

// Largest value among the lanes that hold the same block of columns in RowRole.
__device__ __forceinline__ float band_max(float value) {
#pragma unroll
  for (int offset = Turn::kBlocks; offset < 32; offset *= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

// Columnwise a thread holds a band of a pair of columns.
struct ColumnRole {
  int band, col;  // the first of the pair

  // Eight neighbouring lanes hold the eight bands, so that a column is stored 64 bytes at a time.
  __device__ ColumnRole() : band(threadIdx.x % Turn::kBands), col(threadIdx.x / Turn::kBands * 2) {}
  __device__ ColumnRole(int band, int col) : band(band), col(col) {}

  // A warp holds four 16x16 tiles one below the other, four neighbouring lanes a pair of columns of them. The reads of
  // the shared tile meet in banks, two at a time.
  __device__ static ColumnRole of_square_tiles() {
    const int warp = threadIdx.x / 32;
    return {warp / 4 * 4 + int(threadIdx.x % 4), warp % 4 * kBlock + int(threadIdx.x % 32 / 4 * 2)};
  }
};

// Both roles hold two lines of the output, and their lines' other holders are neighbours in even and odd number: even
// lanes know a value of the first line, odd lanes of the second, and afterwards all know both.
__device__ __forceinline__ void share_pair(float own, float (&pair)[2]) {
  const bool odd = threadIdx.x % 2 != 0;
  const float other = __shfl_xor_sync(~0u, own, 1);
  pair[0] = odd ? other : own;
  pair[1] = odd ? own : other;
}

// Two neighbouring columns of a band.
template <typename Dtype>
struct ColumnPair {
  using Row = u32;
  Row rows[kBlock];  // both elements of a row

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

// The tile, arranged so that neither direction's accesses meet in a bank. Each band is followed by 16 bytes of padding,
// for the eight lanes that read one column of eight bands; odd rows exchange neighbouring 16-byte chunks, for the
// quarter warp that stores two rows.
template <typename Dtype>
struct SharedTile {
  static constexpr int kChunk = 16 / int(sizeof(Dtype));
  static constexpr int kBand = kBlock * Turn::kCols + kChunk;
  alignas(16) Dtype elements[Turn::kBands * kBand];

  // x: row `i` of the two that `role` takes
  __device__ void store(const RowRole& role, int i, const Packed16<Dtype>& x) {
    const int row = role.row_in_band(i);
    Dtype* target = elements + role.band * kBand + row * Turn::kCols + role.block * kBlock;
#pragma unroll
    for (int j = 0; j < kBlock / kChunk; ++j) {
      const u32* word = x.word + 4 * j;
      uint4* chunk = reinterpret_cast<uint4*>(target + (j * kChunk ^ row % 2 * kChunk));
      *chunk = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  __device__ ColumnPair<Dtype> column_pair(const ColumnRole& role) const {
    ColumnPair<Dtype> pair;
#pragma unroll
    for (int row = 0; row < kBlock; ++row) {
      const Dtype* source = elements + role.band * kBand + row * Turn::kCols + (role.col ^ row % 2 * kChunk);
      pair.rows[row] = *reinterpret_cast<const typename ColumnPair<Dtype>::Row*>(source);
    }
    return pair;
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Reductions
// ---------------------------------------------------------------------------------------------------------------------

// Largest of `values` sets of non-negative floats over a block; thread 0 has the results, as bits. Such floats order
// as their bits do.
template <int threads, int values>
__device__ __forceinline__ void block_max(const float (&value)[values], u32 (&bits)[values]) {
  __shared__ u32 warp_max[values][threads / 32];
#pragma unroll
  for (int v = 0; v < values; ++v) {
    bits[v] = __float_as_uint(value[v]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) bits[v] = max(bits[v], __shfl_xor_sync(~0u, bits[v], offset));
    if (threadIdx.x % 32 == 0) warp_max[v][threadIdx.x / 32] = bits[v];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int v = 0; v < values; ++v) {
#pragma unroll
    for (int warp = 1; warp < threads / 32; ++warp) bits[v] = max(bits[v], warp_max[v][warp]);
  }
}

// Maxima over the whole grid. All zero before a launch and after it, so that no launch has to clear it and a graph
// can replay.
struct GridMax {
  u32 bits[2];  // largest values so far
  u32 ticket;   // blocks that have arrived
  u32 unused;
};

// Called by one thread of every block. True in the block that arrives last, which then holds the results.
template <int values>
__device__ __forceinline__ bool grid_max(GridMax* state, u32 (&bits)[values]) {
#pragma unroll
  for (int v = 0; v < values; ++v) atomicMax(&state->bits[v], bits[v]);
  __threadfence();
  // atomicInc wraps to 0 when the last block arrives.
  if (atomicInc(&state->ticket, gridDim.x - 1) != gridDim.x - 1) return false;
  __threadfence();
#pragma unroll
  for (int v = 0; v < values; ++v) bits[v] = atomicExch(&state->bits[v], 0u);
  return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// The amax of a tensor, by a persistent grid
// ---------------------------------------------------------------------------------------------------------------------

struct TensorAmax {
  static constexpr int kThreads = 256;
  static constexpr int kUnroll = 4;                 // 16-byte reads a thread keeps in flight
  static constexpr int kStep = kThreads * kUnroll;  // 16-byte vectors a block takes at a time
  static constexpr Launch kLaunch = {1, kStep * 8, kThreads, 8, Schedule::persistent};
};

// Reads the input once. Either result may be null.
template <typename Dtype>
__device__ __forceinline__ void tensor_amax(
    const Dtype* __restrict__ input, int rows, int cols, GridMax* __restrict__ state, float* __restrict__ rowwise_amax,
    float* __restrict__ columnwise_amax) {
  const uint4* vectors = reinterpret_cast<const uint4*>(input);
  const i64 total = i64(rows) * cols * sizeof(Dtype) / sizeof(uint4);
  u32 running = 0;
  for (i64 first = i64(blockIdx.x) * TensorAmax::kStep; first < total; first += i64(gridDim.x) * TensorAmax::kStep) {
    uint4 v[TensorAmax::kUnroll];
#pragma unroll
    for (int i = 0; i < TensorAmax::kUnroll; ++i) {
      const i64 index = first + i * TensorAmax::kThreads + threadIdx.x;
      v[i] = index < total ? __ldg(vectors + index) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < TensorAmax::kUnroll; ++i) {
      const u32 word[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
      running = max2(running, absmax<Dtype>(word), Dtype{});
    }
  }
  u32 bits[1];
  block_max<TensorAmax::kThreads>({amax_of_word<Dtype>(running)}, bits);
  if (threadIdx.x != 0 || !grid_max(state, bits)) return;
  if (rowwise_amax != nullptr) *rowwise_amax = __uint_as_float(bits[0]);
  if (columnwise_amax != nullptr) *columnwise_amax = __uint_as_float(bits[0]);
}
