from __future__ import annotations

import keyword
import re
import shlex
import sys
from pathlib import Path

import click

from harness.check import compared
from harness.commands import _shared
from harness.errors import UsageError
from harness.files import KERNELS, PACKAGE, SUITES, write_text
from harness.ground.command_lines import this_harness
from harness.records.run_folder import shown
from harness.suite.suite import suite_of
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


# Before lines of a template that only a recipe of one's own has, or one in the tree, which our rules are about
_MARKER = re.compile(r"(?://|#)[{}]+(?: (own|tree))?\n")


@click.command()
@click.argument("name")
@_shared.out("(./NAME)", "--into")
@click.option("--in-tree", is_flag=True, help="in a checkout: write it into our own folders, for everybody")
def command(name: str, into: Path | None, in_tree: bool) -> None:
    """Write a recipe of yours, NAME.cu, NAME.py and NAME.yaml, which passes as it is.

    It quantizes rows to e2m1 with e4m3 scales. Change its kernel, its oracles and its cases, and verify again.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"'{name}' is no name of a recipe; one is made of a-z, 0-9 and _, as in my_recipe")
    if is_ours(name):
        raise UsageError(f"there is a recipe '{name}' in the harness; choose another name")
    if name in IMPORTED:
        raise UsageError(f"'{name}' is the name of a Python module that the harness imports; choose another name")
    if in_tree:
        _shared.require_checkout("new --in-tree")
        if into:
            raise UsageError("--into names a folder of yours, and --in-tree is the tree; give one of them")
        folders = [KERNELS, PACKAGE / "oracles", SUITES]
    else:
        folders = [into or Path(name)] * len(_SUFFIXES)
    paths = [folder / f"{name}{suffix}" for folder, suffix in zip(folders, _SUFFIXES, strict=True)]
    for path in paths:
        if path.exists():
            raise UsageError(f"{path} is there already; name another folder with --into, or remove it")
    for path in paths:
        text = (_TEMPLATES / f"recipe{path.suffix}.txt").read_text(encoding="utf-8")
        write_text(path, _rendered(text, "tree" if in_tree else "own").replace("NAME", name))
    words = ["verify", *([name] if in_tree else ["--recipe-dir", str(folders[0])])]
    if in_tree:
        counts = {**compared.read(), **compared.counts([suite_of(name)])}
        paths.append(compared.write(dict(sorted(counts.items(), key=lambda count: count[0][0]))))
    for path in paths:
        click.echo(shown(path) if in_tree else path)
    click.echo(f"next: {shlex.join([*this_harness(Path.cwd()), *words])}")


def _rendered(template: str, place: str) -> str:
    kept, only = [], ""
    for line in template.splitlines(keepends=True):
        if marker := _MARKER.fullmatch(line):
            only = marker[1] or ""
        elif only in ("", place):
            kept.append(line)
    return "".join(kept)
