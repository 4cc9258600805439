"""What is printed as `reproduce` gives the same verdict for the same reason, in a shell and from another folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from copied_tree import Tree
from own_recipe import NAME, change, written
from processes import LONGEST, python_path

from harness.device.emulator import EmulatorDevice
from harness.files import ROOT
from harness.ground.command_lines import Asked, this_python
from harness.records.run_folder import read_run
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.screen import screen
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
        "grouped/outputs=rowwise/0+128+0of384x48/normal/eager", "reduce/group_amax.cuh",
        "TensorAmax::kStep, total, running);",
        "TensorAmax::kStep, extents.first_dims[1] == 128 ? total : 0, running);",
    ),
    "a corner": (
        "casts/default/128x256/normal/eager", "memory/scale_layout.cuh",
        "return i64(u64(u32(row)) * u32(stride)); }", "return i64(u32(row) * u32(stride)); }",
    ),
}  # fmt: skip


def pasted(line: str, folder: Path, package: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A line in a shell of a folder. package: of another tree"""
    environment = os.environ | ({"PYTHONPATH": python_path(package)} if package else {})
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST
    )


def harness(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return pasted(shlex.join([this_python(folder), "-m", "harness", *words]), folder)


def the_first(text: str, label: str = "reproduce") -> str:
    """The first command that is printed beside a label."""
    assert (found := re.search(rf"^(?:E +)?{label} +(.+)$", text, re.MULTILINE)), text
    return found[1]


def same(line: str, folder: Path, result: Mapping[str, Any], package: Path | None = None) -> None:
    """Pasted there, the line compares the same case alone, with the same verdict for the same reason."""
    done = pasted(line, folder, package)
    page = re.search(r"^(.*verify\.html), with tables", done.stdout, re.MULTILINE)
    assert page, line + done.stdout + done.stderr
    run = (folder / page[1]).parent
    (record,) = read_run(run).records
    if run.is_relative_to(ROOT):
        shutil.rmtree(run)
    told = [record[name] for name in ("case_id", "verdict", "reason", "story")]
    assert told == [result[name] for name in ("case_id", "verdict", "reason", "story")], line


def wrong_recipe(folder: Path) -> Path:
    """A recipe of one's own whose packed nibbles are exchanged."""
    change(written(folder), ".cu", "multiplier) | e2m1", "multiplier) << 4 | e2m1")
    change(folder, ".cu", "multiplier) << 4;", "multiplier);")
    return folder


def words_of(kind: str, folder: Path) -> list[str]:
    """What asks for a case that fails, of files that are made in a folder."""
    if kind == "function":
        function = "import numpy\n\n\ndef swizzle(case, inputs, outputs):\n    outputs['swizzled_scale_inv'][...] = 7\n"
        (folder / "mine.py").write_text(function)
        return ["--subject", "mine:swizzle", "--case", SWIZZLE]
    (folder / "a b").mkdir()
    (folder / "a b" / "own.cu").write_text(CODE)
    (folder / "a b" / "card.yaml").write_text(CARD)
    return ["swizzle", "--subject", str(folder / "a b" / "card.yaml"), "--case", SWIZZLE]


# Each kind of subject and each place once, because a run of the harness takes seconds; others are below. One of them,
# which begins in this process, is not slow.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "where"), [("card", "in a checkout"), ("function", "elsewhere")])
def test_what_a_run_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, where: str):
    folder = ROOT if where == "in a checkout" else tmp_path
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    asked = [*words_of(kind, tmp_path), "--device", "emulator", "--run-dir", str(tmp_path / "out")]
    done = harness(["verify", *asked], folder)
    (result,) = read_run(tmp_path / "out").records
    same(the_first(done.stdout), folder, result)


@pytest.mark.slow
def test_what_a_shard_prints_and_once_more_when_it_is_resumed(tmp_path: Path):
    recipe = wrong_recipe(tmp_path / "it's a $HOME")
    asked = ["verify", NAME, "--recipe-dir", str(recipe), "--device", "emulator", "--shard", "2/3", "-k", "48x80"]
    asked += ["--run-dir", "out"]
    first, again = (harness([*asked, *more], tmp_path).stdout for more in ([], ["--resume"]))
    line, trace = the_first(first), the_first(first, "trace")
    assert line == the_first(again) and "--shard" not in line
    records = {record["case_id"]: record for record in read_run(tmp_path / "out").records}
    words = shlex.split(line)
    result = records[words[words.index("--case") + 1]]
    same(line, tmp_path, result)
    shown = pasted(trace, tmp_path)
    assert shown.returncode == 0 and result["case_id"] in shown.stdout and "kernel" in shown.stdout, shown.stderr


@pytest.mark.slow
def test_a_card_by_its_relative_path_and_from_a_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    words_of("card", tmp_path)
    card = read_card("a b/card.yaml")
    result = verify_card(find_case(SWIZZLE), with_card(EmulatorDevice(), card))
    asked = Asked.here("a b/card.yaml")
    monkeypatch.chdir(tmp_path.parent)
    same(the_first(screen(result, asked)), tmp_path.parent, result.to_record())


@pytest.mark.parametrize("kind", [pytest.param("another split", marks=pytest.mark.slow), "a corner"])
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
    same(the_first(screen(result, Asked.here())), elsewhere, result.to_record(), tree)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in a checkout", "elsewhere"])
def test_a_handshake(tmp_path: Path, where: str):
    folder = ROOT if where == "in a checkout" else tmp_path
    (tmp_path / "own.cu").write_text(CODE)
    (tmp_path / "tile.yaml").write_text(CARD)
    pair = tmp_path / "pair.yaml"
    pair.write_text(
        "producer: {card: tile.yaml}\nconsumer: {recipe: swizzle, flags: {to: compact}}\nshapes: [48x80, 16x16]\n"
        "inputs: [normal]\n"
    )
    first = harness(["handshake", str(pair), "--case", "16x16/normal", "--device", "emulator"], folder)
    again = pasted(the_first(first.stdout), folder)
    assert again.returncode == first.returncode == 1
    assert again.stdout.partition("blamed")[2] == first.stdout.partition("blamed")[2] != ""
    assert Verdict.MISMATCH in first.stdout
