from __future__ import annotations

import gc
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from evidence.peers import contests, peer_bench, tables
from evidence.peers.contests import Contest
from evidence.peers.prepared import CasePreparer
from harness.bench import roofline
from harness.bench.gpu_timer import clock_of
from harness.commands import _shared
from harness.device.cuda import CudaDevice
from harness.errors import CaseError, Exit, UsageError
from harness.files import write_text
from harness.records.records import Record
from harness.records.run_folder import new_folder, new_header, now, shown
from harness.subjects.subject import load
from harness.verdict import Verdict

SECONDS = 200.0


@click.command()
@click.option("--shape", "shapes", multiple=True, metavar="RxC", help="only this shape of the sweep")
@click.option("--peer", "-p", "names", multiple=True, metavar="NAME", help="only this peer")
@click.option(
    "--seconds", type=_shared.Number(0), default=SECONDS, show_default=True, help="begin no contest after that long"
)
@_shared.out()
@click.option("--list", "listed", is_flag=True, help="show the contests, without a GPU")
def command(shapes: Sequence[str], names: Sequence[str], seconds: float, out: Path | None, listed: bool) -> int:
    """Time our kernels in turns with public implementations, on the same inputs and in one process.

    The bytes of every implementation are checked first. Writes peers.md and peers.jsonl. Exits with 1 if our kernels
    write a wrong byte.
    """
    chosen = contests.contests(shapes, names)
    if listed:
        for contest in chosen:
            click.echo(f"{contest.case.id}  {', '.join(contest.peers)}")
        return Exit.CLEAN
    device = CudaDevice()
    path = _path(out)
    found = _run_all(device, chosen, seconds, path)
    click.echo(shown(path.with_suffix(".md")))
    ours = {record["verdict"] for record in found if record["side"] == "ours"} - {"NOT_MEASURED"}
    if not ours:
        return Exit.NO_DEVICE
    return Exit.CLEAN if ours == {Verdict.PASS} else Exit.BYTES_DIFFER


def _path(out: Path | None) -> Path:
    folder = out or new_folder()
    if (folder / tables.FILE).exists():
        raise UsageError(f"{folder / tables.FILE} is there already; nothing is overwritten, so name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / tables.FILE


def _run_all(device: CudaDevice, chosen: Sequence[Contest], seconds: float, path: Path) -> list[Record]:
    """Run all contests; each record is written as soon as it is known."""
    began = time.monotonic()
    clock = clock_of(device)
    header = new_header(_shared.made_by(), device.identity(), peer_bench.METHOD, clock.method)
    peers = dict.fromkeys(name for contest in chosen for name in contest.peers)
    header["peers"] = [load(name).label for name in peers]

    def measure(point: str) -> float:
        gbps = roofline.copy_gbps(clock)
        header["roofline"].append({"point": point, "date": now(), "gbps": round(gbps, 1)})
        return gbps

    gbps = measure("start")
    bench = peer_bench.PeerBench(CasePreparer(device, clock, [contest.case for contest in chosen]), clock)
    found: list[Record] = []
    with path.open("w", encoding="utf-8") as file:
        _write(file, header)
        for contest in chosen:
            if time.monotonic() - began > seconds:
                new = tables.failed(contest.case.id, contest.peers, f"not begun within {seconds:g} s")
            else:
                new = _records(bench, contest, gbps)
                click.echo(contest.case.id)
                for record in new:
                    click.echo(tables.line(record))
                gc.collect()  # reference cycles between implementations and their calls keep gigabytes of graphs
                device.release()
            found += new
            for record in new:
                _write(file, record)
        measure("end")
        _write(file, {"end": header["roofline"][-1]})
    write_text(path.with_suffix(".md"), tables.page(header, found))
    return found


def _records(bench: Any, contest: Contest, gbps: float) -> list[Record]:
    try:
        return tables.records(bench.run(contest), gbps)
    except CaseError as error:
        return tables.failed(contest.case.id, contest.peers, str(error).splitlines()[0])


def _write(file: Any, record: Record) -> None:
    file.write(json.dumps(record, ensure_ascii=False) + "\n")
    file.flush()
