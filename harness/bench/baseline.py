"""The opponent of every ratio, which does the same work, timed in the same run and launched the same way.

A quantizer is compared with the production training recipe at the same stage, outputs, shape and input, and a group
with a group. A product is compared with cuBLAS on bf16 operands of the same shape, with a bf16 output; if its epilogue
is not per_tensor, it is compared with the per_tensor product, too. A pipeline is compared with itself by the production
recipe. A kernel that only moves or decodes bytes is compared with a copy of as many. A layer of experts, its quantizer
and its product have a second opponent in a graph, too: our dense kernels in a loop over the experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from harness.bench import cold_copies, roofline
from harness.bench.gpu_timer import Clock
from harness.contract.case import Case
from harness.contract.problem import Dense
from harness.device import cublas
from harness.errors import HarnessError
from harness.oracles.gemm import FASTEST_ROWS
from harness.records.times import LOOP
from harness.suite.stages import is_pipeline, terms
from harness.suite.suite import find_case, suite_of

COPIED = ("swizzle", "swizzle_grouped", "dequantize", "casts")  # recipes whose work no quantizer does


@lru_cache(maxsize=1 << 13)
def baseline_of(case: Case) -> Case | None:
    """The case that `case` is compared with, maybe itself; None if the opponent is a library's product, or a copy.

    For a pipeline it is the same pipeline with default flags by the same route. For a group that per_tensor does not
    take, as one of 8 rows, it is a dense tensor of as many elements, with the cols of the tensors if they are alike.
    """
    if against_library(case) or against_copy(case):
        return None
    if is_pipeline(case):
        kept = {"route": case.flags.route} if "route" in case.flags else {}  # a pipeline of groups has only one route
        return replace(case, flags=case.defaults.replace(**kept))
    if case.is_group and (found := _group(case)):
        return found
    rows, cols = case.problem.group.matrix if case.is_group else (case.rows, case.cols)
    defaults = suite_of("per_tensor").defaults
    flags = defaults.replace(**_same_work(case))
    return Case("per_tensor", flags, Dense(rows, cols), case.input, case.mode, defaults, case.where)


def _group(case: Case) -> Case | None:
    """The group quantized by the production recipe; None if that recipe does not take the group."""
    suite = suite_of("grouped")
    kept = ("shape_representation", "activation", "dbias")
    flags = suite.defaults.replace(
        **_same_work(case), **{name: case.flags[name] for name in kept if name in case.flags}
    )
    try:
        return find_case(Case("grouped", flags, case.problem, case.input, case.mode, suite.defaults).id)
    except HarnessError:
        return None


def _same_work(case: Case) -> dict[str, str | bool]:
    """Flags with which per_tensor does the work of a quantizer.

    Where columns are written, these are production's: rht, sr, bf16. Rows alone are not rotated, and take rounding and
    dtype from the case. Scales are compact, as in production; swizzled ones are as many bytes.
    """
    flags = case.flags
    outputs, stage = flags.get("outputs", "both"), flags.get("stage", "full")
    rows_only = outputs == "rowwise"
    rounding = "rne" if stage == "amax" else flags.get("rounding", "rne") if rows_only else "sr"
    return {
        "outputs": outputs,
        "stage": stage,
        "rht": not rows_only,
        "rounding": rounding,
        "dtype": flags.get("dtype", "bf16") if rows_only else "bf16",
    }


def baseline_id(case: Case) -> str:
    """The case id of the opponent; `cublas/bf16/MxKxN/normal/mode` or `copy/<case id>`, which no suite has.

    A grouped GEMM is compared with a loop of products, one for each group that is not empty.
    """
    if against_library(case):
        return f"cublas/bf16/{case.shape}/normal/{case.mode}"
    found = baseline_of(case)
    return found.id if found else f"copy/{case.id}"


@lru_cache(maxsize=1 << 13)
def second_of(case: Case) -> Case | None:
    """The per_tensor product on the operands' shape that a product of another epilogue is compared with, too."""
    if not against_library(case) or case.flags.get("epilogue", "per_tensor") == "per_tensor":
        return None
    try:
        return find_case(replace(case, flags=case.flags.replace(epilogue="per_tensor")).id)
    except HarnessError:  # per_tensor lacks some products, such as one that accumulates
        return None


