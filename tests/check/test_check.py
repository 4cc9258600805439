"""`harness check` finds every way in which the three files of a recipe can disagree, with file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from copied_tree import Tree

from harness.check import recipe_files, set_rules
from harness.errors import ContractError, Exit
from harness.expected import expected
from harness.files import ROOT
from harness.suite.suite import suite_of

KERNEL, ORACLE, SUITE = "harness/kernels/{}.cu", "harness/oracles/{}.py", "suites/{}.yaml"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.mark.slow
def test_the_recipes_agree():
    assert recipe_files.errors() == []


NUMPY, TILE, REFUSE = "import numpy as np\n", '#include "memory/swizzle_tile.cuh"\n', "    refuse(case)\n"
WIDE = ", ".join(f"[16, {16 * blocks}]" for blocks in range(21, 94))
LOAD = "patch.load_compact(scale_inv);"
HEAD, LAST = "__global__ void __launch_bounds__(SwizzleTile::kThreads) swizzle(", "in 128x4 tiles\n    int rows"

# recipe, file, what stands there, what stands there instead, what is on the line that is told, the sentence.
# None for the line of the kernel's name, and a pair for a line of another file.
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
    # What only a recipe of the tree keeps: texts
    ("swizzle", KERNEL, "// Kernels:", "\nconstexpr float kSix = 6.0f;//", "kSix", "the number or instruction '6.0"),
    ("swizzle", KERNEL, LOAD, 'asm("cvt.u8.u32");', "cvt.", "the number or instruction 'cvt.' is the"),
    ("swizzle", KERNEL, TILE, f'#include "numerics/rht.cuh"\n{TILE}', "numerics/", "nothing of numerics/rht.cuh is"),
    ("swizzle", KERNEL, TILE, f'#include "scheduler/launch.cuh"\n{TILE}', "scheduler/", "of the alphabet:"),
    ("swizzle", KERNEL, "scale_inv,     // (", "scale_inv,     // x(", "// x(", "a pointer says its shape, as in `"),
    ("swizzle", KERNEL, " 1.7)", " 1.8.9)", "1.8.9", "1.8.9 is no section of docs/numerics.md"),
    ("swizzle", KERNEL, "// Kernels:", "//\n" * 650, 651, "at most 650 are read at once"),
    ("swizzle", ORACLE, NUMPY, f"import harness.jit.nvrtc\n{NUMPY}", "harness.jit", "knows nothing of harness.jit.nv"),
    ("swizzle", ORACLE, REFUSE, "    assert case\n", "    assert", "an assert is left out by `python -O`"),
    ("swizzle", ORACLE, REFUSE, "    case and np.isclose(1, 1)\n", "isclose", "the tolerance 'isclose' is none"),
    ("swizzle", ORACLE, NUMPY, f'{NUMPY}import os\nos.environ.get("HOME")\n', "HOME", "it reads HOME of the environ"),
    ("dequantize", ORACLE, "  2. out", "  out", '"""', "the docstring has the steps 1, 3, and NUMERICS 9 in docs"),
    ("swizzle", SUITE, "# yaml-language", "# yml-language", "#", "editors do not find its schema; the first line is"),
    ("swizzle", SUITE, "NUMERICS 1", "section 1", "section", "contract is 'section 1', no section of docs/nu"),
    ("forward", SUITE, " 3, 7, 10", " 99", " 99", " 99', no section of docs/numerics.md"),
    # ... and cases
    ("swizzle", SUITE, "[256, 192]]", f"{WIDE}]", "smoke:", "the set smoke has 166 cases; at most 160 are run"),
    ("swizzle", SUITE, "full:\n    - cover: product", "full:\n    - cover: each", "full:", "=columnwise and to=comp"),
    ("swizzle", ORACLE, REFUSE, "    if case.rows == 304:\n        raise layout.ContractError('odd')\n",
     (SUITE, "- cover: product\n      shapes: [[16, 16], [16, 128]"), "refuses swizzle/default/304x304/normal/eager"),
    ("dequantize", ORACLE, "    flags = case.flags\n", "    return\n    flags = case.flags\n", (SUITE, "exclude:"),
     "the suite excludes combinations, and its oracle refuses none"),
    ("dequantize", ORACLE, "    flags = case.flags\n",
     "    flags = case.flags\n    if flags.granularity == 'window':\n        {448: 0}[flags.e4m3_max]\n",
     (SUITE, "exclude:"), "`refuse` of the oracle raised KeyError: 256; it raises ContractError, or nothing"),
    ("dequantize", SUITE, "inputs: [zeros]", "inputs: [normal]", "- inputs: [normal]", "no case needs this entry, zer"),
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
    if isinstance(at, tuple):
        file, at = at
        text = text if file == PLANTED[number][1] else (ROOT / file.format(recipe)).read_text()
    if at is None:
        text = text if file == KERNEL else (ROOT / KERNEL.format(recipe)).read_text()
        file, at = KERNEL, re.search(r"__global__[^{]*?\w+\(\n", text)[0].rpartition(" ")[2]
    line = at if isinstance(at, int) else text.count("\n", 0, text.index(at)) + 1
    assert any(
        problem.startswith(f"{file.format(recipe)}:{line}: ") and sentence in problem for problem in told[number]
    )
    assert all(re.match(r"[\w/.]+:\d+: \w", problem) for problem in told[number])


def test_an_oracle_may_refuse_what_the_suite_excludes_and_nothing_else():
    suite, oracle = suite_of("dequantize"), expected.oracle_of("dequantize")
    assert list(set_rules._refusal_errors(suite, oracle)) == []

    def refuse(case):
        oracle.refuse(case)
        if case.flags.dtype == "fp32":
            raise ContractError("odd")

    (told,) = set_rules._refusal_errors(suite, SimpleNamespace(refuse=refuse))
    assert told.endswith(": the oracle refuses dtype=fp32: odd; the suite must exclude it, too")


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
    asked = "from harness.check import recipe_files as r; print(r.stems(), *r.errors(['alone', 'forward']), sep='\\n')"
    try:
        stems, *told = tree.python("-c", asked).stdout.splitlines()
    finally:
        for path in (alone, helper, kernel):
            path.unlink()
    assert "'alone'" in stems and "'helper'" not in stems
    assert [line.split(": ")[0] for line in told] == ["harness/oracles/alone.py:1", "harness/kernels/forward.cu:1"]


def test_a_recipe_that_is_not_there(tree: Tree):
    done = tree.run("harness", "check", "swizle")
    assert done.returncode == Exit.USAGE and "there is no recipe 'swizle'; did you mean 'swizzle'?" in done.stderr


def test_an_oracle_that_cannot_refuse_what_its_suite_excludes():
    (told,) = set_rules._refusal_errors(suite_of("row_scaled"), SimpleNamespace())
    assert re.match(r"suites/row_scaled.yaml:\d+: .* its oracle has no function 'refuse', which refuses the same", told)
