"""Mutated runs: refused with a sentence, or read as runs that claim no more than the ones they were made of.

A run is changed as bytes or as JSON, in its journal, in the header of its times or in a file of times. All readers of
runs must accept or refuse it: report, merge, gate and resume.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evidence.mutated_text import mutated, mutated_json
from harness.bench.statistics import summarize
from harness.device.emulator import EmulatorDevice
from harness.errors import Exit, HarnessError, UsageError
from harness.files import RESULTS
from harness.gate import against_baseline
from harness.gate.report import from_lines
from harness.records import journal, seal, shards
from harness.records.journal import Journal
from harness.records.possible import evidence, require_possible
from harness.records.records import Record
from harness.records.run_folder import BENCH, BENCH_HEADER, RunFiles, read_bench, read_bench_or_gate, read_run
from harness.report import tables
from harness.suite.suite import find_case
from harness.verdict import Verdict, failures_of
from harness.verify.verify import blank

CASES = (
    "swizzle/default/16x16/normal/eager", "swizzle/default/16x32/zeros/eager", "casts/default/16x64/exhaustive/eager",
    "per_tensor/default/16x16/normal/eager", "per_tensor/default/16x16/normal/graph",
)  # fmt: skip
BASELINE = RESULTS / "baselines" / "nvidia-h200" / BENCH
GATE = RESULTS / "gate" / "planted" / "gate.jsonl"
TIMED = 4  # cases taken from the baseline
PAGES = 0.02  # share of trials that also write a page, which takes as long as dozens of trials
_SAME_US = 0.0022  # us; two roundings

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Original:
    """Files of a right run, by name. claims: the claims of each right case; red: whether the run must stay red"""

    files: Mapping[str, Lines]
    claims: Mapping[str, tuple]
    medians: Mapping[str, float]
    red: bool


def trial(rng: random.Random) -> str:
    """Say what went wrong with one mutated run; empty if nothing did."""
    reader, original = rng.choice(_readers())
    name = rng.choice(sorted(original.files))
    content = _mutated(original, name, rng)
    folder = _folder()
    for other, lines in original.files.items():
        path = folder / other
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if other == name else _bytes(other, lines))
    try:
        found = reader(folder, original, rng)
        return found and f"{found}; {name}: {content!a}"
    except HarnessError as error:
        said = str(error).replace(str(folder), "")
        return "" if "\n" not in said and said.isprintable() else f"{said!a} is not one sentence; {name}: {content!a}"
    except BaseException as error:
        error.add_note(f"\n{name}: {content!a}")
        raise
    finally:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _mutated(original: Original, name: str, rng: random.Random) -> bytes:
    lines = original.files[name]
    if rng.random() < 0.4:
        return mutated(_bytes(name, lines), rng, [_bytes(other, text) for other, text in original.files.items()])
    lines = list(lines)
    changed = rng.randrange(len(lines))
    lines[changed] = mutated_json(lines[changed], rng)
    return _bytes(name, lines)


def _bytes(name: str, lines: Lines) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


# The readers of runs. Each returns what it believed too easily, or an empty text.


def _merge(folder: Path, original: Original, rng: random.Random) -> str:
    runs = [read_run(folder / name) for name in ("one", "two")]
    whole = shards.join(runs, folder / "all")
    require_possible(folder, whole.records, whole.about["timed"])
    if original.red and not failures_of(whole.records):
        return "a wrong case is no more"
    return _more(whole.records, original) or _page(whole, rng)


def _resume(folder: Path, original: Original, rng: random.Random) -> str:
    begun = Journal(folder / "one", original.files[f"one/{journal.FILE}"][0], resume=True)
    begun.close()
    require_possible(folder, begun.records, False)
    return _more(begun.records, original)


def _gate(folder: Path, original: Original, rng: random.Random) -> str:
    run = read_run(folder / "run")
    require_possible(folder, run.records, True)
    header, stored = read_bench(folder / BENCH)
    judgements = against_baseline.judge(run, header, stored)
    code = against_baseline.exit_code(run.records, judgements)
    if code is Exit.CLEAN and len(run.records) == run.about.get("selected") == len(original.claims) and original.red:
        return "a slower run is green"
    return _more(run.records, original) or _page(run, rng)


def _times(folder: Path, original: Original, rng: random.Random) -> str:
    _, records = read_bench(folder / BENCH)
    require_possible(folder, records, True)
    return _more(records, original)


def _compared(folder: Path, original: Original, rng: random.Random) -> str:
    gated = from_lines(*read_bench_or_gate(folder / "gate.jsonl"))
    slower = [one.case_id for one in gated.judgements if one.verdict == "SAME" and one.case_id in original.medians]
    return f"{slower} is SAME" if slower else ""


def _more(records: Sequence[Record], original: Original) -> str:
    """Claims of the records that go beyond the original's."""
    for record in records:
        case_id = record["case_id"]
        if Verdict(record["verdict"]).right and _claims(record) != original.claims.get(case_id):
            return f"{case_id} claims {_claims(record)}, and the original {original.claims.get(case_id)}"
        times = record.get("times")
        if times and abs(times["median_us"] - original.medians.get(case_id, 0.0)) > _SAME_US:
            median = summarize(times["samples_us"]).median
            if abs(times["median_us"] - median) > _SAME_US:
                return f"{case_id} takes {times['median_us']} us, and its samples {median}"
    return ""


