from __future__ import annotations

import keyword
import re
import shlex
import sys
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import UsageError
from harness.files import PACKAGE, write_text
from harness.ground.command_lines import this_harness
from harness.suite.suite_file import is_ours

_TEMPLATES = PACKAGE / "commands" / "templates"
_SUFFIXES = (".cu", ".py", ".yaml")
# What the harness imports: in the folder where recipes are written, a file or folder of such a name could hide it.
IMPORTED = {
    *sys.stdlib_module_names,
    "click", "cuda", "cupy", "distributed", "elftools", "evidence", "filelock", "harness", "humming", "jinja2",
    "junitparser", "matplotlib", "mkdocs", "ml_dtypes", "numba", "numpy", "pandas", "platformdirs", "pydantic",
    "pydantic_core", "ptx_emulator", "pynvml", "pytest", "pytest_benchmark", "rich", "safetensors", "scipy", "torch",
    "torchao", "triton", "xdist", "yaml",
}  # fmt: skip


@click.command()
@click.argument("name")
@_shared.out("(./NAME)", "--into")
def command(name: str, into: Path | None) -> None:
    """Write a recipe of yours, NAME.cu, NAME.py and NAME.yaml, which passes as it is.

    It quantizes rows to e2m1 with e4m3 scales. Change its kernel, its oracles and its cases, and verify again.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"'{name}' is no name of a recipe; one is made of a-z, 0-9 and _, as in my_recipe")
    if is_ours(name):
        raise UsageError(f"there is a recipe '{name}' in the harness; choose another name")
    if name in IMPORTED:
        raise UsageError(f"'{name}' is the name of a Python module that the harness imports; choose another name")
    folder = into or Path(name)
    paths = [folder / f"{name}{suffix}" for suffix in _SUFFIXES]
    for path in paths:
        if path.exists():
            raise UsageError(f"{path} is there already; name another folder with --into, or remove it")
    for path in paths:
        text = (_TEMPLATES / f"recipe{path.suffix}.txt").read_text(encoding="utf-8")
        write_text(path, text.replace("NAME", name))
    for path in paths:
        click.echo(path)
    click.echo(f"next: {shlex.join([*this_harness(Path.cwd()), 'verify', '--recipe-dir', str(folder)])}")
