"""Mutants that are proved equivalent: `equivalent.yaml` has the reason for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from evidence.mutants.generated.host import host_places
from evidence.mutants.places import Edit, Places, change_of, places
from harness.errors import SuiteError
from harness.ground.yaml_lines import read

PROOFS = Path(__file__).parent / "equivalent.yaml"

Key = tuple[str, int, int, tuple[str, ...]]  # `places.Edit.key`


class Proof(BaseModel):
    """reason: why no case can tell some mutants from the right sources; of: their changes, by scope"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(min_length=1)
    of: dict[str, list[str]] = Field(min_length=1)


def proofs(path: Path = PROOFS) -> dict[Key, str]:
    """Mutant → reason. Raises SuiteError for the first entry that is invalid or stale."""
    return {edit.key: reason for edit, reason in edits(places(), path)}


def host_proofs() -> dict[Key, str]:
    """`proofs` of the mutants of host code."""
    return {edit.key: reason for edit, reason in edits(host_places(), list_of="host")}


def edits(index: Places, path: Path = PROOFS, list_of: str = "equivalent") -> Iterator[tuple[Edit, str]]:
    document = read(path, f"{path.parent.name}/{path.name}")
    for number, proof in enumerate(document.each(Proof, list_of)):
        for scope, changes in proof.of.items():
            for change in changes:
                try:
                    yield index.edit(scope, change_of(change)), proof.reason
                except LookupError as error:
                    raise SuiteError(document.where(list_of, number, "of", scope), str(error)) from None
