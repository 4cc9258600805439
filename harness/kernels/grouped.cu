// grouped: up to 64 tensors in one launch, each quantized as if it were alone.
//
// Contract (NUMERICS 8), each step rounded to nearest-even in fp32:
//   1. v      = grad, grad * derivative(act_input), or by SwiGLU; f32->Dtype rounds to nearest even before steps 3, 4
//   2. dbias  = sum of the unrounded v                  from 0 down each 128 rows of a column, then from 0 over these
//                                                       chunks in order; f32->Dtype rounds to nearest even
//   3. amaxes = as the dense recipe has them            0 for an empty tensor
//   4. codes  = as the dense recipe has them            sr counts random bits from offset + index of the tensor
// The tensors of `input` and of every output lie back to back, each padded as if alone. Any of them may be empty.
//
// Run it: make verify R=grouped          Time it: make bench R=grouped
#include "encode/grouped_blocks_per_sm.cuh"
#include "encode/local_1x64.cuh"
#include "encode/per_tensor.cuh"
#include "encode/row_scaled.cuh"
#include "memory/swiglu.cuh"
#include "reduce/dbias.cuh"
#include "reduce/group_amax.cuh"
#include "reduce/group_row_col_amax.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;

// Sign mask of rht, and bound of four_over_six: the flag's value, or the recipe's own
constexpr int own = -1;
template <int sign_mask>
constexpr int kPerTensorSigns = sign_mask == own ? 0xD7E8 : sign_mask;
template <int sign_mask>
constexpr int kPerTokenSigns = sign_mask == own ? 0xACE1 : sign_mask;
template <int e4m3_max>
constexpr int kFourOverSixMax = e4m3_max == own ? 256 : e4m3_max;

// encode rowwise: a warp covers 32 blocks of a row, a thread takes this many rows.
constexpr int kWarps = kThreads / 32;
constexpr int kRowwiseRepeat = 4;
constexpr int kRowwiseTileRows = kWarps * kRowwiseRepeat, kRowwiseTileCols = 32 * kBlock;
using RowwiseTiles = GroupTiles<kRowwiseTileRows, kRowwiseTileCols>;
using TransposeTiles = GroupTiles<TransposeTile::kRows, TransposeTile::kCols>;
using DbiasTiles = GroupTiles<kChunkRows, DbiasTile::kCols>;
using FourOverSixTiles = GroupTiles<FourOverSixRows::kRows, FourOverSixRows::kCols>;
using WholeRows = GroupRows<RowScaledRows::kRows>;
using RowScaledAmaxTiles = GroupTiles<RowScaledAmaxTile::kRows, RowScaledAmaxTile::kCols>;

// =====================================================================================================================
// amaxes (step 3)
// =====================================================================================================================

template <typename Dtype>
__global__ void __launch_bounds__(TensorAmax::kThreads, 5) grouped_amax(
    const Dtype* __restrict__ input,         // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (num_tensors,)
    Optional<float> columnwise_amax,         // (num_tensors,)
    GroupAmax* __restrict__ amax_state,      // (1,) zero before and after
    int num_tensors) {
  group_amax(input, {first_dims, last_dims, tensor_offsets, num_tensors}, rowwise_amax, columnwise_amax, amax_state);
}

template <typename Dtype, int sign_mask>
__global__ void __launch_bounds__(kThreads) grouped_amax_rht(
    const Dtype* __restrict__ input,         // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (num_tensors,)
    float* __restrict__ columnwise_amax,     // (num_tensors,)
    GroupAmax* __restrict__ amax_state,      // (1,) zero before and after
    int num_tensors) {
  group_amax_rht<kThreads, kPerTensorSigns<sign_mask>>(
      input, {first_dims, last_dims, tensor_offsets, num_tensors}, rowwise_amax, columnwise_amax, amax_state);
}

// =====================================================================================================================
// d-activation, dbias and amaxes in one read (steps 1 to 3)
// =====================================================================================================================

