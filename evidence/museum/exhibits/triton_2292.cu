// thread: facebookexperimental/triton#2292
// story: A block stores into shared memory of the other of its cluster, which may not have begun.
// check: race
// array: out 512 zero
// launch: k 2 64 out
#include "asynchronous.cuh"

extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ u32 s[64];
  u32 t = threadIdx.x;
  MEND(meet();)
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(in_block(&s[t], rank() ^ 1)), "r"(t) : "memory");
  meet();
  out[64 * blockIdx.x + t] = s[t];
}