def _page(run: RunFiles, rng: random.Random) -> str:
    if rng.random() < PAGES:
        tables.write_verify(run.path, run.records)
        if run.header:
            tables.write_bench(run.path, run.header, run.records)
    return ""


def _claims(record: Record) -> tuple:
    names = ("verdict", "bytes_compared", "oracles", "targets", "instantiations", "device", "input")
    return tuple(json.dumps(record.get(name)) for name in names)


# Right runs


def prepare() -> None:
    """Read the runs that trials change. Raises UsageError if a checkout's results are not there."""
    _readers()


@cache
def _readers() -> list[tuple[Callable[[Path, Original, random.Random], str], Original]]:
    for path in (BASELINE, GATE):
        if not path.exists():
            raise UsageError(f"there is no {path}; this kind takes its runs from a checkout's results")
    verified, timed = _verified(), _timed()
    times = Original({BENCH: timed.files[BENCH]}, timed.claims, timed.medians, False)
    lines = [json.loads(line) for line in GATE.read_text().splitlines()]
    slower = {line["case_id"]: line["head_us"] for line in lines if line.get("verdict") == "SLOWER"}
    compared = Original({"gate.jsonl": lines}, {}, slower, True)
    return [(_merge, verified), (_merge, verified), (_resume, verified), (_gate, timed), (_times, times),
            (_compared, compared)]  # fmt: skip


def _verified() -> Original:
    """Two shards from the emulator: cases that pass, a graph that it excludes, and a case whose bytes differ."""
    device = EmulatorDevice()
    records = []
    for case_id in CASES:
        case = find_case(case_id)
        record = blank(case, device).to_record() | {"seconds": 0.5}
        if case.mode not in device.modes:
            reason = "capability: the emulator has no CUDA graphs; mode 'graph' needs a GPU"
            record |= {"verdict": "EXCLUDED", "reason": reason}
        elif case.recipe == "casts":
            record |= {"verdict": "MISMATCH", "reason": "bytes differ", "story": f"MISMATCH {case_id}\n  bytes differ"}
        else:
            record |= evidence(case, device.targets, False)
            record["digests"] = {target: {"exact": "0123456789abcdef" * 2} for target in device.targets}
        records.append(record)
    whole = seal.selection_digest(CASES)
    files = {}
    for number, part in ((1, records[:3]), (2, records[3:])):
        header = {
            "sources": "0" * 64, "sealed": {"package numpy": "2"}, "device": device.identity(),
            "cases": seal.selection_digest(record["case_id"] for record in part), "selected": len(part),
            "selection": whole, "set": "", "shard": f"{number}/2", "timed": False,
        }  # fmt: skip
        files[f"{('one', 'two')[number - 1]}/{journal.FILE}"] = [header, *part]
    return Original(files, _right(records), {}, True)


def _timed() -> Original:
    """A run of some cases of the committed baseline, all of them a tenth slower, and that baseline."""
    header, *records = (json.loads(line) for line in BASELINE.read_text().splitlines())
    # Evidence is made anew, because the kernels of another tree may have had other names.
    records = [record | evidence(find_case(record["case_id"]), record["targets"], True) for record in records[:TIMED]]
    slower = [record | {"times": _slowed(record["times"])} for record in records]
    ids = [record["case_id"] for record in records]
    about = {
        "sources": "0" * 64, "sealed": {}, "device": header["machine"], "cases": seal.selection_digest(ids),
        "selected": len(ids), "selection": seal.selection_digest(ids), "set": "", "shard": "1/1", "timed": True,
    }  # fmt: skip
    later = header | {"date": "2100-01-01T00:00:00Z"}  # otherwise they would count as the baseline's own times
    files = {f"run/{journal.FILE}": [about, *slower], f"run/{BENCH_HEADER}": [later], BENCH: [header, *records]}
    medians = {record["case_id"]: record["times"]["median_us"] for record in slower}
    return Original(files, _right(records), medians, True)


def _slowed(times: dict[str, Any]) -> dict[str, Any]:
    samples = [round(us * 1.5, 3) for us in times["samples_us"]]
    found = summarize(samples)
    gbps = times["bytes"] / found.median / 1e3
    ratio = {"baseline_ratio": round(times["baseline_us"] / found.median, 4)} if times["baseline_us"] else {}
    return times | ratio | {
        "samples_us": samples, "median_us": found.median, "q1_us": found.q1, "q3_us": found.q3,
        "min_us": found.smallest, "gbps": round(gbps, 1), "code": "another",
        "roofline_percent": round(100 * gbps / times["roofline_gbps"], 2),
    }  # fmt: skip


def _right(records: Sequence[Record]) -> dict[str, tuple]:
    return {record["case_id"]: _claims(record) for record in records if Verdict(record["verdict"]).right}


@cache
def _folder() -> Path:
    """A folder for the files of one trial at a time, removed when the process ends."""
    return Path(_temporary().name)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nvfp4-fuzz-")
