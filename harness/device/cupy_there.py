"""Whether CuPy is there. It is installed only where there is a GPU."""

from __future__ import annotations

from importlib.machinery import NamespaceLoader


def require_cupy() -> None:
    """Import CuPy. Raises ImportError if it is absent, also where only a folder on `sys.path` has its name.

    Python imports such a folder, as the one that a clone of CuPy's repository makes, as an empty package.
    """
    import cupy

    if isinstance(getattr(getattr(cupy, "__spec__", None), "loader", None), NamespaceLoader):
        raise ImportError(
            f"No module named 'cupy'; the folder {next(iter(cupy.__path__))} is not CuPy, but has its name"
        )


def has_cupy() -> bool:
    try:
        require_cupy()
    except ImportError:
        return False
    return True
