"""Everything that can go wrong, and the exit code each ends in.

HarnessError
├── UsageError            64  the command line or a file the user wrote is wrong
│   ├── SuiteError        64  … a suite: names file, line and the nearest valid choice
│   ├── InputError        64  … a tensor file or an input name
│   └── StorageError      64  … a folder or a disk that takes no more results
├── DeviceUnavailable      4  the device that was asked for is not there
├── NoBaseline             5  there is nothing to compare a time with
├── CaseError                 costs one case its verdict, never the run
│   ├── CompileError       1  COMPILE_ERROR
│   ├── LaunchError        1  LAUNCH_ERROR
│   │   └── AccessError    1  OUT_OF_BOUNDS, UNWRITTEN or LAUNCH_ERROR, by kind
│   └── NotCapable         0  EXCLUDED(capability): this device cannot run this case
└── ContractError             an API call that a recipe refuses: wrong granularity, size, flag
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Process exit codes; the most serious state of a run wins, in the order of `SEVERITY`."""

    CLEAN = 0
    BYTES_DIFFER = 1
    SLOWER = 2
    NOISY = 3
    NO_DEVICE = 4
    NO_BASELINE = 5
    USAGE = 64
    INTERRUPTED = 130


SEVERITY = (
    Exit.USAGE,
    Exit.INTERRUPTED,
    Exit.BYTES_DIFFER,
    Exit.NO_DEVICE,
    Exit.SLOWER,
    Exit.NO_BASELINE,
    Exit.NOISY,
    Exit.CLEAN,
)


class HarnessError(Exception):
    """Base of every error the harness raises on purpose; its text is one sentence for a person."""

    exit_code = Exit.USAGE


class UsageError(HarnessError):
    """The command line, or a file the user wrote, asks for something that does not exist."""


class SuiteError(UsageError):
    """A suite is wrong. `where` is `file:line`, and the sentence names the nearest valid choice."""

    def __init__(self, where: str, sentence: str):
        super().__init__(f"{where}: {sentence}")
        self.where = where
        self.sentence = sentence


class InputError(UsageError):
    """An input distribution or tensor file cannot give the tensor a case asks for."""


class StorageError(UsageError):
    """A folder or a disk takes no more: of results, or of compiled kernels. A run ends, and what it holds is kept."""


class DeviceUnavailable(HarnessError):
    """The device that was asked for is not on this machine, or no longer."""

    exit_code = Exit.NO_DEVICE


class NoBaseline(HarnessError):
    """A time was to be judged and there is no stored time it may be compared with."""

    exit_code = Exit.NO_BASELINE


class ContractError(HarnessError, ValueError):
    """A recipe refuses this call: its sentence names the flag, field or size, and what would be right."""


class CaseError(HarnessError):
    """One case cannot get a PASS; the run goes on."""

    exit_code = Exit.BYTES_DIFFER


class CompileError(CaseError):
    """NVRTC refused a kernel; the text carries its log."""


class LaunchError(CaseError):
    """A kernel could not be launched or did not come back."""


class AccessError(LaunchError):
    """The emulator, acting as a sanitizer, stopped a kernel.

    kind: `out_of_bounds`, `misaligned`, `unwritten_read`, `race`, `divergent_barrier`, `inactive_shuffle`, `deadlock`
    where: `file.cu:line` of the instruction
    """

    def __init__(self, kind: str, where: str, sentence: str):
        super().__init__(f"{where}: {sentence}")
        self.kind = kind
        self.where = where
        self.sentence = sentence


class NotCapable(CaseError):
    """This device cannot run this case at all; never a pass, never a failure."""

    exit_code = Exit.CLEAN
