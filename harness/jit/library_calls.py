"""Signatures of the calls of GPU libraries that a suite may list among its launches."""

from __future__ import annotations

from pathlib import Path

from harness.jit.signature import CallParameter, Signature

# acc (M, N) = a_decoded (M, K) * b_decoded (N, K)^T
SIGNATURES = {
    "cublas_gemm": Signature(
        Path(__file__),
        "cublas_gemm",
        1,
        template=(),
        call=(
            CallParameter("bf16", "a_decoded", pointer=True),
            CallParameter("bf16", "b_decoded", pointer=True),
            CallParameter("float", "acc", pointer=True),
            *(CallParameter("int", extent, pointer=False) for extent in "MKN"),
        ),
    )
}
