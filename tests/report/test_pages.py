"""Pages in a real browser: they open from a file, ask for nothing else, sort, and never scroll sideways."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, find_browser
from timed_runs import GATE_HEADER, HEADER, gate_lines, gate_run, products

from harness.files import ROOT
from harness.gate.against_baseline import exit_code, judge
from harness.gate.report import from_lines, from_run, write_gate, write_pages
from harness.report import tables

PROGRAM = find_browser()
# The merge gate may run where there is no browser, but a job that has one can demand it: HARNESS_BROWSER=1.
pytestmark = pytest.mark.skipif(
    PROGRAM is None and os.environ.get("HARNESS_BROWSER") != "1",
    reason="no Chromium is installed, so no page is opened",
)

EXAMPLE = ROOT / "results/tables/nvidia-h200/per_token_and_grouped.html"
PAGES = ("verify", "bench", "gate", "duel", EXAMPLE.stem)
WIDTHS = (1280, 390)

FAINTEST = Path(__file__).with_name("contrast.js").read_text()
COLUMN = "[...document.querySelectorAll('#{table} tbody tr')].map(row => row.cells[{column}].dataset.sort)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser(PROGRAM or "chromium")
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each page with all that it can show: many cases, both modes, every verdict, long ids and a wrong kernel."""
    folder = tmp_path_factory.mktemp("pages")
    run, held = gate_run(folder)
    judgements = judge(run, HEADER, held)
    timed = [*run.records, *products()]
    written = [*tables.write_verify(folder, run.records), *tables.write_bench(folder, HEADER, timed)]
    written += write_gate(folder, from_run(run, HEADER, held, judgements), exit_code(run.records, judgements))
    gated = from_lines(GATE_HEADER, gate_lines())
    written += write_pages(folder, "duel", gated, exit_code(gated.records, gated.judgements))
    return {path.stem: path for path in (*written, EXAMPLE) if path.suffix == ".html"}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_alone_and_without_a_complaint(browser: Browser, pages: dict[str, Path], name: str, width: int):
    browser.open(pages[name], width)
    assert browser.requests == [pages[name].as_uri()]
    assert browser.complaints == []
    assert browser.value("document.querySelectorAll('h2').length") > 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_never_scrolls_sideways(browser: Browser, pages: dict[str, Path], name: str, width: int):
    browser.open(pages[name], width)
    browser.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.value("document.scrollingElement.scrollWidth") <= width
    cut = "[...document.querySelectorAll('table, pre, svg')].filter(part => part.getBoundingClientRect().right > {} && "
    cut += "!part.closest('.scroll') && getComputedStyle(part).overflowX !== 'auto').length"
    assert browser.value(cut.format(width)) == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_off_screen_even_where_a_part_could_scroll(
    browser: Browser, pages: dict[str, Path], name: str, width: int
):
    browser.open(pages[name], width)
    browser.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    wide = "[...document.querySelectorAll('.scroll, pre, .grid')].filter(part => part.scrollWidth > part.clientWidth)"
    assert browser.value(f"{wide}.map(part => part.textContent.trim().slice(0, 80))") == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_no_cell_is_so_narrow_that_its_text_stands_on_end(
    browser: Browser, pages: dict[str, Path], name: str, width: int
):
    browser.open(pages[name], width)
    browser.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    tall = "[...document.querySelectorAll('td')].filter(cell => cell.getBoundingClientRect().height > 200)"
    assert browser.value(f"{tall}.map(cell => cell.textContent)") == []


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("verify", "What is wrong, or was not judged", "Cases"), ("bench", "Without a time", "How each was measured"),
     ("gate", "Wrong", "Verdicts")],
)  # fmt: skip
def test_failures_come_first_then_pictures_then_tables(
    browser: Browser, pages: dict[str, Path], name: str, first: str, last: str
):
    browser.open(pages[name], 1280)
    heads = browser.value("[...document.querySelectorAll('h2')].map(head => head.textContent)")
    assert (heads[0], heads[-1]) == (first, last)
    assert browser.value("document.querySelector('h1').nextElementSibling.className") == "counts"
    pictures = "[...document.querySelectorAll('figure, .roofline, .bars')].every(picture => document.querySelector("
    pictures += "'table.sortable').compareDocumentPosition(picture) & Node.DOCUMENT_POSITION_PRECEDING)"
    assert browser.value(pictures)


def test_on_a_narrow_screen_each_number_says_what_it_is(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["bench"], 390)
    label = "getComputedStyle(document.querySelectorAll('#pairs tbody td.n')[1], '::before').content"
    assert browser.value(label) == '"eager us "'


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_every_text_can_be_read_by_day_and_by_night(browser: Browser, pages: dict[str, Path], name: str, scheme: str):
    browser.open(pages[name], 1280, scheme=scheme)
    browser.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    contrast, where = browser.value(FAINTEST)
    assert contrast >= 4.5, where
    day = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert day == (scheme == "light")


