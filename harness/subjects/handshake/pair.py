"""A parsed pair: its sides, their cases, and how arrays of one side correspond to the other's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic_core import ErrorDetails

from harness.contract.case import Case, FlagValue
from harness.errors import SuiteError, UsageError
from harness.expected.expected import fields_of, make_inputs
from harness.ground.yaml_lines import Document, read
from harness.oracles.layout import COLUMNWISE
from harness.subjects.card.card import Card, read_card
from harness.subjects.card.forms import CardForms, read_side
from harness.subjects.card.schema import ArrayForm
from harness.subjects.handshake.schema import PairFile, SideFile
from harness.suite.gemm_operands import input_extents
from harness.suite.schema import route_of, sentence_of, validated
from harness.suite.suite import find_case, suite_of
from harness.text import nearest, spell


@dataclass(frozen=True)
class Side:
    """One kernel of a pair. role: `producer` or `consumer`; document: the pair's; card: None if our own kernels run"""

    role: str
    file: SideFile
    document: Document
    card: Card | None
    masked: int

    @property
    def name(self) -> str:
        return str(self.file.card or self.file.recipe)

    @property
    def recipe(self) -> str:
        return self.card.file.recipe if self.card else str(self.file.recipe)

    @property
    def array_forms(self) -> Mapping[str, ArrayForm]:
        return self.card.file.arrays if self.card else self.file.arrays

    @property
    def flags(self) -> dict[str, FlagValue]:
        of_card = {flag: values[0] for flag, values in self.card.file.flags.items()} if self.card else {}
        return of_card | self.file.flags

    def forms(self, case: Case) -> CardForms:
        return self.card.forms(case) if self.card else CardForms(case, self.array_forms, frozenset(), self.masked)

    def case(self, shape: str, input_name: str) -> Case:
        """The side's case. Raises SuiteError for flags and shapes that its recipe lacks."""
        variant = ",".join(f"{flag}={spell(value)}" for flag, value in self.flags.items()) or "default"
        try:
            return find_case(f"{self.recipe}/{variant}/{shape}/{input_name}/eager")
        except UsageError as error:
            raise SuiteError(self.where("flags"), str(error)) from None

    def where(self, *route: str) -> str:
        """`file:line` of the pair's entry for this side."""
        return self.document.where(self.role, *route)

    def where_declared(self, array: str, key: str, flag: str) -> str:
        """`file:line` of this side's declaration of an array, or of the side itself if it declares nothing."""
        document, route = (self.card.document, ()) if self.card else (self.document, (self.role,))
        for found in (("arrays", array, key), ("flags", flag)):
            if (*route, *found) in document.lines:
                return document.where(*route, *found)
        if (self.role, "flags", flag) in self.document.lines:
            return self.where("flags", flag)
        return document.where("recipe") if self.card else self.where("recipe")


@dataclass(frozen=True)
class Pair:
    """A producer and a consumer. name: as the command line spells it"""

    name: str
    file: PairFile
    document: Document
    producer: Side
    consumer: Side
    _read: dict[str, dict[str, str]] = field(default_factory=dict, compare=False, repr=False)

    def cases(self) -> Iterator[tuple[str, Case, Case]]:
        """For every shape and input, a name, the producer's case and the consumer's."""
        for shape in self.file.shapes:
            for input_name in self.file.inputs:
                yield f"{shape}/{input_name}", *self._cases(shape, input_name)

    def _cases(self, shape: str, input_name: str) -> tuple[Case, Case]:
        ours, theirs = (suite_of(side.recipe).file.gemm for side in (self.producer, self.consumer))
        if ours and theirs:
            raise SuiteError(
                self.document.where("consumer"), "both sides multiply; what a product writes is quantized first"
            )
        if theirs:
            consumer = self.consumer.case(shape, input_name)
            return self.producer.case(self._operand(consumer), input_name), consumer
        producer = self.producer.case(shape, input_name)
        extents = f"{producer.rows}x{producer.problem.n}" if ours else shape
        return producer, self.consumer.case(extents, input_name)

    def _operand(self, consumer: Case) -> str:
        """The shape of the operand that the producer quantizes."""
        operand = "b" if any(name.startswith("b_") for name in self.file.reads) else "a"
        if not consumer.is_group:
            rows, cols = input_extents(consumer)["ab".index(operand)]
            return f"{rows}x{cols}"
        if operand == "b" or consumer.flags.layout == "nt":
            raise SuiteError(
                self.document.where("consumer"), "of a product of groups, a pair has the rows of operand A"
            )
        return consumer.shape.rpartition("x")[0]

    def reads(self, producer: Case, consumer: Case) -> dict[str, str]:
        """Array of the consumer → output of the producer. Raises SuiteError for an unknown name."""
        written, read_arrays = fields_of(producer), make_inputs(consumer)
        found = self.file.reads or dict(_alike(consumer, written, read_arrays))
        for name, source in found.items():
            where = self.document.where("reads", name)
            if name not in read_arrays:
                raise SuiteError(where, f"{consumer.recipe} reads no '{name}'{nearest(name, read_arrays)}")
            if source not in written:
                raise SuiteError(where, f"{producer.recipe} writes no '{source}'{nearest(source, written)}")
            if self.producer.card and source in self.producer.card.file.given:
                raise SuiteError(
                    self.producer.card.document.where("given"), f"the producer is given '{source}', which is {name} of "
                    "the consumer; a handshake is about what it writes",
                )  # fmt: skip
        if not found:
            raise SuiteError(
                self.document.where("consumer"),
                f"{consumer.recipe} reads {', '.join(read_arrays)}, and {producer.recipe} writes {', '.join(written)}; "
                "say under `reads` which is which",
            )
        return found


