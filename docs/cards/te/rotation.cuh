// The matrix that the fused casts multiply by, (16, 16) bf16, as Transformer Engine makes it in Python: each row of the
// Hadamard matrix divided by 4, with the sign of its bit in the mask. One block of 256 threads.
extern "C" __global__ void rotation(__nv_bfloat16* matrix, unsigned short sign_mask) {
  const int row = threadIdx.x / 16, col = threadIdx.x % 16;
  const bool minus = (__popc(row & col) ^ sign_mask >> row) & 1;
  matrix[threadIdx.x] = __float2bfloat16(minus ? -0.25f : 0.25f);
}
