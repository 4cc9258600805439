// story: Thread 0 keeps three boxes of a tensor ahead; all threads read one, and hand its slot back by an mbarrier.
// array: in 1792 ramp
// array: out 1792 zero
// map: from in uint8 64x28 64x4
// launch: k 1 64 from out 7
// same: in out
#include "asynchronous.cuh"

extern "C" __global__ void k(const __grid_constant__ Map from, u8* out, int turns) {
  __shared__ alignas(128) u8 s[3][256];
  __shared__ u64 full[3], empty[3];
  u32 t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 3; i++) init(full[i], 1);
    for (int i = 0; i < 3; i++) init(empty[i], 64);
    fence();
  }
  __syncthreads();
  if (t == 0)
    for (int ahead = 0; ahead < 3 && ahead < turns; ahead++) {
      expect(full[ahead], 256);
      load2(s[ahead], from, full[ahead], 0, 4 * ahead);
    }
  for (int turn = 0; turn < turns; turn++) {
    int slot = turn % 3;
    wait(full[slot], turn / 3 & 1);
    for (int i = t; i < 256; i += 64) out[256 * turn + i] = s[slot][i];
    arrive(empty[slot]);
    if (t == 0 && turn + 3 < turns) {
      wait(empty[slot], turn / 3 & 1);
      expect(full[slot], 256);
      load2(s[slot], from, full[slot], 0, 4 * (turn + 3));
    }
  }
}
