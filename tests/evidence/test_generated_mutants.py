"""Generated mutants: where they are made, what a draw meets, what is discarded, and that a hunt goes on."""

from __future__ import annotations

import ast
import os
import time
from collections import Counter
from collections.abc import Callable

import pandas as pd
import pytest
from click.testing import CliRunner

from evidence.commands import mutants as command
from evidence.mutants.catalogue import KERNELS, Mutant
from evidence.mutants.generated import change as kinds
from evidence.mutants.generated import proofs, score
from evidence.mutants.generated.change import CONCURRENCY
from evidence.mutants.generated.cuda_changes import changes_of_cuda
from evidence.mutants.generated.cuda_text import CudaText
from evidence.mutants.generated.draw import draw, everywhere, sources
from evidence.mutants.generated.python_changes import changes_of_python
from evidence.mutants.hunt import REFUSED, SAME_CODE, Catch
from harness.errors import Exit, SuiteError, UsageError
from harness.files import PACKAGE
from harness.ground.side_by_side import each_alone

CUDA = """
// 1 + 2 < 3 in a comment
#include "a/b.cuh"
template <bool rht, int width>
__device__ void f(int rows, int cols) {{
  {0}
}}
"""
FLAGS = {"rht": False, "width": 8, "outputs": "both"}


def made(changes: list[kinds.Mutation], text: str) -> set[tuple[str, str, str]]:
    return {(change.operator, text[change.start : change.end], change.wrong) for change in changes}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = 2;", {(kinds.PLUS, "2", "3"), (kinds.MINUS, "2", "1"), (kinds.TWICE, "2", "4")}),
        ("x = 0u;", {(kinds.PLUS, "0u", "1u")}),
        ("x = 0x7F;", {(kinds.PLUS, "0x7F", "0x80"), (kinds.MINUS, "0x7F", "0x7e"), (kinds.TWICE, "0x7F", "0xfe")}),
        ("x = 1.0f;", {(kinds.PLUS, "1.0f", "2.0f"), (kinds.MINUS, "1.0f", "0.0f")}),
        ("if (u < v) w();", {(kinds.COMPARISON, "<", "<=")}),
        ("g<u>(v);", set()),
        ("u = v - w;", {(kinds.SUM, "-", "+")}),
        ("u = -v;", set()),
        ("g(u, h<v, w>(x, t));", {(kinds.SWAP, "u, h<v, w>(x, t)", "h<v, w>(x, t), u"), (kinds.SWAP, "x, t", "t, x")}),
        ("fmaxf(u, v);", {(kinds.CLAMP, "fmaxf(u, v)", "(u)"), (kinds.CLAMP, "fmaxf(u, v)", "(v)")}),
        ("fminf(u, kLargest);", {(kinds.CLAMP, "fminf(u, kLargest)", "(u)")}),
        ("u = fabsf(v);", {(kinds.ABS, "fabsf(v)", "(v)")}),
        ("g<rht>(v);", {(kinds.FLAG, "rht", "false")}),
        ("g<width>(v);", {(kinds.FLAG, "width", "8")}),
        ("i64 u;", {(kinds.NARROW, "i64", "int")}),
        ("u = rows;", {(kinds.PLANE, "rows", "cols")}),
        ("u = v[group];", {(kinds.GROUP, "group", "group + 1"), (kinds.GROUP, "group", "group - 1")}),
        ("__threadfence();", {
            (kinds.FENCE, "__threadfence();", ";"), (kinds.SCOPE, "__threadfence", "__threadfence_block"),
        }),
        ("__syncthreads();", {(kinds.BARRIER, "__syncthreads();", ";"), (kinds.SCOPE, "__syncthreads", "__syncwarp")}),
        ('asm volatile("fence.proxy.async;");', {(kinds.FENCE, 'asm volatile("fence.proxy.async;");', ";")}),
        ('asm volatile("mov.b32 %0, %1;" : "=r"(u) : "r"(v));', {(kinds.VOLATILE, "volatile", "")}),
        ('asm("atom.acq_rel.gpu.add" : "=r"(u));', {
            (kinds.FENCE, ".acq_rel", ".acquire"), (kinds.FENCE, ".acq_rel", ".release"),
            (kinds.SCOPE, ".gpu", ".cta"),
        }),
        ('asm("ld.acquire.sys" : "=r"(u));', {(kinds.FENCE, ".acquire", ".relaxed"), (kinds.SCOPE, ".sys", ".cta")}),
        ('asm("red.release" : "=r"(u));', {(kinds.FENCE, ".release", ".relaxed")}),
        ("cp_async_wait<u>();", {(kinds.FENCE, "cp_async_wait<u>();", ";"), (kinds.PARTICIPANTS, "u", "u + 1")}),
        ("u = __any_sync(~0u, v);", {
            (kinds.PARTICIPANTS, "~0u", "~0u >> 1"), (kinds.PARTICIPANTS, "~0u", "0xFFFFu"),
            (kinds.SWAP, "~0u, v", "v, ~0u"), (kinds.PLUS, "0u", "1u"),
        }),
        ("atomicMax(u, v);", {(kinds.SWAP, "u, v", "v, u"), (kinds.SCOPE, "atomicMax", "atomicMax_block")}),
        ("static_assert(2 < 3, \"4\");", set()),
        ("// u = 1 + 2;", set()),
        ('g("1 + 2");', set()),
    ],
)  # fmt: skip
def test_changes_of_a_line_of_cuda(line, expected):
    text = CUDA.format(line)
    # White space after a dropped word goes with it.
    found = {(kind, right.strip(), wrong) for kind, right, wrong in made(list(changes_of_cuda(text, FLAGS)), text)}
    assert found == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("u = 2", {(kinds.PLUS, "2", "3"), (kinds.MINUS, "2", "1"), (kinds.TWICE, "2", "4")}),
        ("u = True", set()),
        ("u = v >= w", {(kinds.COMPARISON, ">=", ">")}),
        ("u += v", {(kinds.SUM, "+", "-")}),
        ("u = (v) - (w)", {(kinds.SUM, "-", "+")}),
        ("u = g(v, (w))", {(kinds.SWAP, "v, (w", "w, (v")}),
        ("u = np.abs(v)", {(kinds.ABS, "np.abs(v)", "(v)")}),
        ("u = v.abs()", {(kinds.ABS, "v.abs()", "(v)")}),
        ("u = np.fmin(v, nvfp4.FLT_MAX)", {(kinds.CLAMP, "np.fmin(v, nvfp4.FLT_MAX)", "(v)")}),
        ("u = case.flags.outputs", {(kinds.FLAG, "case.flags.outputs", "'both'")}),
        ("u = np.int64", {(kinds.NARROW, "int64", "int32")}),
        ("u = rows, cols", {(kinds.PLANE, "rows", "cols"), (kinds.PLANE, "cols", "rows")}),
        ("u = v[index]", {(kinds.GROUP, "index", "index + 1"), (kinds.GROUP, "index", "index - 1")}),
        ("u = 'é' < v", {(kinds.COMPARISON, "<", "<=")}),
        ("raise ValueError(f'{1 + 2}', 3)", set()),
        ("if u < v: raise ValueError", set()),
        ("def refuse(u): return u + 1", set()),
        ('"""1 + 2"""', set()),
        ("u: tuple[3] = v", set()),
    ],
)  # fmt: skip
def test_changes_of_a_line_of_python(line, expected):
    assert made(list(changes_of_python(line, FLAGS)), line) == expected


