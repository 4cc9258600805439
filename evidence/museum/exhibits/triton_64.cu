// thread: facebookexperimental/triton#64
// story: Behind tcgen05.mma a plain arrival hands the accumulator over, where a tcgen05.commit has to.
// check: race
// arch: sm_100a
// array: out 512 zero
// launch: k 1 128 out
#include "tensor_memory.cuh"

extern "C" __global__ void k(u32* out) {
  __shared__ alignas(1024) u16 s[128 * 64];
  __shared__ u64 full;
  __shared__ u32 where;
  const u32 t = threadIdx.x, lanes = t / 32 % 4 << 21;
  for (u32 i = t; i < 128 * 64; i += 128) s[i] = 0;
  fence();
  if (t < 32) allocate(&where, 32);
  if (t == 0) init(full, 1);
  __syncthreads();
  const u32 d = where;
  if (t == 0) {
    multiply(d, s, s);
    BUG(arrive(full);)
    MEND(arrive_when_done(full);)
  }
  wait(full, 0);
  u32 value = tensor_load(d + lanes);
  wait_ld();
  out[t] = value;
  __syncthreads();
  if (t < 32) deallocate(d, 32);
}
