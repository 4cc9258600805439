"""What the how-to pages show is what happens: each page is run from an empty folder, block after block.

`sh` blocks are commands, `sh fails N` ends with that code, `python` blocks are programs. Every line of a `text` block
is in what the block before it printed, up to an ellipsis.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.files import ROOT

PAGES = ("own_kernel", "own_tensors", "api")
_BLOCK = re.compile(r"^```(?P<kind>sh|sh fails \d+|python|text)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


def run(kind: str, text: str, folder: Path) -> str:
    """What a block printed, both streams."""
    environment = {
        **os.environ,
        "COLUMNS": "120",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    if kind == "python":
        words = [sys.executable, "-c", text]
    else:
        words = ["bash", "-ec", f'harness() {{ "{sys.executable}" -m harness "$@"; }}\n{text}']
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    code = int(kind.split()[2]) if kind.startswith("sh fails") else 0
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_a_transcript(page, tmp_path):
    printed = ""
    blocks = list(_BLOCK.finditer((ROOT / "docs" / f"{page}.md").read_text()))
    assert blocks
    for block in blocks:
        if block["kind"] != "text":
            printed = run(block["kind"], block["text"], tmp_path)
            continue
        lines = [line.strip() for line in printed.splitlines()]
        for shown in block["text"].splitlines():
            beginning, cut, _ = shown.strip().partition("…")
            found = any(line.startswith(beginning) if cut else shown.strip() in line for line in lines)
            assert found, f"{shown!r} is not in\n{printed}"


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / "docs" / f"{page}.md").read_text()):
        assert (ROOT / "docs" / target).exists(), target
