// thread: vllm-project/vllm#57014
// story: With 1 to 4 rows left, the tail warp of a Hadamard transform reads shared memory that no warp filled.
// check: unwritten_read
// array: in 512 ramp
// array: out 512 zero
// launch: k 1 64 in out 3
#include "asynchronous.cuh"

extern "C" __global__ void k(const u8* in, u8* out, int rows) {
  __shared__ u8 s[8][32];
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int row = warp; row < rows; row += 2) s[row][lane] = in[32 * row + lane];
  __syncthreads();
  for (int row = 4 * warp; row < BUG(4 * warp + 4) MEND(min(rows, 4 * warp + 4)); row++)
    out[32 * row + lane] = s[row][lane] + s[row][lane ^ 1];
}
