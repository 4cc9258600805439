// thread: NVIDIA/cccl#11463
// story: Behind griddepcontrol.wait, a kernel reads as constant what the kernel before wrote while both were running.
// check: race
// array: a 256 zero
// array: out 256 zero
// launch: first 1 64 a
// launch: second 1 64 a out early
#include "asynchronous.cuh"

extern "C" __global__ void first(u32* a) {
  ASM("griddepcontrol.launch_dependents;");
  a[threadIdx.x] = threadIdx.x;
}
extern "C" __global__ void second(const u32* a, u32* out) {
  ASM("griddepcontrol.wait;");
  out[threadIdx.x] = BUG(__ldg(a + threadIdx.x)) MEND(*(volatile const u32*)(a + threadIdx.x));
}
