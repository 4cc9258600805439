"""The contests: the peers and shapes of each case."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.suite import find_case, suite_of
from harness.text import nearest

LARGEST = "32768x8192"  # the shape of the published figures
COMPILED_ON = (LARGEST, "8192x8192")  # only these shapes, because torch.compile takes half a minute per shape
TRITON, TORCHAO, COMPILED, HEADER = "fouroversix_triton", "torchao", "torchao_compiled", "cuda_fp4"
QUANTIZERS = (TRITON, TORCHAO, COMPILED, HEADER)
W4A16 = ("humming", "humming_invariant")
PEERS = (*QUANTIZERS, *W4A16)

# (recipe and flags, peers); on every shape of the sweep.
SWEPT = (
    ("per_tensor/outputs=rowwise,stage=encode", QUANTIZERS),
    ("per_tensor/stage=encode", (TRITON,)),
    ("per_tensor/rounding=sr,stage=encode", (TRITON,)),
    ("four_over_six/outputs=rowwise,stage=encode", (TRITON,)),
)
# Only on the largest shape.
LARGE = (
    ("per_tensor/outputs=rowwise", (TRITON, TORCHAO, COMPILED)),
    ("per_tensor/default", (TRITON, TORCHAO)),
    ("per_tensor/outputs=columnwise,stage=encode", (TRITON,)),
    ("per_tensor/block=block_16x16,outputs=rowwise,stage=encode", (TRITON,)),
    ("per_tensor/block=block_16x16,stage=encode", (TRITON,)),
    ("per_tensor/outputs=rowwise,rounding=sr,stage=encode", (TRITON,)),
    ("per_tensor/rht=true", (TRITON,)),
    ("per_tensor/rht=true,rounding=sr", (TRITON,)),
    ("four_over_six/outputs=rowwise,error=mse,stage=encode", (TRITON,)),
    ("four_over_six/stage=encode", (TRITON,)),
)
# Products: our GEMM, and our decoding of both operands for cuBLAS.
PRODUCTS = ("gemm/default", "gemm/route=library")
TOKENS = (1, 16, 64, 256, 4096)
WEIGHT = "8192x8192"  # K and N


@dataclass(frozen=True)
class Contest:
    """One of our cases, in the mode `graph`, and the subjects that it is compared with."""

    case: Case
    peers: tuple[str, ...]


def contests(shapes: Sequence[str] = (), peers: Collection[str] = ()) -> list[Contest]:
    """Products, then the sweep, the largest shapes first; filtered by shapes and peers if any are given.

    All use corners of one input. Raises UsageError for an unknown shape or peer.
    """
    all_shapes = [*products(), *sweep()]
    for given, known in ((shapes, all_shapes), (peers, PEERS)):
        for name in given:
            if name not in known:
                raise UsageError(f"{name!r} is not among {', '.join(known)}{nearest(name, known)}")
    found = []
    for shape in (shape for shape in all_shapes if not shapes or shape in shapes):
        for spelled, able in _pairs_on(shape):
            names = (name for name in able if not peers or name in peers)
            chosen = tuple(name for name in names if name != COMPILED or shape in COMPILED_ON)
            if chosen:
                case = find_case(f"{spelled}/{shape}/normal/graph")
                found.append(Contest(replace(case, seed_of="peers"), chosen))
    return found


def sweep() -> list[str]:
    """The 18 shapes of `per_token`'s bench set that all peers take: COMPILED_ON, then the others by falling size."""
    cases = [case for case in suite_of("per_token").cases("bench") if case.rows % 128 == case.cols % 128 == 0]
    found = sorted({case.shape: case.elements for case in cases}.items(), key=lambda item: -item[1])
    shapes = [shape for shape, _ in found]
    return [*COMPILED_ON, *(shape for shape in shapes if shape not in COMPILED_ON)]


def products() -> list[str]:
    return [f"{tokens}x{WEIGHT}" for tokens in TOKENS]


def _pairs_on(shape: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if shape in products():
        return tuple((spelled, W4A16) for spelled in PRODUCTS)
    return (*SWEPT, *(LARGE if shape == LARGEST else ()))
