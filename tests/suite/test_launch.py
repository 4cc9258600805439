"""Geometry and binding: which grid, which argument goes where, and which launch may begin early."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from suite_files import assert_mistake

from harness import files
from harness.contract.problem import Dense, Grouped
from harness.device.emulator import EmulatorDevice
from harness.errors import CompileError, RecipeError
from harness.files import KERNELS
from harness.jit.geometry import LaunchGeometry, read_launch
from harness.jit.signature import LIBRARY_CALLS, CallParameter
from harness.oracles import per_tensor
from harness.suite.flag_values import launch_flags
from harness.suite.launch_plan import bind, plan, scratch_and_workspace
from harness.suite.suite import find_case, load_suite, suite_of
from harness.verify.verify import verify

TILED = LaunchGeometry(tile_rows=128, tile_cols=64, threads=256, blocks_per_sm=0, schedule=0)
PERSISTENT = LaunchGeometry(tile_rows=16, tile_cols=1024, threads=256, blocks_per_sm=4, schedule=1)
PATCHES = LaunchGeometry(tile_rows=256, tile_cols=256, threads=256, blocks_per_sm=2, schedule=3)
CASE = find_case("per_tensor/default/48x80/normal/eager")


def test_tiles_cover_the_extents_rounded_up_to_128():
    assert TILED.grid(CASE.problem, 132) == (2, 1, 1)


def test_many_row_tiles_overflow_from_y_into_z_and_cover_every_row():
    case = replace(CASE, problem=Dense(128 * 65536, 16))
    across, y, z = TILED.grid(case.problem, 132)
    assert y <= 65535
    assert (across, z) == (2, 2)
    assert y * z >= 65536


def test_a_persistent_grid_has_no_more_blocks_than_work_or_multiprocessors():
    assert PERSISTENT.grid(CASE.problem, 132) == (1, 1, 1)
    assert PERSISTENT.grid(Dense(32768, 8192), 132) == (528, 1, 1)


def test_a_persistent_grid_of_a_tensor_is_tried_with_one_block_too():
    assert PERSISTENT.grids(Dense(1000, 520), 132) == ((32, 1, 1), (1, 1, 1))
    assert PERSISTENT.grids(Dense(1024, 1040), 132) == ((65, 1, 1),)  # so many that one block would take long
    assert PERSISTENT.grids(Dense(1024, 1024), 132) == ((64, 1, 1), (1, 1, 1))
    assert PERSISTENT.grids(Dense(16, 1024), 132) == ((1, 1, 1),)


def test_what_has_no_elements_has_one_cta_along_each_axis():
    """Its kernels write the padding of scales and an amax of 0."""
    group = Grouped(0, 512, ((0, 512),))
    assert TILED.grid(Dense(0, 520), 132) == (10, 1, 1) and PERSISTENT.grid(Dense(0, 520), 132) == (1, 1, 1)
    assert TILED.grid(Dense(128, 0), 132) == (1, 1, 1) and PATCHES.grid(Dense(0, 0), 132) == (1, 1, 1)
    assert TILED.grid(group, 132) == PERSISTENT.grid(group, 132) == (1, 1, 1)


def test_persistent_ctas_of_a_group_take_three_tiles_each_as_well():
    launch = replace(PERSISTENT, tile_rows=128, tile_cols=128)
    for tiles, grids in ((7, ((7, 1, 1), (2, 1, 1))), (2, ((2, 1, 1), (1, 1, 1))), (1, ((1, 1, 1),))):
        assert launch.grids(Grouped(128 * tiles, 128, ((128, 128),) * tiles), 132) == grids


def test_patches_are_taken_where_there_are_enough_of_them_and_tiles_of_128_elsewhere():
    case = replace(CASE, problem=Dense(1000, 520))
    patches, tiles = (3, 4, 1), (5, 8, 1)
    assert PATCHES.grids(case.problem, 6) == (patches, tiles)
    assert PATCHES.grids(case.problem, 7) == (tiles, patches)
    assert [PATCHES.grid(case.problem, count) for count in (6, 7)] == [patches, tiles]


def test_tiles_lie_in_two_layers_as_well():
    assert TILED.grids(Dense(128, 520), 132) == ((10, 1, 1),)
    assert TILED.grids(Dense(1000, 520), 132) == ((10, 8, 1), (10, 4, 2))
    assert TILED.grids(Dense(300, 520), 132) == ((10, 3, 1), (10, 2, 2))  # one beyond the last row
    tall = Dense(128 * 65536, 16)
    assert TILED.grids(tall, 132) == (TILED.grid(tall, 132),)  # is in layers as it is


def test_a_grid_has_whole_clusters():
    tiled = replace(TILED, cluster_x=4, cluster_y=2)
    assert tiled.grids(Dense(300, 520), 132) == ((12, 4, 1), (12, 2, 2))
    assert tiled.grids(Dense(640, 520), 132) == ((12, 6, 1), (12, 4, 2))
    assert tiled.grid(Dense(128 * 65535, 16), 132) == (4, 32768, 2)  # 65535 rows of tiles are no whole clusters
    persistent = replace(PERSISTENT, cluster_x=4)
    assert persistent.grids(Dense(1000, 520), 132) == ((32, 1, 1), (4, 1, 1))
    assert persistent.grids(Dense(1024, 1040), 132) == ((68, 1, 1),)
    group = Grouped(128 * 18, 128, ((128, 128),) * 18)
    shared = replace(persistent, tile_rows=128, tile_cols=128)
    assert shared.grids(group, 132) == ((20, 1, 1), (8, 1, 1))
    with pytest.raises(CompileError, match="one row of CTAs has no clusters with 2 along y"):
        replace(persistent, cluster_y=2).grid(Dense(1000, 520), 132)


@pytest.mark.parametrize(("dims", "found"), [("2, 3, 1", (2, 3)), ("2, 3", (2, 3)), ("4", (4, 1))])
def test_the_clusters_of_a_kernel_are_read_from_its_ptx(dims, found):
    constant = ".const .align 4 .b8 k_launch[20] = {128, 0, 0, 0, 64, 0, 0, 0, 0, 1};"
    other = ".visible .entry k_0(\n.param .u64 p)\n.maxntid 256\n{ ret; }"
    entry = f".visible .entry k_1(\n.param .u64 p)\n.explicitcluster\n.reqnctapercluster {dims}\n{{ ret; }}"
    launch = read_launch("\n".join((constant, entry, other)), "k_launch", "k", "k_1")
    assert (launch.cluster_x, launch.cluster_y) == found
    assert read_launch("\n".join((constant, other, entry)), "k_launch", "k", "k_0") == TILED
    with pytest.raises(CompileError, match="k: __cluster_dims__ ask for 2 CTAs along z"):
        read_launch(constant + entry.replace(f" {dims}", " 1, 1, 2"), "k_launch", "k", "k_1")


def test_trailing_zeros_that_ptx_leaves_out_are_read():
    ptx = ".const .align 4 .b8 k_launch[20] = {128, 0, 0, 0, 64, 0, 0, 0, 0, 1};"
    assert read_launch(ptx, "k_launch", "k") == TILED


def test_a_kernel_without_geometry_says_what_to_write():
    with pytest.raises(CompileError, match=r"its file has no `__constant__ Launch k_launch"):
        read_launch("", "k_launch", "k")


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ((0, 64, 128, 0, 0), "k_launch has tile_rows 0; a tile has an element or more"),
        ((16, -1, 128, 0, 0), "k_launch has tile_cols -1"),
        ((16, 64, 0, 0, 0), "k_launch has 0 threads; its __launch_bounds__ allow 256"),
        ((16, 64, 257, 0, 0), "k_launch has 257 threads; its __launch_bounds__ allow 256"),
        ((16, 64, 128, 0, 5), "k_launch has the schedule 5; one is a Schedule"),
        ((16, 64, 128, 0, 1), "Schedule::persistent with blocks_per_sm 0 needs the CTAs of an SM in __launch_bounds__"),
        ((16, 64, 128, -1, 1), "k_launch has blocks_per_sm -1; give the CTAs"),
        ((16, 64, 128, -1, 0), "k_launch has blocks_per_sm -1"),
    ],
)
def test_a_geometry_that_no_launch_can_have_is_told(numbers, says):
    written = ", ".join(str(byte) for number in numbers for byte in number.to_bytes(4, "little", signed=True))
    entry = ".visible .entry k_1(\n.param .u64 p)\n.maxntid 256\n{ ret; }"
    with pytest.raises(CompileError, match=says):
        read_launch(f".const .align 4 .b8 k_launch[20] = {{{written}}};\n{entry}", "k_launch", "k", "k_1")


@pytest.mark.parametrize(
    ("numbers", "bounds"),
    [((1, 1, 1, 0, 0), ".maxntid 256, 1, 1"), ((1, 1, 256, 1, 1), ".maxntid 256, 1, 1"), ((1, 1, 1024, 0, 2), "")],
)
def test_the_least_and_the_most_that_a_launch_may_have(numbers, bounds):
    written = ", ".join(str(byte) for number in numbers for byte in number.to_bytes(4, "little", signed=True))
    entry = f".visible .entry k_1(\n.param .u64 p)\n{bounds}\n{{ ret; }}"
    constant = f".const .align 4 .b8 k_launch[20] = {{{written}}};\n"
    assert read_launch(constant + entry, "k_launch", "k", "k_1") == LaunchGeometry(*numbers)
    if not bounds:
        with pytest.raises(CompileError, match="k_launch has 1025 threads; a CTA has 1 to 1024"):
            read_launch(constant.replace("0, 4, 0, 0", "1, 4, 0, 0", 1) + entry, "k_launch", "k", "k_1")


def test_a_launch_by_flag_has_the_schedule_of_its_case_and_the_launch_bounds_of_its_kernel():
    constant = ".const .align 4 .b8 k_launch[20] = {128, 0, 0, 0, 64, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4};"
    ptx = f"{constant}\n.visible .entry k_1(\n.param .u64 p)\n.maxntid 256\n.minnctapersm 3\n{{ ret; }}"
    launch = read_launch(ptx, "k_launch", "k", "k_1")
    assert launch.of_case({"schedule": "persistent"}) == replace(TILED, blocks_per_sm=3, schedule=1)
    assert launch.of_case({"schedule": "tiles"}) == replace(TILED, blocks_per_sm=3)
    assert TILED.of_case({"schedule": "persistent"}) == TILED
    with pytest.raises(CompileError, match="takes the flag schedule, tiles or persistent; it is None"):
        launch.of_case({})
    with pytest.raises(CompileError, match=r"k: Schedule::by_flag needs the CTAs of an SM in __launch_bounds__"):
        read_launch(ptx.replace(".minnctapersm 3", ""), "k_launch", "k", "k_1")


@pytest.mark.parametrize(("written", "held"), [(0, 3), (2, 2)])
def test_a_persistent_launch_may_leave_the_ctas_of_an_sm_to_its_launch_bounds(written: int, held: int):
    constant = f".const .align 4 .b8 k_launch[20] = {{16, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, {written}, 0, 0, 0, 1}};"
    ptx = f"{constant}\n.visible .entry k_1(\n.param .u64 p)\n.maxntid 256\n.minnctapersm 3\n{{ ret; }}"
    assert read_launch(ptx, "k_launch", "k", "k_1") == replace(PERSISTENT, blocks_per_sm=held)


def test_a_tensor_without_rows_takes_kernels_for_edges():
    """They have a CTA for its columns, whose amaxes are 0."""
    edges = {}
    for shape in ("0x256", "0x80", "128x256", "128x80", "48x256"):
        case = find_case(f"per_token/stage=amax/{shape}/normal/eager")
        edges[shape] = launch_flags(suite_of("per_token").file, case)["edges"]
    assert edges == {"0x256": True, "0x80": True, "128x256": False, "128x80": True, "48x256": True}


def test_arguments_are_bound_by_name_in_the_order_of_the_signature():
    step = next(step for step in plan(CASE) if step.signature.name == "per_tensor_amax")
    bound = list(bind(step, {"input": "x", "rowwise_amax": "a", "amax_state": "s"}))
    assert bound == [("Dtype", "x"), ("float", "a"), ("float", None), ("GridAmax", "s"), ("int", 48), ("int", 80)]


def test_launches_that_use_a_name_share_the_largest_of_its_sizes():
    sizes = [({"a": 16, "b": 8}, {}), ({"a": 4}, {"c": 2}), ({}, {"c": 3})]
    steps = [replace(plan(CASE)[0], scratch=scratch, workspace=workspace) for scratch, workspace in sizes]
    assert scratch_and_workspace(steps) == ({"a": 16, "b": 8}, {"c": 3})


def test_a_parameter_nothing_goes_by_is_named():
    step = plan(CASE)[0]
    with pytest.raises(
        RecipeError, match=r"nothing binds to parameter 'input' of per_tensor_amax; there are rowwise_amax"
    ):
        list(bind(step, {"rowwise_amax": "a"}))


def test_a_number_nothing_goes_by_is_named():
    step = plan(CASE)[0]
    asking = replace(step.signature, call=(CallParameter("int", "columns", pointer=False, optional=True),))
    with pytest.raises(
        RecipeError, match=r"nothing binds to parameter 'columns' of per_tensor_amax; there are rows, cols"
    ):
        list(bind(replace(step, signature=asking), {"columns": "an array"}))


def test_a_library_call_is_a_step_by_itself():
    steps = plan(find_case("gemm/route=library/128x128x256/normal/eager"))
    calls = [step.signature for step in steps if step.library]
    assert len(calls) == 1 and calls[0] in LIBRARY_CALLS.values() and len(steps) > 1


TOGETHER = """\
recipe: both
contract: NUMERICS 0
axes: {dtype: [bf16]}
launches:
  - {kernel: first, fits: true}
  - {kernel: second, fits: true}
  - {kernel: alone, fits: false}
