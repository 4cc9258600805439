"""`harness quality` on files and on the command line: what is written, and a sentence for every mistake."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from harness import cli
from harness.errors import Exit, InputError, UsageError
from harness.quality import tables, tensors, variants
from harness.quality.compare import Comparison

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """A file with a matrix to crop, one of three axes, one too small, a vector, and integers."""
    rng = np.random.default_rng(0)
    path = tmp_path / "layer.safetensors"
    held = {
        "up.weight": rng.standard_normal((90, 140), np.float32),
        "up.input": rng.standard_normal((2, 32, 64), np.float32).astype(BF16),
        "up.small": rng.standard_normal((24, 100)).astype(np.float16),
        "up.bias": np.ones(64, np.float32),
        "up.index": np.ones((64, 64), np.int64),
        "up.tiny": np.ones((8, 64), np.float32),
    }
    save_file(held, path)
    return path


def test_a_file_gives_its_matrices_in_whole_blocks(layer: Path):
    found, left_out = tensors.stored(layer, (), "bf16")
    assert {tensor.name: (tensor.values.shape, tensor.note) for tensor in found} == {
        "up.input": ((64, 64), "64x64 of 2x32x64"),
        "up.small": ((16, 96), "16x96 of 24x100, f16 rounded to bf16"),
        "up.weight": ((64, 128), "64x128 of 90x140, f32 rounded to bf16"),
    }
    assert all(tensor.values.dtype == BF16 and tensor.values.flags.c_contiguous for tensor in found)
    assert left_out == [
        "up.bias is 64, not a matrix",
        "up.index is I64, not bf16, fp16 or fp32",
        "up.tiny is 8x64, smaller than one 16x16 block",
    ]


def test_patterns_choose_tensors(layer: Path):
    assert [tensor.name for tensor in tensors.stored(layer, ["*.w*t"], "fp32")[0]] == ["up.weight"]


def test_an_array_file_is_one_tensor(tmp_path: Path):
    values = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    np.save(tmp_path / "keys.npy", np.asfortranarray(values))
    (found,), left_out = tensors.stored(tmp_path / "keys.npy", (), "fp32")
    assert found.name == "keys" and found.note == "" and left_out == []
    assert np.array_equal(found.values, values)


def test_a_variant_that_does_not_take_the_shape_is_left_out(layer: Path):
    comparison = Comparison([variants.find(spec, "bf16") for spec in ("per_tensor", "local_1x64")])
    (tensor,), _ = tensors.stored(layer, ["up.small"], "bf16")
    comparison.add(tensor)
    assert [found.variant for found in comparison.measured] == ["per_tensor"]
    assert comparison.left_out == [
        "up.small: local_1x64: rows = 16 is not a positive multiple of 64; the nearest is 64"
    ]
    with pytest.raises(UsageError, match="two tensors are called 'up.small'"):
        comparison.add(tensor)


def test_what_cannot_be_read_is_one_sentence(layer: Path, tmp_path: Path):
    def sentence(path: Path, *patterns: str) -> str:
        with pytest.raises(InputError) as caught:
            tensors.stored(path, patterns, "bf16")
        return str(caught.value)

    broken, array, text = tmp_path / "broken.safetensors", tmp_path / "broken.npy", tmp_path / "layer.txt"
    for path in (broken, array, text):
        path.write_bytes(b"not a tensor")
    vectors = tmp_path / "vectors.npy"
    np.save(vectors, np.ones(64))
    assert f"did you mean '{layer}'?" in sentence(tmp_path / "layr.safetensors")
    assert "there is no tensor 'up.wight'; did you mean 'up.weight'?" in sentence(layer, "up.wight")
    assert "not a readable .safetensors file" in sentence(broken)
    assert "not a readable .npy file" in sentence(array)
    assert "ends in .safetensors or .npy, not '.txt'" in sentence(text)
    assert "one array without a name; leave out --tensor up" in sentence(array, "up")
    assert "nothing in it can be measured: vectors is float64" in sentence(vectors)


# Command line


class Ran:
    """What `harness quality ...` printed, and its exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]):
        with pytest.raises(SystemExit) as caught:
            cli.main(("quality", *arguments))
        self.code = caught.value.code
        self.out, self.err = capsys.readouterr()


@pytest.fixture
def harness(capsys: pytest.CaptureFixture[str]):
    return lambda *arguments: Ran(capsys, arguments)


