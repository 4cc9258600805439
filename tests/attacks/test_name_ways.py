"""Ways to look green: names and reasons that a terminal or a page would act on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from runs_on_disk import IDS, about, mismatch, write_run
from ways import must_be_refused, still_green_if

from harness.records.run_folder import read_run
from harness.report.tables import write_verify
from harness.runner import summary
from harness.verdict import Result, Verdict

ACTS = {
    "an escape sequence": "\x1b[2K\x1b[1A\x1b[32m1 passed",
    "a carriage return": "1 differs\r1 passed",
    "a right-to-left mark": "\u202edessap 1",
    "an eight-bit escape": "\x9b2J",
}


@pytest.mark.parametrize("words", ACTS.values(), ids=ACTS)
def test_a_reason_that_wipes_the_screen(words: str):
    """Have a refusal clear the line above it, and print `passed` in its place."""
    result = Result(IDS[0], "swizzle", Verdict.EXCLUDED, words)
    still_green_if(set(summary.render([result], Counter(), 1.0, 120)) & set("\x1b\r\u202e\x9b"), f"printed: {words!r}")


@pytest.mark.parametrize("words", ACTS.values(), ids=ACTS)
def test_a_record_that_wipes_the_screen(tmp_path: Path, words: str):
    """Write such a text into the journal of a run that somebody else reports."""
    run = write_run(tmp_path / "run", about(IDS[:1], IDS[:1]), mismatch(IDS[0]) | {"reason": words})
    must_be_refused(lambda: read_run(run).records, "control character")


@pytest.mark.parametrize("words", ["[conceal]42 cases[/conceal]", ":white_check_mark:", "[green]PASS[/green]"])
def test_a_reason_that_is_markup(words: str):
    """Have the reason of an exclusion hidden, or shown as a green mark, by the markup of the summary."""
    result = Result(IDS[0], "swizzle", Verdict.EXCLUDED, words)
    still_green_if(words not in summary.render([result], Counter(), 1.0, 120), "the reason is not in the summary")


@pytest.mark.parametrize("words", ["![1 passed](http://a/b.png)", "`a\\` | PASS |", "\\| PASS |", ":white_check_mark:"])
def test_a_reason_that_is_markdown(tmp_path: Path, words: str):
    """Have a reason end its cell of the summary in a merge request, or draw a badge there."""
    result = Result(IDS[0], "swizzle", Verdict.EXCLUDED, words)
    (page,) = (path for path in write_verify(tmp_path, [result.to_record()]) if path.suffix == ".md")
    row = page.read_text().partition("## Excluded")[2].splitlines()[-1]
    cells = row.replace("\\|", "").count("|")
    still_green_if(cells != 3 or "![" in row or "`" in row or "\\\\|" in row or ":white_check_mark:" in row, row)
