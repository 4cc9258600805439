"""Variants, which `harness quality` compares: a recipe with flags, spelled as in a case id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.contract.case import Case
from harness.contract.problem import Dense
from harness.errors import UsageError
from harness.suite.shapes import extents_error, is_grouped
from harness.suite.suite import find_case, load_suites, suite_of
from harness.text import spell


def defaults() -> list[str]:
    """The variants listed under `quality:` in the suites, recipes in the order of the contract's sections."""
    suites = sorted(load_suites(), key=lambda suite: suite.file.sections)
    return [f"{suite.recipe}/{variant}" for suite in suites for variant in suite.file.quality]


def parse(specs: Sequence[str], dtype: str) -> tuple[list[Case], list[str]]:
    """One case for each variant, of the smallest shape the recipe takes; `place` gives it a tensor.

    specs: `recipe/flag=value,...`, or a recipe alone for its `defaults`; none for all defaults
    returns: the cases, and a sentence for each of the defaults that is not defined for this dtype
    Raises UsageError for a variant that does not exist, is excluded, or writes no quantized tensor.
    """
    cases: dict[str, Case] = {}
    left_out, known = [], defaults()
    for spec in specs or dict.fromkeys(variant.partition("/")[0] for variant in known):
        expanded = [variant for variant in known if variant.partition("/")[0] == spec]
        for variant in expanded or [spec]:
            try:
                case = find(variant, dtype)
            except UsageError as error:
                if variant not in expanded:
                    raise
                left_out.append(str(error))
            else:
                cases.setdefault(label(case), case)
    if not cases:
        raise UsageError(left_out[0])
    return list(cases.values()), left_out


def find(spec: str, dtype: str) -> Case:
    """One variant, `recipe` or `recipe/flag=value,...`; errors as in `parse`."""
    recipe, _, text = spec.partition("/")
    suite = suite_of(recipe)
    if "outputs" not in suite.file.axes:
        raise UsageError(f"{recipe} quantizes no matrix, so it has no quality; choose a recipe with the flag 'outputs'")
    if is_grouped(suite.file):
        raise UsageError(f"{recipe} quantizes many tensors, each as a dense recipe does; choose that one")
    given = [part for part in text.split(",") if part not in ("", "default")]
    names = {part.partition("=")[0] for part in given}
    if "dtype" in names:
        raise UsageError(f"{spec}: all variants read the same tensor, so its dtype is chosen by --dtype")
    given += [f"dtype={dtype}", *([] if "outputs" in names else ["outputs=rowwise"])]
    extent = suite.file.multiple_of
    case_id = f"{recipe}/{','.join(given)}/{extent}x{extent}/normal/eager"
    try:
        case = find_case(case_id)
    except UsageError as error:
        raise UsageError(f"{spec}: {str(error).removeprefix(case_id + ': ')}") from None
    if case.flags.get("stage", "full") != "full":
        raise UsageError(f"{spec}: stage={case.flags.stage} writes no whole tensor, and quality needs one")
    return case


def place(variant: Case, rows: int, cols: int, input_name: str) -> Case:
    """The variant on one tensor. Raises UsageError if the recipe takes no tensor of that shape."""
    problem = extents_error((rows, cols), suite_of(variant.recipe).file.multiple_of, any_m=False, no_rows=False)
    if problem:
        raise UsageError(f"{variant.recipe}: {problem}")
    return replace(variant, problem=Dense(rows, cols), input=input_name)


def label(case: Case) -> str:
    """The name of the variant in tables, without the dtype and the rowwise output, which all variants have."""
    changed = [
        f"{name}={spell(value)}"
        for name, value in case.flags.items()
        if value != case.defaults[name] and name != "dtype" and (name, value) != ("outputs", "rowwise")
    ]
    return f"{case.recipe}/{','.join(changed)}" if changed else case.recipe


def side(case: Case) -> str:
    """The output that is measured: columnwise if the variant has no other."""
    return "columnwise" if case.flags.outputs == "columnwise" else "rowwise"
