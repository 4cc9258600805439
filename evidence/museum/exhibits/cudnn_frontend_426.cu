// thread: NVIDIA/cudnn-frontend#426
// story: One elected lane arrives for the stores of 32; a release orders its own thread alone.
// check: race
// array: out 256 zero
// launch: k 1 64 out
#include "asynchronous.cuh"

extern "C" __global__ void k(u8* out) {
  __shared__ u8 s[32];
  __shared__ u64 full;
  u32 t = threadIdx.x;
  asm volatile("" ::"r"(at(s)) : "memory");
  if (t == 0) init(full, 1);
  __syncthreads();
  if (t < 32) {
    s[t] = t;
    MEND(__syncwarp();)
    if (t == 0) arrive(full);
  } else {
    wait(full, 0);
    out[t] = s[t - 32];
  }
}
