// thread: vllm-project/vllm#50084
// story: Scales of V are written swizzled and read linearly; shapes and types are right.
// check: bytes
// array: in 512 ramp
// array: scales 512 unwritten
// array: out 512 zero
// array: right 512 zero
// launch: write 1 128 in scales
// launch: read 1 128 scales out
// launch: expect 1 128 in right
// same: out right
#include "asynchronous.cuh"

__device__ u32 swizzled(u32 row, u32 column) { return row % 32 * 16 + row / 32 * 4 + column; }
extern "C" __global__ void write(const u8* in, u8* scales) {
  for (int k = 0; k < 4; k++) scales[swizzled(threadIdx.x, k)] = in[4 * threadIdx.x + k];
}
extern "C" __global__ void read(const u8* scales, u8* out) {
  for (int k = 0; k < 4; k++)
    out[4 * threadIdx.x + k] = scales[BUG(4 * threadIdx.x + k) MEND(swizzled(threadIdx.x, k))];
}
extern "C" __global__ void expect(const u8* in, u8* right) {
  for (int k = 0; k < 4; k++) right[4 * threadIdx.x + k] = in[4 * threadIdx.x + k];
}
