"""The catalogue: the YAML files beside this one, each a list of one-line changes with a name and a story."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import SuiteError
from harness.files import PACKAGE
from harness.ground.yaml_lines import first_mistake, read

FOLDER = Path(__file__).parent
KERNELS, ORACLES = "kernels", "oracles"


class Mutant(BaseModel):
    """A one-line change that makes a kernel or an oracle wrong.

    name: unique; story: where this mistake was made, or its effect
    file: below `harness/`, a kernel's source or an oracle's; right: text that occurs in it exactly once; wrong: its
        replacement
    numerics: the section of NUMERICS about this mistake, 12 or 13; 0 for none
    cases: ids of the cases that must catch it, the closest first; none if any case may
    cause: the cause that the diagnosis must name; empty if any may
    theme: stem of its YAML file, or the operator that made it
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    story: str = ""
    file: str = Field(pattern=rf"^({KERNELS}/(\w+/)?|{ORACLES}/)\w+\.(cuh?|py)$")
    right: str = Field(min_length=1)
    wrong: str
    numerics: int = 0
    cases: tuple[str, ...] = ()
    cause: str = ""
    theme: str

    @property
    def tree(self) -> str:
        return self.file.partition("/")[0]

    def changed(self) -> str:
        """The file with the wrong line. Raises SuiteError unless the right one occurs in it exactly once."""
        path = PACKAGE / self.file
        if not path.is_file():
            raise SuiteError(f"mutant '{self.name}'", f"there is no file harness/{self.file}")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.right)) != 1:
            raise SuiteError(
                f"mutant '{self.name}'",
                f"harness/{self.file} has the line that is to be wrong {count} times; it must be there exactly once",
            )
        return text.replace(self.right, self.wrong)

    def copied_to(self, folder: Path) -> Path:
        """Copy the mutant's tree into `folder`, with the wrong line; the folder of the copy."""
        text = self.changed()
        ignored = shutil.ignore_patterns("__pycache__")
        copy = Path(shutil.copytree(PACKAGE / self.tree, folder / self.tree, ignore=ignored))
        (folder / self.file).write_text(text, encoding="utf-8")
        return copy


class Chosen(Mutant):
    """A mutant of our own catalogue, with its required result."""

    story: str = Field(min_length=1)
    cases: tuple[str, ...] = Field(min_length=1)
    cause: str = Field(min_length=1)


def load(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants, in order of their files. Raises SuiteError for the first invalid entry."""
    mutants = [mutant for path in sorted(folder.glob("*.yaml")) for mutant in _of_file(path, Chosen)]
    return _named_once(mutants, folder.name)


def load_file(path: Path) -> list[Mutant]:
    """The mutants of another catalogue, which may lack stories, cases and causes. Raises SuiteError."""
    return _named_once(list(_of_file(path, Mutant)), path.name)


def _named_once(mutants: list[Mutant], where: str) -> list[Mutant]:
    twice = [name for name, count in Counter(mutant.name for mutant in mutants).items() if count > 1]
    if twice:
        raise SuiteError(where, f"two mutants are called '{twice[0]}'; every name is a mutant's own")
    return mutants


def find(name: str) -> Mutant:
    for mutant in load():
        if mutant.name == name:
            return mutant
    raise SuiteError(FOLDER.name, f"no mutant is called '{name}'")


def _of_file(path: Path, kind: type[Mutant]) -> Iterator[Mutant]:
    document = read(path, f"{path.parent.name}/{path.name}".lstrip("/"))
    entries = document.data.get("mutants") if isinstance(document.data, dict) else None
    if not isinstance(entries, list):
        raise SuiteError(document.name, "a catalogue has the key 'mutants' with a list, as those of the harness have")
    for number, entry in enumerate(entries):
        try:
            yield kind.model_validate({**entry, "theme": path.stem})
        except ValidationError as error:
            called = entry.get("name", number) if isinstance(entry, dict) else number
            sentence = f"mutant '{called}': {first_mistake(error)}"
            raise SuiteError(document.where("mutants", number), sentence) from None
