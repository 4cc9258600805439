"""Kernels on the emulator: grids that no smoke set has, targets of no machine of ours, and sources that are wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from emulated import output_of

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.errors import NotCapable
from harness.expected.expected import expect
from harness.files import KERNELS
from harness.jit.compile import ON_REQUEST
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.verify import verify

GROUPED = [
    "grouped/rht=true,rounding=sr/0+128+0+0+256x80/normal/eager",
    "grouped/recipe=per_token,rht=true,rounding=sr,resident=false/0+128+0+0+256x384/outliers_cols/eager",
    "grouped/dtype=fp32,shape_representation=same_both_dims,dbias=true/2*272x16/heavy_tail/eager",
    "grouped/shape_representation=same_both_dims/3*16x48/normal/eager",
]
PER_TOKEN = [  # fewer CTAs than strips of columns; more rows for a CTA than it holds; teams of unequal shares
    "per_token/rht=true,stage=amax/128x1408/row_scales/eager",
    "per_token/stage=amax/4864x128/row_scales/eager",
    "per_token/rht=true,stage=amax/384x640/row_scales/eager",
    "per_token/stage=amax,weight_2d=true/256x384/row_scales/eager",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case_id", "multiprocessors"),
    [*((case, n) for case in GROUPED for n in (1, 2, 7)), *((case, n) for case in PER_TOKEN for n in (1, 3))],
)
def test_the_grid_changes_no_byte(case_id: str, multiprocessors: int):
    result = verify(find_case(case_id), EmulatorDevice(multiprocessors=multiprocessors))
    assert result.verdict is Verdict.PASS, result.story


@pytest.mark.parametrize("target", EmulatorDevice.targets)
def test_the_fused_epilogue_with_unit_amaxes_is_the_plain_kernel(target):
    fused, plain = (
        find_case(f"gemm_ordered/epilogue={name}/1x128x128/normal/eager") for name in ("per_token_fused", "per_token")
    )
    tensors = dict(expect(fused).inputs)
    assert (output_of(fused, target, tensors) != output_of(plain, target, tensors)).any()
    tensors |= {name: np.ones_like(tensors[name]) for name in ("a_amax", "b_amax")}
    np.testing.assert_array_equal(output_of(fused, target, tensors), output_of(plain, target, tensors))


class OtherTargets(EmulatorDevice):
    targets = ON_REQUEST


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(path.stem for path in KERNELS.glob("*.cu")))
def test_a_small_case_of_each_recipe_passes_on_other_targets(recipe: str):
    device = OtherTargets()

    def runs(case: Case) -> bool:
        try:
            device.admit(case)
        except NotCapable:
            return False
        return True

    cases = [case for case in suite_of(recipe).cases("smoke") if runs(case)]
    # Stochastic rounding is what other libraries lost on these targets (TransformerEngine#3281).
    cases.sort(key=lambda case: (case.flags.get("rounding") != "sr", case.elements + case.terms // 64))
    result = verify(cases[0], device)
    assert result.verdict is Verdict.PASS, result.story
    assert {name.partition(" ")[0] for name in result.instantiations} == set(ON_REQUEST)


# What else is wrong of kernels is in test_mutants.py.


def wrong(folder: Path, old: str, new: str):
    """The verdict on per_tensor with another text in its kernel."""
    kernels = shutil.copytree(KERNELS, folder / "kernels")
    source = kernels / "per_tensor.cu"
    source.write_text(source.read_text().replace(old, new))
    return verify(find_case("per_tensor/outputs=rowwise/48x80/normal/eager"), EmulatorDevice(kernels=kernels))


def test_a_line_that_does_not_compile(tmp_path: Path):
    result = wrong(tmp_path, "cols / kBlock);", "cols / kBloc);")
    assert (result.verdict, 'identifier "kBloc" is undefined' in result.story) == (Verdict.COMPILE_ERROR, True)


def test_an_instruction_that_one_target_lacks(tmp_path: Path):
    """The PTX that the emulator runs never met ptxas, which would refuse it."""
    line = 'asm volatile("{ .reg .b8 b; cvt.rn.satfinite.e2m1x2.f32 b, %0, %0; }" :: "f"(1.0f));'
    result = wrong(tmp_path, "cols / kBlock);", f"cols / kBlock); {line}")
    assert result.verdict is Verdict.COMPILE_ERROR
    assert "cvt.rn.satfinite.e2m1x2.f32 at per_tensor.cu:" in result.reason
    assert result.reason.endswith("and this is compiled for sm_90a")