def _alike(consumer: Case, written: Mapping[str, object], names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The producer's default names for the consumer's arrays; for a product, for operand A's arrays."""
    for name in names:
        if consumer.is_gemm and not name.startswith("a_"):
            continue
        plain = name.removeprefix("a_") if consumer.is_gemm else name
        choices = [f"{read_side(consumer, name)}_{plain}", name, *({"input": ["output"]}.get(name, ()))]
        if plain == "scale_inv":
            choices.append("swizzled_scale_inv")
        yield from ((name, choice) for choice in [*filter(written.__contains__, choices)][:1])


def read_pair(name: str) -> Pair:
    """Read a pair with its cards. Raises UsageError with file and line for a mistake in any of them."""
    document = read(Path(name), name, "producer")
    if not isinstance(document.data, Mapping):
        raise SuiteError(f"{name}:1", "a pair is a mapping with `producer:` and `consumer:`")
    file = validated(PairFile, document, _sentence)
    sides = [_side(role, getattr(file, role), document, file.masked_rows) for role in ("producer", "consumer")]
    pair = Pair(name, file, document, *sides)
    _check(pair)
    return pair


def _side(role: str, file: SideFile, document: Document, masked: int) -> Side:
    if file.card is None:
        try:
            whole = suite_of(str(file.recipe)).file
        except UsageError as error:
            raise SuiteError(document.where(role, "recipe"), str(error)) from None
        if whole.pipeline:
            raise SuiteError(
                document.where(role, "recipe"), f"{file.recipe} is a pipeline; name a recipe with kernels of its own"
            )
        return Side(role, file, document, None, masked)
    path = Path(document.name).parent / file.card
    return Side(role, file, document, replace(read_card(str(path)), masked=masked), masked)


def _check(pair: Pair) -> None:
    """Check both sides against their recipes, and masked rows against their flags."""
    found = list(pair.cases())
    for side, cases in ((pair.producer, [each[1] for each in found]), (pair.consumer, [each[2] for each in found])):
        if side.card:
            for case in cases:
                reason = side.card.refuses(case)
                if reason:
                    raise SuiteError(side.where("card"), f"{side.name} is not for {case.data_id}: {reason}")
            side.card.check(cases)
        for name, said in side.file.arrays.items():
            why = side.forms(cases[0]).refuses(name, make_inputs(cases[0])) or _not_weaker(said)
            if why:
                raise SuiteError(side.where("arrays", name), why)
        if pair.file.masked_rows:
            _require_rows(pair, side, cases[0])


def _not_weaker(said: ArrayForm) -> str:
    if said.layout or said.padding == "absent" or said.form != "amax" or said.nibbles != "low" or said.zeros:
        return "a recipe keeps its arrays as the contract says; what may be declared is `padding: anything` and `reads`"
    return ""


def _require_rows(pair: Pair, side: Side, case: Case) -> None:
    where = pair.document.where("masked_rows")
    if side.card is None:
        raise SuiteError(where, f"kernels of the harness know no masked rows, and the {side.role} is {side.recipe}")
    flags = case.flags
    across = {COLUMNWISE.name, "both"} & {str(flags.get("outputs")), str(flags.get("direction"))}
    if across or flags.get("layout") in ("nt",) or case.is_group:
        raise SuiteError(
            where,
            f"masked rows lie behind the rows of one tensor, and {case.data_id} has more than rowwise arrays of it",
        )


def _sentence(document: Document, error: ErrorDetails) -> str:
    route = route_of(document, error)
    if error["type"] == "extra_forbidden":
        part = ArrayForm if "arrays" in route[:-1] else SideFile if len(route) > 1 else PairFile
        return f"unknown key '{route[-1]}'{nearest(route[-1], part.model_fields)}"
    return sentence_of(document, error, "the pair")