// An item is a chunk of rows; a thread sums a pair of its columns.
template <typename Dtype, Activation activation, bool rht, int sign_mask>
__global__ void __launch_bounds__(kThreads, kDbiasBlocksPerSm) grouped_amax_dbias(
    const Dtype* __restrict__ input,         // (elements,)
    Optional<const Dtype> act_input,         // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (num_tensors,)
    Optional<float> columnwise_amax,         // (num_tensors,)
    Optional<float> dbias_partials,          // (chunks, cols)
    GroupAmax* __restrict__ amax_state,      // (1,) zero before and after
    int num_tensors) {
  static_assert(!rht || sizeof(Dtype) == 2, "rht is defined on bf16");
  constexpr int kValues = rht ? 2 : 1;
  __shared__ Group group;
  __shared__ CtaGroupAmax<kValues> maxima;
  maxima.clear();
  read_group<Offsets::chunks>(group, {first_dims, last_dims, tensor_offsets, num_tensors}, DbiasTiles::count);
  for_each_work_item(group, [&](int index, const GroupTensor& tensor, u32 item) {
    const DactPrologue<Dtype, activation> prologue = {input + tensor.element, act_input + tensor.element};
    const TileOrigin origin = DbiasTiles::origin(tensor.cols, item);
    float amax[kValues] = {};
    const float2 sum = column_sums(prologue, tensor.rows, tensor.cols, origin, [&](int, const ColumnPair<Dtype>& pair) {
      add_amaxes<rht, kPerTensorSigns<sign_mask>>(pair, amax);
    });
    store_dbias_partials(dbias_partials, tensor, origin, sum);
    maxima.merge(index, amax);
  });
  maxima.finish(amax_state, num_tensors, [&](int index, const float (&amax)[kValues]) {
    if (rowwise_amax != nullptr) rowwise_amax[index] = amax[0];
    if (columnwise_amax != nullptr) columnwise_amax[index] = amax[kValues - 1];
  });
}

// Stores SwiGLU or its gradients for the encode, and finds their amaxes. An item is kThreads units of SwigluArrays.
template <typename Dtype, Activation activation, bool rht, int sign_mask>
__global__ void __launch_bounds__(kThreads, kSwigluBlocksPerSm<Dtype, activation>) grouped_amax_swiglu(
    const Dtype* __restrict__ input,         // (2 * elements,) gates and ups; dswiglu: (elements / 2,) gradients
    Optional<const Dtype> act_input,         // (elements,) gates and ups of dswiglu
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<Dtype> activated,               // (elements,)
    Optional<float> rowwise_amax,            // (num_tensors,)
    Optional<float> columnwise_amax,         // (num_tensors,)
    GroupAmax* __restrict__ amax_state,      // (1,) zero before and after
    int num_tensors) {
  constexpr int kValues = rht ? 2 : 1;
  using Arrays = SwigluArrays<Dtype, activation, kThreads>;
  __shared__ Group group;
  __shared__ CtaGroupAmax<kValues> maxima;
  __shared__ typename Arrays::Smem shared;
  maxima.clear();
  read_group<Offsets::none>(group, {first_dims, last_dims, tensor_offsets, num_tensors}, [](int rows, int cols) {
    return (Arrays::units(rows, cols) + kThreads - 1) / kThreads;
  });
  for_each_work_item(group, [&](int index, const GroupTensor& tensor, u32 item) {
    const Arrays arrays = {input, act_input, activated, tensor.cols, tensor.element};
    float amax[kValues] = {};
    arrays.unit(shared, item * kThreads + threadIdx.x, tensor.rows, [&](const ColumnPair<Dtype>& pair) {
      add_amaxes<rht, kPerTensorSigns<sign_mask>>(pair, amax);
    });
    maxima.merge(index, amax);
  });
  maxima.finish(amax_state, num_tensors, [&](int index, const float (&amax)[kValues]) {
    if (rowwise_amax != nullptr) rowwise_amax[index] = amax[0];
    if (columnwise_amax != nullptr) columnwise_amax[index] = amax[kValues - 1];
  });
}

// Step 2, from the sums that grouped_amax_dbias left
template <typename Dtype>
__global__ void __launch_bounds__(kThreads) grouped_dbias(
    const float* __restrict__ dbias_partials,  // (chunks, cols)
    const i64* __restrict__ first_dims,        // (num_tensors,)
    const i64* __restrict__ last_dims,         // (num_tensors,)
    const i64* __restrict__ tensor_offsets,    // (num_tensors + 1,)
    Dtype* __restrict__ dbias,                 // (num_tensors, cols)
    int num_tensors) {
  group_dbias<kThreads>(dbias_partials, {first_dims, last_dims, tensor_offsets, num_tensors}, dbias);
}

// =====================================================================================================================
// encode (step 4)
// =====================================================================================================================

template <
    typename Dtype, Rounding rounding, ScaleLayout scale_layout, bool fast_math, Activation activation,
    Schedule schedule, GivenAmax amax, Block block>
