// thread: vllm-project/vllm#55456
// story: Tiles of 128 rows of scales are written into an array of as many rows as there are tokens.
// check: out_of_bounds
// array: scales 129 zero
// launch: k 2 128 scales 129
#include "asynchronous.cuh"

extern "C" __global__ void k(u8* scales, int tokens) {
  u32 row = 128 * blockIdx.x + threadIdx.x;
  MEND(if (row < tokens)) scales[row] = 1;
}
