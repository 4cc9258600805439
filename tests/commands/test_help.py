"""What `harness --help` shows: whole sentences in groups, and how a shell completes commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from harness.errors import Exit


@pytest.fixture
def shown(command) -> str:
    done = command("--help")
    assert done.returncode == Exit.CLEAN
    return done.stdout


def names(section: str) -> list[str]:
    """The commands of a section; lines that go on are indented further."""
    lines = section.split("\n\n")[0].splitlines()[1:]
    return [line.split()[0] for line in lines if line[:3].strip()]


def test_the_six_that_a_kernels_author_needs_come_first(shown):
    titles = ["First", "Cases and runs", "Other implementations", "Recipes", "For changing suites"]
    groups = [names(shown.partition(f"\n{title}:")[2]) for title in titles]
    assert groups[0] == ["new", "verify", "trace", "shrink", "bench", "gate"]
    assert [shown.index(f"\n{title}:") for title in titles] == sorted(shown.index(f"\n{title}:") for title in titles)
    every = [name for group in groups for name in group]
    assert sorted(every) == sorted(path.stem for path in Path(cli.__file__).parent.glob("commands/[a-z]*.py"))
    assert len(every) <= 20


def test_no_sentence_is_cut_off(shown):
    context = cli.cli.make_context("harness", [], resilient_parsing=True)
    words = " ".join(shown.split())
    for name in cli.cli.list_commands(context):
        sentence, told = cli.cli.sentence(name), cli.cli.get_command(context, name).help
        assert sentence.endswith(".") and sentence in words, name
        assert " ".join(told.split()).startswith(sentence)


def test_the_help_imports_no_command():
    program = (
        "import sys; from harness.cli import cli; cli.main(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.splitlines()[-1].split() if name.startswith("harness.commands.")]


def test_every_line_fits_a_terminal(shown):
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_a_shell_learns_to_complete(shell, word):
    asked = {**os.environ, "_HARNESS_COMPLETE": f"{shell}_source"}
    program = "from harness.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True)
    if shell == "bash" and not done.stdout:
        pytest.skip("click asks for a bash that is 4.4 or newer")
    assert word in done.stdout


def test_a_command_is_completed():
    asked = {**os.environ, "_HARNESS_COMPLETE": "zsh_complete", "COMP_WORDS": "harness ver", "COMP_CWORD": "1"}
    program = "from harness.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True)
    assert done.stdout.splitlines()[1] == "verify"
