"""One case from Python: inputs, kernel, oracles, verdict, and the screen for two results."""

from __future__ import annotations

import numpy as np
import pytest

import harness
from harness.errors import DeviceUnavailable, UsageError

ID = "swizzle/direction=columnwise/48x80/normal/eager"
LARGE = "swizzle/default/8192x8192/normal/eager"
QUANTIZER = "per_tensor/outputs=rowwise/48x80/normal/eager"


def test_kernel_and_oracles_agree():
    case = harness.find_case(QUANTIZER)
    inputs = harness.make_inputs(case)
    written = harness.run_kernel(case, "emulator", "sm_100a", inputs)
    for oracle in ("numpy", "torch"):
        answer = harness.ask_oracle(case, oracle, inputs)
        assert written.keys() == answer.keys() == harness.output_fields(case).keys()
        assert all(written[name].tobytes() == answer[name].tobytes() for name in written)
    assert harness.compare_outputs(case, written) == ""
    assert harness.verify_case(case, "emulator").verdict is harness.Verdict.PASS


def test_other_inputs_give_other_bytes_that_pass_as_well():
    case = harness.find_case(QUANTIZER)
    inputs = {name: np.roll(array, 1, axis=0) for name, array in harness.make_inputs(case).items()}
    assert harness.verify_case(case, "emulator", inputs).verdict is harness.Verdict.PASS
    changed = harness.run_kernel(case, "emulator", inputs=inputs)
    screen = harness.compare_outputs(case, changed)
    assert screen.startswith(f"MISMATCH  {QUANTIZER}  on your arrays")
    assert "reproduce" not in screen, "our kernel has not written them"
    assert harness.compare_outputs(case, changed, inputs=inputs) == ""


def test_a_wrong_byte_gets_the_screen_with_its_cause():
    written = {name: array.copy() for name, array in harness.ask_oracle(QUANTIZER).items()}
    codes = written["rowwise_data"]
    codes[:] = codes >> 4 | codes << 4
    screen = harness.compare_outputs(QUANTIZER, written)
    assert "cause     nibble" in screen and "entries differ" in screen


def test_two_results_are_compared_without_an_oracle():
    one = harness.ask_oracle(ID)
    assert harness.compare_outputs(ID, one, one) == ""
    other = {name: array ^ 1 for name, array in one.items()}
    assert "512 of 512 entries differ" in harness.compare_outputs(ID, other, one)


def test_an_interval_takes_what_is_inside():
    case = harness.find_case("gemm/default/16x64x16/normal/eager")
    interval = harness.ask_oracle(case)["output"]
    assert isinstance(interval, harness.Interval)
    assert harness.compare_outputs(case, {"output": interval.low}) == ""
    assert "outside" in harness.compare_outputs(case, {"output": np.full_like(interval.low, 1e9)})


ON_A_CASE = (
    harness.make_inputs,
    harness.output_fields,
    harness.run_kernel,
    harness.ask_oracle,
    harness.verify_case,
    lambda case: harness.compare_outputs(case, {}),
)


