"""Names of the conventions that a subject may declare; `audit.conventions` knows what each explains."""

from __future__ import annotations

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
