"""The accuracy that the recipes' sources claim holds, and a claim that does not is seen."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from evidence.products import accuracy
from harness.errors import SuiteError
from harness.files import ROOT

CLAIMS = accuracy.load()
SHOWN = (ROOT / "results/quality/accuracy.csv").read_text()


def marked(claim: accuracy.Claim) -> ParameterSet:
    """One of the products is in the gate; they are large."""
    slow = claim.error == "l2" and claim.of != "forward/epilogue=per_tensor"
    marks = [pytest.mark.slow] if slow else []
    return pytest.param(claim, marks=marks, id=f"{claim.of}-{claim.error}-{claim.input}")


@pytest.mark.parametrize("claim", [*map(marked, CLAIMS)])
def test_a_claim_holds(claim: accuracy.Claim):
    found = accuracy.hold(claim)
    assert found.holds, found
    assert found.tensors == len(claim.dtypes) * len(claim.shapes) * claim.seeds
    assert claim.says.split(",")[0] in SHOWN, "results/quality/accuracy.csv lacks it; run `python -m evidence accuracy`"


def test_every_source_claims_something():
    sources = {word for claim in CLAIMS for word in claim.source.split()}
    assert {"2931,", "2941,", "2972,", "3045,"} <= sources


def test_a_claim_the_wrong_way_round_does_not_hold():
    one = next(claim for claim in CLAIMS if claim.below == 1 and claim.input == "spike_1e6")
    turned = one.model_copy(update={"of": "per_tensor", "against": "local_1x64", "shapes": ((64, 128),)})
    found = accuracy.hold(turned)
    assert not found.holds and found.found > 1
    assert not one.allows(math.nan) and not one.allows(1) and one.allows(0.999)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (", below: 1}", "}", "one of the keys bound and below"),
        ("error: rms", "error: mse", "there is no error 'mse'; choose rms, mean"),
        ("seeds: 3", "seeds: 0", "seeds: input should be greater than or equal to 1"),
    ],
)
def test_a_wrong_entry_is_a_sentence_with_its_line(tmp_path: Path, old: str, new: str, sentence: str):
    text = accuracy.FILE.read_text()
    assert old in text
    path = tmp_path / "accuracy.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SuiteError, match=rf"accuracy.yaml:\d+: .*{sentence}"):
        accuracy.load(path)
