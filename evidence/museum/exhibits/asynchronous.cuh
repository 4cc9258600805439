// mbarriers, bulk copies, TMA and clusters in inline PTX, as short functions.
#pragma once

#if MENDED
#define MEND(...) __VA_ARGS__
#define BUG(...)
#else
#define MEND(...)
#define BUG(...) __VA_ARGS__
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define ASM(...) asm volatile(__VA_ARGS__ ::: "memory")
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64& bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(&bar)), "r"(count) : "memory");
}
__device__ void inval(u64& bar) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at(&bar)) : "memory"); }
__device__ void arrive(u64& bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(&bar)) : "memory");
}
__device__ void expect(u64& bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(&bar)), "r"(bytes) : "memory");
}
__device__ void wait(u64& bar, u32 parity) {
  asm volatile(
      "{\n .reg .pred p;\n again:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra again;\n}" ::"r"(
          at(&bar)),
      "r"(parity)
      : "memory");
}
__device__ void fence() { ASM("fence.proxy.async.shared::cta;"); }
__device__ void commit() { ASM("cp.async.bulk.commit_group;"); }
template <int N>
__device__ void wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ void wait_all() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
__device__ void load(void* to, const void* from, u32 bytes, u64& bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)),
               "l"(from), "r"(bytes), "r"(at(&bar))
               : "memory");
}
__device__ void store(void* to, const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(at(from)), "r"(bytes)
               : "memory");
}
struct alignas(64) Map {
  u8 bytes[128];
};
#define LOAD(RANK, COORDINATES, ...)                                                                \
  asm volatile("cp.async.bulk.tensor." RANK                                                         \
               ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" COORDINATES \
               "}], [%2];" ::__VA_ARGS__                                                            \
               : "memory")
__device__ void load1(void* to, const Map& map, u64& bar, int x) {
  LOAD("1d", "%3", "r"(at(to)), "l"(&map), "r"(at(&bar)), "r"(x));
}
__device__ void load2(void* to, const Map& map, u64& bar, int x, int y) {
  LOAD("2d", "%3, %4", "r"(at(to)), "l"(&map), "r"(at(&bar)), "r"(x), "r"(y));
}
__device__ void load3(void* to, const Map& map, u64& bar, int x, int y, int z) {
  LOAD("3d", "%3, %4, %5", "r"(at(to)), "l"(&map), "r"(at(&bar)), "r"(x), "r"(y), "r"(z));
}
__device__ void load4(void* to, const Map& map, u64& bar, int x, int y, int z, int v) {
  LOAD("4d", "%3, %4, %5, %6", "r"(at(to)), "l"(&map), "r"(at(&bar)), "r"(x), "r"(y), "r"(z), "r"(v));
}
__device__ void load5(void* to, const Map& map, u64& bar, int x, int y, int z, int v, int w) {
  LOAD("5d", "%3, %4, %5, %6, %7", "r"(at(to)), "l"(&map), "r"(at(&bar)), "r"(x), "r"(y), "r"(z), "r"(v), "r"(w));
}
#define STORE(HEAD, RANK, COORDINATES, ...) \
  asm volatile(HEAD ".tensor." RANK ".bulk_group [%0, {" COORDINATES "}], [%1];" ::__VA_ARGS__ : "memory")
__device__ void store1(const Map& map, const void* from, int x) {
  STORE("cp.async.bulk", "1d.global.shared::cta.tile", "%2", "l"(&map), "r"(at(from)), "r"(x));
}
__device__ void store2(const Map& map, const void* from, int x, int y) {
  STORE("cp.async.bulk", "2d.global.shared::cta.tile", "%2, %3", "l"(&map), "r"(at(from)), "r"(x), "r"(y));
}
__device__ void store3(const Map& map, const void* from, int x, int y, int z) {
  STORE("cp.async.bulk", "3d.global.shared::cta.tile", "%2, %3, %4", "l"(&map), "r"(at(from)), "r"(x), "r"(y), "r"(z));
}
__device__ void store4(const Map& map, const void* from, int x, int y, int z, int v) {
  STORE(
      "cp.async.bulk", "4d.global.shared::cta.tile", "%2, %3, %4, %5", "l"(&map), "r"(at(from)), "r"(x), "r"(y), "r"(z),
      "r"(v));
}
__device__ void store5(const Map& map, const void* from, int x, int y, int z, int v, int w) {
  STORE(
      "cp.async.bulk", "5d.global.shared::cta.tile", "%2, %3, %4, %5, %6", "l"(&map), "r"(at(from)), "r"(x), "r"(y),
      "r"(z), "r"(v), "r"(w));
}
__device__ u32 in_block(const void* p, u32 rank) {
  u32 out;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(at(p)), "r"(rank));
  return out;
}
__device__ void meet() {
  ASM("barrier.cluster.arrive.release.aligned;");
  ASM("barrier.cluster.wait.acquire.aligned;");
}
__device__ u32 rank() {
  u32 out;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(out));
  return out;
}
