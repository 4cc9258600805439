"""Bind a card: its launches with extents and arguments for one case, as `harness.device` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from harness.contract.case import Case
from harness.device.launches import Arrays, BoundLaunch, Constant, Launches, Zeroed
from harness.errors import LaunchError, SuiteError, UsageError
from harness.subjects.card.arguments import bytes_of, extents_of
from harness.subjects.card.card import Card
from harness.subjects.card.code import Code
from harness.subjects.card.forms import Starts
from harness.subjects.card.schema import Argument, CardLaunch
from harness.suite.sizes import size_of

_LEFT = "; name it under workspace, and `zero` it before its launch, if that is how the kernel is used"


def card_launches(card: Card, case: Case, code: Code, starts: Callable[[], Starts] | None = None) -> Launches:
    """The launches of a case. Raises SuiteError for an extent or an argument that no launch can have.

    code: for the device; starts: of the tensors of a group, the case's own by default
    """
    numbers = card.numbers(case)
    starts = cache(starts or (lambda: card.tensor_starts(case)))

    def content(argument: Argument, arrays: Arrays, where: str) -> bytes:
        try:
            return bytes_of(argument, arrays, numbers, starts)
        except (UsageError, LaunchError) as error:  # of a number that does not fit, or a tensor map
            raise SuiteError(where, str(error)) from None

    def constant(name: str, said: Argument) -> Constant:
        where, variable = card.document.where("constants", name), code.variable(name)
        return Constant(variable.name if variable else name, where, lambda arrays: content(said, arrays, where))

    def bound(number: int, each: CardLaunch) -> BoundLaunch | Zeroed:
        if each.zero is not None:
            return Zeroed(each.zero)
        where, kernel = card.document.where("launches", number), str(each.kernel)

        def arguments(arrays: Arrays) -> Iterator[tuple[str, Any]]:
            for argument in each.arguments:
                yield argument.kind, content(argument, arrays, where)

        try:
            grid, block, cluster = (extents_of(said, numbers) for said in (each.grid, each.block, each.cluster or []))
            return BoundLaunch(
                code, code.symbol(kernel), kernel, (grid,), block, arguments, cluster if each.cluster else None,
                size_of(each.shared, numbers), each.early, each.cooperative, by_address=True, where=where,
            )  # fmt: skip
        except UsageError as error:
            raise SuiteError(where, str(error)) from None

    return Launches(
        tuple(bound(number, each) for number, each in card.launches(case)),
        {name: size_of(size, numbers) for name, size in card.file.scratch.items()},
        {name: size_of(size, numbers) for name, size in card.file.workspace.items()},
        _LEFT,
        (card.label,),  # tells this card's times from another card's
        tuple(constant(name, said) for name, said in card.file.constants.items()),
    )
