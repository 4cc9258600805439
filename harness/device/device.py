"""The interface of a device, whether it emulates or launches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand
from harness.errors import UsageError
from harness.jit.compile import Compiled
from harness.text import nearest

Array = Any  # one-dimensional uint8: np.ndarray on the emulator, cupy.ndarray on a GPU


@dataclass(frozen=True)
class Outcome:
    """The result of one run on a device.

    outputs: the payload of every output as bytes, guard bands cut off
    trespass: a sentence about changed bytes that the kernel must not touch, empty if there are none
    approximated: `ex2.approx.f32 at file.cu:12` for each instruction whose last bits PTX leaves open, and which differ
    from run to run
    kernels: each instantiation that a subject launched on the emulator, in the order of the run
    """

    outputs: dict[str, Array]
    trespass: str = ""
    approximated: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


class Program(Protocol):
    """A case, compiled and loaded for one target, with its inputs in place."""

    kernels: tuple[Compiled, ...]

    def run(self, poison: int, repeat: int) -> Outcome:
        """Fill outputs and guards with the byte `poison`, launch, wait. `repeat` counts the runs of a verification.

        A program whose outcomes name approximate instructions also takes `nearest=True`, with which these give the
        nearest value in every order, and has `order(repeat)`, the Schedule of a run.
        """

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        """Put other inputs, or another split of the case's allocation, in place at the same addresses.

        Launches, their grids and a captured graph stay as they are.
        """

    def renew(self) -> bool:
        """Load its modules again, so that `__device__` variables have their first values; False if there are none."""


class Device(Protocol):
    """A place to run kernels. targets: architectures it can execute; modes: ways to launch.

    subject_label: name and version of what is called in place of our kernels, or empty
    """

    name: str
    targets: tuple[str, ...]
    modes: frozenset[str]
    subject_label: str

    def identity(self) -> dict[str, str]:
        """The facts that two records must share to be comparable."""

    def admit(self, case: Case) -> None:
        """Raise NotCapable, with the reason, if this device cannot run the case.

        Decided by the device and the case alone, before there are data. Nothing else may raise it.
        """

    def reserve(self, case: Case, needs: int = 0, alone: bool = False) -> AbstractContextManager[None]:
        """Wait for room for the case and its oracle, and hold it. Raises NoDevice if there is none to wait for.

        needs: bytes, if that is more than the case's extents tell; alone: wait until no other large case runs
        """

    def lost(self) -> str:
        """Why this process can run nothing more on the device, or an empty string.

        Asked after a kernel went wrong. Raises DeviceUnavailable if no other process could, either.
        """

    def prepare(
        self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> Program:
        """Compile, load and upload."""

    def accepts(self, actual: Array, expected: Demand) -> bool:
        """Whether an output holds exactly the expected bytes, or nothing outside the expected interval."""

    def to_host(self, array: Array, field: Field) -> np.ndarray:
        """An output as a NumPy array of the field's dtype and shape."""


def targets_of(device: Device, case: Case) -> tuple[str, ...]:
    """The targets of a device that the case runs on."""
    return device.targets if case.turn is None else (device.targets[case.turn % len(device.targets)],)


def chosen_target(device: Device, name: str | None) -> str:
    """The device's target of that name, its first for None. Raises UsageError for one that it has not."""
    if name not in (None, *device.targets):
        raise UsageError(f"device {device.name} has no target '{name}'{nearest(name, device.targets)}")
    return name or device.targets[0]


class InPlaceOfOurs:
    """A device with other kernels in place of ours. What it does not say itself, the device `inner` does."""

    def __init__(self, inner: Any, label: str):
        self.inner, self.subject_label = inner, label
        self.name, self.targets, self.modes = inner.name, inner.targets, inner.modes

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # of an object that is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)

    def identity(self) -> dict[str, str]:
        return self.inner.identity() | {"subject": self.subject_label}
