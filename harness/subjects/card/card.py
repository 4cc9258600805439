"""A parsed card, checked against its recipe and its code before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from harness.contract.case import Case, with_later
from harness.errors import CompileError, SuiteError, UsageError
from harness.expected.expected import fields_of, make_inputs
from harness.files import resolved_path
from harness.ground.yaml_lines import Document, read
from harness.subjects.card.arguments import arrays_of, expressions_of, extents_of, misfit, tensors_of, unfit
from harness.subjects.card.code import Code, NoSuchKernel, read_code
from harness.subjects.card.forms import CardForms, Starts, tensor_starts
from harness.subjects.card.schema import Argument, ArrayForm, CardFile, CardLaunch, Map
from harness.subjects.convention import Convention
from harness.suite.launch_plan import numbers
from harness.suite.schema import route_of, sentence_of, validated
from harness.suite.sizes import size_error
from harness.suite.suite import suite_of
from harness.text import nearest, spell

MASKED_M = "masked_m"  # int32 (1,): the tensor's rows in an allocation, for kernels that read it from memory


def with_masked_m(case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add MASKED_M to the inputs: an array of one entry, the number of rows without slack, which any card may name."""
    return {**inputs, MASKED_M: np.array([case.rows], np.int32)}


@dataclass(frozen=True)
class Card:
    """name: as the command line spells it; document: the card's YAML, for file and line of what is wrong

    masked: rows of the allocation behind the tensor's rows
    """

    name: str
    file: CardFile
    document: Document
    path: Path
    masked: int = 0
    codes: dict[str, Code] = field(default_factory=dict, compare=False, repr=False)  # compiled code by architecture
    refused: dict[str, CompileError] = field(default_factory=dict, compare=False, repr=False)  # why there is none

    @property
    def code(self) -> Code:
        return self.code_for(self.file.arch)

    def code_for(self, arch: str) -> Code:
        """The code, a `.cu` compiled for an architecture, read once. Raises UsageError, CompileError."""
        if arch in self.refused:
            raise self.refused[arch]
        if arch not in self.codes:
            kernels = [launch.kernel for launch in self.file.launches if launch.kernel]
            path, name = self.path.parent / self.file.code, self.file.code
            try:
                self.codes[arch] = read_code(path, name, kernels, arch, self.file.options, (self.path.parent,))
            except CompileError as error:
                self.refused[arch] = CompileError(str(error))
                raise
            except NoSuchKernel as error:
                raise SuiteError(self._line_of_kernel(error.kernel), str(error)) from None
            except UsageError as error:
                raise SuiteError(self.document.where("code"), str(error)) from None
        return self.codes[arch]

    def _line_of_kernel(self, kernel: str) -> str:
        kernels = [launch.kernel for launch in self.file.launches]
        return self.document.where("launches", kernels.index(kernel), "kernel")

    @property
    def label(self) -> str:
        try:
            code = self.code.ptx.encode() + self.code.cubin
        except CompileError:
            code = (self.path.parent / self.file.code).read_bytes()
        digest = hashlib.sha256(self.path.read_bytes() + code)
        return f"{self.name} (source {digest.hexdigest()[:12]})"

    @property
    def conventions(self) -> frozenset[str]:
        """The conventions by which its bytes may differ from the contract's."""
        any_zero = any(said.zeros == "any" for said in self.file.arrays.values())
        return frozenset({*self.file.conventions, *([Convention.ZERO_SIGN] if any_zero else ())})

    def refuses(self, case: Case) -> str:
        """Why the kernels do not take a case; empty if they do."""
        if case.recipe != self.file.recipe:
            return f"the card is of {self.file.recipe}"
        for flag, values in with_later(self.file.flags, case.defaults).items():
            if case.flags.get(flag) not in values:
                return f"the card is for {flag}={'|'.join(map(spell, values))}"
        for name, multiple in self.file.multiple_of.items():
            if numbers(case).get(name, 0) % multiple:
                return f"the card is for {name} that are multiples of {multiple}"
        if self.file.most_elements is not None and case.elements > self.file.most_elements:
            return f"the card is for at most {self.file.most_elements} elements"
        return ""

    def forms(self, case: Case) -> CardForms:
        """The form of the card's arrays, where it differs from the contract's."""
        return CardForms(case, self.file.arrays, frozenset(self.file.given), self.masked)

    def tensor_starts(self, case: Case) -> Starts:
        """The byte offsets at which each tensor of a group begins in each array; none if the case is no group."""
        return tensor_starts(self.forms(case), make_inputs(case))

    def numbers(self, case: Case) -> dict[str, int]:
        """The numbers of a case that expressions may name."""
        whole = {name: value for name, value in numbers(case).items() if isinstance(value, int)}
        allocated = {"allocated_rows": case.rows + self.masked}
        return {"elements": case.elements, "num_tensors": 1, **allocated, **whole}

    def launches(self, case: Case) -> list[tuple[int, CardLaunch]]:
        """The launches of a case, with their numbers in the card.

        A launch whose grid is empty, because the case has no elements, is left out, as host wrappers do.
        """
        every, its_numbers = enumerate(self.file.launches), self.numbers(case)
        return [(n, each) for n, each in every if case.elements or 0 not in extents_of(each.grid, its_numbers)]

    def check(self, cases: Iterable[Case], whole: bool = True) -> None:
        """Check the card against its recipe and its code. Raises UsageError with file and line.

        cases: the run's; whole: whether the card must have one of them, as a shard need not
        """
        cases = list(cases)
        self._check_flags()
        self._check_launches()
        self._check_constants()
        taken = [case for case in cases if not self.refuses(case)]
        if cases and whole and not taken:
            raise SuiteError(self.document.where("recipe"), self._none_of(cases))
        smallest: dict[object, Case] = {}
        for case in sorted(taken, key=lambda case: case.work):
            smallest.setdefault((case.flags, case.is_group), case)
        for case in smallest.values():
            self._check_names(case)

    def _none_of(self, cases: Sequence[Case]) -> str:
        """A sentence on cases of which the card takes none, and what to select in place of them."""
        none, recipe = f"none of the {len(cases)} selected cases", self.file.recipe
        why = next((self.refuses(case) for case in cases if case.recipe == recipe), "")
        if not why:
            return f"{none} is of {recipe}; name the recipe of the card, as in `harness verify {recipe}`"
        return (
            f"{none} is one of this card: {why}; without --case and -k the cases of a set take on the card's flags, "
            "and `--set full` has the most shapes"
        )

    def _check_flags(self) -> None:
        try:
            axes = suite_of(self.file.recipe).file.axes
        except UsageError as error:
            raise SuiteError(self.document.where("recipe"), str(error)) from None
        for flag, values in self.file.flags.items():
            where = self.document.where("flags", flag)
            if flag not in axes:
                raise SuiteError(where, f"{self.file.recipe} has no flag '{flag}'{nearest(flag, axes)}")
            for value in values:
                if value not in axes[flag]:
                    raise SuiteError(where, f"{flag} has no value '{spell(value)}'{nearest(value, axes[flag])}")

    def _check_launches(self) -> None:
        for number, launch in enumerate(self.file.launches):
            if launch.kernel is None:
                continue
            try:
                parameters = self.code.parameters(launch.kernel)
            except CompileError:
                return  # every case is a COMPILE_ERROR, so that the kernel is blamed and not the card
            except SuiteError:
                raise  # the code cannot be read; this error already has the right line
            except UsageError as error:
                raise SuiteError(self.document.where("launches", number, "kernel"), str(error)) from None
            if parameters is None:
                continue
            given = launch.arguments
            if len(given) != len(parameters):
                raise SuiteError(
                    self.document.where("launches", number, "arguments"),
                    f"'{launch.kernel}' takes {len(parameters)} arguments, and {len(given)} are given; it takes "
                    f"{', '.join(map(str, parameters)) or 'none'}",
                )
            for position, (argument, parameter) in enumerate(zip(given, parameters, strict=True)):
                why = misfit(argument, parameter)
                if why:
                    where = self.document.where("launches", number, "arguments", position)
                    raise SuiteError(where, f"argument {position + 1} of '{launch.kernel}' {why}")

    def _check_constants(self) -> None:
        for name, constant in self.file.constants.items():
            where = self.document.where("constants", name)
            try:
                variable = self.code.variable(name)
            except CompileError:
                return  # as for the launches
            except SuiteError:
                raise
            except UsageError as error:
                raise SuiteError(where, str(error)) from None
            why = unfit(constant, variable) if variable else ""
            if why:
                raise SuiteError(where, f"'{name}' {why}")

    def _check_names(self, case: Case) -> None:
        """Check the names of arrays and expressions, as far as a case has them."""
        forms, fields = self.forms(case), fields_of(case)
        for name in self.file.given:
            if name not in fields:
                raise SuiteError(
                    self.document.where("given"), f"{case.recipe} has no output '{name}'{nearest(name, fields)}"
                )
        for name in self.file.arrays:
            why = forms.refuses(name, make_inputs(case))
            if why:
                raise SuiteError(self.document.where("arrays", name), why)
        if set(fields) <= set(self.file.given):
            raise SuiteError(
                self.document.where("given"), f"every output of {case.recipe} is given, so nothing is compared"
            )
        known = [*make_inputs(case), *fields, MASKED_M, *self.file.scratch, *self.file.workspace]
        names = list(self.numbers(case))
        for key in ("scratch", "workspace"):
            for name, size in getattr(self.file, key).items():
                self._check_expressions([size], names, (key, name))
                if name in (*make_inputs(case), *fields, MASKED_M, *(self.file.scratch if key == "workspace" else ())):
                    raise SuiteError(
                        self.document.where(key, name), f"'{name}' is another array already; call it otherwise"
                    )
        for number, launch in enumerate(self.file.launches):
            at = ("launches", number)
            for key in ("grid", "block", "cluster"):
                self._check_expressions(getattr(launch, key) or [], names, (*at, key))
            self._check_expressions([launch.shared], names, (*at, "shared"))
            writable = [name for name in known if name not in make_inputs(case) and name not in self.file.given]
            if launch.zero is not None and launch.zero not in writable:
                raise SuiteError(
                    self.document.where(*at, "zero"),
                    f"'{launch.zero}' is nothing to set to zero{nearest(launch.zero, writable)}",
                )
            for position, argument in enumerate(launch.arguments):
                self._check_argument(case, argument, names, known, (*at, "arguments", position))
        for name, constant in self.file.constants.items():
            self._check_argument(case, constant, names, known, ("constants", name))
        self._check_outputs(case, fields)

    def _check_argument(
        self, case: Case, argument: Argument, names: Sequence[str], known: Sequence[str], where: tuple[str | int, ...]
    ) -> None:
        self._check_expressions(list(expressions_of([argument])), names, where)
        for name in arrays_of([argument]):
            if name not in known:
                raise SuiteError(
                    self.document.where(*where), f"there is no array '{name}' in {case.id}{nearest(name, known)}"
                )
        for name in tensors_of([argument]):
            why = self._without_tensors(case, name)
            if why:
                raise SuiteError(self.document.where(*where), why)

    def _without_tensors(self, case: Case, name: str) -> str:
        """Why an array has no part for each tensor of a group; empty if it has."""
        if not case.is_group:
            return f"{case.recipe} is of one tensor, and `tensors` points to each of a group; pass `array: {name}`"
        starts = self.tensor_starts(case)
        if name in starts:
            return ""
        return f"'{name}' has no part for each tensor; these have: {', '.join(starts)}"

    def _check_outputs(self, case: Case, fields: Iterable[str]) -> None:
        passed = {name for launch in self.file.launches for name in arrays_of(launch.arguments)}
        passed |= {*arrays_of(self.file.constants.values())}
        left_out = [name for name in fields if name not in passed and name not in self.file.given]
        if left_out:
            raise SuiteError(
                self.document.where("launches"), f"no launch takes the output '{left_out[0]}' of {case.data_id}; pass "
                "it to the kernel that writes it, or list it under `given` if none does",
            )  # fmt: skip

    def _check_expressions(self, said: Sequence[int | str], names: Sequence[str], route: tuple[str | int, ...]) -> None:
        for expression in said:
            why = size_error(expression, names)
            if why:
                raise SuiteError(self.document.where(*route), why)


