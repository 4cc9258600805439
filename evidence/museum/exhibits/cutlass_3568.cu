// thread: NVIDIA/cutlass#3568
// story: A mainloop of three stages runs on to a multiple of three, past the last tile of K, into slots not loaded again.
// check: deadlock
// array: in 4096 ramp
// array: out 64 zero
// launch: k 1 64 in out 7
#include "asynchronous.cuh"

extern "C" __global__ void k(const u8* in, u8* out, int tiles) {
  __shared__ alignas(128) u8 s[3][64];
  __shared__ u64 full[3];
  u32 t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 3; i++) init(full[i], 1);
    fence();
  }
  __syncthreads();
  u32 sum = 0;
  for (int tile = 0; tile < BUG((tiles + 2) / 3 * 3) MEND(tiles); tile++) {
    if (t == 0 && tile < tiles) {
      expect(full[tile % 3], 64);
      load(s[tile % 3], in + 64 * tile, 64, full[tile % 3]);
    }
    wait(full[tile % 3], tile / 3 & 1);
    sum += s[tile % 3][t];
    __syncthreads();
  }
  out[t] = sum;
}
