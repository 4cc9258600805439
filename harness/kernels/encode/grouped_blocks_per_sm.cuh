// CTAs that an SM holds of each kernel of grouped.cu.
#pragma once

#include "encode/four_over_six.cuh"
#include "encode/per_token_resident.cuh"
#include "numerics/activations.cuh"

// As many as registers allow without spilling. Tiles need more of them than in a dense kernel, whose pointers are
// constants, and a loop over tiles needs some as well.
constexpr int kBf16TileBlocksPerSm = __CUDA_ARCH__ == 900 ? 4 : __CUDA_ARCH__ > 900 ? 3 : 2;
constexpr int kBf16LoopBlocksPerSm = __CUDA_ARCH__ >= 900 ? 3 : 2;
template <typename Dtype, Activation activation>
constexpr int kTileBlocksPerSm = sizeof(Dtype) == 4 || activation != Activation::none ? 2 : kBf16TileBlocksPerSm;
template <typename Dtype, Activation activation>
constexpr int kLoopBlocksPerSm = sizeof(Dtype) == 4 || activation != Activation::none ? 2 : kBf16LoopBlocksPerSm;
template <
    typename Dtype, bool rht, Rounding rounding, ScaleLayout scale_layout, bool fast_math, Activation activation,
    Schedule schedule>
constexpr int kTensorBlocksPerSm =
    rounding == Rounding::sr && scale_layout == ScaleLayout::swizzled ? 2
    : rounding == Rounding::sr && schedule == Schedule::persistent    ? kLoopBlocksPerSm<Dtype, activation>
    : rht && fast_math && scale_layout == ScaleLayout::compact        ? kLoopBlocksPerSm<Dtype, activation>
                                                                      : kTileBlocksPerSm<Dtype, activation>;
template <typename Dtype, Block block, Rounding rounding, Activation activation, Schedule schedule>
constexpr int kRowwiseBlocksPerSm =
    sizeof(Dtype) == 4 || __CUDA_ARCH__ < 900                                                ? 2
    : activation == Activation::swiglu && rounding == Rounding::rne                          ? 3
    : activation != Activation::none                                                         ? 2
    : block == Block::block_16x16 || rounding == Rounding::sr || schedule != Schedule::tiles ? 3
                                                                                             : 4;
template <Rounding rounding, Activation activation, Schedule schedule>
constexpr int kTokenBlocksPerSm =
    rounding == Rounding::sr || schedule == Schedule::persistent ? kLoopBlocksPerSm<bf16, activation>
                                                                 : kTileBlocksPerSm<bf16, activation>;
constexpr int kGroupedResidentBlocksPerSm = 2;
template <Outputs outputs, bool rht, Rounding rounding, ScaleLayout scale_layout>
constexpr int kMostGroupedResidentBlocksPerSm =
    rounding == Rounding::sr                ? kGroupedResidentBlocksPerSm
    : scale_layout == ScaleLayout::swizzled ? 3
                                            : kMostResidentBlocksPerSm<outputs, rht, rounding, false>;
constexpr int kTokenAmaxBlocksPerSm = 2, kTokenAmaxRhtBlocksPerSm = __CUDA_ARCH__ >= 900 ? 3 : 2;  // as dense ones
constexpr int kDbiasBlocksPerSm = 2, kRowScaledAmaxBlocksPerSm = 4;
template <typename Dtype>
constexpr int kSplitBlocksPerSm = kTileBlocksPerSm<Dtype, Activation::none>;  // for row_scaled and local_1x64
template <>
constexpr int kSplitBlocksPerSm<fp16> = __CUDA_ARCH__ >= 900 ? 3 : 2;
template <typename Dtype, Block block, bool row_scaled>
constexpr int kFourOverSixRowsBlocksPerSm = row_scaled ? 2 : kFourOverSixBlocksPerSm<Dtype, block>;
template <typename Dtype, Activation activation>
constexpr int kSwigluBlocksPerSm = sizeof(Dtype) == 4                 ? 2
                                   : activation == Activation::swiglu ? 4
                                                                      : 3;
