"""Mutants that somebody has proved equivalent: `equivalent.yaml`, which says why of each."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import SuiteError
from harness.studies.mutants.catalogue import Mutant
from harness.suite.yaml_lines import read

PROOFS = Path(__file__).parent / "equivalent.yaml"

Key = tuple[str, str, str]  # file, right, wrong


class Proof(BaseModel):
    """file, right, wrong: of the mutant; reason: why no case can tell it from the right sources"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1)
    right: str = Field(min_length=1)
    wrong: str
    reason: str = Field(min_length=1)


def proofs(path: Path = PROOFS) -> dict[Key, str]:
    """The reason of each. Raises SuiteError for the first invalid entry."""
    document = read(path, f"{path.parent.name}/{path.name}")
    found: dict[Key, str] = {}
    for number, entry in enumerate(document.data["equivalent"]):
        try:
            proof = Proof.model_validate(entry)
        except ValidationError as error:
            first = error.errors()[0]
            sentence = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
            raise SuiteError(document.where("equivalent", number), sentence) from None
        found[proof.file, proof.right, proof.wrong] = proof.reason
    return found


def key(mutant: Mutant) -> Key:
    return mutant.file, mutant.right, mutant.wrong
