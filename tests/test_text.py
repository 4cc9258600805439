"""Names that others chose are shown as they are written, in every format."""

from __future__ import annotations

import ast
import io
import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from rich.table import Table

from harness import text
from harness.errors import UsageError
from harness.files import ROOT
from harness.report.merge_request import junit
from harness.report.tables import csv, markdown, write_verify
from harness.runner import summary
from harness.verdict import Judgement, Performance, Result, Verdict

ACTS = ["\x1b[2J\x1b[1;1H", "\r", "\x07", "\x9b31m", "\u202egreen", "\u200b", "\u2066", "\x7f", "\ud800", "\U000e0041"]
MARKUP = ["[bold green]PASS[/bold green]", "[/]", "[link=file:///etc]x[/link]", ":white_check_mark: PASS"]


@pytest.mark.parametrize("acting", ACTS, ids=ascii)
def test_what_acts_on_a_terminal_is_spelled_out(acting: str):
    assert text.acts(f"a{acting}b") and not text.acts(text.printable(f"a{acting}b"))
    assert not text.acts(str(UsageError(f"a{acting}b")))
    result = Result("toy/default/16x16/normal/eager", "toy", Verdict.MISMATCH, acting, f"one\n\ttwo{acting}", acting)
    assert not any(text.acts(value) for value in (result.reason, result.story, result.input))
    assert result.story.startswith("one\n\ttwo\\")


def test_lines_stay_where_a_text_has_several():
    assert text.printable("a\n\tb") == "a\n\tb" and text.one_line("a\n\tb") == "a b"
    assert text.one_line("a  b – ü 漢") == "a  b – ü 漢"


@pytest.mark.parametrize("markup", MARKUP)
def test_markup_of_a_reason_is_text_in_the_summary(markup: str):
    results = [
        Result("toy/default/16x16/normal/eager", "toy", Verdict.EXCLUDED, markup),
        Result("toy/default/16x32/normal/eager", "toy", Verdict.CONVENTION, f"{markup}: 3 bytes", subject="s"),
    ]
    assert markup in summary.render(results, Counter(), 1.0, 200)
    console = text.console(file=io.StringIO(), width=120)
    table = Table(markup, title=markup)
    table.add_row(markup)
    console.print(table)
    console.print(markup)
    assert console.file.getvalue().count(markup) == 4


def test_every_console_is_made_in_one_place():
    made = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "harness").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console"
    ]
    assert made == ["harness/text.py"]


def cell(words: str) -> str:
    (row,) = markdown(pd.DataFrame([[words]], columns=["x"])).splitlines()[2:]
    return row.removeprefix("| ").removesuffix(" |")


@pytest.mark.parametrize(
    "words",
    ["a | b", "a \\| b", "\\", "`code`", "[x](javascript:alert(1))", "![x](http://a/b.png)", "<b>", "&lt;", "**b**",
     "~~x~~", "$\\color{green}{PASS}$", ":white_check_mark:", "a\nb", "a\r\n| PASS |", "\x1b[32m"],
)  # fmt: skip
def test_a_cell_of_markdown_is_text(words: str):
    found = cell(words)
    assert not set(found) & set("\n\r<`[$~\x1b")
    assert not any(found[i] in "|*" and found[i - 1] != "\\" for i in range(len(found)))
    assert "\\" not in found.replace("\\|", "").replace("\\*", "") and ":white_check_mark:" not in found


def test_a_page_has_no_markup_of_a_record(tmp_path: Path):
    words = "<img src=x onerror=alert(1)>\"'&`|=cmd"
    result = Result("toy/default/16x16/normal/eager", "toy", Verdict.MISMATCH, words, words, subject=words)
    paths = {path.suffix: path.read_text() for path in write_verify(tmp_path, [result.to_record()])}
    assert "<img" not in paths[".html"] and "&lt;img" in paths[".html"]
    assert "<img" not in paths[".md"].replace("    <img", "")
    json.loads(paths[".json"])


def test_a_formula_is_text_in_csv():
    assert csv(pd.DataFrame([["=1+1"], ["@x"], ["-a"]], columns=["x"])).split() == ["x", "'=1+1", "'@x", "'-a"]


@pytest.mark.parametrize("base", ["HEAD^{commit}", "{0.__class__}", "{case}{case}", "</failure>"])
def test_a_revision_of_any_name_is_text_in_junit(base: str):
    judgement = Judgement("toy/default/16x16/normal/graph", Performance.SLOWER, "so")
    made = ElementTree.fromstring(junit([], [judgement], lambda case_id: f"gate --base {base} --case '{case_id}'"))
    assert f"gate --base {base} --case '{judgement.case_id}'" in made.find(".//failure").text


def test_an_error_about_a_file_is_one_line_whatever_it_quotes():
    assert str(UsageError("there is no 'a\n\tb'")) == "there is no 'a b'"
