"""Claims of the papers and libraries that published the recipes, measured on the oracles' own bytes."""

from __future__ import annotations

import numpy as np
import pytest
from quantized import BOTH, run

from harness.inputs import draw
from harness.oracles import dequantize, row_scaled

F32 = np.float32
ROWS, COLS = 256, 512


@pytest.fixture
def error(make_case):
    """`error(x, granularity)`: x minus its quantized and dequantized self, float64."""

    def of(x, granularity="tensor"):
        case = make_case("dequantize", *x.shape, dtype="fp32", granularity=granularity)
        back = dequantize.numpy_oracle(case, dequantize.inputs(case, x))["output"]
        return x.astype(np.float64) - back

    return of


def rmse(error, axis=None):
    return np.sqrt(np.mean(error**2, axis=axis))


class TestLocal1x64:
    @pytest.mark.parametrize("seed", range(5))
    def test_is_better_with_outliers_of_1e6(self, error, seed):
        x = draw.make("spike_1e6", ROWS, COLS, "bf16", seed)
        ordinary = np.abs(x.astype(F32)) < 1e5
        window, tensor = error(x, "window"), error(x)
        assert rmse(window) < rmse(tensor)
        assert rmse(window[ordinary]) < rmse(tensor[ordinary]) / 2

    @BOTH
    @pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
    @pytest.mark.parametrize("name", ["normal", "heavy_tail", "specials_inf", "specials_nan", "zeros"])
    def test_the_largest_window_amax_is_the_amax_of_the_tensor(self, make_case, ask, name, dtype):
        x = draw.make(name, 128, 192, dtype, 3)
        windows = run(ask, make_case("local_1x64", 128, 192, dtype=dtype), x)
        whole = run(ask, make_case("per_tensor", 128, 192, dtype=dtype, stage="amax"), x)
        for name, amax in whole.items():
            np.testing.assert_array_equal(windows[name].max(), amax[0])


class TestRowScaled:
    """Rows scaled by powers of two from 2^-20 to 2^20."""

    @pytest.fixture
    def rows(self):
        base = draw.make("normal", ROWS, COLS, "bf16", 1)
        exponents = np.random.default_rng(2).permutation(np.linspace(-20, 20, ROWS).astype(int))[:, None]
        return base, np.ldexp(base.astype(F32), exponents).astype(base.dtype), exponents

    def test_loses_nothing(self, make_case, error, rows):
        """Scaling a row by a power of two scales its amax and changes no other byte, so the row keeps its SNR."""
        base, scaled, exponents = rows
        case = make_case("row_scaled", ROWS, COLS)
        reference, given = (row_scaled.numpy_oracle(case, {"input": x}) for x in (base, scaled))
        np.testing.assert_array_equal(given["rowwise_data"], reference["rowwise_data"])
        np.testing.assert_array_equal(given["rowwise_scale_inv"], reference["rowwise_scale_inv"])
        np.testing.assert_array_equal(given["rowwise_amax"], np.ldexp(reference["rowwise_amax"], exponents[:, 0]))
        np.testing.assert_array_equal(error(scaled, "row"), np.ldexp(error(base, "row"), exponents))

    def test_per_tensor_collapses(self, error, rows):
        """Below 2^-20 of the amax, one amax for all leaves nothing: the error of half of the rows is the row itself."""
        base, scaled, exponents = rows
        relative = rmse(error(scaled), axis=1) / rmse(scaled.astype(np.float64), axis=1)
        unscaled = rmse(error(base), axis=1) / rmse(base.astype(np.float64), axis=1)
        assert (relative[exponents[:, 0] < 0] == 1).all()
        assert relative.max() > 5 * unscaled.max()