__global__ void __launch_bounds__(kThreads, kRowwiseBlocksPerSm<Dtype, block, rounding, activation, schedule>)
    grouped_encode_rowwise(
        const Dtype* __restrict__ input,         // (elements,)
        Optional<const Dtype> act_input,         // (elements,)
        const i64* __restrict__ first_dims,      // (num_tensors,)
        const i64* __restrict__ last_dims,       // (num_tensors,)
        const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
        const float* __restrict__ rowwise_amax,  // (num_tensors,), or (1,) with shared
        u8* __restrict__ rowwise_data,           // (elements / 2,) e2m1 pairs
        u8* __restrict__ rowwise_scale_inv,      // (padded scales of each tensor,) e4m3
        int num_tensors, u64 seed, u32 offset) {
  for_each_work_item<schedule, Offsets::scales, From::last>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, RowwiseTiles::count,
      [&](int index, const GroupTensor& tensor, u32 item) {
        using Prologue = GroupPrologue<Dtype, activation>;
        const typename Prologue::Type prologue = {
            input + Prologue::kInputs * tensor.element, act_input + tensor.element};
        const TileOrigin origin = RowwiseTiles::origin(tensor.cols, item);
        const ScaleExtents extents(tensor.rows, u32(tensor.cols) / kBlock);
        const int first_row = origin.row + int(threadIdx.x) / 32;
        const int block_col = origin.col / kBlock + int(threadIdx.x) % 32;
        Packed16<Dtype> x[kRowwiseRepeat];
#pragma unroll
        for (int i = 0; i < kRowwiseRepeat; ++i) x[i] = prologue.block(extents, first_row + i * kWarps, block_col);
        constexpr int kBands = kRowwiseTileRows / kBlock;
        float tile_amax[kBands] = {};
        if constexpr (block == Block::block_16x16) amax_16x16_of_rows<kWarps>(x, tile_amax);
        const GlobalScale global = global_scale(given_amax<amax>(rowwise_amax, index), kE4m3Max);
        const TileStore<scale_layout> target(
            {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.rowwise_scale_inv}, extents, first_row,
            block_col);
#pragma unroll
        for (int i = 0; i < kRowwiseRepeat; ++i) {
          const int row = first_row + i * kWarps;
          float values[kBlock];
          unpack(x[i], values);
          const float amax_of_block =
              block == Block::block_16x16 ? tile_amax[i * kBands / kRowwiseRepeat] : block_amax(x[i]);
          const EncodedBlock encoded = per_tensor_encode_block<rounding, fast_math>(
              values, amax_of_block, global, seed, block_index(extents, row, block_col), 0, offset + index);
          target.store(i * kWarps, encoded);
        }
      });
}

// Reads the input once: 2 bytes of bf16 in, 0.5625 out for each direction.
template <
    typename Dtype, Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, bool fast_math,
    Activation activation, int sign_mask, Schedule schedule, GivenAmax amax, Block block>
__global__ void __launch_bounds__(
    TransposeTile::kThreads, kTensorBlocksPerSm<Dtype, rht, rounding, scale_layout, fast_math, activation, schedule>)
    grouped_encode_tile(
        const Dtype* __restrict__ input,         // (elements,)
        Optional<const Dtype> act_input,         // (elements,)
        const i64* __restrict__ first_dims,      // (num_tensors,)
        const i64* __restrict__ last_dims,       // (num_tensors,)
        const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
        Optional<const float> rowwise_amax,      // (num_tensors,), or (1,) with shared
        Optional<const float> columnwise_amax,   // (num_tensors,), (1,) with shared, null with rowwise
        Optional<u8> rowwise_data,               // (elements / 2,) e2m1 pairs
        Optional<u8> rowwise_scale_inv,          // (padded scales of each tensor,) e4m3
        u8* __restrict__ columnwise_data,        // (elements / 2,) e2m1 pairs
        u8* __restrict__ columnwise_scale_inv,   // (padded scales of each tensor,) e4m3
        int num_tensors, u64 seed, u32 offset) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use grouped_encode_rowwise");
  __shared__ EncodeSmem<Dtype> shared;
  for_each_work_item<schedule, Offsets::scales, From::last>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, TransposeTiles::count,
      [&](int index, const GroupTensor& tensor, u32 item) {
        using Prologue = GroupPrologue<Dtype, activation>;
        const typename Prologue::Type prologue = {
            input + Prologue::kInputs * tensor.element, act_input + tensor.element};
        per_tensor_tile<block, outputs, rht, rounding, scale_layout, fast_math, kPerTensorSigns<sign_mask>>(
            shared, prologue, [&] { return given_amax<amax>(rowwise_amax, index); },
            [&] { return given_amax<amax>(amax == GivenAmax::rowwise ? rowwise_amax : columnwise_amax, index); },
            {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.rowwise_scale_inv},
            {columnwise_data + tensor.element / 2, columnwise_scale_inv + tensor.columnwise_scale_inv}, tensor.rows,
            tensor.cols, TransposeTiles::origin(tensor.cols, item), seed, offset + index);
      });
}

// =====================================================================================================================
// per_token
// =====================================================================================================================