def read_card(name: str) -> Card:
    """Read the card with this name. Raises UsageError with file and line for a mistake in it."""
    path = Path(name)
    document = read(path, name, "code")
    if not isinstance(document.data, Mapping):
        raise SuiteError(f"{name}:1", "a card is a mapping that starts with `code:`")
    return Card(name, validated(CardFile, document, _sentence), document, resolved_path(path))


def _sentence(document: Document, error: ErrorDetails) -> str:
    route = route_of(document, error)
    if error["type"] == "extra_forbidden":
        return f"unknown key '{route[-1]}'{nearest(route[-1], _part(route).model_fields)}"
    if error["type"] == "model_type" and "arguments" in route:
        return f"'{error['input']}' is no argument; one reads `array: input` or `i32: rows`"
    if error["type"] == "model_type" and "constants" in route:
        return f"'{spell(error['input'])}' has no type; a constant reads `{route[-1]}: {{f32: 2.5}}`"
    return sentence_of(document, error, "the card")


def _part(route: Sequence[str | int]) -> type[BaseModel]:
    """The model that contains an unknown key."""
    models: dict[str, type[BaseModel]] = {
        "launches": CardLaunch, "arguments": Argument, "constants": Argument, "struct": Argument, "map": Map,
        "arrays": ArrayForm,
    }  # fmt: skip
    return next((models[part] for part in reversed(route[:-1]) if part in models), CardFile)
