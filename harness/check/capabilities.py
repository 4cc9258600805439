"""The case that shows each capability of a source: `capabilities.yaml` has the rows, `docs/capabilities.md` the ids.

A row names a recipe and flags; of the suites' cases with these, the plainest shows it: few other flags, eager, normal.
A capability that is refused has the suite's reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from harness import files
from harness.check import upstream
from harness.contract.case import Case, FlagValue
from harness.errors import SuiteError, UsageError
from harness.files import is_file, write_text
from harness.ground.yaml_lines import read
from harness.suite.check import REQUIRED_SETS
from harness.suite.suite import Suite, load_suites, suite_of
from harness.text import spell

FILE = Path(__file__).with_suffix(".yaml")
PAGE = Path("docs/capabilities.md")
COMMAND = "harness check --write"


class Capability(upstream.MayRefuse):
    """A capability.

    where: file and test of the source; does: the capability; shown: `recipe/flag=value,...` of a case that shows it,
    unless it is refused; shape, input, set: the case's, if they matter
    """

    where: str = Field(min_length=1)
    does: str = Field(min_length=1)
    shown: str = ""
    shape: str = ""
    input: str = ""
    set: str = ""

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if bool(self.shown) == bool(self.refused):
            raise ValueError("a row has one of the keys shown and refused")
        return self


@dataclass(frozen=True)
class Line:
    """A row of the page. case: an id, or an empty text if `refusal` has the reason"""

    source: str
    where: str
    does: str
    case: str
    refusal: str


def lines(path: Path = FILE) -> Iterator[Line]:
    """Every row with its id or reason. Raises SuiteError, with file and line, for one that has neither."""
    document = read(path, f"{path.parent.name}/{path.name}")
    for source in document.data:
        for number, row in enumerate(document.each(Capability, source)):
            try:
                refusal = f"{reason(row.refused)}. Upstream: {row.upstream}" if row.refused else ""
                yield Line(source, row.where, row.does, "" if refusal else _case(row).id, refusal)
            except UsageError as error:
                raise SuiteError(document.where(source, number), str(error)) from None


def page(found: Sequence[Line]) -> str:
    """The text of `docs/capabilities.md`."""
    shown = sum(bool(line.case) for line in found)
    text = [
        "# What each source can do, and the case that shows it",
        f"Written by `{COMMAND}` from `harness/check/{FILE.name}`; `harness check` holds it to the suites. {shown} "
        f"capabilities have a case, which `harness verify --case ID` runs; {len(found) - shown} are refused.",
    ]
    for source in dict.fromkeys(line.source for line in found):
        rows = [
            f"| {line.does} | {line.where} | {f'`{line.case}`' if line.case else f'refused: {line.refusal}'} |"
            for line in found
            if line.source == source
        ]
        text += [f"## {source}", "\n".join(["| capability | in | shown by |", "|---|---|---|", *rows])]
    text += upstream.section(load_suites(), reason)
    return "\n\n".join(text) + "\n"


def write() -> Path:
    path = files.ROOT / PAGE
    write_text(path, page(list(lines())))
    return path


def errors() -> list[str]:
    """A sentence if the page of this tree is not what the rows and suites make; none outside a checkout."""
    path = files.ROOT / PAGE
    if not is_file(path):
        return []
    try:
        now = page(list(lines()))
    except SuiteError as error:
        return [str(error)]
    return [] if path.read_text(encoding="utf-8") == now else [f"{PAGE}: it is out of date; run `{COMMAND}`"]


def _case(row: Capability) -> Case:
    suite, flags = _selected(row.shown)
    names = [row.set] if row.set else [name for name in REQUIRED_SETS if name in suite.sets]
    found = [
        ((_changed(case, flags), case.mode != "eager", case.input != "normal", rank, case.elements, case.id), case)
        for rank, name in enumerate(names)
        for case in suite.cases(name)
        if all(case.flags[flag] == value for flag, value in flags.items())
        and row.shape in ("", case.shape)
        and row.input in ("", case.input)
    ]
    if not found:
        of = " ".join(filter(None, (row.shown, row.shape, row.input, row.set)))
        raise UsageError(f"no set has a case of {of}")
    return min(found, key=lambda one: one[0])[1]


def _changed(case: Case, flags: dict[str, FlagValue]) -> int:
    """How many flags have neither their default nor the row's value."""
    return sum(value != case.defaults[flag] and flag not in flags for flag, value in case.flags.items())


def reason(refused: str) -> str:
    """Why `recipe/flag=value,...` is refused. Raises UsageError if it is not."""
    suite, flags = _selected(refused)
    because = suite.refusal({**suite.defaults, **flags})
    if because is None:
        raise UsageError(f"{refused} is not refused: a case shows it")
    return because


def _selected(selector: str) -> tuple[Suite, dict[str, FlagValue]]:
    recipe, _, text = selector.partition("/")
    suite, flags = suite_of(recipe), {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        flags[name] = suite.flag(name, value)
        if spell(flags[name]) != value and not value.startswith("0x"):
            raise UsageError(f"{selector}: {name} is spelled {spell(flags[name])}")
    return suite, flags
