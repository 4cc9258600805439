// clusterlaunchcontrol in inline PTX, as short functions.
#pragma once
#include "asynchronous.cuh"

struct alignas(16) Answer {
  u32 words[4];
};
struct Next {
  u32 there, x, y, z;
};
#define REQUEST(TO) \
  "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes" TO ".b128 [%0], [%1];"
__device__ void request(Answer& answer, u64& bar) {
  asm volatile(REQUEST("")::"r"(at(&answer)), "r"(at(&bar)) : "memory");
}
__device__ void request_for_all(Answer& answer, u64& bar) {
  asm volatile(REQUEST(".multicast::cluster::all")::"r"(at(&answer)), "r"(at(&bar)) : "memory");
}
__device__ Next query(Answer& answer) {
  Next next = {0, 0, 0, 0};
  asm volatile(
      "{\n .reg .pred p;\n .reg .b128 all;\n ld.shared.b128 all, [%4];\n"
      " clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, all;\n selp.u32 %0, 1, 0, p;\n"
      " @p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%1, %2, %3, _}, all;\n}"
      : "=r"(next.there), "+r"(next.x), "+r"(next.y), "+r"(next.z)
      : "r"(at(&answer))
      : "memory");
  return next;
}
