// A quantizer as one would write it from NVIDIA's headers alone: a thread takes a block of 16 elements, and every
// conversion is cuda_fp4.h's or cuda_fp8.h's, which convert in software where the chip has no instruction for it.
// The arithmetic is the contract's, so that only speed is compared.
#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

constexpr int kBlock = 16;
constexpr float kLargest = 3.402823466e38f;

// input: (blocks, 16) bf16; data: (blocks, 8); a line has `per_line` blocks and its scales take `stride` bytes
extern "C" __global__ void cuda_fp4_rowwise(
    const uint4* input, const float* amax, uint2* data, unsigned char* scale_inv, long long blocks, int per_line,
    int stride) {
  const long long block = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (block >= blocks) return;

  __nv_bfloat162 pairs[kBlock / 2];
  *reinterpret_cast<uint4*>(pairs) = input[2 * block];
  *reinterpret_cast<uint4*>(pairs + 4) = input[2 * block + 1];
  float2 x[kBlock / 2];
  float block_amax = 0;
  for (int i = 0; i < kBlock / 2; ++i) {
    x[i] = __bfloat1622float2(pairs[i]);
    block_amax = fmaxf(block_amax, fmaxf(fabsf(x[i].x), fabsf(x[i].y)));
  }

  float encode = fminf(448.0f * 6.0f / *amax, kLargest);
  if (*amax == 0 || encode == 0) encode = 1;
  const float scale = fminf(block_amax * (encode * (1.0f / 6.0f)), kLargest);
  const __nv_fp8_storage_t byte = __nv_cvt_float_to_fp8(scale, __NV_SATFINITE, __NV_E4M3);
  const float decoded = __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)));
  const float multiplier = fminf(1.0f / (decoded * (1.0f / encode)), kLargest);

  unsigned char codes[kBlock / 2];
  for (int i = 0; i < kBlock / 2; ++i) {
    const float2 scaled = make_float2(x[i].x * multiplier, x[i].y * multiplier);
    codes[i] = __nv_cvt_float2_to_fp4x2(scaled, __NV_E2M1, cudaRoundNearest);
  }
  data[block] = *reinterpret_cast<uint2*>(codes);
  scale_inv[block / per_line * stride + block % per_line] = byte;
}
