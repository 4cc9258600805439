// story: All threads fill a slot and thread 0 stores it as a box; two stores read their slots while a third is filled.
// array: in 1792 ramp
// array: out 1792 zero
// array: again 1792 zero
// map: to out uint8 64x28 64x4
// launch: k 1 64 in to out again 7
// same: in out
// same: in again
#include "asynchronous.cuh"

extern "C" __global__ void k(const u8* in, const __grid_constant__ Map to, const u8* out, u8* again, int turns) {
  __shared__ alignas(128) u8 s[3][256];
  u32 t = threadIdx.x;
  asm volatile("" ::"r"(at(s)) : "memory");
  for (int turn = 0; turn < turns; turn++) {
    int slot = turn % 3;
    if (t == 0) wait_read<2>();
    __syncthreads();  // the slot is free
    for (int i = t; i < 256; i += 64) s[slot][i] = in[256 * turn + i];
    fence();
    __syncthreads();  // the slot is full
    if (t == 0) {
      store2(to, s[slot], 0, 4 * turn);
      commit();
    }
  }
  if (t == 0) wait_all<0>();
  __syncthreads();  // all is written
  for (int i = t; i < 256 * turns; i += 64) again[i] = out[i];
}
