"""A mutant's case shrinks to as little as it should; what is left fails alike, and passes with the right lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from processes import python_path
from safetensors.numpy import load_file, save_file
from suite_files import smallest as smallest_cases

from evidence.mutants.catalogue import find
from harness.commands import shrink as command
from harness.contract.case import Case
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.errors import InputError, SuiteError, UsageError
from harness.expected.expected import make_inputs
from harness.files import KERNELS, ROOT
from harness.ground.command_lines import this_python
from harness.oracles import nvfp4
from harness.shrink import reproducer, shrinker
from harness.shrink.candidate import COLS, ROWS, Candidate, N
from harness.shrink.shrinker import Budget, Failure, Shrunk, shrink, smallest
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict

# The search


def least(count: int, needed: set[int], budget: Budget | None = None, **rest: int) -> list[int]:
    """What `smallest` leaves of 0, 1, ..., `count` - 1 if a list fails when it holds all of `needed`."""
    budget = budget or Budget()

    def fails(some: list[int]) -> bool:
        budget.spent += 1
        return needed <= set(some)

    return smallest(list(range(count)), fails, budget, **rest)


@pytest.mark.parametrize("needed", [{0}, {99}, {41}, {0, 99}, {3, 50, 51, 98}, set(range(0, 100, 25))])
def test_what_is_needed_is_left(needed):
    assert least(100, needed) == sorted(needed)


def test_one_of_many_is_found_by_halves():
    budget = Budget()
    assert least(1 << 16, {12345}, budget) == [12345]
    assert budget.spent <= 32


def test_something_is_always_left():
    assert least(100, set()) == [0]


def test_coarse_pieces_save_tries():
    fine, coarse = Budget(tries=1 << 20), Budget()
    assert least(200, set(range(0, 200, 2)), fine) == list(range(0, 200, 2))
    least(200, set(range(0, 200, 2)), coarse, most_pieces=16)
    assert coarse.spent < fine.spent / 4


def test_the_budget_ends_the_search():
    budget = Budget(tries=10)
    assert {3, 50} <= set(least(100, {3, 50}, budget))
    assert budget.spent <= 11
    assert str(budget) == "all 10 tries are used up, so that something smaller may fail, too"
    assert "0 seconds are over" in str(Budget(seconds=0))
    assert str(Budget()) == "nothing smaller that was tried fails like this"


# Problems


def test_rows_and_columns_are_cut_in_pieces_that_the_recipe_allows():
    whole = Candidate.of(find_case("per_tensor/default/48x80/normal/eager"))
    assert whole.items(ROWS) == [(-1, 0), (-1, 1), (-1, 2)]
    left = whole.with_items(ROWS, [(-1, 0), (-1, 2)]).with_items(COLS, [(-1, 4)])
    assert (left.case.shape, left.case.seed) == ("32x16", whole.case.seed)
    np.testing.assert_array_equal(left.arrays[0], np.delete(whole.arrays[0], range(16, 32), 0)[:, 64:])


def test_a_product_is_cut_along_all_of_its_extents():
    whole = Candidate.of(find_case("gemm_ordered/layout=nn,beta=0.75/16x32x48/normal/eager"))
    left = whole.with_items(ROWS, [(-1, 5)]).with_items(COLS, [(-1, 1)]).with_items(N, [(-1, 2)])
    assert left.case.shape == "1x16x16"
    a, b, c = (left.parts[0][role] for role in "abc")
    np.testing.assert_array_equal(a, whole.parts[0]["a"][5:6, 16:])
    np.testing.assert_array_equal(b, whole.parts[0]["b"][16:, 32:])
    np.testing.assert_array_equal(c, whole.parts[0]["c"][5:6, 32:])
    plain = left.converted(layout="tn", beta=0)
    assert set(plain.parts[0]) == {"a", "b"}
    np.testing.assert_array_equal(plain.parts[0]["b"], b.T)


def test_tensors_of_a_group_are_left_out_and_cut_alone():
    whole = Candidate.of(find_case("grouped/outputs=rowwise/128+0+256x32/normal/eager"))
    assert [part["x"].shape for part in whole.parts] == [(128, 32), (0, 32), (256, 32)]
    np.testing.assert_array_equal(whole.inputs()["input"], np.concatenate([part["x"].ravel() for part in whole.parts]))
    assert whole.items(ROWS) == [*((0, i) for i in range(8)), *((2, i) for i in range(16))]
    left = whole.with_tensors([1, 2]).with_items(ROWS, [(1, 1)]).with_items(COLS, [(-1, 1)])
    assert left.case.shape == "0+16x16"
    np.testing.assert_array_equal(left.parts[1]["x"], whole.parts[2]["x"][16:32, 16:])


def test_products_that_share_no_extent_are_cut_alone():
    flags = "gemm_grouped/shape_representation=varying_both_dims,beta=1"
    whole = Candidate.of(find_case(f"{flags}/16+0+48x32+16+48x16+48+80/normal/eager"))
    assert whole.items(N) == [*((0, i) for i in range(1)), *((1, i) for i in range(3)), *((2, i) for i in range(5))]
    left = whole.with_tensors([1, 2]).with_items(N, [(1, 3), (1, 0)]).with_items(ROWS, [(1, 2)])
    assert left.case.shape == "0+16x16+48x0+32"
    np.testing.assert_array_equal(left.parts[1]["a"], whole.parts[2]["a"][32:])
    np.testing.assert_array_equal(left.parts[1]["c"], whole.parts[2]["c"][32:, [*range(48, 64), *range(16)]])
    given = left.inputs()
    assert (given["n_dims"].tolist(), given["c"].shape) == ([0, 32], (16 * 32,))
    assert left.with_tensors([1]).converted(shape_representation="varying_first_dim").case.variant == "beta=1"


def test_an_allocation_is_cut_by_what_divides_its_splits():
    whole = Candidate.of(find_case("grouped/outputs=rowwise/64+0+192of512by64x32/normal/eager"))
    assert whole.items(ROWS) == [(0, 0), (2, 0), (2, 1), (2, 2)]
    assert whole.with_items(ROWS, [(2, 1)]).case.shape == "0+0+64of512by64x32"


def test_what_is_no_case_is_none():
    whole = Candidate.of(find_case("per_tensor/rht=true/48x80/normal/eager"))
    assert whole.with_items(ROWS, []) is None
    assert whole.converted(block="block_16x16") is None


@pytest.mark.parametrize("case", smallest_cases(), ids=lambda case: case.id)
def test_a_case_of_every_suite_shrinks_to_a_folder_that_is_read_again(case: Case, monkeypatch, tmp_path):
    """Whatever its tensors are, it fails alike, so that nothing is left of them but what a case must have."""

    def fails(case: Case, device: Device, inputs: dict | None = None) -> Result:
        return Result(case.id, case.recipe, Verdict.MISMATCH, "bytes differ", "STORY", case.input, device.name)

    for module in (shrinker, reproducer):
        monkeypatch.setattr(module, "verify", fails)
    drawn = make_inputs(replace(case, mode="eager"))
    given = Candidate.of(case).inputs()
    assert {name: array.tobytes() for name, array in given.items()} == {n: a.tobytes() for n, a in drawn.items()}
    found = shrink(case, EmulatorDevice(), Budget(tries=200, seconds=600))
    assert found.left == 0 and found.case.work <= case.work
    reproducer.write(found, tmp_path)
    assert reproducer.replay(tmp_path).case_id == found.case.id


# Mutants


class Expected(NamedTuple):
    """A mutant's case after shrinking: its id without input and mode, and how many values are not zero."""

    mutant: str
    failure: str
    left: str
    values: int


