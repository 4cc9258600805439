"""A bench under pytest: the GPU clock inside pytest-benchmark, a line of progress for each case, and the files."""

from __future__ import annotations

import json
import shlex
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.fixtures import TopRequest

from harness.bench import roofline
from harness.bench.baseline import baseline_first
from harness.bench.bench import Bench
from harness.bench.gpu_timer import Clock, clock_of
from harness.bench.rounds import METHOD
from harness.contract.case import Case
from harness.device.device import Device
from harness.errors import DeviceUnavailable, LaunchError, StorageError, UsageError
from harness.files import write_text
from harness.ground.seconds import SECONDS
from harness.records.run_folder import BENCH_HEADER, EVENTS, Header, RunFiles, new_header, now, read_run
from harness.records.times import ONE_HOST_US
from harness.report import tables
from harness.runner.below_supervisor import without_settings
from harness.verdict import Result

_OLDEST_RECORDER = (5, 3)  # the first pytest-benchmark that writes its JSON to a path, as pyproject.toml says, too


def check_bench(config: pytest.Config, device: Device) -> None:
    """Raise DeviceUnavailable without a GPU, UsageError for options that would make times worthless."""
    if device.name != "cuda":
        raise DeviceUnavailable(f"--bench needs a GPU; device '{device.name}' verifies bytes and has no clock")
    if getattr(config.option, "dist", "no") != "no":
        raise UsageError("--bench runs in one process, because two would disturb each other's times; leave out -n")
    if not config.pluginmanager.hasplugin("benchmark"):
        raise UsageError("--bench needs pytest-benchmark as its recorder; leave out -p no:benchmark")
    import pytest_benchmark

    major, minor, *_ = pytest_benchmark.__version__.split(".")
    if (int(major), int(minor)) < _OLDEST_RECORDER:
        raise UsageError(
            f"--bench needs pytest-benchmark {'.'.join(map(str, _OLDEST_RECORDER))} or newer; "
            f"{pytest_benchmark.__version__}, which is installed, would fail at the end, when it writes benchmark.json"
        )


