// thread: NVIDIA/TransformerEngine#2695
// story: No proxy fence between generic writes to shared memory and the copy that reads them.
// check: race
// array: out 4096 zero
// launch: k 1 64 out
#include "asynchronous.cuh"

extern "C" __global__ void k(u8* out) {
  __shared__ alignas(128) u8 s[64];
  s[threadIdx.x] = threadIdx.x;
  MEND(fence();)
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, s, 64);
    commit();
    wait_read<0>();
  }
}
