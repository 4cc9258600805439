"""The table and the page of the tools' findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from evidence.sanitizer.compute_sanitizer import TOOLS
from evidence.sanitizer.run import ToolResult
from harness.records.run_folder import Header
from harness.report.tables import markdown


def table(found: Iterable[ToolResult]) -> pd.DataFrame:
    rows = [
        {
            "tool": each.tool,
            "cases": f"{each.done} of {each.cases}",
            "left out": len(each.left_out),
            "errors": each.errors,
            "failed cases": len(each.failed),
            "sees a planted error": "yes" if each.planted else "no",
            "processes without a summary": each.silent,
            "run again": each.again,
            "seconds": round(each.seconds),
        }
        for each in found
    ]
    return pd.DataFrame(rows)


def page(command: str, version: str, header: Header, commit: str, found: Sequence[ToolResult]) -> str:
    """The page in Markdown. header: from one of the runs"""
    device = header["device"]
    text = [
        "# compute-sanitizer",
        f"Made by `{command}` at commit {commit} on one {device['gpu']} (driver {device['driver']}, NVRTC "
        f"{device['nvrtc']}), with {version}.",
        "Every array is an allocation of its exact size, without guard bands or a pool, with 256 bytes of padding "
        "behind it under memcheck. Only our kernels are patched, so that to initcheck the poison in outputs and "
        "workspaces is no value. Each case runs three times. An error planted for each tool shows that it sees.",
        markdown(table(found)),
    ]
    left = [tool for tool in TOOLS if tool not in {each.tool for each in found}]
    if left:
        text.append(f"Not run: {', '.join(left)}.")
    if any(each.missing for each in found):
        text.append("Cases that are missing were not begun before the tool's time was over.")
    for each in found:
        text += [*_left_out_text(each), *_breakdown_text(each)]
    for each in found:
        lines = [f"{count} x {line}" for line, count in each.findings.most_common(20)] + each.failed[:20]
        if lines:
            text += [f"## {each.tool}", "\n".join(f"    {line}" for line in lines)]
    return "\n\n".join(text) + "\n"


def _left_out_text(found: ToolResult) -> Iterator[str]:
    for why in dict.fromkeys(found.left_out.values()):
        ids = [case_id for case_id, reason in found.left_out.items() if reason == why]
        count = f"{len(ids)} case{'s' * (len(ids) != 1)}"
        unexplained = f"{found.tool} left out {count} without a reason: {', '.join(ids)}."
        yield f"{found.tool} leaves out {count}, because {why}." if why else unexplained


def _breakdown_text(found: ToolResult) -> Iterator[str]:
    if found.again:
        (line, _), *_ = found.breakdowns.most_common(1)
        yield (
            f"{found.tool} ran {found.again} cases a second time, in half as many processes, because it broke down "
            f'in those that had them; it said {found.breakdowns.total()} times such as "{line}".'
        )
    if found.broken:
        yield (
            f"{found.tool} broke down again, in {found.broken} process{'es' * (found.broken != 1)}, so not all of "
            "their launches were checked; with nothing else on the GPU, and fewer --jobs, it has more memory."
        )
