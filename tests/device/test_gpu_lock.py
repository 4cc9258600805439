"""The lock of a GPU: by its UUID, and open to every user."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import Timeout
from processes import LONGEST

from harness.device.gpu_account import gpu_lock
from harness.files import ROOT

ONE, OTHER = bytes(range(16)), bytes(16)
TRY = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from filelock import Timeout
from harness.device.gpu_account import gpu_lock
lock = gpu_lock(bytes(range(16)), Path(sys.argv[2]))
if os.getuid() == 0:
    os.setuid(65534)
try:
    lock.acquire(timeout=0.1)
except Timeout:
    sys.exit(3)
"""


def another_process(folder: Path) -> int:
    """0 if it gets the lock, 3 if it would wait; as another user where this one may become one."""
    return subprocess.run([sys.executable, "-c", TRY, str(ROOT), str(folder)], timeout=LONGEST).returncode


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Like /tmp, which every user may write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def test_a_gpu_is_locked_for_all_users_whatever_its_number(open_folder: Path):
    mask = os.umask(0o077)
    try:
        with gpu_lock(ONE, open_folder):
            assert another_process(open_folder) == 3
            with pytest.raises(Timeout):
                gpu_lock(ONE, open_folder).acquire(timeout=0)
            gpu_lock(OTHER, open_folder).acquire(timeout=0)
    finally:
        os.umask(mask)
    assert another_process(open_folder) == 0
    assert {path.stat().st_mode & 0o777 for path in open_folder.iterdir()} == {0o666}
