"""Suites that a test writes, the sentence about a mistake in one, and the smallest cases of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.contract.case import Case
from harness.errors import SuiteError
from harness.files import SUITES
from harness.suite.suite import Suite, load_suite, suite_of

# A correct suite of a recipe `toy`, with every feature of the format.
SUITE = """\
# yaml-language-server: $schema=schema.json
recipe: toy
contract: NUMERICS 0

axes:
  dtype: [bf16, fp16]
  rht: [false, true]
  rounding: [rne, sr]
  sign_mask: [0xD7E8, 1]

exclude:
  - when: {rht: true, dtype: fp16}
    because: the rotation is defined on bf16 inputs only
  - when: {rht: false, sign_mask: 1}
    because: a sign mask means nothing without the rotation

launches:
  - kernel: toy_amax
    when: {rht: [false, true]}
    scratch: {state: 16}
  - kernel: toy_encode
    when: {rounding: rne}

sets:
  smoke:
    - cover: pairwise
      shapes: [[16, 16], [48, 80]]
      inputs: [normal, ties]
  full:
    - cover: product
      shapes: [[32, 32]]
      inputs: [normal]
      modes: [eager, graph]
  bench:
    - cover: each
      axes: {rht: true, others: default}
      shapes:
        - [16, 32]
      inputs: [normal]
"""


def written(folder: Path, text: str) -> Suite:
    """The suite of this text, in a file that has the recipe's name."""
    recipe = text.partition("recipe: ")[2].split()[0]
    path = folder / "suites" / f"{recipe}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return load_suite(path)


def assert_mistake(folder: Path, text: str, change: tuple[str, str], sentence: str, line: int) -> None:
    """The text is right, and with one change it is refused in one sentence, which tells the line."""
    path, (old, new) = written(folder, text).path, change
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.where.endswith(f"suites/{path.name}:{line}")


def smallest() -> list[Case]:
    """The smallest eager smoke cases of each suite: one with a capacity and one without, where there are such cases."""
    found: dict[tuple[str, bool], Case] = {}
    for recipe in sorted(path.stem for path in SUITES.glob("*.yaml")):
        for case in suite_of(recipe).cases("smoke"):
            kind = recipe, case.problem.capacity is not None
            if case.mode == "eager" and (kind not in found or case.work < found[kind].work):
                found[kind] = case
    return list(found.values())
