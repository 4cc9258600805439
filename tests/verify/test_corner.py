"""Cases at the end of tensors of 2^36 elements, on the emulator."""

import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from harness.contract.field import Field
from harness.contract.group_shape import LARGEST_EXTENT
from harness.contract.problem import Dense, Gemm, lines_error
from harness.device import corner as device_corner
from harness.device.corner import CornerProgram, TooLargeError, corner, ends
from harness.device.device import Outcome
from harness.device.emulator import EmulatorDevice
from harness.device.launches import Launches
from harness.errors import AccessError, HarnessError, LaunchError, NotEmulated
from harness.expected.expected import expect, expect_on, make_inputs
from harness.files import KERNELS
from harness.jit.geometry import LaunchGeometry, Schedule
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.corner import control, expected_at_end, inputs_around, wrong_corner
from harness.verify.not_run import take_notes
from harness.verify.verify import verify

PER_TENSOR = "per_tensor/stage=encode/128x256/normal/eager"
GROUPED = "grouped/outputs=rowwise,stage=encode/128x256/normal/eager"
RANDOM = "per_tensor/rounding=sr,stage=encode/128x256/normal/eager"
RANDOM_GROUP = "grouped/outputs=rowwise,rounding=sr,stage=encode/128x256/normal/eager"
PRODUCT = "gemm/default/128x64x16/normal/eager"


@pytest.fixture
def changed(tmp_path):
    """Kernels with one text replaced in one file."""

    def change(file: str, right: str, wrong: str):
        folder = tmp_path / "kernels"
        shutil.copytree(KERNELS, folder)
        text = (folder / file).read_text()
        assert text.count(right) == 1
        (folder / file).write_text(text.replace(right, wrong))
        return EmulatorDevice(folder)

    return change


@pytest.mark.parametrize("case_id", [PER_TENSOR, GROUPED, PRODUCT])
def test_a_right_kernel_passes(case_id):
    case = find_case(case_id)
    assert suite_of(case.recipe).corners(case)
    assert verify(case, EmulatorDevice()).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "case_id", [PER_TENSOR, "dequantize/default/128x256/normal/eager", "casts/default/128x256/normal/eager"]
)
def test_a_row_offset_of_32_bits_is_found(changed, case_id):
    device = changed(
        "memory/scale_layout.cuh", "return i64(u64(u32(row)) * u32(stride)); }", "return i64(u32(row) * u32(stride)); }"
    )
    found = verify(find_case(case_id), device)
    assert found.verdict in (Verdict.MISMATCH, Verdict.OUT_OF_BOUNDS)
    assert "as the end of 268435584x256" in found.story


@pytest.mark.parametrize("case_id", [RANDOM, RANDOM_GROUP])
def test_the_upper_word_of_a_random_counter_is_asked_for(changed, case_id):
    found = verify(find_case(case_id), changed("numerics/philox.cuh", "c1 = u32(block >> 32)", "c1 = 0"))
    assert found.verdict is Verdict.MISMATCH and "_data, as the end of 2" in found.reason


def test_random_bits_at_the_end_of_a_tensor_are_those_of_the_whole():
    whole = find_case("per_tensor/rounding=sr,stage=encode/256x512/normal/eager")
    part = replace(find_case("per_tensor/rounding=sr,stage=encode/128x256/normal/eager"), seed_of=whole.seed_name)
    asked = expect(whole)
    own = asked.inputs | {"input": np.ascontiguousarray(asked.inputs["input"][128:, 256:])}
    end, alone = expected_at_end(whole, part, replace(asked, inputs=own)), expect_on(part, own)
    assert end.oracles == ("numpy", "torch") and not end.disagreement
    rows, cols = asked.values["rowwise_data"], asked.values["columnwise_data"]
    np.testing.assert_array_equal(end.values["rowwise_data"], rows[128:, 128:])
    np.testing.assert_array_equal(end.values["columnwise_data"], cols[256:, 64:])
    assert (alone.values["rowwise_data"] != rows[128:, 128:]).any()


