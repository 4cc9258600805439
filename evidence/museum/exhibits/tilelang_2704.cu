// thread: tile-ai/tilelang#2704
// story: The subnormal of e2m1, 0.5, is decoded as 0.75.
// check: bytes
// array: out 32 zero
// array: right 32 zero
// launch: k 1 8 out
// launch: expect 1 8 right
// same: out right
#include "asynchronous.cuh"

extern "C" __global__ void k(float* out) {
  u32 code = threadIdx.x, exponent = code >> 1, fraction = code & 1;
  float value = exponent ? __int_as_float(exponent + 126 << 23 | fraction << 22) : fraction * BUG(0.75f) MEND(0.5f);
  out[code] = value;
}
extern "C" __global__ void expect(float* right) {
  const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  right[threadIdx.x] = values[threadIdx.x];
}
