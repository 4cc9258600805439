"""README is short; figures of README and docs/ are those of results/, and cases and recipes that they name exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from evidence import measured
from evidence.docs import choice, figures, pages
from evidence.mutants.catalogue import find
from harness.commands import recipes
from harness.device.emulator import EmulatorDevice
from harness.errors import UsageError
from harness.files import ROOT
from harness.ground.command_lines import Asked, this_harness
from harness.suite.suite import find_case, load_suites
from harness.verify.screen import screen
from harness.verify.verify import verify

README = ROOT / "README.md"
PAGES = pages.all_pages()
MOST_WORDS = 700  # besides tables and code
PART = re.compile(r"<!-- rendered \w+ -->.*?<!-- end -->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# A measured figure: a time, a rate, a share or a ratio. 100 % is a unit.
FIGURE = re.compile(
    r"(?<![\d.])(?!100 %)\d(?:[\d.,]*\d)? ?(?:us|µs|%|GB/s|TFLOP/s|dB)(?!\w)|\d(?:\.\d+)?x (?:as|faster)|\d times as"
)


def prose(page: Path) -> str:
    """What a person reads as sentences: no blocks, no tables."""
    text = FENCE.sub("", PART.sub("", page.read_text()))
    return "\n".join(line for line in text.splitlines() if not line.startswith("|"))


def test_the_readme_is_read_in_two_minutes():
    assert len(prose(README).split()) <= MOST_WORDS


def test_the_readme_leads_on_in_ten_lines_and_begins_with_what_to_type():
    text = README.read_text()
    rows = text.partition("## Read on")[2].partition("`harness/`")[0].strip().splitlines()
    assert len(rows) == 2 + 10
    assert all(f"\nmake {goal}\n" in "\n".join(text.splitlines()[:30]) for goal in ("verify", "test"))


def test_the_readme_says_whose_times_and_whose_bytes():
    assert "Times are Hopper's" in prose(README) and "Blackwell's bytes" in prose(README)
    assert len(pages.parts(README.read_text())) >= 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_figure_is_that_of_results(page: Path):
    assert pages.stale(page) == [], "`python -m evidence docs` writes what results/ say"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "numerics.md"], ids=lambda page: page.name)
def test_no_figure_is_typed_by_hand(page: Path):
    assert FIGURE.findall(FENCE.sub("", PART.sub("", page.read_text()))) == []


@pytest.mark.parametrize("typed", ["in 120 us", "4,250 GB/s", "0.12 dB", "7 %", "2.8x as fast", "6 times as long"])
def test_a_figure_that_is_typed_is_seen(typed: str):
    assert FIGURE.search(f"It ends {typed}.")


def test_every_renderer_is_used():
    used = {name for page in PAGES for name in pages.parts(page.read_text())}
    assert used == set(figures.RENDERERS)


@pytest.fixture
def other_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of `results/` that pages are rendered from."""
    results = tmp_path / "results"
    shutil.copytree(ROOT / "results", results, ignore=shutil.ignore_patterns("runs"))
    for module, name, value in (
        (measured, "RESULTS", results),
        (figures, "RESULTS", results),
        (choice, "RESULTS", results),
        (measured, "ROOT", tmp_path),
    ):
        monkeypatch.setattr(module, name, value)
    forget()
    yield results
    forget()


def forget() -> None:
    """Have pages read `results/` again."""
    for kept in (measured.times, measured.peers, choice.snr):
        kept.cache_clear()


@pytest.mark.parametrize(
    ("name", "file", "figure"),
    [
        ("speed", "tables/nvidia-h200/peers.jsonl", r'"graph": \d(\d)'),
        ("products", "tables/nvidia-h200/gemm.jsonl", r'"commit": "(\w)'),
        ("quality", "quality/quality.csv", r"local_1x64,ffn_down.input,256,128,(\d)"),
        ("mutants", "mutants.md", r"caught, \d+(\d) \("),
    ],
)
def test_a_figure_that_changes_is_seen(name, file, figure, other_results):
    """In a page, and in results/. figure: a group for the digit that changes, wherever results have it"""
    (page,) = [page for page in PAGES if page.name != "README.md" and name in pages.parts(page.read_text())]
    shown = next(part for part in PART.findall(page.read_text()) if f"rendered {name} " in part)
    digit = list(re.finditer(r"\d", shown))[-1]
    assert pages.rendered(page, shown[: digit.start()] + "0123" + shown[digit.end() :]) == shown
    results = other_results
    text = (results / file).read_text()
    found = list(re.finditer(figure, text))
    assert found
    for match in reversed(found):
        other = "7" if match[1] != "7" else "3"
        text = text[: match.start(1)] + other + text[match.end(1) :]
    (results / file).write_text(text)
    forget()
    assert pages.rendered(page, shown) != shown


