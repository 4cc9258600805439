// thread: flashinfer-ai/flashinfer#5334
// story: A stage of tensor memory is handed back while the tcgen05.ld of it is in flight; the next product overwrites it.
// check: race
// arch: sm_100a
// array: out 512 zero
// launch: k 1 160 out
#include "tensor_memory.cuh"

extern "C" __global__ void k(u32* out) {
  __shared__ alignas(1024) u16 s[128 * 64];
  __shared__ u64 full, empty;
  __shared__ u32 where;
  const u32 t = threadIdx.x, lanes = t / 32 % 4 << 21;
  for (u32 i = t; i < 128 * 64; i += 160) s[i] = 0;
  fence();
  if (t < 32) allocate(&where, 32);
  if (t == 0) {
    init(full, 1);
    init(empty, 128);
  }
  __syncthreads();
  const u32 d = where;
  if (t == 128) {
    for (u32 step = 0; step < 2; step++) {
      wait(empty, step & 1 ^ 1);
      multiply(d, s, s);
      arrive_when_done(full);
    }
  } else if (t < 128) {
    u32 sum = 0;
    for (u32 step = 0; step < 2; step++) {
      wait(full, step & 1);
      u32 value = tensor_load(d + lanes);
      BUG(arrive(empty);)
      wait_ld();
      MEND(arrive(empty);)
      sum += value;
    }
    out[t] = sum;
  }
  __syncthreads();
  if (t < 32) deallocate(d, 32);
}
