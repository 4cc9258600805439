"""A recipe is three files: in a copy of the tree, a new one is checked, tested and verified without another edit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from copied_tree import Tree

from harness.files import ROOT

KERNEL = """\
// toy: the high byte of every bf16 value, inverted at will.
//
// Contract (NUMERICS 1): high = bits >> 8 of the input, or its complement.
struct Launch {
  int tile_rows, tile_cols, threads, blocks_per_sm, schedule;
};

template <bool invert>
__global__ void toy_high_bytes(
    const unsigned short* __restrict__ input,  // (rows, cols)
    unsigned char* __restrict__ high,          // (rows, cols)
    int rows, int cols) {
  const int row = (blockIdx.z * gridDim.y + blockIdx.y) * 16 + threadIdx.x / 16;
  const int col = blockIdx.x * 16 + threadIdx.x % 16;
  if (row >= rows || col >= cols) return;
  const unsigned char byte = input[row * cols + col] >> 8;
  high[row * cols + col] = invert ? ~byte : byte;
}

__constant__ Launch toy_high_bytes_launch = {16, 16, 256, 0, 0};
"""

ORACLE = '''\
"""toy: the high byte of every bf16 value, inverted at will."""

from __future__ import annotations

import numpy as np

IMPORTS


def outputs(case: Case) -> dict[str, Field]:
    """`high` (rows, cols) uint8."""
    return {"high": Field((case.rows, case.cols), "uint8")}


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`input` (rows, cols), as it is."""
    return {"input": x}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The high bytes."""
    high = (tensors["input"].view(np.uint16) >> 8).astype(np.uint8)
    return {"high": ~high if case.flags.invert else high}


def torch_oracle(case: Case, tensors: dict) -> dict:
    """The same, from the bytes as they lie in memory."""
    import torch

    high = tensors["input"].view(torch.uint8)[:, 1::2].contiguous()
    return {"high": high ^ 255 if case.flags.invert else high}
'''

SUITE = """\
# yaml-language-server: $schema=schema.json
recipe: toy
contract: NUMERICS 1

axes:
  dtype: [bf16]
  invert: [false, true]

launches:
  - kernel: toy_high_bytes

sets:
  smoke: &smoke
    - cover: product
      shapes: [[48, 80]]
      inputs: [normal]
  full: *smoke
  bench: *smoke
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    # What an oracle may import is taken from one that is there.
    casts = (ROOT / "harness" / "oracles" / "casts.py").read_text()
    imports = "\n".join(re.findall(r"^from harness\..* import (?:Case|Field)$", casts, re.MULTILINE))
    files = {"harness/kernels/toy.cu": KERNEL, "harness/oracles/toy.py": ORACLE.replace("IMPORTS", imports)}
    for name, text in {**files, "suites/toy.yaml": SUITE}.items():
        Path(tree.root, name).write_text(text)
    return tree


def test_its_files_agree(tree: Tree):
    done = tree.run("harness", "check")
    assert all("suites/compared.csv: toy, set " in line for line in done.stderr.splitlines()), done.stderr
    assert "the line is missing; run `harness check --write`" in done.stderr
    assert tree.run("harness", "check", "--write").returncode == 0
    done = tree.run("harness", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(" wait for a time, " in line for line in done.stdout.splitlines()), done.stdout


def test_what_is_tested_of_all_recipes_holds(tree: Tree):
    places = {path.name: str(path.relative_to(tree.root)) for path in Path(tree.root, "tests").rglob("test_*.py")}
    tests = [
        places["test_structure.py"],
        places["test_readme.py"] + "::test_every_recipe_has_a_row_with_its_contract_and_flags",
        places["test_suite.py"] + "::test_sets_stay_as_small_as_promised",
        places["test_suite.py"] + "::test_every_case_is_found_again_by_its_id[toy]",
        places["test_coverage.py"] + "::test_no_legal_pair_of_flags_is_left_out_of_a_full_set[toy]",
    ]
    done = tree.run("pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout


def test_it_is_verified(tree: Tree):
    suite = ("suites/toy.yaml", "--set", "smoke", "--device", "emulator", "--run-dir", "out")
    done = tree.run("pytest", "-q", "-p", "no:cacheprovider", *suite)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
