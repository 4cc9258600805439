"""Check on the emulator that a case's bytes are right at the end of a tensor of up to 2^39 elements.

The larger tensor is zero except for its last rows and columns, which are the case's. So the amaxes, and every byte in
that corner, must equal the case's own, which both oracles have computed; random bits are those of the larger tensor's
elements. For a product, the last rows of A or B are the case's; for a group, the last tensor is, behind one that is far
larger.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.corner import CornerProgram, TooLargeError
from harness.device.device import Device, Program
from harness.device.emulator import EmulatorDevice
from harness.errors import AccessError, HarnessError, LaunchError, NotEmulated, SuiteError
from harness.expected.expected import Expected, expect_on, fields_of, make_inputs
from harness.suite.shapes import group_extents
from harness.suite.suite import find_case, suite_of
from harness.verdict import Story, Verdict
from harness.verify.not_run import keep_note, note_no_corners

CAUSE = "index of 32 bits"
POISONS = (0xA5, 0x5A)
_CONTROL = 1 << 26  # elements of a tensor of `control`, more or less
_ALL = 1 << 24  # multiprocessors; with so many, a persistent grid has a CTA for each tile

Arrays = Mapping[str, np.ndarray]


def wrong_corner(
    case: Case, device: Device, target: str, demanded: Callable[[Case], Expected], prepare: Callable[[Case], Program],
    written: Arrays | None = None,
) -> tuple[Verdict, str, Story] | None:  # fmt: skip
    """The verdict, reason and story, if bytes at the end of a larger tensor of the suite are wrong.

    demanded: what the end of a larger case must be, see `expected_at_end`
    prepare: the program that runs a larger case's end
    written: for the case itself, if it is not known which CTAs of a grid have the end of a tensor. Those at both ends
        of each axis are run, and if they write other bytes there, the same is tried with a tensor in which 32 bits are
        enough. Only if the bytes are right in that one is the index to blame; otherwise nothing is known about the
        larger tensor, which a note says.

    Raises AccessError for a wrong access there, and, without `written`, any other error of the launches.
    """

    def tried(larger: Case) -> str | HarnessError:
        """The outputs whose bytes are wrong, or the error that the launches ended with."""
        try:
            program, values = prepare(larger), demanded(larger).values
            for repeat, poison in enumerate(POISONS):
                found = program.run(poison, repeat).outputs
                wrong = [
                    name for name, value in values.items()
                    if not device.accepts(found[name], value)
                    and not (written and np.array_equal(found[name], written[name]))
                ]  # fmt: skip
                if wrong:
                    return ", ".join(wrong)
        except (LaunchError, NotEmulated, SuiteError) as error:
            return error
        return ""

    note_no_corners(case)
    for larger in larger_cases(case):
        wrong = tried(larger)
        if not wrong:
            continue
        failed = isinstance(wrong, HarnessError)
        if isinstance(wrong, TooLargeError) or (written and failed and not _of_an_index(wrong)):
            keep_note(case.id, larger.shape, str(wrong))
        elif written and tried(same := control(case, larger)):
            why = f"the bytes are wrong as the end of {same.shape}, too, so it is not known which blocks write them"
            keep_note(case.id, larger.shape, why)
        elif isinstance(wrong, AccessError):
            raise at_the_end(wrong, larger) from None
        elif failed:
            raise wrong
        else:
            reason = f"{target}: bytes differ in {wrong}, as the end of {larger.shape}"
            return Verdict.MISMATCH, reason, story(case, reason)
    return None


def _of_an_index(error: HarnessError) -> bool:
    """Whether an error is one that an index which overflowed may cause."""
    return isinstance(error, AccessError) and error.kind in ("out_of_bounds", "misaligned")


def our_corner(case: Case, device: Device, target: str, expected: Expected) -> tuple[Verdict, str, Story] | None:
    """`wrong_corner` of our kernels on the emulator; None for another device."""
    if not isinstance(device, EmulatorDevice):
        return None
    wide = copy.copy(device)
    wide.multiprocessors = _ALL

    def demanded(larger: Case) -> Expected:
        return expected_at_end(larger, case, expected)

    def prepare(larger: Case) -> CornerProgram:
        inputs, around = inputs_around(case, larger, expected.inputs)
        launches = wide.launches(larger, target)
        small = [each.code.launch.grids(case.problem, _ALL) for each in launches.of_kernels]
        rows = [each.code.launch.rows(larger.problem, _ALL) for each in launches.of_kernels]
        seed = case.seed + device.targets.index(target)
        return CornerProgram(launches, small, larger, inputs, expected.fields, around | fields_of(larger), seed, rows)

    return wrong_corner(case, device, target, demanded, prepare)


def larger_cases(case: Case) -> Iterator[Case]:
    """The larger cases of the suite of which a case is the end, with its seed."""
    for problem in suite_of(case.recipe).corners(case):
        yield replace(case, problem=problem, seed_of=case.seed_name)


def expected_at_end(larger: Case, case: Case, expected: Expected) -> Expected:
    """The case's own bytes; with stochastic rounding, those that the random bits at the larger tensor's end give.

    Raises SuiteError if the oracles disagree on them.
    """
    if case.flags.get("rounding") != "sr":
        return expected
    before = len(larger.problem.tensors) - len(case.problem.tensors) if case.is_group else 0
    whole = larger.problem.tensors[-1] if case.is_group else (larger.rows, larger.cols)
    there = replace(case, philox_offset=case.philox_offset + before, end_of=None if before else whole)
    found = expect_on(there, expected.inputs)
    if found.disagreement:
        raise SuiteError(case.where or case.id, f"as the end of {larger.shape}: {found.disagreement}")
    return found


def at_the_end(error: AccessError, larger: Case) -> AccessError:
    """The error, and that it is one at the end of a larger tensor."""
    return AccessError(error.kind, error.where, f"{error.sentence}, as the end of {larger.shape}")


def control(case: Case, larger: Case) -> Case:
    """The case at the end of a tensor that is larger, but in which an index of 32 bits still reaches every byte."""
    if case.is_group:
        first, *others = group_extents(larger.problem)
        unit, axis = group_extents(case.problem)[-1], _growing_axis(case, larger)
        times = min(first[axis] // unit[axis], _times(case))
        return _with_tensors(case, larger, [_grown(first, axis, unit[axis] * times), *others])
    extents = [
        own * min(whole // own, _times(case)) if own else whole
        for own, whole in zip(astuple(case.problem), astuple(larger.problem), strict=True)
    ]
    return replace(larger, problem=type(case.problem)(*extents))


def _times(case: Case) -> int:
    """How often a tensor that `control` makes has the case's extent: an odd number, as in the suites' corners."""
    return _CONTROL // math.prod(case.problem.grid_extents[-1]) + 1


def _growing_axis(case: Case, larger: Case) -> int:
    first, own = group_extents(larger.problem)[0], group_extents(case.problem)[-1]
    return next(axis for axis in range(len(own)) if first[axis] != own[axis])


def _grown(tensor: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*tensor[:axis], extent, *tensor[axis + 1 :])


def story(case: Case, reason: str) -> Story:
    """The story of a case whose bytes are wrong at the end of a larger tensor."""
    cause = f"{CAUSE}: the same bytes are right where the tensor has the case's extents"
    return Story(f"{Verdict.MISMATCH}  {case.id}\n  {reason}", (("cause", cause),))


def inputs_around(case: Case, larger: Case, inputs: Arrays) -> tuple[dict[str, np.ndarray], dict[str, Field]]:
    """The inputs, including the larger group's extents, and the shape of the array that each input is the end of.

    The sides of arrays and the extents of a group are affine functions of the growing extent, so two small cases
    determine the larger one's.
    """
    made, around = dict(inputs), {}
    shapes = {name: np.array(array.shape) for name, array in inputs.items()}
    for steps, small, next_larger in _growing(case, larger, inputs):
        for name, array in small.items():
            more = next_larger[name]
            sides = np.array(array.shape), np.array(more.shape)
            shapes[name] = (sides[0] if case.is_group else shapes[name]) + (sides[1] - sides[0]) * steps
            if case.is_group and array.dtype == np.int64:
                made[name] = array + (more - array) * steps
    for name, array in made.items():
        around[name] = Field(tuple(shapes[name].tolist()), array.dtype.name, swizzled=_is_swizzled(case, name))
    return made, around


def _growing(case: Case, larger: Case, inputs: Arrays) -> Iterator[tuple[int, Arrays, Arrays]]:
    """For each growing extent: the number of steps, and the inputs before the first step and after it."""
    if case.is_group:
        first, *others = group_extents(larger.problem)
        axis = _growing_axis(case, larger)
        unit = group_extents(case.problem)[-1][axis]
        cases = [_with_tensors(case, larger, [_grown(first, axis, unit * n), *others]) for n in (1, 2)]
        yield first[axis] // unit - 1, make_inputs(cases[0]), make_inputs(cases[1])
        return
    extents = astuple(case.problem)
    for axis, (own, whole) in enumerate(zip(extents, astuple(larger.problem), strict=True)):
        if whole > own:
            doubled = type(case.problem)(*extents[:axis], 2 * own, *extents[axis + 1 :])
            yield whole // own - 1, inputs, make_inputs(replace(case, problem=doubled))


def _with_tensors(case: Case, larger: Case, tensors: list[tuple[int, ...]]) -> Case:
    """The group case with these tensors."""
    sides = ["+".join(map(str, side)) if len(set(side)) > 1 else str(side[0]) for side in zip(*tensors, strict=True)]
    if len(set(tensors)) == 1:
        sides[0] = f"{len(tensors)}*{sides[0]}"
    shape = "x".join([*sides, str(larger.problem.n)] if case.is_gemm and len(sides) == 2 else sides)
    return find_case(f"{case.recipe}/{case.variant}/{shape}/{case.input}/eager")


def _is_swizzled(case: Case, name: str) -> bool:
    """Whether a dense input's bytes are block scales in swizzled tiles."""
    if case.is_group or not name.endswith("scale_inv"):
        return False
    operand = f"{name.partition('_')[0]}_scale_layout"
    layout = case.flags.get(operand, case.flags.get("scale_layout"))
    return layout == "swizzled" or (case.recipe == "swizzle" and case.flags.to == "compact")
