// One instruction of a matrix unit for each 16x8 (mma.sync) or 64x8 (wgmma) tile: D = A B^T + C, f16 in and fp32 out,
// so that the order in which the unit sums can be read off D.
using u32 = unsigned;
using u64 = unsigned long long;

struct Launch {
  int tile_rows, tile_cols, threads, blocks_per_sm, schedule;
};

// What a lane holds of A: rows g and g + 8, in each elements 2t, 2t + 1, 2t + 8 and 2t + 9 along K.
struct LaneOfA {
  u32 word[4];

  __device__ LaneOfA(const u32* a, int g, int t)
      : word{a[8 * g + t], a[8 * (g + 8) + t], a[8 * g + t + 4], a[8 * (g + 8) + t + 4]} {}
};

__device__ __forceinline__ u64 place(int g, int t, int i) { return 8 * (g + i / 2 * 8) + 2 * t + i % 2; }

// a [tiles, 16, 16] and b [tiles, 8, 16], f16 in pairs along K; c and d [tiles, 16, 8]. One warp a tile
__global__ void mma_products(const u32* a, const u32* b, const float* c, float* d) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  const u64 tile = blockIdx.x;
  const LaneOfA left(a + 128 * tile, g, t);
  const u32* right = b + 64 * tile + 8 * g + t;
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = c[128 * tile + place(g, t, i)];
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]), "r"(right[0]), "r"(right[4]));
  for (int i = 0; i < 4; ++i) d[128 * tile + place(g, t, i)] = sum[i];
}

// a [tiles, 64, 16] and b [tiles, 8, 16], f16 in pairs along K; c and d [tiles, 64, 8]. One warpgroup a tile
__global__ void wgmma_products(const u32* a, const u32* b, const float* c, float* d) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ alignas(128) u32 lines[64];  // two core matrices of 8 lines by 8 elements, along K
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const u64 tile = blockIdx.x, rows = 4 * tile + warp;
  const LaneOfA left(a + 128 * rows, g, t);
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = c[128 * rows + place(g, t, i)];
  if (threadIdx.x < 64) {
    const int line = threadIdx.x / 8, word = threadIdx.x % 8;
    lines[word / 4 * 32 + line * 4 + word % 4] = b[64 * tile + threadIdx.x];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const u64 start = u64(__cvta_generic_to_shared(lines)) >> 4;
  const u64 descriptor = start | u64(128 >> 4) << 16 | u64(256 >> 4) << 32;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]), "l"(descriptor));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) d[128 * rows + place(g, t, i)] = sum[i];
#endif
}

__constant__ Launch mma_products_launch = {16, 8, 32, 0, 0};
__constant__ Launch wgmma_products_launch = {64, 8, 128, 0, 0};
