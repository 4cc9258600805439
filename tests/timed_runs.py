"""Runs with times that were never measured, for tests of pages and formats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from harness.bench.statistics import relative_error
from harness.gate.decision import Samples, decide
from harness.ground.command_lines import Asked
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


def evidence(case_id: str) -> dict[str, Any]:
    """What a `Result` of a case that passed on a GPU has besides its times."""
    recipe, _, shape_and_input = case_id.rpartition("/")[0].split("/", 2)
    kernel = "per_tensor_amax<bf16>" if recipe == "per_tensor" else f"{recipe}<bf16>"
    return {
        "input": shape_and_input.partition("/")[2], "device": "cuda", "targets": ("sm_90a",),
        "instantiations": (f"sm_90a {kernel}",), "oracles": ("numpy", "torch"), "bytes_compared": 1000,
    }  # fmt: skip


def times_of(
    samples: Sequence[float], *, percent: float = 50.0, ratio: float | None = None, baseline_us: float | None = 150.0,
    **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    """Times that are their samples'. percent: of the copy roofline; ratio: to the baseline, in place of baseline_us"""
    q1, middle, q3 = (float(x) for x in np.quantile(samples, (0.25, 0.5, 0.75)))
    moved = round(percent * 42 * middle * 1e3)
    baseline_us = round(ratio * middle, 3) if ratio else baseline_us
    return {
        "median_us": middle, "q1_us": q1, "q3_us": q3, "min_us": min(samples), "rounds": len(samples),
        "relative_error": round(relative_error(samples), 6), "exposed": 0, "samples_us": list(samples), "bytes": moved,
        "gbps": round(moved / middle / 1e3, 1), "roofline_gbps": 4200.0, "roofline_percent": percent, "baseline": "b",
        "baseline_us": baseline_us, "baseline_percent": baseline_us and 30.0,
        "baseline_ratio": baseline_us and round(baseline_us / middle, 4), "code": "c", "measured": "as it is",
        "mhz": 1980.0, "samples_mhz": [1980.0] * len(samples),
    } | changes  # fmt: skip


def of_case(times: dict[str, Any], case_id: str) -> dict[str, Any]:
    """The times with the bytes that a call of this case moves, and what follows from these."""
    from harness.records.possible import moved  # an earlier harness has none
    from harness.suite.suite import find_case

    known = moved(find_case(case_id))
    if not known:  # of a recipe of the user's it is not known
        return times
    ((nbytes, *_), *_) = known
    gbps = nbytes / times["median_us"] / 1e3
    return times | {
        "bytes": nbytes, "gbps": round(gbps, 1),
        "roofline_percent": round(100 * gbps / times["roofline_gbps"], 2),
    }  # fmt: skip


