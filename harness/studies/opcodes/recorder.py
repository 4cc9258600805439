"""A pytest plugin that notes which instructions the emulator executes in tests that are marked as covering them.

`-p harness.studies.opcodes.recorder --opcodes FILE`. A launch counts if it ends or traps, not if a sanitizer stops it,
and only in a test that passes.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.errors import LaunchError
from harness.emulator.machine.scheduler import Scheduler
from harness.files import write_text
from harness.studies.opcodes.instructions import plain

_executed: set[str] = set()
_found: dict[str, tuple[int, str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--opcodes", type=Path, help="write which test covers which instruction")


def pytest_configure(config: pytest.Config) -> None:
    run = Scheduler.run

    def recorded(scheduler: Scheduler) -> None:
        try:
            run(scheduler)
        except LaunchError:
            _executed.update(scheduler.tally.opcodes())
            raise
        _executed.update(scheduler.tally.opcodes())

    Scheduler.run = recorded
    config.add_cleanup(lambda: setattr(Scheduler, "run", run))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Note what a test covers and executes, once it has passed."""
    _executed.clear()
    yield
    names = {plain(name) for name in _executed}
    for name in names:
        if any(covers(mark.args, name) for mark in item.iter_markers("covers")):
            path, _, test = item.nodeid.partition("::")
            _found[name] = min(_found.get(name, (len(names) + 1, "")), (len(names), f"{Path(path).name}::{test}"))


def covers(prefixes: tuple[str, ...], name: str) -> bool:
    """Whether a marker covers this mnemonic: a prefix ends with a dot, or is all of it."""
    return any(name == prefix or (prefix.endswith(".") and name.startswith(prefix)) for prefix in prefixes)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.option.opcodes
    if path is not None:
        write_text(path, json.dumps({name: test for name, (_, test) in sorted(_found.items())}, indent=1))
