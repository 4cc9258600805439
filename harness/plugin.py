"""pytest is the runner: `suites/*.yaml` are collected, every case is one test, and its record goes to a journal.

A suite run exits with the codes of `harness.errors.Exit`; a run without suite files is left as pytest made it.
Everything here happens in one of two kinds of process. The controller checks suites, keeps the journal and sums up.
A worker (the controller itself without `-n`) collects the same cases and runs them; records travel on the reports.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from harness.bench.bench import Bench
from harness.contract.case import Case
from harness.device.device import Device
from harness.device.select import select as select_device
from harness.errors import DeviceUnavailable, Exit, HarnessError, StorageError
from harness.files import refused_storage, storage_error
from harness.runner import isolation
from harness.runner.bench_plugin import BenchRun, check_bench
from harness.runner.records import Record
from harness.runner.run import Run
from harness.runner.selection import Selection, select
from harness.subjects.audit.bench import SubjectBench
from harness.subjects.audit.verify import audit
from harness.subjects.device import with_subject
from harness.subjects.subject import load
from harness.verdict import Result, Verdict
from harness.verify.expected import NUMPY_LARGEST, NUMPY_LARGEST_TIMED
from harness.verify.verify import Verifier, verify

SELECTION = pytest.StashKey[Selection]()
RUN = pytest.StashKey[Run]()
BENCH = pytest.StashKey[BenchRun]()
UNDER_TEST = pytest.StashKey["UnderTest"]()
WATCHDOG = pytest.StashKey[isolation.Watchdog]()
DONE = pytest.StashKey[dict[str, Record]]()


class UnderTest(NamedTuple):
    """Our kernels or a subject on the device of this process, and what finds its verdicts and times."""

    device: Device
    verify: Verifier
    bench: type[Bench]


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
    group.addoption(
        "--case-timeout", type=_seconds, default=isolation.CASE_TIMEOUT, metavar="SECONDS",
        help=f"a case that takes longer is a LAUNCH_ERROR, and the run goes on ({isolation.CASE_TIMEOUT}; 0: for ever)",
    )  # fmt: skip


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
        if not option.collectonly:
            config.stash[DONE] = json.loads(config.workerinput["harness_done"]) if is_worker(config) else _start(config)
            patience = 0 if option.usepdb or option.trace else option.case_timeout
            config.stash[WATCHDOG] = isolation.Watchdog(patience, functools.partial(_too_late, config))
    except HarnessError as error:
        raise Refusal(error) from None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    """A selected suite is a file of cases."""
    selection = parent.config.stash.get(SELECTION, None)
    if selection is None or file_path.resolve() not in selection.cases:
        return None
    return SuiteFile.from_parent(parent, path=file_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Let the record, or the exit code of an error, travel with the report; pytest-xdist carries its attributes."""
    report = yield
    if isinstance(item, CaseItem):
        report.record = item.record if report.when == "call" else None
        report.resumed = item.resumed
        error = call.excinfo.value if call.excinfo else None
        report.error_code = int(error.exit_code) if isinstance(error, HarnessError) else None
        report.ends_run = str(error) if isinstance(error, DeviceUnavailable | StorageError) else ""
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a pytest-xdist worker where the run is kept, what is done, and which GPU is its own."""
    run = node.config.stash.get(RUN, None)
    if run is not None:
        # The journal has grown by the time a worker that replaces another one collects.
        node.workerinput["harness_done"] = json.dumps(run.resumed)
        node.workerinput["harness_run_dir"] = str(run.journal.path.parent.resolve())
        node.workerinput["harness_gpu"] = run.gpu_of(node.gateway.id, gpu_count())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto`: a worker for each GPU, none if there is one GPU; on the emulator pytest-xdist's own choice."""
    if not suite_files(config):
        return None
    try:
        if under_test(config).device.name != "cuda":
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
        self.record: Record | None = None
        self.resumed = False

    def runtest(self) -> None:
        """Verify the case, with --bench time it if it passed, and keep its record, whatever the verdict."""
        done = self.config.stash[DONE].get(self.case.id)
        self.resumed = done is not None
        if done is None:
            with self.config.stash[WATCHDOG].over(self.case):
                result = self._result()
            # Enums and tuples become what JSON knows, which is also what pytest-xdist can carry.
            self.record = json.loads(json.dumps(result.to_record()))
        else:
            result = Result.from_record(done)
        self.user_properties += [("verdict", str(result.verdict)), ("bytes_compared", result.bytes_compared)]
        if result.verdict is Verdict.EXCLUDED:
            raise pytest.skip.Exception(result.reason, _use_item_location=True)
        if not result.verdict.right:
            raise CaseFailedError(result.story)

    def _result(self) -> Result:
        """What verification and bench find; does not return if the process can run no other case."""
        device, verifier, _ = under_test(self.config)
        timed = BENCH in self.config.stash
        try:
            result = verifier(self.case, device, NUMPY_LARGEST_TIMED if timed else NUMPY_LARGEST)
            if timed and result.verdict.right:
                result = self.config.stash[BENCH].time(self, result)
        except HarnessError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and refused_storage(error):
                raise storage_error(error.filename or "a file", error) from None
            lost = device.lost()
            if not lost:
                raise
            _give_up(self.config, isolation.given_up(self.case, device, f"{lost}, after {error!r}"))
        if result.verdict is Verdict.LAUNCH_ERROR and device.lost():
            _give_up(self.config, json.loads(json.dumps(result.to_record())))
        if result.verdict is Verdict.OUT_OF_BOUNDS and device.name == "cuda":
            # Nobody knows what else of this process's memory it wrote over.
            _give_up(self.config, json.loads(json.dumps(result.to_record())))
        return result

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


def _start(config: pytest.Config) -> dict[str, Record]:
    """Open the run; the records of the cases that it has already."""
    device, _, bench_class = under_test(config)
    if config.option.bench:
        check_bench(config, device)
    run = config.stash[RUN] = Run.start(config, config.stash[SELECTION], device.identity())
    config.pluginmanager.register(run, "harness-run")
    if config.option.bench:
        bench = config.stash[BENCH] = BenchRun(config, run.journal.path.parent, device, bench_class)
        config.pluginmanager.register(bench, "harness-bench")
    if hasattr(config.option, "maxworkerrestart") and config.option.maxworkerrestart is None:
        # Every case may cost a worker, and none may cost the run.
        config.option.maxworkerrestart = str(len(run.selection))
    return run.resumed


def _too_late(config: pytest.Config, case: Case, reason: str, detail: str) -> None:
    _give_up(config, isolation.given_up(case, under_test(config).device, reason, detail))


def _give_up(config: pytest.Config, record: Record) -> NoReturn:
    """End this process, whose case this was, and have another go on with the next."""
    if is_worker(config):
        isolation.leave(Path(config.workerinput["harness_run_dir"]), record)
    config.stash[RUN].go_on(config, record)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= threading.TIMEOUT_MAX / 2:
        raise ValueError(text)
    return value


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


def under_test(config: pytest.Config) -> UnderTest:
    """What this process runs, chosen once; each worker has the GPU that it was given."""
    if UNDER_TEST not in config.stash:
        device = select_device(config.option.device, config.workerinput["harness_gpu"] if is_worker(config) else 0)
        name = config.option.subject
        config.stash[UNDER_TEST] = (
            UnderTest(with_subject(device, load(name)), audit, SubjectBench)
            if name
            else UnderTest(device, verify, Bench)
        )
    return config.stash[UNDER_TEST]


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
