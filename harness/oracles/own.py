"""A user's oracle: a file outside of this package, whose mistakes become one sentence with its line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from harness.errors import HarnessError, OracleError
from harness.oracles.own_answers import HELD_TO_OUTPUTS, wrong


class OwnOracle:
    """A module's functions; an exception or a malformed answer becomes an OracleError with its line."""

    def __init__(self, path: Path, module: ModuleType):
        self._path, self._module = path, module
        self.__name__ = module.__name__

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return self._guarded(name, found) if callable(found) and not isinstance(found, type) else found

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def guarded(*arguments: Any, **named: Any) -> Any:
            if name in HELD_TO_OUTPUTS and len(arguments) == 2:
                arguments = arguments[0], _copies(arguments[1])
            try:
                answer = function(*arguments, **named)
            except (HarnessError, KeyboardInterrupt):
                raise
            except BaseException as error:  # also SystemExit and pytest's skip and fail
                _refuse(self._path, error, self._line(function))
            found = wrong(name, answer, self.outputs(arguments[0]) if name in HELD_TO_OUTPUTS else {})
            if found:
                raise OracleError(f"{self._path.name}{self._line(function)}: {found}")
            return answer

        return guarded

    def _line(self, function: Callable[..., Any]) -> str:
        """`:LINE` of a function that this file defines, else an empty text."""
        code = getattr(function, "__code__", None)
        return f":{code.co_firstlineno}" if code and Path(code.co_filename) == self._path else ""


def load(path: Path) -> OwnOracle:
    """Load the oracle in a file, again if the file changed. Raises OracleError if Python cannot load it."""
    try:
        return _loaded(path, path.read_bytes())
    except OSError as error:
        raise OracleError(f"{path}: {error.strerror}; the oracle of a recipe lies beside its suite") from None


@lru_cache(maxsize=64)
def _loaded(path: Path, content: bytes) -> OwnOracle:
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
    return OwnOracle(path, module)


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