_DENSE = {"forward_grouped": "forward", "backward_grouped": "backward"}  # pipelines of groups, and of one tensor
_PRODUCTION = {"outputs": "both", "stage": "full", "rht": True, "rounding": "sr", "dtype": "bf16"}
_LOOPED_ROWS = 8192  # tokens of all experts; of more, a launch for each expert is little beside the work
_EPILOGUES = {"per_token": "per_token_fused"}  # recipe of a group's activations → `epilogue` of the dense pipeline


def second_id(case: Case) -> str:
    """The id of the second opponent, of a case or `loop/<case id>`; empty if there is none."""
    found = second_of(case)
    return found.id if found else f"{LOOP}/{case.id}" if loop_of(case) else ""


@lru_cache(maxsize=1 << 13)
def loop_of(case: Case) -> tuple[Case, ...]:
    """The dense cases that a loop over the tensors of a group runs in place of it, those without elements left out.

    Products go the faster of their routes. Tensors of one shape are one case, drawn once. Empty for a case that is not
    compared with a loop: a dense one, an eager one, whose loop would time the host, one of many tokens, one with a
    dbias or an activation, which a tensor's dense case lacks, a quantizer other than production's, which is its own
    baseline, and a product of another epilogue than per_tensor, whose second opponent that is.
    """
    if not case.is_group or case.mode != "graph" or against_copy(case) or second_of(case):
        return ()
    if sum(rows for rows, _ in case.problem.tensors) > _LOOPED_ROWS:
        return ()
    fused = case.flags.get("dbias") or case.flags.get("activation", "none") != "none"
    if fused or (not case.is_gemm and (baseline_of(case) != case or _same_work(case) != _PRODUCTION)):
        return ()
    parts = map(case.problem.part, range(len(case.problem.tensors)))
    return tuple(_expert(case, g) for g, part in enumerate(parts) if (part.terms if case.is_gemm else part.elements))


def _expert(case: Case, g: int) -> Case:
    if case.recipe not in _DENSE:
        part = case.part(g)
        routes = {"route": "fastest"} if "route" in part.flags else {}
        return replace(part, flags=part.flags.replace(**routes), seed_of="", philox_offset=0)
    suite, problem = suite_of(_DENSE[case.recipe]), case.problem.part(g)
    recipe = str(case.flags.recipe)
    flags = {name: value for name, value in case.flags.items() if name in suite.defaults}
    flags |= {"epilogue": _EPILOGUES.get(recipe, recipe), "route": "mma" if problem.m <= FASTEST_ROWS else "library"}
    return Case(suite.recipe, suite.defaults.replace(**flags), problem, case.input, case.mode, suite.defaults)


def opponents(case: Case) -> Iterable[Case]:
    """The other cases that are verified and timed beside this one."""
    return (each for each in (baseline_of(case), second_of(case)) if each is not None and each.id != case.id)


def against_library(case: Case) -> bool:
    return case.is_gemm and not is_pipeline(case)


def against_copy(case: Case) -> bool:
    return case.recipe in COPIED


def baseline_first(case: Case) -> tuple[int, int, int, str, bool]:
    """Sort key: by shape, a baseline directly before the cases that are compared with it."""
    found = baseline_of(case)
    shape = case if found is None or case.is_gemm else found
    problem = baseline_id(case).rpartition("/")[0]
    return shape.elements, shape.rows, shape.cols, problem, case.id != baseline_id(case)


def copy_of(nbytes: int, clock: Clock, l2_bytes: int, mode: str) -> tuple[Callable[[], None], int]:
    """A copy that reads and writes so many bytes in all, queued on the clock's stream, and its calls in a round.

    Eager, once; as a graph, between one pair of buffers after the other, as a case is timed.
    """
    count = 1 if mode == "eager" else cold_copies.copies_for(nbytes, l2_bytes)
    copies = [roofline.copier(max(1, nbytes // 2)) for _ in range(count)]
    if mode == "eager":
        return copies[0], 1
    graph, calls = cold_copies.rotate(clock, copies)
    return lambda: graph.launch(clock.stream), calls


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
    """The product of a GEMM, or the products of all groups one after the other."""
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