// edges: whether an extent of some tensor need not be a multiple of 128. A state holds u32: a maximum for each
// line, of which the shortest has 128 elements, 16 with edges, then tickets. Both kernels read the input once.
template <Outputs outputs, bool edges>
__global__ void __launch_bounds__(kThreads, kTokenAmaxBlocksPerSm) grouped_per_token_amax(
    const bf16* __restrict__ input,          // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (rows of all,)
    Optional<float> columnwise_amax,         // (cols of all,)
    u32* __restrict__ rowwise_state,         // (lines + tickets,) zero before and after
    u32* __restrict__ columnwise_state,      // (lines + tickets,) zero before and after
    int num_tensors) {
  group_row_col_amax<outputs, false, 0, edges>(
      input, {first_dims, last_dims, tensor_offsets, num_tensors}, {rowwise_amax, rowwise_state},
      {columnwise_amax, columnwise_state});
}

template <Outputs outputs, int sign_mask, bool edges>
__global__ void __launch_bounds__(kThreads, kTokenAmaxRhtBlocksPerSm) grouped_per_token_amax_rht(
    const bf16* __restrict__ input,          // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (rows of all,)
    float* __restrict__ columnwise_amax,     // (cols of all,)
    u32* __restrict__ rowwise_state,         // (lines + tickets,) zero before and after
    u32* __restrict__ columnwise_state,      // (lines + tickets,) zero before and after
    int num_tensors) {
  group_row_col_amax<outputs, true, kPerTokenSigns<sign_mask>, edges>(
      input, {first_dims, last_dims, tensor_offsets, num_tensors}, {rowwise_amax, rowwise_state},
      {columnwise_amax, columnwise_state});
}

// Steps 1 to 3; an item is a chunk of rows
template <Outputs outputs, bool rht, Activation activation, int sign_mask, bool edges>
__global__ void __launch_bounds__(kThreads, kDbiasBlocksPerSm) grouped_per_token_amax_dbias(
    const bf16* __restrict__ input,          // (elements,)
    Optional<const bf16> act_input,          // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (rows of all,)
    Optional<float> columnwise_amax,         // (cols of all,)
    Optional<float> dbias_partials,          // (chunks, cols)
    u32* __restrict__ rowwise_state,         // (lines + tickets,) zero before and after
    u32* __restrict__ columnwise_state,      // (lines + tickets,) zero before and after
    int num_tensors) {
  __shared__ Group group;
  __shared__ u32 row_max[kChunkRows];
  // Columns of an empty tensor have amaxes of 0.
  read_group<Offsets::chunks>(group, {first_dims, last_dims, tensor_offsets, num_tensors}, [](int rows, int cols) {
    return DbiasTiles::count(max(rows, 1), cols);
  });
  for_each_work_item(group, [&](int, const GroupTensor& tensor, u32 item) {
    const i64 elements = __ldg(tensor_offsets + num_tensors);
    const DactPrologue<bf16, activation> prologue = {input + tensor.element, act_input + tensor.element};
    const TileOrigin origin = DbiasTiles::origin(tensor.cols, item);
    const int strips = DbiasTiles::across(tensor.cols);
    const int chunks = max(1, (edges ? round_up(tensor.rows, kChunkRows) : tensor.rows) / kChunkRows);
    const int strip = origin.col / DbiasTile::kCols, chunk = origin.row / kChunkRows;
    const int row_arrivals = tensor.rows == 0 ? 1 : strips;  // an empty tensor has no ticket of its own
    __syncthreads();
    const float2 sum = dbias_row_col_amax<outputs, rht, kPerTokenSigns<sign_mask>>(
        row_max, prologue, tensor.rows, tensor.cols, origin,
        group_rows<edges>(rowwise_state, elements).merge(rowwise_amax + tensor.row, tensor, chunk, row_arrivals),
        group_cols<edges>(columnwise_state, elements).merge(columnwise_amax + tensor.col, tensor, strip, chunks));
    store_dbias_partials(dbias_partials, tensor, origin, sum);
  });
}

template <
    Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, Activation activation, int sign_mask,
    Schedule schedule, bool edges>
