"""How the interpreter is compiled, where its machine code is kept, and how it reaches arrays by their addresses."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.caching import _Cache
from numba.core.codegen import CPUCodegen, CPUCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import intrinsic

from ptx_emulator import private_files, stored
from ptx_emulator.stored import uncollected

OPTIONS = {"error_model": "numpy", "nogil": False}  # a float divided by zero is an infinity, not an exception


class NotStored(Exception):
    """The cache lacks the machine code of a function that may not be compiled now."""


class MachineCode(_Cache):
    """The machine code of one function in the cache.

    Numba's own cache unpickles whatever its folder holds; ours hands it only what this user kept there for this
    emulator, Python, Numba and processor.
    """

    may_compile = True  # of all functions

    def __init__(self, function: Callable):
        self._function, self._on = function.__qualname__, True

    @property
    def cache_path(self) -> str:
        return str(private_files.cache_root() / "emulator")

    def load_overload(self, sig: object, target_context: BaseContext) -> CompileResult | None:
        target_context.refresh()
        try:
            content = private_files.read(Path(self.cache_path), self._name(sig, target_context.codegen()))
        except OSError:
            content = None
        if content is not None and self._on:
            # A pickle may raise anything; what cannot be rebuilt is compiled anew.
            with contextlib.suppress(Exception):
                return CompileResult._rebuild(target_context, *pickle.loads(content))
        if not self.may_compile:
            raise NotStored(self._function)
        return None

    def save_overload(self, sig: object, data: CompileResult) -> None:
        with contextlib.suppress(OSError):
            private_files.write(Path(self.cache_path), self._name(sig, data.codegen), dumps(data._reduce()))

    def _name(self, sig: object, codegen: CPUCodegen) -> str:
        made_by = sys.version, numba.__version__, codegen.magic_tuple()
        text = repr((stored.digest_of_sources(), made_by, self._function, str(sig)))
        return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.machine_code"

    def enable(self) -> None:
        self._on = True

    def disable(self) -> None:
        self._on = False

    def flush(self) -> None:
        """Do nothing: changed source text has another file name, so no entry is ever stale."""


@contextlib.contextmanager
def only_stored() -> Iterator[None]:
    """Within this, a function that the cache lacks raises NotStored instead of being compiled."""
    MachineCode.may_compile = False
    try:
        yield
    finally:
        MachineCode.may_compile = True


def part(function: Callable) -> Callable:
    """Compile a function that only compiled functions of this folder call."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)(function)


def entry(signature: str) -> Callable[[Callable], Callable]:
    """Compile a function that Python calls; its machine code, with all parts, is kept in the cache."""

    def compiled(function: Callable) -> Callable:
        dispatcher = numba.njit(**OPTIONS)(function)
        dispatcher._cache = MachineCode(function)
        with _optimized_once(function.__name__), uncollected():
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return compiled


@contextlib.contextmanager
def _optimized_once(name: str) -> Iterator[None]:
    """Within this, only the function of this name is optimized, with all parts that are linked into it.

    Numba optimizes each part as well, and in it all of its own parts, though nobody calls one alone: two fifths of the
    time to compile. A Numba without the method does so still.
    """
    optimize = getattr(CPUCodeLibrary, "_optimize_final_module", None)

    def once(library: CPUCodeLibrary) -> None:
        if library.name.rpartition(".")[2].partition("$")[0] == name:
            optimize(library)

    if optimize:
        CPUCodeLibrary._optimize_final_module = once
    try:
        yield
    finally:
        if optimize:
            CPUCodeLibrary._optimize_final_module = optimize


@intrinsic
def pointer(typing, address):
    """An integer as a pointer, for `numba.carray`."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic
def fused(typing, a, b, c):
    """a * b + c of float64, rounded once."""

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


def _bitcast(source: types.Type, target: types.Type) -> Callable:
    """Make a function that reads the bits of one type as another."""

    @intrinsic
    def cast(typing, value):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), generate

    return cast


as_float, as_bits = _bitcast(types.uint32, types.float32), _bitcast(types.float32, types.uint32)
as_double, as_wide_bits = _bitcast(types.int64, types.float64), _bitcast(types.float64, types.int64)
