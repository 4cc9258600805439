"""Suites: `suites/S.yaml` becomes frozen cases, and a case id becomes a case again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import get_args

from harness import files
from harness.contract.case import Case, Flags, FlagValue, id_parts
from harness.contract.problem import Extents, Problem
from harness.errors import ContractError, SuiteError, UsageError
from harness.ground.yaml_lines import Document
from harness.suite import check as suite_check
from harness.suite import cover, flag_values, gemm_operands, shapes
from harness.suite.schema import Block, Mode, Shape, SuiteFile, SuiteLaunch
from harness.suite.stage_checks import refuse_stages
from harness.suite.stages import stages_of
from harness.suite.suite_file import content_of, defaults_of, file_of, read_suite, settled_state, suite_path
from harness.text import nearest, spell

FIRST = "first"  # the set of every suite that has a smoke set, of which it is a part
BASELINE = "per_tensor"  # the recipe whose first set has every input of its smoke set


@dataclass(frozen=True, eq=False)
class Suite:
    """One recipe's suite, checked: `file` is its model, and `document` has the lines."""

    path: Path
    file: SuiteFile
    document: Document

    @property
    def recipe(self) -> str:
        return self.file.recipe

    @property
    def name(self) -> str:
        """`suites/S.yaml`, for messages."""
        return self.document.name

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets that the file lists."""
        return tuple(self.file.sets)

    @property
    def known_sets(self) -> tuple[str, ...]:
        """The sets of the file, and the one that is made of its smoke set."""
        return tuple(dict.fromkeys((*([FIRST] if "smoke" in self.sets else []), *self.sets)))

    @cached_property
    def defaults(self) -> Flags:
        return defaults_of(self.file)

    @cached_property
    def dense_defaults(self) -> dict[str, Flags]:
        """The defaults of every recipe that the tensors of a group can have; none for a dense recipe."""
        names = self.file.axes[shapes.RECIPE] if shapes.is_grouped(self.file) else ()
        return {str(name): defaults_of(file_of(str(name))) for name in names}

    @cached_property
    def _of_tests(self) -> dict[str, dict[str, dict[str, Case]]]:
        return {}

    @cached_property
    def _stage_extents(self) -> dict[Hashable, tuple[tuple[int, int], ...]]:
        return {}

    def refusal(self, flags: Mapping[str, FlagValue]) -> str | None:
        """Why these flags are excluded, or None if they are legal; flags may be missing."""
        return flag_values.refusal(self.file, flags)

    def launches(self, case: Case) -> tuple[SuiteLaunch, ...]:
        """The kernels and library calls of a case, in launch order."""
        flags = flag_values.launch_flags(self.file, case)
        return tuple(
            launch for launch in self.file.launches if flag_values.launched(launch, flags) and launch.takes(case.rows)
        )

    def corners(self, case: Case) -> list[Problem]:
        """The larger problems that the emulator also runs, with the case as their last rows and columns."""
        return shapes.corners(self.file, case)

    def cases(self, set_name: str) -> tuple[Case, ...]:
        """The cases of a set, small ones first, then by id. Raises UsageError if there is no such set."""
        return self._expand(set_name)[0]

    def cases_of_tests(self, set_name: str) -> dict[str, dict[str, Case]]:
        """Test that a block of the set names → the cases of all its blocks, by id."""
        self._expand(set_name)
        return self._of_tests.get(set_name, {})

    def excluded(self, set_name: str) -> Counter[str]:
        """Reason → number of excluded cases of a set; of a `pairwise` block, number of excluded pairs of values."""
        return Counter(self._expand(set_name)[1])

    @cache  # noqa: B019 - a suite lives as long as the process
    def _expand(self, set_name: str) -> tuple[tuple[Case, ...], Counter[str]]:
        if set_name not in self.known_sets:
            raise UsageError(f"{self.name}: there is no set '{set_name}'{nearest(set_name, self.known_sets)}")
        if set_name not in self.sets:
            return self._first(), Counter()
        made: dict[str, Case] = {}
        excluded: Counter[str] = Counter()
        of_tests = self._of_tests.setdefault(set_name, {})
        for index, block in enumerate(self.file.sets[set_name]):
            where = self.document.where("sets", set_name, index)
            try:
                reasons: Counter[str] = Counter()
                cases = self._block_cases(block, where, reasons)
            except cover.TooManyError as error:
                raise SuiteError(where, str(error)) from None
            if not cases:
                why = "; ".join(reasons)
                raise SuiteError(where, f"every combination of this block is excluded, so it holds no case: {why}")
            excluded += reasons
            for case in cases:
                if case.id in made and not block.tests:
                    raise SuiteError(where, f"{case.id} is already a case of this set, by {made[case.id].where}")
                made.setdefault(case.id, case)
            for test in block.tests:
                of_tests.setdefault(test, {}).update((case.id, case) for case in cases)
        return tuple(sorted(made.values(), key=lambda case: (case.elements, case.id))), excluded

    def _first(self) -> tuple[Case, ...]:
        """Few cases of the smoke set that have each value of a flag, each kernel, and each input of this suite alone.

        Each runs on one of the emulator's targets, in turn: half the kernels to compile.

        The inputs that the baseline recipe has as well need not all be there: one case after the other brings another.
        Cases with corners, each of which takes as long as thirty others, come in only for what no other has.
        """
        baseline = () if self.recipe == BASELINE else suite_of(BASELINE, files.SUITES).cases("smoke")
        elsewhere = {case.input for case in baseline}

        def features(case: Case) -> set[Hashable]:
            kernels = () if self.file.pipeline else (launch.name for launch in self.launches(case))
            inputs = () if case.input in elsewhere else (("input", case.input),)
            return {*case.flags.items(), *kernels, *inputs, ("mode", case.mode), ("no rows", case.elements == 0)}

        chosen: set[Case] = set()
        shown: set[Hashable] = set()
        for with_corners in (False, True):
            cases = [case for case in self.cases("smoke") if bool(self.corners(case)) == with_corners]
            missing = [features(case) - shown for case in cases]
            chosen.update(cases[i] for i in cover.few(missing, [case.input for case in cases]))
            shown.update(*missing)
        in_order = (case for case in self.cases("smoke") if case in chosen)
        return tuple(replace(case, turn=number) for number, case in enumerate(in_order))

    def _block_cases(self, block: Block, where: str, excluded: Counter[str]) -> list[Case]:
        axes: dict[str, list[FlagValue]] = suite_check.block_axes(self.file, block)
        sizes = [len(values) for values in axes.values()]
        shape_sizes = [len(block.shapes), len(block.inputs)]
        cover.require_few(math.prod(shape_sizes) * len(block.modes))

        def flags(row: cover.Partial) -> dict[str, FlagValue]:
            return {flag: values[i] for (flag, values), i in zip(axes.items(), row, strict=False) if i is not None}

        # By the numbers of values and not by the values, because this runs a hundred thousand times.
        refusal = flag_values.refusal_of_row(self.file, axes, pairwise=block.cover == "pairwise")
        if block.cover == "pairwise":
            # zip stops after the flags: the last two entries of a row are the shape and the input.
            fixed = flag_values.kept_apart(self.file, axes)
            rows = cover.pairwise([*sizes, *shape_sizes], lambda row: refusal(row) is not None, fixed)
            reasons = [refusal(cover.partial(pair, len(sizes))) for pair in cover.pairs(sizes)]
            excluded.update(reason for reason in reasons if reason is not None)
        else:
            rows = []
            if block.cover == "product":
                cover.require_few(math.prod(sizes) * math.prod(shape_sizes))
            for variant in getattr(cover, block.cover)(sizes):
                reason = refusal(variant)
                if reason is None:
                    rows += [(*variant, *pair) for pair in cover.product(shape_sizes)]
                else:
                    excluded[reason] += len(block.shapes) * len(block.inputs) * len(block.modes)
        return [
            self._case(flags(row), block.shapes[row[-2]], block.inputs[row[-1]], mode, where)
            for mode in block.modes
            for row in rows
        ]

    def _case(self, flags: Mapping[str, FlagValue], shape: Shape, input_name: str, mode: str, where: str = "") -> Case:
        case = Case(
            recipe=self.recipe,
            flags=Flags(flags),
            problem=shapes.problem(self.file, shape, flags),
            input=input_name,
            mode=mode,
            defaults=self.defaults,
            where=where,
            dense_defaults=self.dense_defaults,
        )
        try:
            extents = self._input_extents(case)
        except ContractError as error:
            raise SuiteError(where or self.name, str(error)) from None
        operands = len(extents) if self.file.pipeline else 2 if self.file.gemm else 1
        error = shapes.tensor_error(input_name, extents, operands)
        if error:
            raise SuiteError(where or self.name, error)
        return case

    def _input_extents(self, case: Case) -> tuple[tuple[int, int], ...]:
        """(rows, cols) of the tensors that are drawn. Raises ContractError for an illegal case."""
        if self.file.pipeline:
            # Cached, because checking stages is slow and all modes of a case, and all sets with it, have the same
            # stages.
            key = case.flags, case.problem, case.input
            if key not in self._stage_extents:
                stages = stages_of(case, self.file.pipeline)
                refuse_stages(case, stages)
                self._stage_extents[key] = tuple(
                    tuple(map(max, zip(*_tensors(stage.case), strict=True))) for stage in stages if stage.draws
                )
            return self._stage_extents[key]
        if not self.launches(case):
            raise ContractError(f"no launch of this recipe applies to {case.id}")
        return gemm_operands.input_extents(case)

    def find(self, case_id: str) -> Case:
        """The case an id stands for, whether or not a set holds it. Raises UsageError with the nearest choice."""
        _, variant, shape, input_name, mode = _split(case_id)
        flags = self._flags(case_id, variant)
        for error in (
            shapes.shape_error(self.file, shape, flags),
            suite_check.input_error(input_name, files.ROOT),
            None if mode in get_args(Mode) else f"there is no mode '{mode}'{nearest(mode, get_args(Mode))}",
        ):
            if error:
                raise UsageError(f"{case_id}: {error}")
        reason = self.refusal(flags)
        if reason is not None:
            raise UsageError(f"{case_id}: {self.recipe} excludes this combination: {reason}")
        return self._case(flags, shape, input_name, mode)

    def only(self, block: Block, where: str, seed_of: str) -> Case:
        """The single case of a block from another file, at `where`, with another case's seed. Raises SuiteError."""
        for _, error in suite_check.block_errors(self.file, (), block, files.ROOT):
            if error:
                raise SuiteError(where, error)
        cases = self._block_cases(block, where, Counter())
        if len(cases) != 1:
            raise SuiteError(where, f"this block makes {len(cases)} cases of {self.recipe}; it must make one")
        return replace(cases[0], seed_of=seed_of)

    def flag(self, name: str, text: str) -> FlagValue:
        """A flag's value from its spelling in ids and command lines; UsageError if there is no such value."""
        error = flag_values.flag_error(self.file, name)
        if error:
            raise UsageError(error)
        for value in self.file.axes[name]:
            if spell(value) == text or (isinstance(value, int) and _integer(text) == value):
                return value
        raise UsageError(flag_values.value_error(self.file, name, text) or f"{name} has no '{text}'")

    def _flags(self, case_id: str, variant: str) -> dict[str, FlagValue]:
        flags, named = dict(self.defaults), set()
        for part in () if variant == "default" else variant.split(","):
            name, equals, text = part.partition("=")
            if not equals:
                raise UsageError(f"{case_id}: '{part}' is not `flag=value`; flags at their defaults are `default`")
            if name in named:
                raise UsageError(f"{case_id}: the flag {name} is there twice")
            named.add(name)
            try:
                flags[name] = self.flag(name, text)
            except UsageError as error:
                raise UsageError(f"{case_id}: {error}") from None
        return flags


