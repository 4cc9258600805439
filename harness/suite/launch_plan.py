"""The launches of a case in order, and the arguments of each by name."""

from __future__ import annotations

import difflib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from harness.contract.case import Case, Flags
from harness.errors import RecipeError
from harness.files import KERNELS
from harness.jit.signature import LIBRARY_CALLS, CallParameter, Signature, read_signatures
from harness.suite import flag_values
from harness.suite.sizes import size_of
from harness.suite.stages import Stage, stages
from harness.suite.suite import suite_of

Array = TypeVar("Array")


@dataclass(frozen=True)
class Step:
    """One launch of a case, of a kernel or a library call.

    stage: its case has the launch's extents and numbers
    flags: the case's or the launch's own, and `edges` if its recipe has tiles
    scratch: name to bytes, zero before the first launch and after the last; names as the pipeline has them
    workspace: name to bytes, with any contents before the first launch and after the last
    together: True if its CTAs wait for each other, so that all of them must run at once
    early: True if it may begin before the step ahead, of the same stage, has ended
    library: True if it is a call of a library
    reads: parameter to the workspace that it takes in place of the array of its own name
    """

    signature: Signature
    stage: Stage
    flags: Flags
    scratch: Mapping[str, int]
    workspace: Mapping[str, int]
    together: bool
    early: bool
    library: bool
    reads: Mapping[str, str] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        return self.stage.case

    def key(self, parameter: str) -> str:
        """The name, in the pipeline, of the array that a parameter takes."""
        return self.stage.key(self.reads.get(parameter, parameter))


def plan(
    case: Case,
    kernels: Path = KERNELS,
    fits: Callable[[Step], bool] = lambda step: False,
    suites: Path | None = None,
) -> tuple[Step, ...]:
    """The launches of a case in order, as its suite lists them, from the `.cu` files in `kernels`.

    fits: whether the device runs all CTAs of a launch at once, by which launches with the key `fits` are chosen
    suites: the folder of the suites that list launches, if it is not this revision's; stages are always this one's
    The tensors of an allocation with a capacity are not known to the launches, because they may change on the device.
    Raises RecipeError if the suite names a kernel that the `.cu` does not have.
    """
    return tuple(step for stage in _own_stages(case) for step in _steps(stage, kernels, fits, suites))


def plans(case: Case, kernels: Path = KERNELS, suites: Path | None = None) -> Iterator[tuple[Step, ...]]:
    """Every list of launches that a case may have: in each stage, CTAs that wait for each other fit or do not.

    A stage of a few rows may fit on the device at once where another stage of the same case does not.
    """
    by_stage = (_choices(stage, kernels, suites) for stage in _own_stages(case))
    return (tuple(itertools.chain.from_iterable(chosen)) for chosen in itertools.product(*by_stage))


def all_steps(case: Case, kernels: Path = KERNELS, suites: Path | None = None) -> Iterator[Step]:
    """Every launch that any of the `plans` has; one that a stage has whether or not its CTAs fit may come twice."""
    for stage in _own_stages(case):
        yield from itertools.chain.from_iterable(_choices(stage, kernels, suites))


def _choices(stage: Stage, kernels: Path, suites: Path | None) -> list[list[Step]]:
    """A stage's launches where CTAs that wait for each other do not fit and, if these are others, where they do."""
    split, together = (list(_steps(stage, kernels, lambda step, fits=fits: fits, suites)) for fits in (False, True))
    return [split] if split == together else [split, together]


def _own_stages(case: Case) -> list[Stage]:
    """The stages that our kernels run, as the host knows them when it launches."""
    case = replace(case, problem=case.problem.on_host, seed_of=case.seed_name)
    return [stage for stage in stages(case) if not stage.given]


