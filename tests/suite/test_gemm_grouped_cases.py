"""Groups of products, from YAML and ids to a grid, operands, a baseline, a story and a trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from suite_files import assert_mistake, written

from harness.bench import baseline
from harness.bench.baseline import baseline_id, product_bytes, tflops
from harness.contract.group_shape import GroupedShape
from harness.contract.problem import GroupedGemm
from harness.errors import ContractError, UsageError
from harness.expected.expected import expect, high_precision
from harness.jit.geometry import LaunchGeometry
from harness.oracles import gemm_grouped
from harness.suite.gemm_operands import input_extents
from harness.suite.launch_plan import numbers, plan
from harness.suite.shapes import canonical
from harness.suite.suite import find_case
from harness.verify.diagnosis.mismatch import story_of
from harness.verify.diagnosis.trace import trace

TEXT = """\
recipe: products
contract: NUMERICS 0
gemm: true
axes:
  recipe: [gemm]
  shape_representation: [varying_first_dim]
  layout: [tn, nn]
launches: [{kernel: products}]
sets:
  smoke: [{axes: default, shapes: [0+128x48x32, 128+128+128x16x16], inputs: [normal]}]
  full: [{axes: default, shapes: [4*128x32x16], inputs: [normal]}]
  bench: [{axes: default, shapes: [128x16x16], inputs: [normal]}]
