// thread: NVIDIA/TensorRT-LLM#14668
// story: A quantizer lets the product begin before its scales are written, and the product does not wait for it.
// check: race
// array: in 256 ramp
// array: scales 256 nan
// array: out 256 zero
// launch: quantize 1 64 in scales
// launch: product 1 64 scales out early
#include "asynchronous.cuh"

extern "C" __global__ void quantize(const u8* in, u8* scales) {
  ASM("griddepcontrol.launch_dependents;");
  scales[threadIdx.x] = in[threadIdx.x] / 6;
}
extern "C" __global__ void product(const u8* scales, u8* out) {
  MEND(ASM("griddepcontrol.wait;");)
  out[threadIdx.x] = scales[threadIdx.x] + 1;
}
