// Keeps a stream busy, to detect work that was not queued on that stream: such work does not wait for this kernel.
using u64 = unsigned long long;

struct Launch {
  int tile_rows, tile_cols, threads, blocks_per_sm, schedule;
};

// One thread of one block
__global__ void hold(u64 nanoseconds) {
  u64 began, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - began < nanoseconds);
}

__constant__ Launch hold_launch = {1, 1, 1, 1, 0};
