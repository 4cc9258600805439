"""How many cases of each recipe and set each device compares, and `compared.csv` beside the suites, which pins that.

Counted from what devices admit; nothing is drawn, compiled or run. A GPU is described by its memory alone, so that none
is needed here: whether cuBLAS loads on it, or whether others use it, is not counted and is an error where it happens.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from harness import files
from harness.contract.case import Case
from harness.device.capability import Admitting, incapable
from harness.device.cuda import CudaDevice
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.errors import UsageError
from harness.files import is_file, write_text
from harness.suite.suite import Suite
from harness.suite.suite_file import short
from harness.verdict import Verdict

FILE = "compared.csv"
GIB = (6, 36)  # GPU memory: the least for all but the largest cases, and the least for all of them
COMMAND = "harness check --write"


@dataclass(frozen=True)
class Count:
    """One line. device: `emulator`, or a GPU of at least so much memory; why: count and reason of what is excluded"""

    recipe: str
    set: str
    device: str
    compared: int
    excluded: int
    why: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.recipe, self.set, self.device


Counts = Mapping[tuple[str, str, str], Count]


class DescribedGpu(CudaDevice):
    """A GPU that need not exist, because only its `admit` is called. memory: in bytes"""

    def __init__(self, memory: int):
        self.memory = memory


def devices() -> dict[str, Admitting]:
    """The devices that cases are counted for, by their names in the file."""
    return {"emulator": EmulatorDevice(), **{_gpu(gib): DescribedGpu(gib << 30) for gib in GIB}}


def counts(suites: Iterable[Suite]) -> dict[tuple[str, str, str], Count]:
    """The numbers of cases that the tree compares now."""
    every = (
        _count(suite.recipe, set_name, name, device, suite.cases(set_name))
        for suite in suites
        for set_name in suite.known_sets
        for name, device in devices().items()
    )
    return {count.key: count for count in every}


def _count(recipe: str, set_name: str, name: str, device: Admitting, cases: Iterable[Case]) -> Count:
    reasons = Counter(incapable(case, device) for case in cases)
    compared = reasons.pop("", 0)
    why = "; ".join(f"{n} {reason.removeprefix('capability: ')}" for reason, n in sorted(reasons.items()))
    return Count(recipe, set_name, name, compared, reasons.total(), why)


def read(folder: Path | None = None) -> dict[tuple[str, str, str], Count]:
    """The committed counts; none if there is no file. Raises UsageError for a line that the command does not write."""
    path = _path(folder)
    if not is_file(path):
        return {}
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8", errors="replace"), newline="")))
    except (OSError, csv.Error) as error:
        raise UsageError(f"{short(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found: dict[tuple[str, str, str], Count] = {}
    for number, row in enumerate(rows, 1):
        if number == 1 and row == _HEAD:
            continue
        if number == 1 or len(row) != len(_HEAD) or not (row[3] + row[4]).isdecimal() or tuple(row[:3]) in found:
            raise UsageError(f"{short(path)}:{number}: this is no line that `{COMMAND}` writes; run it again")
        count = Count(*row[:3], int(row[3]), int(row[4]), row[5])
        found[count.key] = count
    return found


def write(found: Counts) -> Path:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_HEAD)
    table.writerows(astuple(count) for count in found.values())
    write_text(_path(), text.getvalue())
    return _path()


def errors(now: Counts, committed: Counts, recipes: Iterable[str] = ()) -> list[str]:
    """Sentences on where the tree's counts differ from the committed ones. recipes: check only these

    A recipe or a set without any line is an error, too: one that lost its lines looks like a new one.
    """
    if not committed:
        return [_none()]
    only = set(recipes)
    keys = [key for key in dict.fromkeys((*committed, *now)) if key[0] in (only or {key[0]})]
    return [sentence for key in keys for sentence in _difference(now.get(key), committed.get(key))]


def _difference(now: Count | None, then: Count | None) -> Iterator[str]:
    recipe, set_name, device = (now or then).key
    where = f"{short(_path())}: {recipe}, set {set_name}, on {device}:"
    if then is None:
        yield f"{where} the line is missing; run `{COMMAND}`"
    elif now is None or now.compared < then.compared:
        yield f"{where} {now.compared if now else 0} cases are compared and must be {then.compared}, as committed"
    elif now != then:
        what = f"{now.compared} cases are compared and {now.excluded} excluded"
        yield f"{where} {what}, which the line does not say; run `{COMMAND}`"


def shortfalls(
    records: Iterable[Mapping[str, Any]], suites: Iterable[Path], set_name: str, device: Device
) -> list[str]:
    """Where a finished run of whole sets compared fewer cases than `compared.csv` beside its suites says.

    records: of all cases; suites: every suite file that the command line names, also one that has lost the set
    Subjects, GPUs with less memory than the file lists, and sets of a user's suites without any line are not checked.
    """
    name = counted_as(device)
    verdicts = {record["case_id"]: record["verdict"] for record in records}
    ran = {case_id.partition("/")[0] for case_id in verdicts}
    got = Counter(case_id.partition("/")[0] for case_id, each in verdicts.items() if each != Verdict.EXCLUDED)
    found = []
    for path in suites:
        try:
            lines = read(path.parent)
        except UsageError as error:
            found.append(str(error))
            continue
        line = lines.get((path.stem, set_name, name))
        others = any(key[:2] == (path.stem, set_name) for key in lines)
        ours = path.parent == files.SUITES and path.stem in ran
        if name and ours and not lines:
            found.append(_none())
        elif name and not line and (others or ours):
            found.append(
                f"{path.stem}: {short(_path(path.parent))} has no line for set {set_name} on {name}"
                f"{', and has others of it' if others else ''}; `{COMMAND}` writes it"
            )
        if line and got[path.stem] < line.compared:
            found.append(
                f"{path.stem}: {got[path.stem]} cases of set {set_name} were compared and must be {line.compared}, as "
                f"{short(_path(path.parent))} has it for {name}"
            )
    return list(dict.fromkeys(found))


def counted_as(device: Device) -> str:
    """The device's name in the file; empty if it has none."""
    if device.subject_label:
        return ""
    if isinstance(device, CudaDevice):
        return next((_gpu(gib) for gib in reversed(GIB) if gib << 30 <= device.memory), "")
    return device.name


def _none() -> str:
    return f"{short(_path())}: there is no count of what is compared; run `{COMMAND}`"


def _path(folder: Path | None = None) -> Path:
    return (folder or files.SUITES) / FILE


def _gpu(gib: int) -> str:
    return f"cuda {gib} GiB"


_HEAD = [field.name for field in fields(Count)]
