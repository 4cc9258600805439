"""Cases that a tool does not run, each for a reason that the page gives."""

from __future__ import annotations

from collections.abc import Iterable

from harness.contract.case import Case
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case

# Why a tool does not run cases that call a library, whose kernels are not patched. Tools that are not here run them.
LIBRARY = {
    "initcheck": "what a library's kernels write, which gemm_epilogue reads, is no value to it; so it never sees "
    "gemm_decode and gemm_epilogue, which no other case launches",
    "racecheck": "it breaks down in a library's kernels; of ours, only gemm_decode and gemm_epilogue are launched by "
    "no other case, and they have no shared memory, which is all that it looks at",
}


def reason(tool: str, case: Case) -> str:
    """The reason why the tool does not run the case; empty if it does."""
    return LIBRARY.get(tool, "") if any(step.library for step in plan(case)) else ""


def reasons(tool: str, case_ids: Iterable[str]) -> dict[str, str]:
    """The reason why each of these cases was left out; empty for one that the tool should have run."""
    return {case_id: reason(tool, find_case(case_id)) for case_id in case_ids}
