"""Promises of tensors as layers have them."""

from __future__ import annotations

import numpy as np

from harness.inputs.promises.claims import (
    LARGEST,
    PRECISION,
    Claims,
    both_signs,
    different_lines,
    finite,
    near,
    standard_normal,
    varied,
)

_ENOUGH = 16  # a line needs at least this many elements to estimate its size


def normal(x: np.ndarray, dtype: str) -> Claims:
    yield finite(x)
    yield from standard_normal(x)
    yield different_lines(x)


def outliers_rows(x: np.ndarray, dtype: str) -> Claims:
    yield finite(x)
    if x.shape[1] >= _ENOUGH:
        large = np.sqrt((x.astype(np.float64) ** 2).mean(axis=1)) > 10
        yield np.count_nonzero(large) == max(1, len(x) // 64), "one row in 64, at least one, is fifty times larger"
        yield from standard_normal(np.where(large[:, None], x / np.float32(50), x))
        yield different_lines(x)
    else:
        yield varied(x)


def outliers_cols(x: np.ndarray, dtype: str) -> Claims:
    if len(x) >= _ENOUGH:
        yield from outliers_rows(x.T, dtype)
    else:
        yield finite(x)
        yield from standard_normal(x[np.abs(x) < 6])


def outlier_spike(x: np.ndarray, dtype: str) -> Claims:
    spike = np.abs(x) > 100
    yield finite(x)
    yield np.count_nonzero(spike) == 1, "one value, and only one, is a spike"
    yield bool(abs(x[spike] - 60_000).max() <= 60_000 * PRECISION[dtype]), "the spike is 60,000"
    yield from standard_normal(x[~spike] * 4)


def spike_1e6(x: np.ndarray, dtype: str) -> Claims:
    spike, height = np.abs(x) > 100, min(1e6, LARGEST[dtype])
    most = max(1, x.size // 499)
    yield finite(x)
    yield most / 2 <= np.count_nonzero(spike) <= most, "one value in 499, at least one, is a spike"
    yield bool((abs(np.abs(x[spike]) - height) <= height * PRECISION[dtype]).all()), f"every spike is {height:g}"
    yield both_signs(x[spike])
    yield from standard_normal(x[~spike])


def row_scales(x: np.ndarray, dtype: str) -> Claims:
    most = 10 if dtype == "fp16" else 20
    yield finite(x)
    if x.shape[1] < _ENOUGH:
        yield varied(x)
        return
    size = np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True))
    yield bool((size > 0).all()), "no row is zero"
    power, slack = np.log2(size), 9 / x.shape[1] ** 0.5
    yield bool((np.abs(power) <= most + slack).all()), f"rows have scales from 2^-{most} to 2^{most}"
    yield bool(power.min() < slack - most), f"a row has the scale 2^-{most}"
    yield len(x) == 1 or bool(power.max() > most - slack), f"a row has the scale 2^{most}"
    yield np.unique(np.rint(power)).size >= min(len(x), 16) // 2, "rows have different scales"
    yield both_signs(x)
    if x.shape[1] >= 256:
        yield near((np.abs(x / size) < 0.67449).mean(), 0.5, 1, x.size), "each row is normal"
    yield different_lines(x)


def window_scales(x: np.ndarray, dtype: str) -> Claims:
    yield finite(x)
    windows = x[:, : x.shape[1] // 64 * 64].reshape(-1, 64).astype(np.float64)
    if len(windows) >= 64:
        power = np.log2(np.sqrt((windows**2).mean(axis=1)))
        yield bool((power > -7).all() and (power < 4).all()), "windows have scales from 1/32 to 4"
        yield near(power.mean(), -1.454, 2.1, power.size), "the mean binade of the scales is that of 1/32 to 4"
        yield near((np.abs(windows / 2 ** power[:, None]) < 0.67449).mean(), 0.5, 1, windows.size), "windows are normal"
    yield both_signs(x)
    yield varied(x)
    yield different_lines(x)


def heavy_tail(x: np.ndarray, dtype: str) -> Claims:
    yield finite(x)
    yield bool((np.abs(x) <= 60_000 * (1 + PRECISION[dtype])).all()), "no magnitude is above 60,000"
    power = np.log(np.abs(x[x != 0]).astype(np.float64))
    if power.size >= 64:
        # log |normal| has mean -0.635 and variance pi^2 / 8; the logarithm of the factor has mean 0 and variance 4.
        yield near(power.mean(), -0.6352, 2.29, power.size), "the mean logarithm of the magnitudes is -0.635"
        yield near(power.var(), 5.234, 12, power.size), "the variance of the logarithms is 5.23"
    yield both_signs(x)
    yield varied(x)