EXPECTED = [
    Expected("nibbles swapped", "MISMATCH in rowwise_data", "per_tensor/default/16x16", 1),
    Expected("scale cast toward zero", "MISMATCH in rowwise_scale_inv", "per_tensor/default/16x16", 1),
    Expected("read as if in tiles already", "MISMATCH in swizzled_scale_inv", "swizzle/default/16x16", 1),
    Expected("the loop ends before the last tensor", "UNWRITTEN in rowwise_scale_inv", "grouped/default/16x16", 0),
    Expected(
        "columns before the tile is there",
        "NONDETERMINISTIC in race at transpose_tile.cuh",
        "local_1x64/default/64x64",
        0,
    ),
    Expected("no bound of rows", "OUT_OF_BOUNDS in out of bounds at dequantize.cu", "dequantize/default/16x16", 0),
    Expected("alpha ignored", "MISMATCH in output", "gemm_ordered/alpha=1.1/1x16x16", 2),
    Expected("a NaN scale is 480", "MISMATCH in output", "dequantize/default/16x128", 0),
]


@pytest.fixture(scope="module", params=EXPECTED, ids=lambda expected: expected.mutant)
def expected(request) -> Expected:
    return request.param


@pytest.fixture(scope="module")
def kernels(expected: Expected, tmp_path_factory) -> Path:
    return find(expected.mutant).copied_to(tmp_path_factory.mktemp("wrong"))


