// thread: NVIDIA/TransformerEngine#3417
// story: Bulk groups belong to the thread that issued them; another thread waits, and shared memory is written again.
// check: race
// array: out 4096 zero
// launch: k 1 64 out
#include "asynchronous.cuh"

extern "C" __global__ void k(u8* out) {
  __shared__ alignas(128) u8 s[64];
  u32 t = threadIdx.x;
  s[t] = 1;
  fence();
  __syncthreads();
  if (t == 0) {
    store(out, s, 64);
    commit();
  }
  if (t == BUG(32) MEND(0)) wait_read<0>();
  __syncthreads();
  s[t] = 2;
  if (t == 0) wait_read<0>();
}
