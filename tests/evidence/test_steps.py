"""What a step costs: figures of one run alone, launches of both sides, and nothing where nothing was measured."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner
from timed_runs import HEADER, record

from evidence.commands import steps as steps_command
from evidence.docs import choice, training
from evidence.steps import recipes, tables
from evidence.steps.recipes import FUSED, MODES, PRODUCTION, RECIPES, SET, UNFUSED, layer, shapes
from evidence.steps.runs import launches, read
from harness.errors import Exit, UsageError
from harness.report.tables import write_jsonl
from harness.suite.suite import suite_of

SHAPE = (4096, 2048)


def bench(folder: Path, cases: dict[str, float], name: str = "bench", **changes) -> Path:
    """A bench of these cases in so many microseconds, in both modes; eager takes 1 more."""
    lines = [
        record(f"{case}/{mode}", us + (mode == "eager"), noise=0, launches=7, **changes)
        for case, us in cases.items()
        for mode in MODES
    ]
    path = folder / f"{name}.jsonl"
    write_jsonl(path, HEADER, lines)
    return path


def step_of(recipe, pipeline: str = "forward") -> str:
    return recipe.case_id(pipeline, layer(SHAPE), "graph").removesuffix("/graph")


def lines_of(page: str, title: str) -> list[list[str]]:
    part = page.partition(f"## {title}")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("|")][2:]


def row(page: str, title: str, *begins: str) -> list[str]:
    (found,) = [line for line in lines_of(page, title) if line[: len(begins)] == list(begins)]
    return found


# What is asked for


def test_every_case_that_the_tables_show_is_in_a_set_that_a_bench_runs():
    named = {name: {case.id for case in suite_of(name).cases(SET)} for name in ("gemm", "forward", "backward")}
    for recipe in RECIPES:
        for pipeline in tables.PIPELINES:
            for shape in shapes():
                for mode in MODES:
                    assert recipe.case_id(pipeline, layer(shape), mode) in named[pipeline]
    of_layers = 2 * len(RECIPES) * len(shapes()) * len(MODES)
    assert len(named["forward"]) + len(named["backward"]) == of_layers  # and nothing else is timed
    assert len(named["gemm"]) == 3 * len(shapes()) * len(MODES)
    sweeps = {case.id for name in ("per_token", "swizzle") for case in suite_of(name).cases("bench")}
    for rows, cols in {*shapes(), *((cols, cols) for _, cols in shapes())}:
        for flags in ("per_token/default", "per_token/scale_layout=swizzled", "swizzle/default"):
            assert {f"{flags}/{rows}x{cols}/normal/{mode}" for mode in MODES} <= sweeps


def test_there_are_eighteen_shapes_and_no_recipe_twice():
    assert len(set(shapes())) == 18
    assert len({(recipe.forward, recipe.backward) for recipe in RECIPES}) == len(RECIPES)
    assert {recipe.quantizer for recipe in RECIPES} == {
        "per_tensor", "row_scaled", "local_1x64", "four_over_six", "per_token",
    }  # fmt: skip


# What is shown


def test_a_step_stands_beside_production_of_its_own_run(tmp_path):
    path = bench(tmp_path, {step_of(PRODUCTION): 300.0, step_of(FUSED): 200.0})
    page = tables.page(read([path]), "python -m evidence steps")
    cells = row(page, "Forward", layer(SHAPE), FUSED.name)
    assert cells == [layer(SHAPE), FUSED.name, "7 / 7", "201", "1.50", "200", "1.50", "1"]
    assert row(page, "Forward", layer(SHAPE), PRODUCTION.name)[3:7] == ["301", "1.00", "300", "1.00"]
    assert row(page, "Backward", layer(SHAPE), FUSED.name)[2:] == [tables.UNMEASURED] * 5 + ["-"]


def test_times_of_two_runs_are_never_divided(tmp_path):
    one = bench(tmp_path, {step_of(PRODUCTION): 300.0}, "one")
    other = bench(tmp_path, {step_of(FUSED): 200.0}, "other")
    cells = row(tables.page(read([one, other]), ""), "Forward", layer(SHAPE), FUSED.name)
    assert cells[2:] == ["7 / not counted", "201", tables.UNMEASURED, "200", tables.UNMEASURED, "2"]
    both = bench(tmp_path, {step_of(PRODUCTION): 500.0, step_of(FUSED): 250.0}, "both")
    cells = row(tables.page(read([one, other, both]), ""), "Forward", layer(SHAPE), FUSED.name)
    assert cells[3:] == ["251", "2.00", "250", "2.00", "3"]


def test_fused_against_unfused(tmp_path):
    gemm = f"{layer(SHAPE)}/normal"
    path = bench(
        tmp_path,
        {
            step_of(UNFUSED, "backward"): 400.0,
            step_of(FUSED, "backward"): 320.0,
            f"gemm/route=library,epilogue=per_token/{gemm}": 50.0,
            f"gemm/route=library,epilogue=per_token_fused/{gemm}": 40.0,
        },
    )
    page = tables.page(read([path]), "")
    fuse = "Fused against unfused (`fuse`)"
    assert row(page, fuse, layer(SHAPE), "backward")[2:] == ["7 / 7", "401", "321", "1.25", "400", "320", "1.25", "1"]
    assert row(page, fuse, layer(SHAPE), "product")[3:6] == ["51.0", "41.0", "1.24"]
    assert row(page, fuse, layer(SHAPE), "forward")[-1] == "-"


def test_a_product_stands_beside_cublas_and_the_product_with_one_amax(tmp_path):
    case = f"gemm/route=library,epilogue=per_token_fused/{layer(SHAPE)}/normal"
    path = tmp_path / "bench.jsonl"
    second = {"second": f"gemm/route=library/{layer(SHAPE)}/normal/graph", "second_ratio": 0.9}
    times = [
        (mode, us, {"ratio": 0.5, "second_us": 0.9 * us, **second}) for mode, us in zip(MODES, (50, 40), strict=True)
    ]
    write_jsonl(path, HEADER, [record(f"{case}/{mode}", us, noise=0, launches=7, **more) for mode, us, more in times])
    cells = row(tables.page(read([path]), ""), "A product alone", layer(SHAPE), "fused")
    assert cells[2:] == ["7", "50.0", "40.0", "1", "0.50", "0.50", "2", "0.90", "0.90", "1"]


def test_swizzling_and_pairs_are_sums_of_calls_of_one_run(tmp_path):
    production = "per_tensor/rht=true,rounding=sr"
    case = "4096x2048/normal"
    ours = bench(tmp_path, {f"per_token/default/{case}": 10.0}, baseline_us=30.0, baseline=f"{production}/{case}/graph")
    texts = ours.read_text().splitlines()[1:]
    others = bench(
        tmp_path, {f"per_token/scale_layout=swizzled/{case}": 12.0, f"swizzle/default/{case}": 4.0}, "others"
    )
    apart = tables.page(read([ours, others]), "")
    title = "Quantizing and swizzling (`qs`)"
    assert row(apart, title, "4096x2048")[1:] == [tables.UNMEASURED] * 9 + ["-"]
    others.write_text(others.read_text() + "\n".join(texts) + "\n")
    cells = row(tables.page(read([others]), ""), title, "4096x2048")
    counted = launches(f"{production}/{case}/graph")
    assert cells[1:] == [
        f"{counted + 7} / 14 / 7", "35.0", "16.0", "13.0", "2.69", "34.0", "14.0", "12.0", "2.83", "1",
    ]  # fmt: skip
    weight = "2048x2048/normal"
    pair = bench(
        tmp_path,
        {f"per_token/default/{case}": 10.0, f"per_token/default/{weight}": 6.0},
        "pair",
        baseline_us=20.0,
        baseline=f"{production}/{case}/graph",
    )
    cells = row(tables.page(read([pair]), ""), "Both operands (`pair`)", "4096x2048 and 2048x2048")
    assert cells[1:] == [f"{2 * counted} / 14", "40.0", "18.0", "2.22", "40.0", "16.0", "2.50", "1"]


def test_a_run_that_did_not_count_launches_says_so(tmp_path):
    path = bench(tmp_path, {step_of(PRODUCTION): 300.0})
    path.write_text(path.read_text().replace('"launches": 7, ', "").replace(', "launches": 7', ""))
    assert (
        row(tables.page(read([path]), ""), "Forward", layer(SHAPE), PRODUCTION.name)[2] == "not counted / not counted"
    )


def test_launches_are_those_of_the_suite():
    assert launches("cublas/bf16/16x16x16/normal/graph") == 1
    assert launches("gemm/default/128x128x128/normal/eager") == 1
    assert launches("gemm/route=library/128x128x128/normal/eager") == 2
    assert launches("gemm/route=library,beta=1/128x128x128/normal/eager") == 3


# The command


def test_the_command_writes_both_files_and_times_nothing(tmp_path):
    path = bench(tmp_path, {step_of(PRODUCTION): 300.0, step_of(FUSED): 200.0})
    done = CliRunner().invoke(steps_command.command, [str(path), "--out", str(tmp_path / "out")], standalone_mode=False)
    assert (done.return_value, done.exception) == (Exit.CLEAN, None)
    assert "`python -m evidence steps" in (tmp_path / "out" / "steps.md").read_text()
    with (tmp_path / "out" / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(RECIPES) * len(shapes()) * len(MODES)
    measured = [line for line in rows if line["us"]]
    assert {(line["recipe"], line["mode"], line["us"], line["production_us"]) for line in measured} == {
        (PRODUCTION.name, "eager", "301.0", "301.0"),
        (PRODUCTION.name, "graph", "300.0", "300.0"),
        (FUSED.name, "eager", "201.0", "301.0"),
        (FUSED.name, "graph", "200.0", "300.0"),
    }
    assert {line["bytes_compared"] for line in measured} == {"1000"}


def test_what_is_no_bench_is_one_sentence(tmp_path):
    write_jsonl(tmp_path / "empty.jsonl", HEADER, [])
    (tmp_path / "folder").mkdir()
    for name, said in (("empty.jsonl", "has no times"), ("nothing.jsonl", "cannot be read"), ("folder", "cannot be")):
        with pytest.raises(UsageError, match=said):
            read([tmp_path / name])


# The page of the trainer


@pytest.fixture
def one_step(tmp_path, monkeypatch):
    """The page's figures of a bench in which production takes 300 us and per_token 200 at one shape."""
    shape = layer((4096, 4096))
    cases = {
        recipe.case_id(pipeline, shape, "graph").removesuffix("/graph"): us
        for recipe, us in ((PRODUCTION, 300.0), (FUSED, 200.0))
        for pipeline in tables.PIPELINES
    }
    found = read([bench(tmp_path, cases)])
    rows = {
        (line["pipeline"], line["recipe"], line["shape"], line["mode"]): {
            key: str(value) for key, value in line.items()
        }
        for line in tables.rows(found)
    }
    monkeypatch.setattr(training, "_steps", lambda: rows)
    return rows


