// The mainloop of a 128x128 tile that this architecture runs fastest; both have the same order of the sum.
#pragma once

#include "gemm/mainloop.cuh"
#include "gemm/mainloop_wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
using MainloopDense = MainloopWgmma;
#else
using MainloopDense = Mainloop;
#endif
