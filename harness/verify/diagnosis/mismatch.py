"""A mismatch on one screen: which field, how many, where first, both bytes decoded, the inputs, and a likely cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field, owner_of
from harness.contract.interval import Interval
from harness.expected.expected import Expected
from harness.expected.formats import BLOCK, E2M1_VALUES, decoded, unpacked
from harness.suite.stages import Stage
from harness.verdict import Story
from harness.verify.diagnosis import parts
from harness.verify.diagnosis.changed_inputs import LARGEST
from harness.verify.diagnosis.classify import cause_of
from harness.verify.diagnosis.decode_steps import DecodeSteps
from harness.verify.diagnosis.difference import Difference, beyond, compact_index, first_input, resolved
from harness.verify.diagnosis.evidence import Evidence
from harness.verify.diagnosis.steps import Steps

_OTHERS = 4  # wrong fields that are named beside the first

Line = tuple[str, str]  # label and text


@np.errstate(all="ignore")  # NumPy warns of signalling NaNs, which a wrong kernel may write
def story_of(
    case: Case, target: str, expected: Expected, runs: Sequence[Mapping[str, np.ndarray]], poisons: Sequence[int] = (),
    verdict: str = "MISMATCH", cause: str = "", approximated: Sequence[str] = (), nearest: str = "",
) -> Story:  # fmt: skip
    """The story of a wrong output, at most 40 lines of 110 columns, with options that trace its first wrong byte.

    target: what the kernel was compiled for
    runs: what it wrote, one mapping by field for each run, each on outputs filled with the byte in `poisons` before
    verdict: the first word; cause: given if it is known and need not be guessed
    approximated: instructions that ran whose last bits PTX leaves open
    nearest: what the runs write if approximate instructions give the nearest value, if that was asked
    """
    first, values = resolved(expected, runs)
    order = [first, *(i for i in range(len(runs)) if i != first)]
    ordered = tuple(runs[i] for i in order), tuple(poisons[i] for i in order if i < len(poisons))
    intervals = {name: value for name, value in expected.values.items() if isinstance(value, Interval)}
    evidence = Evidence(case, expected.inputs, expected.fields, values, *ordered, intervals)
    if not evidence.differences:
        return Story(f"no byte differs in {case.id} on {target}")
    rows, where = _fields(evidence), next(iter(evidence.differences))
    stage, trace = parts.writer(case, evidence.root), []
    if stage.name:
        rows.append(("stage", parts.stage_spelled(stage)))
        evidence = _of_stage(evidence, stage)
    if case.is_group and evidence.comparable:
        first_wrong = np.ravel_multi_index(evidence.differences[evidence.root].index, evidence.field.shape)
        number, _ = owner_of(evidence.field, int(first_wrong))
        rows.append(("group" if case.is_gemm else "tensor", f"{parts.tensor_spelled(case, number)}; the first is 0"))
        evidence, trace = _of_tensor(evidence, number), ["--tensor", str(number)]
    plain, tensors = parts.activated(evidence.case, evidence.tensors)
    evidence = replace(evidence, case=plain, tensors=tensors)
    found = evidence.differences[evidence.root]
    if 0 in (evidence.case.rows, evidence.case.cols):
        trace = []
        rows += _place(evidence, found)
        rows.append(("cause", "empty tensor: without elements it has amaxes of 0 and nothing else"))
    else:
        trace = [*(trace if evidence.comparable else []), "--field", stage.key(evidence.root)]
        if evidence.comparable:
            at = element_of(evidence, found)
            rows += _place(evidence, found, at)
            if found.kind == "bytes":
                rows += _block(evidence, found)
            trace += ["--at", f"{at[0]},{at[1]}"]
        rows.append(("cause", cause or str(cause_of(evidence, bool(approximated)))))
        rows += [("nearest", nearest)] if nearest else []
        if approximated and not cause:
            rows.append(("open", f"PTX leaves the last bits of {', '.join(approximated)} open"))
    return Story(f"{verdict}  {case.id}  on {target}", tuple(rows), tuple(trace), where)


def trace_options(case: Case, fields: Mapping[str, Field], name: str, index: tuple[int, ...]) -> tuple[str, ...]:
    """The options of `harness trace` that show the block of an entry, given by its index in the array of a field.

    For a pipeline the element is one of the tensor of the stage that writes the field, for a group of its tensor.
    """
    field, tensor = fields[name], ()
    if case.is_group:
        number, entry = owner_of(field, int(np.ravel_multi_index(index, field.shape)))
        field = field.parts[number]
        index = tuple(int(i) for i in np.unravel_index(entry, field.shape))
        tensor = ("--tensor", str(number))
    row, col = first_input(field, compact_index(field, index))
    return (*tensor, "--field", name, "--at", f"{row},{col}")


def element_of(e: Evidence, found: Difference) -> tuple[int, int]:
    """(row, col) of the input element that the first wrong entry, and in a data byte the wrong nibble, comes from."""
    row, col = first_input(e.field, found.compact)
    right, actual = found.expected[0], found.actual[0]
    if e.kind != "data" or (right ^ actual) & 15:
        return row, col
    return (row + 1, col) if e.field.transposed else (row, col + 1)


def _of_tensor(e: Evidence, number: int) -> Evidence:
    """The evidence for one tensor of a group, as a dense case, whose bytes it must have."""
    others = (
        parts.inputs_of_tensor(e.case, e.tensors, other)
        for other, extents in enumerate(e.case.problem.tensors)
        if e.case.work <= LARGEST and other != number and (e.case.is_gemm or 0 not in extents)
    )
    fields, tensors = parts.fields_of_tensor(e.fields, number), parts.inputs_of_tensor(e.case, e.tensors, number)
    alone = _part(e, e.case.part(number), tensors, fields, lambda arrays: parts.cut(e.fields, arrays, number))
    return replace(alone, others=tuple(others))


def _of_stage(e: Evidence, stage: Stage) -> Evidence:
    return _part(
        e, stage.case, parts.inputs_of_stage(stage, e.tensors, e.expected), stage.select(e.fields), stage.select
    )


def _part(e: Evidence, case: Case, tensors: Mapping, fields: Mapping, own: Callable[[Mapping], Mapping]) -> Evidence:
    return Evidence(case, tensors, fields, own(e.expected), tuple(map(own, e.runs)), e.poisons, own(e.intervals))


def _fields(e: Evidence) -> list[Line]:
    lines = []
    for label, (name, found) in zip(["field", *["also"] * _OTHERS], e.differences.items(), strict=False):
        if isinstance(found.expected, str):
            text = str(found)
        else:
            field = e.fields[name]
            layout = ", swizzled" if field.swizzled else ""
            verb = "are outside their intervals" if name in e.outside else "differ"
            share = f"{found.count} of {found.total} entries {verb} ({100 * found.share:.3g} %)"
            padding = ", all in the padding" if found.kind == "padding" else ""
            text = f"{name} {field.dtype} {field.shape}{layout}: {share}{padding}"
        lines.append((label, text))
    return lines


def _place(e: Evidence, found: Difference, at: tuple[int, int] | None = None) -> list[Line]:
    array = list(found.index)
    place = f"{array}" if found.index == found.compact else f"{array} of the array, {list(found.compact)} compact"
    if e.case.is_gemm and at:
        place += f", row {at[0]} of A by row {at[1]} of B"
    elif found.kind == "bytes" and at:
        place += f", from input [{at[0]}, {at[1]}]"
    spelled = partial(decoded, e.root, declared=e.field.format)
    actual = spelled(e.actual_of(e.root)[found.index])
    lines = {"first": place}
    if e.root in e.outside:
        low, high = (spelled(end[found.index]) for end in (e.intervals[e.root].low, e.intervals[e.root].high))
        by, furthest = beyond(e.intervals[e.root], e.actual_of(e.root), found.index)
        lines |= {"expected": f"{low} at least, {high} at most" if low != high else low, "actual": actual, "beyond": by}
        lines |= {"furthest": furthest} if furthest else {}
    else:
        labels = ("one run", "another") if e.root in e.intervals else ("expected", "actual")
        expected = spelled(e.expected[e.root][found.index])
        lines |= dict(zip(labels, (expected, actual), strict=True))
    return list(lines.items())


def _block(e: Evidence, found: Difference) -> list[Line]:
    if isinstance(e.steps, DecodeSteps):
        return _decoded_block(e, found)
    if not isinstance(e.steps, Steps) or e.kind == "amax":
        return []
    line, element = found.compact[0], found.compact[1] * e.field.block[1]
    numbers = e.steps.group(line)
    x = e.tensors["input"]
    given = e.tensors.get(f"{e.side}_amax")
    amax = e.steps.amax(x) if given is None else given
    encoded = e.steps.encode(e.steps.lines(x, numbers), numbers, amax)
    here, block = int(np.flatnonzero(numbers == line)[0]), element // BLOCK
    span = slice(block * BLOCK, block * BLOCK + BLOCK)
    per_block = np.broadcast_to(encoded.encode_scale, encoded.scale.shape)
    scale_inv = encoded.scale_inv[here, block]
    source = f"[{span.start}:{span.stop}, {line}]" if e.field.transposed else f"[{line}, {span.start}:{span.stop}]"
    lines = [("block", f"{block} of line {line}, input {source}")]
    raw = x[span, line] if e.field.transposed else x[line, span]
    lines += _sixteen("inputs", raw)
    if e.steps.rotation is not None:
        lines += _sixteen("rotated", encoded.values[here, span])
    summary = (
        f"S_enc {_number(per_block[here, block])}  block amax {_number(encoded.block_amax[here, block])}  "
        f"scale_inv {decoded('scale_inv', scale_inv, e.case.scale_format)}  "
        f"multiplier {_number(encoded.multiplier[here, block])}"
    )
    lines += [("steps", summary), *_sixteen("products", encoded.product[here, span])]
    if e.kind == "data":
        for label, array in (("expected", e.right), ("actual", e.actual)):
            values = [f"{E2M1_VALUES[code]:g}" for code in unpacked(array[line])[span]]
            lines.append((label, " ".join(f"{value:>4}" for value in values)))
    return lines


def _decoded_block(e: Evidence, found: Difference) -> list[Line]:
    line, element = found.compact[::-1] if e.steps.transposed else found.compact
    got = e.steps.decode(e.tensors, np.array([line]))
    block = element // BLOCK
    span = slice(block * BLOCK, block * BLOCK + BLOCK)
    summary = (
        f"scale_inv {decoded('scale_inv', got.scale_inv[0, block], e.case.scale_format)}  "
        f"amax {_number(got.amax[0, block])}  "
        f"factor {_number(got.factor[0, block])}"
    )
    return [
        ("block", f"{block} of {'column' if e.steps.transposed else 'row'} {line}"),
        *_sixteen("codes", E2M1_VALUES[got.codes[0, span]]),
        ("steps", summary),
        *_sixteen("products", got.product[0, span]),
        *_sixteen("actual", e.by_line.actual[line, span]),
    ]


def _sixteen(label: str, values: np.ndarray) -> list[Line]:
    spelled = [f"{_number(value):>12}" for value in values]
    return [(label, "".join(spelled[:8])), ("", "".join(spelled[8:]))]


def _number(value: np.generic) -> str:
    return f"{float(value):.5g}"