sets: {smoke: &one [{shapes: [[48, 80]], inputs: [normal]}], full: *one, bench: *one}
"""


def test_launches_that_run_at_once_are_chosen_if_all_of_them_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that does not would wait for CTAs that never begin."""
    monkeypatch.setattr(files, "SUITES", tmp_path)
    (tmp_path / "both.yaml").write_text(TOGETHER)
    kernels = "".join(f"__global__ void {name}(int rows) {{}}\n" for name in ("first", "second", "alone"))
    (tmp_path / "both.cu").write_text(kernels)
    case = load_suite(tmp_path / "both.yaml").cases("smoke")[0]

    def launched(*fitting: str) -> list[str]:
        steps = plan(case, tmp_path, lambda step: step.signature.name in fitting)
        return [step.signature.name for step in steps]

    assert launched("first", "second") == ["first", "second"]
    assert [step.signature.name for step in plan(case, tmp_path)] == ["alone"]
    assert launched("first") == launched("second") == launched() == ["alone"]
    (tmp_path / "both.cu").write_text(kernels.replace("second", "secnd"))
    with pytest.raises(RecipeError, match=r"both\.cu has no kernel 'second'; it has first, secnd, alone"):
        plan(case, tmp_path)


# Launches that may begin before the one ahead has ended