def test_tokens_are_the_text():
    for path in sources():
        if path.suffix != ".py":
            text = path.read_text()
            tokens = CudaText(text).tokens
            assert all(text[token.start : token.end] == token.text for token in tokens)
            assert [token.start for token in tokens] == sorted(token.start for token in tokens)


@pytest.mark.slow
def test_every_operator_and_every_source_has_mutants_each_with_a_name_of_its_own():
    assert {mutant.theme for mutant in everywhere()} == set(kinds.OPERATORS)
    recipes_alone = {PACKAGE / mutant.file for mutant in everywhere()}
    assert recipes_alone == set(sources())
    assert {path for path in (PACKAGE / KERNELS).rglob("*.cu*")} <= recipes_alone
    assert len({mutant.name for mutant in everywhere()}) == len(everywhere())


@pytest.mark.slow
def test_each_changes_one_place():
    for mutant in draw(5, 1000):
        right, edit = (PACKAGE / mutant.file).read_text(), mutant.edit
        wrong = mutant.changed()
        assert edit.file == mutant.file
        only_there = right[: edit.start] + edit.new + right[edit.end :]
        assert "".join(wrong.split()) == "".join(only_there.split()) != "".join(right.split())
        assert mutant.right != mutant.wrong
        if mutant.file.endswith(".py"):
            ast.parse(wrong)
        else:
            assert wrong.count("\n") == right.count("\n")


