// thread: vllm-project/vllm#35497
// story: Scales are padded to 128 columns, and every expert beyond the first reads at an offset without the padding.
// check: bytes
// array: scales 512 zero
// array: out 512 zero
// array: right 512 zero
// launch: write 2 100 scales
// launch: read 2 100 scales out
// launch: expect 2 100 right
// same: out right
#include "asynchronous.cuh"

extern "C" __global__ void write(u8* scales) {
  scales[128 * blockIdx.x + threadIdx.x] = 100 * blockIdx.x + threadIdx.x;
}
extern "C" __global__ void read(const u8* scales, u8* out) {
  out[128 * blockIdx.x + threadIdx.x] = scales[BUG(100) MEND(128) * blockIdx.x + threadIdx.x];
}
extern "C" __global__ void expect(u8* right) { right[128 * blockIdx.x + threadIdx.x] = 100 * blockIdx.x + threadIdx.x; }
