"""The catalogue: the YAML files beside this one, each a list of mistakes with a name and a story.

An entry says `in` which scope, and which `change` of an expression (`places.change_of`), so that it stays valid when
its function moves or is formatted. One of another catalogue may have a `file`, and `right` and `wrong` text instead.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evidence.mutants.places import Edit, Places, Substitution, change_of, places, text_edit
from harness.errors import SuiteError
from harness.files import PACKAGE
from harness.ground.yaml_lines import first_mistake, read

FOLDER = Path(__file__).parent
KERNELS, ORACLES = "kernels", "oracles"


class Mutant(BaseModel):
    """A change of one place that makes a kernel or an oracle wrong.

    name: unique; story: where this mistake was made, or its effect
    file: below `harness/`, a kernel's source or an oracle's
    right: an expression of a scope, and number, which of several equal ones (`places.Substitution`); without a scope,
        text that occurs exactly once in the file. wrong: its replacement
    numerics: the section of NUMERICS about this mistake, 12 or 13; 0 for none
    cases: ids of the cases that must catch it, the closest first; none if any case may
    cause: the cause that the diagnosis must name; empty if any may
    theme: stem of its YAML file, or the operator that made it
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    story: str = ""
    file: str = Field(pattern=rf"^({KERNELS}/(\w+/)?|{ORACLES}/)\w+\.(cuh?|py)$")
    scope: str = ""
    right: str = Field(min_length=1)
    wrong: str
    number: int = 0
    numerics: int = 0
    cases: tuple[str, ...] = ()
    cause: str = ""
    theme: str

    @property
    def tree(self) -> str:
        return self.file.partition("/")[0]

    @property
    def index(self) -> Places:
        """Where its file and scope are found."""
        return places()

    @property
    def edit(self) -> Edit:
        """The edit and the file that it changes. Raises SuiteError unless the text occurs once or has its number."""
        if self.scope:
            try:
                return self.index.edit(self.scope, Substitution(self.right, self.wrong, self.number))
            except LookupError as error:
                raise SuiteError(f"mutant '{self.name}'", str(error)) from None
        source = self.index.sources.get(self.file)
        if source is None:
            raise SuiteError(f"mutant '{self.name}'", f"there is no file harness/{self.file}")
        if (count := source.text.count(self.right)) != 1:
            raise SuiteError(
                f"mutant '{self.name}'",
                f"harness/{self.file} has the line that is to be wrong {count} times; it must be there exactly once",
            )
        start = source.text.index(self.right)
        return text_edit(source, start, start + len(self.right), self.wrong)

    def changed(self) -> str:
        """The file with the mistake. Raises SuiteError as `edit` does."""
        edit = self.edit
        return edit.applied(self.index.sources[edit.file].text)

    def copied_to(self, folder: Path) -> Path:
        """Copy the mutant's tree into `folder`, with the mistake; the folder of the copy."""
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
    """All mutants, in order of their files. Raises SuiteError for the first entry that is invalid or stale."""
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
        called = entry.get("name", number) if isinstance(entry, dict) else number
        try:
            yield kind.model_validate({**_located(entry), "theme": path.stem})
        except ValidationError as error:
            sentence = f"mutant '{called}': {first_mistake(error)}"
        except LookupError as error:
            sentence = f"mutant '{called}': {error}"
        else:
            continue
        raise SuiteError(document.where("mutants", number), sentence)


def _located(entry: dict[str, object]) -> dict[str, object]:
    """An entry with the fields of a mutant for its scope, `in`, and `change`. Raises LookupError for a stale one."""
    if not {"in", "change"} <= entry.keys():
        return entry
    scope, change = str(entry["in"]), change_of(str(entry["change"]))
    others = {key: value for key, value in entry.items() if key not in ("in", "change")}
    return {**others, "file": places().edit(scope, change).file, "scope": scope, **change._asdict()}
