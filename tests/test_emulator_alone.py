"""The emulator is imported, shown and tested where `harness` cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from processes import python_path
from test_imports import graph, modules, named

from harness.files import ROOT

TESTS = ROOT / "tests" / "ptx_emulator"
# These files run some of each folder of the emulator in about a minute. PTX is read (test_ptx), decoded and computed
# (test_control, test_kernels), memory is checked (test_access_faults, test_races, test_tensor_maps), launches are
# scheduled (test_stream), and a host is asked (test_calls, test_source_lines). The others run with the harness beside,
# and are looked through for imports of it.
RUN = ("test_ptx", "test_control", "test_kernels", "test_access_faults", "test_races", "test_tensor_maps",
       "test_stream", "test_calls", "triton_driver/test_source_lines")  # fmt: skip
# What a GPU writes is compared by a driver of CUDA, which stands with the evidence and has the errors of the harness.
ON_A_GPU = {"on_gpu.py", "test_exercises_gpu.py", "test_probes_gpu.py"}
WITHOUT = "import sys\nsys.modules['harness'] = None\n"


def alone(program: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program in which `harness` cannot be imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-c", WITHOUT + program]
    # The harness is a plugin that pytest would load.
    environment |= {"PYTHONPATH": python_path(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_module_is_imported_and_the_example_of_its_page_runs(tmp_path: Path):
    names = [name for name in modules(ROOT) if name.startswith("ptx_emulator")]
    page = (ROOT / "docs" / "emulator.md").read_text()
    example = page.partition("cat > shift.py <<'END'\n")[2].partition("END\n")[0]
    assert "ptx.launch(" in example
    imports = f"import importlib\nfor name in {names}:\n    importlib.import_module(name)\n"
    done = alone(imports + example, tmp_path)
    assert done.stdout == "[1. 2. 3.] 396 bytes read\n", done.stderr
    assert done.stderr.splitlines()[-1].startswith("ptx_emulator.errors.Fault: shift.cu:4: reads 4 bytes at byte 400")


@pytest.mark.slow
def test_tests_of_the_emulator_pass():
    files = [str(TESTS / f"{name}.py") for name in RUN]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--confcutdir", str(TESTS)]
    done = alone(f"import pytest\nsys.exit(pytest.main({[*files, *options]}))")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert " passed" in done.stdout.splitlines()[-1]


@cache
def _foreign() -> set[str]:
    """The modules of a checkout that import the harness, themselves or by way of others."""
    edges = graph(ROOT)
    found = {name for name in edges if name.startswith("harness")} | {"harness"}
    while more := {name for name, others in edges.items() if others & found} - found:
        found |= more
    return found


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.name)
def test_no_test_of_the_emulator_imports_the_harness(path: Path):
    found = set(named(path, "")) & _foreign()
    assert found == set() or path.name in ON_A_GPU
