"""A set is whole, small, the same every time, and has every value of every recipe."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from own_recipe import in_use
from vector_sets import DECODED, GROUP, IDS, MXFP8, PLAIN, PRODUCT, RANDOM, SPECIALS, TIES, TINY, VectorSet

from harness.commands import vectors as vectors_verb
from harness.errors import ContractError, UsageError
from harness.expected.expected import expect, fields_of, forget, make_inputs
from harness.files import ROOT
from harness.oracles import nvfp4
from harness.suite.suite import find_case, load_suites, suite_of
from harness.vectors import acceptance, description, selection, write


@pytest.mark.slow
def test_every_value_input_and_shape_is_met_in_a_set_that_is_small():
    """Only values that some case of a set has are asked for: a suite refuses every combination with any other."""
    chosen, provisional = {}, {}
    for suite in load_suites():
        chosen[suite.recipe], provisional[suite.recipe] = selection.choose(suite), selection.choose(suite, True)
        if suite.file.pipeline:
            assert not chosen[suite.recipe] and not provisional[suite.recipe]
            continue
        every = [case for name in ("smoke", "full") for case in suite.cases(name) if case.mode == "eager"]
        small = [case for case in selection.candidates(suite) if not case.is_provisional]
        cases = chosen[suite.recipe]
        met = {each for case in (*cases, *provisional[suite.recipe]) for each in selection.features(case)}
        assert {item for case in every for item in case.flags.items()} <= met
        assert {case.input for case in small} <= {case.input for case in cases}
        smoke = {case.id for case in suite.cases("smoke")}
        assert {case.shape for case in small if case.id in smoke} <= {case.shape for case in cases}
        assert all(case.work <= selection.ELEMENTS and case.mode == "eager" for case in cases)
        assert all(sum(field.nbytes for field in fields_of(case).values()) for case in cases)  # something is compared
    # By estimate; `write` refuses a set that is larger. All of ours are below it, with those of the examples.
    costs = []
    for folder in (ROOT / "examples").iterdir():
        with in_use(folder):
            costs.append(sum(map(selection.cost, selection.choose(suite_of(folder.name)))))
    sets = [case for each in (chosen, provisional) for cases in each.values() for case in cases]
    assert sum(map(selection.cost, sets)) + sum(costs) < 0.95 * write.MOST
    names = [write.name_of(case) for case in sets]
    assert len(names) == len(set(names)) > 500


@pytest.mark.parametrize("recipe", ["per_tensor", "local_1x64", "gemm_ordered"])
def test_the_plain_recipe_meets_every_input(recipe):
    suite = suite_of(recipe)
    small = selection.candidates(suite)
    found = selection.plain(suite, small)
    assert all(case.flags == suite.defaults for case in found) and len({case.shape for case in found}) == 1
    left_out = {case.input for case in small} - {case.input for case in found}
    assert left_out <= {"exhaustive", *(("huge",) if recipe == "gemm_ordered" else ())}


def test_the_plain_recipe_has_a_shape_that_its_default_flags_take(monkeypatch):
    suite = suite_of("per_tensor")
    small = selection.candidates(suite)
    shape = selection.plain(suite, small)[0].shape

    def fields(case):
        if case.flags == suite.defaults and case.shape == shape:
            raise ContractError("not of this shape")
        return fields_of(case)

    monkeypatch.setattr(selection, "fields_of", fields)
    (other,) = {case.shape for case in selection.plain(suite, small)}
    assert other != shape


def test_the_same_sources_write_the_same_bytes(vectors: VectorSet):
    forget()
    again = write.contents([find_case(each) for each in IDS])
    assert {path.name for path in vectors.folder.iterdir()} == set(again)
    for name, content in again.items():
        assert (vectors.folder / name).read_bytes() == content, name


def test_the_index_says_what_the_files_hold(vectors: VectorSet):
    index = vectors.index
    assert index["format"] == write.FORMAT and index["numerics"]["digest"] == write.numerics()
    assert (ROOT / index["numerics"]["document"]).exists() and set(index["conventions"]) == set(acceptance.MEANINGS)
    for about in index["vectors"].values():
        tensors = vectors.tensors(about["id"])
        for name, array in tensors.items():
            assert about["sha256"][name] == hashlib.sha256(array.tobytes()).hexdigest()
        assert set(about["sha256"]) == set(tensors)
        assert about["digest"] == hashlib.sha256((vectors.folder / about["file"]).read_bytes()).hexdigest()
        named = {*about["arrays"]}
        for name, field in about["fields"].items():
            assert field["holds"] in index["holds"] and field["shape"] == list(vectors.answer(about["id"])[name].shape)
            ends = {f"{end}.{name}" for end in ("expected", "lowest", "highest")} & set(tensors)
            named |= ends | {each["array"] for each in field["conventions"].values() if "array" in each}
        assert named == set(tensors)


@pytest.mark.parametrize("case_id", IDS)
def test_what_is_expected_is_what_the_oracles_say(case_id, vectors: VectorSet):
    case, tensors = find_case(case_id), vectors.tensors(case_id)
    found = expect(case)
    for name, array in found.inputs.items():
        assert tensors[f"input.{name}"].tobytes() == array.tobytes()
    for name, value in found.values.items():
        ends = ("lowest", "highest") if case_id == PRODUCT else ("expected", "expected")
        wanted = (value.low, value.high) if case_id == PRODUCT else (value, value)
        assert [tensors[f"{end}.{name}"].tobytes() for end in ends] == [each.tobytes() for each in wanted]
    about = vectors.about(case_id)
    assert about["contract"] == suite_of(case.recipe).file.contract and about["flags"] == dict(case.flags)
    assert int(about["seed"], 16) == case.seed


def test_random_bits_can_be_drawn_from_what_the_index_says(vectors: VectorSet):
    """With another Philox than the oracles': words of Python's integers, by NUMERICS 2.9."""
    about, tensors = vectors.about(RANDOM)["random"], vectors.tensors(RANDOM)
    for direction, name in enumerate(("rowwise", "columnwise")):
        given = tensors[f"random.{name}"]
        for block in (0, 7, given.size // 16 - 1):
            words = philox([block, 0, direction, about["offset"]], about["key"])
            assert b"".join(word.to_bytes(4, "little") for word in words) == given.reshape(-1, 16)[block].tobytes()
    assert "random" not in vectors.about(PLAIN) and "offset + g" in vectors.about(GROUP)["random"]["group"]


def philox(counter: list[int], key: list[int]) -> list[int]:
    a, b, c, d = counter
    for turn in range(10):
        k = [(word + turn * step) % 2**32 for word, step in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)]
        x, y = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (y >> 32) ^ b ^ k[0], y % 2**32, (x >> 32) ^ d ^ k[1], x % 2**32
    return [a, b, c, d]


def test_padding_is_where_the_contract_has_it(vectors: VectorSet):
    for case_id, corner in ((PLAIN, (16, 1)), (SPECIALS, (48, 5))):
        mask = vectors.tensors(case_id)["skip.padding.rowwise_scale_inv"]
        scales = vectors.tensors(case_id)["expected.rowwise_scale_inv"]
        assert not scales[mask == 0xFF].any() and np.count_nonzero(mask == 0) == corner[0] * corner[1]
    rows, blocks = 48, 5
    for r, c in ((0, 0), (47, 4), (48, 0), (0, 5), (33, 3)):
        at = (r // 128 * 2 + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
        assert (mask.reshape(-1)[at] == 0) == (r < rows and c < blocks)


def test_other_codes_are_neighbours_of_the_value(vectors: VectorSet):
    there = vectors.tensors(RANDOM)
    codes, others = (nvfp4.unpack(there[name]) for name in ("expected.rowwise_data", "either.random-bits.rowwise_data"))
    scale = nvfp4.E4M3_VALUES[there["expected.rowwise_scale_inv"][:48, :5]].astype(np.float64)
    amax = float(there["expected.rowwise_amax"][0])
    exact = there["input.input"].astype(np.float64) / (np.repeat(scale, 16, axis=1) * amax / 2688)
    ends = np.sort(nvfp4.E2M1_VALUES[np.stack([codes, others])], axis=0)
    exact = np.clip(exact, -6, 6)
    assert ((ends[0] - 1e-5 <= exact) & (exact <= ends[1] + 1e-5)).all()
    assert np.count_nonzero(codes != others) > codes.size * 0.9


def test_the_page_has_every_convention():
    page = (ROOT / "docs" / "vectors.md").read_text()
    assert set(re.findall(r"^\| `(\w[\w-]+)` \|", page, re.MULTILINE)) == set(acceptance.MEANINGS)


def test_what_few_values_mean_is_said(vectors: VectorSet):
    case_id = "per_tensor/outputs=rowwise/48x80/zeros/eager"
    about = write.vector(find_case(case_id)).about["fields"]["rowwise_data"]
    assert about["few"] == "1 different values: zeros give one code and one scale"
    assert "few" not in vectors.about(TIES)["fields"]["rowwise_data"]


def test_a_folder_of_recipes_has_a_set_of_its_own(tmp_path):
    folder = shutil.copytree(ROOT / "examples" / "mxfp8", tmp_path / "mxfp8")
    words = ["--recipe-dir", str(folder), "--out", str(tmp_path / "none"), "--provisional"]
    said = CliRunner().invoke(vectors_verb.command, words)
    assert "there is no flag that is provisional in mxfp8" in str(said.exception)
    with in_use(folder):
        suite = suite_of("mxfp8")
        cases = selection.choose(suite)
        inputs = {case.input for name in ("smoke", "full") if name in suite.sets for case in suite.cases(name)}
        assert {case.input for case in cases} == inputs
        about = write.vector(find_case(MXFP8)).about
        assert about["contract"] == "" and "random" not in about
        assert {name for field in about["fields"].values() for name in field["conventions"]} == {
            acceptance.ZERO_SIGN, acceptance.NAN, acceptance.PADDING
        }  # fmt: skip
        before = write.numerics(["mxfp8"])
        (folder / "mxfp8.py").write_text((folder / "mxfp8.py").read_text() + "# another\n")
        assert write.numerics(["mxfp8"]) not in (before, write.numerics())
    assert write.numerics(["per_tensor"]) == write.numerics()


def test_an_array_that_no_checker_reads_is_refused():
    with pytest.raises(UsageError, match="an array of uint32 has no vector; one has uint8, int64, float32"):
        description.dtype_of(np.dtype(np.uint32))


def test_oracles_that_disagree_write_nothing(monkeypatch, tmp_path):
    right = write.expect

    def one_byte_off(case):
        found = right(case)
        return replace(found, disagreement="the oracles disagree on 1 bytes of rowwise_data")

    monkeypatch.setattr(write, "expect", one_byte_off)
    with pytest.raises(UsageError, match=r"16x16/normal/eager: the oracles disagree.*; no vector is written"):
        write.write([find_case(PLAIN)], tmp_path / "set")
    assert not (tmp_path / "set").exists()
    monkeypatch.setattr(write, "expect", lambda case: replace(right(case), oracles=("torch",)))
    with pytest.raises(UsageError, match="only one oracle was asked"):
        write.write([find_case(PLAIN)], tmp_path / "set")


def test_a_set_that_is_too_large_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(write, "MOST", 1000)
    with pytest.raises(UsageError, match="more than 1,000; name fewer recipes"):
        write.write([find_case(PLAIN)], tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        write.write([find_case(PLAIN)], tmp_path)
    with pytest.raises(UsageError, match="not an empty folder"):
        write.write([find_case(PLAIN)], tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_index_is_plain_json(vectors: VectorSet):
    text = (vectors.folder / "index.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert text.isascii() and len(text.splitlines()) < 60
    assert vectors.about(DECODED)["fields"]["output"]["dtype"] == "BF16"
    assert set(vectors.about(TINY)["fields"]["rowwise_data"]["conventions"]) >= {acceptance.ZERO_SCALE}


@pytest.mark.parametrize(
    ("case_id", "scales"),
    [
        ("per_tensor/default/48x80/normal/eager", "e4m3"),
        ("per_tensor/scale_format=ue5m3/48x80/normal/eager", "ue5m3"),
        ("dequantize/scale_format=ue5m3,global_scale=false/48x80/normal/eager", "ue5m3"),
    ],
)
def test_scales_are_said_to_be_of_their_format(case_id: str, scales: str):
    case = find_case(case_id)
    fields = {name: description.of_field(name, field) for name, field in fields_of(case).items()}
    arrays = {name: description.of_array(case, name, array) for name, array in make_inputs(case).items()}
    held = {name: about["holds"] for name, about in (fields | arrays).items() if name.endswith("scale_inv")}
    assert set(held.values()) == {scales} <= description.HOLDS.keys()