def test_two_kinds_of_gpu_stand_beside_each_other(other_results: Path):
    """The second kind is made up: half the copy and cuBLAS, our times as they were but for one kernel's."""
    there = other_results / "tables" / "nvidia-h100-80gb-hbm3"
    shutil.copytree(other_results / "tables" / "nvidia-h200", there)
    for path in there.glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[0]["machine"]["gpu"] = "NVIDIA H100 80GB HBM3"
        for line in lines[1:]:
            if line.get("side") == "ours" and "stage=encode" not in line["case_id"]:
                line["percent"] = {mode: percent * 2 for mode, percent in line["percent"].items()}
            if line.get("case_id", "").startswith("gemm/route=library/8192x8192x8192/") and "times" in line:
                for name in ("baseline_ratio", "baseline_us"):
                    line["times"][name] /= 2
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert measured.chips() == ["nvidia-h200", there.name]
    text = pages.rendered(README, README.read_text())
    rows = [line for line in text.splitlines() if line.startswith("| rowwise, given the amax | H")]
    assert [row.split(" | ")[1] for row in rows] == ["H200", "H100"]
    (said,) = [line for line in text.splitlines() if " on the H200, " in line]
    share, twice = map(int, re.findall(r"(\d+) % ", said))
    assert share > 0 and abs(twice - 2 * share) <= 1
    assert said == (
        f"- rows and columns, Hadamard and stochastic, with the amaxes: {share} % of the copy on the H200, {twice} % "
        "on the H100, where it takes 1.00 times as long and the copy 2.00 times: it depends less on what the two GPUs "
        "differ in than the copy does."
    )
    assert "[peers.md of the H200](results/tables/nvidia-h200/peers.md) and [peers.md of the H100](" in text
    page = ROOT / "docs" / "results.md"
    text = pages.rendered(page, page.read_text())
    assert re.search(r"\b(\d+ of \d+) and \1 cases reach", text) and text.count("of cuBLAS on the H200, ") == 1
    rows = [line.split(" | ")[:3] for line in text.splitlines() if line.startswith("| amax | `per_tensor/stage=amax")]
    assert [gpu for _, _, gpu in rows] == ["H200", "H100"]
    forget()
    (there / "gemm.jsonl").unlink()  # as a kind of GPU that has not all tables yet
    assert pages.rendered(README, README.read_text()) == README.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<!-- rendered sped -->\n<!-- end -->", "nothing renders 'sped'; did you mean 'speed'"),
        ("<!-- rendered speed -->\n", "1 rendered parts begin and 0 end"),
        ("<!-- end -->", "0 rendered parts begin and 1 end"),
    ],
)
def test_a_part_that_cannot_be_is_one_sentence(text, says):
    with pytest.raises(UsageError, match=says):
        pages.rendered(README, text)


def test_a_case_that_results_lack_is_named(monkeypatch):
    with pytest.raises(UsageError, match="gemm.jsonl has no gemm/default/3x3x3/normal/graph, which a page shows"):
        measured.times("gemm")["gemm/default/3x3x3/normal/graph"]


# Recipes and cases


def test_every_recipe_has_a_row_with_its_contract_and_flags():
    """In the table of `harness recipes`, which README leads to."""
    shown = CliRunner().invoke(recipes.command).stdout
    rows: list[list[str]] = []
    for line in shown.splitlines():
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if cells and not cells[0]:  # a sentence goes on
            rows[-1] = [f"{before} {more}".strip() for before, more in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    told = {cells[0]: (what, *cells[2:]) for cells in rows if len(cells) == 4 for what in [bool(cells[1])]}
    for suite in load_suites():
        assert told.pop(suite.recipe) == (True, suite.file.contract, ", ".join(suite.file.axes))
    assert told == {}


def test_a_recipe_of_the_readme_has_the_contract_that_its_row_says():
    suites = {suite.recipe: suite.file.contract.removeprefix("NUMERICS ") for suite in load_suites()}
    rows = [line.strip("| ").split(" | ") for line in README.read_text().splitlines() if "docs/numerics.md#" in line]
    named = {name: row[2] for row in rows for name in re.findall(r"\[(\w+)\]\((?:harness/kernels|suites)/", row[0])}
    assert len(named) >= 10
    for name, section in named.items():
        number = re.match(r"\[([\d.]+)\]", section)[1]
        assert any(each.split(".")[0] == number for each in suites[name].split(", ")), (name, suites[name])


CASE_ID = re.compile(r"(?<![\w/])([a-z_0-9]+/[a-z_0-9=,]+/\d+x\d+(?:x\d+)?/\w+/(?:eager|graph))")


def test_a_case_that_is_named_exists():
    own = {"my_recipe", "my_kernel", "toy"}
    ids = {each for page in PAGES for each in CASE_ID.findall(page.read_text()) if each.split("/")[0] not in own}
    assert len(ids) > 5
    assert [each for each in sorted(ids) if find_case(each).id != each] == []


SCREEN = re.compile(r"<!-- mutant: (?P<name>[^>]+) -->\n```screen\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
SCREENS = [(page.name, match["name"], match["text"]) for page in PAGES for match in SCREEN.finditer(page.read_text())]


@pytest.mark.parametrize(("page", "mutant", "shown"), SCREENS, ids=lambda value: value[:30])
def test_a_screen_that_is_shown_is_the_one_that_is_printed(page, mutant, shown, tmp_path):
    kernels = find(mutant).copied_to(tmp_path)
    case = find_case(shown.split()[1])
    told = screen(verify(case, EmulatorDevice(kernels=kernels)), Asked.here())
    printed = [line.strip().replace(shlex.join(this_harness(ROOT)), "harness") for line in told.splitlines()]
    starts = [line.strip().removesuffix("…") for line in shown.splitlines()]  # of lines that go on after it
    assert [start for start in starts if not any(line.startswith(start) for line in printed)] == [], printed


def test_screens_are_shown():
    assert len(SCREENS) == 2
