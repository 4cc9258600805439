"""The errors that the harness raises, and the exit code of each."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from harness.text import one_line, printable


class Exit(IntEnum):
    """Exit codes of a process; the most serious state of a run wins, in the order of `SEVERITY`."""

    CLEAN = 0
    BYTES_DIFFER = 1
    SLOWER = 2
    NOISY = 3
    NO_DEVICE = 4
    NO_BASELINE = 5
    USAGE = 64
    INTERRUPTED = 130


# A wrong kernel comes before a wrong suite or card: what is proven wrong is never hidden behind what was not judged.
SEVERITY = (
    Exit.INTERRUPTED,
    Exit.BYTES_DIFFER,
    Exit.USAGE,
    Exit.NO_DEVICE,
    Exit.SLOWER,
    Exit.NO_BASELINE,
    Exit.NOISY,
    Exit.CLEAN,
)


def worst(codes: Iterable[int]) -> Exit:
    """The most serious of some exit codes; CLEAN if there are none."""
    codes = {*codes, Exit.CLEAN}
    return next(code for code in SEVERITY if code in codes)


def exit_of(code: int) -> Exit:
    """The `Exit` that a process ended with; BYTES_DIFFER for an unknown code: not all may have been compared."""
    return Exit(code) if code in set(Exit) else Exit.BYTES_DIFFER


class HarnessError(Exception):
    """Base of every error the harness raises on purpose; its text is one sentence for the user."""

    exit_code = Exit.USAGE

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(HarnessError):
    """The command line or a user's file is wrong. The text quotes it but stays one line."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class SuiteError(UsageError):
    """A suite is wrong. where: `file:line`; sentence: what is wrong, and the nearest valid choice"""

    def __init__(self, where: str, sentence: str):
        super().__init__(f"{where}: {sentence}")
        self.where = where


class InputError(UsageError):
    """A distribution or a tensor file cannot give the tensor that a case needs."""


class OracleError(UsageError):
    """A user's oracle is not valid Python, or raised; the sentence quotes its line. It can judge no kernel."""


class RecipeError(UsageError):
    """The files of a recipe do not fit together, as where nothing binds to a kernel's parameter."""


class StorageError(UsageError):
    """A folder or a disk cannot be written. The run ends and keeps the records it has."""


class DeviceUnavailable(HarnessError):
    """The requested device is not on this machine, or is gone."""

    exit_code = Exit.NO_DEVICE


class ContractError(HarnessError, ValueError):
    """A recipe refuses a call; the sentence names the wrong flag, field or size and a right one."""


class CaseError(HarnessError):
    """One case cannot pass; the run goes on. A UsageError within a case becomes the verdict SETUP_ERROR."""

    exit_code = Exit.BYTES_DIFFER


class CompileError(CaseError):
    """NVRTC refused a kernel; the text has its log. The verdict is COMPILE_ERROR."""


class LaunchError(CaseError):
    """A kernel could not be launched or did not return. The verdict is LAUNCH_ERROR."""


class AccessError(LaunchError):
    """The emulator, acting as a sanitizer, stopped a kernel. The verdict depends on `kind`.

    kind: `out_of_bounds`, `misaligned`, `unwritten_read`, `race`, `divergent_barrier`, `inactive_shuffle`, `deadlock`,
        `assertion`, `mbarrier`, `tensor_memory`
    where: `file.cu:line` of the instruction
    """

    def __init__(self, kind: str, where: str, sentence: str):
        super().__init__(f"{where}: {sentence}")
        self.kind, self.where, self.sentence = kind, where, sentence


class NotEmulated(CaseError):
    """A kernel uses something that the emulator lacks; the sentence names it and its line. The verdict is NOT_EMULATED.

    It says nothing about the kernel, and is no LaunchError.
    """

    exit_code = Exit.NO_DEVICE


class NoDevice(CaseError):  # noqa: N818
    """This machine lacks what one case takes: free memory, or a compiler for the target. The verdict is NO_DEVICE.

    Unlike DeviceUnavailable, it leaves other cases to be run.
    """

    exit_code = Exit.NO_DEVICE


class NotCapable(HarnessError):
    """A device cannot run a case. Raised by `admit` alone, which sees the case and no data; the verdict is EXCLUDED.

    Raised later, it counts as an error, because a kernel or subject that has run may not excuse itself.
    """

    exit_code = Exit.NO_DEVICE
