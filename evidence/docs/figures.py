"""The figures in README and docs, each from one run: its sentence, its table, and its source file."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence

from evidence.docs import choice, training
from evidence.measured import (
    RESULTS,
    Figure,
    Peers,
    Times,
    apart,
    chips,
    conditions,
    name_of,
    peers,
    sentence,
    table,
    times,
    us,
)
from evidence.targets import reached
from harness.bench.standings import furthest
from harness.bench.targets import load
from harness.errors import UsageError
from harness.gate.against_baseline import EFFECT
from harness.gate.decision import EFFECT_US
from harness.gate.second_process import APART
from harness.records.run_folder import read_bench

_LARGEST = "32768x8192/normal"
# label → recipe and flags
_BESIDE_PEERS = (
    ("rowwise, given the amax", "per_tensor/outputs=rowwise,stage=encode"),
    ("rows and columns, given the amax", "per_tensor/stage=encode"),
    ("the same in 16x16 blocks", "per_tensor/block=block_16x16,stage=encode"),
    ("rows and columns, stochastic, given the amax", "per_tensor/rounding=sr,stage=encode"),
    ("rows and columns, Hadamard and stochastic, with the amaxes", "per_tensor/rht=true,rounding=sr"),
    ("four_over_six, rowwise, given the amax", "four_over_six/outputs=rowwise,stage=encode"),
)
_FORMS = ("1024x2048", "4096x2048", "8192x2048", "8192x8192", "32768x8192")
_RAGGED = ("1040x2064", "8208x4112", "32784x8208")  # no whole tiles; no group has them
_PRODUCTS = ("1x8192x8192", "16x8192x8192", "64x8192x8192", "1008x3072x992", "1024x1024x1024", "4096x4096x4096",
             "8192x8192x8192")  # fmt: skip
_TOKENS = (1, 16, 64, 256, 4096)
_COPY, _CUBLAS = "the copy", "cuBLAS"

Rows = list[list[str]]


def _beside(columns: Sequence[str], found: Mapping[str, Rows], same: int = 1) -> str:
    """A table; of several GPUs, lines of the same case stand under one another, each with the name of its GPU.

    found: GPU → its lines; same: so many cells at the beginning of a line say of which case it is
    """
    if len(found) == 1:
        (rows,) = found.values()
        return table([*columns], rows)
    cases: dict[tuple[str, ...], Rows] = {}
    for name, rows in found.items():
        for row in rows:
            cases.setdefault(tuple(row[:same]), []).append([*row[:same], name, *row[same:]])
    rows = [row for each in cases.values() for row in each]
    return table([*columns[:same], "GPU", *columns[same:]], rows, same + 1)


def _pages(root: str, stem: str) -> str:
    """Links to a page of every GPU: `[peers.md](results/tables/nvidia-h200/peers.md)`."""
    found = {name_of(peers(gpu).header): f"{root}results/tables/{gpu}/{stem}.md" for gpu in chips()}
    if len(found) == 1:
        return f"[{stem}.md]({next(iter(found.values()))})"
    return " and ".join(f"[{stem}.md of the {name}]({path})" for name, path in found.items())


def _conditions(runs: Sequence[Times | Peers]) -> str:
    return "; ".join(conditions(run.header) for run in runs)


def _apart(named: Mapping[str, Mapping[str, Figure]], against: str) -> str:
    said = list(apart(named, against))
    return "\n\n" + "\n".join(said) if said else ""


def speed(root: str) -> str:
    """Our quantizers as a share of a copy, and beside the fastest public one, in graphs."""
    runs = [peers(gpu) for gpu in chips()]
    found: dict[str, Rows] = {}
    shares: dict[str, dict[str, Figure]] = {}
    for run in runs:
        rows, own = found.setdefault(name_of(run.header), []), shares.setdefault(name_of(run.header), {})
        for name, case in _BESIDE_PEERS:
            ours, theirs = run.side(f"{case}/{_LARGEST}", "ours"), run.fastest(f"{case}/{_LARGEST}", "graph")
            took, percent = ours["us"]["graph"], ours["percent"]["graph"]
            rows.append([name, us(took), f"{percent:.0f}", theirs["side"], us(theirs["us"]["graph"]),
                         f"{theirs['us']['graph'] / took:.1f}"])  # fmt: skip
            own[name] = Figure(percent, took, took * percent / 100)
    head = f"32768x8192 bf16, CUDA graphs, cold L2; {_conditions(runs)}."
    columns = ["quantizing", "us", "% of the copy", "fastest peer", "its us", "times as long"]
    return f"{head} All cases are in {_pages(root, 'peers')}.\n\n{_beside(columns, found)}{_apart(shares, _COPY)}"


def eager(root: str) -> str:
    """Our eager times beside the fastest peer's."""
    found: dict[str, Rows] = {}
    for run in map(peers, chips()):
        rows = found.setdefault(name_of(run.header), [])
        for name, case in _BESIDE_PEERS:
            ours, theirs = run.side(f"{case}/{_LARGEST}", "ours"), run.fastest(f"{case}/{_LARGEST}", "eager")
            ratio = theirs["us"]["eager"] / ours["us"]["eager"]
            rows.append([name, us(ours["us"]["eager"]), theirs["side"], us(theirs["us"]["eager"]), f"{ratio:.1f}"])
    return _beside(["quantizing, eager", "us", "fastest peer", "its us", "times as long"], found)


