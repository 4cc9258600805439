"""`one_sided.yaml`: cases of full sets for the sides of comparisons that smoke sets miss, and reasons for the rest."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, RootModel

from evidence.thresholds.outcomes import Missing
from harness.contract.case import Case
from harness.errors import SuiteError
from harness.ground.yaml_lines import read
from harness.suite.suite import find_case, suite_of

REASONS = Path(__file__).parent / "one_sided.yaml"

Key = tuple[str, str, str]  # file, text of the line, and `lt 5 true`: relation, constant, what is missing


class Reason(BaseModel):
    """Why no legal case sees a side of comparisons.

    file, text: the line's; unseen: as the table lists them, `lt 5 true`; because: the reason
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1)
    text: str
    unseen: tuple[str, ...] = Field(min_length=1)
    because: str = Field(min_length=1)


def reasons(path: Path = REASONS) -> dict[Key, str]:
    """The reason for each missing side. Raises SuiteError for the first invalid entry."""
    found = read(path, f"{path.parent.name}/{path.name}").each(Reason, "one_sided")
    return {(each.file, each.text, unseen): each.because for each in found for unseen in each.unseen}


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
    return site.file, site.text, f"{site.relation} {site.constant} {missing.what}"
