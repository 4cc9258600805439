"""The core schema of YAML 1.2: what a word without quotes is. Null, a truth value, a number, and else text."""

from __future__ import annotations

import re

MOST_DIGITS = 1000  # characters of a number; Python refuses to print an integer of more than 4300 digits

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{f"{sign}.{inf}": float(f"{sign}inf") for sign in ("", "+", "-") for inf in ("inf", "Inf", "INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER = re.compile(
    r"(?P<decimal>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)


def value_of(word: str) -> None | bool | int | float | str:
    """The value of a word without quotes: `on`, `12:30`, `1_000` and `2026-01-01` are text, `012` is 12, `1e-3` 0.001.

    Raises ValueError for a number of more than MOST_DIGITS characters.
    """
    if word in _WORDS:
        return _WORDS[word]
    number = _NUMBER.fullmatch(word)
    if number is None:
        return word
    if len(word) > MOST_DIGITS:
        raise ValueError(f"this number has {len(word)} characters, and one may have {MOST_DIGITS}")
    digits, kind = number[number.lastgroup], number.lastgroup
    return float(digits) if kind == "float" else int(digits, {"decimal": 10, "octal": 8, "hex": 16}[kind])
