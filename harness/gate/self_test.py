"""Check the gate: compare a checkout with its own commit, unchanged and with a planted slowdown."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.files import ROOT
from harness.gate.baseline import wanted
from harness.gate.checkout import git
from harness.gate.revision_run import FILE

AGAINST_ITSELF = (
    "per_tensor/stage=amax/8192x8192/normal/graph",
    "per_tensor/default/1024x2048/normal/graph",
    "per_token/default/2048x2048/normal/graph",
    "swizzle/default/8192x8192/normal/graph",
)
OPEN = 0.02  # of verdicts on unchanged code, how many may say that nothing can be told
PLANTED = ("per_tensor/stage=amax/8192x8192/normal/graph",)

# The planted slowdown: the amax of a tensor reads part of the tensor twice.
_FILE = "harness/kernels/reduce/tensor_amax.cuh"
_LINE = (
    "for (i64 first = i64(blockIdx.x) * TensorAmax::kStep; first < total; "
    "first += i64(gridDim.x) * TensorAmax::kStep) {"
)
_SLOWED = (
    "for (i64 again = i64(blockIdx.x) * TensorAmax::kStep; again < total + total * {percent} / 100; "
    "again += i64(gridDim.x) * TensorAmax::kStep) {{\n    const i64 first = again < total ? again : again - total;"
)


@dataclass(frozen=True)
class GateRuns:
    """Gates with one slowdown. percent: of the planted slowdown, 0 for none; verdicts: of each gate's cases"""

    percent: int
    verdicts: list[Counter[str]]
    files: list[Path]

    @property
    def found(self) -> int:
        return sum(set(verdicts) == {"SLOWER"} for verdicts in self.verdicts)

    @property
    def flagged(self) -> int:
        return sum(bool({"SLOWER", "FASTER"} & set(verdicts)) for verdicts in self.verdicts)

    @property
    def right(self) -> bool:
        """Without a slowdown nothing is flagged, and all verdicts but 2 in 100, and one more, are SAME.

        10 % must be found by all gates, less by all but one in twenty.
        """
        if not self.percent:
            total = sum(self.verdicts, start=Counter[str]())
            return self.flagged == 0 and total.total() - total["SAME"] <= OPEN * total.total() + 1
        allowed = 0 if self.percent >= 10 else len(self.verdicts) // 20
        return self.found >= len(self.verdicts) - allowed


def prove(percents: Sequence[int], times: int, into: Path, drawn: int = 0, seed: int = 0) -> Iterator[GateRuns]:
    """Run gates of a clean checkout of HEAD, each in its own process, with a slowdown planted unless `percent` is 0.

    into: the folder for their files
    drawn: cases of a gate without a slowdown, drawn by `seed` for each from the graphs of the bench set; 0 for
        AGAINST_ITSELF
    Raises UsageError if git or the line to change is not there.
    """
    with tempfile.TemporaryDirectory(prefix="nvfp4-proof-") as folder:
        checkout = Path(folder) / "checkout"
        git(ROOT, "HEAD cannot be cloned", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(checkout))
        for percent in percents:
            git(checkout, "the clone cannot be reset", "checkout", "--quiet", ".")
            if percent:
                _plant(checkout, percent)
            files = [
                _gate(checkout, _cases(percent, drawn, seed + number), into / f"planted-{percent}-{number + 1}")
                for number in range(times)
            ]
            yield GateRuns(percent, [_verdicts(file) for file in files], files)


def _plant(checkout: Path, percent: int) -> None:
    path = checkout / _FILE
    text = path.read_text()
    if text.count(_LINE) != 1:
        raise UsageError(f"{_FILE} has no line `{_LINE}` to plant a slowdown in")
    path.write_text(text.replace(_LINE, _SLOWED.format(percent=percent)))


def _cases(percent: int, drawn: int, seed: int) -> Sequence[str]:
    if percent or not drawn:
        return PLANTED if percent else AGAINST_ITSELF
    graphs = sorted(case_id for case_id in wanted() if case_id.endswith("/graph"))
    if drawn > len(graphs):
        raise UsageError(f"{drawn} cases cannot be drawn from the {len(graphs)} graphs of the bench set")
    return random.Random(seed).sample(graphs, drawn)


def _gate(checkout: Path, cases: Sequence[str], into: Path) -> Path:
    chosen = [word for case in cases for word in ("--case", case)]
    command = [sys.executable, "-m", "harness", "gate", str(into.resolve()), "--base", "HEAD", "--all", *chosen]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    file = into / FILE
    if not file.exists():
        output = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise UsageError(f"a gate ended with {done.returncode} and wrote no {file}; it printed: {output[-1]}")
    return file


def _verdicts(file: Path) -> Counter[str]:
    lines = map(json.loads, file.read_text().splitlines())
    return Counter(line["verdict"] for line in lines if "case_id" in line)
