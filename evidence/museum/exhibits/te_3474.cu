// thread: NVIDIA/TransformerEngine#3474
// story: A ring of two slots leaves two stores unread, one too many, before it fills a slot again.
// check: race
// array: out 4096 zero
// launch: k 1 64 out
#include "asynchronous.cuh"

extern "C" __global__ void k(u8* out) {
  __shared__ alignas(128) u8 s[2][64];
  u32 t = threadIdx.x;
  for (int turn = 0; turn < 4; turn++) {
    if (t == 0) wait_read<BUG(2) MEND(1)>();
    __syncthreads();
    s[turn % 2][t] = turn;
    fence();
    __syncthreads();
    if (t == 0) {
      store(out + 64 * turn, s[turn % 2], 64);
      commit();
    }
  }
  if (t == 0) wait_read<0>();
}
