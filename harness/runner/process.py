"""One process of a suite run: the device for its cases, and how it ends if it can run no other case.

The controller checks suites, keeps the journal and sums up. A worker of pytest-xdist (the controller itself without
`-n`) collects the same cases and runs them; records travel on the reports.
Only what was asked for is imported: a run of our kernels loads no subject, and one without times no timer.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import pytest

from harness.contract.case import Case
from harness.device.capability import gpu_count
from harness.device.device import Device
from harness.device.memory import KEPT
from harness.device.select import select as select_device
from harness.errors import UsageError
from harness.expected.expected import NUMPY_LARGEST, NUMPY_LARGEST_TIMED
from harness.expected.prepared import SOURCE
from harness.files import RECIPE_DIRS
from harness.ground.command_lines import is_card
from harness.ground.ending import interrupt_by_signals
from harness.ground.seconds import SECONDS, VERIFY
from harness.ground.strictness import strict
from harness.records import seal
from harness.records.records import Record
from harness.runner.below_supervisor import supervised
from harness.runner.cluster.connection import Cluster
from harness.runner.cluster.worker import Work, sealed_here, state_of
from harness.runner.guarding import continue_supervisor
from harness.runner.request import Request, named_suites
from harness.runner.run import Run, end_worker
from harness.runner.selection import Selection
from harness.verdict import Result
from harness.verify import isolation
from harness.verify.verify import Verifier, verify

if TYPE_CHECKING:
    from harness.bench.ahead import Ahead
    from harness.bench.bench import Bench
    from harness.runner.bench_plugin import BenchRun

KEPT_SHARE = 16  # 1/KEPT_SHARE of a GPU's memory holds what the modes of a case share

PROCESS = pytest.StashKey["Process"]()
UNDER_TEST = pytest.StashKey["UnderTest"]()


class UnderTest(NamedTuple):
    """bench: what times it, with --bench; end: ends a subject's process, and tells what it then showed, or nothing."""

    device: Device
    verify: Verifier
    bench: type[Bench] | None = None
    end: Callable[[], str] = str


class Process:
    """selection: the cases of the run; run, bench: set in the controller; done: records that a resumed run has."""

    def __init__(self, config: pytest.Config):
        """Check the suites and choose the cases. Raises UsageError."""
        option = config.option
        self.config = config
        request = requested(config).selected()
        self.selection = request.selection
        self.run: Run | None = None
        self.bench: BenchRun | None = None
        self.ahead: Ahead | None = None
        self.cluster: Cluster | None = None
        self.done: dict[str, Record] = {}
        self.asked = request.asked()
        self.watchdog = isolation.Watchdog(0 if option.usepdb or option.trace else option.case_timeout, self._too_late)

    def start(self) -> None:
        """Open the run or, in a worker, learn which cases are done."""
        if is_worker(self.config):
            self.done = json.loads(self.config.workerinput["harness_done"])
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a group may get it; the controller ends its workers
            return
        if supervised():
            interrupt_by_signals()
        option = self.config.option
        if option.energy and not option.bench:
            raise UsageError("--energy goes with --bench, which makes the graphs that it replays")
        if option.energy and option.subject:
            raise UsageError(
                "--energy is of our kernels: a subject's calls are queued by another process; leave it out"
            )
        if option.cluster:
            self._connect()
        self._prepare_ahead()
        subject = under_test(self.config, self.selection)
        device = subject.device
        if option.bench:
            from harness.runner.bench_plugin import BenchRun, check_bench

            check_bench(self.config, device)
        self.run = Run(self.config, self.selection, device, self.asked)
        self.done = self.run.resumed
        self.config.pluginmanager.register(self.run, "harness-run")
        if option.bench:
            if self.ahead:
                self.ahead.begin(device.targets[0], self.done)
                SOURCE.recent = 2
                KEPT.limit = device.memory // KEPT_SHARE
            self.bench = BenchRun(self.config, self.run.journal.path.parent, device, subject.bench)
            self.config.pluginmanager.register(self.bench, "harness-bench")
        if hasattr(option, "maxworkerrestart") and option.maxworkerrestart is None:
            option.maxworkerrestart = str(
                len(self.selection)
            )  # every case may end its worker, but none may end the run

    def result_of(self, item: pytest.Item) -> Result:
        """Verify the item's case and, with --bench, time it if it passed.

        Does not return if the process can run no other case.
        """
        case: Case = item.case
        if self.cluster:
            return self.cluster.result_of(case)
        device = under_test(self.config, self.selection).device
        try:
            return isolation.attempt(case, device, lambda: self._result_of(item))
        except isolation.GaveUp as last:
            self._give_up(last.result)
        finally:
            self._continue_supervisor()

    def _continue_supervisor(self) -> None:
        """Continue a supervisor that the subject has stopped, and say so where pytest does not keep it to itself."""
        if self.config.option.subject:
            capture = self.config.pluginmanager.getplugin("capturemanager")
            with capture.global_and_fixture_disabled() if capture else nullcontext():
                continue_supervisor()

    def _result_of(self, item: pytest.Item) -> Result:
        subject = under_test(self.config, self.selection)
        if self.bench:
            self.bench.prepare(item.case)
        with SECONDS.of(VERIFY):
            result = subject.verify(item.case, subject.device, NUMPY_LARGEST_TIMED if self.bench else NUMPY_LARGEST)
        if not result.verdict.right:
            KEPT.clear()
        if self.bench and result.verdict.right:
            result = self.bench.time(item, result)
        return result

    def _connect(self) -> None:
        """Have the workers of a cluster run the cases. Raises UsageError, DeviceUnavailable."""
        option = self.config.option
        for given, name, why in (
            (option.bench, "--bench", "times of several machines do not stand in one table"),
            (option.subject, "--subject", "a subject runs on the machine that it was loaded on"),
            (getattr(option, "numprocesses", None), "-n", "the cluster has its own processes"),
        ):
            if given:
                raise UsageError(f"--cluster does not go with {name}: {why}")
        sealed, cases = sealed_here(self.selection.paths), self.selection.by_id.values()
        work = Work(
            option.device, option.case_timeout, tuple(sorted(set(RECIPE_DIRS.values()))), self.selection.paths,
            state_of(sealed), seal.tensors(cases), strict(),
        )  # fmt: skip
        self.cluster = Cluster(option.cluster, work, sealed)
        self.config.add_cleanup(self.cluster.close)
        self.config.stash[UNDER_TEST] = UnderTest(self.cluster.device, verify)

    def _prepare_ahead(self) -> None:
        """Fork the processes that prepare the next cases of a bench of our kernels, while no GPU is in use here."""
        option = self.config.option
        if not option.bench or option.subject:
            return
        from harness.bench import ahead

        wanted = ahead.processes() if option.ahead is None else option.ahead
        if not wanted:
            return
        self.ahead = ahead.Ahead(self.selection.by_id.values(), wanted)
        self.config.add_cleanup(self._end_ahead)

    def _end_ahead(self) -> None:
        if self.ahead:
            self.ahead.close()
            KEPT.clear()
            KEPT.limit = 0

    def _too_late(self, case: Case, reason: str, detail: str) -> None:
        self._give_up(isolation.given_up(case, under_test(self.config, self.selection).device, reason, detail))

    def end_guest(self) -> str:
        """End the subject's process; a sentence if it then shows that a case was judged too early, or else nothing."""
        late = self.config.stash[UNDER_TEST].end() if UNDER_TEST in self.config.stash else ""
        self._continue_supervisor()
        return late

    def _give_up(self, result: Result) -> NoReturn:
        """End this process with the result of its case, and let another one go on with the next case."""
        self.end_guest()  # before the journal is digested
        if self.ahead:
            self.ahead.close()
        if self.run is None:
            end_worker(Path(self.config.workerinput["harness_run_dir"]), result.to_record())
        if self.bench:
            self.bench.keep_seconds()
        self.run.go_on(self.config, result.to_record())


