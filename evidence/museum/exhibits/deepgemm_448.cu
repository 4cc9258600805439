// thread: deepseek-ai/DeepGEMM#448
// story: Registers of A are loaded for the next step while the wgmma that reads them is in flight.
// check: race
// array: in 4096 ramp
// array: out 4096 zero
// launch: k 1 128 in out
#include "asynchronous.cuh"

extern "C" __global__ void k(const u32* in, float* out) {
  __shared__ alignas(128) u16 b[128];
  b[threadIdx.x] = 0;
  fence();
  __syncthreads();
  u64 matrix = (u64)(at(b) >> 4) | (u64)(128 >> 4) << 16 | (u64)(128 >> 4) << 32;
  u32 a[4];
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4; i++) a[i] = in[4 * threadIdx.x + i];
  for (int step = 0; step < 2; step++) {
    asm volatile(""
                 : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+f"(d[0]), "+f"(d[1]), "+f"(d[2]),
                   "+f"(d[3])::"memory");
    ASM("wgmma.fence.sync.aligned;");
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix)
        : "memory");
    ASM("wgmma.commit_group.sync.aligned;");
    MEND(ASM("wgmma.wait_group.sync.aligned 0;");)
    asm volatile("add.u32 %0, %0, %1;" : "+r"(a[0]) : "r"(in[threadIdx.x]) : "memory");
    BUG(ASM("wgmma.wait_group.sync.aligned 0;");)
  }
  for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = d[i];
}
