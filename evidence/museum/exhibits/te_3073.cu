// thread: NVIDIA/TransformerEngine#3073
// story: Who has no rows returns before all meet; the others wait for an arrival that never comes.
// check: deadlock
// array: in 256 ramp
// array: out 256 zero
// launch: k 1 64 in out 20
#include "asynchronous.cuh"

extern "C" __global__ void k(const u8* in, u8* out, int rows) {
  __shared__ u64 all;
  __shared__ u32 amax;
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    init(all, 2);
    amax = 0;
  }
  __syncthreads();
  BUG(if (32 * warp >= rows) return;)
  if (threadIdx.x < rows) atomicMax(&amax, in[threadIdx.x]);
  __syncwarp();
  if (lane == 0) arrive(all);
  wait(all, 0);
  out[threadIdx.x] = amax;
}
