"""The committed tables, as `catalogue.yaml` lists them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator

from harness.ground.yaml_lines import read

PATH = Path(__file__).with_name("catalogue.yaml")
BY_HAND = "by hand"


class Table(BaseModel):
    """One entry, which may have several files; see the head of the catalogue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: dict[str, str]
    commands: tuple[str, ...] = ()
    gpu: bool = False
    ends: tuple[int, ...] = (0,)
    part_of: str = ""
    recipes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _made_one_way(self) -> Table:
        if bool(self.commands) is bool(self.part_of) or bool(self.part_of) is not bool(self.recipes):
            raise ValueError("a table has commands, or is part_of another and names its recipes")
        return self

    @property
    def of_a_gpu(self) -> bool:
        """Whether each kind of GPU has one of its own; all others are of the tree, whatever machine made them."""
        return any("{gpu}" in target for target in self.files)

    def files_of(self, gpu: str) -> dict[str, str]:
        """Path below `results/` → the file that the commands leave in the table's folder, for this GPU."""
        return {target.format(gpu=gpu): source.format(gpu=gpu) for target, source in self.files.items()}


@cache
def load() -> tuple[dict[str, Table], dict[str, str]]:
    """The tables by name, in the order in which they are made; and the reasons for files that are written by hand."""
    entries = dict(read(PATH, PATH.name).data)
    by_hand = entries.pop(BY_HAND)
    tables = {name: Table.model_validate(entry) for name, entry in entries.items()}
    return tables, by_hand