def record(case_id: str, us: float = 100.0, *, noise: float = 0.002, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A record of a timed case. seed: of the noise; another seed is also other machine code."""
    rng = np.random.default_rng([seed, *case_id.encode()])
    samples = (us * (1 + noise * rng.gamma(1.5, size=30))).round(3).tolist()
    times = times_of(samples, **{"code": f"code {seed}", "measured": "so, and in this way"} | changes)
    ran = ("sm_90a per_tensor_amax<bf16>", "sm_90a per_tensor_encode_tile<bf16, Block::block_1x16>")
    shown = evidence(case_id) | {"instantiations": ran}
    result = Result(case_id, case_id.split("/")[0], Verdict.PASS, times=times, **shown)
    return json.loads(json.dumps(result.to_record()))


def wrong(case_id: str = WRONG) -> dict[str, Any]:
    """A record of a case whose bytes differ, with a story wider than a narrow window."""
    story = f"MISMATCH  {case_id}\n{'wide ' * 60}"
    result = Result(case_id, case_id.split("/")[0], Verdict.MISMATCH, "3 of 9 entries differ", story)
    return json.loads(json.dumps(result.to_record()))


GATE_HEADER = {key: value for key, value in HEADER.items() if key != "roofline"} | {
    "base": "main", "base_commit": "feedbeef", "effect": 0.01, "roofline": HEADER["roofline"][:1],
}  # fmt: skip


_SIDES = ("head", "again", "base")


def gate_line(case_id: str, verdict: str, factor: float = 1.0, us: float = 50.0, verified: str = "PASS") -> dict:
    """A line of what `harness gate --base` writes; without samples if nothing was timed."""
    rng = np.random.default_rng([*case_id.encode()])
    timed = verdict in ("SLOWER", "FASTER", "AMBIGUOUS", "SAME")
    noise = (1 + 0.002 * rng.gamma(1.5, size=30)) * us
    samples = {name: (noise * (1 if name == "base" else factor)).round(4).tolist() for name in _SIDES} if timed else {}
    mhz = [1980.0] * 30 if timed else []
    found = decide(*(Samples(series, mhz) for series in samples.values())) if timed else None
    assert not found or found.verdict == verdict
    changes = {name: getattr(found, name, None) for name in ("time", "cycles", "floor")}
    return {
        "case_id": case_id, "recipe": case_id.split("/")[0], "verified": verified, "verdict": verdict,
        "reason": f"{verdict} in one process, and no second has timed it",
        **{f"{name}_us": float(np.median(samples[name])) if timed else None for name in ("head", "base")},
        **{name: change and [round(x, 5) for x in astuple(change)] for name, change in changes.items()},
        "recurs": None, "dropped": 0, "copies": 4, "calls": 8, "bytes": 1000, "memory": "cold", "samples_us": samples,
        "mhz": mhz,
    }  # fmt: skip


def gate_lines() -> list[dict[str, Any]]:
    """All that such a file holds behind its header: a case of each state, and the roofline at the end."""
    states = [("SLOWER", 1.1), ("FASTER", 0.9), ("AMBIGUOUS", 1.009), ("SAME", 1.0), ("NO_BASELINE", 1.0)]
    lines = [gate_line(f"per_tensor/default/{2**i * 1024}x2048/normal/graph", *one) for i, one in enumerate(states)]
    return [*lines, gate_line(WRONG, "NOT_MEASURED", verified="MISMATCH"), {"end": HEADER["roofline"][1]}]


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
    far = {f"per_tensor/default/8192x2048/normal/{mode}": {"ratio": 0.2} for mode in ("eager", "graph")}
    ours = [
        record(name, us[name] * factors.get(name, 1.0), seed=2, **far.get(name, {})) for name in ids if name != UNTIMED
    ]
    about = {"asked": Asked.here().to_header()}
    return RunFiles(folder, [*ours, wrong()], HEADER | {"date": "2026-01-02T00:00:00Z"}, about), held


def products() -> list[dict[str, Any]]:
    """Records of products on scattered shapes, with every column that a page can have, and one that wrote too far."""
    shapes = ("112x128x96", "128x128x112", "256x640x304", "4096x3072x992", "128+256+384+512x1024x2048")
    flags = ("default", "shape_representation=varying_last_dim,epilogue=per_token_fused,dtype=fp32,accumulate=true")
    far = "after timing, copy 1 of 37: output 'output': 4096 bytes after it were written, the nearest 1 bytes off"
    case_id = f"gemm_grouped/{flags[1]}/{shapes[0]}/outliers/graph"
    return [
        json.loads(json.dumps(Result(case_id, "gemm_grouped", Verdict.OUT_OF_BOUNDS, far, far).to_record())),
        *(record(
            f"gemm_grouped/{flag}/{shape}/normal/{mode}", 12345.6, baseline="cublas/bf16", second="b",
            second_us=23456.7, second_ratio=1.9, tflops=1234.5,
        )
        for flag in flags
        for shape in shapes
        for mode in ("eager", "graph"))
    ]  # fmt: skip