class BenchRun:
    """A plugin of a run with --bench; writes into the run's folder."""

    def __init__(self, config: pytest.Config, run_dir: Path, device: Device, bench: type[Bench]):
        """Open the clock and measure the copy roofline and the floors."""
        self.run_dir = run_dir
        self.clock = clock_of(device)
        self.identity = device.identity()
        self.header = self._header(config)
        self.began, self.timed, self._before = time.monotonic(), 0, dict(SECONDS.totals)
        gbps = roofline.copy_gbps(self.clock)  # first, because an idle GPU needs a while to reach its clock
        self._measure_floors()
        self._keep_roofline("start", gbps)
        self.flush_seconds = roofline.flush_seconds(self.clock)
        self.bench = bench(device, self.clock, gbps)
        self.bench.energy = config.option.energy
        _set_up_recorder(config, run_dir)

    def prepare(self, case: Case) -> None:
        """Prepare the opponents of a case."""
        self.bench.prepare(case)

    def time(self, item: pytest.Item, result: Result) -> Result:
        """Time a case that passed."""
        fixtures = []

        def record(target: Callable[[], None], setup: Callable[[], None], rounds: int) -> list[float]:
            fixture = recorder(item, self.clock)
            fixtures.append(fixture)
            fixture.pedantic(target, setup=setup, rounds=rounds)
            return list(fixture.stats.stats.data)

        timed = self.bench.time(item.case, result, record)
        self.timed += 1
        for fixture in fixtures:
            fixture.has_error = not timed.verdict.right  # keeps the case's time out of benchmark.json
            fixture.extra_info |= {key: value for key, value in timed.times.items() if key != "samples_us"}
            fixture.extra_info["case_id"] = timed.case_id
        return timed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Time the baseline of a shape before the cases that are compared with it."""
        cases = iter(
            sorted((item for item in items if hasattr(item, "case")), key=lambda item: baseline_first(item.case))
        )
        items[:] = [next(cases) if hasattr(item, "case") else item for item in items]

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Show the time of a case in the progress."""
        times = (getattr(report, "record", None) or {}).get("times")
        if not times:
            return None
        ratio = times["baseline_ratio"]
        against = f", {ratio:.2f}x baseline" if ratio else ""
        rate = f"{times['tflops']:,.1f} TFLOP/s" if "tflops" in times else f"{times['roofline_percent']:.0f} % of copy"
        return "passed", ".", f"{times['median_us']:,.1f} us, {rate}{against}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Name the GPU for `pytest-benchmark compare`."""
        machine_info["device"] = self.identity

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Measure the copy roofline again, to show whether the machine held its rate, and add up the seconds.

        Runs before other plugins finish: a failure in one would lose the closing value, and with it all times.
        """
        self.keep_seconds()
        try:
            self._keep_roofline("end", roofline.copy_gbps(self.clock))
        except LaunchError as error:
            # A kernel broke the CUDA context, so there is no closing value, and the gate will refuse the run.
            self.header["note"] = str(error)
            self._write_header()
        try:
            return (yield)
        except Exception:
            # Another plugin failed. pytest will end without a summary, but the times are there.
            with suppress(StorageError):
                self._write_tables()
            raise

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the tables of times, and print the main one."""
        if self.timed:
            terminalreporter.write_line(self._where_seconds_went())
        run = self._write_tables()
        if run.timed:
            terminalreporter.section("times")
            terminalreporter.write_line(tables.terminal_lines(run.header, run.timed))

    def _write_tables(self) -> RunFiles:
        """Write the tables of times if there are times; returns what was read from the run's folder."""
        run = read_run(self.run_dir)
        if run.timed:
            tables.write_bench(self.run_dir, run.header, run.records)
        return run

    def keep_seconds(self) -> None:
        """Add the seconds of this process to the header; a process that resumes the run adds its own."""
        wall = time.monotonic() - self.began
        spent = {kind: seconds - self._before[kind] for kind, seconds in SECONDS.totals.items()}
        # Flush time is also part of rounds and warm-up, which wait for flushes, so it is not subtracted from "other".
        spent |= {"other": max(0.0, wall - sum(spent.values())), "flush": self.clock.flushes * self.flush_seconds}
        spent |= {"all": wall, "cases": self.timed}
        before = self.header.get("seconds", {})
        self.header["seconds"] = {name: round(before.get(name, 0.0) + value, 3) for name, value in spent.items()}
        self._write_header()

    def _where_seconds_went(self) -> str:
        """Text such as `0.19 s a case: compile 3.1, inputs 0.8, ...`, over all processes of the run."""
        spent = dict(self.header["seconds"])
        wall, cases, flush = (spent.pop(name) for name in ("all", "cases", "flush"))
        parts = ", ".join(f"{name} {value:.1f}" for name, value in spent.items())
        return f"{wall / max(1, cases):.2f} s a case, {wall:.1f} for {cases:.0f}: {parts}; {flush:.1f} of it flushes"

    def _header(self, config: pytest.Config) -> Header:
        path = self.run_dir / BENCH_HEADER
        if path.exists():
            return read_run(self.run_dir).header
        command = shlex.join(["python", "-m", "pytest", *without_settings(config.invocation_params.args)])
        return new_header(command, self.identity, METHOD, self.clock.method)

    def _keep_roofline(self, point: str, gbps: float) -> None:
        self.header["roofline"].append({"point": point, "date": now(), "gbps": round(gbps, 1)})
        self._write_header()

    def _measure_floors(self) -> None:
        """Measure the floors. A resumed run keeps its own, and must be on a host where events take as long.

        Raises UsageError on another.
        """
        found, before = roofline.floors_us(self.clock), self.header["floors_us"]
        if EVENTS in before and round(abs(found[EVENTS] - before[EVENTS]), 3) > ONE_HOST_US:
            raise UsageError(
                f"{self.run_dir} cannot be resumed here: two events with nothing between them took "
                f"{before[EVENTS]:.2f} us where it began and take {found[EVENTS]:.2f} here, and every eager time holds "
                "them; resume it there, or start anew"
            )
        self.header["floors_us"] = before or found

    def _write_header(self) -> None:
        write_text(self.run_dir / BENCH_HEADER, json.dumps(self.header, indent=2) + "\n")


def recorder(item: pytest.Item, clock: Clock) -> Any:
    """Request pytest-benchmark's fixture with our clock, the way doctest items do, because a case is not a function."""
    item.add_marker(pytest.mark.benchmark(timer=clock, group=item.case.shape, disable_gc=True))
    item._fixtureinfo = item.session._fixturemanager.getfixtureinfo(node=item, func=None, cls=None)
    item.fixturenames, item.funcargs = item._fixtureinfo.names_closure, {}
    fixture = TopRequest(item, _ispytest=True).getfixturevalue("benchmark")
    if fixture.disabled:
        raise UsageError("pytest-benchmark is disabled, so nothing can be timed; leave out --benchmark-disable")
    return fixture


def _set_up_recorder(config: pytest.Config, run_dir: Path) -> None:
    # pytest-benchmark reads its options after every other plugin is configured.
    option = config.option
    if not option.benchmark_json:
        taken = len(list(run_dir.glob("benchmark*.json")))
        option.benchmark_json = run_dir / (f"benchmark-{taken + 1}.json" if taken else "benchmark.json")
    warnings.filterwarnings("ignore", "Not saving anything")  # our summary already says that no case passed
    option.benchmark_quiet = not option.benchmark_verbose
    option.verbose = option.verbose or 1