def test_advice_names_what_is_faster_than_production(one_step):
    text = choice.choice("")
    assert f"faster forward: {FUSED.name}; finer amaxes gain" in text and f"at {tables.UNMEASURED} of its speed" in text


def test_a_trainer_reads_every_recipe_off_one_table(one_step):
    text = training.recipes("../")
    cells = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in text.splitlines()}
    fused, other = cells[FUSED.name], cells["row_scaled"]
    assert fused[4:9] == ["4,000", "200", "200", "1.50", "1.50"]
    assert other[4:9] == [tables.UNMEASURED] * 5
    assert fused[2:4] == ["stochastic, 16x16", training.verified()["per_token"]]
    assert [cells[name][2] for name in ("row_scaled", "local_1x64")] == ["to nearest, 16x16", "to nearest, 1x16"]
    assert {recipe.name for recipe in RECIPES} <= cells.keys()
    assert "200 + 200" in training.steps("")


def test_a_page_without_its_rows_is_an_error(one_step):
    one_step.clear()
    with pytest.raises(UsageError, match="has no row of forward"):
        training.recipes("")


def test_losses_stand_beside_their_bounds(monkeypatch):
    line = {"tensors": "normal", "product": "y", "recipe": "per_token", "relative": "0.148", "bound": "0.297"}
    monkeypatch.setattr(training, "_lines", lambda: [line, line | {"tensors": "spike_1e6", "relative": "0.2"}])
    text = next(line for line in training.losses("").splitlines() if UNFUSED.name in line)
    assert "0.148 / 0.297 | 0.200 / 0.297 | spike_1e6" in text
    assert text.count(tables.UNMEASURED) == 4


