"""Run the tests of an area against one mutant of host code, in a copy of the tree, until one fails.

A test that also fails in the copy without the mistake, or passes there with it when it is run by itself, says nothing:
it is left out, and the others are run.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evidence.mutants.generated.host import HostMutant
from evidence.mutants.hunt import REFUSED, SAME_CODE, Catch
from harness.files import ROOT

LONGEST = 300  # seconds for the tests of a mutant
TESTS = "tests"  # in place of the set that caught it
_PATIENCE, _TIMES = 20, 5  # a test does not end if it takes so many seconds and so many times what it took without
_OPTIONS = ("-x", "-v", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider", "--tb=short", "-rfE")
_NO_COPY = shutil.ignore_patterns(".git", ".venv", "results", "*-pytest-*")
_FAILED = re.compile(r"^(tests/\S.*?)(?: <- \S+)? (?:FAILED|ERROR) +\[", re.MULTILINE)
_NOT_COLLECTED = re.compile(r"^ERROR (tests/\S+)", re.MULTILINE)
_STARTED = re.compile(r"^(tests/\S+::.*?)(?: <- \S+)? *$")
_ERROR = re.compile(r"^E +(\S.*)", re.MULTILINE)
_PASSED = re.compile(r"^tests/\S.* PASSED +\[", re.MULTILINE)


class _Ran(NamedTuple):
    """code: pytest's, None if it did not end in time; printed: by it; seconds: it took"""

    code: int | None
    printed: str
    seconds: float

    @property
    def clean(self) -> bool:
        return self.code in (0, 5)  # 5: every test is left out

    @property
    def test(self) -> str:
        """The test that failed or did not end, or the file that could not be collected; empty if none began."""
        found = _FAILED.search(self.printed) or _NOT_COLLECTED.search(self.printed)
        return found[1] if found else self.running

    @property
    def running(self) -> str:
        found = _STARTED.match(self.printed.rpartition("\n")[2])
        return found[1] if found else ""


def hunt(mutant: HostMutant, longest: int = LONGEST) -> Catch:
    """Run the tests, of which the mutant is caught by the first that fails. longest: seconds, for all of them"""
    started = time.perf_counter()
    try:
        if mutant.same_syntax():
            return Catch(mutant.name, discarded=SAME_CODE)
    except SyntaxError:
        return Catch(mutant.name, discarded=REFUSED)
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        found = _Tree(Path(folder), mutant).caught(time.monotonic() + longest)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = round(used.ru_utime + used.ru_stime, 1)
    return Catch(mutant.name, **found, seconds=round(time.perf_counter() - started, 1), cpu=cpu)


class _Tree:
    """A copy of the checkout with one mistake. folder: an empty one"""

    def __init__(self, folder: Path, mutant: HostMutant):
        self.folder, self.mutant, self.root = folder, mutant, folder / "tree"
        # With the times by which Python tells that bytecode is of its file: compiling anew would take seconds.
        shutil.copytree(ROOT, self.root, ignore=_NO_COPY, symlinks=True)
        (self.root / "results").symlink_to(ROOT / "results")
        self.file = self.root / "harness" / mutant.file

    def spoil(self) -> None:
        self.file.write_text(self.mutant.changed(), encoding="utf-8")

    def mend(self) -> None:
        shutil.copy2(ROOT / "harness" / self.mutant.file, self.file)

    def caught(self, deadline: float) -> dict[str, str | int]:
        """The fields of a `Catch` by which a test caught the mistake; its reason if none did."""
        self.spoil()
        module = f"harness.{self.mutant.file.removesuffix('.py').replace('/', '.')}"
        imported = self._python("-c", f"import {module}", seconds=60)
        if imported.code:
            return {"discarded": REFUSED, "reason": imported.printed.strip().rpartition("\n")[2]}
        left_out: list[str] = []
        tests = self.mutant.tests()
        while True:
            ran = self._tests(tests, left_out, deadline - time.monotonic())
            passed = len(_PASSED.findall(ran.printed))
            if ran.clean:
                return {"cases": passed, "reason": _red(left_out)}
            if ran.code is None:
                ends = self._ends(ran.test)
                late = f"no end of the tests within the time{_red(left_out)}"
                return {"cases": passed, "reason": late} if ends else self._catch(ran, "DOES NOT END", passed)
            self.mend()
            clean = self._tests([ran.test] if ran.test else tests, left_out, 240 + _PATIENCE).clean
            self.spoil()
            if clean and not (ran.test and self._tests([ran.test], (), 240).clean):
                return self._catch(ran, "FAILED" if ran.code == 1 else f"EXITS WITH {ran.code}", passed)
            if not ran.test or ran.test in left_out:
                return {"cases": passed, "reason": f"pytest ends with {ran.code} without the mistake, too"}
            left_out.append(ran.test)

    def _ends(self, test: str) -> bool:
        """Whether the test that ran when time was up ends after all. It is compared with the right tree."""
        if not test:
            return True
        self.mend()
        right = self._tests([test], (), 240)
        self.spoil()
        if not right.clean:
            return True
        return self._tests([test], (), _PATIENCE + _TIMES * right.seconds).code is not None

    def _catch(self, ran: _Ran, verdict: str, passed: int) -> dict[str, str | int]:
        error = _ERROR.search(ran.printed)
        reason = error[1].replace(str(self.folder), "")[:200] if error else ""
        named = re.match(r"[\w.]+(?=:)", reason)
        by = ran.test or "pytest itself"
        cause = named[0] if named else ""
        return {"by": by, "of_set": TESTS, "verdict": verdict, "reason": reason, "cause": cause, "cases": passed}

    def _tests(self, tests: Sequence[str], left_out: Sequence[str], seconds: float) -> _Ran:
        leave_out = [f"--deselect={test}" if "::" in test else f"--ignore={test}" for test in left_out]
        arguments = (*_OPTIONS, "--basetemp", str(self.folder / "t"), *leave_out, *tests)
        return self._python("-m", "pytest", *arguments, seconds=seconds)

    def _python(self, *arguments: str, seconds: float) -> _Ran:
        """Python in the copy, which ends in time with all that it started."""
        path = os.pathsep.join(filter(None, (str(self.root), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
        started = time.monotonic()
        with (self.folder / "printed").open("w+", encoding="utf-8", errors="replace") as out:
            process = subprocess.Popen(
                [sys.executable, "-B", *arguments], cwd=self.root, env=environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(max(seconds, 1))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            printed = (self.folder / "printed").read_text(encoding="utf-8", errors="replace")
        return _Ran(code, printed, time.monotonic() - started)


def _red(left_out: Sequence[str]) -> str:
    return f"; these fail without the mistake, too, or by chance: {', '.join(left_out)}" if left_out else ""
