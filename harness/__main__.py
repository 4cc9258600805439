"""Run the console script `harness` as `python -m harness`."""

import signal
import sys

# Nothing needs to be cleaned up while modules load, so Ctrl-C ends the process without a traceback of imports.
_INTERRUPT = signal.getsignal(signal.SIGINT)
if _INTERRUPT is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

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
