"""Whether the emulator reports what GPUs bear, too (`ptx_emulator.races.borne`): `--strict`, for all of a process."""

from __future__ import annotations

_CHOSEN: list[bool] = []


def use_strict() -> None:
    """From now on, launches of this process that do not say otherwise are strict."""
    _CHOSEN[:] = [True]


def strict() -> bool:
    return bool(_CHOSEN)


def strict_option(name: str = "--strict") -> list[str]:
    """The word that makes another process strict, if this one is; pytest's is `--strict-ptx`."""
    return [name] if strict() else []
