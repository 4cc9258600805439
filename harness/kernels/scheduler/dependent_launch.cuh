// Programmatic dependent launch: a launch that a suite marks `early` may begin before the launch ahead of it has ended,
// and itself waits before it touches what that one writes. Before sm_90 these functions do nothing.
#pragma once

#include "numerics/types.cuh"

// Lets the next launch begin, if it is early, once every CTA of this one has called this or ended. It orders nothing.
__device__ __forceinline__ void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the launch ahead has ended and its memory is visible; returns at once if this launch did not begin early.
// Before a thread reads what the launch ahead wrote, it calls this, or passes a barrier after a thread that did. Some
// thread of an early grid must call it even if none reads, or the grid might end before the launch ahead.
__device__ __forceinline__ void wait_for_launch_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Reads an amax that the launch ahead wrote, after wait_for_launch_ahead(). In asm, because the compiler may move an
// ordinary load through a `const __restrict__` pointer above the wait.
__device__ __forceinline__ float amax_of_launch_ahead(const float* amax) {
#if __CUDA_ARCH__ >= 900
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(amax));
  return value;
#else
  return __ldg(amax);
#endif
}

// there: whether there is an amax; 0 if not
template <bool there>
__device__ __forceinline__ float amax_of_launch_ahead(const float* amax) {
  if constexpr (there) return amax_of_launch_ahead(amax);
  return 0.0f;
}

// Reads a word that the launch ahead wrote, in the same way.
__device__ __forceinline__ u32 word_of_launch_ahead(const u32* word) {
#if __CUDA_ARCH__ >= 900
  u32 value;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
#else
  return __ldg(word);
#endif
}