def _tensors(case: Case) -> Sequence[Extents]:
    return case.problem.tensors if case.is_group else ((case.rows, case.cols),)


def load_suite(path: Path) -> Suite:
    """Read and check one file, again only if it changed. Raises SuiteError for its first mistake."""
    state = settled_state(path)
    return _read(path) if state is None else _unchanged(path, Path.cwd(), state)


@lru_cache(maxsize=64)  # every launch of every case asks for its suite
def _unchanged(path: Path, folder: Path, state: tuple[int, ...]) -> Suite:
    return _read(path)


def _read(path: Path) -> Suite:
    path = files.resolved_path(path)
    return _checked(path, content_of(path))


@lru_cache(maxsize=64)
def _checked(path: Path, content: bytes) -> Suite:
    file, document = read_suite(path)
    suite_check.check(file, document, path.stem, files.ROOT, files.is_users(path.parent))
    return Suite(path, file, document)


def load_suites(paths: Iterable[Path] | None = None) -> list[Suite]:
    """The given suites, or all of `suites/*.yaml`, in order of name; in place of all the user's own, if any."""
    if paths is None and files.RECIPE_DIRS:
        return own_suites()
    if paths is None:
        return [suite_of(path.stem) for path in sorted(files.SUITES.glob("*.yaml"))]
    return [load_suite(path) for path in paths]


def own_suites() -> list[Suite]:
    """The suites of the user's own recipes, in order of name."""
    return [suite_of(recipe) for recipe in sorted(files.RECIPE_DIRS)]


def suite_of(recipe: str, folder: Path | None = None) -> Suite:
    """The suite of a recipe. Raises UsageError, with the nearest choice, if there is none in the folder."""
    return load_suite(suite_path(recipe, folder))


def find_case(case_id: str) -> Case:
    """The case an id stands for, also if no set holds it. Raises UsageError with the nearest choice."""
    return suite_of(_split(case_id)[0]).find(case_id)


def _split(case_id: str) -> tuple[str, ...]:
    parts = id_parts(case_id)
    if case_id.endswith(".yaml"):
        suite_path(case_id)  # raises the right error for a file
    if len(parts) != 5 or not case_id.isprintable():
        raise UsageError(
            f"{ascii(case_id)} is not a case id; one reads recipe/flags/ROWSxCOLS/input/mode, as in "
            "per_tensor/rht=true,rounding=sr/256x192/normal/eager"
        )
    return parts


def _integer(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None
