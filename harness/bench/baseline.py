"""The baseline of every ratio, timed in the same run and launched the same way.

A quantizer is compared with the production training recipe on the same shape and input, a GEMM against cuBLAS on bf16
operands of the same shape, with a bf16 output, and a pipeline against itself with that production recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.bench import cold_copies
from harness.bench.gpu_timer import Clock
from harness.contract.case import Case
from harness.contract.problem import Dense
from harness.device import cublas
from harness.suite.stages import is_pipeline, terms
from harness.suite.suite import suite_of


def baseline_of(case: Case) -> Case:
    """The production recipe on the case's shape and input; for a GEMM see `product`.

    A group is compared with one dense tensor of as many elements, with the cols of its tensors if those are alike, and
    a pipeline with its default flags by the same route.
    """
    if is_pipeline(case):
        return replace(case, flags=case.defaults.replace(route=case.flags.route))
    rows, cols = case.problem.group.matrix if case.is_group else (case.rows, case.cols)
    defaults = suite_of("per_tensor").defaults
    flags = defaults.replace(dtype="bf16", outputs="both", rht=True, rounding="sr", stage="full")
    return Case("per_tensor", flags, Dense(rows, cols), case.input, case.mode, defaults, case.where)


def baseline_id(case: Case) -> str:
    """The case id of the baseline; for a GEMM `cublas/bf16/MxKxN/normal/mode`, which no suite has.

    A grouped GEMM is compared with a loop of products, one for each group that is not empty.
    """
    if not against_library(case):
        return baseline_of(case).id
    return f"cublas/bf16/{case.shape}/normal/{case.mode}"


def against_library(case: Case) -> bool:
    return case.is_gemm and not is_pipeline(case)


def baseline_first(case: Case) -> tuple[int, int, int, str, bool]:
    """Sort key: by shape, a baseline directly before the cases that are compared with it."""
    shape = case if case.is_gemm else baseline_of(case)
    problem = baseline_id(case).rpartition("/")[0]
    return shape.elements, shape.rows, shape.cols, problem, case.id != baseline_id(case)


def product(case: Case, clock: Clock, l2_bytes: int) -> tuple[Callable[[], None], int]:
    """The baseline of a GEMM, queued on the clock's stream, and how often a call of it makes all its products.

    Eager, once; as a graph, for one copy of all operands after the other, as the case is timed.
    """
    if case.mode == "eager":
        return _products(case), 1
    copies = cold_copies.copies_for(product_bytes(case), l2_bytes)
    products = [_products(case) for _ in range(copies)]
    with clock.stream:
        products[0]()  # loads its machine code, which a capture does not allow
    graph, calls = cold_copies.rotate(clock, products)
    return lambda: graph.launch(clock.stream), calls


def _products(case: Case) -> Callable[[], None]:
    """The product of a GEMM, or those of all groups one after the other."""
    parts = [part.problem for part in case.parts if part.elements and part.terms]
    calls = [cublas.bf16_product(part.m, part.k, part.n) for part in parts]

    def make_all() -> None:
        for call in calls:
            call()

    return make_all


def product_bytes(case: Case) -> int:
    return 2 * sum(part.elements for part in case.parts if part.terms)


def tflops(case: Case, microseconds: float) -> float:
    """TFLOP/s of a GEMM, or of all GEMMs of a pipeline."""
    return 2e-6 * terms(case) / microseconds
