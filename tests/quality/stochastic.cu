// Stochastic rounding, plainly: a thread takes a block of 16. MUTANT says in which way its random numbers are wrong.
#include "numerics/philox.cuh"

#ifndef MUTANT
#define MUTANT 0
#endif

enum {
  RIGHT,
  NEAREST,
  ZEROS,
  FOUR_BITS,
  SEVEN_BITS,
  LATE,
  EARLY,
  PERIOD_OF_256,
  OF_THE_CTA,
  CONSTANT_SEED,
  NO_OFFSET,
  LOW_SEED,
  SUM_OF_BOTH,
  SAME_DIRECTION,
  BYTE_OF_FOUR,
  ONE_INTERVAL,
  ONE_SIGN,
  ONE_PLACE,
  MIRRORED
};

__device__ float value(const float* in, int at) { return in[at]; }
__device__ float value(const unsigned short* in, int at) { return __uint_as_float(unsigned(in[at]) << 16); }

template <class T>
__global__ void amax_of(const T* in, float* rows, float* columns, int n) {
  float largest = 0;
  for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) {
    largest = fmaxf(largest, fabsf(value(in, i)));
  }
  atomicMax((int*)rows, __float_as_int(largest));
  atomicMax((int*)columns, __float_as_int(largest));
}

__device__ int e4m3(float x) {
  unsigned short both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(x));
  return both & 255;
}

__device__ float size_of(int byte) {
  int exponent = byte >> 3, mantissa = byte & 7;
  return exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9);
}

__device__ int code_of(float x, int r, int place) {
  const float sizes[9] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, 8.0f};
  float a = fminf(fabsf(x), 6.0f);
  int low = 0;
  while (a >= sizes[low + 1]) ++low;
  float part = 256 * (a - sizes[low]) / (sizes[low + 1] - sizes[low]);
  if (MUTANT == NEAREST) r = 128;
  if (MUTANT == FOUR_BITS) r &= 0xF0;
  if (MUTANT == SEVEN_BITS) r &= 0xFE;
  if (MUTANT == ONE_INTERVAL && low == 6) part *= 0.9f;
  if (MUTANT == ONE_SIGN && x < 0) r = 0;
  if (MUTANT == ONE_PLACE && place == 7) r = 0;
  bool up = MUTANT == LATE ? r + part > 256 : r + part >= (MUTANT == EARLY ? 255 : 256);
  if (MUTANT == ZEROS) return 0;
  return low + up | (x < 0 ? 8 : 0);
}

template <class T>
__global__ void encode(
    const T* in, const float* amax, unsigned char* codes, unsigned char* scales, int rows, int cols,
    unsigned long long seed, unsigned offset, int direction) {
  int lines = direction ? cols : rows, blocks = (direction ? rows : cols) / 16;
  int block = threadIdx.x + blockIdx.x * blockDim.x;
  if (block >= lines * blocks) return;
  int line = block / blocks, first = block % blocks * 16;
  float x[16], largest = 0;
  for (int i = 0; i < 16; ++i) {
    x[i] = value(in, direction ? (first + i) * cols + line : line * cols + first + i);
    largest = fmaxf(largest, fabsf(x[i]));
  }
  float global = *amax ? 2688.0f / *amax : 1.0f;
  int scale = e4m3(largest * (global * (1.0f / 6)));
  scales[line * ((blocks + 3) / 4 * 4) + block % blocks] = scale;
  float multiplier = scale ? global / size_of(scale) : 0;
  unsigned long long counter = block, key = seed;
  unsigned of_direction = direction, last = offset;
  if (MUTANT == PERIOD_OF_256) counter = line % 256 * blocks + block % blocks;
  if (MUTANT == OF_THE_CTA) counter = threadIdx.x;
  if (MUTANT == CONSTANT_SEED) key = 1234;
  if (MUTANT == NO_OFFSET) last = 0;
  if (MUTANT == LOW_SEED) key &= 0xFFFFFFFF;
  if (MUTANT == SUM_OF_BOTH) key += offset, last = 0;
  if (MUTANT == SAME_DIRECTION) of_direction = 0;
  Random16 random = philox(key, counter, of_direction, last);
  for (int i = 0; i < 16; i += 2) {
    int both = 0;
    for (int half = 0; half < 2; ++half) {
      int place = i + half, word = place / 4, byte = MUTANT == BYTE_OF_FOUR ? 0 : place % 4;
      if (MUTANT == MIRRORED && place >= 8) word = 3 - word;
      both |= code_of(x[place] * multiplier, random.word[word] >> 8 * byte & 255, place) << 4 * half;
    }
    codes[(line * blocks * 16 + first + i) / 2] = both;
  }
}
