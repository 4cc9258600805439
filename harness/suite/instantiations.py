"""Every instantiation of the kernels that the suites run, compiled in parallel without a GPU."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from harness.contract.case import Case, Flags
from harness.errors import CompileError, UsageError
from harness.jit.compile import Compiled, Examined, compile_kernel, examine, instantiation
from harness.jit.signature import Signature
from harness.suite.launch_plan import all_steps
from harness.suite.suite import load_suites
from harness.suite.suite_file import suite_path
from harness.text import nearest


@dataclass(frozen=True)
class Job:
    """One instantiation for one architecture."""

    signature: Signature
    flags: Flags
    arch: str

    def compile(self) -> Compiled:
        return compile_kernel(self.signature, self.flags, self.arch)


def instantiations(sets: Sequence[str], arches: Sequence[str], recipes: Sequence[str] = ()) -> list[Job]:
    """The instantiations that the named sets (or all) of some suites (or all) run, each once for each architecture."""
    jobs: dict[tuple[str, str], Job] = {}
    for case in _cases(sets, recipes):
        for step in all_steps(case):
            if step.library:
                continue
            expression = instantiation(step.signature, step.flags)
            for arch in arches:
                jobs.setdefault((expression, arch), Job(step.signature, step.flags, arch))
    return list(jobs.values())


def _cases(sets: Sequence[str], recipes: Sequence[str]) -> Iterable[Case]:
    """The cases of the sets that may differ in launches; input and mode are ignored, because they choose no kernel."""
    found: dict[tuple[Hashable, ...], Case] = {}
    suites = load_suites(map(suite_path, recipes) if recipes else None)
    known = dict.fromkeys(name for suite in suites for name in suite.known_sets)
    for name in sets:
        if name not in known:
            raise UsageError(f"no suite has a set '{name}'{nearest(name, known)}")
    for suite in suites:
        for name in sets or suite.sets:
            for case in suite.cases(name) if name in suite.known_sets else ():
                found.setdefault((case.recipe, case.flags, case.problem), case)
    return found.values()


def examine_or_say(job: Job) -> Examined | str:
    """The compiler's report on an instantiation, or the error's text."""
    try:
        return examine(job.signature, job.flags, job.arch)
    except CompileError as error:
        return str(error)
