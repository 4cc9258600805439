// thread: flashinfer-ai/flashinfer#3398
// story: At some numbers of rows every scale is 0, because the grid leaves the last tile out; cosine similarity hid it.
// check: bytes
// array: in 256 ramp
// array: scales 256 zero
// array: right 256 zero
// launch: k 1 64 in scales 33
// launch: expect 1 64 in right 33
// same: scales right
#include "asynchronous.cuh"

extern "C" __global__ void k(const u8* in, u8* scales, int rows) {
  for (int tile = 0; tile < BUG(rows / 64) MEND((rows + 63) / 64); tile++) {
    u32 row = 64 * tile + threadIdx.x;
    if (row < rows) scales[row] = in[row] + 1;
  }
}
extern "C" __global__ void expect(const u8* in, u8* right, int rows) {
  if (threadIdx.x < rows) right[threadIdx.x] = in[threadIdx.x] + 1;
}
