"""The rules of `targets.yaml`: one target for each case of a bench, none twice, and a run's cases by how far off."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from timed_runs import HEADER, gate_run, record

from harness.bench.standings import furthest
from harness.bench.targets import Rule, Target, load
from harness.contract.case import Case
from harness.errors import Exit, SuiteError
from harness.gate.against_baseline import judge
from harness.gate.report import from_lines, from_run, write_gate
from harness.records.possible import moved
from harness.suite.suite import find_case, suite_of

QUANTIZERS = ("per_tensor", "row_scaled", "local_1x64", "four_over_six", "per_token", "grouped")
SWIZZLES = ("swizzle", "swizzle_grouped")
PRODUCTS = ("gemm", "gemm_grouped")
L2_BYTES = 62_914_560  # of an H200
FLOORS = {"floors_us": {"two kernels": 5.5, "events": 1.5}}
MB_86, MB_172 = 86_000_000, 172_000_000


@cache
def bench_cases() -> list[tuple[Case, int]]:
    """The cases in graphs of every bench that must have a target, and the bytes that a call moves, by its launches."""
    recipes = (*QUANTIZERS, "dequantize", *SWIZZLES, *PRODUCTS)
    cases = [case for recipe in recipes for case in suite_of(recipe).cases("bench") if case.mode == "graph"]
    return [(case, nbytes) for case in cases for nbytes, _, _ in moved(case)]


def test_each_case_of_a_bench_has_one_target():
    table = load()
    none = [case.id for case, nbytes in bench_cases() if not isinstance(table.target_of(case, nbytes), Target)]
    assert none == []


@pytest.mark.parametrize(
    ("recipes", "least", "units"),
    [((*QUANTIZERS, "dequantize"), L2_BYTES, {"percent"}), (SWIZZLES, 4e6, {"same_bytes"}), (PRODUCTS, 0, {"cublas"})],
)
def test_what_a_target_is_measured_in(recipes, least, units):
    table = load()
    found = {
        table.target_of(case, nbytes).unit
        for case, nbytes in bench_cases()
        if case.recipe in recipes and nbytes > least
    }
    assert found == units


def test_each_rule_and_each_of_its_figures_is_for_some_case():
    """So a case is without a target as soon as any rule is gone."""
    rules, used = load().rules, set()
    for case, nbytes in bench_cases():
        used |= {
            (number, target.unit, target.figure)
            for number, rule in enumerate(rules)
            if (target := rule.target(case, nbytes))
        }
    written = {
        (number, unit, figure)
        for number, rule in enumerate(rules)
        for unit in ("percent", "launches", "same_bytes", "cublas")
        for _, figure in getattr(rule, unit)
    }
    assert written - used == set()


@pytest.mark.parametrize("number", [0, 20, -1])
def test_a_case_of_no_rule_or_of_two_is_told(number: int):
    table = load()
    rule = table.rules[number]
    case, nbytes = next(
        (case, nbytes)
        for case, nbytes in bench_cases()
        if rule.target(case, nbytes) and not any(case.id in table.case_ids(line) for line in table.lines)
    )
    gone = table.model_copy(update={"rules": tuple(each for each in table.rules if each is not rule)})
    assert gone.target_of(case, nbytes) == "no rule of targets.yaml is for it"
    twice = table.model_copy(update={"rules": (*table.rules, rule)})
    with pytest.raises(SuiteError, match=rf"rules.\d+ and rules.{len(table.rules)} are for {case.recipe}/.*one target"):
        twice.target_of(case, nbytes)


@pytest.mark.parametrize(
    ("case_id", "nbytes", "required"),
    [
        ("per_token/default/4096x4096/normal/graph", MB_86, "66 %"),
        ("per_token/default/8192x4096/normal/graph", MB_172, "70 %"),  # its line, and not the rule's 72
        ("per_token/default/4096x8192/normal/graph", MB_172, "72 %"),
        ("per_token/default/8208x4112/normal/graph", MB_172, "61.2 %"),  # 85 % of 72
        ("per_token/default/1040x2064/normal/graph", 11_000_000, "3.6 x two kernels"),  # 3.1 by 0.85
        ("grouped/recipe=per_token/8*4096x8192/normal/graph", 1_376_000_000, "80 %"),
        ("grouped/recipe=per_token/96+208x1024/normal/graph", MB_86, "56.1 %"),
        ("four_over_six/default/8192x4096/normal/graph", MB_172, "42 %"),
        ("swizzle/to=compact/32768x8192/normal/graph", 33_554_432, "85 % of its copy"),
        ("swizzle/default/1024x2048/normal/graph", 262_144, "1.3 x two kernels"),
        ("gemm/default/16x8192x8192/normal/graph", 36_000_000, "220 % of cuBLAS"),
        ("gemm/default/1000x8192x8192/normal/graph", 36_000_000, "47 % of cuBLAS"),
    ],
)
def test_the_target_of_a_case(case_id: str, nbytes: int, required: str):
    assert load().target_of(find_case(case_id), nbytes).required == required


def test_a_reason_for_no_target():
    table = load()
    assert "an eager time holds" in table.target_of(find_case("per_token/default/4096x4096/normal/eager"), MB_86)
    assert (
        table.target_of(find_case("forward/default/128x128x128/normal/graph"), 10)
        == "no rule of targets.yaml is for it"
    )


BOTH = "per_token/default/4096x8192/normal/graph"  # 72 %
MISSED = "four_over_six/default/8192x4096/normal/graph"  # 42 %
LATE = "per_token/rht=true/4096x8192/normal/graph"
COPIED = "swizzle/default/32768x8192/normal/graph"  # 85 % of its copy
PRODUCT = "gemm/default/16x8192x8192/normal/graph"  # 220 % of cuBLAS
SMALL = "per_tensor/rht=true/1024x2048/normal/graph"  # 3.7 times the 4 us of two kernels


def run() -> list[dict]:
    late = record(LATE, percent=1.0, bytes=MB_172)
    late["times"]["exposed"] = late["times"]["rounds"]
    return [
        record(BOTH, percent=54.0, bytes=MB_172),
        record(MISSED, percent=10.5, bytes=MB_172),
        late,
        record(COPIED, baseline=f"copy/{COPIED}", ratio=0.425, bytes=33_554_432),
        record(PRODUCT, baseline="cublas/bf16/16x8192x8192/normal/graph", ratio=2.42, bytes=36_000_000),
        record(SMALL, 14.8 / 0.9, noise=0.0, bytes=10_700_000),
        record(BOTH.replace("graph", "eager"), percent=1.0, bytes=MB_172),
        record("my_kernel/default/48x80/normal/graph", percent=1.0),
        record("per_token/no_flag=true/48x80/normal/graph", percent=1.0),
        {**record(BOTH), "times": {}},
    ]


def test_a_run_s_cases_by_how_far_they_are_from_their_targets():
    found = furthest(HEADER | FLOORS, run())
    assert [(one.case_id, round(one.share, 3)) for one in found] == [
        (MISSED, 0.25), (COPIED, 0.5), (BOTH, 0.75), (SMALL, 0.9), (PRODUCT, 1.1),
    ]  # fmt: skip
    assert list(found[1].row().values()) == [COPIED, "100.2", "85 % of its copy", "42.5 % of its copy", "50"]
    assert [one.case_id for one in furthest(HEADER | FLOORS, run(), count=2)] == [MISSED, COPIED]


def test_without_a_floor_small_cases_are_not_ranked_and_an_unsteady_run_has_none():
    assert SMALL not in {one.case_id for one in furthest(HEADER, run())}
    assert furthest(HEADER | FLOORS | {"roofline": HEADER["roofline"][:1]}, run()) == []
    assert furthest({}, run()) == []


def test_rules_are_for_the_gpu_that_they_were_measured_on():
    found = furthest(HEADER | FLOORS | {"machine": {"gpu": "NVIDIA H100"}}, run())
    assert found == []


def test_the_page_of_a_gate_has_them(tmp_path: Path):
    timed, held = gate_run(tmp_path)
    gated = from_run(timed, HEADER, held, judge(timed, HEADER, held))
    write_gate(tmp_path, gated, Exit.SLOWER)
    first = gated.furthest[0]
    markdown, page = (
        (tmp_path / name)
        .read_text()
        .partition("Furthest from their targets</h2>" if name[-1] == "l" else "## Furthest")[2]
        for name in ("gate.md", "gate.html")
    )
    assert f"| {' | '.join(first.row().values())} |" in markdown
    cells = page.partition("<tbody>")[2].partition("</tr>")[0]
    assert first.case_id in re.sub("<[^>]*>", "", cells) and first.target.shown(first.measured) in cells
    write_gate(tmp_path, from_lines(HEADER | {"effect": 0.01, "base": "main"}, []), Exit.CLEAN)
    assert "Furthest" not in (tmp_path / "gate.md").read_text()


RULE = "shape: s\nlines:\n  - {kernel: k, cases: [c], percent: 1}\nrules:\n  - "


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("{recipes: [per_tensr], percent: [[0, 1]]}", "rules.yaml:5: there is no recipe 'per_tensr'.*per_tensor"),
        ("{recipes: [gemm], when: {rout: mma}, cublas: [[1, 1]]}", "rules.yaml:5: gemm has no flag 'rout'.*route"),
        ("{recipes: [gemm], when: {route: lib}, cublas: [[1, 1]]}", "rules.yaml:5: flag route has no value 'lib'"),
        ("{recipes: [per_tensor], when: {rht: 1}, percent: [[0, 1]]}", "flag rht has no value '1'"),
        ("{recipes: [gemm], when: route, cublas: [[1, 1]]}", "rules.yaml:5: rules.0.when: "),
        ("{recipes: [gemm]}", "rules.0: .*give percent or same_bytes"),
        ("{recipes: [gemm], cublas: [[1, 1]], launches: [[0, 1]]}", "or cublas alone"),
        ("{recipes: [gemm], percent: [[1, 1]], same_bytes: [[0, 1]]}", "give percent or same_bytes"),
        ("{recipes: [gemm], percent: [[5, 1], [5, 2]]}", "sizes have to ascend"),
        ("{recipes: [gemm], percent: [[5, 0]]}", "a figure more than 0"),
        ("{recipes: [gemm], percent: [[-5, 1]]}", "a size is 0 or more"),
        ("{recipes: [gemm], percent: [[.nan, 1]]}", "a size is 0 or more"),
        ("{recipes: [gemm], percent: [5, 1]}", "rules.0.percent"),
        ("{recipes: [], percent: [[5, 1]]}", "rules.0.recipes"),
        ("{recipes: [gemm], percents: [[5, 1]]}", "rules.0.percents: extra inputs"),
    ],
)
def test_a_wrong_rule_is_a_sentence_with_its_line(tmp_path: Path, rule: str, sentence: str):
    (tmp_path / "rules.yaml").write_text(f"{RULE}{rule}\n")
    with pytest.raises(SuiteError, match=sentence):
        load(tmp_path / "rules.yaml")


def test_a_flag_that_one_recipe_of_a_rule_has_is_enough(tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(
        RULE + "{recipes: [per_tensor, local_1x64], when: {rht: false}, percent: [[0, 9]]}\n"
    )
    (rule,) = load(tmp_path / "rules.yaml").rules
    assert isinstance(rule, Rule)
    for case_id in ("per_tensor/default/16x16/normal/graph", "local_1x64/default/64x64/normal/graph"):
        assert rule.target(find_case(case_id), 1).figure == 9
    assert rule.target(find_case("per_tensor/rht=true/16x16/normal/graph"), 1) is None
