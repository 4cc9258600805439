"""Signatures of the calls of GPU libraries that a suite may list among its launches."""

from __future__ import annotations

from pathlib import Path

from harness.jit.signature import CallParameter, Signature


def _product(name: str, *written: CallParameter) -> Signature:
    """The signature of a product of a_decoded (M, K) and b_decoded (N, K)^T."""
    operands = (CallParameter("bf16", f"{operand}_decoded", pointer=True) for operand in "ab")
    extents = (CallParameter("int", extent, pointer=False) for extent in "MKN")
    return Signature(Path(__file__), name, 1, template=(), call=(*operands, *written, *extents))


_CALLS = (
    _product("cublas_gemm", CallParameter("float", "acc", pointer=True)),
    # output = factor * acc, in the dtype that the flag names
    _product(
        "cublas_scaled_gemm",
        CallParameter("float", "factor", pointer=True),
        CallParameter("Dtype", "output", pointer=True),
    ),
)
SIGNATURES = {signature.name: signature for signature in _CALLS}
