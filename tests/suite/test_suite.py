"""Suites: what they expand to, and one sentence with file and line for every way to get one wrong."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from suite_files import assert_mistake

from harness.contract.case import Case
from harness.device.device import targets_of
from harness.device.emulator import EmulatorDevice
from harness.errors import SuiteError, UsageError
from harness.files import SUITES
from harness.suite import cover, flag_values
from harness.suite.check import block_axes
from harness.suite.schema import Block, Corner, json_schema
from harness.suite.shapes import canonical, corner_errors, tensor_error, tensor_multiple
from harness.suite.suite import FIRST, Suite, find_case, load_suite, suite_of
from harness.verify.verify import verify

RECIPES = sorted(path.stem for path in SUITES.glob("*.yaml"))


@pytest.fixture
def toy(suite_path: Path) -> Suite:
    return load_suite(suite_path)


# What a suite expands to


def test_product_makes_every_legal_combination_in_every_mode_and_counts_the_rest(toy: Suite):
    cases = toy.cases("full")
    # dtype x rht x rounding x sign_mask is 16: 4 are fp16 with rht, 4 have a sign mask without rht.
    assert len(cases) == (16 - 4 - 4) * 2
    assert toy.excluded("full") == Counter(
        {"the rotation is defined on bf16 inputs only": 4 * 2, "a sign mask means nothing without the rotation": 4 * 2}
    )


def test_each_starts_from_the_first_values_and_changes_one(toy: Suite):
    assert [case.id for case in toy.cases("bench")] == ["toy/rht=true/16x32/normal/eager"]


def test_each_varies_every_axis_that_is_not_restricted(suite_path: Path, suite_text: str):
    suite_path.write_text(suite_text.replace("axes: {rht: true, others: default}", "axes: {rht: true}"))
    suite = load_suite(suite_path)
    assert {case.variant for case in suite.cases("bench")} == {
        "rht=true",
        "rht=true,rounding=sr",
        "rht=true,sign_mask=1",
    }
    assert suite.excluded("bench") == Counter({"the rotation is defined on bf16 inputs only": 1})


def test_a_refused_pair_counts_once_under_pairwise(toy: Suite):
    assert sum(toy.excluded("smoke").values()) == 2


def test_what_is_legal_now_and_was_excluded_changes_no_pairwise_case(toy: Suite, suite_path: Path, suite_text: str):
    _, fp16 = suite_text.split("exclude:\n")[1].split("launches:")[0].split("  - when:")[:2]
    suite_path.write_text(
        suite_text.replace(f"  - when:{fp16}", "").replace("launches:", "apart: [{rht: true, dtype: fp16}]\nlaunches:")
    )
    suite = load_suite(suite_path)
    assert suite.cases("smoke") == toy.cases("smoke")
    assert len(suite.cases("full")) == len(toy.cases("full")) + 4 * 2
    suite_path.write_text(suite_path.read_text().replace("apart: [{rht: true", "apart: [{rth: true"))
    with pytest.raises(SuiteError, match="no flag 'rth'; did you mean 'rht'?"):
        load_suite(suite_path)


def test_cases_come_small_first_and_then_by_id(toy: Suite):
    cases = toy.cases("smoke")
    assert list(cases) == sorted(cases, key=lambda case: (case.rows * case.cols, case.id))


def test_a_case_knows_the_line_that_made_it(toy: Suite, suite_text: str):
    where = {case.where for case in toy.cases("smoke")}
    assert where == {f"{toy.name}:{suite_text[: suite_text.index('- cover')].count(chr(10)) + 1}"}


def test_loading_twice_gives_the_same_cases(suite_path: Path):
    one, other = (load_suite(suite_path).cases("smoke") for _ in range(2))
    assert [case.id for case in one] == [case.id for case in other]


def test_launches_follow_the_flags_in_order(toy: Suite):
    def kernels(case_id: str) -> list[str]:
        return [launch.kernel for launch in toy.launches(toy.find(case_id))]

    assert kernels("toy/default/16x16/normal/eager") == ["toy_amax", "toy_encode"]
    assert kernels("toy/rounding=sr/16x16/normal/eager") == ["toy_amax"]
    assert toy.file.launches[0].scratch == {"state": 16}


# Pairwise


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_smoke_holds_every_legal_pair(recipe: str):
    """A pair is legal if brute force finds any legal combination with it; nothing of the greedy cover is used."""
    suite = suite_of(recipe)
    for index, block in enumerate(suite.file.sets["smoke"]):
        if block.cover == "pairwise":
            where = suite.document.where("sets", "smoke", index)
            made = [case for case in suite.cases("smoke") if case.where == where and case.mode == block.modes[0]]
            assert _missing_pairs(suite, block, made) == set()


def _missing_pairs(suite: Suite, block: Block, cases: list[Case]) -> set[frozenset]:
    axes = block_axes(suite.file, block)
    combined = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    legal = [
        flags
        for flags in combined
        if suite.refusal(flags) is None
        and not any(all(flags[flag] in those for flag, those in apart.items()) for apart in suite.file.apart)
    ]
    spelled = [canonical(s) if isinstance(s, str) else "x".join(map(str, s)) for s in block.shapes]
    problems = [{"shape": shape, "input": name} for shape, name in itertools.product(spelled, block.inputs)]
    # Exclusions speak of flags only, so a pair with a shape or an input is legal if its flag value is.
    wanted = {pair for flags in legal for pair in _pairs(flags)}
    wanted |= {pair for flags in legal for problem in problems for pair in _crossed(flags, problem)}
    wanted |= {pair for problem in problems for pair in _pairs(problem)}
    made = [{**case.flags, "shape": case.shape, "input": case.input} for case in cases]
    return wanted - {pair for case in made for pair in _pairs(case)}


def _pairs(values: dict) -> set[frozenset]:
    return {frozenset(pair) for pair in itertools.combinations(values.items(), 2)}


def _crossed(flags: dict, problem: dict) -> set[frozenset]:
    return {frozenset(pair) for pair in itertools.product(flags.items(), problem.items())}


def test_pairwise_backs_out_of_a_dead_end():
    """Axis 2 refuses both of its values after (0, 1), which only shows once both are chosen."""

    def refused(row: cover.Partial) -> bool:
        return row[:2] == (0, 1) and row[2] is not None

    rows = cover.pairwise([2, 2, 2], refused)
    assert {(a, b) for a, b, _ in rows} == {(0, 0), (1, 0), (1, 1)}
    assert {(a, c) for a, _, c in rows} == {(b, c) for _, b, c in rows} == {(0, 0), (0, 1), (1, 0), (1, 1)}


# The suites of this repository


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_case_is_found_again_by_its_id(recipe: str):
    suite = suite_of(recipe)
    for name in suite.sets:
        for case in suite.cases(name):
            found = suite.find(case.id)
            assert found == case and found.seed == case.seed


def test_the_first_set_shows_every_flag_kernel_and_input_in_few_cases_of_the_smoke_set():
    first, smoke = ([case for recipe in RECIPES for case in suite_of(recipe).cases(name)] for name in (FIRST, "smoke"))
    assert {case.id for case in first} < {case.id for case in smoke} and len(first) < len(smoke) // 5
    assert {case.input for case in first} == {case.input for case in smoke}

    def shown(cases: list[Case]) -> set[tuple[str, object]]:
        flags = {(case.recipe, each) for case in cases for each in case.flags.items()}
        suites = {recipe: suite_of(recipe) for recipe in RECIPES if not suite_of(recipe).file.pipeline}
        here = (case for case in cases if case.recipe in suites)
        return flags | {(case.recipe, each.name) for case in here for each in suites[case.recipe].launches(case)}

    assert shown(first) == shown(smoke)


def test_the_first_set_runs_each_recipe_on_both_targets_and_each_case_on_one():
    device = EmulatorDevice()
    for recipe in RECIPES:
        ran = [targets_of(device, case) for case in suite_of(recipe).cases(FIRST)]
        assert {len(each) for each in ran} == {1} and set().union(*ran) == set(device.targets)
    case = suite_of("swizzle").cases(FIRST)[1]
    assert verify(case, device).targets == ("sm_100a",)
    assert verify(replace(case, turn=None), device).targets == device.targets


def test_a_first_set_of_the_files_own_is_that(suite_path: Path):
    assert FIRST in load_suite(suite_path).known_sets
    text = suite_path.read_text()
    own = f"  {FIRST}:\n    - axes: default\n      shapes: [[16, 16]]\n      inputs: [normal]\n"
    suite_path.write_text(text.replace("sets:\n", f"sets:\n{own}"))
    suite = load_suite(suite_path)
    assert [case.shape for case in suite.cases(FIRST)] == ["16x16"] and suite.known_sets.count(FIRST) == 1


REPRESENTATION = "shape_representation"
SCALES = ("epilogue", "layout", "a_e4m3_max", "b_e4m3_max", "b_granularity")


@pytest.mark.parametrize("recipe", ["gemm", "gemm_ordered", "gemm_grouped"])
@pytest.mark.parametrize("axes", [SCALES, ("epilogue", "layout", "a_dtype"), ("epilogue", "layout", "b_dtype")])
def test_each_legal_kind_of_operand_is_read_in_each_layout(recipe, axes):
    """In threes that a pairwise block may leave out."""
    suite = suite_of(recipe)
    seen = {tuple(case.flags[axis] for axis in axes) for case in suite.cases("full")}
    legal = set()
    for values in itertools.product(*(suite.file.axes[axis] for axis in axes)):
        flags = {**suite.defaults, **dict(zip(axes, values, strict=True))}
        if REPRESENTATION in flags:
            flags[REPRESENTATION] = "varying_last_dim" if flags["layout"] == "nt" else "varying_first_dim"
        if suite.refusal(flags) is None:
            legal.add(values)
    assert len(legal) > 8 and legal <= seen


def test_the_committed_schema_is_current():
    assert (SUITES / "schema.json").read_text() == json_schema(), "run `make schema`"


# One sentence for every mistake

SMOKE = "    - cover: pairwise\n      shapes: [[16, 16], [48, 80]]\n      inputs: [normal, ties]\n"
MISTAKES = {
    "unknown top-level key": ("contract:", "contrct:", 3, "unknown key 'contrct'; did you mean 'contract'?"),
    "unknown block key": ("      inputs: [normal, ties]", "      input: [normal]", 28, "did you mean 'inputs'?"),
    "unknown launch key": ("    scratch:", "    scrach:", 20, "unknown key 'scrach'; did you mean 'scratch'?"),
    "unknown exclusion key": (
        "    because: a sign", "    becuase: a sign", 15, "unknown key 'becuase'; did you mean 'because'?",
    ),
    "missing key": ("contract: NUMERICS 0\n", "", 1, "the suite lacks the key 'contract'"),
    "recipe is not the stem": ("recipe: toy", "recipe: toi", 2, "recipe is 'toi' in a file named toy.yaml"),
    "unknown flag in exclude": ("{rht: true, dtype: fp16}", "{rth: true}", 12, "no flag 'rth'; did you mean 'rht'?"),
    "unknown flag in launches": ("{rounding: rne}", "{roundin: rne}", 22, "did you mean 'rounding'?"),
    "unknown flag in a set": ("{rht: true, others", "{rth: true, others", 36, "toy has no flag 'rth'"),
    "unknown name in a size": ("{state: 16}", "{state: 4 * col}", 20, "a size knows no 'col'; did you mean 'cols'?"),
    "unknown operator in a size": ("{state: 16}", "{state: rows - 1}", 20, "no operator as in 'rows - 1'; choose +, *"),
    "true division in a size": ("{state: 16}", "{state: rows / 2}", 20, "no operator as in 'rows / 2'; choose +"),
    "a size divided by a name": ("{state: 16}", "{state: 16 // rows}", 20, "a size divides by 'rows'; only a positive"),
    "a size divided by zero": ("{state: 16}", "{state: rows // 0}", 20, "a size divides by '0'; only a positive"),
    "a call in a size": ("{state: 16}", "{state: \"max(rows, cols)\"}", 20, "a size has no 'max(rows, cols)'"),
    "a fraction in a size": ("{state: 16}", "{state: 0.5 * rows}", 20, "made of integers, and 0.5 is none"),
    "words as a size": ("{state: 16}", "{state: four rows}", 20, "'four rows' is not a size; one reads `4 * cols`"),
    "a negative size": ("{state: 16}", "{state: -16}", 20, "'-16' where a positive integer belongs"),
    "an unknown name in a workspace": ("scratch: {state: 16}", "workspace: {state: row}", 20, "a size knows no 'row'"),
    "scratch that is a workspace": (
        "    scratch: {state: 16}", "    scratch: {state: 16}\n    workspace: {state: 16}", 21,
        "'state' is scratch of toy_amax already",
    ),
    "reads what is no workspace": (
        "    scratch: {state: 16}", "    workspace: {state: 16}\n    reads: {input: stat}", 21,
        "'stat' is no workspace of toy_amax; did you mean 'state'?",
    ),
    "unknown flag of a launch": (
        "    scratch: {state: 16}", "    scratch: {state: 16}\n    flags: {rth: true}", 21, "did you mean 'rht'?",
    ),
    "unknown value of a launch's flag": (
        "    scratch: {state: 16}", "    scratch: {state: 16}\n    flags: {rht: 1}", 21, "flag rht has no value '1'",
    ),
    "value not on its axis": ("dtype: fp16}", "dtype: fp61}", 12, "dtype has no value 'fp61'; did you mean 'fp16'?"),
    "1 is not true": ("{rht: true, others", "{rht: 1, others", 36, "flag rht has no value '1'; choose false or true"),
    "value of a wrong kind": ("[rne, sr]", "[rne, null]", 8, "a flag's value is a word, true, false or a number"),
    "values that one id would stand for": ("[rne, sr]", "[1, '1']", 8, "axis rounding lists '1' twice, as case ids"),
    "value of two words": ("[rne, sr]", "[rne, s r]", 8, "a flag's value stands in case ids"),
    "value with a slash": ("[rne, sr]", "[rne, s/r]", 8, "a flag's value stands in case ids"),
    "value of no letters": ("[rne, sr]", '[rne, ""]', 8, "a flag's value stands in case ids"),
    "value that acts on a terminal": ("[rne, sr]", '[rne, "\\e[31m"]', 8, "a flag's value stands in case ids"),
    "half a character": ("[rne, sr]", '[rne, "\\ud800"]', 8, "this is not valid YAML"),
    "a mode twice": ("[eager, graph]", "[eager, eager]", 33, "mode 'eager' is there twice"),
    "value twice on an axis": ("[rne, sr]", "[rne, sr, rne]", 8, "axis rounding lists 'rne' twice"),
    "empty axis": ("[rne, sr]", "[]", 8, "axes.rounding is empty; it needs at least one entry"),
    "an axis called others": ("  rounding: [", "  others: [", 8, "a flag cannot be called 'others'"),
    "others is not default": ("others: default", "others: all", 36, "others is 'all'; the only choice is default"),
    "axes is a wrong word": ("axes: {rht: true, others: default}", "axes: defaults", 36, "write `default` or a"),
    "unknown cover": ("cover: pairwise", "cover: pairwis", 26, "no 'pairwis'; did you mean 'pairwise'?"),
    "unknown mode": ("[eager, graph]", "[eager, grph]", 33, "no 'grph'; did you mean 'graph'?"),
    "unknown input": ("[normal, ties]", "[normal, tise]", 28, "there is no input 'tise'; did you mean 'ties'?"),
    "no such file": (
        "[normal, ties]", '["file:pyproject.tml#x"]', 28,
        "there is no file pyproject.tml; did you mean 'pyproject.toml'?",
    ),
    "no such folder": (
        "[normal, ties]", '["file:nowhere/x.npy"]', 28, "there is no file nowhere/x.npy, and no file beside it",
    ),
    "rows off the grid": ("[48, 80]", "[50, 80]", 27, "rows = 50 is not a positive multiple of 16; the nearest is 48"),
    "cols off the grid": ("- [16, 32]", "- [16, 8]", 38, "cols = 8 is not a positive multiple of 16; the nearest"),
    "a shape of three": ("- [16, 32]", "- [16, 32, 64]", 38, "has [16, 32, 64] where a shape [rows, cols] belongs"),
    "a shape of one": ("- [16, 32]", "- [16]", 38, "has [16] where a shape [rows, cols] belongs"),
    "no shape": ("- [16, 32]", "- 16x32", 38, 'has "16x32" where a shape [rows, cols] belongs'),
    "a negative extent": ("- [16, 32]", "- [-16, 32]", 38, "'-16' where a positive integer belongs"),
    "an extent in words": ("- [16, 32]", "- [wide, 32]", 38, "'wide' where a positive integer belongs"),
    "an excuse that no case needs": (
        "launches:", "degenerate:\n  - {shapes: [16x33], because: why not}\nlaunches:", 18,
        "no case has the shape '16x33'; did you mean",
    ),
    "empty shapes": ("[[16, 16], [48, 80]]", "[]", 27, "sets.smoke.shapes is empty"),
    "required set missing": ("  bench:", "  extra:", 24, "there is no set 'bench'; a suite has smoke, full, bench"),
    "empty set": (SMOKE, "    []\n", 25, "sets.smoke is empty; it needs at least one entry"),
    "a key twice": ("contract: NUMERICS 0", "recipe: toy", 3, "key 'recipe' appears twice; the first is on line 2"),
    "a key that is no word": ("  dtype:", "  16:", 6, "the key 16 must be a word"),
    "a capital name": ("  dtype: [", "  Dtype: [", 6, "'Dtype' is not a name"),
    "not YAML": ("axes:\n", "axes: [\n", 7, "this is not valid YAML"),
    "a tab": ("  dtype:", "\tdtype:", 6, "this is not valid YAML"),
    "an alias without anchor": ("[normal, ties]", "*inputs", 28, "this is not valid YAML"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_with_its_line(
    tmp_path: Path, suite_text: str, old: str, new: str, line: int, sentence: str
):
    assert_mistake(tmp_path, suite_text, (old, new), sentence, line)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "the file is empty"), (b"# nothing\n", "the file is empty"), (b"recipe: \xff", "is not UTF-8 text")],
)
def test_a_file_that_is_no_text_or_empty(suite_path: Path, content: bytes, sentence: str):
    suite_path.write_bytes(content)
    with pytest.raises(SuiteError, match=sentence):
        load_suite(suite_path)


@pytest.mark.parametrize("content", ["[1, 2]\n", "toy\n"])
def test_a_file_that_is_no_mapping(suite_path: Path, content: str):
    suite_path.write_text(content)
    with pytest.raises(SuiteError, match=r"toy.yaml:1: the suite"):
        load_suite(suite_path)


def test_a_suite_that_is_not_there_names_the_nearest(suite_path: Path):
    with pytest.raises(UsageError, match="there is no suite .*toi.yaml; did you mean '.*toy.yaml'?"):
        load_suite(suite_path.with_name("toi.yaml"))


def test_a_case_made_twice(suite_path: Path, suite_text: str):
    suite_path.write_text(
        suite_text + "    - axes: {rht: true, others: default}\n      shapes: [[16, 32]]\n      inputs: [normal]\n"
    )
    with pytest.raises(
        SuiteError, match=r"toy.yaml:40: toy/rht=true/16x32/normal/eager is already a case .*toy.yaml:35"
    ):
        load_suite(suite_path).cases("bench")


def test_a_block_without_a_legal_case(suite_path: Path, suite_text: str):
    suite_path.write_text(suite_text.replace("{rht: true, others", "{rht: true, dtype: fp16, others"))
    with pytest.raises(SuiteError, match=r"toy.yaml:35: every combination of this block is excluded"):
        load_suite(suite_path).cases("bench")


def test_a_case_without_a_kernel(suite_path: Path, suite_text: str):
    suite_path.write_text(suite_text.replace("{rht: [false, true]}", "{rounding: rne}"))
    with pytest.raises(SuiteError, match=r"no launch of this recipe applies to toy/.*rounding=sr"):
        load_suite(suite_path).cases("full")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("file:suites/data/minilm_sample.safetensors#ffn_up.weigth", "no tensor 'ffn_up.weigth'; it has ffn_up.weight"),
        ("file:suites/data/minilm_sample.safetensors#ffn_up.weight", "the tensor is 256x128, smaller than the 512x32"),
    ],
)
def test_a_tensor_that_a_file_cannot_give(suite_path: Path, suite_text: str, name: str, sentence: str):
    suite_path.write_text(suite_text.replace("[[32, 32]]", "[[512, 32]]").replace("[normal]", f'["{name}"]', 1))
    with pytest.raises(SuiteError, match=rf"toy.yaml:30: .*{sentence}"):
        load_suite(suite_path).cases("full")


def test_a_set_that_is_not_there(toy: Suite):
    with pytest.raises(UsageError, match="there is no set 'smok'; did you mean 'smoke'?"):
        toy.cases("smok")


# Ids


def test_an_id_beyond_all_sets_is_a_case():
    case = find_case("per_tensor/rht=true,rounding=sr,sign_mask=0xFFFF/1024x4096/normal/graph")
    assert (case.rows, case.cols, case.mode) == (1024, 4096, "graph")
    assert case.flags.sign_mask == 0xFFFF
    assert case.id == "per_tensor/rht=true,rounding=sr,sign_mask=65535/1024x4096/normal/graph"


@pytest.mark.parametrize(
    ("case_id", "sentence"),
    [
        ("per_tensor", "'per_tensor' is not a case id; one reads recipe/flags/ROWSxCOLS/input/mode"),
        ("per_tenser/default/16x16/normal/eager", "there is no recipe 'per_tenser'; did you mean 'per_tensor'?"),
        ("per_tensor/rth=true/16x16/normal/eager", "per_tensor has no flag 'rth'; did you mean 'rht'?"),
        ("per_tensor/rounding=ru/16x16/normal/eager", "flag rounding has no value 'ru'; choose rne or sr"),
        ("per_tensor/rht/16x16/normal/eager", "'rht' is not `flag=value`"),
        ("per_tensor/default/16by16/normal/eager", "'16by16' is not a shape; one reads ROWSxCOLS"),
        ("per_tensor/default/999999999999999999x16/normal/eager", "rows = 999999999999999999 is beyond"),
        ("per_tensor/default/1000000000000000000x16/normal/eager", "'1000000000000000000x16' is not a shape"),
        ("per_tensor/default/16x17/normal/eager", "cols = 17 is not a positive multiple of 16"),
        ("per_tensor/default/16x0/normal/eager", "cols = 0 is not a positive multiple of 16; the nearest is 16"),
        ("casts/default/0x16/normal/eager", "rows = 0 is not a positive multiple of 16; the nearest is 16"),
        ("per_tensor/default/16x16/norml/eager", "there is no input 'norml'; did you mean 'normal'?"),
        ("per_tensor/default/16x16/file:no.npy/eager", "there is no file no.npy"),
        ("per_tensor/default/16x16/normal/eagr", "there is no mode 'eagr'; did you mean 'eager'?"),
        ("per_tensor/dtype=fp16,rht=true/16x16/normal/eager", "excludes this combination: the rotation is defined on"),
    ],
)
def test_an_id_that_is_wrong(case_id: str, sentence: str):
    with pytest.raises(UsageError) as caught:
        find_case(case_id)
    assert sentence in str(caught.value)


def test_a_suite_is_read_once_and_again_if_it_changed_though_its_time_did_not(suite_path):
    first, then = load_suite(suite_path), suite_path.stat().st_mtime_ns
    assert load_suite(suite_path) is first
    suite_path.write_text(suite_path.read_text().replace("[16, 32]", "[48, 32]"))
    os.utime(suite_path, ns=(then, then))
    assert {case.shape for case in load_suite(suite_path).cases("bench")} == {"48x32"}
    assert {case.shape for case in first.cases("bench")} == {"16x32"}


def test_a_tensor_of_a_group_keeps_to_the_larger_multiple():
    small, large = (suite_of(name).file for name in ("per_tensor", "local_1x64"))
    assert tensor_multiple(small, large) == tensor_multiple(large, small) == 64


@pytest.mark.parametrize(
    ("recipe", "shape", "larger", "sentence"),
    [
        ("per_tensor", "128x256", [200, 256], "is not larger than '128x256' by whole parts"),
        ("per_tensor", "128x256", [128, 256], "is not larger than '128x256' by whole parts"),
        ("per_tensor", "48x80", [96, 80], "one of 128"),
        ("per_tensor", "128x256", "4096x256", "where a shape [rows, cols] belongs"),
        ("per_tensor", "128x256", [256, 256], ""),
        ("grouped", "128x256", "4096+256x256", "neither '128x256' behind one larger tensor"),
        ("grouped", "128x256", "128x256", "neither '128x256' behind one larger tensor"),
        ("grouped", "128x256", "4096+128x256", ""),
        ("grouped", "128x256", "2147483648+128x256", "tensor 0: rows = 2147483648 is beyond 2147418112"),
        ("gemm", "128x64x16", [1024, 64, 16], ""),
        ("gemm", "128x128x16", [128, 1073741824, 16], "K = 1073741824 is beyond 1073676288"),
        ("forward", "48x80x32", [1024, 80, 32], "a pipeline has no corners"),
    ],
)
def test_a_corner_is_the_end_of_something_larger(recipe, shape, larger, sentence):
    found = list(corner_errors(suite_of(recipe).file, Corner(shape=shape, tensors=[larger])))
    assert [number for number, _ in found] == [0]
    assert sentence in (found[0][1] or "") and bool(sentence) == bool(found[0][1])


def test_only_a_flag_whose_other_values_stand_apart_is_kept_apart():
    file = suite_of("per_tensor").file.model_copy(update={"apart": ({"rht": [True]}, {"dtype": ["fp16"]})})
    axes = {"rht": [False, True], "dtype": ["bf16", "fp16", "fp32"], "stage": ["full"]}
    assert flag_values.kept_apart(file, axes) == {0}


def test_an_empty_tensor_needs_no_file():
    for rows, cols in ((0, 16), (16, 0)):
        assert tensor_error("file:/nowhere/x.npy", ((rows, cols),)) is None
    assert "/nowhere/x.npy" in (tensor_error("file:/nowhere/x.npy", ((16, 16),)) or "")
