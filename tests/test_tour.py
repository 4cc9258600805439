"""The tour is true: what it links to and names exists, and its walks are short and go down the folders."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from harness.files import ROOT
from tests.test_imports import ORDER

TOUR = ROOT / "docs" / "tour.md"
MOST_WORDS = 600

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)]+)\)")
LINK_OR_NAME = re.compile(rf"{LINK.pattern}|`(?P<name>\w+)(?P<call>\(\))?`")


def walks(text: str) -> dict[str, str]:
    """Title → text of each section but the table at the end."""
    titled = (section.partition("\n") for section in text.split("\n## ")[1:])
    return {title: body for title, _, body in titled if title.startswith("One ")}


def linked(text: str) -> list[Path]:
    return [(TOUR.parent / match["target"]).resolve() for match in LINK.finditer(text)]


def lost_links(text: str) -> list[str]:
    return [str(path) for path in linked(text) if not path.is_file()]


def lost_names(text: str) -> list[str]:
    """Names in backticks that the file linked before them does not define or, without `()`, does not mention."""
    lost, path = [], None
    for match in LINK_OR_NAME.finditer(text):
        if match["target"]:
            path = (TOUR.parent / match["target"]).resolve()
        elif path:
            known = defined(path) if match["call"] else set(re.findall(r"\w+", path.read_text()))
            lost += [f"{path.name}: {match['name']}"] if match["name"] not in known else []
    return lost


def defined(path: Path) -> set[str]:
    """Functions, methods and classes of a Python file, functions of a CUDA file."""
    text = path.read_text()
    if path.suffix != ".py":
        heads = re.findall(r"^(?:__global__|__device__)[^{;]*", text, re.MULTILINE)
        return {name for head in heads for name in re.findall(r"(\w+)\(", head)}
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, definitions)}


def climbs(walk: str) -> list[str]:
    """Links that lead to a higher folder than the link before them. Suites and kernels are on no floor."""
    places = [path.relative_to(ROOT / "harness") for path in linked(walk) if path.is_relative_to(ROOT / "harness")]
    floors = [(ORDER.index(path.parts[0].removesuffix(".py")), path) for path in places if path.parts[0] != "kernels"]
    return [
        f"{path} after {before}" for (low, before), (high, path) in zip(floors, floors[1:], strict=False) if high > low
    ]


def words(walk: str) -> int:
    """Words that are read, so that a link is its text."""
    return len(LINK.sub("linked", walk).split())


def listed(tour: str) -> list[str]:
    """The folders of its list."""
    return re.findall(r"^harness/(\w+)/ ", tour, re.MULTILINE)


def floors() -> list[str]:
    """The folders of Python from the highest to the lowest, then the kernels."""
    return [*(folder for folder in reversed(ORDER) if (ROOT / "harness" / folder).is_dir()), "kernels"]


TEXT = TOUR.read_text()


def test_every_link_leads_to_a_file():
    assert lost_links(TEXT) == []


def test_every_name_is_in_the_file_before_it():
    assert lost_names(TEXT) == []


@pytest.mark.parametrize("title", ["One tensor, from YAML to verdict", "One time, from sample to gate"])
def test_a_walk_is_short_and_goes_down(title):
    walk = walks(TEXT)[title]
    assert words(walk) < MOST_WORDS
    assert climbs(walk) == []


def test_it_lists_every_folder_above_those_that_it_may_import():
    assert listed(TEXT) == floors()


def test_a_link_to_nothing_is_found():
    assert lost_links("[a](../harness/nothing.py) [b](../harness/errors.py)") == [str(ROOT / "harness" / "nothing.py")]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("[a](../harness/verdict.py): `exit_code()`, `Verdict()`, `PASS`", []),
        ("[a](../harness/verdict.py): `PASS()`", ["verdict.py: PASS"]),  # mentioned, no function
        ("[a](../harness/verdict.py): `NOTHING`", ["verdict.py: NOTHING"]),
        ("[a](../harness/errors.py) [b](../harness/verdict.py): `UsageError()`", ["verdict.py: UsageError"]),
        ("[a](../harness/kernels/per_tensor.cu): `per_tensor_amax()`", []),
        ("[a](../harness/kernels/per_tensor.cu): `tensor_amax()`", ["per_tensor.cu: tensor_amax"]),  # called there
    ],
)
def test_a_name_that_the_file_has_not_is_found(text, lost):
    assert lost_names(text) == lost


def test_a_walk_that_climbs_is_found():
    down = "[a](../harness/verify/verify.py) [b](../harness/kernels/gemm.cu) [c](../harness/errors.py)"
    assert climbs(down) == []
    assert climbs(f"{down} [d](../harness/verdict.py)") == ["verdict.py after errors.py"]


def test_words_of_a_walk_are_those_that_are_read():
    assert words("see [harness/a file.py](../harness/a file.py) now") == 3


def test_a_folder_that_the_list_leaves_out_is_found():
    lines = [f"harness/{folder}/  what lives there\n" for folder in floors()]
    assert listed("".join(lines)) == floors()
    assert listed("".join(lines[1:])) != floors()
    assert listed("".join(reversed(lines))) != floors()
