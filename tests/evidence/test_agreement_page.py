"""The matrix of implementations: every word for a difference, from subjects that make it."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from evidence.__main__ import main
from evidence.agreement import answers, cases, committed, page
from evidence.agreement.answers import Answer, Kind
from harness.errors import CompileError, UsageError
from harness.expected.expected import expect_on
from harness.subjects.convention import Choice, Convention
from harness.subjects.subject import Subject, load
from harness.suite.suite import find_case, suite_of

CASE = "per_tensor/outputs=rowwise/16x16/normal/eager"
ZEROS = "per_tensor/outputs=rowwise/16x16/signed_zero/eager"


ZERO = (Convention.ZERO_SIGN, Convention.ZERO_SCALE_CODES)


def right(case, inputs, outputs):
    for name, value in expect_on(case, dict(inputs)).values.items():
        outputs[name][...] = value


def unsigned_zeros(case, inputs, outputs):
    right(case, inputs, outputs)
    data = outputs["rowwise_data"]
    data &= np.where(data & 7 == 0, 0xF7, 0xFF).astype(np.uint8) & np.where(data & 0x70 == 0, 0x7F, 0xFF).astype(
        np.uint8
    )


def one_wrong(case, inputs, outputs):
    """Code 7 where there is a code 6, everywhere: a bug that one block shows."""
    right(case, inputs, outputs)
    data = outputs["rowwise_data"]
    data |= np.where(data & 7 == 6, 1, 0).astype(np.uint8)


def nothing(case, inputs, outputs):
    pass


def raises(case, inputs, outputs):
    raise RuntimeError("no kernel\nfor you")


def subject(quantize, *declared: Convention, refuses=lambda case: "", needs=None) -> Subject:
    return Subject("theirs", "1", quantize, needs or {}, refuses, frozenset(declared))


def one(of: Subject, case_id: str = CASE) -> Answer:
    (found,) = answers.answers(of, [find_case(case_id)])
    return found


def test_each_word_is_said_of_what_it_means():
    assert one(subject(right)).kind is Kind.EQUAL
    assert one(subject(unsigned_zeros, *ZERO), ZEROS).kind is Kind.CONVENTION
    assert one(subject(unsigned_zeros), ZEROS).kind is Kind.BUG
    assert one(subject(nothing, *Convention)).kind is Kind.BUG
    assert one(subject(right, refuses=lambda case: "only tuesdays")).reasons == ("only tuesdays",)
    for later, default in (("scale_format=ue5m3", "scale_format=e4m3"), ("global_scale=false", "global_scale=true")):
        found = one(subject(nothing), f"per_tensor/{later}/16x16/normal/eager")
        assert found.reasons == (f"the function is for {default}",), "it names no such flag, and knows none"
    absent = one(subject(right, needs={"no-such-package": "pip install it"}))
    assert absent.kind is Kind.NOT_OFFERED and "pip install it" in absent.reasons[0]
    found = one(subject(raises))
    assert found.kind is Kind.NOT_OFFERED and found.reasons == ("raises RuntimeError: no kernel",)
    order = ["order of the division: 3 codes"]
    assert answers.named(order)[0] is Kind.ORDER
    assert answers.named([*order, "sign of zero: 1 codes"])[0] is Kind.CONVENTION


def test_a_bug_has_the_block_that_shows_it():
    found = one(subject(one_wrong, Convention.ZERO_SIGN))
    assert found.kind is Kind.BUG
    said = r"16 values, \S+ at \d+, \S+ at \d+, else 0: rowwise_data\[0, \d\] is 0x\S+ .*; 1 of 256 entries differ"
    assert re.fullmatch(said, found.reasons[0]), found.reasons[0]
    assert one(subject(nothing)).reasons[0].count("must be") == 1


def of_choices(*names: str, order: tuple[str, ...] = ()) -> Subject:
    """A subject that writes a wrong first and a wrong last code, and declares choices of these names."""
    left = {"first", "last"}

    def wrong(case, inputs, outputs):
        right(case, inputs, outputs)
        outputs["rowwise_data"].reshape(-1)[[0] * ("first" in left) + [-1] * ("last" in left)] ^= 1

    @contextmanager
    def without(name):
        left.discard(name)
        yield
        left.add(name)

    choices = {name: Choice("2.8", "a rule of its own", partial(without, name), order=name in order) for name in names}
    return replace(subject(wrong, *Convention), choices=choices)


def test_a_choice_explains_what_differs_only_if_nothing_differs_without_it():
    of = of_choices("other", "first", "last", order=("first",))
    found = one(of)
    assert found.kind is Kind.CONVENTION
    assert found.reasons == ("first: 2.8: a rule of its own", "last: 2.8: a rule of its own")
    assert one(of_choices("first", "last", order=("last", "first"))).kind is Kind.ORDER
    assert one(of_choices("first", "other")).kind is Kind.BUG, "a byte is left, which the conventions would explain"
    said = answers.smallest_inputs(of, [found])
    assert set(said) == {("theirs", "first"), ("theirs", "last")}
    assert all(text.startswith("16 values, all 0: rowwise_data[0, 0] is 0x01") for text in said.values()), said


def test_a_bug_has_the_defect_without_which_it_is_none():
    wrong = [one_wrong]

    def mend(other):
        @contextmanager
        def mended():
            wrong.append(other)
            yield
            wrong.pop()

        return mended

    of = subject(lambda *arrays: wrong[-1](*arrays), *ZERO)
    mends = {"blank": mend(nothing), "seven": mend(right), "zeros": mend(unsigned_zeros)}
    assert one(replace(of, mends=mends)).cause == "seven; without that: equal"
    del mends["seven"]
    found = one(replace(of, mends=mends), ZEROS)
    assert found.cause == "zeros; without that: convention (sign of zero)"
    assert f"| {found.cause} |" in page.page("", {"theirs": "1"}, [found], [])
    assert one(of).cause == "" and one(subject(right)).cause == ""


@pytest.mark.parametrize("case_id", [
    "per_tensor/default/48x80/outlier_spike/eager", "four_over_six/default/48x80/outlier_spike/eager",
])  # fmt: skip
def test_fouroversix_does_not_saturate(case_id):
    theirs = load("fouroversix_pytorch")
    if why := theirs.absent():
        pytest.skip(why)
    found = one(theirs, case_id)
    assert found.kind is Kind.BUG and found.cause == "rounding to nearest does not saturate at 6; without that: equal"


@pytest.mark.parametrize("distribution", ["normal", "ties", "specials_nan"])
def test_the_header_s_kernel_is_equal_on_the_emulator(distribution):
    found = load("cuda_fp4")
    case = find_case(f"per_tensor/outputs=rowwise,stage=encode/48x80/{distribution}/eager")
    if why := found.refuses(case):
        pytest.skip(why)
    try:
        assert [each.kind for each in answers.answers(found, [case])] == [Kind.EQUAL]
    except CompileError as error:
        pytest.skip(str(error))


CARD = """\
code: tiles.cu
recipe: swizzle
flags: {direction: rowwise, to: swizzled}
launches:
  - kernel: tiles
    grid: [1]
    block: 128
    arguments:
      - array: scale_inv
      - array: swizzled_scale_inv
      - i32: (rows + 127) // 128 * 128
      - i32: (cols // 16 + 3) // 4 * 4
"""
TILES = """
extern "C" __global__ void tiles(const unsigned char* in, unsigned char* out, int rows, int cols) {
  for (int i = threadIdx.x; i < rows * cols; i += 128) {
    int row = i / cols, col = i % cols;
    out[((row / 128) * (cols / 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4] = in[i];
  }
}
"""


def test_a_card_is_asked_on_the_emulator(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "card.yaml").write_text(CARD)
    for text, word in ((TILES, "equal"), (TILES.replace("col % 4] = in[i]", "col % 4] = in[i] ^ 1"), "bug")):
        (tmp_path / "tiles.cu").write_text(text)
        with pytest.raises(SystemExit) as ended:
            main(["agreement", "swizzle", "--subject", "card.yaml", "--out", str(tmp_path)])
        assert ended.value.code == 0, capsys.readouterr().err
        written = (tmp_path / "agreement.md").read_text()
        assert f"| swizzle | normal | {word} " in written and "| card.yaml | the card is for to=swizzled | " in written


def test_cases_hold_the_vectors_and_every_input_of_what_is_offered():
    found = {case.id for case in cases.cases([suite_of("four_over_six")])}
    for variant in ("default", *cases.OFFERED["four_over_six"]):
        inputs = {each.split("/")[3] for each in found if each.startswith(f"four_over_six/{variant}/48x80/")}
        assert len(inputs) >= 18, variant
    assert not any("/0x" in each for each in found)


def test_the_page_has_a_place_for_every_word():
    case, other = find_case(CASE), find_case(ZEROS)
    found = [
        Answer("a", case, Kind.EQUAL), Answer("a", other, Kind.BUG, ("rowwise_data[0] is wrong",)),
        Answer("b", case, Kind.ORDER, ("order of the division: 3 codes",)),
        Answer("b", other, Kind.NOT_OFFERED, ("no",)),
    ]  # fmt: skip
    text = page.page("python -m evidence agreement", {"a": "a (1)", "b": "b (2)"}, found, [])
    assert "| per_tensor | normal | equal 1 | order 1 |" in text
    assert "| per_tensor | signed_zero | bug 1 | - |" in text
    assert "| per_tensor | outputs=rowwise | bug 1, equal 1 | order 1 |" in text
    assert f"| b | order of the division | 1 | {CASE} | order of the division: 3 codes |" in text
    assert f"| a | {ZEROS} | rowwise_data" in text and "| b | no | 1 |" in text
    assert "None." in page.page("python -m evidence agreement", {"a": "a (1)"}, found[:1], [])
    small = page.page("", {"b": "b"}, found, [], {("b", "order of the division"): "16 values, 1 at 0 | else 0"})
    assert "| order of the division: 3 codes | 16 values, 1 at 0 \\| else 0 |" in small


def test_a_page_keeps_what_it_says_of_subjects_that_are_not_asked_again():
    case, other = find_case(CASE), find_case(ZEROS)
    old = [
        Answer("a", case, Kind.EQUAL), Answer("b", case, Kind.BUG, ("it | was wrong",)),
        Answer("a", other, Kind.NOT_OFFERED, ("no",)),
        Answer("c", case, Kind.ORDER, ("order of the division: 1 codes",)),
    ]  # fmt: skip
    before = page.page("first", {"a": "a (1)", "b": "b (1)", "c": "c (1, 2)"}, old, [])
    new = [Answer("b", case, Kind.EQUAL), Answer("b", other, Kind.CONVENTION, ("sign of zero: 2 codes",))]
    text = page.page("second", {"b": "b (2)"}, new, [], kept=before)
    assert "| a (1); c (1, 2) | `first` |\n| b (2) | `second` |" in text
    assert "| recipe | input | a | c | b |" in text
    assert "| per_tensor | normal | equal 1 | order 1 | equal 1 |" in text
    assert "| per_tensor | signed_zero | - | - | convention 1 |" in text
    assert "| per_tensor | outputs=rowwise | equal 1 | order 1 | convention 1, equal 1 |" in text
    assert text.index("| b | sign of zero | 1 |") < text.index("| c | order of the division | 1 |")
    assert "## Bugs\n\nNone." in text and "| a | no | 1 |" in text
    assert page.page("second", {"b": "b (2)"}, new, [], kept=text) == text
    all_again = page.page("third", {"a": "a (1)", "b": "b (1)", "c": "c (1, 2)"}, old, [], kept=text)
    assert (
        "`third`" in all_again
        and "`second`" not in all_again
        and "| b | " + CASE + " | it \\| was wrong |" in all_again
    )
    for damaged in (
        "# Another page",
        text.replace("| a | no | 1 |", "| a | no |"),
        text.replace("| subject |", "| who |"),
    ):
        with pytest.raises(UsageError, match="the page to keep has "):
            page.page("second", {"b": "b (2)"}, new, [], kept=damaged)


def test_what_a_gpu_gave_is_read_from_the_committed_tables(tmp_path):
    (table,) = committed.tables()
    assert {each.kind for each in table.given} >= {Kind.EQUAL, Kind.ORDER, Kind.CONVENTION}
    text = page.page("python -m evidence agreement", {}, [], [table])
    assert f"commit {table.about['commit'][:7]}" in text and "| gemm/default | humming | equal 5 |" in text
    folder = tmp_path / "gpu"
    folder.mkdir()
    for damaged in ("", "{", json.dumps({"command": "x"}) + '\n{"side": "torchao"}'):
        (folder / "peers.jsonl").write_text(damaged)
        with pytest.raises(UsageError, match="is not what `python -m evidence peers` writes"):
            committed.tables(tmp_path)


@pytest.mark.parametrize(("verdict", "kinds"), [("LAUNCH_ERROR", [Kind.NOT_OFFERED]), ("NOT_MEASURED", [])])
def test_a_peer_that_could_not_or_was_not_run_is_accused_of_nothing(tmp_path, verdict: str, kinds: list[Kind]):
    record = {"side": "torchao", "case_id": "per_tensor/default/16x16/normal", "verdict": verdict, "says": ["why"]}
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "peers.jsonl").write_text(f"{{}}\n{json.dumps(record)}\n")
    (table,) = committed.tables(tmp_path)
    assert [each.kind for each in table.given] == kinds


def test_the_command_writes_the_page(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["agreement", "casts", "--out", str(tmp_path)])
    assert ended.value.code == 4 and "nothing was compared" in capsys.readouterr().out
    text = (tmp_path / "agreement.md").read_text()
    assert text.startswith("# Who agrees with the oracles\n") and "| `python -m evidence agreement casts " in text
    for folder in (["--out", str(tmp_path / "none")], []):
        with pytest.raises(SystemExit) as ended:
            main(["agreement", "casts", "--keep", *folder])
        assert ended.value.code == 64 and "--keep: give the folder" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["agreement", "--subject", "torchoa"])
    assert ended.value.code == 64 and "torchao" in capsys.readouterr().err
