"""Compare the bytes of two runs of the same cases, one on the emulator and one on a GPU.

Both were compared with the same oracles, so a field that is checked byte for byte must agree. A product may differ
where a target's order of the sum is not known: it is checked against an interval. A graph is compared with the
emulator's eager launches, because the emulator has no graphs and the inputs of a case do not depend on its mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.records.records import Record
from harness.records.run_folder import Header
from harness.report.tables import markdown
from harness.verdict import Verdict
from harness.verify.digest import BOUNDED, EXACT, ORDERED, Digests

Compared = tuple[str, str, str]  # case id, emulated target, and kind of fields: exact or bounded


@dataclass
class Agreement:
    """The comparison of two runs.

    both: cases that passed on both; equal, differ: their fields
    only: by device, cases that passed on that device alone; failed: errors on either device
    """

    both: list[str] = field(default_factory=list)
    equal: list[Compared] = field(default_factory=list)
    differ: list[Compared] = field(default_factory=list)
    only: dict[str, list[str]] = field(default_factory=lambda: {"emulator": [], "cuda": []})
    failed: list[str] = field(default_factory=list)

    def differing(self, kind: str) -> list[Compared]:
        return [each for each in self.differ if each[2] == kind]


def agree(emulated: Iterable[Record], on_gpu: Iterable[Record]) -> Agreement:
    """Compare the digests of two runs, case by case and for each emulated target."""
    found = Agreement()
    ours = _passed(emulated, "emulator", found)
    theirs = _passed(on_gpu, "cuda", found)
    matched = set()
    for case_id, record in theirs.items():
        twin = f"{case_id.rpartition('/')[0]}/eager"
        (written,) = record.get("digests", {}).values() or [{}]
        if not written or not ours.get(twin, {}).get("digests"):
            found.only["cuda"].append(case_id)
            continue
        matched.add(twin)
        found.both.append(case_id)
        for target, digests in ours[twin]["digests"].items():
            for kind, same in _compared(digests, written):
                (found.equal if same else found.differ).append((case_id, target, kind))
    found.only["emulator"] = [case_id for case_id in ours if case_id not in matched]
    return found


def _compared(one: Digests, other: Digests) -> Iterator[tuple[str, bool]]:
    """EXACT or BOUNDED, by whether both must have exact bytes, and whether the digests are equal."""
    if EXACT in one or EXACT in other:
        yield EXACT, one.get(EXACT) == other.get(EXACT)
    sums = [digests.get(ORDERED, digests.get(BOUNDED)) for digests in (one, other)]
    if any(sums):
        demanded = (ORDERED in one and ORDERED in other) or not all(sums)
        yield EXACT if demanded else BOUNDED, sums[0] == sums[1]


def _passed(records: Iterable[Record], device: str, found: Agreement) -> dict[str, Record]:
    passed = {}
    for record in records:
        if record["verdict"] == Verdict.PASS:
            passed[record["case_id"]] = record
        elif record["verdict"] != Verdict.EXCLUDED:
            found.failed.append(f"{record['verdict']} on {device}: {record['case_id']}: {record['reason']}")
    return passed


def table(found: Agreement) -> pd.DataFrame:
    rows: dict[str, Counter[str]] = {}

    def count(case_ids: Iterable[str], column: str) -> None:
        for case_id in case_ids:
            rows.setdefault(case_id.partition("/")[0], Counter())[column] += 1

    count(found.both, "cases")
    for kind in (EXACT, BOUNDED):
        count((each[0] for each in found.equal if each[2] == kind), kind)
        count((each[0] for each in found.differ if each[2] == kind), f"{kind} differ")
    for device, case_ids in found.only.items():
        count(case_ids, device)
    return pd.DataFrame(
        [
            {
                "recipe": recipe,
                "cases in both": counts["cases"],
                "exact, equal": _share(counts, EXACT),
                "bounded, equal": _share(counts, BOUNDED),
                "on the emulator only": counts["emulator"],
                "on the GPU only": counts["cuda"],
            }
            for recipe, counts in sorted(rows.items())
        ]
    )


def _share(counts: Mapping[str, int], kind: str) -> str:
    total = counts[kind] + counts[f"{kind} differ"]
    return f"{counts[kind]}/{total}" if total else "-"


def page(command: str, headers: Sequence[Header], found: Agreement) -> str:
    """The comparison in Markdown. headers: the first lines of the two journals, the emulator's first"""
    emulator, gpu = (header["device"] for header in headers)
    exact = [each for each in found.equal if each[2] == EXACT]
    differing, bounded = found.differing(EXACT), found.differing(BOUNDED)
    text = [
        "# The emulator against the GPU, byte for byte",
        f"Made by `{command}` from two runs that never met: PTX for sm_90a and sm_100a on the emulator (NVRTC "
        f"{emulator['nvrtc']}), machine code on one {gpu['gpu']} (NVRTC {gpu['nvrtc']}, driver {gpu['driver']}). "
        "Each journal holds a digest (SHA-256, 128 bits) of what every case wrote, padding included; equal digests are "
        f"equal bytes. {_sources(headers)}",
        f"Of {len(exact) + len(differing)} comparisons of fields whose every byte is demanded, {len(exact)} are equal. "
        "A comparison is of a case on the GPU with one of the emulator's two targets; a graph is held against the "
        "emulator's eager launches. Bounded are products on a target whose order of the sum is not known: Hopper adds "
        "in its own, the emulator exactly, and only the interval is demanded of both.",
        markdown(table(found)),
        "On the GPU only are tensors of more than 2^20 elements and products of more than 2^24 terms, or 2^26 of a "
        "library, which the emulator plays exactly.",
    ]
    lists = {
        "Differ, though every byte is demanded": [f"{case_id} on {target}" for case_id, target, _ in differing],
        "Bounded, and not the same": [f"{case_id} on {target}" for case_id, target, _ in bounded],
        "On the emulator only": found.only["emulator"],
        "Failed": found.failed,
    }
    for title, lines in lists.items():
        if lines:
            text += [f"## {title}", "\n".join(f"- {_code(line)}" for line in sorted(lines))]
    return "\n\n".join(text) + "\n"


def _sources(headers: Sequence[Header]) -> str:
    emulator, gpu = (header["sources"][:16] for header in headers)
    return f"Both are of sources {gpu}." if emulator == gpu else f"The sources are not the same: {emulator}, {gpu}."


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"
