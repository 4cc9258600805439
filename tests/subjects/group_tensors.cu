// Kernels that take one pointer for each tensor of a group, as grouped kernels of frameworks do. A block for a tensor.

// Moves the scale bytes of each tensor into the 128x4 tiles that a GEMM reads.
extern "C" __global__ void tiles_of_each(
    const unsigned char* const* scales, unsigned char* const* tiles, const long long* first_dims,
    const long long* last_dims) {
  const int g = blockIdx.x;
  if (first_dims[g] == 0 || last_dims[g] == 0) return;
  const int rows = static_cast<int>(first_dims[g] + 127) / 128 * 128;
  const int cols = static_cast<int>(last_dims[g] / 16 + 3) / 4 * 4;
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    const int r = i / cols, c = i % cols;
    tiles[g][(r / 128 * (cols / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4] = scales[g][i];
  }
}

struct Tensors {
  const unsigned short* const* input;  // bf16
  float* const* amax;
};

// The largest magnitude of each tensor, 0 of an empty one.
extern "C" __global__ void amax_of_each(Tensors tensors, const long long* first_dims, const long long* last_dims) {
  __shared__ unsigned largest;
  const int g = blockIdx.x;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  for (long long i = threadIdx.x; i < first_dims[g] * last_dims[g]; i += blockDim.x) {
    atomicMax(&largest, tensors.input[g][i] & 0x7FFFu);
  }
  __syncthreads();
  if (threadIdx.x == 0) *tensors.amax[g] = __uint_as_float(largest << 16);
}
