// Two kernels that meet in one array, and the ways in which they fail to: small, slow, and right unless a flag says so.
#include "per_tensor.cu"

__device__ int tiled(int row, int col, int cols) {
  return ((row / 128) * (cols / 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
}

// Scale bytes (lines, blocks) of a padded matrix into tiles. written: which of the padding, 1 its rows, 2 its columns
extern "C" __global__ void tile(const unsigned char* in, unsigned char* out, int lines, int blocks, int written) {
  int rows = (lines + 127) / 128 * 128, cols = (blocks + 3) / 4 * 4;
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    int row = i / cols, col = i % cols;
    if ((row < lines || written & 1) && (col < blocks || written & 2)) out[tiled(row, col, cols)] = in[i];
  }
}

// As tile, with bytes that are right if 2^3 is 8, of which PTX leaves the last bits open. open: whether it is computed so
extern "C" __global__ void tile_by_power(const unsigned char* in, unsigned char* out, int lines, int blocks, int open) {
  int rows = (lines + 127) / 128 * 128, cols = (blocks + 3) / 4 * 4;
  float eight = 8.0f;
  if (open) asm("ex2.approx.f32 %0, %1;" : "=f"(eight) : "f"(lines > 0 ? 3.0f : 2.0f));
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    out[tiled(i / cols, i % cols, cols)] = in[i] + (eight != 8.0f);
  }
}

// The way back. whole: its padding, too; linear: the tiles are read as if they were rows
extern "C" __global__ void untile(
    const unsigned char* in, unsigned char* out, int lines, int blocks, int whole, int linear) {
  int rows = (lines + 127) / 128 * 128, cols = (blocks + 3) / 4 * 4;
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    int row = i / cols, col = i % cols;
    bool inside = row < lines && col < blocks;
    if (inside || whole) out[i] = in[linear ? i : tiled(row, col, cols)];
  }
}

// As untile, four bytes at a time: it loads padding columns and keeps them to itself.
extern "C" __global__ void untile_by_four(const unsigned* in, unsigned char* out, int lines, int blocks) {
  int rows = (lines + 127) / 128 * 128, cols = (blocks + 3) / 4 * 4;
  for (int i = threadIdx.x; i < rows * cols / 4; i += blockDim.x) {
    int row = i / (cols / 4), col = i % (cols / 4) * 4;
    if (row >= lines) continue;
    unsigned four = in[tiled(row, col, cols) / 4];
    for (int k = 0; k < 4 && col + k < blocks; ++k) out[row * cols + col + k] = four >> 8 * k;
  }
}

// To and from an array that has no padding.
extern "C" __global__ void untile_dense(const unsigned char* in, unsigned char* out, int lines, int blocks) {
  int cols = (blocks + 3) / 4 * 4;
  for (int i = threadIdx.x; i < lines * blocks; i += blockDim.x) out[i] = in[tiled(i / blocks, i % blocks, cols)];
}

extern "C" __global__ void tile_dense(const unsigned char* in, unsigned char* out, int lines, int blocks, int stride) {
  int rows = (lines + 127) / 128 * 128, cols = (blocks + 3) / 4 * 4;
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    int row = i / cols, col = i % cols;
    out[tiled(row, col, cols)] = row < lines && col < blocks ? in[row * stride + col] : 0;
  }
}

// Right only where two bytes of padding are the same.
extern "C" __global__ void untile_if_alike(const unsigned char* in, unsigned char* out, int lines, int blocks) {
  int rows = (lines + 127) / 128 * 128, cols = (blocks + 3) / 4 * 4;
  bool alike = in[tiled(0, cols - 1, cols)] == in[tiled(1, cols - 1, cols)];
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    if (i / cols < lines && i % cols < blocks) out[i] = alike ? in[tiled(i / cols, i % cols, cols)] : 0;
  }
}

// For each tensor of a group. padded: whether a tensor begins behind the padding of the one before
extern "C" __global__ void untile_group(
    const unsigned char* in, unsigned char* out, const long long* first_dims, int tensors, int blocks, int padded) {
  int cols = (blocks + 3) / 4 * 4;
  long long from = 0, to = 0;
  for (int g = 0; g < tensors; ++g) {
    int lines = first_dims[g], rows = (lines + 127) / 128 * 128;
    for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
      out[to + i] = in[from + tiled(i / cols, i % cols, cols)];
    }
    to += rows * cols;
    from += padded ? rows * cols : rows * blocks;
  }
}

__device__ float e2m1_value(int code) {
  const float values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return code & 8 ? -values[code & 7] : values[code & 7];
}

__device__ float e4m3_value(int byte) {
  int exponent = byte >> 3 & 15, mantissa = byte & 7;
  float size = exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9);
  if ((byte & 127) == 127) size = __int_as_float(0x7FC00000);
  return byte & 128 ? -size : size;
}

__device__ unsigned short as_bf16(float value) {
  unsigned bits = __float_as_uint(value);
  return value != value ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// Compact scales. factor: the amax, or a scale of which form: 0 amax, 1 encode, 2 decode; largest: of the scales
extern "C" __global__ void decode(
    const unsigned char* codes, const unsigned char* scales, const float* factor, unsigned short* out, int rows,
    int cols, int form, float largest, int high) {
  int stride = (cols / 16 + 3) / 4 * 4;
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    int row = i / cols, col = i % cols, half = high ? 1 - col % 2 : col % 2;
    float scale = e4m3_value(scales[row * stride + col / 16]);
    float per = form == 0 ? scale * *factor * (1.0f / (6.0f * largest)) : form == 1 ? scale / *factor : scale * *factor;
    out[i] = as_bf16(e2m1_value(codes[i / 2] >> 4 * half & 15) * per);
  }
}

extern "C" __global__ void decode_as_masked(
    const unsigned char* codes, const unsigned char* scales, const float* amax, unsigned short* out,
    const int* masked_m, int cols) {
  int stride = (cols / 16 + 3) / 4 * 4;
  for (int i = threadIdx.x; i < *masked_m * cols; i += blockDim.x) {
    int row = i / cols, col = i % cols;
    float per = e4m3_value(scales[row * stride + col / 16]) * *amax * (1.0f / 2688.0f);
    out[i] = as_bf16(e2m1_value(codes[i / 2] >> 4 * (col % 2) & 15) * per);
  }
}

extern "C" __global__ void as_encode(float* amax) {
  if (threadIdx.x == 0) *amax = 2688.0f / *amax;
}

extern "C" __global__ void swap_nibbles(unsigned char* codes, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) codes[i] = codes[i] >> 4 | codes[i] << 4;
}

extern "C" __global__ void drop_signs_of_zeros(unsigned char* codes, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    if ((codes[i] & 0x0F) == 0x08) codes[i] ^= 0x08;
    if ((codes[i] & 0xF0) == 0x80) codes[i] ^= 0x80;
  }
}