def test_a_draw_is_its_seeds():
    assert draw(7, 40) == draw(7, 40)
    assert draw(7, 40)[:20] == draw(7, 20)
    assert draw(7, 40) != draw(8, 40)


def test_a_draw_meets_every_file_and_operator_and_enough_of_concurrency():
    drawn = draw(2, command.COUNT)
    assert {mutant.file for mutant in drawn} == {mutant.file for mutant in everywhere()}
    of_operator = Counter(mutant.theme for mutant in drawn)
    assert set(of_operator) == set(kinds.OPERATORS)
    assert min(of_operator.values()) >= 5
    assert sum(mutant.theme in CONCURRENCY for mutant in drawn) >= 100
    assert len(draw(2, 10**6)) == len(everywhere())


def test_every_proof_is_of_a_generated_mutant():
    assert set(proofs.proofs()) <= {mutant.edit.key for mutant in everywhere()}


def test_a_proof_without_a_reason(tmp_path):
    path = tmp_path / "equivalent.yaml"
    path.write_text("equivalent:\n- of: {swizzle: ['a[-b-]']}\n")
    with pytest.raises(SuiteError, match="equivalent.yaml:2: reason: field required"):
        proofs.proofs(path)


def test_a_stale_proof(tmp_path):
    path = tmp_path / "equivalent.yaml"
    path.write_text("equivalent:\n- reason: none\n  of:\n    opaque: ['asm[- static-](\"\"']\n")
    with pytest.raises(SuiteError, match=r"equivalent.yaml:4: opaque has no .*; the nearest there is `asm volatile\("):
        proofs.proofs(path)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def harness_mutants(tmp_path, monkeypatch) -> Run:
    monkeypatch.setattr(command, "TABLE", tmp_path / "mutants")
    monkeypatch.setattr(command, "GENERATED", tmp_path / "generated_mutants.csv")
    monkeypatch.setattr(proofs, "proofs", dict)

    def run(*arguments: str) -> tuple[int, str]:
        journal = ("--jobs", "1", "--journal", str(tmp_path / "journal.jsonl"))
        done = CliRunner().invoke(command.command, [*journal, *arguments], standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.return_value, done.output

    return run


def survives(mutant: Mutant, **search: object) -> Catch:
    return Catch(mutant.name, cases=3)


def is_caught(mutant: Mutant, **search: object) -> Catch:
    return Catch(mutant.name, "swizzle/default/128x64/normal/eager", "smoke", "MISMATCH")


ASK = ("--generated", "--seed", "3", "--count", "12", "--name", ".cu")


@pytest.mark.slow
def test_a_hunt_goes_on_where_it_was_with_its_survivors(harness_mutants, monkeypatch):
    monkeypatch.setattr(command, "hunt", survives)
    _, first = harness_mutants(*ASK)
    hunted = first.count("SURVIVES all 3 cases")
    assert hunted > 5
    assert f"{hunted} were drawn and 0 discarded; of the other {hunted}, 0 (0.0 %) are caught" in first
    _, again = harness_mutants(*ASK)
    assert "SURVIVES" not in again
    _, longer = harness_mutants(*ASK, "--seconds", "1000")
    assert longer.count("SURVIVES") == hunted
    _, anew = harness_mutants(*ASK, "--anew")
    assert anew.count("SURVIVES") == hunted


def test_what_is_discarded_once_is_so_in_every_search(harness_mutants, monkeypatch):
    monkeypatch.setattr(command, "hunt", lambda mutant, **search: Catch(mutant.name, discarded=SAME_CODE))
    status, first = harness_mutants(*ASK)
    assert f"discarded, {SAME_CODE}" in first
    assert status == Exit.CLEAN
    _, longer = harness_mutants(*ASK, "--seconds", "1000")
    assert f"discarded, {SAME_CODE}" not in longer


def test_a_process_that_dies_leaves_a_survivor(harness_mutants, monkeypatch):
    monkeypatch.setattr(command, "hunt", lambda mutant, **search: os._exit(3))
    status, output = harness_mutants(*ASK)
    assert "SURVIVES all 0 cases (its process died, or did not end)" in output
    assert status == Exit.BYTES_DIFFER


def test_results_of_all_that_is_drawn_stand_beside_the_catalogue(harness_mutants, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "hunt", is_caught)
    monkeypatch.setattr(command, "right_answers", lambda recipes: {})
    page = tmp_path / "mutants.md"
    page.write_text("# Mutants\n\nOurs.\n")
    for _ in range(2):
        status, _ = harness_mutants("--generated", "--seed", "3", "--count", "30")
        assert status == Exit.CLEAN
        assert page.read_text().startswith("# Mutants\n\nOurs.\n\n# Generated mutants\n")
        assert page.read_text().count("# Generated mutants") == 1
    assert "python -m evidence mutants --generated --seed 3 --count 30" in page.read_text()
    assert len(pd.read_csv(tmp_path / "generated_mutants.csv")) == 30


@pytest.mark.parametrize(
    "arguments",
    [("--generated",), ("--seed", "1"), ("--count", "3"), ("--generated", "--seed", "1", "--catalogue", "a.yaml")],
)
def test_options_that_do_not_belong_together(harness_mutants, arguments):
    with pytest.raises(UsageError):
        harness_mutants(*arguments)


FOREIGN = """mutants:
- {name: read as if in tiles, file: kernels/swizzle.cu, right: load_compact, wrong: load_swizzled}
- {name: another comment, file: kernels/swizzle.cu, right: "// swizzle:", wrong: "// Swizzle:"}
- {name: no program, file: kernels/swizzle.cu, right: "patch.load_compact(", wrong: "patch.load_compact[("}
- {name: another space, file: oracles/swizzle.py, right: "def outputs(case", wrong: "def outputs( case"}
- {name: no oracle, file: oracles/swizzle.py, right: "from __future__", wrong: "from nowhere"}
"""


@pytest.mark.slow
def test_a_foreign_catalogue_and_what_of_it_is_no_mutant(harness_mutants, tmp_path):
    path = tmp_path / "foreign.yaml"
    path.write_text(FOREIGN)
    status, output = harness_mutants("--catalogue", str(path), "--set", "smoke", "--out", str(tmp_path / "table"))
    assert "read as if in tiles: MISMATCH" in output
    assert f"another comment: discarded, {SAME_CODE}" in output
    assert f"no program: discarded, {REFUSED}" in output
    assert f"another space: discarded, {SAME_CODE}" in output
    assert f"no oracle: discarded, {REFUSED}" in output
    assert "5 were drawn and 4 discarded; of the other 1, 1 (100.0 %) are caught by the smoke sets" in output
    assert status == Exit.CLEAN
    assert "| kernels/swizzle.cu | 3 | 2 | 1 | 1 | 1 | 100.0 % | 100.0 % |" in (tmp_path / "table.md").read_text()


def test_what_is_proved_is_not_hunted(harness_mutants, tmp_path, monkeypatch):
    drawn = next(mutant for mutant in draw(3, 12) if ".cu" in mutant.file)
    monkeypatch.setattr(command, "hunt", survives)
    monkeypatch.setattr(proofs, "proofs", lambda: {drawn.edit.key: "nobody reads it"})
    _, output = harness_mutants(*ASK, "--out", str(tmp_path / "table"))
    assert "and 1 discarded" in output
    assert f"{drawn.name}: " not in output
    assert "proved: nobody reads it" in (tmp_path / "table.md").read_text()


def test_each_item_has_a_process_of_its_own():
    def function(item: int) -> tuple[int, int]:
        if item == 2:
            os._exit(1)
        if item == 4:
            time.sleep(6000)
        return item, os.getpid()

    found = dict(each_alone(function, [1, 2, 3, 4], 2, longest=5))
    assert found[2] is None
    assert found[4] is None
    assert found[1] is not None
    assert found[3] is not None
    assert len({found[1][1], found[3][1], os.getpid()}) == 3


def test_a_place_is_a_line_with_a_part_of_what_is_right():
    mutant = next(mutant for mutant in everywhere() if mutant.theme == kinds.BARRIER)
    line, right, wrong = score.difference(mutant)
    text = (PACKAGE / mutant.file).read_text().splitlines()
    assert "sync" in text[line - 1] and "sync" in right and right != wrong


def test_a_share_of_concurrency_that_is_not_enough():
    mutants = [mutant for mutant in draw(1, 200) if mutant.theme in CONCURRENCY][:19]
    hunted = [(mutant, is_caught(mutant)) for mutant in mutants]
    assert score.enough(score.table_of(hunted, "c"))
    others = [(mutant, is_caught(mutant)) for mutant in draw(1, 200) if mutant.theme not in CONCURRENCY]
    wrong = [*others, *hunted[2:], *((mutant, survives(mutant)) for mutant in mutants[:2])]
    table = score.table_of(wrong, "c")
    assert score.Score.of(table).caught >= 0.95 * len(table)
    assert not score.enough(table)
