"""Cases that a tool is not shown, each for a reason that the page tells and counts."""

from __future__ import annotations

from collections.abc import Iterable

from harness.contract.case import Case
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case

# Why a tool is not shown cases that call a library, whose kernels are not patched. Tools that are not here see them.
LIBRARY = {
    "initcheck": "what a library's kernels write, which gemm_epilogue reads, is no value to it; so it never sees "
    "gemm_decode and gemm_epilogue, which no other case launches",
    "racecheck": "it breaks down in a library's kernels; of ours, only gemm_decode and gemm_epilogue are launched by "
    "no other case, and they have no shared memory, which is all that it looks at",
}


def reason(tool: str, case: Case) -> str:
    """Why the tool is not shown the case; empty if it is."""
    return LIBRARY.get(tool, "") if any(step.library for step in plan(case)) else ""


def reasons(tool: str, case_ids: Iterable[str]) -> dict[str, str]:
    """Why each of these cases was left out; empty for one that the tool should have been shown."""
    return {case_id: reason(tool, find_case(case_id)) for case_id in case_ids}
