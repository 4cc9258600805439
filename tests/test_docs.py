"""The commands that pages name exist, with their options. `tests/test_transcripts.py` runs those that need no GPU."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from evidence.__main__ import cli as evidence
from evidence.docs.pages import all_pages, without_rendered
from evidence.docs.transcript import blocks
from harness.cli import cli as harness
from harness.files import ROOT

PAGES = {page.stem: page.read_text() for page in all_pages()}
MOST_WORDS = 1500
LONG = {"numerics", "capabilities"}  # the contract of every byte, and a page that `harness check` writes

FENCE = re.compile(r"^(?P<before>[ \t>]*(?:[-*\d.]+ +)?)(?P<fence>```|~~~)(?P<kind>.*)$", re.MULTILINE)
SHOWN = ("", "cuda", "yaml", "screen")  # what stands there is no command
COMMAND = re.compile(r"^\W*(?:\w+=\S+ +)*(?:python3? -m )?(harness|evidence|make|pip|pytest) ", re.MULTILINE)
UNRUN = ("sh make", "sh gpu")
GROUPS = {"harness": harness, "python -m evidence": evidence}


def faults(text: str) -> list[str]:
    """Where a page could hold a command that nothing runs and nothing looks up."""
    fences = list(FENCE.finditer(text))
    found = [each[0] for each in fences if each["before"] or each["fence"] != "```"]
    known = {kind for kind, _ in blocks(text)} | set(SHOWN)
    found += [f"```{each['kind']}" for each in fences[::2] if each["kind"] not in known]
    pairs = zip(fences[::2], fences[1::2], strict=False)
    shown = [text[first.end() : last.start()] for first, last in pairs if first["kind"] in SHOWN]
    found += [match[0] for body in shown for match in COMMAND.finditer(body)]
    listed = [line for kind, body in blocks(text) if kind in UNRUN for line in body.splitlines() if line.strip()]
    return found + [line for line in listed if not line.startswith((*(f"{name} " for name in GROUPS), "make "))]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_run_or_looked_up(page: str):
    assert faults(PAGES[page]) == []


@pytest.mark.parametrize(
    "block",
    [
        "```bash\nharness bogus\n```",
        "```\nharness bogus\n```",
        "```\n$ python -m harness bogus\n```",
        "```screen\nCUDA_VISIBLE_DEVICES=0 make bogus\n```",
        "~~~\nharness bogus\n~~~",
        "- so:\n  ```sh\n  harness bogus\n  ```",
        "```sh gpu\npython -m harness bogus\n```",
        "```sh make\nX=1 make bogus\n```",
    ],
)
def test_a_command_that_would_be_run_by_nothing_is_found(block: str):
    assert faults(f"# A page\n\n{block}\n") != []


OUTPUT = re.compile(r"^```(?:text|screen)\b.*?^```", re.MULTILINE | re.DOTALL)


def length(text: str) -> int:
    """Words of a page, as `wc -w` counts them, without rendered parts and what commands print."""
    return len(OUTPUT.sub("", without_rendered(text)).split())


@pytest.mark.parametrize("page", sorted({*PAGES} - LONG))
def test_a_page_is_read_in_one_sitting(page: str):
    assert length(PAGES[page]) < MOST_WORDS, f"{page}.md: cut it, or split it if it has two subjects"


def test_the_words_of_a_page_are_those_that_are_written():
    rendered = "<!-- rendered speed -->\n| a | b |\n<!-- end -->\n"
    shown = "```sh\nmake\n```\n\n```text whole\nthree four\n```\n```screen\nfive\n```\n"
    assert length(f"{rendered}one two\n{shown}") == length(rendered) + 5
    assert length("one " * MOST_WORDS) >= MOST_WORDS


def lines(kinds: tuple[str, ...], program: str) -> list[tuple[str, ...]]:
    """The words after a program's name, for every line of the pages' blocks of these kinds that calls it."""
    found = set()
    for text in PAGES.values():
        for kind, body in blocks(text):
            for line in body.splitlines() if kind in kinds else ():
                words, before = shlex.split(line, comments=True), program.split()
                found |= {tuple(words[len(before) :])} if words[: len(before)] == before else set()
    return sorted(found)


def inline(program: str) -> list[tuple[str, ...]]:
    """The words after a program's name, for every call in backticks within a sentence."""
    found = set()
    for text in PAGES.values():
        for code in re.findall(rf"`{program} ([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
            found.add(tuple(shlex.split(" ".join(code.split()).replace("…", ""))))
    return sorted(found)


@pytest.mark.parametrize("name", GROUPS)
def test_a_command_that_is_named_exists_with_its_options(name: str):
    for words in {*lines(("sh gpu",), name), *inline(name)}:
        require(name, words)


def require(name: str, words: tuple[str, ...]) -> None:
    command = GROUPS[name].get_command(None, words[0])
    assert command is not None, words
    if command.context_settings.get("ignore_unknown_options"):
        return  # what is left goes to pytest
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in words[1:] if word.startswith("-")} <= known, words


@pytest.mark.parametrize("words", [*lines(("sh make", "sh gpu"), "make"), *inline("make")], ids=" ".join)
def test_a_target_that_is_named_is_one_that_make_accepts(words):
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_commands_of_each_kind():
    assert all(lines(("sh gpu",), name) and inline(name) for name in GROUPS)
    assert lines(("sh make",), "make") and inline("make")


def execute(verb: str) -> list[str]:
    """The jobs and tests that run a verb of `harness` or of the evidence, or the target of the same name."""
    jobs = [ROOT / ".gitlab-ci.yml", ROOT / ".ci" / "run"]
    called = rf"(?:make|-m harness|-m evidence) {verb}\b"
    found = [path.name for path in jobs if re.search(called, path.read_text(), re.MULTILINE)]
    tested = rf"""main\(\["{verb}"|invoke\(\w+, \["{verb}"|from (?:harness|evidence)\.commands import {verb}\b"""
    return found + [path.name for path in (ROOT / "tests").rglob("*.py") if re.search(tested, path.read_text())]


@pytest.mark.parametrize("verb", sorted({words[0] for each in (*GROUPS, "make") for words in lines(UNRUN, each)}))
def test_what_a_page_cannot_run_here_is_run_by_ci_or_by_a_test(verb: str):
    assert execute(verb) != []
    assert execute("bogus") == []
