"""Run cases with watched kernels and oracles, and report the outcomes that they never saw."""

from __future__ import annotations

import importlib
import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, RootModel

from evidence.mutants.places import Places, places
from evidence.thresholds import watched_kernels, watched_oracles
from evidence.thresholds.outcomes import OUTCOMES, Missing, Site
from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.emulator import EmulatorDevice
from harness.errors import LaunchError, SuiteError, UsageError
from harness.expected.expected import expect
from harness.ground.ending import serve_parent
from harness.ground.yaml_lines import read
from harness.report.tables import frame
from harness.suite.suite import Suite, find_case, suite_of

REASONS = Path(__file__).parent / "one_sided.yaml"

Key = tuple[str, int, str]  # file, line, and `lt 5 true`: relation, constant, what is missing


class Entry(BaseModel):
    """Why no legal case sees a side of comparisons.

    scope, text: where they are, as mutants say it: an expression of a function, however its lines are broken; the file
        and no text where the compiler gives no line; unseen: as the table lists them, `lt 5 true`; because: the reason
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scope: str = Field(min_length=1)
    text: str
    unseen: tuple[str, ...] = Field(min_length=1)
    because: str = Field(min_length=1)


class Reason(NamedTuple):
    """Why no legal case sees one side of a comparison. unseen: `lt 5 true`"""

    scope: str
    text: str
    unseen: str
    because: str


def reasons(path: Path = REASONS, known: Places | None = None) -> dict[Key, Reason]:
    """The reason for each missing side. Raises SuiteError for the first entry that is invalid or of nothing there.

    known: of the tree with the kernels and oracles; this one's, if absent
    """
    document, known = read(path, f"{path.parent.name}/{path.name}"), known or places()
    found: dict[Key, Reason] = {}
    for number, each in enumerate(document.each(Entry, "one_sided")):
        lines = set(known.lines_of(each.scope, each.text)) if each.text else {(each.scope, 0)}
        if not lines:
            raise SuiteError(document.where("one_sided", number), known.absent(each.scope, each.text))
        for unseen in each.unseen:
            reason = Reason(each.scope, each.text, unseen, each.because)
            found |= {(*line, unseen): reason for line in lines}
    return found


def full_cases(path: Path = REASONS) -> list[Case]:
    """Cases of full sets for sides that would take the smoke sets too long.

    Raises SuiteError for a case in no full set.
    """
    document = read(path, f"{path.parent.name}/{path.name}")
    cases = [find_case(each.root) for each in document.each(RootModel[str], "full")]
    for number, case in enumerate(cases):
        if case not in suite_of(case.recipe).cases("full"):
            raise SuiteError(document.where("full", number), f"the full set of {case.recipe} has no {case.id}")
    return cases


def key(missing: Missing) -> Key:
    site = missing.site
    return site.file, site.line, f"{site.relation} {site.constant} {missing.what}"


COLUMNS = ("file", "line", "comparison", "with", "missing", "text", "because")
_AT_ONCE = 16  # cases per task: neighbours share instantiations, which a process loads once


@dataclass(frozen=True)
class Study:
    """The result for a set and for cases of full sets after it.

    by_set, found: missing outcomes after the set, and after all; needless: cases of full sets that add nothing
    """

    by_set: list[Missing]
    found: list[Missing]
    needless: list[Case]


def cases_of(suites: Iterable[Suite], set_name: str) -> list[Case]:
    """The cases of a set that the emulator can run."""
    device = EmulatorDevice()
    return [case for suite in suites for case in suite.cases(set_name) if not incapable(case, device)]


def study(cases: Sequence[Case], full: Sequence[Case], jobs: int, report: Callable[[int], None]) -> Study:
    """Run `cases`, then those of full sets one by one, twice on each target. Replaces modules.

    report: called with the number of cases that have been run
    """
    importlib.import_module("torch").set_num_threads(1)  # must be set before processes fork
    # Cases that share instantiations stay together.
    cases = sorted(cases, key=lambda case: (case.recipe, case.variant))
    tasks = [*(cases[first : first + _AT_ONCE] for first in range(0, len(cases), _AT_ONCE)), *([case] for case in full)]
    by_set = found = OUTCOMES.missing()
    done, needless = 0, []
    with tempfile.TemporaryDirectory(prefix="thresholds-") as folder:
        watched_oracles.replace(Path(folder))
        watched_kernels.watch()
        with multiprocessing.get_context("fork").Pool(jobs, serve_parent) as pool:
            for own, seen in zip(tasks, pool.imap(_run, tasks), strict=True):
                before, done = found, done + len(own)
                OUTCOMES.merge(seen)
                found = OUTCOMES.missing()
                if done <= len(cases):
                    by_set = found
                elif found == before:
                    needless += own
                report(done)
    return Study(by_set, found, needless)


def _run(cases: list[Case]) -> dict[Site, int]:
    device = EmulatorDevice()
    for case in cases:
        expected = expect(case)
        if expected.disagreement:
            raise UsageError(f"{case.id}: {expected.disagreement}")
        for target in device.targets:
            program = device.prepare(case, target, expected.inputs, expected.fields)
            for repeat in range(2):  # the second run uses other grids
                try:
                    program.run(0, repeat)
                except LaunchError as error:
                    raise UsageError(f"{case.id}: {error}") from None
    return OUTCOMES.seen


def table(found: Sequence[Missing], because: Mapping[Key, Reason]):
    """A row for each missing outcome; the ones without a reason come first."""
    rows = [
        (*each.site[:2], each.site.relation, each.site.constant, each.what, each.site.text,
         because[key(each)].because if key(each) in because else "")
        for each in found
    ]  # fmt: skip
    return frame(sorted(rows, key=lambda row: row[-1] != ""), COLUMNS)


def unexplained(done: Study, because: Mapping[Key, Reason]) -> list[str]:
    """A sentence for each comparison without a case or a reason, and for each needless reason or case."""
    sentences = [
        f"{each.site.file}:{each.site.line}: no case sees `{each.site.relation} {each.site.constant}` "
        f"{'be reached' if each.what == 'reached' else each.what}: {each.site.text}"
        for each in done.found
        if key(each) not in because
    ]
    unused = {*because.values()} - {because.get(key(each)) for each in done.found}
    sentences += [
        f"one_sided.yaml: cases see both sides of `{each.unseen}`, or it is gone: {each.scope}: {each.text}"
        for each in sorted(unused)
    ]
    return sentences + [
        f"one_sided.yaml: cases before it see all that this one sees: {each.id}" for each in done.needless
    ]