__global__ void __launch_bounds__(TransposeTile::kThreads, kTokenBlocksPerSm<rounding, activation, schedule>)
    grouped_per_token_encode(
        const bf16* __restrict__ input,          // (elements,)
        Optional<const bf16> act_input,          // (elements,)
        const i64* __restrict__ first_dims,      // (num_tensors,)
        const i64* __restrict__ last_dims,       // (num_tensors,)
        const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
        Optional<const float> rowwise_amax,      // (rows of all,)
        Optional<const float> columnwise_amax,   // (cols of all,)
        Optional<u8> rowwise_data,               // (elements/2,) e2m1 pairs
        Optional<u8> rowwise_scale_inv,          // (padded scales of each tensor,) e4m3
        Optional<u8> columnwise_data,            // (elements/2,) e2m1 pairs
        Optional<u8> columnwise_scale_inv,       // (padded scales of each tensor,) e4m3
        int num_tensors, u64 seed, u32 offset) {
  __shared__ EncodeSmem<bf16> tile;
  // Without edges nothing is padded, and a tensor's scales begin where its elements do.
  for_each_work_item<schedule, edges ? Offsets::both : Offsets::lines, From::last>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, TransposeTiles::count,
      [&](int index, const GroupTensor& tensor, u32 item) {
        const DactPrologue<bf16, activation, true> prologue = {input + tensor.element, act_input + tensor.element};
        per_token_encode_tile<
            outputs, rht, rounding, scale_layout, false, kPerTokenSigns<sign_mask>, edges, outputs != Outputs::rowwise>(
            tile, prologue, rowwise_amax + tensor.row, columnwise_amax + tensor.col,
            {rowwise_data + tensor.element / 2,
             rowwise_scale_inv + (edges ? tensor.rowwise_scale_inv : tensor.element / kBlock)},
            {columnwise_data + tensor.element / 2,
             columnwise_scale_inv + (edges ? tensor.columnwise_scale_inv : tensor.element / kBlock)},
            tensor.rows, tensor.cols, TransposeTiles::origin(tensor.cols, item), seed, offset + index);
      });
  wait_for_launch_ahead();  // of a CTA without an item
}

// Amaxes and encoding in one launch, on a device that holds all tiles at once, one to a CTA.
template <Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout, int sign_mask>
__global__ void __launch_bounds__(kThreads, kMostGroupedResidentBlocksPerSm<outputs, rht, rounding, scale_layout>)
    grouped_per_token_resident(
        const bf16* __restrict__ input,           // (elements,)
        const i64* __restrict__ first_dims,       // (num_tensors,)
        const i64* __restrict__ last_dims,        // (num_tensors,)
        const i64* __restrict__ tensor_offsets,   // (num_tensors + 1,)
        Optional<float> rowwise_amax,             // (rows of all,)
        Optional<float> columnwise_amax,          // (cols of all,)
        Optional<u8> rowwise_data,                // (elements/2,) e2m1 pairs
        Optional<u8> rowwise_scale_inv,           // (elements/16,) e4m3
        Optional<u8> columnwise_data,             // (elements/2,) e2m1 pairs
        Optional<u8> columnwise_scale_inv,        // (elements/16,) e4m3
        TileSync* __restrict__ rowwise_bands,     // (elements/16384,) zero before and after
        TileSync* __restrict__ columnwise_bands,  // (elements/16384,) zero before and after
        int num_tensors, u64 seed, u32 offset) {
  __shared__ ResidentSmem shared;
  __shared__ WorkItem work_item;
  find_work_item<Offsets::lines>(
      work_item, blockIdx.x, {first_dims, last_dims, tensor_offsets, num_tensors}, TransposeTiles::count);
  if (work_item.index < num_tensors) {
    const GroupTensor& tensor = work_item.tensor;
    // A tensor has at most as many rows or columns of tiles as it has tiles.
    const i64 tile = tensor.element / (TransposeTile::kRows * TransposeTile::kCols);
    const InputPrologue<bf16> prologue = {input + tensor.element};
    per_token_resident_tile<outputs, rht, rounding, scale_layout, kPerTokenSigns<sign_mask>, false>(
        shared, prologue, rowwise_bands + tile, columnwise_bands + tile,
        [&] {
          return PerTokenOutputs{
              rowwise_amax + tensor.row,
              columnwise_amax + tensor.col,
              {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.element / kBlock},
              {columnwise_data + tensor.element / 2, columnwise_scale_inv + tensor.element / kBlock}};
        },
        tensor.rows, tensor.cols, TransposeTiles::origin(tensor.cols, work_item.item), seed, offset + work_item.index);
  }
  if (blockIdx.x == 0) clear_amaxes_of_empty(first_dims, last_dims, rowwise_amax, columnwise_amax, num_tensors);
}

// =====================================================================================================================
// row_scaled
// =====================================================================================================================

// rowwise: amaxes and encoding from one read
template <typename Dtype, ScaleLayout scale_layout, Stage stage, Schedule schedule>
__global__ void __launch_bounds__(RowScaledRows::kThreads, kRowScaledRowsBlocksPerSm<Dtype>)
    grouped_row_scaled_quantize(
        const Dtype* __restrict__ input,         // (elements,)
        const i64* __restrict__ first_dims,      // (num_tensors,)
        const i64* __restrict__ last_dims,       // (num_tensors,)
        const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
        float* __restrict__ rowwise_amax,        // (rows of all,)
        Optional<u8> rowwise_data,               // (elements / 2,) e2m1 pairs
        Optional<u8> rowwise_scale_inv,          // (padded scales of each tensor,) e4m3
        int num_tensors) {
  __shared__ u32 warp_max[2][RowScaledRows::kWarps];
  for_each_work_item<schedule, Offsets::both>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, WholeRows::count,
      [&](int, const GroupTensor& tensor, u32 item) {
        row_scaled_rows<Dtype, scale_layout, stage>(
            warp_max, input + tensor.element, rowwise_amax + tensor.row,
            {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.rowwise_scale_inv}, tensor.rows, tensor.cols,
            int(item) * RowScaledRows::kRows);
      });
}

