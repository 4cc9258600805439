"""Pins, a line on the page for each package, and what `make` says and does before it downloads anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from harness.files import ROOT
from harness.ground.yaml_lines import read

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = dict(line.split("==") for line in LINES if not line.startswith("#"))
MADE_UP = "file:///an/index"

# Stands in for Python: knows no torch, makes an environment of itself, and tells what pip is asked.
PYTHON = """\
#!/bin/sh
case "$*" in
  *version_info*) exit 0 ;;
  *metadata*|*cupy*) exit 1 ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *) echo "pip: $*" >&2 ;;
esac
"""


def plain(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_every_package_that_is_asked_for_has_one_pin():
    asked = [*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)]
    assert set(map(plain, asked)) <= set(map(plain, PINS))
    assert len(PINS) == sum(not line.startswith("#") for line in LINES)


def test_kernels_are_compiled_by_the_nvrtc_of_torchs_cuda():
    assert PINS["nvidia-cuda-nvrtc"] == "13.0.88"
    assert PINS["cuda-toolkit"].startswith("13.0.")


def test_what_torch_brings_is_pinned_below_the_line_that_make_cuts_at():
    (cut,) = [index for index, line in enumerate(LINES) if line.startswith("# torch")]
    below = {line.partition("==")[0] for line in LINES[cut + 1 :]}
    assert {"torch", "triton", "cuda-toolkit", "nvidia-cublas"} <= below
    assert not {"nvidia-cuda-nvrtc", "cupy-cuda13x", "numpy"} & below


def _folders_without(program: str, folder: Path) -> list[str]:
    """The folders of PATH; in place of one that has the program, a folder of links to all others in it."""
    found = os.environ["PATH"].split(os.pathsep)
    for number, each in enumerate(found):
        if shutil.which(program, path=each):
            links = folder / f"programs{number}"
            links.mkdir()
            for path in Path(each).iterdir():
                if path.name != program:
                    (links / path.name).symlink_to(path)
            found[number] = str(links)
    return found


class Made:
    """What `make env` printed in a folder of its own, with programs that stand in for the machine's."""

    def __init__(self, folder: Path, *words: str, **programs: str):
        self.venv = folder / "venv"
        for name, text in {"stand_in": PYTHON, **programs}.items():
            path = folder / "bin" / name.replace("_", "-")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        path = os.pathsep.join([str(folder / "bin"), *_folders_without("nvidia-smi", folder)])
        command = ["make", "env", f"VENV={self.venv}", f"PYTHON={folder / 'bin' / 'stand-in'}", *words]
        environment = {**os.environ, "PATH": path}
        environment.pop("TORCH_INDEX", None)
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        self.code, self.said = done.returncode, done.stderr.splitlines()

    @property
    def pip(self) -> list[str]:
        return [line for line in self.said if line.startswith("pip: -m pip")]


def test_without_a_gpu_the_size_of_cuda_is_told_before_anything_is_downloaded(tmp_path: Path):
    made = Made(tmp_path)
    assert made.code == 0
    assert re.match(r"note: .*\d GB of CUDA packages.* make TORCH_INDEX=URL ", made.said[0])
    assert len(made.pip) == 1 and "[torch,plot,cluster,triton,dev]" in made.pip[0]
    assert (made.venv / "constraints.txt").read_text() == (ROOT / "constraints.txt").read_text()


def test_another_index_gives_torch_and_nothing_else(tmp_path: Path):
    made = Made(tmp_path, f"TORCH_INDEX={MADE_UP}")
    assert made.code == 0
    assert made.said[0].endswith(f"--no-deps --index-url {MADE_UP} torch")
    assert MADE_UP not in made.pip[1]


def test_with_a_gpu_cuda_needs_no_note_and_cupy_comes_too(tmp_path: Path):
    made = Made(tmp_path, nvidia_smi="#!/bin/sh\n")
    assert made.code == 0
    assert made.said[: len(made.pip)] == made.pip and "[gpu]" in made.pip[-1]


@pytest.mark.parametrize("machine", ["Darwin arm64", "Linux riscv64", "MINGW64_NT-10.0 x86_64"])
def test_another_platform_is_refused_in_one_sentence_before_anything_is_downloaded(tmp_path: Path, machine: str):
    made = Made(tmp_path, uname=f"#!/bin/sh\necho {machine}\n")
    assert made.said[0] == f"error: Linux on x86-64 or aarch64 is needed, WSL too, and this is {machine}"
    assert "Error 64" in made.said[1]
    assert not made.pip and not made.venv.exists()


def test_the_index_is_asked_without_this_machines_settings_of_pip(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nenv | grep ^PIP_ >&2\nexit 9\n")
    python.chmod(0o755)
    settings = ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE")
    environment = {**os.environ, "PYTHON": str(python), **dict.fromkeys(settings, MADE_UP)}
    done = subprocess.run([ROOT / ".ci" / "resolve"], env=environment, capture_output=True, text=True)
    assert done.returncode == 9
    assert MADE_UP not in done.stderr and "PIP_CONFIG_FILE=/dev/null" in done.stderr.splitlines()
    assert "'.[torch,plot,cluster,triton,dev,gpu,docs,release]'" in (ROOT / ".ci" / "resolve").read_text()


@pytest.mark.parametrize("there", [True, False])
def test_check_takes_the_clang_format_beside_python(tmp_path: Path, there: bool):
    """An environment that is used as it is need not be on PATH."""
    beside = tmp_path / "clang-format"
    if there:
        beside.touch()
    words = ["make", "--dry-run", "check", "VENV=", f"PYTHON={tmp_path / 'python'}"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in said.splitlines() if "clang-format" in line]
    assert line.startswith(f"{beside if there else 'clang-format'} --style=")


def test_a_citation_names_the_version_and_the_licence():
    cited = read(ROOT / "CITATION.cff", "CITATION.cff").data
    assert {name: cited[name] for name in ("version", "license", "title", "keywords")} == {
        "version": PROJECT["version"], "license": PROJECT["license"], "title": PROJECT["name"],
        "keywords": PROJECT["keywords"],
    }  # fmt: skip


# docs/dependencies.md

PAGE = (ROOT / "docs" / "dependencies.md").read_text()


def name_of(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0]


def rows(title: str) -> list[list[str]]:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_package_has_a_line_that_says_why():
    assert [name for name, _ in rows("Always installed")] == [name_of(each) for each in PROJECT["dependencies"]]
    extras = [(name_of(each), f"`{extra}`") for extra, of in PROJECT["optional-dependencies"].items() for each in of]
    assert [(name, extra) for name, extra, _ in rows("Extras")] == extras
    assert all(row[-1] for title in ("Always installed", "Extras") for row in rows(title))
