"""Every way in which an oracle's file may define a function, and the ways in which it does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from harness.check import recipe_files
from harness.check.recipe_files import defined
from harness.suite.suite import suite_of


@pytest.mark.parametrize(
    "text",
    [
        "def outputs(case): ...",
        "from harness.oracles.per_tensor import outputs",
        "from harness.oracles.per_tensor import inputs as outputs",
        "from harness.oracles.per_tensor import *",
        "import harness as outputs",
        "outputs = per_tensor.outputs",
        "inputs, outputs = 1, 2",
        "outputs: object = 1",
        "if True:\n  pass\nelse:\n  outputs = 1",
        "try:\n  pass\nexcept ValueError:\n  def outputs(case): ...",
        "class outputs: ...",
    ],
)
def test_it_is_defined(text: str):
    assert "outputs" in defined(ast.parse(text).body)


@pytest.mark.parametrize(
    "text", ["", "outputs: object", "def other():\n  outputs = 1", "outputs.more = 1", "from math import *"]
)
def test_it_is_not_defined(text: str):
    assert "outputs" not in defined(ast.parse(text).body)


def test_nothing_is_known_of_a_star_import_that_fails():
    assert defined(ast.parse("from nosuchmodule import *").body) is None


@pytest.mark.parametrize(
    ("oracle", "sentences"),
    [
        ("from harness.oracles.per_tensor import *\n", []),
        ("from nosuchmodule import *\n", []),
        ("from harness.oracles.layout import *\n", ["outputs", "inputs", "numpy_oracle", "torch_oracle"]),
    ],
)
def test_only_what_is_absent_is_told(tmp_path: Path, oracle: str, sentences: list[str]):
    (tmp_path / "pt.py").write_text(oracle)
    told = list(recipe_files._oracle_errors(suite_of("per_tensor"), tmp_path / "pt.py"))
    assert [each.partition("there is no function '")[2].partition("'")[0] for each in told] == sentences
    assert all("pt.py:1: " in each and "this oracle needs outputs, inputs, " in each for each in told)
