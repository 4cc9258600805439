"""pytest's hooks for suites: `suites/*.yaml` are collected, and every case is one test with a record in a journal.

A suite run exits with the codes of `harness.errors.Exit`; any other run is left as pytest made it. `harness.plugin`
registers this module where suites may run.
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.device.capability import gpu_count
from harness.device.select import NAMES
from harness.errors import DeviceUnavailable, Exit, HarnessError, StorageError, UsageError
from harness.runner import resume_command
from harness.runner.below_supervisor import process_exit_code, supervised
from harness.runner.case_item import CaseItem, Stealing, SuiteFile, loop, spread
from harness.runner.process import PROCESS, Process, chosen, is_worker, suite_files
from harness.suite.suite import load_suite
from harness.text import nearest

_SETTLED = pytest.StashKey[bool]()
_ALLOCATIONS = 10_000  # between two garbage collections; with Python's 700 they take a tenth of a run


class Refusal(pytest.UsageError):
    """Ends pytest before its first line of output, with one sentence and an exit code."""

    def __init__(self, error: HarnessError):
        super().__init__(str(error))
        self.exit_code = Exit(error.exit_code)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Give a suite run its exit code, however pytest ended."""
    if is_worker(config) or not suite_files(config):
        return (yield)
    try:
        status = yield
    except pytest.UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return process_exit_code(getattr(error, "exit_code", Exit.USAGE))
    except KeyboardInterrupt:  # after the loop over cases; inside the loop pytest handles it
        return process_exit_code(Exit.INTERRUPTED)
    process = config.stash.get(PROCESS, None)
    if process is None or process.run is None:
        return status or Exit.USAGE  # --help or --collect-only, which compare nothing
    code, sentence = process.run.outcome(status)
    if sentence and not supervised():
        print(f"error: {sentence}", file=sys.stderr)
    if not supervised():
        print(resume_command.gate(config.invocation_params.args, config.invocation_params.dir), file=sys.stderr)
    return process_exit_code(code)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """With `-n auto`, start only as many processes as have enough work to pay for their start; 0 is this one alone."""
    found = yield
    if suite_files(config):
        with suppress(HarnessError):  # `pytest_configure` reports the error
            worth = chosen(config).worth_processes
            return min(found, worth) if worth > 1 else 0
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Check the suites before pytest collects anything, so that an error in them is one sentence."""
    if not suite_files(config) or config.option.help or config.option.version:
        return
    if config.inipath == Path(os.devnull):
        config._inipath = None  # pytest's header would list it as a file of settings
    try:
        config.option.case_timeout = _seconds(config.option.case_timeout)
        for name in ("subject", "cluster", "set"):
            if getattr(config.option, name) == "":  # from an unset variable; ours alone would then be green
                raise UsageError(f"--{name} is empty; name one, or leave --{name} out")
        if config.option.device not in NAMES:
            raise UsageError(f"there is no device '{config.option.device}'{nearest(config.option.device, NAMES)}")
        process = config.stash[PROCESS] = Process(config)
        _leave_out_hypothesis(config)
        config.option.force_short_summary = True  # with CI set, pytest would print every story twice
        if not config.option.collectonly:
            process.start()
    except HarnessError as error:
        raise Refusal(error) from None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say where the cases of a cluster run."""
    process = config.stash.get(PROCESS, None)
    return f"cluster {process.cluster}" if process is not None and process.cluster is not None else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have recipes come before the pipelines that are made of them, and spread the largest cases over the workers."""
    if PROCESS not in config.stash:
        return
    pipelines = {item.path for item in items if isinstance(item, CaseItem) and load_suite(item.path).file.pipeline}
    items.sort(key=lambda item: item.path in pipelines)
    if is_worker(config):
        workers = config.workerinput["workercount"]
        items[:] = spread(items, lambda item: item.case.elements if isinstance(item, CaseItem) else 0, workers)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze the objects that exist now, so that the garbage collector does not scan all of them again and again."""
    if PROCESS in session.config.stash:
        gc.freeze()
        gc.set_threshold(_ALLOCATIONS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With --cluster, cases run elsewhere, and are reported here as they are done."""
    process = session.config.stash.get(PROCESS, None)
    if process is None or process.cluster is None or session.testsfailed:
        return None
    loop(session, process)
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Freeze again after the first compared case, which loads torch and Numba."""
    if isinstance(item, CaseItem) and "torch" in sys.modules and not item.config.stash.get(_SETTLED, False):
        item.config.stash[_SETTLED] = True
        gc.collect()  # so that no memory of this case is frozen
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End a subject's process and tell what it wrote late. Freeze all objects, because pytest collects repeatedly."""
    if PROCESS in session.config.stash:
        process = session.config.stash[PROCESS]
        late = process.end_guest()
        if is_worker(session.config):
            session.config.workeroutput["harness_late"] = late
        elif process.run is not None:
            process.run.fail(late)
        gc.freeze()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    process = parent.config.stash.get(PROCESS, None)
    if process is None or file_path.resolve() not in process.selection.cases:
        return None
    return SuiteFile.from_parent(parent, path=file_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Put the record, or the exit code of an error, on the report; pytest-xdist carries its attributes."""
    report = yield
    if isinstance(item, CaseItem):
        report.record = item.record if report.when == "call" else None
        report.resumed = item.resumed
        error = call.excinfo.value if call.excinfo else None
        report.error_code = int(error.exit_code) if isinstance(error, HarnessError) else None
        report.ends_run = str(error) if isinstance(error, DeviceUnavailable | StorageError) else ""
        if report.ends_run and is_worker(item.config):
            # Stop at once: the controller will learn of it later, and the next case's result on a lost GPU would be
            # worthless.
            item.session.shouldstop = report.ends_run
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Start workers as the supervisor starts this process: files of the current folder hide no module of theirs."""
    for spec in specs:
        if PROCESS in config.stash and sys.flags.safe_path and spec.popen and not spec.python:
            spec.python = f"{shlex.quote(sys.executable)} -P"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker the run's folder, the records that are there, and a GPU of its own."""
    process = node.config.stash.get(PROCESS, None)
    if process is not None and process.run is not None:
        # Not the journal itself, which has grown by the time a worker replaces another one.
        node.workerinput["harness_done"] = json.dumps(process.run.resumed)
        node.workerinput["harness_run_dir"] = str(process.run.journal.path.parent.resolve())
        node.workerinput["harness_gpu"] = process.run.gpu_of(node.gateway.id, gpu_count())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Stealing | None:
    """Give each worker a part of its own and let it steal from others at the end, unless --dist sets another mode.

    Neighbouring cases share a kernel, or as eager and graph their data, which a process keeps decoded or computed.
    """
    return Stealing(config, log) if config.option.dist == "load" and PROCESS in config.stash else None


def _leave_out_hypothesis(config: pytest.Config) -> None:
    """Unregister Hypothesis's plugin if only suites are named: it would load Hypothesis just for its summary."""
    named = [Path(argument.partition("::")[0]) for argument in config.args]
    plugin = config.pluginmanager.get_plugin("hypothesispytest")
    if plugin is not None and all(path.suffix == ".yaml" or path.name == "suites" for path in named):
        config.pluginmanager.unregister(plugin)


def _seconds(text: str | float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= threading.TIMEOUT_MAX / 2:
        raise UsageError(f"--case-timeout '{text}' is no number of seconds; give one, as in 60, or 0 for no limit")
    return value
