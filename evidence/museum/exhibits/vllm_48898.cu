// thread: vllm-project/vllm#48898
// story: The rank is no multiple of 32: the last column of scales is padding that nothing wrote.
// check: unwritten_read
// array: in 512 ramp
// array: scales 256 unwritten
// array: out 64 zero
// launch: quantize 1 64 in scales 3
// launch: product 1 64 scales out 3
#include "asynchronous.cuh"

extern "C" __global__ void quantize(const u8* in, u8* scales, int columns) {
  for (int k = 0; k < columns; k++) scales[4 * threadIdx.x + k] = in[columns * threadIdx.x + k] / 6;
}
extern "C" __global__ void product(const u8* scales, u8* out, int columns) {
  u32 sum = 0;
  for (int k = 0; k < BUG(4) MEND(columns); k++) sum += scales[4 * threadIdx.x + k];
  out[threadIdx.x] = sum;
}
