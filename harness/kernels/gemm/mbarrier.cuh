// mbarriers, which count arrivals of warps or of bulk copies from global to shared memory; sm_90a only.
#pragma once

#include "numerics/types.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ u32 smem_address(const void* memory) { return u32(__cvta_generic_to_shared(memory)); }

// A barrier in shared memory. A phase ends after `arrivals` arrivals and all bytes that `copy` expects.
struct Mbarrier {
  u64 state;

  // One thread calls this. Other threads may use the barrier once they have synchronised with it; a copy may use the
  // barrier after a fence_proxy_async. arrivals: in each phase, of warps and of copies, each copy counting as one
  __device__ void init(u32 arrivals = 1) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(&state)), "r"(arrivals) : "memory");
  }

  // A warp arrives once, after what its lanes did before.
  __device__ void arrive() {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(&state)) : "memory");
  }

  // Starts a copy, whose arrival ends the current phase. The addresses and `bytes` are multiples of 16.
  __device__ void copy(void* target, const void* source, u32 bytes) {
    const u32 address = smem_address(&state);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     smem_address(target)),
                 "l"(source), "r"(bytes), "r"(address)
                 : "memory");
  }

  // Waits for the end of the current phase. parity: 0 for the first, third, ... phase, 1 for those between
  __device__ void wait(u32 parity) const {
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(
                     smem_address(&state)),
                 "r"(parity)
                 : "memory");
  }
};

#endif
