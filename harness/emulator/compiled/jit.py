"""How the interpreter is compiled, where its machine code is kept, and how it reaches arrays by their addresses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numba
from numba import types
from numba.core import cgutils, config
from numba.core.caching import UserProvidedCacheLocator
from numba.extending import intrinsic

from harness.emulator import own_text

OPTIONS = {"error_model": "numpy", "nogil": False}  # a float divided by zero is an infinity, not an exception


class ByContent(UserProvidedCacheLocator):
    """Machine code is keyed by the emulator's text, wherever the project lies."""

    def __init__(self, function: Callable, file: str):
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        root = os.environ.get("HARNESS_CACHE") or Path(
            os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "nvfp4-harness"
        )
        self._cache_path = str(Path(root) / "emulator" / self.get_source_stamp()[:16])

    @classmethod
    def from_function(cls, function: Callable, file: str) -> ByContent:
        locator = cls(function, file)
        locator.ensure_cache_path()
        return locator

    def get_source_stamp(self) -> str:
        return own_text.digest()


def part(function: Callable) -> Callable:
    """A function that others of this folder call."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)(function)


def entry(signature: str) -> Callable[[Callable], Callable]:
    """A function that Python calls; its machine code, with all parts, is kept in the cache."""

    def compiled(function: Callable) -> Callable:
        before = config.CACHE_LOCATOR_CLASSES
        config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ByContent.__name__}"
        try:
            return numba.njit(signature, cache=True, **OPTIONS)(function)
        finally:
            config.CACHE_LOCATOR_CLASSES = before

    return compiled


@intrinsic
def pointer(typing, address):
    """An integer as a pointer, for `numba.carray`."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _bitcast(source: types.Type, target: types.Type) -> Callable:
    """What reads the bits of one type as another."""

    @intrinsic
    def cast(typing, value):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), generate

    return cast


as_float, as_bits = _bitcast(types.uint32, types.float32), _bitcast(types.float32, types.uint32)
as_double, as_wide_bits = _bitcast(types.int64, types.float64), _bitcast(types.float64, types.int64)
