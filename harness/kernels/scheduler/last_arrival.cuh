// Finds the last of several CTAs to arrive.
#pragma once

#include "numerics/types.cuh"

// True in the last of `arrivals` CTAs, which then sees what the others wrote. One thread of each calls this between
// fences. ticket: zero before the first and after the last
__device__ __forceinline__ bool arrives_last(u32* ticket, u32 arrivals) {
  // atomicInc wraps to 0 at the last arrival.
  return atomicInc(ticket, arrivals - 1) == arrivals - 1;
}
