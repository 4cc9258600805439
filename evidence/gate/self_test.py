"""Check the gate: compare a checkout with its own commit, unchanged and with planted slowdowns."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harness.errors import DeviceUnavailable, Exit, UsageError
from harness.files import ROOT
from harness.gate.baseline import wanted
from harness.gate.revision import git
from harness.gate.revision_run import FILE
from harness.gate.second_process import run_harness

AGAINST_ITSELF = (
    "per_tensor/stage=amax/8192x8192/normal/graph",
    "per_tensor/default/1024x2048/normal/graph",
    "per_token/default/2048x2048/normal/graph",
    "swizzle/default/8192x8192/normal/graph",
)
JUDGED = (Exit.CLEAN, Exit.BYTES_DIFFER, Exit.SLOWER, Exit.NOISY)  # exit codes of a gate that has judged its cases
OPEN = 0.02  # share of verdicts on unchanged code that may be undecided


@dataclass(frozen=True)
class Plant:
    """A line that occurs once in a kernel's file, and its slowed replacement with `{percent}` or `{cycles}`."""

    file: str
    line: str
    slowed: str


_WAIT = "  for (const i64 until = clock64() + {cycles}; clock64() < until;) {{}}\n"
_TILE = "  __shared__ TransposeSmem<Dtype> tile;\n"
_ROWS = "  __shared__ u32 warp_max[2][RowScaledRows::kWarps];\n"

# By case. The amax of a large tensor reads part of it twice; kernels of 3 to 10 us, in one wave, wait in each CTA.
PLANTED = {
    "per_tensor/stage=amax/8192x8192/normal/graph": Plant(
        "harness/kernels/reduce/tensor_amax.cuh",
        "for (i64 first = i64(blockIdx.x) * TensorAmax::kStep; first < total; "
        "first += i64(gridDim.x) * TensorAmax::kStep) {",
        "for (i64 again = i64(blockIdx.x) * TensorAmax::kStep; again < total + total * {percent} / 100; "
        "again += i64(gridDim.x) * TensorAmax::kStep) {{\n    const i64 first = again < total ? again : again - total;",
    ),
    "local_1x64/default/1024x2048/normal/graph": Plant("harness/kernels/local_1x64.cu", _TILE, _WAIT + _TILE),
    "row_scaled/stage=encode/1024x2048/normal/graph": Plant("harness/kernels/row_scaled.cu", _ROWS, _WAIT + _ROWS),
}


@dataclass(frozen=True)
class GateRuns:
    """Gates with one slowdown. percent: of the planted slowdown, 0 for none; verdicts: of each gate, by case"""

    percent: int
    verdicts: list[dict[str, str]]
    files: list[Path]

    @property
    def found(self) -> dict[str, int]:
        """In how many gates each case was SLOWER."""
        cases = {case: None for gate in self.verdicts for case in gate}
        return {case: sum(gate.get(case) == "SLOWER" for gate in self.verdicts) for case in cases}

    @property
    def counts(self) -> Counter[str]:
        return Counter(verdict for gate in self.verdicts for verdict in gate.values())

    @property
    def right(self) -> bool:
        """Without a slowdown nothing is flagged, and all verdicts but 2 in 100, and one more, are SAME.

        10 % must be found by all gates, less by all but one in twenty, in each case. No gate, or one of no case, proves
        nothing.
        """
        if not self.verdicts or not all(self.verdicts):
            return False
        if not self.percent:
            open_ = self.counts.total() - self.counts["SAME"]
            return not {"SLOWER", "FASTER"} & set(self.counts) and open_ <= OPEN * self.counts.total() + 1
        allowed = 0 if self.percent >= 10 else len(self.verdicts) // 20
        return all(found >= len(self.verdicts) - allowed for found in self.found.values())