"""
CASE = find_case("gemm_grouped/dtype=fp32,beta=0.5/128+0+256x80x48/normal/eager")
SAMPLE = "file:suites/data/minilm_sample.safetensors#ffn_up.weight"


# Suites and ids


def test_a_shape_is_m_of_every_group_then_k_and_n(tmp_path):
    suite = written(tmp_path, TEXT)
    first, second = suite.cases("smoke")
    assert (first.shape, second.shape) == ("3*128x16x16", "0+128x48x32")
    assert second.problem.tensors == ((0, 48), (128, 48))
    assert (second.rows, second.cols, second.problem.n) == (128, 48, 32)
    assert suite.find(second.id) == second
    assert suite.find("products/default/128+128+128x16x16/normal/eager") == first


def test_other_spellings_of_a_shape():
    assert canonical("128+128x64x512") == "2*128x64x512"
    assert canonical("64x512x128") == "64x512x128"
    assert canonical("128+128x64") == "2*128x64"


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        (
            "128+128x16",
            "'128\\+128x16' is not a shape of a grouped GEMM; one reads MxKxN with M or K of every group, as in",
        ),
        (
            "128+128x16x16+32",
            "tensor 1 has N = 32 where tensor 0 has 16; in varying_first_dim all products have the same",
        ),
        (
            "128+128x16x16of32",
            "'128\\+128x16x16of32' is not a shape of a grouped GEMM; .* with N of every group, too, as",
        ),
        ("128+128x24x16", "tensor 0 has cols = 24; cols is a positive multiple of 16"),
        ("128+128x16x24", "N = 24 is not a positive multiple of 16; the nearest is 32"),
        ("128+0x16x0", "N = 0 is not a positive multiple of 16; the nearest is 16"),
        ("65*128x16x16", "tensor 64 is one too many"),
        ("2147483648+128x16x16", "tensor 0: rows = 2147483648 is beyond 2147418112, and no kernel takes it"),
        ("16x16x2147483648", "N = 2147483648 is beyond 2147418112, and no kernel takes it"),
        (
            "3*16x16x1073741824",
            "N = 1073741824 of 3 products is 3221225472 lines of B, beyond 2147418112, and no kernel takes as many; "
            "N of 3 products is at most 715806032",
        ),
    ],
)
def test_an_id_with_another_shape(tmp_path, shape, sentence):
    with pytest.raises(UsageError, match=sentence):
        written(tmp_path, TEXT).find(f"products/default/{shape}/normal/eager")


ANY = "gemm_grouped/shape_representation=varying_both_dims"


@pytest.mark.parametrize(
    ("shape", "spelled", "products"),
    [
        ("128+256x384+512x256+640", "128+256x384+512x256+640", [(128, 384, 256), (256, 512, 640)]),
        ("128x384x256+640", "2*128x384x256+640", [(128, 384, 256), (128, 384, 640)]),
        ("2*128x384x2*256", "2*128x384x256", [(128, 384, 256)] * 2),
        ("16+0x32x48+0", "16+0x32x48+0", [(16, 32, 48), (0, 32, 0)]),
        ("16x32x0", "16x32x0", [(16, 32, 0)]),
    ],
)
def test_groups_that_share_no_extent(shape, spelled, products):
    case = find_case(f"{ANY}/{shape}/normal/eager")
    assert (case.shape, canonical(shape), canonical(spelled)) == (spelled,) * 3
    assert [(part.rows, part.cols, part.problem.n) for part in case.parts] == products
    assert case.problem.grid_extents == tuple((m, n) for m, _, n in products)
    assert [step.signature.name for step in plan(case)] == ["gemm_grouped_varying_n"]


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ("128+256x32x16+32+48", "has 2 extents of A and 3 of N; give one of each"),
        ("128x32x0*16", "has no product: 0\\*16 is none of them"),
        ("128x32x16+24", "tensor 1 has N = 24; a varying extent is 0 or a multiple of 16, the nearest is 32"),
        ("17x32x16", "tensor 0 has rows = 17; a varying extent is 0 or a multiple of 16"),
        ("16x32x65*16", "tensor 64 is one too many"),
        ("16x1073741824x16", "tensor 0: K = 1073741824 is beyond 1073676288, and no kernel of gemm_grouped"),
        ("16x16x1073741824+1073741824", "tensor 1 ends at N = 2147483648 of the group; the N of all tensors sum up to"),
        ("16x16x16+2147483648", "tensor 1: N = 2147483648 is beyond 2147418112, and no kernel takes it"),
        ("128+0x128of65536x16", "a capacity of products in varying_both_dims; the host cannot count the tiles"),
    ],
)
def test_an_id_with_other_products(shape, sentence):
    with pytest.raises(UsageError, match=sentence):
        find_case(f"{ANY}/{shape}/normal/eager")


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("4*128x32x16", "[128, 32, 16]", 11, "has [128, 32, 16] where a shape like 128+0+256x512x1024 belongs"),
        (
            "4*128x32x16",
            "4*128x32",
            11,
            "'4*128x32' does not fit varying_first_dim of gemm: '4*128x32' is not a shape of",
        ),
        ("gemm: true", "gemm: false", 10, "'0+128x48x32' is not a grouped shape"),
    ],
)
def test_a_mistake_in_a_suite_of_groups(tmp_path, old, new, line, sentence):
    assert_mistake(tmp_path, TEXT, (old, new), sentence, line)


def test_a_file_must_hold_the_operands_of_every_group():
    assert input_extents(CASE) == ((128, 80), (48, 80), (0, 80), (48, 80), (256, 80), (48, 80))
    assert find_case(f"gemm_grouped/default/0+128x128x48/{SAMPLE}/eager").problem.tensors == ((0, 128), (128, 128))
    with pytest.raises(UsageError, match="4096"):
        find_case(f"gemm_grouped/default/128+4096x128x48/{SAMPLE}/eager")


WGRAD = "shape_representation=varying_last_dim,layout=nt"


@pytest.mark.parametrize(
    ("flags", "shape", "sentence"),
    [
        ("default", "16x1073741824x16", "tensor 0: K = 1073741824 is beyond 1073676288, and no kernel of gemm_grouped"),
        (WGRAD, "16x16+1073741824x16", "tensor 1: K = 1073741824 is beyond 1073676288, and no kernel of gemm_grouped"),
        (WGRAD, "128x128of137438953472x16", "the capacity along K = 1073741824 is beyond 1073676288, and no kernel of"),
        ("epilogue=row_scaled", "3*16x16x1073741824", "N = 1073741824 of 3 products is 3221225472 lines of B, beyond"),
    ],
)  # fmt: skip
def test_a_group_of_products_beyond_32_bits(flags, shape, sentence):
    legal = find_case(f"gemm_grouped/{flags}/{'16x16' if flags == WGRAD else '3*16x16'}x16/normal/eager")
    with pytest.raises(UsageError, match=sentence):
        find_case(f"gemm_grouped/{flags}/{shape}/normal/eager")
    sides, _, n = shape.rpartition("x")
    group = GroupedShape.parse(sides)
    rows, cols = group.logical(legal.flags.shape_representation)
    problem = GroupedGemm(rows, cols, int(n), group.tensors, group.capacity, by_k=flags == WGRAD)
    with pytest.raises(ContractError, match=f"gemm_grouped: {sentence}"):
        gemm_grouped.outputs(replace(legal, problem=problem))


def test_the_largest_groups_of_products_are_cases():
    for flags, shape in (("default", "3*16x16x715806032"), (WGRAD, "2*16x1073676288x16")):
        assert find_case(f"gemm_grouped/{flags}/{shape}/normal/eager").shape == shape


# What a case is


def test_every_group_is_a_case_of_its_own_with_its_own_seed():
    groups = CASE.parts
    assert [group.shape for group in groups] == ["128x80x48", "0x80x48", "256x80x48"]
    assert {group.variant for group in groups} == {"dtype=fp32,beta=0.5"}
    assert len({group.seed for group in groups} | {CASE.seed}) == 4


def test_what_a_group_costs():
    assert CASE.elements == 384 * 80 + 3 * 48 * 80 + 384 * 48
    assert CASE.terms == 384 * 80 * 48
    assert CASE.problem.grid_extents == ((128, 48), (0, 48), (256, 48))


def test_a_grid_covers_the_outputs_of_all_groups():
    tiles = LaunchGeometry(tile_rows=128, tile_cols=16, threads=128, blocks_per_sm=2, schedule=0)
    assert tiles.grid(CASE.problem, 132) == (3 * 3, 1, 1)
    assert replace(tiles, schedule=1).grid(CASE.problem, 132) == (9, 1, 1)
    assert replace(tiles, schedule=1).grid(CASE.problem, 2) == (4, 1, 1)
    assert tiles.grid(replace(CASE.problem, m=0, tensors=((0, 80),) * 2), 132) == (1, 1, 1)


def test_the_host_knows_the_capacity_alone():
    case = find_case("gemm_grouped/default/0+128+0of384x80x48/normal/eager")
    (step,) = plan(case)
    assert step.case.problem.grid_extents == ((128, 48),) * 3
    with pytest.raises(ContractError, match="the host reads the extents of 3 tensors"):
        list(step.case.problem.tensors)
    other = replace(case, problem=replace(case.problem, tensors=((128, 80), (0, 80), (256, 80))))
    assert (case.seed, plan(other)) == (other.seed, plan(case))
    assert case.problem.elements == other.problem.elements == 384 * 80 + 48 * (384 + 3 * 80)


def test_a_wgrad_in_an_allocation_has_the_tiles_of_its_outputs():
    case = find_case("gemm_grouped/shape_representation=varying_last_dim,layout=nt/80x0+128+0of30720x48/normal/eager")
    (step,) = plan(case)
    assert step.case.problem.grid_extents == ((80, 48),) * 3
    other = replace(case, problem=replace(case.problem, tensors=((80, 128), (80, 0), (80, 256))))
    assert (case.seed, plan(other)) == (other.seed, plan(case))
    assert case.problem.elements == other.problem.elements == 384 * 80 + 48 * (384 + 3 * 80)


@pytest.mark.parametrize(
    ("flags", "shape", "sentence"),
    [
        ("default", "128+256of256x16x16", "tensor 1 ends at element 6144 of an allocation of 4096"),
        ("default", "100+28of256x16x16", "tensor 0 has rows = 100; a varying extent is 0 or a multiple of 128"),
        (
            "shape_representation=varying_last_dim,layout=nt",
            "128x128+256of32768x16",
            "tensor 1 ends at element 49152 of an allocation of 32768",
        ),
    ],
)
def test_a_capacity_that_no_group_has(flags, shape, sentence):
    with pytest.raises(UsageError, match=sentence):
        find_case(f"gemm_grouped/{flags}/{shape}/normal/eager")


def test_a_kernel_may_ask_for_the_number_of_groups():
    known = numbers(CASE)
    assert {name: known[name] for name in ("M", "K", "N", "num_tensors", "beta")} == {
        "M": 384, "K": 80, "N": 48, "num_tensors": 3, "beta": 0.5,
    }  # fmt: skip
    assert [step.signature.name for step in plan(CASE)] == ["gemm_grouped"]


def test_the_baseline_is_a_loop_of_products(monkeypatch):
    assert baseline_id(CASE) == "cublas/bf16/128+0+256x80x48/normal/eager"
    assert product_bytes(CASE) == 2 * (384 * 80 + 2 * 48 * 80 + 384 * 48)
    made = []
    monkeypatch.setattr(baseline.cublas, "bf16_product", lambda *extents: lambda: made.append(extents))
    call, times = baseline.product(CASE, clock=None, l2_bytes=0)
    call()
    assert (made, times) == ([(128, 80, 48), (256, 80, 48)], 1)
    wgrad = find_case("gemm_grouped/shape_representation=varying_last_dim,layout=nt/48x16+0+80x32/normal/eager")
    made.clear()
    baseline.product(wgrad, clock=None, l2_bytes=0)[0]()
    assert made == [(48, 16, 32), (48, 80, 32)]
    assert tflops(CASE, microseconds=1) == pytest.approx(2 * 384 * 80 * 48 / 1e6)


@pytest.mark.parametrize(("layout", "b"), [("tn", (3 * 48, 80)), ("nn", (3 * 80, 48))])
def test_operands_are_those_of_the_groups_one_below_the_other(layout, b):
    case = replace(CASE, flags=CASE.flags.replace(layout=layout))
    made = high_precision(case)
    assert {name: x.shape for name, x in made.items()} == {"a": (384, 80), "b": b, "c": (384, 48)}
    last = high_precision(case.part(2))
    for name, array in last.items():
        np.testing.assert_array_equal(made[name][-len(array) :], array)
    assert high_precision(case.part(1))["a"].shape == (0, 80)


# Diagnosis


def test_a_wrong_element_is_told_by_its_group():
    expected = expect(CASE)
    run = {"output": expected.values["output"].low.copy()}
    run["output"][128 + 40, 7] = 1000
    found = story_of(CASE, "sm_90a", expected, [run])
    story = str(found)
    assert "output float32 (384, 48): 1 of 18432 entries are outside their intervals" in story
    assert "group     2 of 3, 256x80x48; the first is 0" in story
    assert "first     [40, 7], row 40 of A by row 7 of B" in story
    assert "at least" in story and "above the highest" in story
    assert found.trace == ("--tensor", "2", "--field", "output", "--at", "40,7")


def test_a_trace_is_that_of_the_group():
    text = trace(CASE, "output", (40, 7), None, expect(CASE).inputs, tensor=2)
    alone = trace(CASE.part(2), "output", (40, 7), None, expect(CASE.part(2)).inputs)
    assert "tensor 2 of 3, 256x80x48: output: row 40 of A by row 7 of B" in text
    assert text.splitlines()[2:] == alone.splitlines()[2:]
    with pytest.raises(UsageError, match="element 40,48 is outside the 256x48 output"):
        trace(CASE, "output", (40, 48), None, expect(CASE).inputs, tensor=2)
    with pytest.raises(UsageError, match="has no elements"):
        trace(CASE, "output", (0, 0), None, expect(CASE).inputs, tensor=1)
