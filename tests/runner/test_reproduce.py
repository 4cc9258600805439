"""What is printed as `reproduce` gives the same verdict for the same reason, in a shell and from another folder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from copied_tree import Tree
from own_recipe import NAME, change, in_use, written

from harness.commands import handshake
from harness.device.emulator import EmulatorDevice
from harness.ground.command_lines import Asked
from harness.records.run_folder import read_run
from harness.subjects.audit.verify import audit
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.subjects.device import with_subject
from harness.subjects.process import Child
from harness.subjects.subject import start
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify.repeat import screen
from harness.verify.verify import verify

SWIZZLE = "swizzle/default/48x80/normal/eager"
CODE = """
extern "C" __global__ void zeros(const unsigned char* in, unsigned char* out) {
  for (int c = 0; c < 4; ++c) out[blockIdx.x * 512 + threadIdx.x * 4 + c] = in[c] * 0;
}
"""
CARD = """\
code: own.cu
recipe: swizzle
flags: {direction: rowwise, to: swizzled}
launches:
  - kernel: zeros
    grid: (cols + 63) // 64
    block: 128
    arguments: [array: scale_inv, array: swizzled_scale_inv]
"""
# For each kind of failure: a case that shows it, the kernel file to change, and the text before and after.
IN_A_TREE = {
    "another split": (
        "grouped/outputs=rowwise/0+128+0of384x48/normal/eager", "grouped.cu",
        "TensorAmax::kStep, total, running);", "TensorAmax::kStep, first_dims[1] == 128 ? total : 0, running);",
    ),
    "a corner": (
        "casts/default/128x256/normal/eager", "memory/scale_layout.cuh",
        "return i64(u64(u32(row)) * u32(stride)); }", "return i64(u32(row) * u32(stride)); }",
    ),
}  # fmt: skip


def printed(result: Result, asked: Asked, label: str = "reproduce") -> str:
    """The command of a screen."""
    assert not result.verdict.right, result
    (line,) = re.findall(rf"^{label} +(.+)$", screen(result, asked), re.MULTILINE)
    return line


def pasted(line: str, folder: Path, package: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A line in a shell of a folder. package: of another tree"""
    environment = os.environ | ({"PYTHONPATH": str(package)} if package else {})
    return subprocess.run(["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def found(done: subprocess.CompletedProcess[str], folder: Path) -> tuple[str, str, str]:
    """The case, verdict and reason of the one case that a run compared."""
    page = re.search(r"^(.*verify\.html), with tables", done.stdout, re.MULTILINE)
    assert page, done.stdout + done.stderr
    (record,) = read_run((folder / page[1]).parent).records
    return record["case_id"], record["verdict"], record["reason"]


def same(line: str, folder: Path, result: Result, package: Path | None = None) -> None:
    assert found(pasted(line, folder, package), folder) == (result.case_id, result.verdict, result.reason), line


def test_a_recipe_of_ones_own_and_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = written(tmp_path / "it's a $HOME")
    change(folder, ".cu", "multiplier) | e2m1", "multiplier) << 4 | e2m1")
    change(folder, ".cu", "multiplier) << 4;", "multiplier);")
    with in_use(folder):
        result = verify(find_case(f"{NAME}/default/48x80/normal/eager"), EmulatorDevice())
        asked = Asked.here()
    same(printed(result, asked), tmp_path, result)
    shown = pasted(printed(result, asked, "trace"), tmp_path)
    assert shown.returncode == 0 and result.case_id in shown.stdout and "kernel" in shown.stdout, shown.stderr


def test_a_card_by_its_relative_path_and_from_a_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("a b").mkdir()
    Path("a b", "own.cu").write_text(CODE)
    Path("a b", "card.yaml").write_text(CARD)
    card = read_card("a b/card.yaml")
    result = verify_card(find_case(SWIZZLE), with_card(EmulatorDevice(), card))
    asked = Asked.here("a b/card.yaml")
    monkeypatch.chdir(tmp_path.parent)
    same(printed(result, asked), tmp_path.parent, result)


def test_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def swizzle(case, inputs, outputs):\n    outputs['swizzled_scale_inv'][...] = 7\n")
    child = Child("mine:swizzle", 60)
    result = audit(find_case(SWIZZLE), with_subject(EmulatorDevice(), start("mine:swizzle", child)))
    child.end()
    same(printed(result, Asked.here("mine:swizzle")), tmp_path, result)


@pytest.mark.parametrize("kind", IN_A_TREE)
def test_kernels_of_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    case_id, file, before, after = IN_A_TREE[kind]
    tree = Tree(tmp_path / "tree").root
    (tree / "results").unlink()
    kernels = tree / "harness" / "kernels"
    text = (kernels / file).read_text()
    assert text.count(before) == 1
    (kernels / file).write_text(text.replace(before, after))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    result = verify(find_case(case_id), EmulatorDevice(kernels))
    assert kind != "another split" or "when the split became" in result.reason
    assert kind != "a corner" or "as the end of" in result.reason
    assert not result.trace, "harness trace would show right bytes"
    same(printed(result, Asked.here()), elsewhere, result, tree)


def test_a_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    Path("own.cu").write_text(CODE)
    Path("tile.yaml").write_text(CARD)
    Path("pair.yaml").write_text(
        "producer: {card: tile.yaml}\nconsumer: {recipe: swizzle, flags: {to: compact}}\nshapes: [48x80, 16x16]\n"
        "inputs: [normal]\n"
    )
    code = handshake.command.main(["pair.yaml", "--case", "16x16/normal"], standalone_mode=False)
    first = capfd.readouterr().out
    (line,) = re.findall(r"^reproduce (.+)$", first, re.MULTILINE)
    again = pasted(line, tmp_path)
    assert again.returncode == code == 1
    assert again.stdout.partition("blamed")[2] == first.partition("blamed")[2] != ""
    assert Verdict.MISMATCH in first
