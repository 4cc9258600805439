"""Both checkers: what is equal is said with its bytes, and every byte that is not is named by its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from vector_sets import (
    CASTS,
    DECODED,
    GROUP,
    IDS,
    MXFP8,
    NO_ROWS,
    PLAIN,
    PRODUCT,
    RANDOM,
    SPECIALS,
    TIES,
    TINY,
    UE5M3,
    Said,
    VectorSet,
    in_python,
)

from harness.contract.interval import inside
from harness.expected.formats import VALUES
from harness.files import PACKAGE
from harness.vectors import acceptance, check

ALL = tuple(word for name in acceptance.MEANINGS for word in ("--convention", name))


def flipped(array: np.ndarray, byte: int, bits: int = 0x40) -> np.ndarray:
    """The array with some bits of one of its bytes changed."""
    found = np.ascontiguousarray(array).copy()
    found.reshape(-1).view(np.uint8)[byte] ^= bits
    return found


def place(name: str, array: np.ndarray, byte: int) -> str:
    at = np.unravel_index(byte // array.itemsize, array.shape)
    return f"different: {name} [{', '.join(map(str, at))}]"


@pytest.mark.parametrize("case_id", IDS)
def test_a_right_answer_is_equal_with_all_its_bytes(case_id, vectors: VectorSet, checker, tmp_path):
    answer = vectors.answer(case_id)
    said = checker(vectors.folder, case_id, vectors.write(tmp_path / "a.safetensors", answer))
    total = sum(array.nbytes for array in answer.values())
    assert said.code == 0 and f", {total} bytes compared in {', '.join(answer)}" in said.out, said
    assert not said.err and "accepted" not in said.out


@pytest.mark.slow
@pytest.mark.parametrize("case_id", IDS)
def test_some_bytes_of_every_field_flipped_are_found_where_they_are(case_id, vectors: VectorSet, checker, tmp_path):
    answer, tensors = vectors.answer(case_id), vectors.tensors(case_id)
    for name, right in answer.items():
        for byte in sorted({0, right.nbytes // 3, right.nbytes - 1} & set(range(right.nbytes))):
            wrong = flipped(right, byte)
            if f"lowest.{name}" in tensors and allowed(wrong, tensors, name):
                continue
            said = checker(vectors.folder, case_id, vectors.write(tmp_path / "a.safetensors", {**answer, name: wrong}))
            assert said.code == 1 and said.out.startswith(place(name, right, byte)), (name, byte, said)
            assert said.out.endswith("; 1 entries differ\n") and not said.err


def allowed(array: np.ndarray, tensors: dict[str, np.ndarray], name: str) -> bool:
    ends = (tensors[f"{end}.{name}"].reshape(-1).view(np.uint8) for end in ("lowest", "highest"))
    return bool(inside(array.reshape(-1).view(np.uint8), *ends, array.itemsize).all())


def test_every_byte_counts(vectors: VectorSet, capsys):
    name, about, tensors, _ = check.load(vectors.folder, PLAIN)
    fields = [check.Field(field, about["fields"][field], tensors, []) for field in about["fields"]]
    answer = vectors.answer(PLAIN)
    given = {field: ("a.bin", None, None, array.tobytes()) for field, array in answer.items()}
    assert check.compare(name, fields, given) == check.EQUAL
    for field, right in answer.items():
        for byte in range(right.nbytes):
            wrong = flipped(right, byte, 1 << byte % 8).tobytes()
            capsys.readouterr()
            assert check.compare(name, fields, {**given, field: ("a.bin", None, None, wrong)}) == check.DIFFERENT
            assert capsys.readouterr().out.startswith(place(field, right, byte))


@pytest.mark.slow
def test_both_say_the_same(vectors: VectorSet, compiled: Path, tmp_path):
    for case_id in IDS:
        answer = vectors.answer(case_id)
        wrong = {
            name: flipped(array, array.nbytes // 2, 0x55) if array.size else array for name, array in answer.items()
        }
        for fields in (answer, wrong):
            for conventions in ((), ALL):
                words = [vectors.folder, case_id, vectors.write(tmp_path / "a.safetensors", fields), *conventions]
                done = subprocess.run([compiled, *map(str, words)], capture_output=True, text=True)
                assert Said(done.returncode, done.stdout, done.stderr) == in_python(*words)


def test_bytes_are_shown_as_the_numbers_they_are(vectors: VectorSet, checker, tmp_path):
    answer = vectors.answer(PLAIN)
    data, scales = answer["rowwise_data"].copy(), answer["rowwise_scale_inv"].copy()
    data[3, 5] = 0x2F if data[3, 5] >> 4 != 2 else 0x3F
    scales[7, 0], amax = 0x7F, np.array([-0.5], np.float32)
    fields = {**answer, "rowwise_data": data, "rowwise_scale_inv": scales, "rowwise_amax": amax}
    lines = checker(vectors.folder, PLAIN, vectors.write(tmp_path / "a.safetensors", fields)).out.splitlines()
    assert lines[0].startswith(f"different: rowwise_data [3, 5]: byte 0x{data[3, 5]:02x}, must be 0x")
    assert "different: rowwise_scale_inv [7, 0]: 0x7f (nan), must be 0x" in lines[1]
    assert "different: rowwise_amax [0]: 0xbf000000 (-0.5), must be 0x" in lines[2]


@pytest.mark.parametrize(
    ("byte", "number"), [(0xFF, "nan"), (0x7F, "1.875"), (0xFE, "114688"), (0x01, "7.62939453e-06")]
)
def test_a_byte_of_ue5m3_is_shown_as_its_number(byte, number, vectors: VectorSet, checker, tmp_path):
    answer = vectors.answer(UE5M3)
    scales = answer["rowwise_scale_inv"].copy()
    scales[7, 0] = byte
    said = checker(
        vectors.folder, UE5M3, vectors.write(tmp_path / "a.safetensors", {**answer, "rowwise_scale_inv": scales})
    )
    assert said.out.startswith(f"different: rowwise_scale_inv [7, 0]: 0x{byte:02x} ({number}), must be 0x")


@pytest.mark.parametrize("form", ["e4m3", "e5m2", "ue5m3", "e8m0"])
def test_every_byte_of_a_format_of_scales(form):
    for byte, value in enumerate(VALUES[form]):
        expected = "nan" if np.isnan(value) else f"{value:.9g}"
        assert check.decode(byte, "U8", form) == expected


def test_formats_without_a_sign_have_one_zero_and_one_nan(vectors: VectorSet, checker, tmp_path):
    right = vectors.answer(UE5M3)
    for row, byte in ((0, 0x80), (1, 0x7F)):
        scales = right["rowwise_scale_inv"].copy()
        scales[row + 48, 0] = byte  # padding, which is 0
        path = vectors.write(tmp_path / "a.safetensors", {**right, "rowwise_scale_inv": scales})
        said = checker(vectors.folder, UE5M3, path, "--convention", "sign-of-zero", "--convention", "nan")
        assert said.code == 1 and f"[{row + 48}, 0]: 0x{byte:02x}" in said.out
        assert checker(vectors.folder, UE5M3, path, "--convention", "padding").code == 0


def test_a_vector_of_a_folder_is_compared_by_its_formats(of_example: VectorSet, checker, tmp_path):
    right, fields = of_example.answer(MXFP8), of_example.about(MXFP8)["fields"]
    assert [about["holds"] for about in fields.values()] == ["e4m3", "e8m0", "e4m3", "e8m0"]
    path = of_example.write(tmp_path / "right.safetensors", right)
    total = sum(array.nbytes for array in right.values())
    assert f"{total} bytes compared" in checker(of_example.folder, MXFP8, path).out
    nan, one = np.argwhere(right["rowwise_data"] & 0x7F == 0x7F)[0], (128 - 1, 0)
    for field, at, byte, text, convention in (
        ("rowwise_data", tuple(nan), 0xFF, "nan", "nan"),
        ("rowwise_scale_inv", one, 0x80, "2", "padding"),
        ("rowwise_scale_inv", one, 0xFF, "nan", "padding"),
    ):
        wrong = {**right, field: right[field].copy()}
        assert wrong[field][at] != byte
        wrong[field][at] = byte
        path = of_example.write(tmp_path / "wrong.safetensors", wrong)
        others = [word for name in acceptance.MEANINGS if name != convention for word in ("--convention", name)]
        said = checker(of_example.folder, MXFP8, path, *others)
        assert said.code == 1 and f"{field} [{at[0]}, {at[1]}]: 0x{byte:02x} ({text}), must be" in said.out
        assert checker(of_example.folder, MXFP8, path, "--convention", convention).code == 0


def test_an_interval_is_open_to_all_within_it_and_to_nothing_else(vectors: VectorSet, checker, tmp_path):
    there, path = vectors.tensors(PRODUCT), tmp_path / "a.safetensors"
    low, high = there["lowest.output"], there["highest.output"]
    assert (low != high).any(), "this case should leave room"
    assert checker(vectors.folder, PRODUCT, vectors.write(path, {"output": high})).code == 0
    for beyond in (1, -1):
        wrong = high.copy() if beyond > 0 else low.copy()
        bits = wrong.reshape(-1).view(np.uint16)
        at = int(np.flatnonzero((bits & 0x7FFF > 8) & (low != high).reshape(-1))[0])
        bits[at] += beyond if bits[at] < 0x8000 else -beyond
        said = checker(vectors.folder, PRODUCT, vectors.write(path, {"output": wrong}))
        assert said.code == 1 and said.out.startswith(place("output", wrong, 2 * at)) and "must be from 0x" in said.out
    nan = low.copy()
    nan.reshape(-1).view(np.uint16)[0] = 0x7FFF
    assert checker(vectors.folder, PRODUCT, vectors.write(path, {"output": nan})).code == 1


def test_a_tensor_of_a_group_has_its_own_place(vectors: VectorSet, checker, tmp_path):
    answer = vectors.answer(GROUP)
    assert [each["shape"] for each in vectors.about(GROUP)["fields"]["rowwise_data"]["tensors"]][1] == [128, 24]
    wrong = {**answer, "rowwise_data": flipped(answer["rowwise_data"], 128 * 24 + 24 + 2)}
    said = checker(vectors.folder, GROUP, vectors.write(tmp_path / "a.safetensors", wrong))
    assert f"rowwise_data [{128 * 24 + 24 + 2}], tensor 3 [1, 2]: byte" in said.out


def test_slack_is_not_compared_and_said(vectors: VectorSet, checker, tmp_path):
    answer, about = vectors.answer(GROUP), vectors.about(GROUP)["fields"]["rowwise_data"]
    data = np.concatenate([answer["rowwise_data"], np.full(about["slack"], 0xA5, np.uint8)])
    said = checker(vectors.folder, GROUP, vectors.write(tmp_path / "a.safetensors", {**answer, "rowwise_data": data}))
    assert said.code == 0 and f"not compared: {about['slack']} bytes of slack" in said.out
    said = checker(
        vectors.folder, GROUP, vectors.write(tmp_path / "a.safetensors", {**answer, "rowwise_data": data[:-1]})
    )
    assert said.code == 64


# Conventions: what each allows is wrong without it, and what it does not allow is wrong with it.


def twisted(case_id: str, convention: str, vectors: VectorSet) -> tuple[dict[str, np.ndarray], str]:
    """An answer that only the convention makes right, and the field that it changes."""
    answer, tensors = vectors.answer(case_id), vectors.tensors(case_id)
    for name, about in vectors.about(case_id)["fields"].items():
        allows = about["conventions"].get(convention)
        if not allows:
            continue
        if allows["kind"] in ("either", "skip"):
            array = tensors[allows["array"]]
            changed = array if allows["kind"] == "either" else answer[name] ^ array
        else:
            changed = other_zeros(answer[name], about) if allows["kind"] == "zero" else other_nans(answer[name])
        if changed.tobytes() != answer[name].tobytes():
            return {**answer, name: changed}, name
    raise AssertionError(f"{case_id} has nothing that {convention} changes")


def other_zeros(array: np.ndarray, about: dict) -> np.ndarray:
    found = array.copy()
    if about["holds"] == "e2m1x2":
        found ^= np.where(found & 7 == 0, 8, 0).astype(np.uint8) ^ np.where(found & 0x70 == 0, 0x80, 0).astype(np.uint8)
        return found
    bits = found.view(f"u{found.itemsize}")
    sign = 1 << (8 * found.itemsize - 1)
    bits[bits & (sign - 1) == 0] ^= sign
    return found


def other_nans(array: np.ndarray) -> np.ndarray:
    found = array.copy()
    if found.itemsize == 1:
        found[found & 0x7F == 0x7F] ^= 0x80
    else:
        bits = found.view(f"u{found.itemsize}")
        bits[np.isnan(found)] ^= 1
    return found


@pytest.mark.parametrize(
    ("case_id", "convention"),
    [
        (PLAIN, "padding"), (SPECIALS, "padding"), (GROUP, "padding"), (SPECIALS, "sign-of-zero"),
        (CASTS, "sign-of-zero"), (DECODED, "sign-of-zero"), (CASTS, "nan"), (DECODED, "nan"),
        (SPECIALS, "codes-of-nan"), (TINY, "codes-under-zero-scale"), (TIES, "order-of-division"),
        (RANDOM, "random-bits"),
    ],
)  # fmt: skip
def test_a_convention_allows_what_it_says_and_no_more(case_id, convention, vectors: VectorSet, checker, tmp_path):
    answer, name = twisted(case_id, convention, vectors)
    path = vectors.write(tmp_path / "a.safetensors", answer)
    assert checker(vectors.folder, case_id, path).code == 1
    others = tuple(word for word in ALL if word not in ("--convention", convention))
    others = tuple(word for other in others for word in ("--convention", other))
    assert checker(vectors.folder, case_id, path, *others).code == 1
    said = checker(vectors.folder, case_id, path, "--convention", convention)
    assert said.code == 0 and (convention in SKIPPED or "accepted: " in said.out), said
    exact = next(iter(vectors.answer(case_id)))
    wrong = {**answer, exact: flipped(answer[exact], 0, 0x25)}
    assert checker(vectors.folder, case_id, vectors.write(path, wrong), "--convention", convention).code == 1


@pytest.mark.parametrize(("case_id", "convention"), [(CASTS, "nan"), (DECODED, "nan"), (DECODED, "sign-of-zero")])
def test_a_number_is_no_nan_and_no_zero(case_id, convention, vectors: VectorSet, checker, tmp_path):
    """Every entry that a convention changes is wrong by another value than those that it allows."""
    answer, name = twisted(case_id, convention, vectors)
    right = vectors.answer(case_id)[name]
    changed = np.flatnonzero(right.reshape(-1).view(np.uint8) != answer[name].reshape(-1).view(np.uint8))
    entry = int(changed[0]) // right.itemsize
    wrong = right.copy()
    wrong.reshape(-1).view(f"u{right.itemsize}")[entry] = 0x30 if right.itemsize == 1 else 0x3F80
    said = checker(vectors.folder, case_id, vectors.write(tmp_path / "a.safetensors", {**answer, name: wrong}), *ALL)
    assert said.code == 1 and said.out.startswith(place(name, right, entry * right.itemsize)), said


SKIPPED = ("padding", "codes-of-nan", "codes-under-zero-scale")


def test_what_is_skipped_is_not_counted(vectors: VectorSet, checker, tmp_path):
    path = vectors.write(tmp_path / "a.safetensors", vectors.answer(PLAIN))
    alone = checker(vectors.folder, PLAIN, path, "--convention", "padding").out
    total = sum(array.nbytes for array in vectors.answer(PLAIN).values())
    assert f", {total - 2 * (512 - 16)} bytes compared" in alone


def test_order_of_division_changes_few_codes_and_each_by_one(vectors: VectorSet):
    there = vectors.tensors(TIES)
    one, other = there["expected.rowwise_data"], there["either.order-of-division.rowwise_data"]
    for shift in (0, 4):
        a, b = (each >> shift & 15 for each in (one, other))
        assert (abs((a & 7).astype(int) - (b & 7)) <= 1).all() and (a & 8 == b & 8).all()
    assert 0 < np.count_nonzero(one != other) < one.size // 2


# Answers as files


def test_an_answer_may_be_npy_or_bare_bytes(vectors: VectorSet, checker, tmp_path):
    words = []
    for number, (name, array) in enumerate(vectors.answer(PLAIN).items()):
        path = tmp_path / f"{name}{'.npy' if number % 2 else '.bin'}"
        np.save(path, array) if number % 2 else path.write_bytes(array.tobytes())
        words.append(f"{name}={path}")
    assert checker(vectors.folder, PLAIN, *words).code == 0
    said = checker(vectors.folder, PLAIN, *words[:-1])
    assert said.code == 64 and "columnwise_amax of " in said.err
    said = checker(vectors.folder, PLAIN, words[0], "--only", "rowwise_data")
    assert said.code == 0 and "in rowwise_data\n" in said.out
    low = vectors.tensors(PRODUCT)["lowest.output"]
    np.save(tmp_path / "bf16.npy", low.view(np.uint16))
    assert checker(vectors.folder, PRODUCT, f"output={tmp_path / 'bf16.npy'}").code == 0


@pytest.mark.slow
def test_nothing_compared_is_not_green(vectors: VectorSet, checker, tmp_path):
    path = vectors.write(tmp_path / "a.safetensors", {"rowwise_data": vectors.answer(NO_ROWS)["rowwise_data"]})
    said = checker(vectors.folder, NO_ROWS, path, "--only", "rowwise_data")
    assert said.code == 64 and "nothing is compared" in said.err and not said.out


@pytest.mark.parametrize("wrong", [False, True])
def test_what_cannot_be_said_is_no_verdict(wrong, vectors: VectorSet, standalone, compiled: Path, tmp_path):
    answer = vectors.answer(PLAIN)
    if wrong:
        answer = {name: flipped(array, 0) for name, array in answer.items()}
    path = vectors.write(tmp_path / "a.safetensors", answer)
    for program in (standalone, [compiled]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*program, vectors.folder, PLAIN, path], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert done.returncode == 64, done.stderr
        assert done.stderr.startswith("error: the output") and done.stderr.count("\n") == 1


def test_it_needs_nothing_but_python(vectors: VectorSet, standalone, tmp_path):
    path = vectors.write(tmp_path / "a.safetensors", vectors.answer(PLAIN))
    done = subprocess.run([*standalone, vectors.folder, PLAIN, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("equal: per_tensor-"), done.stderr
    tree = ast.parse((PACKAGE / "vectors" / "check.py").read_text())
    roots = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    roots |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert roots <= sys.stdlib_module_names
