"""A value of a suite is what YAML 1.2 says, by each of PyYAML's parsers: no word becomes true, no time a number."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import yaml

from harness.errors import SuiteError
from harness.files import ROOT, SUITES
from harness.ground import yaml_lines
from harness.ground.yaml_lines import MOST_DIGITS, Document, read

PARSERS = [yaml.BaseLoader, *([yaml.CBaseLoader] if yaml.__with_libyaml__ else [])]


@pytest.fixture(params=PARSERS, ids=["python", "libyaml"][: len(PARSERS)])
def folder(request, tmp_path: Path, monkeypatch) -> Path:
    """Read by each of the parsers."""
    monkeypatch.setattr(yaml_lines, "_PARSER", request.param)
    return tmp_path


def of(folder: Path, text: str | bytes) -> Document:
    path = folder / "s.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path, path.name)


WORDS = {
    "null": None, "Null": None, "NULL": None, "~": None, "": None, "nULL": "nULL",
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False, "tRUE": "tRUE",
    "0": 0, "-0": 0, "+7": 7, "012": 12, "-012": -12, "089": 89, "0o17": 15, "0x1F": 31, "0xff": 255, "0o8": "0o8",
    "-0o17": "-0o17", "-0x10": "-0x10", "0O17": "0O17", "0X1F": "0X1F", "0b101": "0b101", "0x": "0x",
    "1_000": "1_000", "0x1_0": "0x1_0", "1_0.5": "1_0.5", "1,000": "1,000", "１２": "１２", "٣": "٣",
    "1e-3": 0.001, "1.5e3": 1500.0, "1.": 1.0, ".5": 0.5, "-.5e1": -5.0, "+1.E2": 100.0, "1e3": 1000.0, "1e+3": 1000.0,
    ".": ".", "e3": "e3", "1e": "1e", "+": "+", "1.2.3": "1.2.3", "1e3.5": "1e3.5", ".e1": ".e1",
    ".inf": math.inf, "+.Inf": math.inf, "-.INF": -math.inf, "inf": "inf", ".iNF": ".iNF", "Infinity": "Infinity",
    "NaN": "NaN", "nan": "nan", "-.nan": "-.nan",
    "on": "on", "On": "On", "off": "off", "yes": "yes", "YES": "YES", "no": "no", "y": "y", "n": "n", "NO": "NO",
    "12:30": "12:30", "190:20:30": "190:20:30", "1:30.5": "1:30.5", "-1:0": "-1:0", "2026-01-01": "2026-01-01",
    "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00", "=": "=", "16x16": "16x16", "http://x": "http://x",
    "'1e-3'": "1e-3", '"true"': "true", "'~'": "~", "''": "", "'<<'": "<<", '"\\/\\u00e9\\x41\\e"': "/éA\x1b", "é": "é",
}  # fmt: skip


def test_a_word_is_what_yaml_1_2_says(folder: Path):
    found = {word: of(folder, f"key: {word}\n").data["key"] for word in WORDS}
    assert {word: (type(value), value) for word, value in found.items()} == {
        word: (type(value), value) for word, value in WORDS.items()
    }
    listed = [word for word in WORDS if word and "," not in word]
    assert of(folder, f"[{', '.join(listed)}]\n").data == [WORDS[word] for word in listed]


def test_nan_is_a_number(folder: Path):
    assert all(math.isnan(each) for each in of(folder, "[.nan, .NaN, .NAN]").data)


REFUSED = {
    "a key twice": ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "5: key 'c' appears twice; the first is on line 3"),
    "a quoted key twice": ("a: 1\n'a': 2\n", "2: key 'a' appears twice; the first is on line 1"),
    "a key twice in braces": ("{a: 1,\n a: 2}\n", "2: key 'a' appears twice; the first is on line 1"),
    "a key twice by an alias": ("x: &k a\ny: {*k : 1, a: 2}\n", "2: key 'a' appears twice; the first is on line 1"),
    "a key that is a number": ("a: 1\n12: 2\n", "2: the key 12 must be a word"),
    "a key that is true": ("true: 2\n", "1: the key True must be a word"),
    "a key that is nothing": ("a: 1\n~: 2\n", "2: the key None must be a word"),
    "a key that is a list": ("? [a]\n: 2\n", "1: a key that is a list or a mapping must be a word"),
    "an anchor twice": ("a: &x 1\nb: &x 2\n", "2: this is not valid YAML: duplicate anchor &x; the first is on line 1"),
    "an alias of nothing": ("a: 1\nb: *x\n", "2: this is not valid YAML: there is no anchor &x before the alias *x"),
    "an alias too early": ("a: *x\nb: &x 1\n", "1: this is not valid YAML: there is no anchor &x before the alias *x"),
    "an alias in itself": ("a: 1\nb: &x\n  - *x\n", "3: *x stands within the value that it names"),
    "a colon in an anchor": ("a: 1\nb: &x:y\n", "2: this is not valid YAML: "),
    "a merge": ("a: &x {b: 1}\nc:\n  <<: *x\n", "3: a merge (`<<`) is not of YAML 1.2; write out"),
    "a tag": ("a: 1\nb: !!int 7\n", "2: this has a tag, and tags are not read"),
    "a tag of text": ("b: !!str 7\n", "1: this has a tag"),
    "a tag without a name": ("a: 1\nb: ! 7\n", "2: this has a tag"),
    "a tag after an anchor": ("b: &x ! 7\n", "1: this has a tag"),
    "a tag of a list": ("a: 1\nb: !!set {a}\n", "2: this has a tag"),
    "a tag of a mapping below": ("a: 1\nb: !\n  c: 1\n", "2: this has a tag"),
    "a tag of the document": ("--- !!map\na: 1\n", "1: this has a tag"),
    "a program": ("a: 1\nb: !!python/object/apply:os.system [ls]\n", "2: this has a tag"),
    "a second document": ("a: 1\n---\nb: 2\n", "2: a second document begins, and a file has one"),
    "YAML 1.1": ("%YAML 1.1\n---\na: on\n", "1: this says YAML 1.1, and 1.2 is read"),
    "a number too long": (f"a: 1\nb: {'9' * (MOST_DIGITS + 1)}\n", "2: a value of this file cannot be read: "),
    "hex too long": (f"b: 0x{'f' * 5000}\n", "1: a value of this file cannot be read: this number has 5002 characters"),
    "nothing": ("", "1: the file is empty"),
    "a comment": ("# a\n\n", "1: the file is empty"),
    "brackets": ("a: 1\nb: " + "[" * 5000, "2: this is nested more than 24 deep"),
    "dashes": ("a: 1\nb:\n" + "- " * 5000, "3: this is nested more than 24 deep"),
    "questions": ("a: 1\n" + "? " * 500, "2: "),
    "braces": ("a: 1\nb: " + '{"a": ' * 2000, "2: this is nested more than 24 deep"),
    "aliases in aliases": (
        "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 40)),
        "25: this is nested more than 24 deep",
    ),
    "a null character": ("a: 1\nb: 'x\0y'\n", "2: this is not valid YAML: the character U+0000 may stand in it"),
    "an escape code": ("a: 1\n# \x1b[2J\n", "2: this is not valid YAML: the character U+001B"),
    "a line end of YAML 1.1": ("a: 1\nb: x\u2028c: 2\n", "2: this is not valid YAML: the character U+2028"),
    "another": ("a: x\x85b: 2\n", "1: this is not valid YAML: the character U+0085"),
    "a byte order mark within": ("a: 1\n\ufeffb: 2\n", "2: this is not valid YAML: the character U+FEFF"),
    "half a pair": ('a: 1\nb: "\\ud800"\n', "2: this is not valid YAML: "),
    "an escape beyond Unicode": ('a: 1\nb: "\\UFFFFFFFF"\n', "2: this is not valid YAML: "),
    "a tab as indentation": ("a:\n  b: 1\n\tc: 2\n", "3: this is not valid YAML: "),
    "a bracket left open": ("a: 1\nb: [1,\n", "2: this is not valid YAML: "),
    "UTF-16": ("a: 1\n".encode("utf-16"), "1: the file is not UTF-8 text: byte 0"),
    "Latin-1": (b"a: \xe9\n", "1: the file is not UTF-8 text: byte 3"),
}  # fmt: skip


def test_it_is_refused_with_its_line(folder: Path):
    for text, sentence in REFUSED.values():
        with pytest.raises(SuiteError) as caught:
            of(folder, text)
        assert str(caught.value).startswith(f"s.yaml:{sentence}") and len(str(caught.value)) < 200


READ = {
    "an anchor and its alias": ("a: &x [{b: 2}]\nd: [*x, 3]\n", {"a": [{"b": 2}], "d": [[{"b": 2}], 3]}),
    "an alias in an alias": ("a: &x [1]\nb: &y [*x]\nc: *y\n", {"a": [1], "b": [[1]], "c": [[1]]}),
    "an anchor of a mapping below": ("a: &x\n  b: 1\nc: *x\n", {"a": {"b": 1}, "c": {"b": 1}}),
    "aliases between brackets": ("a: &x 1\nb: [*x,*x]\nc: {d: *x}\n", {"a": 1, "b": [1, 1], "c": {"d": 1}}),
    "the header of 1.2": ("%YAML 1.2\n---\na: on\n...\n", {"a": "on"}),
    "a byte order mark": ("\ufeffa: 1\n", {"a": 1}),
    "other line ends": ("a: 1\r\nb:\r  - 2\r", {"a": 1, "b": [2]}),
    "an explicit key": ("? a\n: 1\n", {"a": 1}),
    "JSON": ('{"a":1,"b":[true,null,-1.5e-3,"x:y"]}', {"a": 1, "b": [True, None, -0.0015, "x:y"]}),
    "colons in brackets": ("[a:b, {c: d:e}, http://x]", ["a:b", {"c": "d:e"}, "http://x"]),
    "texts of lines": ("a: |\n  x\n   y\n\nb: >-\n  x\n  y\n", {"a": "x\n y\n", "b": "x y"}),
    "brackets in quotes": (f"a: '{'[' * 100}'\n", {"a": "[" * 100}),
    "text that looks like a tag": ("a: x !y\nb: '!z'\n", {"a": "x !y", "b": "!z"}),
    "an empty key": ("'': 1\n", {"": 1}),
}  # fmt: skip


def test_it_is_read(folder: Path):
    assert [of(folder, text).data for text, _ in READ.values()] == [data for _, data in READ.values()]


def test_an_alias_is_a_value_of_its_own(folder: Path):
    data = of(folder, "a: &x [1]\nb: *x\n").data
    data["a"].append(2)
    assert data["b"] == [1]


def test_the_longest_number_can_be_printed(folder: Path):
    assert MOST_DIGITS * math.log10(16) < sys.get_int_max_str_digits()
    value = of(folder, f"a: 0x{'f' * (MOST_DIGITS - 2)}\n").data["a"]
    assert len(str(value)) < sys.get_int_max_str_digits()


def test_aliases_of_aliases_end(folder: Path):
    laughs = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12))
    with pytest.raises(SuiteError, match=r"s.yaml:\d: there are more than 20000 values here, aliases written out"):
        of(folder, f"a0: &a0 [x]\n{laughs}\n")


@pytest.mark.skipif(len(PARSERS) < 2, reason="PyYAML has no libyaml here")
def test_both_parsers_read_our_files_alike(monkeypatch):
    paths = [*SUITES.glob("*.yaml"), *sorted((ROOT / "docs" / "cards").rglob("*.yaml"))[::4]]
    assert len(paths) > 30
    read_by = []
    for parser in PARSERS:
        monkeypatch.setattr(yaml_lines, "_PARSER", parser)
        read_by.append(
            {path: (repr(document.data), document.lines) for path in paths for document in [read(path, "x")]}
        )
    assert read_by[0] == read_by[1]
