"""The tables: a product alone, quantizing and swizzling, both operands, fused against unfused, and whole layers.

A cell is a figure of one run, or `not measured`. Times are medians in microseconds; `x` is how many times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from evidence.measured import conditions, table, us
from evidence.steps.recipes import FUSED, MODES, PRODUCTION, RECIPES, UNFUSED, Recipe, layer, shapes
from evidence.steps.runs import Found, Runs, Times, launches

UNMEASURED = "not measured"
UNCOUNTED = "not counted"
PIPELINES = ("forward", "backward")
MEASURED = ("us", "launches", "production_us", "production_launches", "bytes_compared")
_PRODUCTS = (("plain", "per_tensor"), ("scaled afterwards", "per_token"), ("fused", "per_token_fused"))


class Figure(NamedTuple):
    """Microseconds and launches; for a comparison, also the other side's."""

    us: float
    launches: int | None
    run: int
    other_us: float | None = None
    other_launches: int | None = None
    nbytes: int = 0  # bytes that were compared before timing


def page(runs: Runs, command: str) -> str:
    """All tables, in Markdown."""
    measured = [f"{number}. {run.name}: {conditions(run.header)}" for number, run in enumerate(runs.runs, 1)]
    parts = [
        "# What a step costs at the source's shapes",
        f"`{command}` made this page. Microseconds are medians of one bench; `run` says of which below. `x` is times "
        f"as fast as what stands beside it, in the same run. A cell says `{UNMEASURED}` if no run has its case. "
        "Launches are of kernels and library calls. A shape is M x K of the activations, as the source times its "
        "quantizer; N is K.",
        "\n".join(measured),
    ]
    for title, said, make in _TABLES:
        columns, rows = make(runs)
        parts += [f"## {title}", said, table(columns, list(rows))]
    return "\n\n".join(parts) + "\n"


def step(runs: Runs, recipe: Recipe, pipeline: str, shape: tuple[int, int], mode: str) -> Figure | None:
    """A forward or backward step of a layer, beside the production recipe's, if the run has both."""
    own, other = (each.case_id(pipeline, layer(shape), mode) for each in (recipe, PRODUCTION))
    found = runs.find(own, other) or runs.find(own)
    if found is None:
        return None
    (own_us, *others), counts = found.us(), [one.get("launches") for one in found.times]
    beside = (others[0], counts[1]) if others else (None, None)
    return Figure(own_us, counts[0], found.run, *beside, runs.bytes_compared(found, own))


def rows(runs: Runs) -> Iterator[dict[str, object]]:
    """The steps as rows of a file; cells are empty if no run has the times."""
    for pipeline in PIPELINES:
        for recipe in RECIPES:
            for shape in shapes():
                for mode in MODES:
                    one = step(runs, recipe, pipeline, shape, mode)
                    found = one or Figure(0, None, 0)
                    measured = runs.runs[found.run - 1].header["commit"][:7] if one else ""
                    cells = (found.us, found.launches, found.other_us, found.other_launches, found.nbytes)
                    yield {
                        "pipeline": pipeline, "recipe": recipe.name, "shape": layer(shape), "mode": mode,
                        **{name: value or "" for name, value in zip(MEASURED, cells, strict=True)}, "commit": measured,
                    }  # fmt: skip


def _products(runs: Runs) -> tuple[list[str], Iterator[list[str]]]:
    def rows() -> Iterator[list[str]]:
        for shape in shapes():
            for name, epilogue in _PRODUCTS:
                flags = "route=library" if epilogue == "per_tensor" else f"route=library,epilogue={epilogue}"
                found = _both(runs, f"gemm/{flags}/{layer(shape)}/normal")
                cells = [_of(found, lambda one: us(one["median_us"])), _of(found, _ratio)]
                seconds = _of(found, lambda one: f"{one['second_ratio']:.2f}" if "second_ratio" in one else "1.00")
                yield [
                    layer(shape), name, _launched(found), *cells[0], "1", *cells[1],
                    str(launches(f"gemm/route=library/{layer(shape)}/normal/graph")), *seconds, _run(found),
                ]  # fmt: skip

    return _head("shape", "product", "cuBLAS", "per_tensor"), rows()