def test_a_click_on_a_head_sorts_and_another_turns_the_order(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["bench"], 1280)
    head = "document.querySelectorAll('#pairs thead th')[7]"
    assert browser.value(f"{head}.textContent") == "graph us"
    before = browser.value(COLUMN.format(table="pairs", column=7))
    browser.value(f"{head}.querySelector('button').click()")
    numbers = sorted(float(text) for text in before if text)
    missing = [""] * before.count("")
    assert missing
    after = browser.value(COLUMN.format(table="pairs", column=7))
    assert [float(text) for text in after if text] == numbers != [float(text) for text in before if text]
    assert after[len(numbers) :] == missing
    browser.value(f"{head}.querySelector('button').click()")
    after = browser.value(COLUMN.format(table="pairs", column=7))
    assert [float(text) for text in after if text] == numbers[::-1]
    assert after[len(numbers) :] == missing
    assert browser.value(f"{head}.getAttribute('aria-sort')") == "descending"
    assert browser.complaints == []


def test_the_keyboard_alone_sorts(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["gate"], 1280)
    browser.value("document.querySelector('.tools select').focus()")
    for _ in range(20):
        browser.press("Tab")
        if browser.value("document.activeElement.textContent") == "now us":
            break
    browser.press("Enter")
    sorted_by = "document.querySelector('#verdicts th[aria-sort=ascending]')?.textContent"
    assert browser.value(sorted_by) == "now us"
    times = [float(text) for text in browser.value(COLUMN.format(table="verdicts", column=3)) if text]
    assert times == sorted(times)


def test_words_filter_a_table(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["gate"], 1280)
    shown = "[...document.querySelectorAll('#verdicts tbody tr:not([hidden])')].map(row => row.cells[0].textContent)"
    browser.value("document.querySelector('.tools select').value = 'SLOWER'")
    browser.value("document.querySelector('.tools select').dispatchEvent(new Event('change'))")
    assert set(browser.value(shown)) == {"SLOWER"}


def test_each_pair_names_its_opponents(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["bench"], 1280)
    heads = browser.value("[...document.querySelectorAll('#pairs thead th')].map(head => head.textContent)")
    last = browser.value(
        "[...document.querySelector('#pairs tbody tr:last-child').cells].map(cell => cell.textContent)"
    )
    told = dict(zip(heads, last, strict=True))
    assert (told["against"], told["graph x per_tensor"], told["graph TFLOP/s"]) == ("cublas bf16", "1.90", "1,234.5")


def test_scattered_shapes_have_a_row_each_and_no_empty_cell(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["bench"], 1280)
    cells = "[...document.querySelectorAll('.heat')].filter(map => map.textContent.includes('gemm')).map(map => "
    assert (
        browser.value(cells + "[map.querySelectorAll('td').length, map.querySelectorAll('.none').length])")
        == [[5, 0]] * 4
    )


def test_a_heat_map_shows_one_mode_at_a_time(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["bench"], 1280)
    shown = "[...document.querySelectorAll('.heat')].filter(map => map.offsetParent).map(map => map.classList[1])"
    assert set(browser.value(shown)) == {"graph"}
    browser.value("document.getElementById('mode-eager').click()")
    assert set(browser.value(shown)) == {"eager"}


def test_every_dot_of_the_roofline_has_a_name_and_a_place(browser: Browser, pages: dict[str, Path]):
    browser.open(pages["bench"], 1280)
    titles = browser.value("[...document.querySelectorAll('.roofline .mark title')].map(title => title.textContent)")
    rows = browser.value("document.querySelectorAll('table.sortable')[1].tBodies[0].rows.length")
    assert len(set(titles)) == rows > 0
    outside = (
        "[...document.querySelectorAll('.roofline .mark')].filter(mark => { const [a, b] = [mark, mark.closest('svg')]"
    )
    outside += (
        ".map(part => part.getBoundingClientRect()); return a.left < b.left || a.right > b.right || a.top < b.top"
    )
    assert browser.value(outside + " || a.bottom > b.bottom; }).length") == 0


@pytest.mark.parametrize(("name", "states"), [("gate", {"NO_BASELINE"}), ("duel", {"AMBIGUOUS"})])
def test_both_sides_of_a_verdict_are_drawn_to_one_scale(
    browser: Browser, pages: dict[str, Path], name: str, states: set[str]
):
    browser.open(pages[name], 1280)
    middles = (
        "[...document.querySelectorAll('.samples')].map(one => [one.querySelector('figcaption span').textContent, "
    )
    middles += "...[...one.querySelectorAll('.middle')].map(line => +line.getAttribute('x1'))])"
    drawn = browser.value(middles)
    assert {verdict for verdict, *_ in drawn} >= {"SLOWER", "FASTER"} | states
    places = {verdict: sides for verdict, *sides in drawn}
    assert places["SLOWER"][0] < places["SLOWER"][1] and places["FASTER"][0] > places["FASTER"][1]
    assert len(places["SLOWER"]) == (2 if name == "gate" else 3)
    assert "SAME" not in {verdict for verdict, *_ in drawn}


def test_a_browser_that_finds_fault_is_heard(browser: Browser, tmp_path: Path):
    page = tmp_path / "page.html"
    page.write_text('<img src="other.png"><script>console.error("no"); nobody.knows()</script><p style="width:900px">x')
    browser.open(page, 390)
    assert len(browser.requests) == 2 and len(browser.complaints) >= 2
    assert browser.value("document.scrollingElement.scrollWidth") > 390
