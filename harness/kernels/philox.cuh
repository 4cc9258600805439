// 2.9 random bits: Philox4x32-10 (Salmon et al., SC'11), counted by block so that bytes do not depend on the launch.
#pragma once

#include "integers.cuh"

struct Random16 {
  u32 word[4];  // element i of the block uses byte i % 4 of word i / 4
};

__device__ __forceinline__ Random16 philox(u64 seed, u64 block, u32 direction, u32 offset) {
  u32 c0 = u32(block), c1 = u32(block >> 32), c2 = direction, c3 = offset;
  u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = u64(0xD2511F53u) * c0;
    const u64 p1 = u64(0xCD9E8D57u) * c2;
    c0 = u32(p1 >> 32) ^ c1 ^ k0;
    c1 = u32(p1);
    c2 = u32(p0 >> 32) ^ c3 ^ k1;
    c3 = u32(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
