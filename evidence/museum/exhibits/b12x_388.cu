// thread: b12x#388
// story: The smallest e4m3, 0x01, is a subnormal, and is decoded as if it had an implicit one.
// check: bytes
// array: out 512 zero
// array: right 512 zero
// launch: k 1 128 out
// launch: expect 1 128 right
// same: out right
#include "asynchronous.cuh"

extern "C" __global__ void k(float* out) {
  u32 code = threadIdx.x, exponent = code >> 3, fraction = code & 7;
  float value = __int_as_float(exponent + 120 << 23 | fraction << 20);
  MEND(if (!exponent) value = fraction * 0.001953125f;)
  out[code] = code == 127 ? 0 : value;
}
extern "C" __global__ void expect(float* right) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)threadIdx.x));
  float value;
  asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %1;\n cvt.f32.f16 %0, low;\n}" : "=f"(value) : "r"(pair));
  right[threadIdx.x] = threadIdx.x == 127 ? 0 : value;
}