def prove(percents: Sequence[int], times: int, into: Path, drawn: int = 0, seed: int = 0) -> Iterator[GateRuns]:
    """Run gates of a clean checkout of HEAD, each in its own process, with slowdowns planted unless `percent` is 0.

    into: the folder for their files
    drawn: cases of a gate without a slowdown, drawn by `seed` for each from the graphs of the bench set; 0 for
        AGAINST_ITSELF
    Raises UsageError if git or a line to change is not there, the folder is in use, or a gate did not judge its cases.
    """
    if into.is_dir() and any(into.iterdir()):
        raise UsageError(f"{into} is not empty; a proof is of its own gates alone, so name a new folder")
    with tempfile.TemporaryDirectory(prefix="nvfp4-proof-") as folder:
        checkout = Path(folder) / "checkout"
        git(ROOT, "HEAD cannot be cloned", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(checkout))
        cycles = _cycles(_gate(checkout, list(PLANTED), into / "unplanted")) if any(percents) else {}
        for percent in dict.fromkeys(percents):
            git(checkout, "the clone cannot be reset", "checkout", "--quiet", ".")
            if percent:
                _plant(checkout, percent, cycles)
            files = [
                _gate(checkout, _cases(percent, drawn, seed + number), into / f"planted-{percent}-{number + 1}")
                for number in range(times)
            ]
            yield GateRuns(percent, [_verdicts(file) for file in files], files)


def _plant(checkout: Path, percent: int, cycles: Mapping[str, float]) -> None:
    """Plant a slowdown in every case of PLANTED. cycles: SM cycles that each takes without it"""
    for case, plant in PLANTED.items():
        path = checkout / plant.file
        text = path.read_text()
        if text.count(plant.line) != 1:
            raise UsageError(f"{plant.file} has no line `{plant.line.strip()}` to plant a slowdown in")
        slowed = plant.slowed.format(percent=percent, cycles=round(cycles[case] * percent / 100))
        path.write_text(text.replace(plant.line, slowed))


def _cases(percent: int, drawn: int, seed: int) -> Sequence[str]:
    if percent or not drawn:
        return list(PLANTED) if percent else AGAINST_ITSELF
    graphs = sorted(case_id for case_id in wanted() if case_id.endswith("/graph"))
    if drawn > len(graphs):
        raise UsageError(f"{drawn} cases cannot be drawn from the {len(graphs)} graphs of the bench set")
    return random.Random(seed).sample(graphs, drawn)


def _gate(checkout: Path, cases: Sequence[str], into: Path) -> Path:
    file = into / FILE
    chosen = [word for case in cases for word in ("--case", case)]
    words = ["gate", str(into.resolve()), "--base", "HEAD", "--all", *chosen]
    done = run_harness(*words, cwd=checkout, capture_output=True)
    whole = _whole(file, cases)
    if not whole or done.returncode not in JUDGED:
        output = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        error = DeviceUnavailable if done.returncode == Exit.NO_DEVICE else UsageError
        left = "and judged all cases" if whole else f"and wrote no whole {file}"
        raise error(f"a gate ended with {done.returncode} {left}; it printed: {output[-1]}")
    return file


def _whole(file: Path, cases: Sequence[str]) -> bool:
    """Whether a gate has judged these cases, each once and no other, and came to its end."""
    try:
        _, *lines, end = map(json.loads, file.read_text().splitlines())
    except (OSError, ValueError):
        return False
    return "end" in end and sorted(line.get("case_id", "") for line in lines) == sorted(cases)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, file.read_text().splitlines()) if "case_id" in line]


def _verdicts(file: Path) -> dict[str, str]:
    return {line["case_id"]: line["verdict"] for line in _lines(file)}


def _cycles(file: Path) -> dict[str, float]:
    """SM cycles of each case, from a gate's lines. Raises UsageError for a case without a time."""
    found = {}
    for line in _lines(file):
        if not line["head_us"] or not line["mhz"]:
            raise UsageError(f"{line['case_id']} has no time to plant a part of: {line['verdict']}, {line['reason']}")
        found[line["case_id"]] = line["head_us"] * median(line["mhz"])
    return found