// Clears the amaxes of all tensors, for grouped_row_scaled_amax to merge into.
template <Outputs outputs>
__global__ void __launch_bounds__(kThreads) grouped_row_scaled_clear_amax(
    const i64* __restrict__ first_dims,   // (num_tensors,)
    const i64* __restrict__ last_dims,    // (num_tensors,)
    Optional<float> rowwise_amax,         // (rows of all,)
    float* __restrict__ columnwise_amax,  // (cols of all,)
    int num_tensors) {
  i64 rows = 0, cols = 0;
  for (int index = 0; index < num_tensors; ++index) {
    rows += __ldg(first_dims + index);
    cols += __ldg(last_dims + index);
  }
  for (i64 i = blockIdx.x * kThreads + threadIdx.x; i < max(rows, cols); i += gridDim.x * kThreads) {
    if (outputs == Outputs::both && i < rows) rowwise_amax[i] = 0.0f;
    if (i < cols) columnwise_amax[i] = 0.0f;
  }
}

// Merges maxima into amaxes that start at 0. Reads the input once.
template <typename Dtype, Outputs outputs>
__global__ void __launch_bounds__(RowScaledAmaxTile::kThreads, kRowScaledAmaxBlocksPerSm) grouped_row_scaled_amax(
    const Dtype* __restrict__ input,         // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (rows of all,)
    float* __restrict__ columnwise_amax,     // (cols of all,)
    int num_tensors) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no merging: use grouped_row_scaled_quantize");
  __shared__ u32 warp_max[RowScaledAmaxTile::kWarps][32 * RowScaledAmaxTile::kWords<Dtype>];
  for_each_work_item<Schedule::tiles, Offsets::lines>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, RowScaledAmaxTiles::count,
      [&](int, const GroupTensor& tensor, u32 item) {
        row_scaled_amax_tile<Dtype, outputs>(
            warp_max, input + tensor.element, rowwise_amax + tensor.row, columnwise_amax + tensor.col, tensor.rows,
            tensor.cols, RowScaledAmaxTiles::origin(tensor.cols, item));
      });
}

template <typename Dtype, Outputs outputs, ScaleLayout scale_layout, Schedule schedule>
__global__ void __launch_bounds__(TransposeTile::kThreads, kSplitBlocksPerSm<Dtype>) grouped_row_scaled_encode_tile(
    const Dtype* __restrict__ input,            // (elements,)
    const i64* __restrict__ first_dims,         // (num_tensors,)
    const i64* __restrict__ last_dims,          // (num_tensors,)
    const i64* __restrict__ tensor_offsets,     // (num_tensors + 1,)
    Optional<const float> rowwise_amax,         // (rows of all,)
    const float* __restrict__ columnwise_amax,  // (cols of all,)
    Optional<u8> rowwise_data,                  // (elements / 2,) e2m1 pairs
    Optional<u8> rowwise_scale_inv,             // (padded scales of each tensor,) e4m3
    u8* __restrict__ columnwise_data,           // (elements / 2,) e2m1 pairs
    u8* __restrict__ columnwise_scale_inv,      // (padded scales of each tensor,) e4m3
    int num_tensors) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use grouped_row_scaled_quantize");
  __shared__ TransposeSmem<Dtype> tile;
  for_each_work_item<schedule, Offsets::both, From::last>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, TransposeTiles::count,
      [&](int, const GroupTensor& tensor, u32 item) {
        row_scaled_tile<Dtype, outputs, scale_layout>(
            tile, input + tensor.element, rowwise_amax + tensor.row, columnwise_amax + tensor.col,
            {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.rowwise_scale_inv},
            {columnwise_data + tensor.element / 2, columnwise_scale_inv + tensor.columnwise_scale_inv}, tensor.rows,
            tensor.cols, TransposeTiles::origin(tensor.cols, item));
      });
}

// =====================================================================================================================
// local_1x64
// =====================================================================================================================

