"""pytest is the runner: `suites/*.yaml` are collected, every case is one test, and its record goes to a journal.

A suite run exits with the codes of `harness.errors.Exit`; a run without suite files is left as pytest made it.
Everything here happens in one of two kinds of process. The controller checks suites, keeps the journal and sums up.
A worker (the controller itself without `-n`) collects the same cases and runs them; records travel on the reports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.case import Case
from harness.device import Device
from harness.errors import Exit, HarnessError
from harness.runner.bench_plugin import BenchRun, check_bench
from harness.runner.run import Run
from harness.runner.selection import Selection, select
from harness.verdict import Verdict

SELECTION = pytest.StashKey[Selection]()
RUN = pytest.StashKey[Run]()
BENCH = pytest.StashKey[BenchRun]()
DEVICE = pytest.StashKey[Device]()


class Refusal(pytest.UsageError):
    """Ends pytest before its first line of output, with one sentence and an exit code."""

    def __init__(self, error: HarnessError):
        super().__init__(str(error))
        self.exit_code = Exit(error.exit_code)


class CaseFailedError(Exception):
    """A case whose verdict is red; its text is all that is shown."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a suite run."""
    group = parser.getgroup("nvfp4", "NVFP4 suites: pytest suites[/S.yaml]")
    group.addoption("--set", metavar="NAME", help="set of cases: smoke, full, bench, ... (smoke; bench with --bench)")
    group.addoption("--case", action="append", default=[], metavar="ID", help="only this case, even if no set holds it")
    group.addoption("--shard", default="1/1", metavar="I/N", help="only part I of N parts of like cost")
    group.addoption("--device", default="auto", choices=("auto", "emulator", "cuda"), help="where kernels run (auto)")
    group.addoption("--subject", metavar="NAME", help="run this in place of our kernels: a subject, or module:function")
    group.addoption("--bench", action="store_true", help="time every case that passes; needs a GPU")
    group.addoption("--run-dir", type=Path, metavar="DIR", help="where records and reports go (results/runs/<UTC>)")
    group.addoption("--resume", action="store_true", help="go on with the run in --run-dir, or with the newest one")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Give a suite run its exit code, whichever way pytest left it."""
    if is_worker(config) or not suite_files(config):
        return (yield)
    try:
        status = yield
    except pytest.UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", Exit.USAGE)
    run = config.stash.get(RUN, None)
    if run is None:
        return status
    code, sentence = run.outcome(status)
    if sentence:
        print(f"error: {sentence}", file=sys.stderr)
    return code


def pytest_configure(config: pytest.Config) -> None:
    """Check the suites before pytest collects anything, so that what is wrong is said in one sentence."""
    paths = suite_files(config)
    if not paths or config.option.help or config.option.version:
        return
    option = config.option
    try:
        set_name = option.set or ("bench" if option.bench else "smoke")
        config.stash[SELECTION] = select(paths, set_name, option.case, option.shard)
        if not is_worker(config) and not option.collectonly:
            _start(config)
    except HarnessError as error:
        raise Refusal(error) from None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    """A selected suite is a file of cases."""
    selection = parent.config.stash.get(SELECTION, None)
    if selection is None or file_path.resolve() not in selection.cases:
        return None
    return SuiteFile.from_parent(parent, path=file_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases a resumed run has done."""
    # A worker is told, because the journal has grown by the time a worker that replaces a crashed one collects.
    run = config.stash.get(RUN, None)
    done = set(config.workerinput.get("harness_done", ()) if is_worker(config) else run.resumed if run else ())
    again = [item for item in items if isinstance(item, CaseItem) and item.case.id in done]
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item not in again]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Let the record, or the exit code of an error, travel with the report; pytest-xdist carries its attributes."""
    report = yield
    if isinstance(item, CaseItem):
        report.record = item.record if report.when == "call" else None
        error = call.excinfo.value if call.excinfo else None
        report.error_code = int(error.exit_code) if isinstance(error, HarnessError) else None
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a pytest-xdist worker which cases are done."""
    if RUN in node.config.stash:
        node.workerinput["harness_done"] = sorted(node.config.stash[RUN].resumed)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto`: a worker for each GPU, none if there is one GPU; on the emulator pytest-xdist's own choice."""
    if not suite_files(config):
        return None
    try:
        if open_device(config).name != "cuda":
            return None
    except HarnessError:
        return 0  # pytest_configure meets the same error and says it
    return gpu_count() if gpu_count() > 1 else 0


class SuiteFile(pytest.File):
    """A suite as pytest sees it."""

    def collect(self) -> Iterator[CaseItem]:
        """One item per selected case."""
        for case in self.config.stash[SELECTION].cases[self.path.resolve()]:
            yield CaseItem.from_parent(self, name=case.id, case=case)


class CaseItem(pytest.Item):
    """One case; its name is the case id."""

    def __init__(self, *, case: Case, **rest: Any):
        super().__init__(**rest)
        self.case = case
        self.record: dict[str, Any] | None = None

    def runtest(self) -> None:
        """Verify the case, with --bench time it if it passed, and keep its record, whatever the verdict."""
        from harness import verify
        from harness.expectation import NUMPY_LARGEST, NUMPY_LARGEST_TIMED

        timed = BENCH in self.config.stash
        largest = NUMPY_LARGEST_TIMED if timed else NUMPY_LARGEST
        result = verify.verify(self.case, open_device(self.config), largest)
        if timed and result.verdict.right:
            result = self.config.stash[BENCH].time(self, result)
        # Enums and tuples become what JSON knows, which is also what pytest-xdist can carry.
        self.record = json.loads(json.dumps(result.to_record()))
        self.user_properties += [("verdict", str(result.verdict)), ("bytes_compared", result.bytes_compared)]
        if result.verdict is Verdict.EXCLUDED:
            raise pytest.skip.Exception(result.reason, _use_item_location=True)
        if not result.verdict.right:
            raise CaseFailedError(result.story)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The story of a mismatch, the sentence of a harness error; a traceback for anything nobody meant to raise.

        With the command that reproduces it at the end, as the story has already.
        """
        if isinstance(excinfo.value, CaseFailedError):
            return str(excinfo.value)
        told = excinfo.value if isinstance(excinfo.value, HarnessError) else super().repr_failure(excinfo, style)
        return f"{told}\nreproduce make verify CASE='{self.case.id}'"

    def reportinfo(self) -> tuple[Path, int, str]:
        """The line of the set that made the case."""
        line = self.case.where.rpartition(":")[2]
        return self.path, int(line) - 1 if line else 0, self.name


def _start(config: pytest.Config) -> None:
    device = open_device(config)
    if config.option.bench:
        check_bench(config, device)
    run = config.stash[RUN] = Run.start(config, config.stash[SELECTION], device.identity())
    config.pluginmanager.register(run, "harness-run")
    if config.option.bench:
        bench = config.stash[BENCH] = BenchRun(config, run.journal.path.parent, device)
        config.pluginmanager.register(bench, "harness-bench")


def suite_files(config: pytest.Config) -> list[Path]:
    """The suites that the command line names, directly or by their folder."""
    found: dict[Path, None] = {}
    for argument in config.args:
        path = Path(config.invocation_params.dir, argument.partition("::")[0]).resolve()
        if path.is_dir():
            folder = path if path.name == "suites" else path / "suites"
            found |= dict.fromkeys(sorted(folder.glob("*.yaml")))
        elif path.suffix == ".yaml" and path.parent.name == "suites":
            found[path] = None
    return list(found)


def is_worker(config: pytest.Config) -> bool:
    """Whether this is a pytest-xdist worker process."""
    return hasattr(config, "workerinput")


def worker_index(config: pytest.Config) -> int:
    """N of pytest-xdist worker gwN; 0 without workers."""
    return int(config.workerinput["workerid"].removeprefix("gw")) if is_worker(config) else 0


def open_device(config: pytest.Config) -> Device:
    """The device of this process, made once; worker gwN gets GPU N, counted round."""
    if DEVICE not in config.stash:
        from harness import device

        index = worker_index(config)
        found = device.select(config.option.device, index and index % max(gpu_count(), 1))
        if config.option.subject:
            from harness import subjects
            from harness.device.subject import with_subject

            found = with_subject(found, subjects.load(config.option.subject))
        config.stash[DEVICE] = found
    return config.stash[DEVICE]


def gpu_count() -> int:
    """How many GPUs CUDA sees; 0 without CuPy."""
    try:
        import cupy
    except ImportError:
        return 0
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0
