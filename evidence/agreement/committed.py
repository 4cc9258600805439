"""Results on a GPU: the verdicts in the committed tables of peers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.agreement.answers import Kind, named
from evidence.peers.peer_bench import OURS
from evidence.peers.tables import FILE
from harness.errors import UsageError
from harness.files import RESULTS
from harness.verdict import Verdict

NOT_MEASURED = "NOT_MEASURED"  # the contest was not started
TABLES = RESULTS / "tables"


@dataclass(frozen=True)
class Given:
    """One subject's result for one case on a GPU. case: the id without the mode"""

    subject: str
    case: str
    kind: Kind
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class OnGpu:
    """One table of peers. about: its header"""

    path: Path
    about: Mapping[str, Any]
    given: tuple[Given, ...]


def tables(folder: Path = TABLES) -> list[OnGpu]:
    """Every committed table of peers; none in a wheel. Raises UsageError for one that is not whole."""
    return [_table(path) for path in sorted(folder.glob(f"*/{FILE}"))]


def _table(path: Path) -> OnGpu:
    try:
        header, *records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        return OnGpu(path, header, tuple(_given(records)))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path} is not what `python -m evidence peers` writes") from None


def _given(records: list[Mapping[str, Any]]) -> Iterator[Given]:
    for record in records:
        if "end" in record or record["side"] == OURS or record["verdict"] == NOT_MEASURED:
            continue
        says = tuple(map(str, record["says"]))
        if record["verdict"] in (Verdict.PASS, Verdict.CONVENTION):
            kind, says = named(says)
        else:
            kind = Kind.BUG if record["verdict"] == Verdict.MISMATCH else Kind.NOT_OFFERED
        yield Given(record["side"], record["case_id"], kind, says)
