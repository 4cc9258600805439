// thread: NVIDIA/cutlass#3316
// story: A block allocates tensor memory together with its peer, and nothing says that the peer has begun.
// check: race
// arch: sm_100a
// array: out 256 zero
// launch: k 2 32 out
#include "tensor_memory.cuh"

extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ u32 where;
  MEND(meet();)
  allocate_in_pair(&where, 32);
  __syncwarp();
  out[32 * rank() + threadIdx.x] = where;
  meet();
  deallocate_in_pair(where, 32);
}
