"""Calls of GPU libraries that a suite may list among its launches: what each takes, as a kernel's signature says it."""

from __future__ import annotations

from pathlib import Path

from harness.jit.signature import CallParameter, Signature


def _pointer(name: str, kind: str) -> CallParameter:
    return CallParameter(kind, name, pointer=True, optional=False)


def _integer(name: str) -> CallParameter:
    return CallParameter("int", name, pointer=False, optional=False)


# acc (M, N) = a_decoded (M, K) * b_decoded (N, K)^T
SIGNATURES = {
    "cublas_gemm": Signature(
        Path(__file__),
        "cublas_gemm",
        1,
        template=(),
        call=(
            _pointer("a_decoded", "bf16"),
            _pointer("b_decoded", "bf16"),
            _pointer("acc", "float"),
            *map(_integer, "MKN"),
        ),
    )
}
