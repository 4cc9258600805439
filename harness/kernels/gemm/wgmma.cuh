// wgmma, Hopper's asynchronous mma of a warpgroup; sm_90a only.
#pragma once

#include "gemm/mma.cuh"

constexpr int kWarpgroupThreads = 128;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Matrix descriptor of N8 lines in shared memory, without swizzle (PTX ISA, "Matrix Descriptor Format"). The unit is
// eight lines by eight f16 along K, 128 bytes with a line's 16 bytes together. to_next_k, to_next_lines: bytes to the
// next unit
__device__ __forceinline__ u64 smem_descriptor(u32 address, u32 to_next_k, u32 to_next_lines) {
  return u64(address >> 4) | u64(to_next_k >> 4) << 16 | u64(to_next_lines >> 4) << 32;
}

// Orders this thread's register writes before the next wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Call this after writes to shared memory and before the barrier behind which wgmma reads them, and after mbarrier.init
// before the first bulk copy: both read shared memory through another proxy.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all committed wgmmas.
__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// Sets how many registers each thread of this warpgroup has: more than the launch gave it, or fewer, so that others may
// have more. A multiple of 8.
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// Barrier of one warpgroup of the CTA
__device__ __forceinline__ void warpgroup_sync(int index) {
  // Barrier 0 is __syncthreads.
  asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "n"(kWarpgroupThreads) : "memory");
}

// sum += m16 * n8^T in fp32, in the hardware's order (NUMERICS 10.2, H3), complete after wgmma_wait. m16: lines 16w to
// 16w + 15 in warp w; n8_descriptor: 8 * n8_tiles lines
template <int n8_tiles>
__device__ __forceinline__ void wgmma(Accumulator (&sum)[n8_tiles], const FragmentM16& m16, u64 n8_descriptor);

#define FOUR_SUMS(i) "+f"(sum[i].value[0]), "+f"(sum[i].value[1]), "+f"(sum[i].value[2]), "+f"(sum[i].value[3])
#define OPERANDS "r"(m16.word[0]), "r"(m16.word[1]), "r"(m16.word[2]), "r"(m16.word[3]), "l"(n8_descriptor)

template <>
__device__ __forceinline__ void wgmma<1>(Accumulator (&sum)[1], const FragmentM16& m16, u64 n8_descriptor) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
               : FOUR_SUMS(0)
               : OPERANDS);
}

template <>
__device__ __forceinline__ void wgmma<2>(Accumulator (&sum)[2], const FragmentM16& m16, u64 n8_descriptor) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, "
      "1, 1, 1, 0;"
      : FOUR_SUMS(0), FOUR_SUMS(1)
      : OPERANDS);
}

template <>
__device__ __forceinline__ void wgmma<4>(Accumulator (&sum)[4], const FragmentM16& m16, u64 n8_descriptor) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
      : FOUR_SUMS(0), FOUR_SUMS(1), FOUR_SUMS(2), FOUR_SUMS(3)
      : OPERANDS);
}

template <>
__device__ __forceinline__ void wgmma<8>(Accumulator (&sum)[8], const FragmentM16& m16, u64 n8_descriptor) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, "
      "%35}, %36, 1, 1, 1, 0;"
      : FOUR_SUMS(0), FOUR_SUMS(1), FOUR_SUMS(2), FOUR_SUMS(3), FOUR_SUMS(4), FOUR_SUMS(5), FOUR_SUMS(6), FOUR_SUMS(7)
      : OPERANDS);
}

#define SIXTEEN_SUMS(i) FOUR_SUMS(i), FOUR_SUMS(i + 1), FOUR_SUMS(i + 2), FOUR_SUMS(i + 3)

// sum = m16 * n8^T with 128 lines, or sum += m16 * n8^T if `adds`; otherwise like wgmma
__device__ __forceinline__ void wgmma_128(
    Accumulator (&sum)[16], const FragmentM16& m16, u64 n8_descriptor, bool adds) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, "
      "%5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
      "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "
      "%57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, 0; }"
      : SIXTEEN_SUMS(0), SIXTEEN_SUMS(4), SIXTEEN_SUMS(8), SIXTEEN_SUMS(12)
      : OPERANDS, "r"(u32(adds)));
}

#undef SIXTEEN_SUMS
#undef FOUR_SUMS
#undef OPERANDS

#endif
