"""Cases that a tool cannot run, and why."""

from __future__ import annotations

from harness.contract.case import Case
from harness.suite.launch_plan import plan

# Tool → why it does not run cases that call a library, whose kernels are not patched; other tools do.
LIBRARY = {
    "initcheck": "what a library's kernels write, which gemm_epilogue reads, is no value to it; so it never sees "
    "gemm_decode and gemm_epilogue, which no other case launches",
    "racecheck": "it breaks down in a library's kernels; of ours, only gemm_decode and gemm_epilogue are launched by "
    "no other case, and they have no shared memory, which is all that it looks at",
}


def reason(tool: str, case: Case) -> str:
    """The reason why the tool does not run the case; empty if it does."""
    return LIBRARY.get(tool, "") if any(step.library for step in plan(case)) else ""
