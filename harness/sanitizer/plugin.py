"""A pytest plugin for runs under compute-sanitizer: memory of exact sizes, and an end in time.

`-p harness.sanitizer.plugin --stop-at SECONDS`, in seconds since 1970. Leaves `sanitizer.json` in the run's folder.
"""

from __future__ import annotations

import json
import time

import pytest

FILE = "sanitizer.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of this plugin."""
    parser.addoption("--stop-at", type=float, default=float("inf"), help="begin no case after this time")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Every array an allocation of its own, of exactly its bytes."""
    from harness.device import memory

    memory.GUARD, memory.ALIGNMENT = 0, 1
    try:
        import cupy
    except ImportError:
        return  # the device says so in a sentence
    cupy.cuda.set_allocator(None)
    # A copy from device to device may be a kernel of the driver's, which initcheck does not see write.
    memory.copied = lambda array: cupy.asarray(array.get())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note how many cases there are to run."""
    folder = session.config.option.run_dir
    if folder is not None and folder.exists():
        (folder / FILE).write_text(json.dumps({"cases": len(session.items)}))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop once the time is over."""
    if nextitem is not None and time.time() > item.config.option.stop_at:
        item.session.shouldstop = "the time for this tool is over"
