"""A recipe is three files: in a copy of the tree, a new one is checked, tested and verified without another edit."""

from __future__ import annotations

from pathlib import Path

import pytest
from copied_tree import Tree

NAME = "plain"
# Tests on how all recipes are found and listed. All else is `harness check`.
TESTS = {
    "test_structure.py": "::test_a_recipe_is_a_kernel_a_suite_and_an_oracle",
    "test_readme.py": "::test_every_recipe_has_a_row_with_its_contract_and_flags",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    done = tree.run("harness", "new", NAME, "--in-tree")
    assert done.returncode == 0, done.stderr
    kernel, oracle, suite, counts, after = done.stdout.splitlines()
    assert (kernel, oracle) == (f"harness/kernels/{NAME}.cu", f"harness/oracles/{NAME}.py")
    assert (suite, counts) == (f"suites/{NAME}.yaml", "suites/compared.csv")
    assert after.endswith(f"harness verify {NAME}")
    return tree


@pytest.mark.slow
def test_its_files_agree_and_it_is_counted(tree: Tree):
    done = tree.run("harness", "check", NAME)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # It stands where `harness check --write` would put it.
    recipes = [line.partition(",")[0] for line in Path(tree.root, "suites/compared.csv").read_text().splitlines()[1:]]
    assert NAME in recipes and recipes == sorted(recipes)


@pytest.mark.slow
def test_what_is_tested_of_all_recipes_holds(tree: Tree):
    places = {path.name: str(path.relative_to(tree.root)) for path in Path(tree.root, "tests").rglob("test_*.py")}
    tests = [places[file] + test for file, test in TESTS.items()]
    done = tree.run("pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_it_is_verified(tree: Tree):
    words = ("verify", NAME, "--device", "emulator", "--jobs", "0", "--run-dir", "out")
    done = tree.run("harness", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "22 selected, 22 compared, 0 excluded"
