"""The results of contests, as records and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from evidence.peers.peer_bench import OURS, ContestResult
from harness.records.records import Record
from harness.records.run_folder import Header
from harness.report import tables
from harness.report.pages import number

FILE = "peers.jsonl"
MODES = ("eager", "graph")

# Peers that were tried but are not run, with the reason.
NOT_RUN = {
    "FlashInfer `fp4_quantize`": "its wheel has no code for sm_90 and writes nothing there, silently",
    "Transformer Engine, nearest-even": "a stub on Hopper; the contract's bytes are those of its Python reference",
    "qutlass, sgl-kernel, torchao's Triton and CuteDSL kernels, fouroversix CUDA, cuBLASLt fp4": "Blackwell only",
    "ModelOpt, vLLM, FP-Quant, compressed-tensors": "write bf16 values that were quantized, and no packed codes",
    "GemLite": "rounds ties down, so that it is another quantizer; its NVFP4 product does not compile on Triton 3.6",
    "vLLM Marlin (W4A16)": "inside vLLM's own extension, not to be had alone; Humming, of the same project, is run",
}


def records(result: ContestResult, roofline_gbps: float) -> list[Record]:
    ours = next(one for one in result.results if one.side == OURS)
    return [
        {
            "case_id": result.contest.case.id.rpartition("/")[0],
            "shape": result.contest.case.shape,
            "side": one.side,
            "verdict": one.verdict,
            "says": list(one.reasons),
            "us": one.us,
            "times_as_long": {mode: round(us / ours.us[mode], 3) for mode, us in one.us.items() if mode in ours.us},
            "percent": {mode: round(result.moved / us / 10 / roofline_gbps, 2) for mode, us in one.us.items()},
            "bytes": result.moved,
            "exposed": one.exposed,
            "no_graph": one.no_graph,
            "samples_us": {mode: [round(us, 3) for us in values] for mode, values in one.samples.items()},
        }
        for one in result.results
    ]


def failed(case_id: str, peers: Iterable[str], why: str) -> list[Record]:
    """The records of a contest that was not run."""
    blank: dict[str, Any] = {"us": {}, "times_as_long": {}, "percent": {}, "bytes": 0, "exposed": 0.0, "no_graph": ""}
    blank |= {
        "case_id": case_id.rpartition("/")[0],
        "shape": case_id.split("/")[2],
        "verdict": "NOT_MEASURED",
        "says": [why],
        "samples_us": {},
    }
    return [blank | {"side": side} for side in (OURS, *peers)]


def frame(found: Sequence[Record]) -> pd.DataFrame:
    """A row for each peer of each case, with our results in further columns."""
    ours = {record["case_id"]: record for record in found if record["side"] == OURS}
    rows = []
    for record in found:
        if record["side"] == OURS:
            continue
        case, mine = record["case_id"], ours[record["case_id"]]
        recipe, flags, shape, _ = case.split("/", 3)
        row: dict[str, Any] = {"case": f"{recipe} {flags}", "shape": shape, "peer": record["side"]}
        for mode in MODES:
            row |= {
                f"{mode} us": _shown(mine["us"].get(mode), "us"),
                f"{mode} %": _shown(mine["percent"].get(mode), "%"),
                f"{mode} peer us": _shown(record["us"].get(mode), "us"),
                f"{mode} peer %": _shown(record["percent"].get(mode), "%"),
                f"{mode} x": _shown(record["times_as_long"].get(mode), "x"),
            }
        rows.append(row | {"ours": mine["verdict"], "theirs": _verdict(record)})
    return pd.DataFrame(rows)


def page(header: Header, found: Sequence[Record]) -> str:
    """The table in Markdown, below the conditions of the run."""
    kept = ("GPU", "copy roofline (read + written)", "method", "compile flags", "date", "commit", "command")
    facts = {name: value for name, value in tables.facts_of(header | {"floors_us": {}}).items() if name in kept} | {
        "peers": "; ".join(header["peers"]),
        "columns": "us: median of a call; %: of the copy roofline, by the bytes that the case must move, the same for "
        "both; x: how many times as long the peer takes; theirs: PASS if every byte is the expected one, CONVENTION "
        "with how many differ by which, MISMATCH if some are explained by nothing that the peer declares; of a "
        "product, PASS if every entry lies within the bound of a sum in fp32 in any order, and MISMATCH with how many "
        "do not and by how much the whole is off; (waited): in some eager rounds the GPU waited for the host",
    }
    conditions = tables.markdown(pd.DataFrame(facts.items(), columns=[" ", "this run"]))
    others = "\n".join(f"- {name}: {why}." for name, why in NOT_RUN.items())
    text = ["# Our kernels beside public ones", conditions, tables.markdown(frame(found)), "## Not run", others, ""]
    return "\n\n".join(text)


def line(record: Record) -> str:
    us = ", ".join(f"{mode} {value:,.1f} us" for mode, value in record["us"].items())
    ratio = record["times_as_long"].get("graph", record["times_as_long"].get("eager"))
    against = f" ({ratio:.2f}x ours)" if ratio and record["side"] != OURS else ""
    return f"  {record['side']:<20} {us or '-'}{against}  {_verdict(record)}"


def _verdict(record: Record) -> str:
    notes = [record["verdict"], *record["says"]]
    if record["no_graph"]:
        notes.append(f"no graph: {record['no_graph']}")
    return "; ".join(notes) + (" (waited)" if record["exposed"] else "")


def _shown(value: float | None, column: str) -> str:
    return "-" if value is None else number(value, column)