@pytest.fixture(scope="module")
def shrunk(expected: Expected, kernels: Path) -> Shrunk:
    return shrink(find_case(find(expected.mutant).cases[0]), EmulatorDevice(kernels=kernels), Budget(seconds=600))


@pytest.mark.slow
def test_a_case_shrinks_to_as_little_as_it_should(expected, shrunk):
    assert str(shrunk.failure).startswith(expected.failure)
    assert (shrunk.case.id.rsplit("/", 2)[0], shrunk.left) == (expected.left, expected.values)
    # Few entries are left, which prove no cause, so it may stand as what they have in common.
    assert (find(expected.mutant).cause if "field" in shrunk.before.story else "") in shrunk.cause.partition(":")[0]
    assert shrunk.stopped == "nothing smaller that was tried fails like this"


@pytest.mark.slow
def test_what_is_left_fails_alike_until_the_line_is_right(expected, shrunk, kernels, tmp_path):
    reproducer.write(shrunk, tmp_path, kernels)
    result = reproducer.replay(tmp_path)
    assert (Failure.of(result), "make verify" in result.story) == (shrunk.failure, False)
    assert result.story == (tmp_path / "story.txt").read_text().rstrip()
    changed = find(expected.mutant).file.partition("/")[2]
    wrong = (kernels / changed).read_text()
    shutil.copy(KERNELS / changed, kernels / changed)
    assert reproducer.replay(tmp_path).verdict is Verdict.PASS
    (kernels / changed).write_text(wrong)


def test_an_oracle_that_is_wrong(monkeypatch, tmp_path):
    case = find_case("local_1x64/default/64x128/near_floor/eager")
    with monkeypatch.context() as patched:
        patched.setattr(nvfp4, "AMAX_FLOOR", np.float32(1e-10))
        left = shrink(case, EmulatorDevice(), Budget())
        assert str(left.failure) == "SETUP_ERROR in rowwise_scale_inv, on which the oracles disagree"
        assert (left.case.shape, left.left <= 3) == ("64x64", True)
        reproducer.write(left, tmp_path)
        assert Failure.of(reproducer.replay(tmp_path)) == left.failure
    assert reproducer.replay(tmp_path).verdict is Verdict.PASS


@pytest.mark.slow
def test_random_bits_keep_their_seed(tmp_path):
    kernels = find("one random stream for both directions").copied_to(tmp_path)
    case = find_case("per_tensor/outputs=columnwise,rounding=sr/48x80/normal/eager")
    left = shrink(case, EmulatorDevice(kernels=kernels), Budget(seconds=600))
    assert (left.case.flags.rounding, left.case.seed) == ("sr", case.seed)
    assert (left.case.shape, left.left <= 2) == ("16x16", True)
    reproducer.write(left, tmp_path / "left", kernels)
    assert reproducer.replay(tmp_path / "left").verdict is Verdict.MISMATCH


