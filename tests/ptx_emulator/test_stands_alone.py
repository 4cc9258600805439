"""The emulator stands alone: it imports nothing of the rest of the harness."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ptx_emulator import errors

FOLDER = Path(errors.__file__).parent


def outside(source: str, package: str = "ptx_emulator") -> set[str]:
    """Imports of a file of `package` from the harness outside the emulator, late and by name, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*parents, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in LOADERS:
            found |= {argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    found -= {"ptx_emulator.private_files"}  # a ground file that imports nothing, which test_imports.py holds
    return {name for name in found if f"{name}.".startswith("harness.") and not name.startswith("ptx_emulator.")}


LOADERS = ("import_module", "__import__")


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_file_of_the_emulator_imports_nothing_else_of_the_harness(path: Path) -> None:
    package = ".".join(["ptx_emulator", *path.parent.relative_to(FOLDER).parts])
    assert outside(path.read_text(), package) == set()


@pytest.mark.parametrize(
    "source",
    [
        "from harness.errors import LaunchError",
        "from harness import errors",
        "import harness.errors as errors",
        "def late():\n    from harness.errors import LaunchError",
        "if TYPE_CHECKING:\n    from harness.contract.case import Case",
        "from .. import errors",
        "from ..errors import LaunchError",
        "errors = importlib.import_module('harness.errors')",
        "import_module('harness.errors')",
    ],
)
def test_every_way_to_import_the_rest_of_the_harness_is_seen(source: str) -> None:
    assert outside(source)


def test_the_emulator_and_other_packages_may_be_imported() -> None:
    source = "import numpy as np\nfrom ptx_emulator import ptx\nfrom . import ptx\nfrom .memory import Access"
    assert outside(source) == set()
