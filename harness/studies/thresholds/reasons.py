"""Why no case sees a side of a comparison: `one_sided.yaml`, by the comparison."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from harness.studies.thresholds.outcomes import Missing
from harness.suite.yaml_lines import read

REASONS = Path(__file__).parent / "one_sided.yaml"

Key = tuple[str, str, str]  # file, text of the line, and `lt 5 true`: relation, constant, what is missing


class Reason(BaseModel):
    """Why no legal case sees a side of comparisons.

    file, text: of the line; unseen: as the table lists them, `lt 5 true`; because: the reason
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1)
    text: str
    unseen: tuple[str, ...] = Field(min_length=1)
    because: str = Field(min_length=1)


def reasons(path: Path = REASONS) -> dict[Key, str]:
    """The reason of each. Raises SuiteError for the first invalid entry."""
    found = read(path, f"{path.parent.name}/{path.name}").each(Reason, "one_sided")
    return {(each.file, each.text, unseen): each.because for each in found for unseen in each.unseen}


def key(missing: Missing) -> Key:
    site = missing.site
    return site.file, site.text, f"{site.relation} {site.constant} {missing.what}"