def targets(root: str) -> str:
    """Each kernel's target and result."""
    runs, wanted = [times("roofline", gpu) for gpu in chips()], load()
    found: dict[str, Rows] = {}
    counts = []
    for run in runs:
        results = list(reached(wanted, run.header, run.records))
        found[name_of(run.header)] = [
            [one.line.kernel, f"`{one.case_id.rpartition('/normal')[0]}`", us(one.microseconds or 0), one.required,
             one.reached, one.verdict.partition(":")[0]]
            for one in results
        ]  # fmt: skip
        counts.append(f"{sum(one.holds for one in results)} of {len(results)}")
    head = f"{' and '.join(counts)} cases reach what targets.yaml asks; {_conditions(runs)}."
    why = f"What the others are limited by is in {_pages(root, 'roofline')}."
    return f"{head} {why}\n\n{_beside(['kernel', 'case', 'us', 'must', 'is', ''], found, same=2)}"


def from_targets(root: str) -> str:
    """The cases of the baseline that are furthest from their targets."""
    found: dict[str, Rows] = {}
    said = []
    for gpu in chips():
        if (path := RESULTS / "baselines" / gpu / "bench.jsonl").exists():
            header, records = read_bench(path)
            last = furthest(header, records)
            rows = [[f"`{one.case_id.rpartition('/normal')[0]}`", *list(one.row().values())[1:]] for one in last]
            found |= {name_of(header): rows} if rows else {}
            said += [conditions(header)] if rows else []
    columns = ["case", "us", "must", "is", "% of that"]
    return f"In graphs; {'; '.join(said)}.\n\n{_beside(columns, found)}"


def against_baseline(root: str) -> str:
    """per_token, alone and in a group of eight, against the baseline recipe."""
    runs = [times("per_token_and_grouped", gpu) for gpu in chips()]
    shown = ("per_token/default", "per_token/rht=true", "grouped/recipe=per_token", "grouped/recipe=per_token,rht=true")
    ratios = [
        record["times"]["baseline_ratio"]
        for run in runs
        for record in run.records
        if "/".join(record["case_id"].split("/")[:2]) in shown and record["case_id"].endswith("/graph")
    ]
    found: dict[str, Rows] = {}
    for run in runs:
        rows = found.setdefault(name_of(run.header), [])
        for shape in (*_FORMS, *_RAGGED):
            height, width = map(int, shape.split("x"))
            one = run[f"per_token/default/{shape}/normal/graph"]
            shapes = (shape, shape, *[f"8*{height // 8}x{width}"] * 2)
            cases = [f"{recipe}/{each}/normal/graph" for recipe, each in zip(shown, shapes, strict=True)]
            ratio = [f"{run[case]['baseline_ratio']:.2f}" for case in (cases[:2] if shape in _RAGGED else cases)]
            ratio += ["-"] * (len(cases) - len(ratio))
            rows.append([shape, *ratio, f"{one['roofline_percent']:.0f}", f"{one['baseline_percent']:.0f}"])
    head = (
        f"Times as fast as the baseline, amaxes and encoding, CUDA graphs; {_conditions(runs)}. The least of all "
        f"{len(ratios)} is {min(ratios):.2f}."
    )
    where = f"All shapes and stages are in {_pages(root, 'per_token_and_grouped')}."
    columns = ["shape", "one tensor", "with rht", "group of 8", "with rht", "% of the copy", "baseline's %"]
    return f"{head} {where}\n\n{_beside(columns, found)}"


