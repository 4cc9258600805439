"""Why no case sees a side of a comparison: `one_sided.yaml`, by the comparison."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import SuiteError
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
    document = read(path, f"{path.parent.name}/{path.name}")
    found: dict[Key, str] = {}
    for number, entry in enumerate(document.data["one_sided"]):
        try:
            reason = Reason.model_validate(entry)
        except ValidationError as error:
            first = error.errors()[0]
            sentence = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
            raise SuiteError(document.where("one_sided", number), sentence) from None
        found |= {(reason.file, reason.text, unseen): reason.because for unseen in reason.unseen}
    return found


def key(missing: Missing) -> Key:
    site = missing.site
    return site.file, site.text, f"{site.relation} {site.constant} {missing.what}"
