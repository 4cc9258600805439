"""The oracle module of a recipe, by its name: ours, or a user's file outside of this package.

A mistake in a user's file, or in what its functions return, becomes one sentence with its line.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from harness.contract.field import Field
from harness.contract.interval import Interval
from harness.errors import HarnessError, OracleError

_FILES: dict[str, Path] = {}  # of users, by recipe
_CHECKED_BY_OUTPUTS = ("numpy_oracle", "torch_oracle")
_FUNCTIONS = ("outputs", "inputs", "inputs_of", "refuse", *_CHECKED_BY_OUTPUTS)


def use(recipe: str, path: Path) -> None:
    """Use a file as the oracle of a user's recipe."""
    _FILES[recipe] = path


def forget() -> None:
    """Stop using files as oracles."""
    _FILES.clear()


def oracle_of(recipe: str) -> Any:
    """The module `harness/oracles/<recipe>.py`, or a user's file. Raises OracleError if that is not valid Python.

    Raises ModuleNotFoundError for a recipe without an oracle, such as a pipeline.
    """
    return _load(_FILES[recipe]) if recipe in _FILES else import_module(f"harness.oracles.{recipe}")


class UsersOracle:
    """A module's functions; an exception or a malformed answer becomes an OracleError with its line."""

    def __init__(self, path: Path, module: ModuleType):
        self._path, self._module = path, module
        self.__name__ = module.__name__

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name in _FUNCTIONS and not callable(found):
            raise OracleError(f"{self._path.name}:1: '{name}' is a {type(found).__name__}; it must be a function")
        return self._guarded(name, found) if callable(found) and not isinstance(found, type) else found

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def guarded(*arguments: Any, **named: Any) -> Any:
            if name in _CHECKED_BY_OUTPUTS and len(arguments) == 2:
                arguments = arguments[0], _copies(arguments[1])
            try:
                answer = function(*arguments, **named)
            except (HarnessError, KeyboardInterrupt):
                raise
            except BaseException as error:  # also SystemExit and pytest's skip and fail
                _refuse(self._path, error, self._line(function))
            found = _wrong(name, answer, self.outputs(arguments[0]) if name in _CHECKED_BY_OUTPUTS else {})
            if found:
                raise OracleError(f"{self._path.name}{self._line(function)}: {found}")
            return answer

        return guarded

    def _line(self, function: Callable[..., Any]) -> str:
        """`:LINE` of a function that this file defines, else an empty text."""
        code = getattr(function, "__code__", None)
        return f":{code.co_firstlineno}" if code and Path(code.co_filename) == self._path else ""


def _load(path: Path) -> UsersOracle:
    """Load the oracle in a file, again if the file changed."""
    try:
        return _loaded(path, path.read_bytes())
    except OSError as error:
        raise OracleError(f"{path}: {error.strerror}; the oracle of a recipe lies beside its suite") from None


@lru_cache(maxsize=64)
def _loaded(path: Path, content: bytes) -> UsersOracle:
    name = f"own_recipe.{path.stem}"
    loader = SourceFileLoader(name, str(path))
    module = module_from_spec(spec_from_loader(name, loader))
    sys.modules[name] = module
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except (HarnessError, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        raise OracleError(f"{path.name}{not_python(error)}") from None
    except BaseException as error:
        _refuse(path, error)
    return UsersOracle(path, module)


def not_python(error: SyntaxError) -> str:
    """The text `:LINE: this is not Python: …`, with the beginning of the line if Python could read it."""
    line = (error.text or "").strip()[:100]
    return f":{error.lineno or 1}: this is not Python: {error.msg}" + (f": `{line}`" if line else "")


def _copies(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Copies for one oracle, so that what it overwrites in place reaches neither the other oracle nor a kernel."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value.clone() for name, value in tensors.items()}


def _refuse(path: Path, error: BaseException, begins: str = "") -> NoReturn:
    """Raise OracleError with the last line of the file that the error went through, else with `begins`."""
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    where = f"{path.name}:{inside[-1].lineno}" if inside else f"{path.name}{begins}"
    line = f": `{inside[-1].line}`" if inside and inside[-1].line else ""
    raise OracleError(f"{where}: the oracle raised {type(error).__name__}: {error}{line}") from error


def _wrong(function: str, answer: Any, fields: Mapping[str, Field]) -> str:
    """A sentence on what is wrong with a function's answer, or "".

    fields: what `outputs` returned for the same case; only the oracles' answers must match it
    """
    if function == "outputs":
        return _not_mapping(function, answer, Field, "Fields") or _no_fields(answer)
    if function == "inputs":
        return _not_mapping(function, answer, np.ndarray, "arrays of NumPy") or _of_objects(answer)
    return _of_oracle(function, answer, fields) if function in _CHECKED_BY_OUTPUTS else ""


def _not_mapping(function: str, answer: Any, kind: type | tuple[type, ...], says: str) -> str:
    if not isinstance(answer, Mapping):
        what = "nothing" if answer is None else f"a {type(answer).__name__}"
        return f"{function} returned {what} and no dict; it returns {says} by name{_forgotten(answer)}"
    for name, value in answer.items():
        if not isinstance(name, str):
            return f"{function}: the name {name!r} is a {type(name).__name__}, and names of parameters are text"
        if not isinstance(value, kind):
            return f"{function}: '{name}' is a {type(value).__name__}, and {function} returns {says}"
    return ""


def _no_fields(answer: Mapping[str, Field]) -> str:
    for name, field in answer.items():
        if not all(isinstance(extent, int | np.integer) and extent >= 0 for extent in field.shape):
            return f"outputs: '{name}' has the shape {field.shape}; extents are integers and not negative"
        try:
            np.dtype(field.dtype)
        except TypeError:
            return f"outputs: '{name}' has the dtype '{field.dtype}', which NumPy does not have"
    return "" if answer else "outputs returned no field"


def _of_objects(answer: Mapping[str, np.ndarray]) -> str:
    objects = [name for name, value in answer.items() if value.dtype.hasobject]
    return f"inputs: '{objects[0]}' holds objects of Python, which no kernel reads" if objects else ""


def _forgotten(answer: Any) -> str:
    return ", so its `return` is missing" if answer is None else ""


def _of_oracle(function: str, answer: Any, fields: Mapping[str, Field]) -> str:
    if function == "numpy_oracle":
        kinds, says = (np.ndarray, Interval), "arrays of NumPy"
    else:
        import torch

        kinds, says = (torch.Tensor, Interval), "tensors of torch"
    found = _not_mapping(function, answer, kinds, says)
    if found:
        return found
    if set(answer) != set(fields):
        return f"{function} returned {_listed(answer)}, and `outputs` has {_listed(fields)}"
    for name, field in fields.items():
        has = f"{str(answer[name].dtype).removeprefix('torch.')} {tuple(answer[name].shape)}"
        if has != f"{field.dtype} {tuple(field.shape)}":
            return f"{function}: '{name}' is {has}, and {field.dtype} {tuple(field.shape)} by `outputs`"
    return ""


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(map(str, names)) or "nothing"
