"""The kernels around a library's product, on the emulator, with NumPy for the library."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from harness import compare_outputs, make_inputs, output_fields
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.device.launches import LibraryCall
from harness.suite.suite import find_case


class WithProduct(EmulatedProgram):
    """Launches our kernels, and multiplies what gemm_decode wrote where the library would."""

    def _launch(self, each, memory, *more):
        if not isinstance(each, LibraryCall):
            return super()._launch(each, memory, *more)
        arrays = memory.arrays
        m, n, k = (each.step.case.problem.numbers[name] for name in "MNK")
        a, b = (
            arrays[name].data.view(ml_dtypes.bfloat16).reshape(-1, k).astype(np.float64)
            for name in ("a_decoded", "b_decoded")
        )
        assert (len(a), len(b)) == (m, n)
        arrays["acc"].data[:] = (a @ b.T).astype(np.float32).reshape(-1).view(np.uint8)
        arrays["acc"].written[:] = 1
        return type("Nothing", (), {"approximated": ()})


@pytest.mark.parametrize("flags", ["beta=0.5", "epilogue=row_scaled,bias=true", "epilogue=per_token_fused"])
def test_a_line_of_two_parts_and_two_columns_of_tiles(flags: str) -> None:
    case = find_case(f"gemm/route=library,{flags}/80x1040x272/normal/eager")
    launches = EmulatorDevice().launches(case, "sm_90a")
    program = WithProduct(launches, case, make_inputs(case), output_fields(case))
    for repeat in range(3):
        done = program.run(0xA5, repeat)
        found = {
            name: done.outputs[name].view(field.dtype).reshape(field.shape) for name, field in program.fields.items()
        }
        assert not compare_outputs(case, found)