def test_random_bits_at_the_end_of_a_group_of_one_tensor_are_those_of_the_whole():
    whole = find_case("grouped/outputs=rowwise,rounding=sr,stage=encode/256x256/normal/eager")
    part = replace(
        find_case("grouped/outputs=rowwise,rounding=sr,stage=encode/128x256/normal/eager"), seed_of=whole.seed_name
    )
    asked = expect(whole)
    own = make_inputs(part) | {name: asked.inputs[name] for name in ("input", "rowwise_amax")}
    own["input"] = own["input"][128 * 256 :]
    found = expected_at_end(whole, part, replace(asked, inputs=own)).values["rowwise_data"]
    assert found.tobytes() == asked.values["rowwise_data"].tobytes()[128 * 128 :]


def test_a_tensor_before_the_end_of_a_group_shifts_the_counter():
    case = find_case("grouped/recipe=per_token,rounding=sr,stage=encode/128x256/normal/eager")
    larger = find_case("grouped/recipe=per_token,rounding=sr,stage=encode/128+128x256/normal/eager")
    asked = expect(case)
    found = expected_at_end(larger, case, asked).values["rowwise_data"]
    other = expect_on(replace(case, philox_offset=1), asked.inputs).values["rowwise_data"]
    np.testing.assert_array_equal(found, other)
    assert (found != asked.values["rowwise_data"]).any()


@pytest.mark.parametrize("recipe", ["per_tensor", "dequantize", "gemm"])
def test_the_largest_extents_have_corners(recipe):
    largest = {shape for corner in suite_of(recipe).file.corners for shape in corner.tensors}
    assert LARGEST_EXTENT in {extent for shape in largest for extent in shape}


@pytest.mark.parametrize("tile_rows", [8, 16, 32, 64, 128, 256])
def test_no_tile_of_a_legal_tensor_begins_beyond_31_bits(tile_rows):
    """This includes tiles after the last row, which the last layer of the grid may have."""
    tiles = LaunchGeometry(tile_rows=tile_rows, tile_cols=256, threads=256, blocks_per_sm=0, schedule=Schedule.TILES)
    for less in range(0, 1 << 16, 128):
        for problem in (Dense(LARGEST_EXTENT - less, 256), Gemm(LARGEST_EXTENT - less, 16, 16)):
            _, down, layers = tiles.grid(problem, 132)
            assert down * layers * tile_rows < 1 << 31


def test_the_same_kernel_passes_where_nothing_is_beyond_32_bits(changed):
    device = changed(
        "memory/scale_layout.cuh", "return i64(u64(u32(row)) * u32(stride)); }", "return i64(u32(row) * u32(stride)); }"
    )
    assert verify(find_case("per_tensor/stage=encode/128x128/normal/eager"), device).verdict is Verdict.PASS


def test_ctas_at_both_ends_run():
    assert ends((2, 5, 1), (2, 1, 1)) == (0, 1, 6, 7, 8, 9)
    assert ends((4, 1, 1), (1, 1, 1)) == (0, 3)
    assert ends((1, 2, 1), (1, 2, 1)) == (0, 1)
    assert ends((1, 2, 1), (2, 3, 1)) == (0, 1)  # a persistent grid may be wider for the small case


def test_an_array_of_the_largest_size_is_refused(monkeypatch):
    monkeypatch.setattr(device_corner, "LARGEST_ARRAY", 4096)
    memory = device_corner.SparseMemory()
    assert memory.reserve("input", 4095).nbytes == 4095
    with pytest.raises(TooLargeError, match="'act_input' has 4,096 bytes; the emulator allows 4,096"):
        memory.reserve("act_input", 4096)


def test_a_layer_more_is_taken_where_z_goes_on():
    assert ends((1, 4, 2), (1, 1, 1)) == (0, 5, 6, 7)
    assert ends((1, 4, 2), (1, 1, 1), with_tiles=7) == (0, 1, 6, 7)  # bottom up, the last tile is of CTA 1
    assert ends((1, 4, 2), (1, 1, 1), with_tiles=5) == (0, 1, 2, 3, 4, 5, 6, 7)
    assert ends((1, 4, 4), (1, 1, 1), with_tiles=14) == (0, 1, 2, 13, 14, 15)
    assert ends((2, 16, 1), (2, 2, 1), (2, 2), with_tiles=15) == (0, 6, 7)