@pytest.mark.parametrize(
    ("ask", "kind", "sentence"),
    [
        *(
            (lambda ask=ask: ask(None), UsageError, "case is a NoneType; it must be a Case, or the id of one")
            for ask in ON_A_CASE
        ),
        (
            lambda: harness.run_kernel(ID, "emulator", inputs=3),
            UsageError,
            "inputs is a int; it must have arrays by name",
        ),
        (lambda: harness.ask_oracle(ID, inputs=[np.zeros(3)]), UsageError, "inputs is a list; it must have arrays by"),
        (lambda: harness.compare_outputs(ID, None), UsageError, "actual is a NoneType; it must have arrays by name"),
        (lambda: harness.compare_outputs(ID, harness.ask_oracle(ID), 3), UsageError, "expect is a int; it must have"),
        (
            lambda: harness.compare_outputs(ID, harness.quantize(np.zeros((64, 16), np.float32), outputs="columnwise")),
            UsageError,
            "actual ",
        ),
        (lambda: harness.make_inputs("per_tensor/default/65536x16777216/normal/eager"), UsageError, "GiB of memory"),
        (lambda: harness.run_kernel(ID, "gpu"), UsageError, "there is no device 'gpu'"),
        (lambda: harness.run_kernel(ID, "emulator", "sm_75"), UsageError, "has no target 'sm_75'"),
        (
            lambda: harness.run_kernel("swizzle/default/8192x8192/normal/eager", "emulator"),
            DeviceUnavailable,
            "need a GPU",
        ),
        (lambda: harness.run_kernel(ID, "emulator", inputs={}), UsageError, "inputs lack 'scale_inv'"),
        (lambda: harness.ask_oracle(ID, "jax"), UsageError, "there is no oracle 'jax'"),
        (lambda: harness.ask_oracle(ID, inputs={"scale_inv": np.zeros(3, np.uint8)}), UsageError, "reads uint8"),
        (lambda: harness.compare_outputs(ID, {}), UsageError, "lacks the field 'swizzled_scale_inv'"),
        (
            lambda: harness.compare_outputs(ID, {"swizzled_scale_inv": np.zeros((1, 1), np.uint8)}),
            UsageError,
            "it must be uint8",
        ),
        (
            lambda: harness.compare_outputs(ID, {"swizzled_scale_inv": np.zeros((256, 8), np.uint8)[::2, ::2]}),
            UsageError,
            "is not contiguous",
        ),
    ],
)
def test_a_mistake_is_one_sentence(ask, kind, sentence):
    with pytest.raises(kind, match=sentence) as caught:
        ask()
    assert "\n" not in str(caught.value)


PRODUCT = "gemm/default/1x16x16/normal/eager"


def swapped() -> dict:
    written = harness.ask_oracle(QUANTIZER)
    return {name: array.astype(array.dtype.newbyteorder(">")) for name, array in written.items()}


def as_float8() -> dict:
    import torch

    written = harness.ask_oracle(QUANTIZER)
    scales = torch.from_numpy(written["rowwise_scale_inv"]).view(torch.float8_e5m2)
    return written | {"rowwise_scale_inv": scales}


@pytest.mark.parametrize(
    ("case", "actual", "sentence"),
    [
        (QUANTIZER, swapped, "actual['rowwise_amax'] is >f4 (1,); it must be float32 (1,)"),
        (QUANTIZER, as_float8, "there is a torch.float8_e5m2 tensor; pass its bytes, .view(torch.uint8)"),
        (QUANTIZER, lambda: harness.ask_oracle(QUANTIZER) | {"x": 1}, "actual has 'x', which nothing reads; there are"),
        (PRODUCT, lambda: harness.ask_oracle(PRODUCT), "actual['output'] is an interval, which has no bytes; give it"),
    ],
    ids=["bytes in the other order", "a dtype that NumPy lacks", "a field too many", "an interval"],
)
def test_arrays_that_are_not_the_fields_are_refused(case, actual, sentence):
    with pytest.raises(UsageError) as told:
        harness.compare_outputs(case, actual())
    assert sentence in str(told.value)


def test_a_gpu_that_is_not_there_is_told():
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:
        with pytest.raises(DeviceUnavailable, match="device 'cuda'"):
            harness.run_kernel(ID, "cuda")


def test_inputs_that_are_written_over_change_no_answer():
    inputs = harness.make_inputs(QUANTIZER)
    inputs["input"][...] = 1
    wrong = harness.ask_oracle(QUANTIZER, "numpy", inputs)
    assert harness.compare_outputs(QUANTIZER, wrong).startswith("MISMATCH")
    assert harness.verify_case(QUANTIZER, "emulator").verdict is harness.Verdict.PASS


def test_an_input_that_no_kernel_reads_is_refused():
    with pytest.raises(UsageError, match="inputs has 'x', which nothing reads; there are input"):
        harness.run_kernel(QUANTIZER, "emulator", inputs=harness.make_inputs(QUANTIZER) | {"x": 1})
