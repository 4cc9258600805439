"""Cases of two operands, from YAML to a grid, arguments, inputs and a trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from suite_files import assert_mistake, written

from harness.bench.baseline import baseline_first, baseline_id, product_bytes, tflops
from harness.contract.problem import Gemm
from harness.device.emulator import EmulatorDevice
from harness.errors import ContractError, NotCapable, RecipeError, UsageError
from harness.expected.expected import expect, high_precision
from harness.jit.geometry import LaunchGeometry
from harness.jit.signature import CallParameter
from harness.oracles import gemm
from harness.suite.launch_plan import bind, numbers, plan
from harness.suite.physics import bytes_moved
from harness.suite.suite import find_case
from harness.verify.diagnosis.mismatch import story_of
from harness.verify.diagnosis.trace import trace

TEXT = """\
recipe: product
contract: NUMERICS 0
gemm: true
axes:
  dtype: [bf16, fp32]
  layout: [tn, nn, nt]
  alpha: [1, 0.75, -2]
launches:
  - kernel: product
    workspace: {partial: 4 * M * N}
sets:
  smoke: [{axes: default, shapes: [[1, 16, 32], [48, 80, 16]], inputs: [normal]}]
  full: [{cover: each, shapes: [[16, 16, 16]], inputs: [normal]}]
  bench: [{axes: default, shapes: [[16, 16, 16]], inputs: [normal]}]