@pytest.mark.parametrize("schedule", [Schedule.TILES, Schedule.PATCHES])
def test_rows_of_ctas_with_a_tile_end_with_the_tensor(schedule: Schedule):
    launch = LaunchGeometry(tile_rows=32, tile_cols=256, threads=256, blocks_per_sm=8, schedule=schedule)
    for rows in (128, 256, 268435584, 2147418112):
        grids, filled = launch.grids(Dense(rows, 256), 132), launch.rows(Dense(rows, 256), 132)
        for number, (across, down, layers) in enumerate(grids):
            tile_rows = 128 if across == 2 else 32
            assert filled[number % len(filled)] * tile_rows == rows
            assert 0 <= down * layers * tile_rows - rows < layers * tile_rows


def test_clusters_are_taken_whole_and_one_more_as_the_last_may_have_ctas_without_a_tile():
    assert ends((8, 2, 1), (2, 2, 1), (2, 2)) == (0, 2, 3)
    assert ends((2, 8, 1), (2, 2, 1), (2, 2)) == (0, 1, 2, 3)
    assert ends((2, 16, 1), (2, 2, 1), (2, 2)) == (0, 5, 6, 7)


class Asked(NamedTuple):
    """What `_only` asks of a launch."""

    cluster: tuple[int, int, int]
    grids: tuple[tuple[int, int, int], ...]
    code: str = ""
    entry: str = ""


def test_each_run_has_the_ctas_at_the_ends_of_its_own_grid(monkeypatch: pytest.MonkeyPatch):
    each = Asked((2, 1, 1), ((8, 1, 1), (2, 4, 1)))
    program = SimpleNamespace(small={each: ((2, 1, 1), (2, 2, 1))}, rows={})
    assert CornerProgram._only(program, each, 0) == CornerProgram._only(program, each, 2) == (0, 2, 3)
    assert CornerProgram._only(program, each, 1) == (0, 1, 2, 3)
    program.rows[each] = (1, 3)
    assert CornerProgram._only(program, each, 1) == (0, 1, 2, 3)
    del program.rows[each]
    kernel = SimpleNamespace(cluster=None)
    module = SimpleNamespace(code=lambda entry: SimpleNamespace(resources=SimpleNamespace(kernel=kernel)))
    monkeypatch.setattr(device_corner, "module_of", lambda code: module)
    for cluster, numbers in ((None, (0, 1, 6, 7)), ((2, 1, 1), (0, 2, 3))):  # as the code itself says
        kernel.cluster, plain = cluster, Asked((), each.grids)
        program.small[plain] = program.small[each]
        assert CornerProgram._only(program, plain, 0) == numbers
    with pytest.raises(LaunchError, match="clusters of blocks along z"):
        CornerProgram._only(program, Asked((1, 1, 2), each.grids), 0)


def test_the_corner_of_compact_bytes_is_at_the_end_of_every_axis():
    memory = np.arange(24, dtype=np.uint8)
    assert corner(memory, Field((4, 6), "uint8"), (2, 3)).tolist() == [[15, 16, 17], [21, 22, 23]]


def test_the_corner_of_swizzled_scales_is_their_last_tiles():
    memory = np.arange(2 * 3 * 512) // 512
    found = corner(memory.astype(np.uint8), Field((256, 12), "uint8", swizzled=True), (128, 8))
    assert found[:, :, 0].tolist() == [[4, 5]]
    assert device_corner.sides((1 << 20, 1 << 18), Field((1,), "uint8", swizzled=True)) == (1 << 13, 1 << 16, 512)


def test_memory_that_nobody_touches_does_not_exist():
    memory = device_corner.sparse(1 << 36)
    memory[-1] = 7
    assert memory[0] == 0 and memory[-1] == 7
    device_corner.clear(memory)
    assert memory[-1] == 0


