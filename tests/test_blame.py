"""`git blame` looks past commits that only moved files, which must be commits that lead here."""

from __future__ import annotations

import re
import subprocess

import pytest

from harness.files import ROOT


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def strangers(text: str) -> list[str]:
    """Lines, comments aside, that are no full hash of an ancestor of HEAD."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [
        line
        for line in lines
        if not re.fullmatch("[0-9a-f]{40}", line) or git("merge-base", "--is-ancestor", line, "HEAD").returncode
    ]


pytestmark = pytest.mark.skipif(
    git("rev-parse", "--is-shallow-repository").stdout.strip() != "false",
    reason="git history is shallow or missing here, so that no ancestor of HEAD can be looked up",
)


def test_every_commit_to_ignore_leads_here():
    text = (ROOT / ".git-blame-ignore-revs").read_text()
    assert strangers(text) == []
    assert re.search("^[0-9a-f]{40}$", text, re.MULTILINE)


def test_another_commit_is_found():
    head = git("rev-parse", "HEAD").stdout.strip()
    assert strangers(f"# a comment\n{head}\n{head[:12]}\n{'0' * 40}\n") == [head[:12], "0" * 40]
