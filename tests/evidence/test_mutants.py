"""The catalogue of mutants fits the sources, every entry's case exists, and a part of it is hunted here.

Hunted are every twelfth mutant of the kernels and every eighth of the oracles, wherever they stand; `make mutants`
hunts them all.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from evidence.alarm import OutOfTime, at_most
from evidence.commands import mutants as command
from evidence.mutants import hunt, reach, table
from evidence.mutants.catalogue import KERNELS, Mutant, find, load
from evidence.mutants.generated import proofs
from evidence.mutants.generated.draw import of_file
from evidence.mutants.places import Edit, Places, Substitution, places
from evidence.mutants.source import CLOSING, Source, tokens_of
from harness.device.emulator import EmulatorDevice
from harness.errors import SuiteError
from harness.expected.expected import oracle_of
from harness.suite.suite import find_case, suite_of
from harness.verdict import Result, Verdict
from harness.verify import corner
from harness.verify.diagnosis.classify import HYPOTHESES, NOT_KNOWN
from harness.verify.verify import verify

MUTANTS = load()
OF_KERNELS = [mutant for mutant in MUTANTS if mutant.tree == KERNELS]
OF_ORACLES = [mutant for mutant in MUTANTS if mutant.tree != KERNELS]
HUNTED = OF_KERNELS[::12]
TABLE = pd.read_csv(command.TABLE.with_suffix(".csv")).set_index("mutant")
SANITIZED = {
    "ValueError",
    "deadlock",
    "divergent barrier",
    "empty tensor",
    "race",
    "wrong amax given",
    "out of bounds",
    "misaligned",
    "unwritten read",
    "scratch not cleaned",
    "slack written",
    "oracles disagree",
}


def called(mutant: Mutant) -> str:
    return mutant.name


def test_every_entry_changes_an_expression_that_is_there():
    assert len(MUTANTS) >= 80
    for mutant in MUTANTS:
        assert mutant.changed() != places().sources[mutant.file].text


@pytest.mark.parametrize(
    ("scope", "change", "sentence"),
    [
        ("for_each_work_itm", "[-nowhere();-]", "nothing is called for_each_work_itm; did you mean 'for_each"),
        ("add_stages", "[-two_scales(b_scales[8 * i], lane.member)-]", "nothing is called add_stages; `two_scales("),
        (
            "for_each_work_item",
            "item + [-gridDim.x * 3-]{+1+}",
            "for_each_work_item has no `item + gridDim.x * 3`; the nearest there is `item ",
        ),
        ("per_tensor_tile", "[-__syncthreads();-]", "per_tensor_tile has `__syncthreads();` 2 times; ` @2` at the end"),
        ("per_tensor_tile", "[-__syncthreads();-] @3", "2 times; there is no number 3"),
        ("per_tensor_amax", "[-two_scales(b_scales[8 * i], lane.member)-]", "is in Mainloop and in "),
    ],
)  # fmt: skip
def test_a_stale_entry_is_told_with_what_is_nearest(tmp_path, scope, change, sentence):
    entry = {"name": "a", "story": "b", "in": scope, "change": change, "cases": ["c"], "cause": "d"}
    (tmp_path / "made.yaml").write_text(f"mutants:\n- {json.dumps(entry)}\n")
    with pytest.raises(SuiteError, match=r"made.yaml:2: mutant 'a': ") as caught:
        load(tmp_path)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"right": "no such line"}, "harness/kernels/memory/block_io.cuh has the line that is to be wrong 0 times"),
        (
            {"right": "BlockPlace place("},
            "harness/kernels/memory/block_io.cuh has the line that is to be wrong 2 times",
        ),
        ({"file": "kernels/none.cuh"}, "there is no file harness/kernels/none.cuh"),
    ],
)
def test_an_entry_of_a_file_whose_line_is_not_there_once(change, sentence):
    mutant = find("nibbles swapped").model_copy(update={"scope": "", **change})
    with pytest.raises(SuiteError) as caught:
        mutant.changed()
    assert "mutant 'nibbles swapped'" in str(caught.value)
    assert sentence in str(caught.value)


def reformatted(source: Source) -> str:
    """Every space between tokens is a line break, and comments are gone; in Python, within brackets alone."""
    text, depth = "", 0
    for i, token in enumerate(source.tokens):
        gap = source.text[source.tokens[i - 1].end if i else 0 : token.start]
        if source.python:
            gap = "\n  " if gap and depth else gap
        else:
            directives = re.findall(r"^[ \t]*#(?:\\\n|[^\n])*", gap, re.MULTILINE)
            gap = "\n".join(["", *directives, "  "]) if gap else ""
        text += gap + token.text
        depth += (token.text in CLOSING) - (token.text in CLOSING.values())
    return text + "\n"


def moved_and_reformatted(folder: Path) -> Places:
    """A copy of kernels and oracles, with a function in another header and other line breaks everywhere."""
    sources = {file: reformatted(source) for file, source in places().sources.items()}
    here, there = "kernels/gemm/store_sums.cuh", "kernels/gemm/epilogue.cuh"
    source = Source(here, sources[here])
    scope = next(scope for scope in source.scopes if scope.name == "store_sums")
    start, end = source.tokens[scope.first].start, source.tokens[scope.last - 1].end
    sources[there] += source.text[start:end] + "\n"
    sources[here] = source.text[:start] + source.text[end:]
    for file, text in sources.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return Places(folder)


def mutated_tokens(index: Places, edit: Edit) -> tuple[list[str], list[str]]:
    words = index.sources[edit.file].words
    return words[edit.first : edit.last], [token.text for token in tokens_of(edit.new, edit.file.endswith(".py"))]


def test_a_function_that_moves_and_other_line_breaks_leave_all_mutants(tmp_path):
    index = moved_and_reformatted(tmp_path)
    moved = 0
    for mutant in MUTANTS:
        edit = index.edit(mutant.scope, Substitution(mutant.right, mutant.wrong, mutant.number))
        assert mutated_tokens(index, edit) == mutated_tokens(places(), mutant.edit), mutant.name
        moved += edit.file != mutant.file
    assert moved >= 2
    for (here, reason), (there, same) in zip(proofs.edits(places()), proofs.edits(index), strict=True):
        assert mutated_tokens(places(), here) == mutated_tokens(index, there)
        assert reason == same


@pytest.mark.parametrize(
    "file", ["kernels/memory/swizzle_tile.cuh", "kernels/gemm/split_k_reduce.cuh", "oracles/layout.py"]
)
def test_generated_mutants_keep_their_names_when_their_file_is_formatted(tmp_path, file):
    index = moved_and_reformatted(tmp_path)
    names = {mutant.name for mutant in of_file(file, index)}
    assert names == {mutant.name for mutant in of_file(file, places())} and len(names) > 50


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mutants:\n- name: a\n", "made.yaml:2: mutant 'a': story: field required"),
        (
            "mutants:\n- {name: a, story: b, file: harness/a.py, right: c, wrong: d, cases: [e], cause: f}\n",
            "made.yaml:2: mutant 'a': file: ",
        ),
        (
            "mutants:\n"
            + 2 * "- {name: a, story: b, file: kernels/gemm/mma.cuh, right: c, wrong: d, cases: [e], cause: f}\n",
            "two mutants are called 'a'",
        ),
    ],
)
def test_an_entry_that_is_none(tmp_path, text, sentence):
    (tmp_path / "made.yaml").write_text(text)
    with pytest.raises(SuiteError, match=sentence):
        load(tmp_path)


@cache
def ids(recipe: str, set_name: str) -> frozenset[str]:
    return frozenset(case.id for case in suite_of(recipe).cases(set_name))


def test_every_expected_case_is_in_a_set_of_a_recipe_that_the_file_reaches():
    for mutant in MUTANTS:
        for case_id in mutant.cases:
            recipe = case_id.partition("/")[0]
            assert recipe in reach.recipes_of(mutant.file), (mutant.name, case_id)
            assert case_id in ids(recipe, "smoke") | ids(recipe, "full"), (mutant.name, case_id)


def test_nearly_all_are_expected_by_a_case_of_a_smoke_set():
    beyond = [
        mutant.name
        for mutant in MUTANTS
        if not any(case_id in ids(case_id.partition("/")[0], "smoke") for case_id in mutant.cases)
    ]
    assert len(beyond) <= 0.05 * len(MUTANTS), beyond


def test_every_cause_is_a_word_that_a_diagnosis_has():
    words = SANITIZED | {corner.CAUSE, NOT_KNOWN} | {hypothesis.name for hypothesis in HYPOTHESES}
    assert {mutant.cause for mutant in MUTANTS} - words == set()


def test_the_committed_table_is_of_this_catalogue():
    assert list(TABLE.index) == [mutant.name for mutant in MUTANTS]
    trees = [file.partition("/")[0] for file in TABLE["file"]]  # a function may have moved since
    assert trees == [mutant.tree for mutant in MUTANTS]
    smoke = TABLE["set"] == "smoke"
    assert not (TABLE["caught by"] == "nobody").any()
    assert smoke.mean() >= 0.95
    assert (TABLE["told"] == "right").mean() >= 0.75 and not (TABLE["told"] == "wrong").any()


def test_files_reach_the_recipes_that_have_them():
    assert reach.recipes_of("kernels/local_1x64.cu") == ("local_1x64",)
    assert reach.recipes_of("kernels/gemm/mainloop.cuh") == ("gemm", "gemm_grouped")
    assert reach.recipes_of("oracles/dequantize.py") == ("dequantize",)
    assert "swizzle" in reach.recipes_of("oracles/torch_layout.py")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", HUNTED, ids=called)
def test_a_wrong_line_is_caught_as_the_table_says(mutant, tmp_path):
    row = TABLE.loc[mutant.name]
    case = find_case(row["caught by"])
    result = verify(case, EmulatorDevice(kernels=mutant.copied_to(tmp_path)))
    assert str(result.verdict) == row["verdict"], result.story
    assert hunt.cause_of(result) == row["cause"], result.story


@pytest.mark.slow
@pytest.mark.parametrize("case_id", sorted(set(TABLE.loc[[mutant.name for mutant in HUNTED], "caught by"])))
def test_the_same_cases_pass_with_the_right_lines(case_id):
    result = verify(find_case(case_id), EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story
    assert result.bytes_compared > 0


@pytest.mark.parametrize("mutant", OF_ORACLES[::8], ids=called)
def test_a_wrong_oracle_is_caught(mutant):
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        catch = pool.apply(hunt.hunt, (mutant,))
    assert (catch.of_set, catch.cause) == ("smoke", mutant.cause)


@pytest.mark.parametrize(
    ("verdict", "of_kernel", "of_oracle"),
    [
        (Verdict.MISMATCH, True, True),
        (Verdict.COMPILE_ERROR, True, True),
        (Verdict.SETUP_ERROR, False, True),  # the oracles disagree, which catches a wrong oracle and no wrong kernel
        (Verdict.NOT_EMULATED, False, False),
        (Verdict.NO_DEVICE, False, False),
        (Verdict.EXCLUDED, False, False),
        (Verdict.PASS, False, False),
    ],
)
def test_a_case_that_judges_no_kernel_catches_none(verdict: Verdict, of_kernel: bool, of_oracle: bool):
    result = Result("a", "swizzle", verdict, "a reason")
    assert (hunt._catches(result, of_oracle=False), hunt._catches(result, of_oracle=True)) == (of_kernel, of_oracle)


def oracles_in_use(mutant: Mutant, folder: str) -> set[str]:
    """The folders that every oracle which a recipe reaches through others comes from."""
    hunt._changed(mutant, Path(folder), {}, EmulatorDevice.name)
    recipe = oracle_of("per_tensor")
    reached = recipe, recipe.nvfp4, recipe.quantizer, recipe.quantizer.nvfp4, recipe.quantizer.layout
    return {str(Path(module.__file__).parent) for module in reached}


def test_no_oracle_keeps_the_right_lines_of_another(tmp_path):
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        folders = pool.apply(oracles_in_use, (OF_ORACLES[0], str(tmp_path)))
    assert folders == {str(tmp_path / "oracles")}


@pytest.fixture
def harness_mutants(tmp_path, monkeypatch) -> Callable[..., tuple[int, str]]:
    monkeypatch.setattr(command, "JOURNAL", tmp_path / "runs" / "mutants.jsonl")

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(command.command, ["--jobs", "1", *arguments], standalone_mode=False)
        return done.return_value if done.exception is None else done.exc_info[1], done.output

    return run


def test_the_command_writes_a_table_and_goes_on_where_it_was(harness_mutants, tmp_path):
    ask = ("--name", "nibbles swapped", "--out", str(tmp_path / "table"))
    _, first = harness_mutants(*ask)
    assert "1/1  nibbles swapped: MISMATCH" in first
    assert "1 of 1 mutants are caught, 1 (100.0 %) by the smoke sets" in first
    text = (tmp_path / "table.md").read_text()
    assert "| nibbles swapped |" in text
    assert (tmp_path / "table.csv").read_text().count("\n") == 2
    with (tmp_path / "runs" / "mutants.jsonl").open("a") as file:
        file.write('{"key": "cut of')  # as a run leaves it that is killed
    _, second = harness_mutants(*ask)
    assert "1/1" not in second
    assert (tmp_path / "table.md").read_text() == text
    _, anew = harness_mutants(*ask, "--anew")
    assert "1/1  nibbles swapped" in anew
    records = [line for line in (tmp_path / "runs" / "mutants.jsonl").read_text().splitlines() if line.endswith("}")]
    assert json.loads(records[0])["by"] == find("nibbles swapped").cases[0]


def test_counts():
    mutant = find("nibbles swapped")
    caught = hunt.Catch(mutant.name, "a", "smoke", "MISMATCH", "", mutant.cause)
    counts = table.Counts.of([(mutant, caught)] * 19 + [(mutant, hunt.Catch(mutant.name, "a", "full", "MISMATCH"))])
    assert counts == (20, 19, 20, 19, 1, 0, 0)
    assert counts.enough
    misnamed = hunt.Catch(mutant.name, "a", "smoke", "MISMATCH", "", "alpha ignored")
    assert table.told(mutant, misnamed) == "wrong"
    assert table.told(mutant, hunt.Catch(mutant.name, "a", "smoke", "NONDETERMINISTIC", "", "race")) == "fact"
    assert not table.Counts.of([(mutant, caught)] * 19 + [(mutant, misnamed)]).enough
    several = hunt.Catch(mutant.name, "a", "smoke", "MISMATCH", "", f"another mistake, {mutant.cause}", True, True)
    assert table.told(mutant, several) == "right"
    assert not table.Counts.of([(mutant, hunt.Catch(mutant.name))]).enough
    assert not table.Counts.of([(mutant, hunt.Catch(mutant.name, "a", "smoke", "MISMATCH"))]).enough


class OutOfMemoryError(Exception):
    """An error with the name that torch and CuPy give theirs."""


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
def test_a_case_that_does_not_fit_catches_nothing_and_the_next_one_may(monkeypatch, error):
    asked = []

    def verify_the_second(case, device):
        asked.append(case.id)
        if len(asked) == 1:
            raise error("Out of memory allocating 9 bytes")
        return Result(case.id, case.recipe, Verdict.MISMATCH)

    monkeypatch.setattr(hunt, "verify", verify_the_second)
    catch = hunt.hunt(find("nibbles swapped"), (hunt.SMOKE,))
    assert (catch.by, catch.cases) == (asked[1], 2)


def test_a_case_that_fails_without_the_mutant_catches_nothing():
    asked = []
    verdicts = {"red": "MISMATCH", "died": None, "green": ""}

    def ask(case_id):
        asked.append(case_id)
        return verdicts[case_id]

    known: dict[str, str] = {}
    found = [
        command._without_red(hunt.Catch("mutant", by, of_set, "MISMATCH"), known, ask)
        for by, of_set in (
            ("red", "full on cuda"),
            ("red", "full"),
            ("died", "full"),
            ("green", "full"),
            ("any", "smoke"),
        )
    ]
    assert [catch.by for catch in found] == ["", "", "", "green", "any"]
    assert found[1].reason == "red is MISMATCH without a mutant, too; mend it first"
    assert found[2].reason == "died is NO RESULT without a mutant, too; mend it first"
    assert asked == ["red", "died", "green"]


def test_a_case_is_asked_with_the_right_lines():
    assert hunt.fails_anyway("swizzle/default/16x16/normal/eager", "emulator") == ""


def test_what_lasts_longer_is_ended_past_a_handler_of_other_errors():
    with pytest.raises(OutOfTime, match="no end after 1 s"), at_most(1):
        try:
            time.sleep(30)
        except Exception:
            pytest.fail("taken for an error of what was interrupted")


def test_afterwards_the_alarm_is_as_it_was():
    before = signal.getsignal(signal.SIGALRM)
    with hunt.at_most(60):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.alarm(0) == 0
