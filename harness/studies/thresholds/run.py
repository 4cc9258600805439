"""Run cases with watched kernels and oracles, and tell what they never saw."""

from __future__ import annotations

import csv
import importlib
import io
import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.emulator import EmulatorDevice
from harness.errors import LaunchError, UsageError
from harness.files import is_file
from harness.report.tables import frame
from harness.studies.thresholds import reasons, watched_kernels, watched_oracles
from harness.studies.thresholds.outcomes import OUTCOMES, Missing, Site
from harness.suite.suite import Suite
from harness.verify.expected import expect

COLUMNS = ("file", "line", "comparison", "with", "missing", "text", "because")
TARGETS = ("sm_90a", "sm_100a")
_AT_ONCE = 4  # cases of a task

Key = tuple[str, str, str, str, str]


def watch(suites: Iterable[Suite], set_name: str, jobs: int, targets: Sequence[str] = TARGETS) -> Iterator[int]:
    """Run the eager cases of a set once on each target; yields how many have been run. Replaces modules."""
    importlib.import_module("torch").set_num_threads(1)  # before processes fork
    device = EmulatorDevice()
    cases = [case for suite in suites for case in suite.cases(set_name) if not incapable(case, device)]
    # Cases that share instantiations stay together.
    cases.sort(key=lambda case: (case.recipe, case.variant))
    tasks = [(cases[first : first + _AT_ONCE], targets) for first in range(0, len(cases), _AT_ONCE)]
    with tempfile.TemporaryDirectory(prefix="thresholds-") as folder:
        watched_oracles.replace(Path(folder))
        watched_kernels.watch()
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            done = 0
            for (own, _), seen in zip(tasks, pool.imap(_run, tasks), strict=True):
                OUTCOMES.merge(seen)
                done += len(own)
                yield done


def _run(task: tuple[list[Case], Sequence[str]]) -> dict[Site, int]:
    OUTCOMES.seen.clear()
    cases, targets = task
    device = EmulatorDevice()
    for case in cases:
        expected = expect(case)
        if expected.disagreement:
            raise UsageError(f"{case.id}: {expected.disagreement}")
        for repeat, target in enumerate(targets):  # odd repeats have other grids
            program = device.prepare(case, target, expected.inputs, expected.fields)
            try:
                program.run(0, repeat)
            except LaunchError as error:
                raise UsageError(f"{case.id}: {error}") from None
    return OUTCOMES.seen


def table(found: Sequence[Missing]):
    """A row for each, those without a reason first."""
    because = reasons.reasons()
    rows = [
        (*each.site[:2], each.site.relation, each.site.constant, each.what, each.site.text,
         because.get(reasons.key(each), ""))
        for each in found
    ]  # fmt: skip
    return frame(sorted(rows, key=lambda row: row[-1] != ""), COLUMNS)


def key(missing: Missing) -> Key:
    """What stays when lines move."""
    return (*missing.site.key, missing.what)


def read(path: Path) -> set[Key]:
    """What a committed table lists. Raises UsageError if it is not there."""
    if not is_file(path):
        raise UsageError(f"there is no {path.name}; run `harness thresholds` without --check")
    rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
    return {(row["file"], row["text"], row["comparison"], row["with"], row["missing"]) for row in rows}


def grown(found: Iterable[Missing], committed: set[Key]) -> list[str]:
    """A sentence for each comparison that is seen less of than is committed."""
    unreached = {one[:-1] for one in committed if one[-1] == "reached"}
    return [
        f"{each.site.file}:{each.site.line}: no case sees `{each.site.relation} {each.site.constant}` "
        f"{'be reached' if each.what == 'reached' else each.what}: {each.site.text}"
        for each in found
        if key(each) not in committed and each.site.key not in unreached
    ]
