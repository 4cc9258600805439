"""Any text is one value by both of PyYAML's parsers, or a sentence by one: never two values, never a traceback."""

from __future__ import annotations

import io

import pytest
import yaml
from hostile import bounded, patience
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import SuiteError
from harness.ground import yaml_lines
from harness.ground.yaml_lines import read

TOKENS = st.sampled_from(
    ("a", "b", "key", "1", "012", "0x1F", "1e3", "-.5", ".inf", "on", "true", "~", "12:30", "1_000", "<<", "=", "'q'",
     "'it''s'", '"d"', '"\\/"', '"\\u0041"', '"\\ud800"', '"\\UFFFFFFFF"', '"a\\\n  b"', ":", ": ", ":\n", " :", "-",
     "- ", "-\n", "? ", "?", "[", "]", "{", "}", ",", ", ", "|\n  x\n", ">\n  x\n\n  z\n", "|-\n  x\n", "|2\n   x\n",
     "#", "# c\n", " # c", "&a ", "*a", "&b", "*b ", "\n", "\n  ", "\n    ", "  ", " ", "\t", "---\n", "...\n",
     "%YAML 1.2\n", "%YAML 1.1\n", "%TAG ! x\n", "!!str ", "! ", "@", "`", "http://x", "a:b", "a#b", "é", "\u2028",
     "\x85", "\r", "\ufeff", "\0", "\x1b", "\U0001f600", "-1", "{a: 1}", "[a:b]", '{"a":1}', "\"x\ny\"", "a\n  b")
)  # fmt: skip
CHARACTERS = st.text("ab1:-?[]{},#&*|>'\"\\%. \n\t/!", max_size=9)


class Text:
    """Stands in for a path, because writing a file takes longer than reading it."""

    def __init__(self, text: str):
        self.bytes = text.encode()

    def open(self, encoding: str) -> io.TextIOWrapper:
        return io.TextIOWrapper(io.BytesIO(self.bytes), encoding=encoding)


def value_or_refusal(text: str, parser: type, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict] | None:
    monkeypatch.setattr(yaml_lines, "_PARSER", parser)
    try:
        document = read(Text(text), "s.yaml")
    except SuiteError as error:
        assert str(error).startswith("s.yaml:") and "\n" not in str(error)
        line = int(str(error).split(":")[1])
        assert 1 <= line <= len(io.StringIO(text, newline=None).read().splitlines() or [""])
        return None
    return repr(document.data), document.lines


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML has no libyaml here")
@bounded(200)
@given(
    start=st.sampled_from(("", "k: ", "- ", "k: [", "{")), text=st.lists(TOKENS, max_size=8).map("".join) | CHARACTERS
)
def test_a_text_has_no_two_values(start: str, text: str):
    with pytest.MonkeyPatch.context() as monkeypatch, patience():
        read_by = [
            value_or_refusal(start + text, parser, monkeypatch) for parser in (yaml.CBaseLoader, yaml.BaseLoader)
        ]
    assert None in read_by or read_by[0] == read_by[1]
