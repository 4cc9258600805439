"""A pytest plugin that notes which instructions the emulator executes in tests that are marked as covering them.

`-p evidence.opcodes.recorder --opcodes FILE`. A launch counts if it ends or traps, not if a sanitizer stops it,
and only in a test that passes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from evidence.opcodes.instructions import plain
from harness.files import write_text
from ptx_emulator.errors import LaunchError
from ptx_emulator.machine.scheduler import Scheduler

_found: dict[str, tuple[int, str]] = {}


class Executed(set[str]):
    """Mnemonics that the emulator executed, as the kernels spell them."""

    def names(self) -> set[str]:
        return {plain(name) for name in self}

    def covered_by(self, item: pytest.Item) -> set[str]:
        """The names that a marker of the test covers."""
        marks = list(item.iter_markers("covers"))
        return {name for name in self.names() if any(covers(mark.args, name) for mark in marks)}


def noted(replace: Callable[[type, str, object], None]) -> Executed:
    """A set to which every later launch adds the instructions that it executes.

    replace: sets an attribute of a class, as `setattr` does; `monkeypatch.setattr` also takes it back after the test
    """
    executed, run = Executed(), Scheduler.run

    def recorded(scheduler: Scheduler) -> bool:
        try:
            ended = run(scheduler)
        except LaunchError:
            executed.update(scheduler.tally.opcodes())
            raise
        executed.update(scheduler.tally.opcodes())
        return ended

    replace(Scheduler, "run", recorded)
    return executed


def name_of(item: pytest.Item) -> str:
    """A test's short name, such as `test_memory.py::test_loads[u32]`."""
    path, _, test = item.nodeid.partition("::")
    return f"{Path(path).name}::{test}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--opcodes", type=Path, help="write which test covers which instruction")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Note what a test covers and executes, once it has passed."""
    with pytest.MonkeyPatch.context() as patch:
        executed = noted(patch.setattr)
        yield
    count = len(executed.names())
    for name in executed.covered_by(item):
        _found[name] = min(_found.get(name, (count + 1, "")), (count, name_of(item)))


def covers(prefixes: tuple[str, ...], name: str) -> bool:
    """Whether a marker covers this mnemonic: as a prefix that ends at a dot, or as the whole name."""
    return any(name == prefix or (prefix.endswith(".") and name.startswith(prefix)) for prefix in prefixes)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.option.opcodes
    if path is not None:
        write_text(path, json.dumps({name: test for name, (_, test) in sorted(_found.items())}, indent=1))
