"""Names of the conventions that a subject may declare, which `audit.conventions` knows, and choices of one alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum


class Convention(StrEnum):
    """Known differences between implementations, as a table names them."""

    SCALE_ORDER = "order of the scale product"
    DIVIDER_ORDER = "order of the division"
    ERROR_ORDER = "order of the error sum"
    SCALE_FLOOR = "scale floor"
    ZERO_SCALE_CODES = "codes under a zero scale"
    ZERO_SIGN = "sign of zero"
    ROTATION_ORDER = "order of the rotation's sums"
    RANDOM_BITS = "random bits"
    SPECIALS = "NaN, Inf, or an amax without a finite scale"
    PADDING = "padding"


@dataclass(frozen=True)
class Choice:
    """A difference that an implementation declares.

    step: of docs/numerics.md, where the two part; says: what it does there, and whose rule that is
    without: a context in which it runs by docs/numerics.md at this step and as always elsewhere
    order: it is another order of the same operations
    """

    step: str
    says: str
    without: Callable[[], AbstractContextManager[None]]
    order: bool = False
