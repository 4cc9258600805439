// thread: NVIDIA/cutlass#3435
// story: One block of a pair frees tensor memory before the other has allocated, at which a GPU ends the kernel.
// check: race
// arch: sm_100a
// array: out 256 zero
// launch: k 2 32 out
#include "tensor_memory.cuh"

extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ u32 where;
  meet();
  allocate_in_pair(&where, 32);
  __syncwarp();
  out[32 * rank() + threadIdx.x] = where;
  MEND(meet();)
  deallocate_in_pair(where, 32);
}
