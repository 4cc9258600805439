"""d-activations against rational steps and float64 formulas, and the order in which a bias gradient is summed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from quantized import agree, assert_refused, assert_same

from harness.errors import ContractError
from harness.expected.expected import high_precision
from harness.oracles import activations, grouped, nvfp4, per_tensor, torch_activations, torch_grouped

F32, F64 = np.float32, np.float64
BF16 = nvfp4.DTYPES["bf16"]


def every(dtype):
    """All 65,536 values of bf16 or fp16, as float32."""
    return np.arange(1 << 16, dtype=np.uint16).view(nvfp4.DTYPES[dtype]).astype(F32)


def spread():
    """Full mantissas over the magnitudes at which the activations bend."""
    rng = np.random.default_rng(21)
    x = np.ldexp(rng.uniform(1, 2, 1 << 16), rng.integers(-30, 8, 1 << 16)) * rng.choice([-1, 1], 1 << 16)
    return x.astype(F32)


def rn(value):
    return F64(F32(value))


@np.errstate(all="ignore")
def stepwise(name, x):
    """The stated steps in float64, each rounded to float32: exact before that for +, - and *, twice rounded for /.

    A float64 holds the product of two float32 exactly, and a sum or a quotient that is rounded to 53 bits and then to
    24 is rounded as if once.
    """
    x = F64(x)
    if name == "drelu":
        return F64(x > 0)
    if name == "dsrelu":
        return np.where(x > 0, rn(2 * x), 0)
    if name == "dgelu":
        a, b, c = F64(F32(0.79788456)), F64(F32(0.044715)), F64(F32(0.1070322243))
        t = rn(np.tanh(rn(rn(a * x) * rn(1 + rn(rn(b * x) * x)))))
        bend = rn(rn(0.5 * x) * rn(rn(1 - rn(t * t)) * rn(a + rn(rn(c * x) * x))))
        return rn(bend + rn(0.5 * rn(1 + t)))
    y = rn(F64(F32(1.702)) * x) if name == "dqgelu" else x
    s = rn(1 / rn(1 + rn(np.exp(-y))))
    return rn(rn(rn(y * s) * rn(1 - s)) + s)


@np.errstate(all="ignore")
def calculus(name, x):
    """The derivative in float64, and the magnitude of the largest term that rounds on the way to it."""
    x = F64(x)
    if name == "drelu":
        return F64(x > 0), np.ones_like(x)
    if name == "dsrelu":
        return 2 * np.maximum(x, 0), 2 * np.abs(x)
    if name == "dgelu":
        root, cubic = np.sqrt(2 / np.pi), 0.044715
        t = np.tanh(root * (x + cubic * x**3))
        slope = root * (1 + 3 * cubic * x * x)
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope, 1 + np.abs(0.5 * x * slope)
    alpha = 1.702 if name == "dqgelu" else 1
    s = 1 / (1 + np.exp(-alpha * x))
    return s * (1 + alpha * x * (1 - s)), 1 + np.abs(alpha * x)


def numpy_derivative(name, x):
    return activations.activated(name, np.ones_like(x), x)


def torch_derivative(name, x):
    return torch_activations.dact(name, torch.ones(x.shape), torch.from_numpy(x)).numpy()


@pytest.mark.parametrize("derivative", [numpy_derivative, torch_derivative])
@pytest.mark.parametrize("name", activations.DERIVATIVES)
class TestDerivatives:
    @pytest.mark.parametrize("values", ["bf16", "fp16", "spread"])
    def test_rounds_where_it_is_written(self, derivative, name, values):
        x = spread() if values == "spread" else every(values)
        given, expected = derivative(name, x), stepwise(name, x)
        np.testing.assert_array_equal(given, expected)
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(given)[number], np.signbit(expected)[number])

    @pytest.mark.parametrize("values", ["bf16", "fp16", "spread"])
    def test_is_the_derivative(self, derivative, name, values):
        """Within an ulp of the largest term, wherever the formula is finite: 2^-23 of it."""
        x = spread() if values == "spread" else every(values)
        x = x[np.abs(x) < 80]
        expected, largest = calculus(name, x)
        assert (np.abs(derivative(name, x) - expected) <= 2.0**-23 * largest).all()

    def test_at_the_ends(self, derivative, name):
        with np.errstate(all="ignore"):
            given = derivative(name, np.array([0, -0.0, 100, -100, np.nan], F32))
        at_zero = {"drelu": 0, "dsrelu": 0}.get(name, 0.5)
        assert given[:2].tolist() == [at_zero] * 2
        assert given[2] == (200 if name == "dsrelu" else 1)
        assert given[3] == 0
        assert given[4] == 0 if "relu" in name else np.isnan(given[4])


@np.errstate(all="ignore")
def stepwise_swiglu(gate, up, grad=None):
    """The steps of NUMERICS 8.3 as `stepwise` takes them: h, or with `grad` the gradients of gate and up."""
    x, u = F64(gate), F64(up)
    s = rn(1 / rn(1 + rn(np.exp(-x))))
    a = rn(x * s)
    if grad is None:
        return rn(a * u)
    g = F64(grad)
    return np.hstack([rn(rn(rn(rn(a * rn(1 - s)) + s) * g) * u), rn(g * a)])


def corners(dtype):
    """Every sign and size of gate, of up and of gradient beside each other: (gates, ups, gradients), a row each."""
    edges = [0, 1.5, 88.5, 88.75, 104, np.inf, np.nan, 2.0**-133, 87.5]
    some = np.array([*edges, *(-edge for edge in edges)], nvfp4.DTYPES[dtype])
    each = np.stack([part.ravel() for part in np.meshgrid(some, some, some, indexing="ij")])
    return np.pad(each, ((0, 0), (0, -each.shape[1] % 16)))


class TestSwiglu:
    """Both oracles of per_tensor, fused, are those of per_tensor on h by other hands."""

    @pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
    @pytest.mark.parametrize("values", ["drawn", "corners"])
    @pytest.mark.parametrize("activation", activations.GATED)
    def test_is_its_steps_and_then_the_quantizer(self, make_case, activation, values, dtype):
        backward = activation == "dswiglu"
        if values == "corners":
            gate, up, grad = (part[None].repeat(16, 0) for part in corners(dtype))
        else:
            gate, up, grad = np.random.default_rng(31).normal(0, 3, (3, 48, 80)).astype(nvfp4.DTYPES[dtype])
        h = nvfp4.convert(F32(stepwise_swiglu(gate, up, grad if backward else None)), dtype)
        rows, cols = h.shape
        fused = make_case("per_tensor", rows, cols, dtype=dtype, activation=activation)
        plain = make_case("per_tensor", rows, cols, dtype=dtype)
        halves = np.hstack([gate, up])
        read = {"input": grad, "act_input": halves} if backward else {"input": halves}
        with np.errstate(all="ignore"):
            assert_same(agree(fused, read), agree(plain, {"input": h}))

    @pytest.mark.parametrize("activation", activations.GATED)
    def test_each_tensor_of_a_group_has_the_bytes_that_it_has_alone(self, make_case, make_group, activation):
        case = make_group("128+0+256of512x96", activation=activation, outputs="columnwise", rht=True)
        tensors, fields = grouped.inputs(case, **high_precision(case)), grouped.outputs(case)
        given, start = agree(case, tensors), 0
        for number, (rows, cols) in enumerate(case.problem.tensors):
            end = start + rows * cols
            read = {"input": (rows, activations.input_elements(case, cols)), "act_input": (rows, cols)}
            own = {
                name: tensors[name][start * shape[1] // cols : end * shape[1] // cols].reshape(shape)
                for name, shape in read.items()
                if name in tensors
            }
            start = end
            alone = make_case("per_tensor", rows, cols, activation=activation, outputs="columnwise", rht=True)
            if rows:
                expected = per_tensor.numpy_oracle(alone, own)
                assert_same({name: fields[name].part(given[name], number) for name in expected}, expected)

    @pytest.mark.parametrize(
        ("flags", "says"),
        [
            ({"recipe": "per_token"}, "recipe must be per_tensor, not per_token"),
            ({"dbias": True}, "dbias must be false, not true"),
            ({"shape_representation": "varying_last_dim"}, "activation must be none, not swiglu"),
            ({"activation": "dswiglu", "stage": "encode"}, "stage must not be encode with dswiglu"),
        ],
    )
    def test_refusals_of_groups(self, make_group, flags, says):
        shape = "96x32+64" if "shape_representation" in flags else "32+64x96"
        with pytest.raises(ContractError, match=says):
            grouped.outputs(make_group(shape, **{"activation": "swiglu", **flags}))

    def test_what_is_drawn_is_laid_out_as_kernels_read_it(self, make_case):
        ups, gates = np.arange(2 * 16 * 32, dtype=F32).reshape(2, 16, 32)
        read = activations.gated_inputs("swiglu", ups, gates)
        assert list(read) == ["input"]
        assert (read["input"][:, :32] == gates).all() and (read["input"][:, 32:] == ups).all()
        read = activations.gated_inputs("dswiglu", ups, gates)
        assert (read["input"] == ups[:, :16]).all() and read["act_input"] is gates

    @pytest.mark.parametrize(
        ("cols", "flags", "says"),
        [
            (80, {"activation": "dswiglu"}, "cols must be a multiple of 32 with dswiglu"),
            (96, {"activation": "dswiglu", "stage": "encode"}, "no source has its amax before it"),
            (96, {"activation": "swiglu", "block": "block_16x16"}, "block must be block_1x16 with swiglu"),
            (96, {"activation": "dsilu"}, "activation must be none, swiglu or dswiglu, not dsilu"),
        ],
    )
    def test_refusals(self, make_case, cols, flags, says):
        assert_refused(per_tensor, make_case("per_tensor", 48, cols, **flags), says)


def sums(v):
    """Both oracles' bias gradient of a (rows, cols) float32 matrix."""
    one = activations.bias_gradient(v)
    np.testing.assert_array_equal(one, torch_grouped.column_sums(torch.from_numpy(v)).numpy())
    return one


