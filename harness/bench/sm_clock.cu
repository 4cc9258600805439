// Reads a multiprocessor's own clock, so that a change of the clock is not taken for a change of the code.
using u64 = unsigned long long;

struct Launch {
  int tile_rows, tile_cols, threads, blocks_per_sm, schedule;
};

// Written by one thread of one block: cycles, nanoseconds, and the number of the multiprocessor
__global__ void sm_clock(u64* reading) {
  unsigned multiprocessor;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(reading[1]));
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(reading[0]));
  reading[2] = multiprocessor;
}

__constant__ Launch sm_clock_launch = {1, 1, 1, 1, 0};
