// An error of each kind that compute-sanitizer looks for, to see that it is seen. Launched with one block, on one
// array of as many words as threads that nothing has written.
using u32 = unsigned;

struct Launch {
  int tile_rows, tile_cols, threads, blocks_per_sm, schedule;
};

constexpr int kThreads = 128;

// The word after the last is written
__global__ void planted_memcheck(u32* words) { words[threadIdx.x + 1] = threadIdx.x; }

// Words are read that nothing wrote
__global__ void planted_initcheck(u32* words) { words[threadIdx.x] += 1u; }

// A barrier of half a warp is called by all of it
__global__ void planted_synccheck(u32* words) {
  words[threadIdx.x] = threadIdx.x;
  __syncwarp(0x0000FFFFu);
}

// No barrier stands between a warp's words and another's
__global__ void planted_racecheck(u32* words) {
  __shared__ u32 staged[kThreads];
  staged[threadIdx.x] = threadIdx.x;
  words[threadIdx.x] = staged[(threadIdx.x + kThreads / 2) % kThreads];
}

__constant__ Launch planted_memcheck_launch = {1, 1, kThreads, 1, 0};
__constant__ Launch planted_initcheck_launch = {1, 1, kThreads, 1, 0};
__constant__ Launch planted_synccheck_launch = {1, 1, kThreads, 1, 0};
__constant__ Launch planted_racecheck_launch = {1, 1, kThreads, 1, 0};
