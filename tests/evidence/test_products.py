"""What a layer loses end to end stays below what NUMERICS 10.8 derives, and what is broken goes beyond it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from evidence import __main__ as cli
from evidence.products import error_model, layers, product_bounds, products
from evidence.steps.recipes import RECIPES as STEPS
from harness.errors import SuiteError
from harness.expected.expected import expect, high_precision
from harness.oracles import torch_numerics
from harness.quality import measure, tensors, variants
from harness.suite import stage_checks
from harness.suite.stages import stages
from harness.suite.suite import find_case, suite_of

SHAPE = (128, 256, 384)
RECIPES = tuple(product_bounds.RECIPES)
MIXED = {
    "forward": ("rht=false,four_over_six=all,e4m3_use_256=weights", "swizzle=true,columns=per_token"),
    "backward": (
        "rht=false,four_over_six=all,e4m3_use_256=activations",
        "rounding=rne,weight_2d=false,columns=per_token",
    ),
}
RECIPES_BY_FLAGS = tuple(product_bounds.RECIPES.values())
ROWS = product_bounds.load()


@pytest.fixture(scope="module")
def lost() -> list[products.Lost]:
    normal = layers.named("normal", SHAPE)
    return list(products.measure(normal, product_bounds.of_layer(normal)))


def run(capsys, *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        cli.main(["products", *argv])
    printed = capsys.readouterr()
    return done.value.code, printed.out, printed.err


@pytest.mark.slow
def test_every_product_of_the_smoke_set_is_within_its_bound(tmp_path, capsys):
    code, out, err = run(capsys, "--out", str(tmp_path))
    assert code == 0 and not err
    found = pd.read_csv(tmp_path / "products.csv")
    assert (found.relative <= found.bound).all() and (found.apart <= found.apart_bound).all()
    named = {row.tensors for _, row in ROWS if "smoke" in row.sets}
    assert set(found.tensors) == named == {"ffn_up", *tensors.DISTRIBUTIONS}
    assert len(found) == 3 * len(RECIPES) * len(named)
    assert "ABOVE" not in out


def test_a_night_measures_up_to_the_largest_shape():
    assert (1024, 4096, 4096) in {row.shape for _, row in ROWS if "full" in row.sets}


def test_where_the_source_asserts_a_bound_ours_is_no_larger():
    for _, row in ROWS:
        if row.tensors == "normal":
            assert max(max(of.values()) for of in row.bounds.values()) <= product_bounds.PUBLISHED


@pytest.mark.slow
def test_a_bound_says_something_where_all_is_well(lost):
    """Halves of steps are three times their mean squares, so that an error is a little above half of its bound."""
    assert all(0.4 * one.bound < one.relative <= one.bound for one in lost), lost


def test_the_bound_of_one_element_holds_for_every_element():
    """Rounded to nearest, e is the largest error and no mean."""
    for spec in ("per_tensor", "row_scaled", "local_1x64", "per_tensor/block=block_16x16"):
        for name in ("heavy_tail", "outlier_spike", "scale_edges", "row_scales", "normal"):
            layer = layers.named(name, (128, 192, 64))
            x = layer.values["x"]
            case = variants.place(variants.find(spec, "bf16"), *x.shape, name)
            seen, decoded = measure.decoded(case, x)
            amaxes = error_model._amaxes(case, "rowwise", seen)(0, seen)
            most = np.sqrt(error_model._mean_squares(case, seen, amaxes, False))
            error = np.abs(decoded - seen)
            assert (error <= most * (1 + 2.0**-18)).all(), (spec, name)


def cases_of(pipeline):
    normal = layers.named("normal", (128, 128, 256))
    yield from (product_bounds.case_of(pipeline, recipe, normal) for recipe in RECIPES)
    yield from (find_case(f"{pipeline}/{flags}/128x128x256/normal/eager") for flags in MIXED[pipeline])


@pytest.mark.parametrize("case", [*cases_of("forward"), *cases_of("backward")], ids=lambda case: case.id)
def test_a_case_of_the_suites_is_within_its_bound(case):
    """By the demanded bytes of the case itself, and products that are written out here."""
    drawn = high_precision(case)
    x, w, dy = (drawn.get(name, np.zeros(1)).astype(np.float64) for name in ("x", "w", "dy"))
    exact = {"y": lambda: x @ w.T, "dx": lambda: dy @ w, "dw": lambda: dy.T @ x}
    outputs = {name.partition(".")[0]: value for name, value in expect(case).values.items() if name.endswith(".output")}
    limits = error_model.relative_bounds(case, drawn)
    assert set(outputs) == set(limits) == ({"y"} if case.recipe == "forward" else {"dx", "dw"})
    for name, bounds in outputs.items():
        product = exact[name]()
        for end in (bounds.low, bounds.high):
            assert np.linalg.norm(end.astype(np.float64) - product) < limits[name] * np.linalg.norm(product)


def broken_rotation(monkeypatch):
    """x as it is and dy rotated: nothing of dw is left."""
    monkeypatch.setattr(stage_checks, "_refuse_rotations", lambda *copies: None)
    written = suite_of("backward").file.pipeline
    forward = suite_of("forward").file.pipeline
    flat = [
        entry.model_copy(update={"flags": {**entry.flags, "rht": False}}) if entry.stage == "x" else entry
        for entry in written
    ]
    monkeypatch.setattr("harness.suite.stages._entries", lambda case: flat if case.recipe == "backward" else forward)


def broken_codes(monkeypatch):
    """Codes are cut instead of rounded, and the largest is lost."""
    right = torch_numerics.nearest_codes
    monkeypatch.setattr(torch_numerics, "nearest_codes", lambda v: right(v * 0.75))


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "product"), [(broken_rotation, "dw"), (broken_codes, "y")])
def test_what_is_broken_is_red(broken, product, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(products, "DRAWS", 1)
    limits = product_bounds.of_layer
    kept = {}
    monkeypatch.setattr(product_bounds, "of_layer", lambda layer: kept.setdefault(layer.shape, limits(layer)))
    product_bounds.of_layer(layers.named("normal", SHAPE))
    broken(monkeypatch)
    code, out, err = run(capsys, "--input", "normal", "--shape", "128x256x384", "--out", str(tmp_path))
    assert code == 1
    assert (
        f"normal 128x256x384, {product} under per_tensor: L2 " in err
        and "ABOVE" in (tmp_path / "products.md").read_text()
    )


def test_a_product_that_is_no_number_is_beyond_every_bound(lost):
    assert lost[0].holds
    assert not replace(lost[0], relative=math.nan).holds
    assert not replace(lost[0], apart=math.nan).holds
    assert not replace(lost[0], relative=math.inf, bound=1.0).holds


def test_the_tables_have_recipes_side_by_side(lost):
    table = products.against_bf16(lost)
    units = [f"{recipe} {unit}" for unit in ("dB", "L2/bound") for recipe in RECIPES]
    assert list(table.columns) == ["tensors", "MxKxN", "product", *units]
    first = lost[0]
    assert table.iloc[0]["per_tensor dB"] == f"{first.snr_db:.2f}"
    assert first.snr_db == pytest.approx(-20 * np.log10(first.relative))
    beside = products.against_production(lost)
    assert list(beside.columns[3:]) == [f"{recipe} {unit}" for unit in ("dB", "L2/bound") for recipe in RECIPES[1:]]
    gained = next(one for one in lost if one.recipe == "per_token").snr_db - first.snr_db
    assert beside.iloc[0]["per_token dB"] == f"{gained:+.2f}"
    assert {one.apart for one in lost if one.recipe == "per_tensor"} == {0}


def test_a_screen_has_the_error_of_each_recipe_that_comes_nearest_to_its_bound(lost):
    table = products.nearest_bounds(lost)
    assert list(table.recipe) == list(RECIPES) and list(table.columns) == ["recipe", "y", "dx", "dw"]
    near = replace(lost[0], tensors="near", relative=0.999 * lost[0].bound)
    assert products.nearest_bounds([*lost, near]).y[0] == f"{near.relative:.3f}/{near.bound:.3f} near"
    for broken in (replace(lost[0], tensors="broken", relative=math.nan), replace(lost[0], tensors="broken", bound=0)):
        assert products.nearest_bounds([broken, *lost, near]).y[0].endswith(" broken")
    assert "ABOVE" in products.nearest_bounds([replace(lost[0], relative=2.0)]).y[0]


def test_a_file_has_layers_of_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(products, "DRAWS", 1)
    values = layers.named("normal", (64, 128, 192)).values
    path = tmp_path / "mine.safetensors"
    held = {f"up.{part}": values[role] for role, part in layers.ROLES.items()}
    held["up.input"] = np.concatenate([held["up.input"]] * 2)  # of tokens that the gradient has not
    save_file(held, path)
    code, out, err = run(capsys, str(path), "--out", str(tmp_path))
    assert code == 0
    assert {"up"} == set(pd.read_csv(tmp_path / "products.csv").tensors)
    assert "| up | 64x128x192 | dw |" in (tmp_path / "products.md").read_text()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("per_tensor: {y: 0.299,", "per_tensor: {y: 0.3,", "the bound of y under per_tensor is 0.3, and it must"),
        ("per_tensor: {y: 0.299,", "per_tensor: {y: .nan,", "the bound of y under per_tensor is nan"),
        ("per_tensor: {y: 0.299,", "per_tensor: {", "ffn_up has no bound of y under per_tensor; NUMERICS 10.8 gives 0"),
        ("per_tensor: {y: 0.299,", "per_tensor: {z: 0.1, y: 0.299,", "there is no product z under per_tensor"),
    ],
)  # fmt: skip
def test_a_bound_that_is_not_the_models_is_refused_with_its_line(tmp_path: Path, old: str, new: str, sentence: str):
    where, row = written(tmp_path, old, new)[0]
    with pytest.raises(SuiteError, match=rf"products.yaml:\d+: {sentence}"):
        product_bounds.of_row(where, row, row.layer())


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("tensors: ffn_up", "tensors: ffn_pu", "there is no layer 'ffn_pu' in minilm_sample.safetensors"),
        ("sets: [full]", "sets: [ful]", "there is no set 'ful'; there are smoke, full"),
        ("    because: rotated, a rare large element sets the steps of 15 others along M\n", "", "say why, `because:`"),
        ("    bounds:", "    bonds:", "bonds: extra inputs are not permitted|bounds: field required"),
    ],
)
def test_a_wrong_row_is_a_sentence_with_its_line(tmp_path: Path, old: str, new: str, sentence: str):
    with pytest.raises(SuiteError, match=rf"products.yaml:\d+: .*({sentence})"):
        written(tmp_path, old, new)


def test_a_set_without_rows_is_refused(tmp_path: Path):
    head, _, rows = product_bounds.FILE.read_text().partition("rows:\n")
    large = "\n\n".join(row for row in rows.split("\n\n") if "sets: [full]" in row)
    with pytest.raises(SuiteError, match="no row is in the set smoke"):
        written(tmp_path, head + "rows:\n" + rows, head + "rows:\n" + large)


def written(folder: Path, old: str, new: str):
    text = product_bounds.FILE.read_text()
    assert old in text
    path = folder / "products.yaml"
    path.write_text(text.replace(old, new, 1))
    return product_bounds.load(path)


def test_every_way_to_scale_a_product_and_every_recipe_of_the_steps_is_measured():
    named = {str(value) for value in suite_of("forward").file.axes["epilogue"]}
    assert named == {"per_tensor"} | {flags["epilogue"] for flags in RECIPES_BY_FLAGS if "epilogue" in flags}
    assert {recipe.losses for recipe in STEPS} <= set(RECIPES)
    for recipe in STEPS:
        for pipeline in ("forward", "backward"):
            ours = product_bounds.case_of(pipeline, recipe.losses, layers.named("normal", SHAPE)).flags
            theirs = find_case(recipe.case_id(pipeline, "1024x2048x2048", "graph")).flags
            where = ("route", "scale_layout")  # which no product's error depends on
            assert {k: v for k, v in ours.items() if k not in where} == {
                k: v for k, v in theirs.items() if k not in where
            }, (recipe.name, pipeline)


def test_the_model_reads_the_rotation_of_the_stages():
    """Both operands of dw are rotated alike, so that their product is that of the tensors."""
    case = find_case("backward/default/128x256x384/normal/eager")
    (dw,) = (stage for stage in stages(case) if stage.name == "dw")
    values = layers.named("normal", SHAPE).values
    a, b = (error_model._rotate(lines, 0xD7E8) for lines in error_model.exact_operands(dw, values))
    right = values["dy"].astype(np.float64).T @ values["x"].astype(np.float64)
    assert np.linalg.norm(a @ b.T - right) < 1e-9 * np.linalg.norm(right)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--input", "normal", "--shape", "128x128"], "--shape '128x128' is not a shape; one reads MxKxN"),
        (["--shape", "128x128x256"], "--shape 128x128x256 is that of --input, and none was named"),
        (["--set", "full", "--input", "normal"], "--set full is of the layers of products.yaml; leave out --input"),
        (["--input", "norml"], "there is no input 'norml'; the nearest is 'normal'"),
        (["--input", "normal", "--shape", "24x128x256"], "M = 24 is not a positive multiple of 16"),
        (["--input", "specials_nan"], "has elements that are not finite"),
        (["nowhere.safetensors"], "there is no file nowhere.safetensors"),
    ],
)
def test_a_mistake_is_one_sentence(argv, sentence, capsys):
    code, _, error = run(capsys, *argv)
    assert code == 64 and sentence in error and error.count("\n") == 1
