"""`--forks N`: tests in N processes that are forked when all tests are collected.

Each worker of pytest-xdist imports and collects fourteen thousand tests for itself, half a minute of a core.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe, wait

import pytest
import torch

from harness.ground.ending import end_with_parent

MOST = 40  # tests of one file that a process takes at a time


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run tests in N forked processes (0: in this)")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.forks:
        torch.set_num_threads(1)  # a forked process waits for ever for the threads that its parent had


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.option.forks or session.config.option.collectonly or session.testsfailed:
        return None
    forks = Forks(session)
    try:
        forks.run(session.config.option.forks)
    finally:
        forks.end()
    return True


class Forks:
    """The processes of a session, which take parts of its tests in order, and the pipes by which they tell results."""

    def __init__(self, session: pytest.Session):
        self.session, self.config = session, session.config
        self.parts = list(_parts(session.items))
        self.next = get_context("fork").Value("i", 0)
        self.folder = self.config._tmp_path_factory.getbasetemp()
        self.begun = self.ended = 0
        self.running: dict[Connection, tuple[int, list[tuple[str, tuple]]]] = {}  # process, and the test it is at

    def run(self, count: int) -> None:
        for _ in range(min(count, len(self.parts))):
            self._fork()
        while self.running:
            for pipe in wait(list(self.running)):
                self._hear(pipe)
            self._end_early()
        left = len(self.session.items) - self.ended
        if left:  # a process had taken them when it died
            self.session.shouldfail = f"{left} tests were not run"
        self._end_early()

    def _end_early(self) -> None:
        if self.session.shouldfail:  # which the terminal shows
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def end(self) -> None:
        for pid, _ in self.running.values():
            os.kill(pid, 9)
            os.waitpid(pid, 0)

    def _fork(self) -> None:
        here, there = Pipe(duplex=False)
        parent, self.begun = os.getpid(), self.begun + 1
        pid = os.fork()
        if not pid:
            try:
                end_with_parent(parent)
                here.close()
                self._work(there)
            except BaseException:
                there.send(("broke", traceback.format_exc()))
            os._exit(1)
        there.close()
        self.running[here] = pid, []

    def _hear(self, pipe: Connection) -> None:
        """Report what a process tells. The test at which one died has failed, and another process goes on."""
        pid, at = self.running[pipe]
        try:
            told, *what = pipe.recv()
        except EOFError:
            del self.running[pipe]
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if at:
                text = f"the process of this test ended with {code}"
                self._report(pytest.TestReport(*at[0], {}, "failed", text, "call"))
                self.ended += 1
            if code:
                self._fork()
            return
        if told == "broke":
            self.session.shouldfail = what[0]
            return
        if told == "start":
            at[:] = [tuple(what)]
            self.config.hook.pytest_runtest_logstart(nodeid=what[0], location=what[1])
        elif told == "end":
            at.clear()
            self.ended += 1
            self.config.hook.pytest_runtest_logfinish(nodeid=what[0], location=what[1])
        else:
            self._report(self.config.hook.pytest_report_from_serializable(config=self.config, data=what[0]))

    def _report(self, report: pytest.TestReport) -> None:
        self.config.hook.pytest_runtest_logreport(report=report)

    def _work(self, pipe: Connection) -> None:
        """What a forked process does, until no part is left."""
        plugins = self.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(_Tells(self.config, pipe))
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()  # its file is shared with all other processes
        capture.start_global_capturing()
        own = self.folder / f"forked{self.begun}"
        own.mkdir()
        self.config._tmp_path_factory._basetemp = own
        items = self._taken()
        item = next(items, None)
        while item:
            following = next(items, None)
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        pipe.close()
        os._exit(0)

    def _taken(self) -> Iterator[pytest.Item]:
        while True:
            with self.next:
                number, self.next.value = self.next.value, self.next.value + 1
            if number >= len(self.parts):
                return
            yield from self.parts[number]


class _Tells:
    """Sends what a terminal would show."""

    def __init__(self, config: pytest.Config, pipe: Connection):
        self.config, self.pipe = config, pipe

    def pytest_runtest_logstart(self, nodeid: str, location: tuple) -> None:
        self.pipe.send(("start", nodeid, location))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple) -> None:
        self.pipe.send(("end", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.pipe.send(("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report)))


def _parts(items: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """Tests in order, in parts of one file; pages come first and alone, because each takes up to a minute."""
    pages, others = [], []
    for item in items:
        (pages if item.get_closest_marker("page") else others).append(item)
    yield from ([page] for page in pages)
    for _, of_file in groupby(others, key=lambda item: item.path):
        tests = list(of_file)
        yield from (tests[at : at + MOST] for at in range(0, len(tests), MOST))
