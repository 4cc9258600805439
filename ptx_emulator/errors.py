"""Errors of parsing, launching and calling."""

from __future__ import annotations


class UsageError(Exception):
    """The emulator was called in a way that it does not have."""


class LaunchError(Exception):
    """CUDA would refuse the launch, or the kernel trapped."""


class RefusedLaunch(LaunchError):
    """CUDA would refuse the launch: its extents, shared memory or arguments are none that the kernel can be given."""


class NotOnTarget(LaunchError):
    """ptxas would refuse the PTX: its target lacks an instruction."""


class NotEmulated(Exception):
    """The PTX has an instruction or a construct that the emulator lacks."""


class Fault(Exception):
    """The kernel does what a sanitizer reports.

    kind: `out_of_bounds`, `misaligned`, `unwritten_read`, `race`, `divergent_barrier`, `inactive_shuffle`, `deadlock`,
        `assertion`, `mbarrier`, `tensor_memory`, `cluster_launch`
    where: `file.cu:line` of the instruction
    """

    def __init__(self, kind: str, where: str, sentence: str):
        super().__init__(f"{where}: {sentence}")
        self.kind, self.where, self.sentence = kind, where, sentence
