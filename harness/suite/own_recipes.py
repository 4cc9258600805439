"""Recipes of the user's, in a folder outside of the tree: S.cu, S.py and S.yaml, found by their name like ours."""

from __future__ import annotations

import shlex
from pathlib import Path

from harness import files
from harness.errors import UsageError
from harness.inputs import tensor_file
from harness.oracles import by_recipe


def use_recipe_dir(folder: Path) -> tuple[str, ...]:
    """Have the recipes of a folder found by their names, which it returns.

    Raises UsageError for a folder without a suite, and for a recipe whose name is taken.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} with recipes; `harness new NAME` makes one")
    names = tuple(sorted(path.stem for path in folder.glob("*.yaml")))
    if not names:
        raise UsageError(f"{folder} has no suite S.yaml beside S.cu and S.py; `harness new NAME` writes the three")
    for name in names:
        if is_ours(name) or files.recipe_dir(name) not in (None, folder):
            where = "the harness" if is_ours(name) else str(files.recipe_dir(name))
            raise UsageError(f"{folder / name}.yaml: the name '{name}' is taken by a file of {where}; choose another")
    for name in names:
        files.RECIPE_DIRS[name] = folder
        if (folder / f"{name}.cu").is_file() or (folder / f"{name}.py").is_file():  # a pipeline has neither
            by_recipe.use(name, folder / f"{name}.py")
    return names


def is_ours(name: str) -> bool:
    """Whether a suite, an oracle or a kernel of the harness has this name."""
    ours = files.SUITES / f"{name}.yaml", files.PACKAGE / "oracles" / f"{name}.py", files.KERNELS / f"{name}.cu"
    return any(path.is_file() for path in ours)


def recipe_dir_option(case_id: str) -> str:
    """` --recipe-dir DIR` for a case of an own recipe, for commands that are shown; empty for ours."""
    folder = files.recipe_dir(case_id.partition("/")[0])
    if folder is None:
        return ""
    here = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return f" --recipe-dir {shlex.quote(str(here))}"


def verify_command(case_id: str) -> str:
    """The command line that verifies one case again."""
    own = recipe_dir_option(case_id)
    if own or files.INSTALLED or f"/{tensor_file.PREFIX}/" in case_id:  # of a recipe or a tensor of the user's
        return f"harness verify{own} --case '{case_id}'"
    return f"make verify CASE='{case_id}'"
