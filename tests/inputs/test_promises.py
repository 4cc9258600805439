"""Every distribution keeps what it promises, and a mistake in one breaks its promise."""

from __future__ import annotations

import numpy as np
import pytest

from harness.contract.dtypes import DTYPES
from harness.inputs.draw import DISTRIBUTIONS, make
from harness.inputs.promises.registry import PROMISES, SAME_FOR_EVERY_SEED, broken

REAL = "file:suites/data/minilm_sample.safetensors#ffn_up.input"
SHAPES = [(16, 16), (48, 80), (144, 272), (1, 128), (80, 48), (3, 1024)]


def test_every_distribution_promises_something():
    assert PROMISES.keys() == DISTRIBUTIONS.keys()
    assert set(SAME_FOR_EVERY_SEED) <= DISTRIBUTIONS.keys()
    assert "promises nothing" in broken("nobody", np.zeros((16, 16), np.float32), "fp32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_promises_are_kept(name, dtype):
    for seed, (rows, cols) in enumerate(SHAPES):
        assert broken(name, make(name, rows, cols, dtype, 7919 * seed + 1), dtype) == ""


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS.keys() - {"midpoints"}))  # which take 20 s to find
def test_promises_are_kept_by_large_tensors(name):
    assert broken(name, make(name, 2048, 1024, "bf16", 11), "bf16") == ""  # so many that a bias of rounding shows


MISTAKES = {
    "zeros": np.zeros_like,
    "no sign": np.abs,
    "one value again and again": lambda x: np.full_like(x, x.max(initial=0, where=np.isfinite(x))),
    "half as large": lambda x: (x.astype(np.float32) / 2).astype(x.dtype),
    "one row again and again": lambda x: np.broadcast_to(x[:1], x.shape),
}
# Half of a value between wide bounds, or that only has a place, is as good as the value.
AS_GOOD = {
    "half as large": {"wide_sum", "one_hot_block", "rht_adversarial", "near_floor", "subnormal", "four_over_six_ties",
                     "four_over_six_far", "power_edges", "all_nan"}
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_break_promises(name, dtype, mistake):
    x = make(name, 144, 272, dtype, 5)
    with np.errstate(invalid="ignore"):
        if not x.any() or name in AS_GOOD.get(mistake, ()):
            return
        wrong = MISTAKES[mistake](x)
    assert broken(name, wrong, dtype) != ""


@pytest.mark.parametrize("name", ["ties", "scale_edges", "power_edges", "sr_edges", "midpoints", "exhaustive"])
def test_an_edge_that_is_moved_breaks_its_promise(name):
    x = make(name, 144, 272, "fp32", 5)
    with np.errstate(invalid="ignore"):
        assert broken(name, (x * np.float32(1 + 2.0**-20)).astype(np.float32), "fp32") != ""


def test_special_values_that_are_missing_break_promises():
    for name in ("specials_inf", "specials_nan", "nan_lines"):
        x = make(name, 144, 272, "fp32", 5)
        assert broken(name, np.where(np.isfinite(x), x, np.float32(1)), "fp32") != ""
    x = make("signed_zero", 144, 272, "fp32", 5)
    assert broken("signed_zero", x + np.float32(0), "fp32") != ""
    x = make("one_hot_block", 256, 256, "bf16", 5)
    assert broken("one_hot_block", np.where(np.eye(256, dtype=bool), x, 0).astype(x.dtype), "bf16") != ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_a_file_is_read_once_more(dtype):
    x = make(REAL, 48, 80, dtype, 0)
    assert broken(REAL, x, dtype) == ""
    assert broken(REAL, np.roll(x, 1, axis=0), dtype) != ""
    truncated = (make(REAL, 48, 80, "fp32", 0) * np.float32(1 - 2.0**-6)).astype(DTYPES[dtype])
    assert broken(REAL, truncated, dtype) != ""


def test_a_file_of_numpy_is_read_once_more(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(512, dtype=np.float16).reshape(16, 32))
    name = f"file:{tmp_path / 'x.npy'}"
    x = make(name, 16, 16, "bf16", 0)
    assert broken(name, x, "bf16") == ""
    assert broken(name, x[::-1], "bf16") != ""


def test_rows_all_over_a_large_tensor_are_looked_at():
    x = np.random.default_rng(0).standard_normal((4096, 2048)).astype(np.float32)
    assert broken("normal", x, "fp32") == ""
    x[2000:2400] = 0
    assert broken("normal", x, "fp32") != ""