"""
CASE = find_case("gemm_ordered/alpha=1.1,beta=0.75/48x80x32/normal/eager")


# Suites and ids


def test_a_shape_is_m_k_and_n(tmp_path):
    suite = written(tmp_path, TEXT)
    small, large = suite.cases("smoke")
    assert (small.id, large.id) == ("product/default/1x16x32/normal/eager", "product/default/48x80x16/normal/eager")
    assert (large.rows, large.cols, large.problem.n) == (48, 80, 16)
    assert suite.find(large.id) == large


def test_a_flag_may_be_a_fraction(tmp_path):
    suite = written(tmp_path, TEXT)
    assert [case.variant for case in suite.cases("full") if "alpha" in case.variant] == ["alpha=-2", "alpha=0.75"]
    assert suite.find("product/alpha=0.75/16x16x16/normal/eager").flags.alpha == 0.75
    with pytest.raises(UsageError, match="flag alpha has no value '0.5'; did you mean '0.75'"):
        suite.find("product/alpha=0.5/16x16x16/normal/eager")


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ("16x16", "'16x16' is not a shape; one reads MxKxN, as in 64x512x128"),
        ("16x24x16", "K = 24 is not a positive multiple of 16; the nearest is 32"),
        ("16x16x8", "N = 8 is not a positive multiple of 16; the nearest is 16"),
        ("2147483520x16x16", "M = 2147483520 is beyond 2147418112, and no kernel takes it"),
        ("0x16x16", "M = 0 is not a positive multiple of 1; the nearest is 1"),
    ],
)
def test_an_id_with_another_shape(tmp_path, shape, sentence):
    with pytest.raises(UsageError, match=sentence):
        written(tmp_path, TEXT).find(f"product/default/{shape}/normal/eager")


def test_k_of_which_eight_lines_pass_32_bits():
    most = find_case("gemm/default/1x1073676288x16/normal/eager")
    with pytest.raises(UsageError, match="K = 1073741824 is beyond 1073676288, and no kernel of gemm takes it"):
        find_case("gemm/epilogue=windows/1x1073741824x16/normal/eager")
    with pytest.raises(
        ContractError, match="gemm: K = 1073741824 is beyond 1073676288, and no kernel of gemm takes it"
    ):
        gemm.outputs(replace(most, problem=Gemm(1, 1 << 30, 16)))
    assert find_case("gemm_ordered/default/1x2147418112x16/normal/eager").cols == 2147418112  # by its own kernel


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("[1, 16, 32]", "[16, 32]", 12, "shapes has [16, 32] where a shape [M, K, N] belongs"),
        ("[1, 16, 32]", "[16]", 12, "has [16] where a shape [M, K, N] belongs"),
        ("[1, 16, 32]", "[1, 20, 32]", 12, "K = 20 is not a positive multiple of 16"),
        ("gemm: true", "gemm: false", 10, "a size knows no 'N'; choose rows, cols, elements or num_tensors"),
        ("4 * M * N", "4 * rows", 10, "a size knows no 'rows'; choose M, K, N, elements or num_tensors"),
        ("gemm: true", "gemm: maybe", 3, "gemm: input should be a valid boolean"),
        ("[1, 0.75, -2]", "[1, 0.75, 0.75]", 7, "axis alpha lists '0.75' twice"),
    ],
)
def test_a_mistake_in_a_suite_of_products(tmp_path, old, new, line, sentence):
    assert_mistake(tmp_path, TEXT, (old, new), sentence, line)


def test_a_file_must_hold_both_operands():
    name = "file:suites/data/minilm_sample.safetensors#ffn_up.weight"
    assert find_case(f"gemm_ordered/default/256x128x16/{name}/eager").cols == 128
    with pytest.raises(UsageError, match="256"):
        find_case(f"gemm_ordered/layout=nt/64x384x16/{name}/eager")


# Launches


def test_a_grid_covers_the_output_and_pads_nothing():
    tiles = LaunchGeometry(tile_rows=16, tile_cols=64, threads=256, blocks_per_sm=0, schedule=0)
    assert tiles.grid(Gemm(17, 4096, 128), 132) == (2, 2, 1)
    persistent = replace(tiles, blocks_per_sm=2, schedule=1)
    assert persistent.grid(Gemm(17, 4096, 128), 132) == (4, 1, 1)
    assert persistent.grid(Gemm(4096, 80, 4096), 132) == (264, 1, 1)


def test_a_kernel_may_ask_for_m_k_n_and_fractions():
    known = numbers(CASE)
    assert {name: known[name] for name in ("M", "K", "N", "alpha", "beta", "a_e4m3_max")} == {
        "M": 48, "K": 80, "N": 32, "alpha": 1.1, "beta": 0.75, "a_e4m3_max": 448,
    }  # fmt: skip
    assert "rows" not in known
    bound = list(bind(plan(replace(CASE, flags=CASE.flags.replace(alpha=-2)))[0], _arrays()))
    assert bound[-7:] == [
        ("int", 48), ("int", 32), ("int", 80), ("float", -2.0), ("float", 0.75), ("int", 448), ("int", 448),
    ]  # fmt: skip
    assert type(bound[-4][1]) is float


def _arrays():
    names = [f"{side}_{part}" for side in "ab" for part in ("data", "scale_inv", "amax")]
    return dict.fromkeys([*names, "output"], "array")


def test_a_fraction_does_not_become_an_integer():
    step = plan(CASE)[0]
    asking = replace(step.signature, call=(CallParameter("int", "alpha", pointer=False, optional=False),))
    with pytest.raises(RecipeError, match=r"'alpha' of gemm_ordered is of type 'int' and its flag has 1.1; take it as"):
        list(bind(replace(step, signature=asking), {}))


def test_sizes_are_over_the_extents_of_the_product(tmp_path):
    from harness.suite.sizes import GEMM_NAMES, size_of

    known = {"elements": 48 * 32, "num_tensors": 1, **numbers(CASE)}
    assert size_of("4 * M * N + K", {name: known[name] for name in GEMM_NAMES}) == 4 * 48 * 32 + 80


@pytest.mark.parametrize("recipe", ["gemm", "gemm_ordered"])
def test_an_array_that_is_changed_in_place_moves_twice(recipe: str):
    case = find_case(f"{recipe}/epilogue=per_token/16x128x256/normal/eager")
    expected = expect(case)
    operands = sum(expected.inputs[name].nbytes for name in expected.inputs)
    amaxes = 4 * (16 + 256)
    steps = plan(case)
    assert [parameter.name for step in steps for parameter in step.signature.call if parameter.in_place] == ["output"]
    assert bytes_moved(steps, expected.inputs, expected.fields) == operands + amaxes + 3 * 2 * 16 * 256


def test_what_a_product_costs():
    case = replace(CASE, problem=Gemm(4096, 512, 3072))
    assert case.elements == 4096 * 512 + 512 * 3072 + 4096 * 3072
    assert case.elements < case.work < 2 * case.elements
    with pytest.raises(NotCapable, match="a product of more than 16777216 terms needs a GPU"):
        EmulatorDevice().admit(replace(CASE, problem=Gemm(272, 256, 256)))


def test_the_baseline_of_a_product_is_that_of_a_library_on_its_shape_and_in_its_mode():
    graph = replace(CASE, mode="graph")
    assert [baseline_id(case) for case in (CASE, graph)] == [
        "cublas/bf16/48x80x32/normal/eager",
        "cublas/bf16/48x80x32/normal/graph",
    ]
    assert product_bytes(CASE) == 2 * (48 * 80 + 32 * 80 + 48 * 32)
    assert tflops(CASE, microseconds=0.5) == pytest.approx(2 * 48 * 80 * 32 / 0.5e-6 / 1e12)
    larger = replace(CASE, problem=Gemm(64, 80, 32))
    ordered = sorted([replace(larger, input="ties"), graph, larger, CASE], key=baseline_first)
    assert [case.rows for case in ordered] == [48, 48, 64, 64]


# Inputs


@pytest.mark.parametrize(
    ("layout", "a", "b"), [("tn", (48, 80), (32, 80)), ("nn", (48, 80), (80, 32)), ("nt", (80, 48), (80, 32))]
)
def test_operands_are_drawn_as_they_are_quantized(layout, a, b):
    case = replace(CASE, flags=CASE.flags.replace(layout=layout, beta=0))
    made = high_precision(case)
    assert {name: (x.shape, x.dtype.name) for name, x in made.items()} == {"a": (a, "bfloat16"), "b": (b, "bfloat16")}


def test_what_is_drawn_has_seeds_of_its_own():
    flags = CASE.flags.replace(epilogue="row_scaled", dtype="fp32", bias=True, accumulate=True)
    made = high_precision(replace(CASE, flags=flags, problem=Gemm(32, 32, 32)))
    assert {name: x.shape for name, x in made.items()} == {"a": (32, 32), "b": (32, 32), "c": (32, 32), "bias": (32,)}
    assert (made["c"].dtype, made["bias"].dtype) == (np.float32, np.float32)
    first = [x.reshape(-1)[:32].astype(np.float32) for x in made.values()]
    assert len(np.unique(first, axis=0)) == 4


@pytest.mark.parametrize("name", ["exact_sum", "file:suites/data/minilm_sample.safetensors#ffn_up.weight"])
def test_what_is_added_is_normal_where_the_input_is_for_operands_only(name):
    case = replace(CASE, input=name, problem=Gemm(300, 80, 256))
    c = high_precision(replace(case, problem=Gemm(64, 80, 64)))["c"].astype(np.float32)
    assert len(np.unique(c)) > 500


# Diagnosis


def _story(edit):
    case = replace(CASE, flags=CASE.flags.replace(dtype="fp32"))
    expected = expect(case)
    wrong = {name: array.copy() for name, array in expected.values.items()}
    edit(wrong["output"])
    return case, story_of(case, "sm_90a", expected, [wrong])


def test_a_wrong_element_is_told_by_its_row_and_column():
    def flip(output):
        output[40, 31] *= 2

    case, found = _story(flip)
    story = str(found)
    assert "output float32 (48, 32): 1 of 1536 entries differ" in story
    assert "first     [40, 31], row 40 of A by row 31 of B" in story
    value = expect(case).values["output"][40, 31]
    assert f"0x{value.view(np.uint32):08X} = {value:.9g}" in story
    assert f"0x{(2 * value).view(np.uint32):08X} = {2 * value:.9g}" in story
    assert found.trace == ("--field", "output", "--at", "40,31")


@pytest.mark.parametrize(
    ("edit", "cause"),
    [
        (lambda output: output.fill(0), "not known (zeros written)"),
        (
            lambda output: output.__setitem__(slice(None), output[:, ::-1].copy()),
            "not known (right bytes in other places)",
        ),
        (
            lambda output: output.__setitem__((3, 4), np.nextafter(output[3, 4], np.float32(np.inf))),
            "not known (1-ulp value)",
        ),
    ],
    ids=["zeros", "permutation", "ulp"],
)
def test_causes_of_a_wrong_product(edit, cause):
    assert f"cause     {cause}" in str(_story(edit)[1])


def test_a_trace_adds_up_block_by_block():
    expected = expect(CASE)
    text = trace(CASE, "output", (40, 31), None, expected.inputs)
    assert "output: row 40 of A by row 31 of B, summed in order" in text
    lines = [line.split() for line in text.splitlines()]
    blocks = [line for line in lines if len(line) >= 7 and line[0] in "01234"]
    assert [line[0] for line in blocks] == ["0", "1", "2", "3", "4"]
    terms, sums = ([float(line[column]) for line in blocks] for column in (6, 7))
    assert np.cumsum(terms).tolist() == sums
    assert "output [40, 31] 0x" in " ".join(text.split())
    with pytest.raises(UsageError, match=r"element 40,32 is outside the 48x32 output"):
        trace(CASE, "output", (40, 32), None, expected.inputs)


def test_a_long_trace_shows_both_ends():
    case = find_case("gemm_ordered/a_scale_layout=swizzled/16x1024x16/normal/eager")
    text = trace(case, None, (3, 5), None, expect(case).inputs)
    shown = [line.split()[0] for line in text.splitlines() if line[:6].strip().isdigit()]
    assert shown == [*map(str, range(16)), *map(str, range(48, 64))]