# The command, and the folder it writes


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder that the command writes for the mutant with swapped nibbles."""
    top = tmp_path_factory.mktemp("command")
    kernels = find("nibbles swapped").copied_to(top)
    case = "per_tensor/default/48x80/normal/eager"
    ask = [case, "--device", "emulator", "--kernels", str(kernels), "--into", str(top / "left"), "--seconds", "600"]
    done = CliRunner().invoke(command.command, ask, standalone_mode=False)
    assert done.return_value == 1, done.exception
    assert f"whole     {case}: MISMATCH in rowwise_data" in done.output
    assert "left      16x16, default: 1 of 256 values are not zero" in done.output
    assert "cause     nibble swap: the two codes of a byte changed places" in done.output
    assert f"reproduce cd {top / 'left'} && {this_python(top / 'left')} -m pytest test_per_tensor_" in done.output
    return top / "left"


def pytest_alone(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_pytest_alone_runs_the_folder(folder):
    status, text = pytest_alone(folder)
    assert (status, "MISMATCH  per_tensor/default/16x16/normal/eager" in text) == (1, True)
    assert "cause     nibble swap" in text
    shutil.copytree(KERNELS, folder.parent / "kernels", dirs_exist_ok=True)
    status, text = pytest_alone(folder)
    assert (status, "1 passed" in text) == (0, True)


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ("shapes: [[16, 16]]", "shapes: [[16, 16], [32, 16]]", "this block makes 2 cases of per_tensor"),
        ("shapes: [[16, 16]]", "shapes: [[15, 16]]", "rows = 15 is not a positive multiple of 16"),
        ("recipe: per_tensor", "recipe: per_tensr", "did you mean 'per_tensor'"),
        ("seed_of:", "seed_off:", "field required"),
        ("shapes: [[16, 16]]", "shapes: [[32, 16]]", "the kernels of per_tensor/default/32x16/normal/eager read"),
    ],
)
def test_a_folder_that_somebody_changed(folder, tmp_path, right, wrong, sentence):
    changed = shutil.copytree(folder, tmp_path / "left")
    text = (changed / "case.yaml").read_text()
    assert right in text
    (changed / "case.yaml").write_text(text.replace(right, wrong))
    with pytest.raises((InputError, SuiteError, UsageError)) as caught:
        reproducer.replay(changed)
    assert sentence in str(caught.value)


def test_a_tensor_of_another_type_or_none(folder, tmp_path):
    changed = shutil.copytree(folder, tmp_path / "left")
    tensors = load_file(changed / "tensors.safetensors")
    save_file({"input": tensors["input"].astype(np.float32)}, changed / "tensors.safetensors")
    with pytest.raises(InputError, match="float32"):
        reproducer.replay(changed)
    (changed / "tensors.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(InputError, match="not a readable .safetensors file"):
        reproducer.replay(changed)


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("swizzle/default/16x16/normal/eager", "is PASS on emulator, so there is nothing to shrink"),
        ("swizzle/default/16x16/normal/graph", "is EXCLUDED on emulator, so there is nothing to shrink"),
    ],
)
def test_what_does_not_fail_is_not_shrunk(case, sentence, tmp_path):
    ask = [case, "--device", "emulator", "--into", str(tmp_path / "left")]
    done = CliRunner().invoke(command.command, ask, standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert sentence in str(done.exception)
    assert not (tmp_path / "left").exists()


def test_a_folder_with_something_in_it_is_left_alone(folder):
    ask = ["swizzle/default/16x16/normal/eager", "--device", "emulator", "--into", str(folder)]
    done = CliRunner().invoke(command.command, ask, standalone_mode=False)
    assert "is not empty" in str(done.exception)


@pytest.mark.parametrize("verdict", [Verdict.SETUP_ERROR, Verdict.NOT_EMULATED, Verdict.NO_DEVICE])
def test_a_case_that_judges_no_kernel_is_not_shrunk(monkeypatch, verdict: Verdict):
    from harness.shrink import shrinker

    monkeypatch.setattr(shrinker, "verify", lambda case, *_, **__: Result(case.id, case.recipe, verdict, "a reason"))
    with pytest.raises(UsageError, match=f"is {verdict}, which says nothing about its kernel: a reason"):
        shrink(find_case("swizzle/default/16x16/normal/eager"), EmulatorDevice(), Budget())


def test_a_fault_of_a_gpu_is_not_asked_again(monkeypatch):
    from harness.shrink import shrinker

    def faulty(case: Case, device: object, **rest: object) -> Result:
        return Result(case.id, case.recipe, Verdict.LAUNCH_ERROR, reason="illegal address")

    monkeypatch.setattr(shrinker, "verify", faulty)
    device = EmulatorDevice()
    device.name = "cuda"
    with pytest.raises(UsageError, match="--device emulator"):
        shrink(find_case("swizzle/default/16x16/normal/eager"), device, Budget())
