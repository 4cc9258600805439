"""Files that lie: one sentence, exit code 64, and never a word of being equal."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from vector_sets import PLAIN, PRODUCT, VectorSet, in_python

PAD = "x" * 200


def header(content: bytes) -> tuple[dict, bytes]:
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def joined(head: object, data: bytes) -> bytes:
    text = (head if isinstance(head, str) else json.dumps(head)).encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(text)) + text + data


def changed(**about: object):
    """The header of rowwise_data with other words."""

    def change(content: bytes) -> bytes:
        head, data = header(content)
        head["rowwise_data"] |= about
        return joined(head, data)

    return change


def renamed(old: str, new: str):
    return lambda content: joined(json.dumps(header(content)[0]).replace(f'"{old}"', f'"{new}"'), header(content)[1])


def without(content: bytes) -> bytes:
    """One tensor less, and its bytes gone."""
    head, data = header(content)
    last = max(head, key=lambda name: head[name]["data_offsets"][1])
    start, end = head.pop(last)["data_offsets"]
    return joined(head, data[:start] + data[end:])


def gap(content: bytes) -> bytes:
    """Four bytes in front of the last tensor that belong to none."""
    head, data = header(content)
    last = max(head, key=lambda name: head[name]["data_offsets"][0])
    start, end = head[last]["data_offsets"]
    head[last]["data_offsets"] = [start + 4, end + 4]
    return joined(head, data[:start] + bytes(4) + data[start:])


ANSWERS = {
    "bytes between tensors": gap,
    "nothing": lambda content: b"",
    "seven bytes": lambda content: content[:7],
    "eight bytes": lambda content: content[:8],
    "half a header": lambda content: content[:60],
    "a byte less": lambda content: content[:-1],
    "a byte more": lambda content: content + b"\0",
    "a header of 2^64-1": lambda content: b"\xff" * 8 + content[8:],
    "a header of 2^63": lambda content: struct.pack("<Q", 1 << 63) + content[8:],
    "a header that ends behind the file": lambda content: struct.pack("<Q", len(content)) + content[8:],
    "a header of no bytes": lambda content: struct.pack("<Q", 0) + content[8:],
    "a header that is a byte short": lambda content: struct.pack("<Q", header_size(content) - 1) + content[8:],
    "a list": lambda content: joined([], header(content)[1]),
    "a number": lambda content: joined("1", header(content)[1]),
    "a NaN in the header": lambda content: joined('{"rowwise_data": NaN}', b""),
    "an Infinity in the header": changed(shape=float("inf")),
    "deep nesting": lambda content: joined("[" * 100_000, b""),
    "deep objects": lambda content: joined('{"a":' * 5000 + "1" + "}" * 5000, b""),
    "a string that does not end": lambda content: joined('{"rowwise_data', b""),
    "half a character": lambda content: joined('{"\udc80": {}}', b""),
    "a lone surrogate": lambda content: joined('{"\\ud800": {}}', b""),
    "a control character": lambda content: joined('{"a\x01": {}}', b""),
    "a comma too many": lambda content: joined('{"a": {},}', b""),
    "something behind the header": lambda content: joined(json.dumps(header(content)[0]) + " x", header(content)[1]),
    "a name twice": lambda content: joined(
        json.dumps(header(content)[0])[:-1] + f', "rowwise_data": {json.dumps(header(content)[0]["rowwise_data"])}}}',
        header(content)[1],
    ),
    "a field missing": without,
    "a field by another name": renamed("rowwise_data", "rowwise_codes"),
    "a field by an empty name": renamed("rowwise_data", ""),
    "a long name": renamed("rowwise_data", PAD),
    "a name that acts on a terminal": renamed("rowwise_data", "\\u001b[2J"),
    "another dtype": changed(dtype="I8"),
    "a dtype of the wrong size": changed(dtype="F32"),
    "an unknown dtype": changed(dtype="F4"),
    "no dtype": changed(dtype=None),
    "a dtype that is a list": changed(dtype=["U8"]),
    "another shape of as many": changed(shape=[8, 16]),
    "a flat shape": changed(shape=[128]),
    "a larger shape": changed(shape=[16, 9]),
    "a negative shape": changed(shape=[-16, -8]),
    "a shape of fractions": changed(shape=[16.0, 8.0]),
    "a shape of words": changed(shape=["16", "8"]),
    "a shape of truths": changed(shape=[True, 128]),
    "a shape of 2^64": changed(shape=[1 << 64, 8]),
    "a shape whose product wraps": changed(shape=[1 << 61, 8, 16]),
    "a shape of 2^32 squared": changed(shape=[1 << 32, 1 << 32]),
    "a shape of a thousand": changed(shape=[1] * 1000),
    "no shape": changed(shape=None),
    "offsets that fall": changed(data_offsets=[128, 0]),
    "offsets beyond the file": changed(data_offsets=[0, 1 << 40]),
    "offsets of 2^63": changed(data_offsets=[1 << 63, (1 << 63) + 128]),
    "negative offsets": changed(data_offsets=[-128, 0]),
    "one offset": changed(data_offsets=[0]),
    "offsets of another tensor": changed(data_offsets=[4, 132]),
    "no offsets": changed(data_offsets=None),
    "words in place of a tensor": lambda content: joined({"rowwise_data": "all right"}, b""),
}  # fmt: skip


def header_size(content: bytes) -> int:
    return struct.unpack("<Q", content[:8])[0]


def refused(said) -> bool:
    """One sentence, and nothing that looks like a verdict."""
    return (
        said.code == 64
        and not said.out
        and said.err.startswith("error: ")
        and said.err.count("\n") == 1
        and len(said.err) < 700
        and "\x1b" not in said.err
        and "Traceback" not in said.err
    )


@pytest.fixture(scope="module")
def right(vectors: VectorSet, tmp_path_factory) -> bytes:
    return vectors.write(tmp_path_factory.mktemp("right") / "a.safetensors", vectors.answer(PLAIN)).read_bytes()


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_that_lies_is_refused(what, vectors: VectorSet, right: bytes, checker, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(ANSWERS[what](right))
    assert path.read_bytes() != right
    said = checker(vectors.folder, PLAIN, path)
    assert refused(said), said


def test_there_are_thirty_and_more_of_them():
    assert len(ANSWERS) >= 30


def npy(array: np.ndarray, path: Path) -> bytes:
    np.save(path, array)
    return path.read_bytes()


NPY = {
    "nothing": lambda content: b"",
    "another magic": lambda content: b"\x94" + content[1:],
    "a version of 9": lambda content: content[:6] + b"\x09" + content[7:],
    "cut off in the header": lambda content: content[:40],
    "a byte less": lambda content: content[:-1],
    "a byte more": lambda content: content + b"\0",
    "a header of 65535": lambda content: content[:8] + b"\xff\xff" + content[10:],
    "another order": lambda content: content.replace(b"False", b"True "),
    "signed bytes": lambda content: content.replace(b"|u1", b"|i1"),
    "objects": lambda content: content.replace(b"|u1", b"|O1"),
    "another shape": lambda content: content.replace(b"(16, 8)", b"(8, 16)"),
    "a call for a shape": lambda content: content.replace(b"(16, 8)", b"open(0)"),
    "a huge shape": lambda content: content.replace(b"(16, 8), }          ", b"(9999999999, 9999), }"),
}


@pytest.mark.parametrize("what", NPY)
def test_an_array_that_lies_is_refused(what, vectors: VectorSet, checker, tmp_path):
    path = tmp_path / "a.npy"
    content = npy(vectors.answer(PLAIN)["rowwise_data"], path)
    path.write_bytes(NPY[what](content))
    assert path.read_bytes() != content
    assert refused(checker(vectors.folder, PLAIN, f"rowwise_data={path}", "--only", "rowwise_data"))


@pytest.mark.parametrize("size", [0, 127, 129])
def test_bare_bytes_of_another_size_are_refused(size, vectors: VectorSet, checker, tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(size))
    assert refused(checker(vectors.folder, PLAIN, f"rowwise_data={path}", "--only", "rowwise_data"))


def test_numbers_that_are_none_are_different(vectors: VectorSet, checker, tmp_path):
    answer = vectors.answer(PRODUCT)
    nan = np.full_like(answer["output"], np.nan)
    said = checker(vectors.folder, PRODUCT, vectors.write(tmp_path / "a.safetensors", {"output": nan}))
    assert said.code == 1 and "(nan), must be from" in said.out


@pytest.mark.parametrize(
    "words",
    [
        [], ["SET"], ["SET", PLAIN], ["SET", PLAIN, "absent.safetensors"], ["SET", PLAIN, "."], ["SET", PLAIN, ""],
        ["SET", "per_tensor-00000000", "ANSWER"], ["SET", "", "ANSWER"], ["absent", PLAIN, "ANSWER"],
        ["SET", PLAIN, "ANSWER", "ANSWER"], ["SET", PLAIN, "ANSWER", "--convention", "none"],
        ["SET", PLAIN, "ANSWER", "--convention"], ["SET", PLAIN, "ANSWER", "--only", "rowwise"],
        ["SET", PLAIN, "ANSWER", "--only", "rowwise_data"], ["SET", PLAIN, "ANSWER", "--all"],
        ["SET", PLAIN, "rowwise_data=ANSWER"], ["SET", PLAIN, "rowwise_data=absent.npy"], ["SET", PLAIN, "/dev/zero"],
    ],
)  # fmt: skip
def test_words_that_name_nothing_are_refused(words, vectors: VectorSet, right: bytes, checker, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(right)
    places = {"SET": str(vectors.folder), "ANSWER": str(tmp_path / "a.safetensors")}
    said = checker(*(word.replace("ANSWER", places["ANSWER"]) if word != "SET" else places["SET"] for word in words))
    assert refused(said), said


# A set that lies


def about(folder: Path, change) -> None:
    index = json.loads((folder / "index.json").read_text())
    name = next(name for name, each in index["vectors"].items() if each["id"] == PLAIN)
    change(index, name)
    (folder / "index.json").write_text(json.dumps(index))


def file_of(folder: Path) -> Path:
    vectors = json.loads((folder / "index.json").read_text())["vectors"]
    return folder / next(each["file"] for each in vectors.values() if each["id"] == PLAIN)


def without_bytes(folder: Path) -> None:
    file_of(folder).write_bytes(file_of(folder).read_bytes()[:-1])


def another_byte(folder: Path) -> None:
    content = bytearray(file_of(folder).read_bytes())
    content[-1] ^= 1
    file_of(folder).write_bytes(content)


def field(**said: object):
    return lambda folder: about(folder, lambda i, name: i["vectors"][name]["fields"]["rowwise_data"].update(said))


def vector(**said: object):
    return lambda folder: about(folder, lambda i, name: i["vectors"][name].update(said))


SETS = {
    "no index": lambda folder: (folder / "index.json").unlink(),
    "an empty index": lambda folder: (folder / "index.json").write_text(""),
    "an index of nothing": lambda folder: (folder / "index.json").write_text("{}"),
    "an index that is a list": lambda folder: (folder / "index.json").write_text("[]"),
    "half an index": lambda folder: os.truncate(folder / "index.json", 3000),
    "another format": lambda folder: about(folder, lambda i, name: i.update(format="nvfp4-vectors 2")),
    "no vectors": lambda folder: about(folder, lambda i, name: i.update(vectors={})),
    "vectors that are a list": lambda folder: about(folder, lambda i, name: i.update(vectors=[])),
    "no conventions": lambda folder: about(folder, lambda i, name: i.pop("conventions")),
    "no file": lambda folder: file_of(folder).unlink(),
    "a file cut off": without_bytes,
    "a file with another byte": another_byte,
    "a file elsewhere": vector(file="../a.safetensors"),
    "an absolute file": vector(file="/etc/passwd"),
    "another digest": vector(digest="0" * 64),
    "no digest": vector(digest=None),
    "no fields": vector(fields={}),
    "fields that are a list": vector(fields=[]),
    "a field that acts on a terminal": vector(fields={"\x1b[2J": {}}),
    "a vector that acts on a terminal": lambda folder: about(
        folder, lambda i, name: i["vectors"].update({"\x1b[2J": i["vectors"].pop(name)})
    ),
    "a field that is none": vector(fields={"rowwise_data": None}),
    "a field of another shape": field(shape=[8, 16]),
    "a field of another dtype": field(dtype="F16"),
    "a field without dtype": field(dtype=None),
}


@pytest.mark.parametrize("what", SETS)
def test_a_set_that_lies_is_refused(what, vectors: VectorSet, right: bytes, checker, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(vectors.folder, folder)
    SETS[what](folder)
    (tmp_path / "a.safetensors").write_bytes(right)
    said = checker(folder, PLAIN, tmp_path / "a.safetensors")
    assert refused(said), said


def test_what_is_changed_at_random_is_never_equal(vectors: VectorSet, right: bytes, tmp_path):
    """Some bytes of an answer, header too; a change of the header that says the same is the only one to pass."""
    draw, path = random.Random(0), tmp_path / "a.safetensors"
    for _ in range(400):
        content = bytearray(right)
        for _ in range(draw.choice((1, 1, 2, 8))):
            content[draw.randrange(min(len(content), header_size(right) + 40))] = draw.randrange(256)
        content = content[: draw.choice((len(content), len(content), draw.randrange(len(content))))]
        path.write_bytes(content)
        said = in_python(vectors.folder, PLAIN, path)
        if said.code == 0:
            assert header(bytes(content)) == header(right)
        else:
            assert refused(said) or (said.code == 1 and said.out.startswith("different: ")), said
