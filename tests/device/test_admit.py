"""What a device cannot do is decided by its `admit`, from the case alone, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.check.compared import DescribedGpu
from harness.contract.problem import Dense, Gemm
from harness.device import emulator
from harness.device.capability import CONTEXT, incapable, needed
from harness.device.emulator import EmulatorDevice
from harness.device.played import PLAYED
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
    large = replace(CASE, problem=Dense(32768, 32768))  # 16 bytes for each element, and 1 GiB for CUDA
    assert incapable(large, DescribedGpu(17 << 30)) == "" and incapable(large, DescribedGpu((17 << 30) - 1)) != ""


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


def test_products_are_run_up_to_so_many_terms_and_those_of_a_library_are_played(monkeypatch: pytest.MonkeyPatch):
    product = find_case("gemm/default/128x64x16/normal/eager")

    def refused(terms: int, *calls: str) -> str:
        steps = [SimpleNamespace(library=bool(call), signature=SimpleNamespace(name=call)) for call in ("", *calls)]
        monkeypatch.setattr(emulator, "plan", lambda *_: steps)
        return incapable(replace(product, problem=Gemm(256, 256, terms >> 16)), EmulatorDevice())

    played = next(iter(PLAYED))
    assert refused(1 << 24) == refused(1 << 26, played) == ""
    assert refused((1 << 24) + (1 << 16)) == "capability: a product of more than 16777216 terms needs a GPU"
    assert refused((1 << 26) + (1 << 16), played) == "capability: a product of more than 67108864 terms needs a GPU"
    assert refused(1 << 16, "other") == refused(1 << 16, played, "other")
    assert refused(1 << 16, "other") == "capability: other is machine code of a library, which needs a GPU"


def test_the_largest_case_of_the_emulator():
    assert incapable(replace(CASE, problem=Dense(1024, 1024)), EmulatorDevice()) == ""
    assert "elements need a GPU" in incapable(replace(CASE, problem=Dense(1024, 1040)), EmulatorDevice())
