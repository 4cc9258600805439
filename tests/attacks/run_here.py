"""A command of the harness in this process, which is faster than another one."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from harness import cli


def command(capsys: pytest.CaptureFixture[str], *words: object) -> CompletedProcess[str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    printed = capsys.readouterr()
    return CompletedProcess(words, int(ended.value.code), printed.out, printed.err)
