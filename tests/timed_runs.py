"""Runs with times that were never measured, for tests of pages and formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from harness.records.run_folder import RunFiles
from harness.verdict import Result, Verdict

HEADER = {
    "command": "pytest suites --bench --device cuda --run-dir results/runs/one-with-a-long-name-that-wraps",
    "commit": "0123abc",
    "edited": False,
    "sources": "feed",
    "date": "2026-01-01T00:00:00Z",
    "machine": {"gpu": "NVIDIA H200", "driver": "13000", "nvrtc": "13.0"},
    "compile_flags": "-ftz=false",
    "method": "a rule",
    "clock": "events",
    "roofline": [{"point": "start", "gbps": 4200.0, "date": ""}, {"point": "end", "gbps": 4200.0, "date": ""}],
    "floors_us": {"events": 1.3, "eager": 2.1, "graph": 2.1},
}

SHAPES = ("1024x2048", "1024x8192", "8192x2048", "8192x8192")
SLOWER, FASTER, UNTIMED, NEW, WRONG = (
    "per_tensor/default/1024x2048/normal/eager",
    "per_tensor/default/8192x8192/normal/graph",
    "per_tensor/rht=true/8192x8192/normal/graph",
    "per_tensor/default/1024x8192/normal/graph",
    "swizzle/direction=columnwise/16x16/normal/eager",
)


def record(case_id: str, us: float = 100.0, *, noise: float = 0.002, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A record of a timed case. seed: of the noise; another seed is also other machine code."""
    rng = np.random.default_rng([seed, *case_id.encode()])
    samples = (us * (1 + noise * rng.gamma(1.5, size=30))).round(3).tolist()
    middle = float(np.median(samples))
    times = {
        "median_us": middle, "q1_us": us, "q3_us": us, "min_us": us, "rounds": 30, "relative_error": 0.001,
        "exposed": 0, "samples_us": samples, "bytes": 50_000_000, "gbps": round(5e4 / middle, 1),
        "roofline_gbps": 4200.0, "roofline_percent": 50.0, "baseline": "b", "baseline_us": 150.0,
        "baseline_percent": 30.0, "baseline_ratio": round(150.0 / middle, 4), "code": f"code {seed}",
        "measured": "so, and in this way",
    }  # fmt: skip
    ran = ("sm_90a per_tensor_amax<bf16>", "sm_90a per_tensor_encode_tile<bf16, Block::block_1x16>")
    result = Result(
        case_id, case_id.split("/")[0], Verdict.PASS, input="normal", instantiations=ran, bytes_compared=1000,
        times=times | changes,
    )  # fmt: skip
    return json.loads(json.dumps(result.to_record()))


def wrong(case_id: str = WRONG) -> dict[str, Any]:
    """A record of a case whose bytes differ, with a story wider than a narrow window."""
    story = f"MISMATCH  {case_id}\n{'wide ' * 60}\nreproduce make verify CASE='{case_id}'"
    result = Result(case_id, case_id.split("/")[0], Verdict.MISMATCH, "3 of 9 entries differ", story)
    return json.loads(json.dumps(result.to_record()))


DUEL_HEADER = {key: value for key, value in HEADER.items() if key != "roofline"} | {
    "base": "main", "base_commit": "feedbeef", "effect": 0.01, "roofline": HEADER["roofline"][:1],
}  # fmt: skip


def duel_line(case_id: str, verdict: str, factor: float = 1.0, us: float = 50.0, verified: str = "PASS") -> dict:
    """A line of what `harness gate --base` writes; without samples if nothing was timed."""
    rng = np.random.default_rng([*case_id.encode()])
    timed = verdict in ("SLOWER", "FASTER", "AMBIGUOUS")
    sides = {"head": us * factor, "again": us * factor, "base": us} if timed else {}
    samples = {
        name: (middle * (1 + 0.002 * rng.gamma(1.5, size=30))).round(4).tolist() for name, middle in sides.items()
    }
    change = [factor, factor - 0.002, factor + 0.002] if timed else None
    return {
        "case_id": case_id, "recipe": case_id.split("/")[0], "verified": verified, "verdict": verdict,
        "reason": f"because it is {verdict}",
        "head_us": us * factor if timed else None, "base_us": us if timed else None,
        "time": change, "cycles": change, "floor": timed and [1.0, 0.999, 1.001] or None, "dropped": 0, "copies": 4,
        "calls": 8, "bytes": 1000, "memory": "cold", "samples_us": samples, "mhz": [],
    }  # fmt: skip


def duel_lines() -> list[dict[str, Any]]:
    """All that such a file holds behind its header: a case of each state, and the roofline at the end."""
    states = [("SLOWER", 1.1), ("FASTER", 0.9), ("AMBIGUOUS", 1.01), ("SAME", 1.0), ("NO_BASELINE", 1.0)]
    lines = [duel_line(f"per_tensor/default/{2**i * 1024}x2048/normal/graph", *one) for i, one in enumerate(states)]
    return [*lines, duel_line(WRONG, "NOT_MEASURED", verified="MISMATCH"), {"end": HEADER["roofline"][1]}]


def gate_run(folder: Path) -> tuple[RunFiles, list[dict[str, Any]]]:
    """A run and the times it is compared with: most alike, one each slower, faster, untimed, new and wrong."""
    ids = [
        f"per_tensor/{flags}/{shape}/normal/{mode}"
        for flags in ("default", "rht=true", "outputs=rowwise,scale_layout=swizzled,fast_math=true")
        for shape in SHAPES
        for mode in ("eager", "graph")
    ]
    us = {name: 20.0 + 7.0 * (index * 5 % 24) for index, name in enumerate(ids)}
    held = [record(name, us[name], seed=1) for name in ids if name != NEW]
    factors = {SLOWER: 1.2, FASTER: 0.8}
    far = {f"per_tensor/default/8192x2048/normal/{mode}": {"baseline_ratio": 0.2} for mode in ("eager", "graph")}
    ours = [
        record(name, us[name] * factors.get(name, 1.0), seed=2, **far.get(name, {})) for name in ids if name != UNTIMED
    ]
    return RunFiles(folder, [*ours, wrong()], HEADER), held