class TestBiasGradient:
    def test_order_by_hand(self):
        """2^24 swallows a 1 that follows it: chunks of 128 rows, from the first row on, and chunks in order."""
        v = np.zeros((384, 5), F32)
        v[0, 0], v[1:128, 0] = 2**24, 1  # each 1 is lost
        v[:127, 1], v[127, 1] = 1, 2**24  # 127 are there before, and the sum rounds once
        v[127, 2], v[128:384, 2] = 2**24, 1  # chunks of 128 ones are not lost
        v[0, 3], v[128, 3], v[256, 3] = 1, 2**24, -(2**24)  # the 1 is lost: chunk 0 + chunk 1 comes first
        v[0, 4], v[128, 4], v[256, 4] = 2**24, -(2**24), 1  # ... and here it stays
        assert sums(v).tolist() == [2**24, 2**24 + 128, 2**24 + 256, 0, 1]

    def test_other_orders_give_other_bytes(self):
        """The input that tells them apart: forwards, backwards, without chunks, in a tree, with chunks of 64."""
        v = np.random.default_rng(22).standard_normal((512, 64)).astype(F32)

        def forwards(rows):
            total = np.zeros(rows.shape[1], F32)
            for row in rows:
                total = total + row
            return total

        def tree(rows):
            while len(rows) > 1:
                rows = rows[: len(rows) // 2] + rows[len(rows) // 2 :]
            return rows[0]

        chunks = [forwards(v[first : first + 128]) for first in range(0, 512, 128)]
        expected = forwards(np.stack(chunks))
        np.testing.assert_array_equal(sums(v), expected)
        others = {
            "no chunks": forwards(v),
            "backwards": forwards(v[::-1]),
            "chunks backwards": forwards(np.stack(chunks[::-1])),
            "a tree of chunks": tree(np.stack(chunks)),
            "a tree": tree(v),
            "chunks of 64": forwards(np.stack([forwards(v[first : first + 64]) for first in range(0, 512, 64)])),
            "float64": v.astype(F64).sum(axis=0).astype(F32),
        }
        assert [name for name, other in others.items() if (other == expected).all()] == []

    def test_a_last_chunk_of_fewer_rows_and_none_at_all(self):
        v = np.random.default_rng(23).standard_normal((144, 3)).astype(F32)
        np.testing.assert_array_equal(sums(v), sums(v[:128]) + sums(v[128:]))
        assert sums(v[:0]).tobytes() == bytes(12)
        assert sums(np.full((128, 2), -0.0, F32)).tobytes() == bytes(8)

    @pytest.mark.parametrize("dtype", nvfp4.DTYPES)
    def test_it_sums_before_the_rounding_and_the_quantizer_sees_after(self, make_group, dtype):
        case = make_group("128+0+256x128", dtype=dtype, activation="dsilu", dbias=True)
        made = high_precision(case)
        given = grouped.numpy_oracle(case, grouped.inputs(case, **made))
        assert given["dbias"].shape == (3, 128) and given["dbias"].dtype == nvfp4.DTYPES[dtype]
        v = made["x"].astype(F32) * activations.DERIVATIVES["dsilu"](made["act_input"].astype(F32))
        first, rounded = v[: 128 * 128].reshape(128, 128), v.astype(nvfp4.DTYPES[dtype])
        np.testing.assert_array_equal(given["dbias"][0], sums(first).astype(nvfp4.DTYPES[dtype]))
        assert not given["dbias"][1].any()
        plain = make_group("128+0+256x128", dtype=dtype)
        expected = grouped.numpy_oracle(plain, grouped.inputs(plain, rounded))
        assert_same({name: given[name] for name in expected}, expected)
        if dtype != "fp32":
            late = sums(rounded[: 128 * 128].astype(F32).reshape(128, 128)).astype(nvfp4.DTYPES[dtype])
            assert (late != given["dbias"][0]).any()

    def test_it_belongs_to_the_read_that_finds_the_amaxes(self, make_group):
        for stage in ("full", "amax"):
            assert "dbias" in grouped.outputs(make_group("128x128", dbias=True, stage=stage))

    @pytest.mark.parametrize("dtype", nvfp4.DTYPES)
    def test_nan_inf_and_overflow(self, make_group, dtype):
        """A NaN is stored as the hardware's conversions store it; a sum beyond the dtype is inf."""
        case = make_group("128x128", dtype=dtype, dbias=True)
        x = np.zeros((128, 128), nvfp4.DTYPES[dtype])
        x[5, 0], x[6, 0] = np.inf, -np.inf
        x[5, 1] = np.nan
        x[5, 2] = -np.inf
        x[:, 3] = nvfp4.ml_dtypes.finfo(x.dtype).max
        with np.errstate(all="ignore"):
            given = agree(case, grouped.inputs(case, x.ravel()))["dbias"]
        whole = {"bf16": np.uint16, "fp16": np.uint16, "fp32": np.uint32}[dtype]
        nan = 0x7FFFFFFF if dtype == "fp32" else 0x7FFF
        assert given.view(whole)[0, :2].tolist() == [nan, nan]
        assert given.astype(F32)[0, 2:4].tolist() == [-np.inf, np.inf]
