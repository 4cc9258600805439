// thread: NVIDIA/TransformerEngine#3281
// story: Where cvt.rs is missing, stochastic rounding returns zeros and says nothing.
// check: bytes
// array: in 256 ramp
// array: out 256 zero
// array: right 256 zero
// launch: k 1 64 in out
// launch: expect 1 64 in right
// same: out right
#include "asynchronous.cuh"

__device__ u8 software(u8 value, u32 random) { return (value + random % 16) / 16; }
extern "C" __global__ void k(const u8* in, u8* out) {
#if __CUDA_ARCH_FEAT_SM100_ALL
#error "this exhibit is of a chip without the instruction"
#else
  u8 rounded = BUG(0) MEND(software(in[threadIdx.x], 7 * threadIdx.x));
#endif
  out[threadIdx.x] = rounded;
}
extern "C" __global__ void expect(const u8* in, u8* right) {
  right[threadIdx.x] = software(in[threadIdx.x], 7 * threadIdx.x);
}