// Reads the input once: 2 bytes of bf16 in, 0.5625 + 0.0625 out for each direction.
template <typename Dtype, Outputs outputs, ScaleLayout scale_layout, Schedule schedule>
__global__ void __launch_bounds__(TransposeTile::kThreads, kSplitBlocksPerSm<Dtype>) grouped_local_1x64_quantize(
    const Dtype* __restrict__ input,         // (elements,)
    const i64* __restrict__ first_dims,      // (num_tensors,)
    const i64* __restrict__ last_dims,       // (num_tensors,)
    const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
    Optional<float> rowwise_amax,            // (elements / 64,)
    Optional<u8> rowwise_data,               // (elements / 2,) e2m1 pairs
    Optional<u8> rowwise_scale_inv,          // (padded scales of each tensor,) e4m3
    Optional<float> columnwise_amax,         // (elements / 64,)
    Optional<u8> columnwise_data,            // (elements / 2,) e2m1 pairs
    Optional<u8> columnwise_scale_inv,       // (padded scales of each tensor,) e4m3
    int num_tensors) {
  __shared__ TransposeSmem<Dtype> tile;
  for_each_work_item<schedule, Offsets::scales>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, TransposeTiles::count,
      [&](int, const GroupTensor& tensor, u32 item) {
        const i64 window = tensor.element / kWindow;
        local_1x64_tile<Dtype, outputs, Multiplier::direct, scale_layout>(
            tile, input + tensor.element,
            {rowwise_amax + window, {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.rowwise_scale_inv}},
            {columnwise_amax + window,
             {columnwise_data + tensor.element / 2, columnwise_scale_inv + tensor.columnwise_scale_inv}},
            tensor.rows, tensor.cols, TransposeTiles::origin(tensor.cols, item));
      });
}

// =====================================================================================================================
// four_over_six
// =====================================================================================================================

// The amaxes of rows, for row_scaled; grouped_amax finds those of tensors.
template <typename Dtype>
__global__ void __launch_bounds__(RowScaledRows::kThreads, kRowScaledRowsBlocksPerSm<Dtype>)
    grouped_four_over_six_amax_rows(
        const Dtype* __restrict__ input,         // (elements,)
        const i64* __restrict__ first_dims,      // (num_tensors,)
        const i64* __restrict__ last_dims,       // (num_tensors,)
        const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
        float* __restrict__ rowwise_amax,        // (rows of all,)
        int num_tensors) {
  __shared__ u32 warp_max[2][RowScaledRows::kWarps];
  for_each_work_item<Schedule::tiles, Offsets::lines>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, WholeRows::count,
      [&](int, const GroupTensor& tensor, u32 item) {
        row_scaled_rows<Dtype, ScaleLayout::compact, Stage::amax>(
            warp_max, input + tensor.element, rowwise_amax + tensor.row, {}, tensor.rows, tensor.cols,
            int(item) * RowScaledRows::kRows);
      });
}

template <
    typename Dtype, Error error, int e4m3_max, ErrorMath error_math, bool row_scaled, Schedule schedule, Block block>
__global__ void __launch_bounds__(FourOverSixRows::kThreads, kFourOverSixRowsBlocksPerSm<Dtype, block, row_scaled>)
    grouped_four_over_six_encode_rowwise(
        const Dtype* __restrict__ input,         // (elements,)
        const i64* __restrict__ first_dims,      // (num_tensors,)
        const i64* __restrict__ last_dims,       // (num_tensors,)
        const i64* __restrict__ tensor_offsets,  // (num_tensors + 1,)
        const float* __restrict__ rowwise_amax,  // (num_tensors,), or (rows of all,) with row_scaled
        u8* __restrict__ rowwise_data,           // (elements / 2,) e2m1 pairs
        u8* __restrict__ rowwise_scale_inv,      // (padded scales of each tensor,) e4m3
        int num_tensors) {
  for_each_work_item<schedule, row_scaled ? Offsets::both : Offsets::scales>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, FourOverSixTiles::count,
      [&](int index, const GroupTensor& tensor, u32 item) {
        four_over_six_rows<Dtype, block, error, kFourOverSixMax<e4m3_max>, error_math, row_scaled>(
            input + tensor.element, rowwise_amax + (row_scaled ? tensor.row : index),
            {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.rowwise_scale_inv}, tensor.rows, tensor.cols,
            FourOverSixTiles::origin(tensor.cols, item));
      });
}

template <
    typename Dtype, Outputs outputs, Error error, int e4m3_max, ErrorMath error_math, Schedule schedule, Block block>