def test_bytes_that_no_page_says_are_an_error(tmp_path):
    (tmp_path / "verify.md").write_text("# Nothing\n")
    with pytest.raises(UsageError, match="no table of recipes"):
        training.verified(tmp_path / "verify.md")


def test_the_recipes_are_the_pipelines_own_flags():
    assert recipes.PRODUCTION.case_id("forward", "128x128x128", "eager") == (
        "forward/route=library/128x128x128/normal/eager"
    )


def test_a_layer_of_experts_has_its_step_and_a_loop_beside_it(tmp_path: Path, monkeypatch):
    case = "backward_grouped/weight_2d=true,accumulate=true/64*128x1408x2048/normal"
    looped = {"second": f"loop/{case}/graph", "second_us": 2468.0, "second_ratio": 2.0}
    path = tmp_path / "bench.jsonl"
    write_jsonl(path, HEADER, [record(f"{case}/graph", 1234.0, noise=0.0, **looped)])
    monkeypatch.setattr(training, "BASELINE", path)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in training.experts("../").splitlines()]
    assert ["`weight_2d=true`", "2048x1408", "64 x 128", "not measured", "1,234", "not measured", "2.00"] in rows
    assert ["`default`", "4096x2048", "8 of 128 to 3,200", *["not measured"] * 4] in rows
    assert ["`default`", "2048x1408", "8 x 576, 8 x 256, 24 x 64, 24 x 0", *["not measured"] * 4] in rows
