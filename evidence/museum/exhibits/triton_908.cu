// thread: facebookexperimental/triton#908
// story: The answer to a request for the next cluster goes to both blocks, and only one of them expects its bytes.
// check: mbarrier
// arch: sm_100a
// array: out 2048 zero
// launch: k 8 64 out
#include "cluster_launch.cuh"

extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ Answer answer;
  __shared__ u64 full;
  const u32 t = threadIdx.x;
  u32 cluster = blockIdx.x / 2, parity = 0;
  if (t == 0) init(full, 1);
  meet();
  for (Next next = {1}; next.there; cluster = next.x / 2, parity ^= 1) {
    if (t == 0 BUG(&&rank() == 0)) expect(full, sizeof(Answer));
    if (t == 0 && rank() == 0) request_for_all(answer, full);
    out[(2 * cluster + rank()) * 64 + t] = cluster;
    wait(full, parity);
    next = query(answer);
    fence();
    meet();
  }
}