def _steps(stage: Stage, kernels: Path, fits: Callable[[Step], bool], suites: Path | None) -> Iterator[Step]:
    case = stage.case
    signatures = read_signatures(case.recipe, kernels)
    suite = suite_of(case.recipe, suites)
    launches = suite.launches(case)
    for launch in launches:
        if launch.kernel is not None and launch.kernel not in signatures:
            raise RecipeError(
                f"{case.where or case.recipe}: {case.recipe}.cu has no kernel {launch.kernel!r}; "
                f"it has {', '.join(signatures)}"
            )
    steps = [
        Step(
            LIBRARY_CALLS[launch.library] if launch.library else signatures[launch.name],
            stage,
            flag_values.launch_flags(suite.file, case).replace(**launch.flags),
            _sizes(launch.scratch, stage),
            _sizes(launch.workspace, stage),
            together=bool(launch.fits),
            early=launch.early,
            library=launch.library is not None,
            reads=launch.reads,
        )
        for launch in launches
    ]
    together = [step for step in steps if step.together]
    chosen = bool(together) and all(fits(step) for step in together)
    ran = [step for step, launch in zip(steps, launches, strict=True) if launch.fits in (None, chosen)]
    # The first launch is never early, because it may read an earlier stage's output before it waits.
    return (replace(step, early=step.early and index > 0) for index, step in enumerate(ran))


def _sizes(sizes: Mapping[str, int | str], stage: Stage) -> dict[str, int]:
    case = stage.case
    # A dense case counts as one tensor, and the elements of a GEMM are its output's.
    elements = sum(itertools.starmap(operator.mul, case.problem.grid_extents))
    extents = {"elements": elements, "num_tensors": 1, **numbers(case)}
    return {stage.key(name): size_of(size, extents) for name, size in sizes.items()}


def scratch_and_workspace(steps: Iterable[Step]) -> tuple[dict[str, int], dict[str, int]]:
    """Scratch and workspace of a case, name to bytes. Launches that use a name share it, at the largest size."""
    scratch: dict[str, int] = {}
    workspace: dict[str, int] = {}
    for step in steps:
        for total, sizes in ((scratch, step.scratch), (workspace, step.workspace)):
            total |= {name: max(size, total.get(name, size)) for name, size in sizes.items()}
    return scratch, workspace


def numbers(case: Case) -> dict[str, int | float]:
    """Every number that a kernel may name: extents, random seed and offset, and the flags that are numbers."""
    flags = {name: value for name, value in case.flags.items() if type(value) in (int, float)}
    return {**case.problem.numbers, "seed": case.seed, "offset": case.offset, **flags}


def bind(step: Step, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Array | int | float | None]]:
    """The type and value of each call parameter: an array, a number, or None for an absent optional pointer.

    arrays: all of the case, by their names in the pipeline
    A parameter of type float takes integers, too. Raises RecipeError for a parameter without an array or number of its
    name, and for a fraction where the parameter is an integer.
    """
    known = numbers(step.case)
    for parameter in step.signature.call:
        key = step.key(parameter.name)
        if parameter.pointer and key in arrays:
            yield parameter.type, arrays[key]
        elif parameter.pointer and parameter.optional:
            yield parameter.type, None
        elif not parameter.pointer and parameter.name in known:
            yield parameter.type, _number(step, parameter, known[parameter.name])
        else:
            names = list(arrays if parameter.pointer else known)
            close = difflib.get_close_matches(key, names, n=1)
            raise RecipeError(
                f"{step.signature.where}: nothing binds to parameter {key!r} of {step.signature.name}; there are "
                f"{', '.join(names)}{f'. Did you mean {close[0]!r}?' if close else ''}"
            )


def _number(step: Step, parameter: CallParameter, value: int | float) -> int | float:
    if parameter.type == "float":
        return float(value)
    if isinstance(value, float):
        raise RecipeError(
            f"{step.signature.where}: parameter {parameter.name!r} of {step.signature.name} is of type "
            f"{parameter.type!r} and its flag has {value}; take it as float"
        )
    return value
