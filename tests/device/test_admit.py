"""What a device cannot do is decided by its `admit`, from the case alone, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.check.compared import DescribedGpu
from harness.contract.problem import Dense
from harness.device.capability import CONTEXT, incapable, needed
from harness.device.emulator import EmulatorDevice
from harness.errors import NotCapable
from harness.files import ROOT
from harness.suite.suite import find_case

CASE = find_case("swizzle/default/1024x1024/normal/eager")


def functions_of(path: Path, wanted: type[ast.AST]) -> Iterator[str]:
    """Names of the functions that raise or catch NotCapable."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, wanted) and any(
                    isinstance(name, ast.Name) and name.id == "NotCapable"
                    for name in ast.walk(node.type if isinstance(node, ast.ExceptHandler) else node)
                ):
                    yield function.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "node, allowed",
    [(ast.Raise, {"admit"}), (ast.ExceptHandler, {"incapable", "attempt"}), (ast.With, set())],
    ids=["raised", "caught", "suppressed"],
)
def test_not_capable_is_raised_by_admit_and_caught_around_it(node: type[ast.AST], allowed: set[str]):
    """`attempt` makes an error of what comes later."""
    paths = sorted((ROOT / "harness").rglob("*.py"))
    if node is ast.With:  # `with suppress(NotCapable)`
        assert not [path for path in paths if "suppress(NotCapable" in path.read_text(encoding="utf-8")]
        return
    assert {name for path in paths for name in functions_of(path, node)} == allowed


def test_the_memory_of_a_gpu_decides_and_not_what_is_free():
    enough = needed(CASE) + CONTEXT
    assert incapable(CASE, DescribedGpu(enough)) == ""
    assert incapable(CASE, DescribedGpu(enough - 1)).startswith("capability: needs about 0 GiB of GPU memory")
    assert incapable(replace(CASE, mode="graph"), DescribedGpu(enough)) == ""


def test_a_mode_that_a_device_has_not():
    class Eager(DescribedGpu):
        modes = frozenset({"eager"})

    graph = replace(CASE, mode="graph")
    assert incapable(graph, Eager(1 << 40)) == "capability: this device has no mode 'graph'"
    assert "no CUDA graphs" in incapable(graph, EmulatorDevice())


def test_an_excuse_without_a_reason_is_none():
    class Silent(EmulatorDevice):
        def admit(self, case) -> None:
            raise NotCapable

    assert incapable(CASE, Silent()) == ""


def test_the_largest_case_of_the_emulator():
    assert incapable(replace(CASE, problem=Dense(1024, 1024)), EmulatorDevice()) == ""
    assert "elements need a GPU" in incapable(replace(CASE, problem=Dense(1024, 1040)), EmulatorDevice())
