// thread: triton-lang/triton#10922
// story: A block hands bytes to the other of its cluster by an arrival of .cta, which orders no thread of another block.
// check: race
// array: out 512 zero
// launch: k 2 64 out
#include "asynchronous.cuh"

extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ u32 s[64];
  __shared__ u64 full;
  u32 t = threadIdx.x, value;
  if (t == 0) init(full, 64);
  meet();
  s[t] = t;
  asm volatile("mbarrier.arrive.release." BUG("cta")
                   MEND("cluster") ".shared::cluster.b64 _, [%0];" ::"r"(in_block(&full, rank() ^ 1))
               : "memory");
  wait(full, 0);
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(in_block(&s[t], rank() ^ 1)) : "memory");
  out[64 * blockIdx.x + t] = value;
  meet();
}
