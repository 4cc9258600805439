"""A user's recipes, in a folder outside of the tree: S.cu, S.py and S.yaml, found by name like ours."""

from __future__ import annotations

from pathlib import Path

from harness import files
from harness.errors import UsageError
from harness.oracles import by_recipe


def use_recipe_dir(folder: Path) -> tuple[str, ...]:
    """Make the recipes of a folder known by name, and return their names.

    Raises UsageError for a folder without a suite, and for a recipe whose name is taken.
    """
    folder = files.resolved_path(folder)
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
        if (folder / f"{name}.cu").is_file() or (folder / f"{name}.py").is_file():  # a pipeline has neither file
            by_recipe.use(name, folder / f"{name}.py")
    return names


def is_ours(name: str) -> bool:
    """Whether a suite, an oracle or a kernel of the harness has this name."""
    ours = files.SUITES / f"{name}.yaml", files.PACKAGE / "oracles" / f"{name}.py", files.KERNELS / f"{name}.cu"
    return any(path.is_file() for path in ours)
