"""A kernel that does not compile is told with its line; what else is wrong of kernels is in test_mutants.py."""

import shutil

from harness.device.emulator import EmulatorDevice
from harness.files import KERNELS
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify


def test_a_line_that_does_not_compile(tmp_path):
    kernels = shutil.copytree(KERNELS, tmp_path / "kernels")
    source = (kernels / "per_tensor.cu").read_text()
    (kernels / "per_tensor.cu").write_text(source.replace("cols / kBlock);", "cols / kBloc);"))
    case = "per_tensor/outputs=rowwise/48x80/normal/eager"
    result = verify(find_case(case), EmulatorDevice(kernels=kernels))
    assert (result.verdict, 'identifier "kBloc" is undefined' in result.story) == (Verdict.COMPILE_ERROR, True)


def test_an_instruction_that_one_target_lacks(tmp_path):
    """The PTX that the emulator runs never met ptxas, which would refuse it."""
    kernels = shutil.copytree(KERNELS, tmp_path / "kernels")
    source = (kernels / "per_tensor.cu").read_text()
    line = 'asm volatile("{ .reg .b8 b; cvt.rn.satfinite.e2m1x2.f32 b, %0, %0; }" :: "f"(1.0f));'
    (kernels / "per_tensor.cu").write_text(source.replace("cols / kBlock);", f"cols / kBlock); {line}"))
    result = verify(find_case("per_tensor/outputs=rowwise/48x80/normal/eager"), EmulatorDevice(kernels=kernels))
    assert result.verdict is Verdict.COMPILE_ERROR
    assert "cvt.rn.satfinite.e2m1x2.f32 at per_tensor.cu:" in result.reason
    assert result.reason.endswith("and this is compiled for sm_90a")