def _quantized_and_swizzled(runs: Runs) -> tuple[list[str], Iterator[list[str]]]:
    def rows() -> Iterator[list[str]]:
        for rows, cols in shapes():
            alone, fused, moved = (
                f"{flags}/{rows}x{cols}/normal"
                for flags in ("per_token/default", "per_token/scale_layout=swizzled", "swizzle/default")
            )
            cells, runs_of, counts = [], set(), UNMEASURED
            for mode in MODES:
                found = runs.find(*(f"{case}/{mode}" for case in (alone, fused, moved)))
                if found is None:
                    cells += [UNMEASURED] * 4
                    continue
                one, together, swizzle = found.times
                baseline = one["baseline_us"] + swizzle["median_us"]
                apart = one["median_us"] + swizzle["median_us"]
                own = together["median_us"]
                cells += [us(baseline), us(apart), us(own), f"{baseline / own:.2f}"]
                runs_of.add(found.run)
                moving = {"launches": launches(one["baseline"])}, swizzle
                counts = " / ".join(map(_total, (moving, (one, swizzle), (together,))))
            yield [f"{rows}x{cols}", counts, *cells, _numbers(runs_of)]

    columns = ["shape", "launches"]
    for mode in MODES:
        columns += [f"{mode}: per_tensor, swizzle", f"{mode}: per_token, swizzle", f"{mode}: fused", "x"]
    return [*columns, "run"], rows()


def _pairs(runs: Runs) -> tuple[list[str], Iterator[list[str]]]:
    def rows() -> Iterator[list[str]]:
        for shape in shapes():
            weight = (shape[1], shape[1])
            row, runs_of, counts = [], set(), UNMEASURED
            for mode in MODES:
                ids = [f"per_token/default/{a}x{b}/normal/{mode}" for a, b in (shape, weight)]
                found = runs.find(*ids)
                if found is None:
                    row += [UNMEASURED] * 3
                    continue
                own, baseline = sum(found.us()), sum(found.us("baseline_us"))
                row += [us(baseline), us(own), f"{baseline / own:.2f}"]
                runs_of.add(found.run)
                others = sum(launches(one["baseline"]) for one in found.times)
                counts = f"{others} / {_total(found.times)}"
            yield [f"{'x'.join(map(str, shape))} and {'x'.join(map(str, weight))}", counts, *row, _numbers(runs_of)]

    columns = ["operands", "launches"]
    for mode in MODES:
        columns += [f"{mode}: per_tensor", f"{mode}: per_token", "x"]
    return [*columns, "run"], rows()


def _fused(runs: Runs) -> tuple[list[str], Iterator[list[str]]]:
    def rows() -> Iterator[list[str]]:
        for shape in shapes():
            for what in ("product", "forward", "backward"):
                row, runs_of, counts = [], set(), UNMEASURED
                for mode in MODES:
                    if what == "product":
                        flags = ("route=library,epilogue=per_token", "route=library,epilogue=per_token_fused")
                        ids = [f"gemm/{each}/{layer(shape)}/normal/{mode}" for each in flags]
                    else:
                        ids = [each.case_id(what, layer(shape), mode) for each in (UNFUSED, FUSED)]
                    found = runs.find(*ids)
                    if found is None:
                        row += [UNMEASURED] * 3
                        continue
                    apart, fused = found.us()
                    row += [us(apart), us(fused), f"{apart / fused:.2f}"]
                    runs_of.add(found.run)
                    counts = " / ".join(_total((one,)) for one in found.times)
                yield [layer(shape), what, counts, *row, _numbers(runs_of)]

    columns = ["shape", "", "launches"]
    for mode in MODES:
        columns += [f"{mode}: scaled afterwards", f"{mode}: fused", "x"]
    return [*columns, "run"], rows()


