"""Lets the tests import an earlier harness by the names of today.

The emulator and the studies were folders of it, and most of the ground floor was the suite's. `before.py` has pytest
load this in the folder of such a harness; a name that it has is its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module, util
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_RENAMED = {
    "ptx_emulator": "harness.emulator",
    "ptx_emulator.launches": "harness.emulator.launch",
    "ptx_emulator.private_files": "harness.private_files",
    "ptx_emulator.triton_driver": "harness.triton_driver",
    "harness.ground": "harness.suite",
    "harness.ground.locks": "harness.locks",
    "harness.ground.seconds": "harness.seconds",
    "harness.runner.resume_command": "harness.runner.again",
    "harness.verify.room": "harness.verify.host_room",
    "evidence": "harness.studies",
    "evidence.commands": "harness.commands",
    "evidence.__main__": "harness.cli",
}
_FILES = {name: Path(*name.split(".")) for name in _RENAMED}
# The longest beginning counts.
BEFORE = {
    name: _RENAMED[name] for name, path in _FILES.items() if not (path.is_dir() or path.with_suffix(".py").is_file())
}


class _Renamed(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        beginning = max((each for each in BEFORE if f"{name}.".startswith(f"{each}.")), key=len, default="")
        return util.spec_from_loader(name, self) if beginning else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        beginning = max((each for each in BEFORE if f"{spec.name}.".startswith(f"{each}.")), key=len)
        module = import_module(BEFORE[beginning] + spec.name.removeprefix(beginning))
        for name, before in BEFORE.items():  # `from ptx_emulator import private_files` asks the module first
            above, _, child = name.rpartition(".")
            if above == spec.name and not hasattr(module, child) and util.find_spec(before):
                setattr(module, child, import_module(before))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it has run under its own name."""


sys.meta_path.insert(0, _Renamed())