@pytest.mark.slow
def test_a_run_writes_tables_and_pictures_and_the_next_the_same(harness, layer: Path, tmp_path: Path):
    chosen = ["per_tensor/default", "four_over_six", "--scope", "weights", "--scope", "none"]
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        ran = harness(str(layer), *chosen, "--out", str(folder))
        assert (ran.code, ran.err) == (Exit.CLEAN, "")
        written = [Path(line) for line in ran.out.splitlines()[-5:]]
        assert [path.name for path in written] == ["quality.md", "quality.csv", "snr.svg", "map4.svg", "block_snr.png"]
        contents.append([path.read_bytes().replace(str(folder).encode(), b"") for path in written])
    assert contents[0] == contents[1]
    assert "up.weight is 64x128 of 90x140" in ran.out and "left out: up.bias is 64, not a matrix" in ran.out
    table = pd.read_csv(tmp_path / "a" / "quality.csv")
    assert set(table["tensor"]) == {"up.weight", "up.input", "up.small"}
    assert table[table["variant"] == "per_tensor"]["snr_db"].between(15, 30).all()
    page = (tmp_path / "a" / "quality.md").read_text()
    assert "| weights | 3 | 1 |" in page and "| none | 3 | 0 |" in page
    assert "![snr](snr.svg)" in page and "harness quality" in page.splitlines()[2]
    assert all(path.stat().st_size < 150_000 for path in (tmp_path / "a").iterdir())


def test_without_pictures_there_are_tables(harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options = ["--input", "normal", "--shape", "64x64", "per_tensor/default", "--out", str(tmp_path)]
    ran = harness(*options, "--no-pictures")
    assert ran.code == Exit.CLEAN
    assert sorted(path.name for path in tmp_path.iterdir()) == ["quality.csv", "quality.md"]
    ran = harness(*options)
    assert (ran.code, ran.err) == (
        Exit.USAGE,
        "error: pictures need matplotlib, which is not installed: `pip install matplotlib`, or ask for --no-pictures\n",
    )


def test_without_torch_there_is_a_sentence(harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    ran = harness()
    assert ran.code == Exit.USAGE
    assert (
        ran.err == "error: quality is computed with torch, which is not installed: pip install 'nvfp4-harness[torch]'\n"
    )


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("-i", "norml"), "there is no input 'norml'; the nearest is 'normal'"),
        (("-i", "normal", "--shape", "64"), "--shape '64' is not a shape; one reads ROWSxCOLS"),
        (("-i", "normal", "--shape", "40x40"), "rows = 40 is not a positive multiple of 16"),
        (("-i", "normal", "--scope", "all"), "--scope sums up the tensors of a file"),
        (("-i", "normal", "-t", "up"), "--tensor up is part of a file, and no file was named"),
        (("-t", "ffn_up.weigth"), "did you mean 'ffn_up.weight'?"),
        (("per_tenser",), "did you mean 'per_tensor'?"),
        (("--scope", "weight"), "'weight' is not one of 'none', 'weights', 'activations', 'all'"),
        (("nowhere.npy",), "there is no file nowhere.npy"),
    ],
)
def test_a_mistake_is_one_sentence(harness, arguments, sentence):
    ran = harness(*arguments, "--no-pictures")
    assert ran.code == Exit.USAGE
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1
    assert sentence in ran.err


def test_the_heat_map_shows_the_largest_gain():
    comparison = Comparison([variants.find(spec, "bf16") for spec in ("per_tensor", "row_scaled", "four_over_six")])
    held = [tensors.named(name, 64, 64, "bf16") for name in ("normal", "spike_1e6")]
    for tensor in held:
        comparison.add(tensor)
    name, maps = comparison.maps(held)
    assert (name, [one.variant for one in maps]) == ("spike_1e6", ["per_tensor", "row_scaled"])
    assert maps[0].blocks.shape == (64, 4)
    assert Comparison(comparison.chosen[:1]).maps(held) == ("", [])


def test_a_large_heat_map_is_reduced_to_medians():
    blocks = np.arange(600.0)[:, None] * np.ones((1, 3))
    reduced = tables._reduced(blocks)
    assert reduced.shape == (200, 3) and reduced[0, 0] == 1
    assert np.isnan(tables._reduced(np.full((2, 2), np.nan))).all()
