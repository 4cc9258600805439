"""The kernels around a library's product, which the emulator plays: what is right passes, each mistake is seen."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from harness import make_inputs, output_fields
from harness.contract.problem import Gemm
from harness.device.capability import incapable
from harness.device.corner import CornerProgram, TooLargeError
from harness.device.emulator import EmulatedMemory, EmulatedProgram, EmulatorDevice
from harness.device.launches import BoundLaunch, LibraryCall
from harness.device.played import play
from harness.errors import AccessError
from harness.files import KERNELS
from harness.jit.signature import LIBRARY_CALLS
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify.not_run import lines
from harness.verify.screen import screen
from harness.verify.verify import verify

BF16 = np.dtype(ml_dtypes.bfloat16)
SCALED = find_case("gemm/route=library,alpha=0.75/17x48x16/normal/eager")
ADDED = find_case("gemm/route=library,beta=0.5,bias=true/17x48x16/normal/eager")
NOTE = "played by an exact product; the library itself was not run"


class OneTarget(EmulatorDevice):
    targets = ("sm_90a",)


@pytest.mark.parametrize(
    "case_id",
    [
        "gemm/route=library,beta=0.5/9x1040x272/normal/eager",  # a line of two parts, and two columns of tiles
        "gemm/route=library,epilogue=per_token_fused,layout=nt/64x272x32/wide_sum/eager",
        "gemm/route=library,epilogue=per_token,dtype=bf16/16x16x16/specials_nan/eager",
        "gemm/route=library,dtype=fp32,alpha=-2/33x48x32/exact_sum/eager",
        "gemm/route=fastest,epilogue=row_scaled,layout=nn/513x16x16/normal/eager",
    ],
)
def test_what_is_right_passes_and_says_who_multiplied(case_id: str):
    result = verify(find_case(case_id), OneTarget())
    assert result.verdict is Verdict.PASS, result.story
    (name,) = (step.signature.name for step in plan(find_case(case_id)) if step.library)
    assert result.notes == (f"had {name} {NOTE}",)
    assert lines([result.to_record()]) == [f"1 case had {name} {NOTE}"]


# Mistakes. Each is made in a copy of the kernels.


def broken(folder: Path, case, name: str, old: str, new: str) -> Result:
    kernels = shutil.copytree(KERNELS, folder / "kernels")
    text = (kernels / name).read_text()
    assert text.count(old) == 1, old
    (kernels / name).write_text(text.replace(old, new))
    return verify(case, OneTarget(kernels=kernels))


@pytest.mark.parametrize(
    ("case", "name", "old", "new"),
    [
        (SCALED, "gemm.cu", "__fmul_rn(second, kToValue)", "__fmul_rn(first, kToValue)"),
        (SCALED, "gemm.cu", "scale_offset<scale_layout>(line, u32(col) / kBlock,",
         "scale_offset<scale_layout>(line, u32(col) / (2 * kBlock),"),
        (SCALED, "gemm.cu", "tensor_factor(a_amax, b_amax, alpha,", "tensor_factor(a_amax, b_amax, 1.0f,"),
        (ADDED, "gemm/epilogue.cuh", "to_float(p.bias[col])", "to_float(p.bias[col & ~1])"),
        (ADDED, "gemm/epilogue.cuh", "__fmaf_rn(p.beta, ", "__fmaf_rn(1.0f, "),
        (ADDED, "gemm.cu", "acc + row_offset(origin.row + row, N)", "acc + row_offset(row / 2, N)"),
    ],
    ids=["codes", "scale", "alpha", "bias", "beta", "sums"],
)  # fmt: skip
def test_a_mistake_around_the_product_is_a_mismatch(tmp_path: Path, case, name: str, old: str, new: str):
    result = broken(tmp_path, case, name, old, new)
    assert result.verdict is Verdict.MISMATCH, result.story
    (call,) = (step.signature.name for step in plan(case) if step.library)
    assert f"library   {call} was {NOTE}" in screen(result, None)


@pytest.mark.parametrize(
    ("case", "old", "new", "sentence"),
    [
        (SCALED, "if (col >= K) continue;", "if (col >= K - 8) continue;",
         "cublas_scaled_gemm: reads 1632 bytes of buffer 'a_decoded', of which 272, the first at byte 80, are bytes "
         "which nothing wrote before"),
        (SCALED, "factor[1] = 0.0f", "factor[1] = 1.0f",
         "cublas_scaled_gemm: reads 544 bytes of buffer 'output', of which 544, the first at byte 0, are bytes which"),
        (SCALED, "factor[1] = 0.0f;", "",
         "cublas_scaled_gemm: reads 8 bytes of buffer 'factor', of which 4, the first at byte 4, are bytes which"),
    ],
    ids=["operand", "beta", "no beta"],
)  # fmt: skip
def test_what_the_library_reads_has_to_be_written(tmp_path: Path, case, old: str, new: str, sentence: str):
    result = broken(tmp_path, case, "gemm.cu", old, new)
    assert result.verdict is Verdict.UNWRITTEN, result.story
    assert sentence in result.reason and result.reason.endswith(NOTE)


# A launch behind a library's


def program_of(case, early: bool) -> EmulatedProgram:
    launches = OneTarget().launches(case, "sm_90a")
    *others, last = launches.bound
    assert isinstance(last, BoundLaunch)
    bound = (*others, replace(last, early=early))
    return EmulatedProgram(replace(launches, bound=bound), case, make_inputs(case), output_fields(case))


def test_a_kernel_that_begins_before_the_library_has_ended_waits_for_it():
    assert not program_of(ADDED, early=False).run(0xA5, 0).trespass
    with pytest.raises(
        AccessError, match=r"launch 2 \(cublas_gemm\) wrote and may not have ended: no griddepcontrol.wait"
    ):
        program_of(ADDED, early=True).run(0xA5, 0)


# The call itself


def call_of(name: str, arrays: Mapping[str, np.ndarray], m: int, k: int, n: int, dtype: str = "bf16"):
    """A call on these arrays, of which an empty one is not written, and their buffers."""
    memory, signature = EmulatedMemory(), LIBRARY_CALLS[name]
    for key, array in arrays.items():
        written = key not in ("acc", "output")
        memory.put(key, array.reshape(-1).view(np.uint8), initialised=written)
    numbers = {"M": m, "K": k, "N": n}

    def arguments(arrays):
        return (
            (each.type, arrays.arrays[each.name] if each.pointer else numbers[each.name]) for each in signature.call
        )

    step = SimpleNamespace(signature=signature, flags=SimpleNamespace(dtype=dtype))
    return LibraryCall(step, arguments), memory


@pytest.mark.parametrize(("m", "k", "n"), [(1, 16, 48), (5, 32, 16)])
def test_sums_of_any_bf16_are_exact_and_rounded_once(m: int, k: int, n: int):
    rng = np.random.default_rng(m)
    a, b = ((rng.normal(size=shape) * 2.0 ** rng.integers(-60, 60, shape)).astype(BF16) for shape in ((m, k), (n, k)))
    b[0] = np.resize([1, 2.0**-12, -1], k).astype(BF16)
    a[0] = np.resize([1, 2.0**-12, 1], k).astype(BF16)
    acc = np.full((m, n), np.nan, np.float32)
    call, memory = call_of("cublas_gemm", {"a_decoded": a, "b_decoded": b, "acc": acc}, m, k, n)
    play(call, memory)
    for row in range(m):
        for column in range(n):
            exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[row], b[column], strict=True))
            own = float(acc[row, column])
            ends = (float(np.nextafter(np.float32(own), np.float32(end))) for end in (-np.inf, np.inf))
            assert all(abs(Fraction(own) - exact) <= abs(Fraction(end) - exact) for end in ends)


def test_the_epilogue_of_a_scaled_product_is_of_float32_steps():
    a, b = np.ones((1, 16), BF16), np.ones((16, 16), BF16)
    a[0, 1:], b[1] = 0, -1
    given = {"a_decoded": a, "b_decoded": b, "factor": np.array([1 / 3, 0], np.float32)}
    for dtype, kind in (("bf16", BF16), ("fp32", np.dtype(np.float32))):
        output = np.full((1, 16), np.nan, kind)
        call, memory = call_of("cublas_scaled_gemm", {**given, "output": output}, 1, 16, 16, dtype)
        touched = play(call, memory)
        assert output[0, :2].tolist() == [kind.type(np.float32(1 / 3)), kind.type(-np.float32(1 / 3))]
        assert [each.name for each in touched.read] == ["a_decoded", "b_decoded", "factor"]
        assert [each.name for each in touched.written] == ["output"] and memory.arrays["output"].written.all()
        with_beta = {**given, "factor": np.array([2, 0.5], np.float32), "output": output}
        call, memory = call_of("cublas_scaled_gemm", with_beta, 1, 16, 16, dtype)
        memory.arrays["output"].written[:] = 1
        play(call, memory)
        assert output[0, 1] == kind.type(np.float32(0.5) * np.float32(kind.type(-np.float32(1 / 3))) - 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"a_decoded": np.ones(255, BF16)}, "reads 512 bytes of buffer 'a_decoded', which has 510 bytes"),
        ({"acc": np.zeros(255, np.float32)}, "writes 1024 bytes of buffer 'acc', which has 1020 bytes"),
    ],
)
def test_arrays_that_are_too_small(change: Mapping[str, np.ndarray], sentence: str):
    square = np.ones((16, 16), BF16)
    arrays = {"a_decoded": square, "b_decoded": square, "acc": np.zeros((16, 16), np.float32), **change}
    call, memory = call_of("cublas_gemm", arrays, 16, 16, 16)
    with pytest.raises(AccessError, match=f"{sentence}; {NOTE}") as raised:
        play(call, memory)
    assert (raised.value.kind, raised.value.where) == ("out_of_bounds", "cublas_gemm")


def test_what_may_only_be_read_is_not_written():
    square = np.ones((16, 16), BF16)
    arrays = {"a_decoded": square, "b_decoded": square, "acc": np.zeros((17, 16), np.float32)}
    call, memory = call_of("cublas_gemm", arrays, 16, 16, 16)
    play(call, memory)
    assert not arrays["acc"][16].any() and not memory.arrays["acc"].written[1024:].any()
    memory.arrays["acc"].writable = False
    with pytest.raises(AccessError, match="writes 1024 bytes of buffer 'acc', which is read-only"):
        play(call, memory)


# Calls that are not played


def test_a_product_that_is_too_large_and_a_call_that_is_not_known(monkeypatch: pytest.MonkeyPatch):
    device = EmulatorDevice()
    assert incapable(replace(SCALED, problem=Gemm(256, 1024, 256)), device) == ""
    larger = replace(SCALED, problem=Gemm(272, 1024, 256))
    assert incapable(larger, device) == "capability: a product of more than 67108864 terms needs a GPU"
    monkeypatch.setattr("harness.device.emulator.PLAYED", ("cublas_gemm",))
    reason = "capability: cublas_scaled_gemm is machine code of a library, which needs a GPU"
    assert incapable(SCALED, device) == reason


def test_the_end_of_a_larger_product_is_not_played():
    launches = OneTarget().launches(SCALED, "sm_90a")
    program = CornerProgram(launches, [each.grids for each in launches.of_kernels], SCALED, {}, {}, {})
    (call,) = (each for each in launches.bound if isinstance(each, LibraryCall))
    with pytest.raises(TooLargeError, match="cublas_scaled_gemm is played whole"):
        program._play(call, EmulatedMemory())
