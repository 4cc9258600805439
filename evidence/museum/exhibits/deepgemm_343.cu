// thread: deepseek-ai/DeepGEMM#343
// story: A tensor map in global memory is changed for the next group while a copy with it is in flight.
// check: race
// array: in 1024 ramp
// array: maps 128 zero
// array: out 256 zero
// map: map in uint8 1024 256
// launch: k 1 64 map maps out
#include "asynchronous.cuh"

extern "C" __global__ void k(const __grid_constant__ Map map, Map* maps, u8* out) {
  __shared__ alignas(128) u8 s[256];
  __shared__ u64 bar;
  u32 t = threadIdx.x;
  if (t == 0) {
    init(bar, 1);
    for (int i = 0; i < 128; i++) maps[0].bytes[i] = map.bytes[i];
  }
  ASM("fence.proxy.async;");
  __syncthreads();
  if (t == 0) {
    expect(bar, 256);
    load1(s, maps[0], bar, 0);
    MEND(wait(bar, 0);)
    maps[0].bytes[127] = 1;
  }
  wait(bar, 0);
  out[t] = s[t];
}
