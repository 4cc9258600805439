"""Mutants that are proved equivalent: `equivalent.yaml` has the reason for each."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from evidence.mutants.catalogue import Mutant
from harness.ground.yaml_lines import read

PROOFS = Path(__file__).parent / "equivalent.yaml"

Key = tuple[str, str, str]  # file, right, wrong


class Proof(BaseModel):
    """file, right, wrong: the mutant's; reason: why no case can tell it from the right sources"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1)
    right: str = Field(min_length=1)
    wrong: str
    reason: str = Field(min_length=1)


def proofs(path: Path = PROOFS) -> dict[Key, str]:
    """Mutant → reason. Raises SuiteError for the first invalid entry."""
    found = read(path, f"{path.parent.name}/{path.name}").each(Proof, "equivalent")
    return {(proof.file, proof.right, proof.wrong): proof.reason for proof in found}


def key(mutant: Mutant) -> Key:
    return mutant.file, mutant.right, mutant.wrong
