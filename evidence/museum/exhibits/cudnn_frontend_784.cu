// thread: NVIDIA/cudnn-frontend#784
// story: Only the thread that issues the copy fences, before the barrier: the writes of the others are not covered.
// check: race
// array: out 4096 zero
// launch: k 1 64 out
#include "asynchronous.cuh"

extern "C" __global__ void k(u8* out) {
  __shared__ alignas(128) u8 s[64];
  s[threadIdx.x] = threadIdx.x;
  BUG(if (threadIdx.x == 0)) fence();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, s, 64);
    commit();
    wait_read<0>();
  }
}
