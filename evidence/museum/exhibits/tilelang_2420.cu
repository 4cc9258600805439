// thread: tile-ai/tilelang#2420
// story: A consumer hands the slot of an answer back before it reads the answer, and the next one may be there already.
// check: race
// arch: sm_100a
// array: out 4096 zero
// launch: k 16 96 out
#include "cluster_launch.cuh"

extern "C" __global__ void k(u32* out) {
  __shared__ Answer answer[2];
  __shared__ u64 full[2], empty[2];
  const u32 t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 2; ++i) init(full[i], 1), init(empty[i], 96);
  }
  __syncthreads();
  u32 x = blockIdx.x;
  for (u32 i = 0;; ++i) {
    const u32 slot = i % 2, parity = i / 2 % 2;
    if (t == 64) {
      if (i > 1) wait(empty[slot], parity ^ 1);
      expect(full[slot], sizeof(Answer));
      request(answer[slot], full[slot]);
    }
    if (t < 64) out[64 * x + t] = x;
    wait(full[slot], parity);
    BUG(arrive(empty[slot]);)
    const Next next = query(answer[slot]);
    fence();
    MEND(arrive(empty[slot]);)
    if (!next.there) break;
    x = next.x;
  }
}
