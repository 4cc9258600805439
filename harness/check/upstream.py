"""Transformer Engine's tests, and the cases of the sets `upstream` that have their bytes: a section of capabilities.md.

Blocks of those sets name tests, `upstream.yaml` says what there is to know of each, and the numbers of both agree: each
run of a test has a case, or has the bytes of another one, or stands there with the reason why it has no case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.contract.case import Case
from harness.errors import SuiteError, UsageError
from harness.ground.yaml_lines import read
from harness.suite.suite import Suite
from harness.text import nearest

FILE = Path(__file__).with_suffix(".yaml")
SET = "upstream"


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MayRefuse(_Row):
    """An entry that may be about what is refused.

    refused: `recipe/flag=value,...` that a suite excludes, whose reason is shown; upstream: what the source does there
    """

    refused: str = ""
    upstream: str = ""

    @model_validator(mode="after")
    def _both_refuse(self) -> Self:
        if bool(self.refused) != bool(self.upstream):
            raise ValueError("a refusal, and nothing else, says what upstream makes of it")
        return self


class Part(MayRefuse):
    """Some parametrisations of a test, and why no case is theirs alone: because of something, or they are refused."""

    count: int = Field(ge=1)
    because: str = ""

    @model_validator(mode="after")
    def _one_reason(self) -> Self:
        if bool(self.because) == bool(self.refused):
            raise ValueError("a part has one of the keys because and refused")
        return self


class Test(_Row):
    """A test of one of their files.

    test: `FILE::NAME`, as blocks name it; parametrised: how often it runs, skipped ones counted
    same: parametrisations with the bytes of another one; without: those that have no case
    cases: how many the sets have, other modes not counted, if it is not one for each that remains
    """

    __test__ = False  # not one of pytest's

    test: str = Field(pattern=r"^\w+\.(py|cu)::[\w/.*]+$")
    parametrised: int = Field(ge=1)
    same: list[Part] = []
    without: list[Part] = []
    cases: int | None = None
    note: str = ""

    @property
    def expected(self) -> int:
        left = self.parametrised - sum(part.count for part in (*self.same, *self.without))
        return left if self.cases is None else self.cases


class Later(_Row):
    """A change upstream that came after the sources.

    name: number or project; what: it is, in a sentence; here: covered, planned or not, and why
    """

    name: str = Field(min_length=1)
    what: str = Field(min_length=1)
    here: str = Field(min_length=1)


def section(suites: Sequence[Suite], reason: Callable[[str], str], path: Path = FILE) -> list[str]:
    """Paragraphs of the page.

    reason: the reason of a refused `recipe/flag=value,...`
    Raises SuiteError, with file and line, where blocks and file disagree about a test or its number of cases.
    """
    document = read(path, f"{path.parent.name}/{path.name}")
    named = cases_of_tests(suites)
    rows: dict[str, list[str]] = {}
    for number, test in enumerate(document.each(Test, "tests")):
        where = document.where("tests", number)
        found = named.pop(test.test, {})
        distinct = {case_id.rpartition("/")[0] for case_id in found}
        if len(distinct) != test.expected:
            raise SuiteError(
                where,
                f"{test.test}: {test.expected} of {test.parametrised} runs have a case of their own by this file, "
                f"and the sets {SET} have {len(distinct)} cases of it",
            )
        file, _, name = test.test.partition("::")
        try:
            rows.setdefault(file, []).append(_line(name, test, found, reason))
        except UsageError as error:
            raise SuiteError(where, str(error)) from None
    if named:
        test, cases = next(iter(named.items()))
        sentence = f"{path.parent.name}/{path.name} has no test '{test}'{nearest(test, _tests(path))}"
        raise SuiteError(next(iter(cases.values())).where, sentence)
    unique = {case.id for suite in suites if SET in suite.sets for case in suite.cases(SET)}
    text = [
        "## Their tests, our cases",
        "Transformer Engine's tests of NVFP4 at d0067d0, and those of pull requests 2743, 2941, 3045 and 3324. "
        f"The sets `{SET}` have {len(unique):,} cases with their bytes, by `harness verify --set {SET}`; "
        "a case has one input, `normal` where a test draws from a normal or uniform distribution. "
        "A test that compares two ways to the same bytes has one case for both. "
        "Every run of a test, a skipped one too, has a case or stands in the last column.",
        "A view that is not contiguous: Transformer Engine copies it before it quantizes (`contiguous()` in "
        "`nvfp4_tensor.py` and `cast.cpp`) and never takes strides; ours refuse it with a sentence that names the "
        "copy to make ([0.4](numerics.md#04-refusals)), so that no copy is made unseen. Its case has the view's shape.",
        "Other files of its tests mention NVFP4 and are not counted: they run layers, optimizers, checkpoints and "
        "communication on the same quantizers and products, in PyTorch and JAX. Of kernels that they call, casts of a "
        "part of a primary weight (`test_cast_master_weights_to_fp8.py`) and cuDNN's grouped layers "
        "(`test_grouped_mlp.py`) are not here.",
    ]
    head = "| test | runs | cases | such as | the others |\n|---|--:|---|---|---|\n"
    text += [f"### {file}\n\n{head}" + "\n".join(lines) for file, lines in rows.items()]
    later = [f"| {row.name} | {row.what} | {row.here} |" for row in document.each(Later, "later")]
    return [*text, "## What came later", "| | what it is | here |\n|---|---|---|\n" + "\n".join(later)]


def cases_of_tests(suites: Iterable[Suite]) -> dict[str, dict[str, Case]]:
    """Test → its cases, by id, of the sets `upstream` of all suites."""
    found: dict[str, dict[str, Case]] = {}
    for suite in suites:
        for test, cases in (suite.cases_of_tests(SET) if SET in suite.sets else {}).items():
            found.setdefault(test, {}).update(cases)
    return found


def _line(name: str, test: Test, found: dict[str, Case], reason: Callable[[str], str]) -> str:
    plainest = min(found.values(), key=lambda case: (case.elements == 0, case.elements, len(case.id)), default=None)
    recipes = Counter(case.recipe for case in found.values())
    counted = ", ".join(f"{count:,} {recipe}" for recipe, count in recipes.items()) or "0"
    others = [f"{part.count:,} have the bytes of another: {part.because}" for part in test.same]
    others += [f"{part.count:,} have none: {part.because}" for part in test.without if part.because]
    others += [
        f"{part.count:,} refused: {reason(part.refused)}. Upstream: {part.upstream}"
        for part in test.without
        if part.refused
    ]
    others += [test.note] if test.note else []
    shown = f"`{plainest.id}`" if plainest else ""
    return f"| {name} | {test.parametrised:,} | {counted} | {shown} | {'; '.join(others)} |"


def _tests(path: Path) -> list[str]:
    return re.findall(r"test: ([^\s,}]+)", path.read_text(encoding="utf-8"))
