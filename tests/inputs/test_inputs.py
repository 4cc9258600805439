"""Inputs come in the requested shape and dtype; a file gives its own bytes, or an error that says why not."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from harness.contract.dtypes import DTYPES
from harness.errors import InputError
from harness.files import ROOT
from harness.inputs import draw, tensor_file
from harness.inputs.promises import registry
from harness.oracles import nvfp4

F32 = np.float32
NAMES = [name for name, _ in draw.names()]
FINITE = [n for n in NAMES if n not in ("specials_inf", "specials_nan", "nan_lines", "all_nan", "exhaustive")]
SAMPLE = "file:suites/data/minilm_sample.safetensors"


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.itemsize}")


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(16, 16), (48, 80), (304, 272), (1, 7)], ids=str)
def test_shape_dtype_and_seed(name, dtype, shape):
    x = draw.make(name, *shape, dtype, 7)
    assert (x.shape, x.dtype) == (shape, DTYPES[dtype])
    assert x.flags.c_contiguous
    np.testing.assert_array_equal(bits(x), bits(draw.make(name, *shape, dtype, 7)))
    if name in FINITE:
        assert np.isfinite(x.astype(F32)).all()


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"zeros", "exhaustive", "midpoints"}))
def test_another_seed_gives_other_bytes(name):
    assert (bits(draw.make(name, 48, 80, "bf16", 1)) != bits(draw.make(name, 48, 80, "bf16", 1 << 63))).any()


def test_every_name_has_one_line():
    assert {"normal", "ties", "scale_edges", "rht_adversarial", "exhaustive"} < set(NAMES)
    for name, line in draw.names():
        assert 10 < len(line) < 120, name
        assert line.endswith((".", ":")), name


@pytest.mark.parametrize(
    ("name", "word"), [("nromal", "'normal'"), ("outlier_rows", "'outliers_rows'"), ("", "nearest")]
)
def test_an_unknown_name_names_the_nearest(name, word):
    with pytest.raises(InputError, match=word):
        draw.make(name, 16, 16, "bf16", 0)


def test_refuses_an_unknown_dtype_and_an_empty_shape():
    with pytest.raises(InputError, match="'fp8'"):
        draw.make("normal", 16, 16, "fp8", 0)
    with pytest.raises(InputError, match="0x16"):
        draw.make("normal", 0, 16, "bf16", 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slabs_of_a_large_normal_do_not_depend_on_the_threads(dtype, monkeypatch):
    monkeypatch.setattr(draw, "SLAB", 48 * 7)
    drawn = draw.make("normal", 75, 48, dtype, seed=3)
    monkeypatch.setattr(draw, "MOST_THREADS", 1)
    assert draw.make("normal", 75, 48, dtype, seed=3).tobytes() == drawn.tobytes()
    assert len({row.tobytes() for row in drawn}) == 75  # no slab repeats another, and none is left out
    assert 0.9 < float(drawn.astype(np.float32).std()) < 1.1


def test_a_row_of_many_slabs_is_drawn_in_parts(monkeypatch):
    monkeypatch.setattr(draw, "SLAB", 1 << 10)
    drawn = draw.make("normal", 3, 3 << 12, "bf16", seed=3)
    parts = drawn.reshape(-1, 1 << 10)
    assert len({part.tobytes() for part in parts}) == len(parts) == 36
    monkeypatch.setattr(registry, "WHOLE", 1 << 10)
    assert not registry.broken("normal", drawn, "bf16")
    drawn[-1, -1] = np.inf
    assert "finite" in registry.broken("normal", drawn, "bf16")


# Files


def test_committed_sample_is_real():
    """Each crop holds the outlier it was cut for, and its attribution."""
    amaxes = {
        "ffn_down.input": (13.5, (0, 38)),
        "ffn_up.input": (28.5, (0, 99)),
        "ffn_up.weight": (0.486328125, (51, 72)),
        "ffn_up.grad_output": (0.00323486328125, (195, 77)),
    }
    for tensor, (amax, at) in amaxes.items():
        x = np.abs(draw.make(f"{SAMPLE}#{tensor}", 256, 128, "bf16", 1).astype(F32))
        assert x.max() == F32(amax)
        assert np.unravel_index(x.argmax(), x.shape) == at
    path = ROOT / "suites/data/minilm_sample.safetensors"
    assert path.stat().st_size < 300_000
    with tensor_file.safe_open(path, framework="np") as file:
        assert "Apache-2.0" in file.metadata()["source"]


def test_a_larger_tensor_is_cropped_to_its_corner():
    whole = draw.make(f"{SAMPLE}#ffn_up.input", 256, 128, "bf16", 0)
    corner = draw.make(f"{SAMPLE}#ffn_up.input", 48, 80, "bf16", 5)
    assert corner.flags.c_contiguous
    np.testing.assert_array_equal(corner, whole[:48, :80])


@pytest.mark.parametrize("source", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_converts_to_nearest_even(tmp_path, source, dtype):
    x = (np.random.default_rng(0).standard_normal((32, 48)) * 1000).astype(source)
    if source is not np.float16:
        x[0, 0] = 65520  # the tie between the largest fp16 and its overflow
    save_file({"x": x}, tmp_path / "x.safetensors")
    given = draw.make(f"file:{tmp_path}/x.safetensors#x", 32, 48, dtype, 0)
    np.testing.assert_array_equal(bits(given), bits(nvfp4.convert(x.astype(F32), dtype)))


def test_npy(tmp_path):
    x = np.random.default_rng(0).standard_normal((32, 48)).astype(F32)
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(draw.make(f"file:{tmp_path}/x.npy", 16, 48, "fp32", 0), x[:16])


def test_the_only_tensor_needs_no_name(tmp_path):
    save_file({"x": np.ones((16, 16), F32)}, tmp_path / "x.safetensors")
    assert draw.make(f"file:{tmp_path}/x.safetensors", 16, 16, "bf16", 0).all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "doubles.npy", np.ones((16, 16)))
    np.save(tmp_path / "cube.npy", np.ones((16, 16, 16), F32))
    np.save(tmp_path / "objects.npy", np.array([[object()]]), allow_pickle=True)
    np.savez(tmp_path / "archive.npz", x=np.ones((16, 16), F32))
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    (tmp_path / "empty.npy").touch()
    (tmp_path / "garbage.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    np.save(tmp_path / "short.npy", np.ones((16, 16), F32))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:300])
    (tmp_path / "garbage.safetensors").write_bytes(b"123")
    (tmp_path / "matrix.txt").touch()
    save_file({"x": np.ones((16, 16), F32), "i": np.ones((16, 16), np.int64)}, tmp_path / "two.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("spelled", "sentence"),
    [
        ("nowhere.npy", "there is no file"),
        ("", "there is no file"),
        ("matrix.txt", r"\.txt"),
        ("doubles.npy", "float64"),
        ("cube.npy", "16x16x16"),
        ("objects.npy", "not a readable"),
        ("archive.npy", "not a readable"),
        ("empty.npy", "not a readable"),
        ("garbage.npy", "not a readable"),
        ("short.npy", "not a readable"),
        ("garbage.safetensors", "not a readable"),
        ("two.safetensors", "it has"),
        ("two.safetensors#y", "no tensor 'y'"),
        ("two.safetensors#i", "I64"),
        ("doubles.npy#x", "leave out #x"),
    ],
)
def test_a_bad_file_is_a_sentence(folder, spelled, sentence):
    with pytest.raises(InputError, match=sentence):
        draw.make(f"file:{folder}/{spelled}", 16, 16, "bf16", 0)


def test_a_missing_tensor_names_the_nearest_first():
    with pytest.raises(InputError, match="it has ffn_down.input"):
        draw.make(f"{SAMPLE}#ffn_down.inptu", 16, 16, "bf16", 0)


@pytest.mark.parametrize("shape", [(272, 128), (256, 144)], ids=str)
def test_a_smaller_tensor_gives_its_shape(shape):
    with pytest.raises(InputError, match=f"256x128, smaller than the {shape[0]}x{shape[1]}"):
        draw.make(f"{SAMPLE}#ffn_up.weight", *shape, "bf16", 0)