def products(root: str) -> str:
    """A GEMM by itself and by the library, against cuBLAS on bf16."""
    runs = [times("gemm", gpu) for gpu in chips()]
    found: dict[str, Rows] = {}
    shares: dict[str, dict[str, Figure]] = {}
    for run in runs:
        rows, own = found.setdefault(name_of(run.header), []), shares.setdefault(name_of(run.header), {})
        for shape in _PRODUCTS:
            row = [shape]
            for flags, route in (("default", "by tensor cores"), ("route=library", "decoded for cuBLAS")):
                one = run[f"gemm/{flags}/{shape}/normal/graph"]
                row += [us(one["median_us"]), f"{one['baseline_ratio']:.2f}"]
                took, ratio = one["median_us"], one["baseline_ratio"]
                own[f"{shape}, {route}"] = Figure(100 * ratio, took, took * ratio)
            rows.append(row)
    head = f"As a multiple of cuBLAS' speed on bf16 operands of the same shape, CUDA graphs; {_conditions(runs)}."
    where = f"All shapes, epilogues and modes are in {_pages(root, 'gemm')}."
    columns = ["M x K x N", "by tensor cores, us", "x cuBLAS", "decoded for cuBLAS, us", "x cuBLAS"]
    return f"{head} {where}\n\n{_beside(columns, found)}{_apart(shares, _CUBLAS)}"


def beside_w4a16(root: str) -> str:
    """Products beside Humming's W4A16, which reads one operand in 4 bits."""
    runs = [peers(gpu) for gpu in chips()]
    found: dict[str, Rows] = {}
    for run in runs:
        rows = found.setdefault(name_of(run.header), [])
        for tokens in _TOKENS:
            ours, decoded = (f"gemm/{flags}/{tokens}x8192x8192/normal" for flags in ("default", "route=library"))
            sides = ((ours, "ours"), (decoded, "ours"), (ours, "humming"), (ours, "humming_invariant"))
            rows.append([str(tokens), *(us(run.side(case, side)["us"]["graph"]) for case, side in sides)])
    head = f"N = K = 8192, microseconds in CUDA graphs; {_conditions(runs)}."
    columns = ["M", "by tensor cores", "decoded for cuBLAS", "Humming", "Humming, K not split"]
    return f"{head}\n\n{_beside(columns, found)}"


def layer(root: str) -> str:
    """A layer from end to end by the library route."""
    runs = [times("end_to_end", gpu) for gpu in chips()]
    epilogues = (
        ("per_tensor, as in production", "route=library"),
        ("per_token, scaled afterwards", "epilogue=per_token,route=library"),
        ("per_token, fused", "epilogue=per_token_fused,route=library"),
    )
    found: dict[str, Rows] = {}
    for run in runs:
        rows = found.setdefault(name_of(run.header), [])
        for name, flags in epilogues:
            row = [name]
            for recipe in ("forward", "backward"):
                one = run[f"{recipe}/{flags}/4096x4096x4096/normal/graph"]
                row += [us(one["median_us"]), str(one["launches"]), f"{one['baseline_ratio']:.2f}"]
            rows.append(row)
    head = f"4096x4096x4096 by the library route, CUDA graphs; {_conditions(runs)}."
    where = f"Four shapes, both routes and modes are in {_pages(root, 'end_to_end')}."
    columns = ["epilogue", "forward us", "launches", "x", "backward us", "launches", "x"]
    return f"{head} {where}\n\n{_beside(columns, found)}"