@pytest.mark.parametrize(
    ("case_id", "larger", "swizzled"),
    [
        ("per_tensor/stage=encode/128x256", "384x1024", []),
        ("dequantize/scale_layout=swizzled/128x256", "256x512", ["scale_inv"]),
        ("swizzle/to=compact/128x256", "256x512", ["swizzled_scale_inv"]),
        ("swizzle/to=swizzled/128x256", "256x512", []),
        ("gemm/default/128x64x16", "384x256x48", []),
        ("gemm/a_scale_layout=swizzled/128x128x128", "384x256x128", ["a_scale_inv"]),
        ("gemm/b_scale_layout=swizzled/128x128x128", "128x256x384", ["b_scale_inv"]),
        ("grouped/outputs=rowwise,stage=encode/128x256", "640+128x256", []),
        ("grouped/outputs=rowwise,stage=encode/128x256", "384x256", []),
        ("grouped/shape_representation=varying_last_dim,outputs=rowwise,stage=encode/128x256", "128x768+256", []),
        ("gemm_grouped/default/128x128x16", "384+128x128x16", []),
        ("gemm_grouped/shape_representation=varying_both_dims,beta=1/128x64x128", "128x64x384+128", []),
        ("gemm_grouped/shape_representation=varying_both_dims,bias=true/128x64x128", "384+128x64x128", []),
    ],
)
def test_arrays_around_are_those_that_the_larger_case_draws(case_id, larger, swizzled):
    case, whole = (
        find_case(f"{name}/normal/eager") for name in (case_id, case_id.replace(case_id.split("/")[2], larger))
    )
    made, around = inputs_around(case, whole, make_inputs(case))
    drawn = make_inputs(whole)
    found = {name: (field.shape, field.dtype) for name, field in around.items()}
    assert found == {name: (array.shape, array.dtype) for name, array in drawn.items()}
    assert [name for name, field in around.items() if field.swizzled] == swizzled
    if case.is_group:  # the extents and offsets of all of its tensors; other arrays are the case's own
        extents = [name for name, array in drawn.items() if array.dtype == np.int64]
        assert extents and all(np.array_equal(made[name], drawn[name]) for name in extents)


@pytest.mark.parametrize(
    ("case_id", "shapes"),
    [
        ("swizzle/default/128x256", ["262272x256", "128x524544"]),
        ("gemm/default/128x64x16", ["4194432x64x16"] * 2),
        ("grouped/outputs=rowwise,stage=encode/128x256", ["262272+128x256", "262272x256"]),
        ("gemm_grouped/default/128x64x16", ["4194432+128x64x16"]),
        (
            "gemm_grouped/shape_representation=varying_both_dims/128x64x128",
            ["524416+128x64x128", "2*128x64x524416+128"],
        ),
    ],
)
def test_a_control_is_the_same_end_of_what_32_bits_reach(case_id, shapes):
    case = find_case(f"{case_id}/normal/eager")
    larger = [replace(case, problem=problem, seed_of=case.seed_name) for problem in suite_of(case.recipe).corners(case)]
    assert [control(case, each).shape for each in larger] == shapes
    assert all(control(case, each).seed == case.seed for each in larger if not case.is_group)


def test_a_control_of_a_group_whose_last_dims_vary_grows_along_them():
    flags = "grouped/shape_representation=varying_last_dim,outputs=rowwise,stage=encode"
    case, larger = (find_case(f"{flags}/{shape}/normal/eager") for shape in ("128x256", "128x268435456+256"))
    assert control(case, larger).shape == "128x524544+256"
    near = find_case(f"{flags}/128x768+256/normal/eager")
    assert control(case, near).shape == near.shape


