"""A test that results/opcodes.csv names must have the emulator execute what the table says of it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

from evidence.opcodes.recorder import name_of, noted
from harness.files import ROOT

NAMED = pd.read_csv(ROOT / "results" / "opcodes.csv").groupby("test")["opcode"].agg(set).to_dict()


@pytest.fixture(autouse=True)
def executes_what_the_table_says(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Not where `python -m evidence opcodes` runs the tests to write the table."""
    named = NAMED.get(name_of(request.node), set())
    if not named or request.config.getoption("opcodes", None):
        yield
        return
    executed = noted(monkeypatch.setattr)
    yield
    missing = sorted(named - executed.covered_by(request.node))
    assert not missing, (
        f"results/opcodes.csv names this test for {missing}; `python -m evidence opcodes --out results` makes it anew"
    )
