"""A pytest plugin for runs under compute-sanitizer: allocations of exact sizes, cases left out, and a deadline.

`-p evidence.sanitizer.plugin --tool TOOL --stop-at SECONDS`, in seconds since 1970. Writes `sanitizer.json` to
the run's folder: the cases to run, and those left out.
"""

from __future__ import annotations

import json
import time

import pytest

from evidence.sanitizer.compute_sanitizer import reason
from harness.device import memory

FILE = "sanitizer.json"
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tool", default="", help="the tool of compute-sanitizer that this process runs under")
    parser.addoption("--stop-at", type=float, default=float("inf"), help="begin no case after this time")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Allocate every array separately, in its exact size."""
    memory.GUARD, memory.ALIGNMENT = 0, 1
    try:
        import cupy
    except ImportError:
        return  # the device reports the missing package
    cupy.cuda.set_allocator(None)
    # A device-to-device copy may be a kernel of the driver, whose writes initcheck does not see.
    memory.copied = lambda array: cupy.asarray(array.get())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if reason(config.option.tool, item.case)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT] = [item.case.id for item in left_out]


def pytest_collection_finish(session: pytest.Session) -> None:
    folder = session.config.option.run_dir
    if folder is not None and folder.exists():
        note = {"cases": [item.case.id for item in session.items], "left_out": session.config.stash[LEFT_OUT]}
        (folder / FILE).write_text(json.dumps(note))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and time.time() > item.config.option.stop_at:
        item.session.shouldstop = "the time for this tool is over"