def quality(root: str) -> str:
    """The SNR that finer amaxes gain on the real tensors."""
    rows, real = [], choice.real_tensors()
    for recipe in ("row_scaled", "local_1x64", "per_token", "four_over_six/error=mse"):
        if all((recipe, tensor) in choice.snr() for tensor in real):
            gained = choice.gains(recipe)
            rows.append([recipe, f"{min(gained):+.2f}", f"{max(gained):+.2f}"])
    head = f"SNR gained over one amax for the tensor, on the {len(real)} real tensors of suites/data, in dB:"
    return f"{head}\n\n{table(['recipe', 'least', 'most'], rows)}"


def mutants(root: str) -> str:
    """How many planted mistakes the suites catch."""
    return f"{sentence(RESULTS / 'mutants.md', _caught())} ([mutants.md]({root}results/mutants.md))"


def _caught() -> str:
    with (RESULTS / "mutants.csv").open(encoding="utf-8", newline="") as file:
        return f"{sum(bool(row['verdict']) for row in csv.DictReader(file))} of "


def agreement(root: str) -> str:
    """The emulator against each GPU."""
    said = []
    for gpu in chips():
        page = RESULTS / "tables" / gpu / "emulator.md"
        on = f"On the {name_of(peers(gpu).header)}: " if len(chips()) > 1 else ""
        said.append(f"{on}{sentence(page, 'Of ')} ([emulator.md]({root}results/tables/{gpu}/emulator.md))")
    return "\n\n".join(said)


def power(root: str) -> str:
    """How many simulated gates found each slowdown, by the time of the kernel."""
    with (RESULTS / "gate" / "power.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    found = {(line["against"], line["us"], line["slowdown"]): line for line in lines}
    gates = sum(int(lines[0][verdict]) for verdict in ("SLOWER", "AMBIGUOUS", "SAME", "FASTER"))
    rows = []
    for against in dict.fromkeys(line["against"] for line in lines):
        for us_ in dict.fromkeys(line["us"] for line in lines):
            shown = (found[against, us_, f"{percent} %"]["SLOWER"] for percent in (1, 2, 3, 5))
            tails = [line["SAME"] for key, line in found.items() if key[:2] == (against, us_) and "rounds" in key[2]]
            rows.append([against, f"{float(us_):,.0f}", *shown, *tails])
    head = f"Of {gates} gates so many say SLOWER if all rounds take 1 to 5 % longer, and SAME if some take "
    columns = ["against", "us", "SLOWER: 1 %", "2 %", "3 %", "5 %", "SAME: 5 % of the rounds", "15 %"]
    told = (
        f"Two processes are taken to differ by {APART:.0%} (standard deviation), so a second one says SLOWER from "
        f"{EFFECT + APART:.0%} on, and never below {EFFECT_US} us."
    )
    return f"{told} {head}1.3 times as long ([power.md]({root}results/gate/power.md)).\n\n{table(columns, rows)}"


def vendors(root: str) -> str:
    """The output of a run of another project's kernel, before and after a fix, from the committed page."""
    page = RESULTS / "vendors.md"
    found = re.search(r"^## On a screen\n.*?^(```screen\n.*?^```)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    if not found:
        raise UsageError(f"{page} has no screen under `## On a screen`, which README shows")
    return f"{found[1]}\n\nCommits, kernels and every byte that differs are in [vendors.md]({root}results/vendors.md)."


RENDERERS: dict[str, Callable[[str], str]] = {
    render.__name__: render
    for render in (
        speed, eager, targets, from_targets, against_baseline, products, beside_w4a16, layer, quality, mutants,
        agreement, power, vendors,
    )
} | training.RENDERERS | choice.RENDERERS  # fmt: skip
