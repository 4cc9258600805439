"""Run the console script `harness` as `python -m harness`.

Older Pythons must be able to read this file and `harness/__init__.py`, to be told that they are too old.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    found = ".".join(map(str, sys.version_info[:2]))
    print(f"error: the harness needs Python 3.11 or newer, and {sys.executable} is {found}", file=sys.stderr)
    sys.exit(64)  # `Exit.USAGE`, which such a Python cannot import

import os
import signal

# Nothing needs to be cleaned up while modules load, so Ctrl-C ends the process without a traceback of imports.
_INTERRUPT = signal.getsignal(signal.SIGINT)
if _INTERRUPT is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    os.getcwd()  # noqa: PTH109 - pathlib is not loaded yet
except OSError as error:
    print(f"error: the current folder: {error.strerror}; change to one that exists", file=sys.stderr)
    sys.exit(64)  # `Exit.USAGE`
# `-m` puts the current folder first; last, a file there such as `random.py` hides no module of that name.
if __name__ == "__main__" and sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib would be loaded from there
    sys.path.append(sys.path.pop(0))

from harness.errors import Exit  # noqa: E402

try:
    from harness.cli import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "harness":
        raise
    print(
        f"error: {sys.executable} lacks {error.name}; install the harness into it, or use one that has it",
        file=sys.stderr,
    )
    sys.exit(Exit.USAGE)

signal.signal(signal.SIGINT, _INTERRUPT)

if __name__ == "__main__":
    main()
