"""Suites and case ids that are wrong in any way: one sentence, soon, or cases whose ids find them again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile import TOKENS, bounded, mutated, patience
from hypothesis import given
from hypothesis import strategies as st
from suite_files import SUITE

from harness.errors import SuiteError, UsageError
from harness.files import SUITES
from harness.ground.yaml_lines import read
from harness.suite.cover import TooManyError, pairwise
from harness.suite.suite import find_case, load_suite

SMALL = ("casts", "dequantize", "forward", "grouped", "swizzle")
ORIGINALS = [(SUITES / f"{name}.yaml").read_bytes() for name in SMALL]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "suites"
    path.mkdir()
    return path


def cases_or_refusal(path: Path) -> str:
    """Empty if the suite is right: the sentence if it is refused."""
    with patience():
        try:
            suite = load_suite(path)
            for name in suite.sets:
                for case in suite.cases(name)[:2]:
                    assert suite.find(case.id) == case
        except UsageError as error:
            assert "\n" not in str(error) and str(error).isprintable()
            return str(error)
    return ""


@pytest.mark.slow
@bounded(100)
@given(data=st.data())
def test_a_changed_suite_is_refused_or_has_cases_with_ids(folder: Path, data: st.DataObject):
    index = data.draw(st.integers(0, len(SMALL) - 1))
    path = folder / f"{SMALL[index]}.yaml"
    path.write_bytes(data.draw(mutated(ORIGINALS[index], *ORIGINALS[:1])))
    cases_or_refusal(path)


KEYS = st.sampled_from(
    ("recipe", "contract", "axes", "exclude", "launches", "pipeline", "sets", "smoke", "full", "bench", "gemm", "cover",
     "shapes", "inputs", "modes", "when", "because", "kernel", "library", "scratch", "multiple_of", "dtype", "rht", "x",
     "shape_representation", "others", "stage", "a", "b", "")
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), KEYS,
    st.sampled_from(("toy", "casts", "normal", "default", "each", "product", "16x16", "4*128x128", "4 * c", "2**9")),
)  # fmt: skip
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
TOY = {
    "recipe": "toy", "contract": "NUMERICS 0", "axes": {"dtype": ["bf16", "fp16"], "rht": [False, True]},
    "launches": [{"kernel": "toy"}],
    "sets": {
        name: [{"cover": "product", "shapes": [[16, 16]], "inputs": ["normal"]}] for name in ("smoke", "full", "bench")
    },
}  # fmt: skip


@pytest.mark.slow
@bounded(100)
@given(tree=TREES, route=st.lists(st.integers(0, 5), max_size=5))
def test_any_tree_in_the_place_of_any_other_is_refused_or_a_suite(folder: Path, tree, route: list[int]):
    document = json.loads(json.dumps(TOY))
    place = document
    for step in route:
        keys = list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
        if not keys:
            break
        key = keys[step % len(keys)]
        if step == route[-1] or not isinstance(place[key], dict | list):
            place[key] = tree
            break
        place = place[key]
    path = folder / "toy.yaml"
    path.write_text(json.dumps(document).replace("NaN", ".nan").replace("Infinity", ".inf"))
    cases_or_refusal(path)


LAUGHS = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"a0: &a0 [x]\n{LAUGHS}\n", "there are more than"),
        ("a: &a [*a]\n", "stands within the value that it names"),
        ("[" * 5000, "nested more than"),
        ("- " * 5000, "nested more than"),
        ("a: &x 1\nb: &x 2\n", "duplicate anchor"),
        (f"recipe: {'9' * 5000}\n", "cannot be read"),
        ("recipe: !!timestamp 2001-99-99\n", "tags are not read"),
        ("recipe: !!python/object/apply:os.system [ls]\n", "tags are not read"),
        ("x" * (1 << 20), "characters; no suite or card needs as many"),
        ("recipe: 'a\0b'\n", "not valid YAML"),
    ],
    ids=["laughs", "itself", "brackets", "dashes", "anchors", "digits", "date", "python", "size", "nul"],
)
def test_yaml_that_would_never_end_is_one_sentence(tmp_path: Path, text: str, sentence: str):
    path = tmp_path / "toy.yaml"
    path.write_text(text)
    with patience(), pytest.raises(SuiteError) as caught:
        read(path, "toy.yaml")
    assert sentence in str(caught.value) and len(str(caught.value)) < 400


def axes(count: int, values: int) -> str:
    return "".join(f"  f{i}: [{', '.join(map(str, range(values)))}]\n" for i in range(count))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("axes:\n", f"axes:\n{axes(10, 12)}"), "no cover of these axes is found in"),
        (("[[32, 32]]", str([[16, 16 * i] for i in range(1, 1500)])), "combinations; at most"),
        (("[[32, 32]]", "[[16, 99999999999]]"), "has a number beyond 2147418112"),
        (("[normal]", '["file:a\\nb"]'), "has a character that no case id may have"),
        (("[normal]", '["file:/dev/zero"]'), "there is no file /dev/zero"),
        (("[normal]", f"[file:{'a' * 5000}]"), "there is no file aaa"),
    ],
    ids=["cover", "shapes", "extent", "newline", "device", "long path"],
)
def test_a_suite_that_asks_for_too_much_is_one_sentence(folder: Path, change: tuple[str, str], sentence: str):
    path = folder / "toy.yaml"
    path.write_text(SUITE.replace(*change))
    assert sentence in cases_or_refusal(path)


def test_a_pair_that_takes_for_ever_to_find_is_given_up():
    # Whether the first two values meet is decided by the last two axes, after all that lie between.
    with patience(), pytest.raises(TooManyError, match="name first the axes that exclusions are about"):
        pairwise([2] * 30, lambda row: row[0] == row[1] == 0 and None not in row[-2:])


IDS = (
    "per_tensor/default/16x16/normal/eager",
    "grouped/default/4*128x128/normal/graph",
    "gemm/default/16x64x16/normal/eager",
)


@bounded(250)
@given(changed=mutated(*map(str.encode, IDS)))
def test_a_changed_case_id_is_refused_or_names_a_case(changed: bytes):
    refused_or_found(changed.decode(errors="surrogateescape"))


@pytest.mark.parametrize("shape", ["9" * 5000 + "x16", f"{'9' * 18}x16", f"{'9' * 400}6x16", "2147483520x256"])
def test_an_extent_beyond_all_kernels_is_refused(shape: str):
    assert not refused_or_found(f"per_tensor/default/{shape}/normal/eager")


@pytest.mark.parametrize(
    "name", ["file:\0", "file:" + "a" * 5000, "file:\udc80", "file:/dev/zero", "file:suites", "\n"]
)
def test_an_input_that_is_no_file_is_refused(name: str):
    assert not refused_or_found(f"per_tensor/default/16x16/{name}/eager")


def refused_or_found(case_id: str) -> bool:
    with patience():
        try:
            case = find_case(case_id)
        except UsageError as error:
            assert "\n" not in str(error)
            return False
    assert find_case(case.id) == case
    return True


def test_the_tokens_hold_what_is_dangerous_in_yaml():
    assert any(b"python/object" in token for token in TOKENS) and any(token.count(b"*a") > 2 for token in TOKENS)
