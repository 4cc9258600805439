"""A pytest plugin for runs under compute-sanitizer: memory of exact sizes, cases left out, and an end in time.

`-p harness.studies.sanitizer.plugin --tool TOOL --stop-at SECONDS`, in seconds since 1970. Leaves `sanitizer.json` in
the run's folder: how many cases there were to run, and which were left out.
"""

from __future__ import annotations

import json
import time

import pytest

from harness.device import memory
from harness.studies.sanitizer.left_out import reason

FILE = "sanitizer.json"
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tool", default="", help="the tool of compute-sanitizer that this process runs under")
    parser.addoption("--stop-at", type=float, default=float("inf"), help="begin no case after this time")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Every array an allocation of its own, of exactly its bytes."""
    memory.GUARD, memory.ALIGNMENT = 0, 1
    try:
        import cupy
    except ImportError:
        return  # the device says so in a sentence
    cupy.cuda.set_allocator(None)
    # A copy from device to device may be a kernel of the driver's, which initcheck does not see write.
    memory.copied = lambda array: cupy.asarray(array.get())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that the tool does not run."""
    left_out = [item for item in items if reason(config.option.tool, item.case)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT] = [item.case.id for item in left_out]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note how many cases there are to run, and which are left out."""
    folder = session.config.option.run_dir
    if folder is not None and folder.exists():
        note = {"cases": len(session.items), "left_out": session.config.stash[LEFT_OUT]}
        (folder / FILE).write_text(json.dumps(note))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop once the time is over."""
    if nextitem is not None and time.time() > item.config.option.stop_at:
        item.session.shouldstop = "the time for this tool is over"