__global__ void __launch_bounds__(TransposeTile::kThreads, kFourOverSixBlocksPerSm<Dtype, block>)
    grouped_four_over_six_encode_tile(
        const Dtype* __restrict__ input,            // (elements,)
        const i64* __restrict__ first_dims,         // (num_tensors,)
        const i64* __restrict__ last_dims,          // (num_tensors,)
        const i64* __restrict__ tensor_offsets,     // (num_tensors + 1,)
        Optional<const float> rowwise_amax,         // (num_tensors,)
        const float* __restrict__ columnwise_amax,  // (num_tensors,)
        Optional<u8> rowwise_data,                  // (elements / 2,) e2m1 pairs
        Optional<u8> rowwise_scale_inv,             // (padded scales of each tensor,) e4m3
        u8* __restrict__ columnwise_data,           // (elements / 2,) e2m1 pairs
        u8* __restrict__ columnwise_scale_inv,      // (padded scales of each tensor,) e4m3
        int num_tensors) {
  static_assert(outputs != Outputs::rowwise, "rowwise alone needs no transposition: use ..._encode_rowwise");
  __shared__ TransposeSmem<Dtype> tile;
  __shared__ TileAmax16x16<Dtype> tile_amax;
  for_each_work_item<schedule, Offsets::scales>(
      {first_dims, last_dims, tensor_offsets, num_tensors}, TransposeTiles::count,
      [&](int index, const GroupTensor& tensor, u32 item) {
        four_over_six_tile<Dtype, block, outputs, error, kFourOverSixMax<e4m3_max>, error_math>(
            tile, tile_amax, input + tensor.element, rowwise_amax + index, columnwise_amax + index,
            {rowwise_data + tensor.element / 2, rowwise_scale_inv + tensor.rowwise_scale_inv},
            {columnwise_data + tensor.element / 2, columnwise_scale_inv + tensor.columnwise_scale_inv}, tensor.rows,
            tensor.cols, TransposeTiles::origin(tensor.cols, item));
      });
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

// The grid has a CTA for each tile of this size, which is what an item covers in a tensor without edges.
constexpr Launch kLaunchEncode = {
    TransposeTile::kRows, TransposeTile::kCols, TransposeTile::kThreads, 0, Schedule::by_flag};
// An amax reads elements in memory order; the tile size only says how many elements an item has.
__constant__ Launch grouped_amax_launch = {
    128, TensorAmax::kStep * 8 / 128, TensorAmax::kThreads, 5, Schedule::persistent};
__constant__ Launch grouped_amax_rht_launch = {
    128, kBlock * kThreads * RhtAmax::kCols / 128, kThreads, 4, Schedule::persistent};
__constant__ Launch grouped_amax_dbias_launch = {
    kChunkRows, DbiasTile::kCols, kThreads, kDbiasBlocksPerSm, Schedule::persistent};
__constant__ Launch grouped_amax_swiglu_launch = {kBlock, kThreads * 2, kThreads, 0, Schedule::persistent};
__constant__ Launch grouped_dbias_launch = {kWholeColumn, kThreads, kThreads, 8, Schedule::persistent};
__constant__ Launch grouped_encode_rowwise_launch = {
    kRowwiseTileRows, kRowwiseTileCols, kThreads, 0, Schedule::by_flag};
__constant__ Launch grouped_encode_tile_launch = kLaunchEncode;
__constant__ Launch grouped_per_token_amax_launch = {
    RowColStrip<false>::kRows, RowColStrip<false>::kCols, kThreads, kTokenAmaxBlocksPerSm, Schedule::persistent};
__constant__ Launch grouped_per_token_amax_rht_launch = {
    RowColStrip<true>::kRows, RowColStrip<true>::kCols, kThreads, kTokenAmaxRhtBlocksPerSm, Schedule::persistent};
__constant__ Launch grouped_per_token_amax_dbias_launch = {
    kChunkRows, DbiasTile::kCols, kThreads, kDbiasBlocksPerSm, Schedule::persistent};
__constant__ Launch grouped_per_token_encode_launch = kLaunchEncode;
__constant__ Launch grouped_per_token_resident_launch = {
    TransposeTile::kRows, TransposeTile::kCols, TransposeTile::kThreads, kGroupedResidentBlocksPerSm,
    Schedule::resident};
__constant__ Launch grouped_row_scaled_quantize_launch = {
    RowScaledRows::kRows, kWholeRow, RowScaledRows::kThreads, kRowScaledRowsBlocksPerSm<bf16>, Schedule::by_flag};
__constant__ Launch grouped_row_scaled_clear_amax_launch = {kThreads, kThreads, kThreads, 1, Schedule::persistent};
__constant__ Launch grouped_row_scaled_amax_launch = kLaunchTiles<RowScaledAmaxTile>;
__constant__ Launch grouped_row_scaled_encode_tile_launch = kLaunchEncode;
__constant__ Launch grouped_local_1x64_quantize_launch = kLaunchEncode;
__constant__ Launch grouped_four_over_six_amax_rows_launch = {
    RowScaledRows::kRows, kWholeRow, RowScaledRows::kThreads, 0, Schedule::tiles};
__constant__ Launch grouped_four_over_six_encode_rowwise_launch = {
    FourOverSixRows::kRows, FourOverSixRows::kCols, FourOverSixRows::kThreads, 0, Schedule::by_flag};
__constant__ Launch grouped_four_over_six_encode_tile_launch = kLaunchEncode;
