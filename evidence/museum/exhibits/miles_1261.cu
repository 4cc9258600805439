// thread: radixark/miles#1261
// story: The error of four over six is multiplied in another order: equal in algebra, other bytes.
// check: bytes
// array: in 256 ramp
// array: out 256 zero
// array: right 256 zero
// launch: k 1 64 in out
// launch: expect 1 64 in right
// same: out right
#include "asynchronous.cuh"

extern "C" __global__ void k(const u8* in, float* out) {
  float x = in[threadIdx.x] + 0.1f, scale = 0.3f, global = 1.7f;
  out[threadIdx.x] = BUG(x * (scale * global)) MEND((x * scale) * global);
}
extern "C" __global__ void expect(const u8* in, float* right) {
  float x = in[threadIdx.x] + 0.1f;
  x = x * 0.3f;
  right[threadIdx.x] = x * 1.7f;
}
