"""The form of a pair: pydantic models, as for cards."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from harness.subjects.card.schema import ArrayForm, Part
from harness.suite.schema import Value


def _spelled(value: object) -> object:
    """A shape as suites write it, `[48, 80]`, as ids do."""
    return "x".join(map(str, value)) if isinstance(value, list) else value


Shape = Annotated[str, BeforeValidator(_spelled)]


class SideFile(Part):
    """One kernel of the pair: a card, or a recipe of the harness."""

    card: str | None = None
    """The card of compiled kernels; a path from the folder of this file. What it promises or demands stands there."""
    recipe: str | None = None
    """In place of a card, one of our recipes, whose kernels run."""
    flags: dict[str, Value] = {}
    """Flags of its recipe. One that is absent has the first value that the card names, or the recipe's default."""
    arrays: dict[str, ArrayForm] = {}
    """What a recipe promises or demands less than the contract, by array."""

    @model_validator(mode="after")
    def _one_of_two(self) -> SideFile:
        if (self.card is None) == (self.recipe is None):
            raise ValueError("a side has either the key 'card' or the key 'recipe'")
        if self.card is not None and self.arrays:
            raise ValueError("a card has `arrays` of its own; declare there what it promises or demands")
        return self


class PairFile(Part):
    """A producer, a consumer, and the arrays that go from one to the other."""

    producer: SideFile
    consumer: SideFile
    reads: dict[str, str] = {}
    """Array of the consumer → output of the producer that it is; those of the same tensor, if absent."""
    shapes: Annotated[list[Shape], Field(min_length=1)]
    """The tensors, or the products MxKxN, as case ids spell them: `48x80`, `0+128+256x144`, `48x80x32`."""
    inputs: Annotated[list[str], Field(min_length=1)] = ["normal"]
    """Names of distributions."""
    masked_rows: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Rows of every allocation behind those of the tensor; what they hold in the producer's input is anything."""
