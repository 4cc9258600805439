// thread: vllm-project/vllm#45741
// story: zeros became empty for swizzled scales: the padding up to 128 rows is never written, and the product reads it.
// check: unwritten_read
// array: in 256 ramp
// array: scales 128 unwritten
// array: out 128 zero
// launch: quantize 1 128 in scales 100
// launch: product 1 128 scales out
#include "asynchronous.cuh"

extern "C" __global__ void quantize(const u8* in, u8* scales, int rows) {
  u32 row = threadIdx.x;
  if (row < rows) scales[row] = in[row] / 6;
  MEND(else scales[row] = 0;)
}
extern "C" __global__ void product(const u8* scales, u8* out) { out[threadIdx.x] = scales[threadIdx.x]; }
