"""The console script `harness`, as `python -m harness` is."""

import signal

# While modules are loaded nothing is there to be ended well: Ctrl-C ends the process, without a traceback of imports.
_INTERRUPT = signal.getsignal(signal.SIGINT)
if _INTERRUPT is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from harness.cli import main  # noqa: E402

signal.signal(signal.SIGINT, _INTERRUPT)

if __name__ == "__main__":
    main()