def chosen(config: pytest.Config) -> Selection:
    """The cases that the command line selects. Raises UsageError."""
    return requested(config).selected().selection


def requested(config: pytest.Config) -> Request:
    """The request as pytest understood it."""
    return Request.of_options(config.option, config.args, config.invocation_params.dir, config.rootpath)


def suite_files(config: pytest.Config) -> list[Path]:
    """The suite files that the command line names, directly or by their folder."""
    return list(named_suites(config.args, config.invocation_params.dir)[0])


def under_test(config: pytest.Config, selection: Selection) -> UnderTest:
    """The kernels or subject and the device of this process; a worker uses the GPU that it was given."""
    if UNDER_TEST not in config.stash:
        name = config.option.subject
        chosen = _card if name and is_card(name) else _function if name else _ours
        config.stash[UNDER_TEST] = chosen(config, _device(config), selection)
    return config.stash[UNDER_TEST]


def _device(config: pytest.Config) -> Device:
    device = select_device(config.option.device, config.workerinput["harness_gpu"] if is_worker(config) else 0)
    if is_worker(config) and device.name == "cuda":
        device.processes = -(-config.workerinput["workercount"] // max(1, gpu_count()))
    return device


def _ours(config: pytest.Config, device: Device, selection: Selection) -> UnderTest:
    if not config.option.bench:
        return UnderTest(device, verify)
    from harness.bench.bench import Bench

    return UnderTest(device, verify, Bench)


def _card(config: pytest.Config, device: Device, selection: Selection) -> UnderTest:
    from harness.subjects.card.bench import CardBench
    from harness.subjects.card.card import read_card
    from harness.subjects.card.device import is_for, with_card
    from harness.subjects.card.verify import verify_card

    card = read_card(config.option.subject)
    if config.option.device == "auto" and device.name == "cuda" and not is_for(card, device):
        device = select_device("emulator")
    card.check(selection.by_id.values(), whole=config.option.shard == "1/1")
    return UnderTest(with_card(device, card), verify_card, CardBench)


def _function(config: pytest.Config, device: Device, selection: Selection) -> UnderTest:
    from harness.subjects.audit.bench import SubjectBench
    from harness.subjects.audit.verify import audit
    from harness.subjects.declared_flags import declared_flags
    from harness.subjects.device import with_subject
    from harness.subjects.process import Child
    from harness.subjects.subject import start

    name = config.option.subject
    found = with_subject(device, start(name, Child(name, config.option.case_timeout / 2), declared_flags(name)))
    found.refusals.freeze(selection.by_id.values())
    return UnderTest(found, audit, SubjectBench, found.end)


def is_worker(config: pytest.Config) -> bool:
    """Whether this is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")
