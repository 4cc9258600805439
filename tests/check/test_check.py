"""`harness check` finds every way in which the three files of a recipe can disagree, with file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from copied_tree import Tree

from harness.check import recipe_files
from harness.errors import Exit
from harness.files import ROOT

KERNEL, ORACLE, SUITE = "harness/kernels/{}.cu", "harness/oracles/{}.py", "suites/{}.yaml"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


def test_the_recipes_agree():
    assert recipe_files.errors() == []


HEAD, LAST = "__global__ void __launch_bounds__(SwizzleTile::kThreads) swizzle(", "in 128x4 tiles\n    int rows"

# recipe, file, what stands there, what stands there instead, what is on the line that is told, the sentence.
# None for the line of the kernel's name.
PLANTED = [
    ("swizzle", SUITE, "kernel: swizzle", "kernel: swizle", "kernel: swizle", "has no kernel 'swizle'; did you mean"),
    ("swizzle", KERNEL, "// Kernels:", "\n__global__ void other(int r) {}//", "__global__", "names the kernel 'other'"),
    ("swizzle", SUITE, "[rowwise,", "[rowise,", "[rowise,", "direction is 'rowise', which is no `Outputs direction`"),
    ("swizzle", KERNEL, f"direction>\n{HEAD}", f"directed>\n{HEAD}", None, "parameter 'directed' names no flag"),
    ("swizzle", KERNEL, "// swizzle: reorders", "// A", "//", "the file must begin with what it is"),
    ("swizzle", KERNEL, f"{LAST}, int cols) {{", f"{LAST}, int cool) {{", None, "nothing binds to parameter 'cool'"),
    ("swizzle", ORACLE, 'else "scale_inv"', 'else "scales"', None, "nothing binds to parameter 'scale_inv'"),
    ("swizzle", ORACLE, "def torch_oracle", "def torch_oracel", "", "there is no function 'torch_oracle'"),
    ("swizzle", ORACLE, "def outputs(", "def outputs(:", "def outputs(", "this is not Python"),
    ("swizzle", ORACLE, "import layout, per", "import layuot, per", "", "it cannot be imported"),
    ("swizzle", SUITE, "inputs: [normal]", "inputs: [nromal]", "inputs: [nromal]", "there is no input 'nromal'; did"),
    ("row_scaled", SUITE, "quality: [default", "quality: [rth=true", "quality:", "has no flag 'rth'; did you mean"),
    ("casts", SUITE, "dtype: [", "dtype: [bf61, ", "dtype: [", "there is no dtype 'bf61'; did you mean 'bf16'?"),
    ("local_1x64", KERNEL, "rowwise_amax,  ", "rowise_amax,  ", None, "'rowise_amax' of local_1x64_quantize is null"),
    ("local_1x64", SUITE, "- when: {rounding: sr}", "- when: {rht: true}", "- cover:", "the oracle refuses local_1x64"),
    ("four_over_six", SUITE, "{amax_state: 16}", "{amax_stat: 16}", "scratch:", "has no pointer 'amax_stat'; did you"),
]  # fmt: skip

CHECK_EACH = """
import json, multiprocessing, sys
from pathlib import Path
from harness.files import ROOT
from harness.check import recipe_files

def told(plant):
    name, file, wrong = plant
    right = Path(file).read_text()
    Path(file).write_text(wrong)
    try:
        return recipe_files.errors([name])
    finally:
        Path(file).write_text(right)

if __name__ == "__main__":
    # A process for each, because suites and oracles are read once.
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(pool.map(told, json.load(sys.stdin), chunksize=1)))
"""


@pytest.fixture(scope="module")
def told(tree: Tree) -> list[list[str]]:
    """The errors that `harness check` gives for each entry of `PLANTED`."""
    wrong = [(recipe, file.format(recipe), planted(*plant)) for plant in PLANTED for recipe, file, *_ in [plant]]
    done = tree.python("-c", CHECK_EACH, stdin=json.dumps(wrong))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def planted(recipe: str, file: str, old: str, new: str, *_: str | None) -> str:
    right = (ROOT / file.format(recipe)).read_text()
    assert old in right
    return right.replace(old, new, 1)


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=lambda number: PLANTED[number][-1])
def test_a_disagreement_is_told_with_its_line(told: list[list[str]], number: int):
    recipe, file, _, _, at, sentence = PLANTED[number]
    text = planted(*PLANTED[number])
    if at is None:
        text = text if file == KERNEL else (ROOT / KERNEL.format(recipe)).read_text()
        file, at = KERNEL, re.search(r"__global__[^{]*?\w+\(\n", text)[0].rpartition(" ")[2]
    line = text.count("\n", 0, text.index(at)) + 1
    assert any(
        problem.startswith(f"{file.format(recipe)}:{line}: ") and sentence in problem for problem in told[number]
    )
    assert all(re.match(r"[\w/.]+:\d+: \w", problem) for problem in told[number])


@pytest.mark.parametrize(
    ("file", "where", "sentence"),
    [
        (KERNEL, "suites/{}.yaml:2", "there is no harness/kernels/swizzle.cu"),
        (ORACLE, "suites/{}.yaml:2", "there is no harness/oracles/swizzle.py"),
        (SUITE, "harness/kernels/{}.cu:1", "there is no suites/swizzle.yaml; a recipe is"),
    ],
)
def test_a_file_that_is_not_there(tree: Tree, file, where, sentence):
    path = Path(tree.root, file.format("swizzle"))
    right = path.read_text()
    path.unlink()
    try:
        done = tree.run("harness", "check", "swizzle")
    finally:
        path.write_text(right)
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith(f"{where.format('swizzle')}: {sentence}")


def test_an_oracle_without_anything_else_and_a_kernel_of_a_pipeline(tree: Tree):
    """A helper of oracles, which answers for no bytes, needs neither a kernel nor a suite."""
    alone, helper = (Path(tree.root, ORACLE.format(name)) for name in ("alone", "helper"))
    kernel = Path(tree.root, KERNEL.format("forward"))
    alone.write_text("def numpy_oracle(case, tensors): ...\n")
    helper.write_text("def half(x): ...\n")
    kernel.write_text("// forward: two files too many.\n")
    try:
        done = tree.run("harness", "check")
    finally:
        for path in (alone, helper, kernel):
            path.unlink()
    assert done.returncode == Exit.USAGE
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [
        "harness/oracles/alone.py:1", "harness/kernels/forward.cu:1"
    ]  # fmt: skip


def test_a_recipe_that_is_not_there(tree: Tree):
    done = tree.run("harness", "check", "swizle")
    assert done.returncode == Exit.USAGE and "there is no recipe 'swizle'; did you mean 'swizzle'?" in done.stderr