def test_lines_of_b_of_all_groups_reach_as_far_as_an_extent():
    assert lines_error(2, LARGEST_EXTENT // 2) is None
    assert lines_error(2, LARGEST_EXTENT // 2 + 16).endswith(f"N of 2 products is at most {LARGEST_EXTENT // 2}")


# The comparison at the end of a larger tensor, with programs that write what they are told

WHOLE = find_case(PER_TENSOR)
LARGER = [replace(WHOLE, problem=problem).shape for problem in suite_of(WHOLE.recipe).corners(WHOLE)]
RIGHT = {"amax": np.array([0xA5, 0x5A], np.uint8), "data": np.array([1, 2, 3], np.uint8)}


def compared(writes, written=None):
    """The verdict, and the shape, poison and number of each run. writes: bytes of the fields, given these three"""
    ran = []

    def prepare(larger):
        def run(poison, repeat):
            ran.append((larger.shape, poison, repeat))
            found = {name: array.copy() for name, array in RIGHT.items()}
            writes(found, *ran[-1])
            return Outcome(found)

        return SimpleNamespace(run=run)

    demanded = SimpleNamespace(values=RIGHT)
    found = wrong_corner(WHOLE, EmulatorDevice(), "sm_90a", lambda larger: demanded, prepare, written)
    take_notes(WHOLE.id)
    return found, ran


def test_what_is_right_is_run_on_both_poisons_of_each_larger_tensor():
    found, ran = compared(lambda fields, *run: None)
    assert found is None and len(LARGER) > 1
    assert ran == [(shape, poison, number) for shape in LARGER for number, poison in enumerate((0xA5, 0x5A))]


@pytest.mark.parametrize("place", [("amax", 0), ("amax", 1), ("data", 0), ("data", 2)])
@pytest.mark.parametrize("shape", [LARGER[0], LARGER[-1]])
@pytest.mark.parametrize("poison", [0xA5, 0x5A])
def test_one_byte_of_any_field_on_either_poison_is_seen(place, shape: str, poison: int):
    name, byte = place

    def writes(fields, *run):
        if run[:2] == (shape, poison):
            fields[name][byte] ^= 0x80

    found, _ = compared(writes)
    assert found is not None
    assert found[:2] == (Verdict.MISMATCH, f"sm_90a: bytes differ in {name}, as the end of {shape}")


@pytest.mark.parametrize("byte", [0, 1])
def test_a_byte_that_is_never_written_is_seen_though_it_equals_one_poison(byte: int):
    def writes(fields, shape, poison, number):
        fields["amax"][byte] = poison

    found, _ = compared(writes)
    assert found is not None and found[1] == f"sm_90a: bytes differ in amax, as the end of {LARGER[0]}"


def test_all_wrong_fields_are_named():
    def writes(fields, *run):
        fields["amax"][0] ^= 1
        fields["data"][2] ^= 1

    found, _ = compared(writes)
    assert found is not None and "bytes differ in amax, data, as the end" in found[1]


def test_bytes_that_the_case_itself_has_are_no_index_and_others_are():
    """A card's kernel may be wrong in the case already, or right in other bytes than ours."""
    own = RIGHT | {"data": np.array([9, 9, 9], np.uint8)}
    found, _ = compared(lambda fields, *run: fields.update(data=own["data"].copy()), own)
    assert found is None
    found, _ = compared(lambda fields, *run: fields.update(data=own["data"].copy(), amax=RIGHT["amax"] ^ 1), own)
    assert found is None  # wrong in the control, too


@pytest.mark.parametrize("shape", [LARGER[0], LARGER[-1]])
@pytest.mark.parametrize("poison", [0xA5, 0x5A])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (AccessError("out_of_bounds", "own.cu:3", "reads 4 bytes"), "own.cu:3: reads 4 bytes, as the end of "),
        (LaunchError("trapped"), "trapped"),
        (NotEmulated("lacks it"), "lacks it"),
    ],
)
def test_an_error_in_either_run_is_raised(error: HarnessError, sentence: str, shape: str, poison: int):
    def writes(fields, *run):
        if run[:2] == (shape, poison):
            raise error

    with pytest.raises(type(error), match=sentence):
        compared(writes)


def test_what_does_not_fit_is_noted_and_the_other_ends_are_judged():
    def writes(fields, shape, *run):
        if shape == LARGER[0]:
            raise TooLargeError("too large")
        fields["data"][2] ^= 1

    found, _ = compared(writes)
    assert found is not None and found[1].endswith(f"as the end of {LARGER[1]}")


@pytest.mark.parametrize("poison", [0xA5, 0x5A])
def test_every_byte_of_every_field_is_poisoned_before_the_launches(poison: int):
    fields = {"amax": Field((2,), "float32"), "data": Field((4, 6), "uint8")}
    around = {
        "amax": Field((5,), "float32"), "data": Field((1 << 20, 1 << 16), "uint8"), "x": Field((5,), "float64"),
    }  # fmt: skip
    program = CornerProgram(Launches((), {"count": 4}, {"notes": 8}), [], WHOLE, {"x": np.ones(2)}, fields, around)
    seen = {}
    program._launch_all = lambda memory, *_: seen.update(memory.arrays)
    found = program.run(poison, 0).outputs
    assert [name for name, array in seen.items() if not array.writable] == ["x"]
    assert seen["x"].data.view(np.float64).tolist() == [0, 0, 0, 1, 1] and seen["count"].data.nbytes == 4
    assert {name: array.tolist() for name, array in found.items()} == {"amax": [poison] * 8, "data": [poison] * 24}
