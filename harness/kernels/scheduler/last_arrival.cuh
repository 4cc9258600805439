// Which of several blocks of threads arrives last.
#pragma once

#include "numerics/types.cuh"

// Called by one thread of each of `arrivals` blocks, between fences. True in the one that arrives last, which finds
// what the others wrote. ticket: zero before the first and after the last
__device__ __forceinline__ bool arrives_last(u32* ticket, u32 arrivals) {
  // atomicInc wraps to 0 when the last block arrives.
  return atomicInc(ticket, arrivals - 1) == arrivals - 1;
}
