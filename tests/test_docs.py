"""The commands that pages name exist, with their options. `tests/test_transcripts.py` runs those that need no GPU."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from harness.cli import Commands
from harness.files import ROOT
from harness.studies.docs.pages import all_pages
from harness.studies.docs.transcript import blocks

PAGES = {page.stem: page.read_text() for page in all_pages()}


def test_every_block_is_of_a_kind_that_is_run_or_shown():
    """A fence that this file does not know would be a command that nothing runs."""
    for name, text in PAGES.items():
        heads = re.findall(r"^```(.*)$", text, re.MULTILINE)[::2]
        shown = [head for head in heads if head in ("", "cuda", "yaml", "screen")]
        assert len(heads) == len(blocks(text)) + len(shown), (name, heads)
        unnamed = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert not [body for body in unnamed if re.search(r"^(harness|make|pip) ", body, re.MULTILINE)], name


def lines(kinds: tuple[str, ...], program: str) -> list[tuple[str, ...]]:
    """The words behind a program, of every line of blocks of these kinds."""
    found = set()
    for text in PAGES.values():
        for kind, body in blocks(text):
            for line in body.splitlines() if kind in kinds else ():
                words = shlex.split(line, comments=True)
                found |= {tuple(words[1:])} if words[:1] == [program] else set()
    return sorted(found)


def inline(program: str) -> list[tuple[str, ...]]:
    """The same of what stands in a sentence, in backticks."""
    found = set()
    for name, text in PAGES.items():
        if name not in ("numerics", "capabilities"):
            for code in re.findall(rf"`{program} ([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
                found.add(tuple(shlex.split(" ".join(code.split()).replace("…", ""))))
    return sorted(found)


@pytest.mark.parametrize("words", [*lines(("sh gpu",), "harness"), *inline("harness")], ids=" ".join)
def test_a_command_that_is_named_exists_with_its_options(words):
    command = Commands().get_command(None, words[0])
    assert command is not None
    if command.context_settings.get("ignore_unknown_options"):
        return  # what is left goes to pytest
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in words[1:] if word.startswith("-")} <= known


@pytest.mark.parametrize("words", [*lines(("sh make", "sh gpu"), "make"), *inline("make")], ids=" ".join)
def test_a_target_that_is_named_is_one_that_make_accepts(words):
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_commands_of_each_kind():
    assert lines(("sh gpu",), "harness") and lines(("sh make",), "make") and inline("harness") and inline("make")