def _steps_of(pipeline: str) -> Callable[[Runs], tuple[list[str], Iterator[list[str]]]]:
    def made(runs: Runs) -> tuple[list[str], Iterator[list[str]]]:
        def rows() -> Iterator[list[str]]:
            for shape in shapes():
                for recipe in RECIPES:
                    cells, runs_of, counts = [], set(), UNMEASURED
                    for mode in MODES:
                        one = step(runs, recipe, pipeline, shape, mode)
                        cells += [us(one.us), beside(one)] if one else [UNMEASURED] * 2
                        if one:
                            runs_of.add(one.run)
                            counts = f"{one.launches or UNCOUNTED} / {one.other_launches or UNCOUNTED}"
                    yield [layer(shape), recipe.name, counts, *cells, _numbers(runs_of)]

        return ["shape", "recipe", "launches / production's", "eager us", "x", "graph us", "x", "run"], rows()

    return made


def beside(one: Figure) -> str:
    """How many times as fast as the other side, whose times the run may lack."""
    return f"{one.other_us / one.us:.2f}" if one.other_us else UNMEASURED


def _both(runs: Runs, case: str) -> Found | None:
    return runs.find(*(f"{case}/{mode}" for mode in MODES))


def _of(found: Found | None, shown: Callable) -> list[str]:
    return [shown(one) for one in found.times] if found else [UNMEASURED] * len(MODES)


def _ratio(one) -> str:
    return f"{one['baseline_ratio']:.2f}"


def _launched(found: Found | None) -> str:
    return _total(found.times[-1:]) if found else UNMEASURED


def _total(times: Sequence[Times]) -> str:
    """Launches of several calls; older runs did not count them."""
    counts = [one.get("launches") for one in times]
    return UNCOUNTED if None in counts else str(sum(counts))


def _run(found: Found | None) -> str:
    return _numbers({found.run} if found else set())


def _numbers(runs_of: set[int]) -> str:
    return ", ".join(map(str, sorted(runs_of))) or "-"


def _head(*names: str) -> list[str]:
    shape, what, first, second = names
    return [
        shape, what, "launches", "eager us", "graph us", f"launches of {first}", f"eager x {first}", f"graph x {first}",
        f"launches of {second}", f"eager x {second}", f"graph x {second}", "run",
    ]  # fmt: skip


_TABLES: Sequence[tuple[str, str, Callable[[Runs], tuple[list[str], Iterator[list[str]]]]]] = (
    (
        "A product alone",
        "By the library route, given quantized operands: with one amax for each operand, with a kernel of its own that "
        "scales by an amax for each token, and with these in the epilogue. Against cuBLAS on bf16 operands, and "
        "against the product with one amax.",
        _products,
    ),
    (
        "Quantizing and swizzling (`qs`)",
        "Both copies of a tensor, and the scales of its rows in the order that a matrix unit reads: per_tensor as in "
        "production and then swizzled, per_token and then swizzled, and per_token that writes them swizzled. The first "
        "two are sums of two calls that were timed apart. `x`: the third against the first. Launches in that order.",
        _quantized_and_swizzled,
    ),
    (
        "Both operands (`pair`)",
        "Quantizing the activations and a square weight: sums of two calls that were timed apart, both of the same "
        "flags; per_tensor has rht and sr, as in production. Launches of per_tensor and of per_token.",
        _pairs,
    ),
    (
        "Fused against unfused (`fuse`)",
        "Amaxes of tokens in a kernel of their own after the product, and in its epilogue. Launches in that order.",
        _fused,
    ),
    ("Forward", "Quantize both operands, multiply. `x` is against production.", _steps_of("forward")),
    ("Backward", "Quantize dY, multiply twice. `x` is against production.", _steps_of("backward")),
)
