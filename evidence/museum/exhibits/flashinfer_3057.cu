// thread: flashinfer-ai/flashinfer#3057
// story: Rows beyond masked_m of a workspace hold what an earlier run left there, and the amax of a tile takes them in.
// check: unwritten_read
// array: in 256 ramp
// array: workspace 256 unwritten
// array: out 64 zero
// launch: produce 1 64 in workspace 40
// launch: amax 1 64 workspace out 40
#include "asynchronous.cuh"

extern "C" __global__ void produce(const u8* in, u8* workspace, int masked_m) {
  if (threadIdx.x < masked_m) workspace[threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void amax(const u8* workspace, u8* out, int masked_m) {
  u32 row = threadIdx.x;
  u32 value = BUG(workspace[row]) MEND(row < masked_m ? workspace[row] : 0);
  for (int step = 16; step; step /= 2) value = max(value, __shfl_xor_sync(~0u, value, step));
  out[row] = value;
}
