// NUMERICS 2.9: Philox4x32-10 (Salmon et al., SC'11), counted by block so that bytes do not depend on the launch.
#pragma once

#include "numerics/types.cuh"

struct Random16 {
  u32 word[4];  // element i of the block uses byte i % 4 of word i / 4
};

// A 32x32-bit product in assembly: the compiler would multiply 64 by 64 bits and add an upper half of zeros.
struct Product {
  u32 low, high;

  __device__ Product(u32 a, u32 b) {
    asm("{ .reg .b64 product; mul.wide.u32 product, %2, %3; mov.b64 {%0, %1}, product; }"
        : "=r"(low), "=r"(high)
        : "r"(a), "r"(b));
  }
};

__device__ __forceinline__ Random16 philox(u64 seed, u64 block, u32 direction, u32 offset) {
  u32 c0 = u32(block), c1 = u32(block >> 32), c2 = direction, c3 = offset;
  u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const Product p0(0xD2511F53u, c0);
    const Product p1(0xCD9E8D57u, c2);
    c0 = p1.high ^ c1 ^ k0;
    c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1;
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
