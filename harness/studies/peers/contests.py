"""The contests: which case is compared with which peers, on which shapes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.schema import nearest
from harness.suite.suite import find_case, suite_of

LARGEST = "32768x8192"  # the shape of the published figures
COMPILED_ON = (LARGEST, "8192x8192")  # where torch.compile is worth its half minute
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
# On the largest shape alone.
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
# Products, each of ours by itself and by decoding both operands for cuBLAS, so that one run has all three.
PRODUCTS = ("gemm/default", "gemm/route=library")
TOKENS = (1, 16, 64, 256, 4096)
WEIGHT = "8192x8192"  # K by N


@dataclass(frozen=True)
class Contest:
    """One case of ours, in the mode `graph`, and the names of the subjects that it is compared with."""

    case: Case
    peers: tuple[str, ...]


def contests(shapes: Sequence[str] = (), peers: Collection[str] = ()) -> list[Contest]:
    """Products, then the sweep, the largest shapes first; of these shapes and these peers alone if there are any.

    All share one input, of which each takes a corner. Raises UsageError for a shape or a peer that is not among them.
    """
    all_shapes = [*products(), *sweep()]
    for given, known in ((shapes, all_shapes), (peers, PEERS)):
        for name in given:
            if name not in known:
                raise UsageError(f"{name!r} is not among {', '.join(known)}{nearest(name, known)}")
    return list(_contests([s for s in all_shapes if not shapes or s in shapes], peers or PEERS))


def sweep() -> list[str]:
    """The 18 shapes that `per_token` is swept over, COMPILED_ON and then the largest first."""
    cases = suite_of("per_token").cases("bench")
    found = sorted({case.shape: case.elements for case in cases}.items(), key=lambda item: -item[1])
    shapes = [shape for shape, _ in found]
    return [*COMPILED_ON, *(shape for shape in shapes if shape not in COMPILED_ON)]


def products() -> list[str]:
    """Shapes of the products, MxKxN."""
    return [f"{tokens}x{WEIGHT}" for tokens in TOKENS]


def _contests(shapes: Sequence[str], peers: Collection[str]) -> Iterator[Contest]:
    for shape in shapes:
        for spelled, able in _pairs_on(shape):
            chosen = tuple(name for name in able if name in peers and (name != COMPILED or shape in COMPILED_ON))
            if chosen:
                case = find_case(f"{spelled}/{shape}/normal/graph")
                yield Contest(replace(case, seed_of="peers"), chosen)


def _pairs_on(shape: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if shape in products():
        return tuple((spelled, W4A16) for spelled in PRODUCTS)
    return (*SWEPT, *(LARGE if shape == LARGEST else ()))
