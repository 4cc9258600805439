// thread: facebookexperimental/triton#1992
// story: Two warpgroups share columns; one stores its result over an accumulator that the other has yet to load.
// check: race
// arch: sm_100a
// array: out 1024 zero
// launch: k 1 256 out
#include "tensor_memory.cuh"

extern "C" __global__ void k(u32* out) {
  __shared__ alignas(1024) u16 s[128 * 64];
  __shared__ u64 full;
  __shared__ u32 where;
  const u32 t = threadIdx.x, lanes = t / 32 % 4 << 21;
  for (u32 i = t; i < 128 * 64; i += 256) s[i] = 0;
  fence();
  if (t < 32) allocate(&where, 32);
  if (t == 0) init(full, 1);
  __syncthreads();
  const u32 d = where;
  if (t == 0) {
    multiply(d, s, s);
    arrive_when_done(full);
  }
  wait(full, 0);
  // Each warpgroup loads half of the 16 columns, and stores into the other half.
  const u32 own = t / 128 * 8, other = 8 - own;
  u32 value = tensor_load(d + lanes + own);
  wait_ld();
  MEND(__syncthreads();)
  tensor_store(d + lanes + other, value << 16 | value);
  wait_st();
  out[t] = value;
  __syncthreads();
  if (t < 32) deallocate(d, 32);
}
