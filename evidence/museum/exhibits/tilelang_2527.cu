// thread: tile-ai/tilelang#2527, triton-lang/triton#7385
// story: A slice of a tensor begins at a column that is no multiple of 16 bytes; TMA ends with an illegal instruction.
// check: misaligned
// array: in 1024 ramp
// array: out 1024 zero
// map: to out uint16 32x16 16x8
// launch: k 1 64 in to
#include "asynchronous.cuh"

extern "C" __global__ void k(const u8* in, const __grid_constant__ Map to) {
  __shared__ alignas(128) u8 s[256];
  u32 t = threadIdx.x;
  for (int i = t; i < 256; i += 64) s[i] = in[i];
  fence();
  __syncthreads();
  if (t == 0) {
    BUG(store2(to, s, 4, 1);)
    MEND(store2(to, s, 8, 1);)
    commit();
    wait_all<0>();
  }
}
