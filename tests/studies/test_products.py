"""What a layer loses end to end: every product is within the published bound, and a table says by how much."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from harness import cli
from harness.studies.quality import products
from harness.suite import stage_checks
from harness.suite.suite import find_case, suite_of
from harness.verify.expected import expect, high_precision

PUBLISHED = 0.30  # relative L2 error of a product of quantized tensors, against that of the tensors in bf16
SHAPE = (128, 256, 384)
RECIPES = ("per_tensor", "per_token", "per_token_fused")


@pytest.fixture(scope="module")
def lost() -> list[products.Lost]:
    normal = products.measure("normal", products.named("normal", SHAPE), SHAPE)
    return [*products.measure(products.REAL_NAME, products.real(), products.REAL_SHAPE), *normal]


def test_every_product_of_every_recipe_is_within_the_published_bound(lost):
    measured = {(found.tensors, found.product, found.recipe): found.relative for found in lost}
    assert set(measured) == set(itertools.product(("ffn_up", "normal"), ("y", "dx", "dw"), RECIPES))
    assert all(0.05 < relative < PUBLISHED for relative in measured.values()), measured


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("pipeline", ["forward", "backward"])
def test_a_case_of_the_suites_is_within_the_published_bound(pipeline, recipe):
    """By the demanded bytes of the case itself, and products that are written out here."""
    case = find_case(f"{pipeline}/epilogue={recipe}/128x128x256/normal/eager")
    x, w, dy = (high_precision(case).get(name, np.zeros(1)).astype(np.float64) for name in ("x", "w", "dy"))
    exact = {"y": lambda: x @ w.T, "dx": lambda: dy @ w, "dw": lambda: dy.T @ x}
    outputs = {name.partition(".")[0]: value for name, value in expect(case).values.items() if name.endswith(".output")}
    assert set(outputs) == ({"y"} if pipeline == "forward" else {"dx", "dw"})
    for name, bounds in outputs.items():
        product = exact[name]()
        for end in (bounds.low, bounds.high):
            assert np.linalg.norm(end.astype(np.float64) - product) < PUBLISHED * np.linalg.norm(product)


def test_rotations_that_do_not_cancel_would_show(lost, monkeypatch):
    """The bound is no formality: with x as it is and dy rotated, nothing of dw is left."""
    monkeypatch.setattr(stage_checks, "_refuse_rotations", lambda *copies: None)
    written = suite_of("backward").file.pipeline
    flat = written[0].model_copy(update={"flags": {"outputs": "columnwise"}})
    monkeypatch.setattr("harness.suite.stages._entries", lambda case: [flat, *written[1:]])
    case = find_case("backward/default/128x256x384/normal/eager")
    found = products.relative_errors(case, products.named("normal", SHAPE))
    assert found["dw"] > 1 and found["dx"] < PUBLISHED


def test_the_table_has_recipes_side_by_side(lost):
    table = products.table(lost)
    units = [f"{recipe} {unit}" for unit in ("dB", "L2") for recipe in RECIPES]
    assert list(table.columns) == ["tensors", "product", *units]
    first = lost[0]
    assert table.iloc[0]["per_tensor dB"] == f"{first.snr_db:.2f}"
    assert first.snr_db == pytest.approx(-20 * np.log10(first.relative))


def test_the_command_writes_what_it_shows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(products, "DRAWS", 1)
    argv = ["products", "--input", "normal", "--shape", "128x256x384", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as done:
        cli.main(argv)
    assert done.value.code == 0
    assert "normal" in capsys.readouterr().out
    text = (tmp_path / "products.md").read_text()
    assert f"`harness {' '.join(argv)}`" in text and "| normal | dw |" in text
    assert len(pd.read_csv(tmp_path / "products.csv")) == 9


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--shape", "128x128"], "--shape '128x128' is not a shape; one reads MxKxN"),
        (["--input", "normal", "--shape", "128x128x256"], "M, K and N must differ, not 128, 128, 256"),
        (["--input", "norml"], "there is no input 'norml'; the nearest is 'normal'"),
        (["--input", "normal", "--shape", "24x128x256"], "M = 24 is not a positive multiple of 16"),
    ],
)
def test_a_mistake_is_one_sentence(argv, sentence, capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["products", *argv])
    error = capsys.readouterr().err
    assert done.value.code == 64 and sentence in error and error.count("\n") == 1
