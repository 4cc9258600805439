"""Calls into GPU libraries, which a suite lists among its launches: `- library: cublas_gemm`.

`cublas_gemm` writes fp32 sums. `cublas_scaled_gemm` multiplies them by a factor that an earlier launch wrote and casts
to the output's dtype, which saves a pass over the sums. Some of cuBLAS's kernels add a +0 before the cast.

cuBLAS is called through its C interface, in the copy that torch brings along: CuPy refuses it while a stream captures,
and torch would have it allocate. The workspace is ours, set once, so that a call neither allocates nor waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from harness.errors import LaunchError

WORKSPACE = 32 << 20  # bytes; what NVIDIA recommends for cuBLAS on Hopper

_R_32F, _R_16BF = 0, 14  # cudaDataType
_KINDS = {"fp32": _R_32F, "bf16": _R_16BF}  # by the value of the flag dtype
_COMPUTE_32F = 68  # cublasComputeType_t: fp32 products of bf16, fp32 sums
_OP_N, _OP_T = 0, 1
_DEFAULT = -1  # cublasGemmAlgo_t: the library's own choice
_ON_HOST, _ON_DEVICE = 0, 1  # cublasPointerMode_t: where alpha and beta lie
_SUCCESS = 0


def call_of(name: str, dtype: str) -> Callable[..., None]:
    """The function for a library call. It takes addresses and integers in the order of the call's signature, and queues
    the work on CuPy's current stream.

    dtype: the output's, as the flag `dtype` spells it
    """
    if name == "cublas_scaled_gemm":
        return lambda a, b, factor, out, m, k, n: gemm(a, b, out, _KINDS[dtype], m, k, n, factor)
    return lambda a, b, acc, m, k, n: gemm(a, b, acc, _R_32F, m, k, n)


def gemm(a: int, b: int, out: int, kind: int, m: int, k: int, n: int, factor: int = 0) -> None:
    """out (M, N) = a (M, K) * b (N, K)^T of bf16 with fp32 sums, all row-major; addresses of GPU memory.

    kind: cudaDataType of out
    factor: address of the float32 that the sums are multiplied by, and of the zero behind it; 0 for a factor of 1
    Queued on CuPy's current stream.
    """
    import cupy

    library, handle, workspace = _opened(cupy.cuda.Device().id)
    stream = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
    _check("cublasSetStream", library.cublasSetStream_v2(handle, stream))
    # Setting a stream resets cuBLAS's workspace.
    pointer, size = ctypes.c_void_p(workspace.data.ptr), ctypes.c_size_t(WORKSPACE)
    _check("cublasSetWorkspace", library.cublasSetWorkspace_v2(handle, pointer, size))
    # cuBLAS counts along columns first: to it a row-major (M, N) is an (N, M), and out^T = b * a^T.
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    alpha, beta = (factor, factor + 4) if factor else (ctypes.addressof(one), ctypes.addressof(zero))
    mode = _ON_DEVICE if factor else _ON_HOST
    _check("cublasSetPointerMode", library.cublasSetPointerMode_v2(handle, mode))
    _check(
        "cublasGemmEx",
        library.cublasGemmEx(
            handle, _OP_T, _OP_N, n, m, k,
            ctypes.c_void_p(alpha), ctypes.c_void_p(b), _R_16BF, k, ctypes.c_void_p(a), _R_16BF, k,
            ctypes.c_void_p(beta), ctypes.c_void_p(out), kind, n, _COMPUTE_32F, _DEFAULT,
        ),
    )  # fmt: skip


def bf16_product(m: int, k: int, n: int) -> Callable[[], None]:
    """A call that multiplies two normal matrices, bf16 in and out: the cost of a GEMM of this shape without NVFP4."""
    import torch

    generator = torch.Generator("cuda").manual_seed(m + k + n)
    a, b, out = (
        torch.randn(shape, device="cuda", generator=generator).bfloat16() for shape in ((m, k), (n, k), (m, n))
    )
    torch.cuda.synchronize()
    # The tensors live as long as the call does.
    return lambda: gemm(a.data_ptr(), b.data_ptr(), out.data_ptr(), _R_16BF, m, k, n)


def version() -> str:
    """`cuBLAS 13.1.0`, of the library that is called."""
    import cupy

    library, handle, _ = _opened(cupy.cuda.Device().id)
    number = ctypes.c_int()
    _check("cublasGetVersion", library.cublasGetVersion_v2(handle, ctypes.byref(number)))
    major, rest = divmod(number.value, 10000)
    return f"cuBLAS {major}.{rest // 100}.{rest % 100}"


@cache
def _opened(device: int) -> tuple[Any, ctypes.c_void_p, Any]:
    """The library, a handle for one GPU, and its workspace."""
    import cupy

    library, handle = _load(), ctypes.c_void_p()
    _check("cublasCreate", library.cublasCreate_v2(ctypes.byref(handle)))
    return library, handle, cupy.empty(WORKSPACE, cupy.uint8)


def _load() -> ctypes.CDLL:
    import torch

    # torch has it loaded, so that its name alone finds it.
    names = [f"libcublas.so.{(torch.version.cuda or '').partition('.')[0]}", "libcublas.so"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LaunchError(f"cuBLAS cannot be loaded: there is no {' and no '.join(names)} beside torch {torch.__version__}")


def _check(call: str, status: int) -> None:
    if status != _SUCCESS:
        raise LaunchError(f"{call} returned status {status}; see cublasStatus_t")
