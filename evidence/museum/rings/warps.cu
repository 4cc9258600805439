// story: A warp loads boxes, two warps change their halves in place and store them; two slots go round.
// array: in 1792 ramp
// array: out 1792 zero
// array: wanted 1792 inverse
// map: from in uint8 64x28 64x4
// map: to out uint8 64x28 64x2
// launch: k 1 96 from to 7
// same: wanted out
#include "asynchronous.cuh"

extern "C" __global__ void k(const __grid_constant__ Map from, const __grid_constant__ Map to, int turns) {
  __shared__ alignas(128) u8 s[2][256];
  __shared__ u64 full[2], empty[2];
  u32 t = threadIdx.x, lane = t % 32;
  if (t == 0) {
    for (int i = 0; i < 2; i++) init(full[i], 1);
    for (int i = 0; i < 2; i++) init(empty[i], 2);
    fence();  // of the inits
  }
  __syncthreads();
  if (t < 32) {
    if (lane == 0)
      for (int turn = 0; turn < turns; turn++) {
        int slot = turn % 2;
        wait(empty[slot], turn / 2 & 1 ^ 1);
        expect(full[slot], 256);
        load2(s[slot], from, full[slot], 0, 4 * turn);
      }
  } else {
    u32 half = t / 32 - 1;
    for (int turn = 0; turn < turns; turn++) {
      int slot = turn % 2;
      u8* mine = s[slot] + half * 128;
      wait(full[slot], turn / 2 & 1);
      for (int i = lane; i < 128; i += 32) mine[i] = ~mine[i];
      fence();
      __syncwarp();
      if (lane == 0) {
        store2(to, mine, 0, 4 * turn + 2 * half);
        commit();
        wait_read<0>();
        arrive(empty[slot]);
      }
    }
  }
}
