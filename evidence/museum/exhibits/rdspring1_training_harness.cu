// thread: rdspring1/nvfp4-training-harness
// story: Columnwise stochastic rounding repeats its random bits for rows beyond 256.
// check: bytes
// array: out 512 zero
// array: right 512 zero
// launch: k 1 512 out
// launch: expect 1 512 right
// same: out right
#include "asynchronous.cuh"

__device__ u8 random(u32 counter) { return counter * 2654435761u >> 24; }
extern "C" __global__ void k(u8* out) { out[threadIdx.x] = random(BUG((u8)) threadIdx.x); }
extern "C" __global__ void expect(u8* right) { right[threadIdx.x] = random(threadIdx.x); }