EARLY = """\
recipe: routed
contract: NUMERICS 0
gemm: true
axes: {dtype: [bf16]}
launches:
  - kernel: first
  - kernel: second
    early: true
  - library: cublas_gemm
sets: {smoke: &one [{shapes: [[4, 16, 16]], inputs: [normal]}], full: *one, bench: *one}
"""
WAIT = "      if (pass == 0) wait_for_launch_ahead();\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("kernel: first", "kernel: first\n    early: true", 7, "the first launch, first, is early"),
        ("early: true", "early: true\n    fits: true", 7, "whose blocks all run at once, cannot be early"),
        ("cublas_gemm", "cublas_gemm\n    early: true", 9, "of a library, which waits for nothing, cannot be early"),
    ],
)
def test_launches_that_cannot_be_early(tmp_path, old, new, line, sentence):
    assert_mistake(tmp_path, EARLY, (old, new), sentence, line)


def early(case_id: str) -> list[bool]:
    return [step.early for step in plan(find_case(case_id))]


def test_the_first_launch_of_a_stage_is_never_early():
    assert early("per_tensor/default/48x80/normal/eager") == [False, True]
    assert early("per_tensor/stage=encode/48x80/normal/eager") == [False]
    assert early("row_scaled/outputs=both/48x80/normal/eager") == [False, True, True]


def test_the_emulator_names_a_wait_that_is_left_out(tmp_path):
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS, kernels)
    source = kernels / "encode" / "per_tensor.cuh"
    source.write_text(source.read_text().replace(WAIT, ""))
    result = verify(find_case("per_tensor/default/16x16/normal/eager"), EmulatorDevice(kernels))
    assert "no griddepcontrol.wait comes before; it let others begin at" in str(result)


def test_a_launch_takes_a_workspace_as_a_parameter_of_another_name():
    case = find_case("per_tensor/activation=swiglu/48x96/normal/eager")
    amax, encode = plan(case)
    assert amax.workspace == encode.workspace == {"activated": 4 * 48 * 96}
    arrays = {name: name for name in ("input", "activated", "amax_state", *per_tensor.outputs(case))}
    given, found = ([value for _, value in bind(step, arrays) if isinstance(value, str)] for step in (amax, encode))
    assert given[:2] == ["input", "activated"] and "input" not in found and found[0] == "activated"
