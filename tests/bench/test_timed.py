"""Timed launches are compared in every byte, a digest tells programs apart, and times are of the median round."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from harness.bench.rounds import Baseline, Round
from harness.bench.timed import WrongBytesError, digest, require_right
from harness.bench.times import Timing, times
from harness.device.device import Outcome
from harness.suite.suite import find_case
from harness.verdict import Verdict

FIELDS = ("data", "scale_inv", "amax")
DEVICE = SimpleNamespace(accepts=lambda ours, demanded: ours.tobytes() == demanded.tobytes())


def outputs(**changes: int) -> dict[str, np.ndarray]:
    return {name: np.full(4, changes.get(name, 7), np.uint8) for name in FIELDS}


EXPECTED = SimpleNamespace(fields=dict.fromkeys(FIELDS), values=outputs())


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("copy", [0, 1])
def test_a_byte_of_any_field_of_any_copy_is_found_wrong(name: str, copy: int):
    outcomes = [
        (f"copy {number + 1} of 2", Outcome(outputs(**({name: 8} if number == copy else {})))) for number in (0, 1)
    ]
    with pytest.raises(WrongBytesError, match=f"after timing, bytes differ in {name} of copy {copy + 1} of 2") as wrong:
        require_right(DEVICE, outcomes, EXPECTED)
    assert wrong.value.verdict is Verdict.NONDETERMINISTIC


def test_right_bytes_with_a_write_beside_them_are_out_of_bounds():
    require_right(DEVICE, [("copy 1 of 1", Outcome(outputs()))], EXPECTED)
    with pytest.raises(WrongBytesError, match="after timing, copy 1 of 1: output 'data': 1 bytes after it") as wrong:
        require_right(DEVICE, [("copy 1 of 1", Outcome(outputs(), "output 'data': 1 bytes after it"))], EXPECTED)
    assert wrong.value.verdict is Verdict.OUT_OF_BOUNDS


def test_programs_that_do_other_things_on_the_gpu_have_other_digests():
    def program(codes=("a", "b"), grids=((1, 1, 1), (2, 1, 1)), early=(1,), libraries=("product of cuBLAS 13.0",)):
        kernels = [SimpleNamespace(code_digest=code) for code in codes]
        return SimpleNamespace(kernels=kernels, grids=grids, early=early, libraries=libraries)

    others = [
        program(codes=("a", "c")), program(grids=((1, 1, 1), (1, 2, 1))), program(early=()), program(early=(0,)),
        program(libraries=()), program(libraries=("product of cuBLAS 13.1",)),
    ]  # fmt: skip
    assert digest(program()) == digest(program())
    assert len({digest(each) for each in (program(), *others)}) == 1 + len(others)


def test_bytes_a_second_are_those_of_the_median():
    rounds = [Round(1e-6 * us, 1980.0, False, 2e-6 * us) for us in (100.0, 150.0, 200.0, 250.0, 400.0)]
    found = times(
        find_case("swizzle/default/128x64/normal/graph"), Timing(rounds, 0, 400_000_000, "code", 1, "so"),
        Baseline(moved=100_000_000), "b", 4000.0,
    )  # fmt: skip
    assert (found["min_us"], found["median_us"]) == (100.0, 200.0)
    assert (found["gbps"], found["roofline_percent"]) == (2000.0, 50.0)
    assert (found["baseline_us"], found["baseline_percent"], found["baseline_ratio"]) == (400.0, 6.25, 2.0)
