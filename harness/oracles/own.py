"""An oracle of the user's: a file outside of this package, whose mistakes become one sentence with its line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import lru_cache, wraps
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from harness.errors import HarnessError, OracleError


class OwnOracle:
    """A module's functions, of which an exception is an OracleError that quotes the line."""

    def __init__(self, path: Path, module: ModuleType):
        self._path, self._module = path, module
        self.__name__ = module.__name__

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return self._guarded(found) if callable(found) and not isinstance(found, type) else found

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def guarded(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except HarnessError:
                raise
            except Exception as error:
                _refuse(self._path, error)

        return guarded


def load(path: Path) -> OwnOracle:
    """The oracle in a file, loaded again if the file changed. Raises OracleError for what Python refuses."""
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
    except HarnessError:
        raise
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise OracleError(f"{path.name}:{error.lineno}: this is not Python: {error.msg}: `{line}`") from None
    except Exception as error:
        _refuse(path, error)
    return OwnOracle(path, module)


def _refuse(path: Path, error: Exception) -> NoReturn:
    """Raise OracleError with the last line of the file that the error went through."""
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    where = f"{path.name}:{inside[-1].lineno}" if inside else path.name
    line = f": `{inside[-1].line}`" if inside and inside[-1].line else ""
    raise OracleError(f"{where}: the oracle raised {type(error).__name__}: {error}{line}") from error
