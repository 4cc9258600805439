// thread: triton-lang/triton#11244
// story: One thread ends an mbarrier while others may still wait at it.
// check: race
// array: out 64 zero
// launch: k 1 64 out
#include "asynchronous.cuh"

extern "C" __global__ void k(u8* out) {
  __shared__ u64 bar;
  u32 t = threadIdx.x;
  if (t == 0) init(bar, 64);
  __syncthreads();
  arrive(bar);
  wait(bar, 0);
  MEND(__syncthreads();)
  if (t == 0) inval(bar);
  out[t] = t;
}
