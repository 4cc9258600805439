// thread: NVIDIA/cutlass#3279
// story: The kernel between did not wait, so that waiting for it does not cover the kernel before it.
// check: race
// array: a 256 nan
// array: b 256 nan
// array: c 256 zero
// launch: first 1 64 a
// launch: between 1 64 b early
// launch: last 1 64 a b c early
#include "asynchronous.cuh"

extern "C" __global__ void first(u8* a) {
  ASM("griddepcontrol.launch_dependents;");
  a[threadIdx.x] = threadIdx.x;
}
extern "C" __global__ void between(u8* b) {
  MEND(ASM("griddepcontrol.wait;");)
  b[threadIdx.x] = 2 * threadIdx.x;
  ASM("griddepcontrol.launch_dependents;");
}
extern "C" __global__ void last(const u8* a, const u8* b, u8* c) {
  ASM("griddepcontrol.wait;");
  c[threadIdx.x] = b[threadIdx.x] + a[threadIdx.x];
}
