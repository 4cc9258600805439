"""Tensor files that are wrong in any way: one sentence, soon, or the tensor; and no reader that can run code."""

from __future__ import annotations

import ast
import io
import struct
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hostile import bounded, mutated, patience
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from harness import cli
from harness.errors import Exit, InputError
from harness.files import ROOT
from harness.inputs import tensor_file
from harness.quality import tensors

DTYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16))
SAFETENSORS = save(
    {"a": np.arange(2048, dtype=np.float16).reshape(32, 64), "b": np.ones((16, 32), np.float32), "c": np.ones(3, int)}
)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


NPY = (
    npy(np.arange(1024, dtype=np.float32).reshape(32, 32)),
    npy(np.asfortranarray(np.arange(1024, dtype=np.float16).reshape(2, 16, 32))),
    npy(np.array([{"an": "object"}], object)),
)


@st.composite
def changed_head(draw: st.DrawFn, files: tuple[bytes, ...], start: int, kind: str) -> bytes:
    """A file whose head alone is changed, with the length that goes with it."""
    file = draw(st.sampled_from(files))
    size = struct.calcsize(kind)
    (length,) = struct.unpack_from(kind, file, start)
    head, rest = file[start + size : start + size + length], file[start + size + length :]
    head = draw(mutated(head))[:60_000]
    return file[:start] + struct.pack(kind, len(head)) + head + rest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def read_or_refused(path: Path, tensor: str) -> None:
    with patience():
        try:
            found = tensor_file.load(f"file:{path}{tensor}", 16, 32)
            assert found.shape == (16, 32) and found.dtype in DTYPES
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 800
        try:
            measured, _ = tensors.stored(path, (), "bf16")
            assert all(one.values.ndim == 2 and one.values.dtype == DTYPES[2] for one in measured)
        except InputError as error:
            assert "\n" not in str(error)


@bounded(150)
@given(content=mutated(SAFETENSORS, *NPY[:1]) | changed_head((SAFETENSORS,), 0, "<Q"))
def test_a_changed_safetensors_file_is_read_or_refused(folder: Path, content: bytes):
    (folder / "f.safetensors").write_bytes(content)
    read_or_refused(folder / "f.safetensors", "#a")


@bounded(200)
@given(content=mutated(*NPY) | changed_head(NPY, 8, "<H"))
def test_a_changed_npy_file_is_read_or_refused(folder: Path, content: bytes):
    (folder / "f.npy").write_bytes(content)
    read_or_refused(folder / "f.npy", "")


@pytest.mark.parametrize(
    "head",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (32, 32), }(((",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (32, 3.5), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 32), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 32), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (32, 32), }\n  x\n y",
        "__import__('os').system('ls')",
        "(" * 9000,
    ],
    ids=["brackets", "float", "bool", "huge", "objects", "indented", "code", "deep"],
)
def test_a_head_of_npy_that_is_no_head_is_one_sentence(folder: Path, head: str):
    path = folder / "head.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head.encode() + b"\n" + bytes(4096))
    with patience(), pytest.raises(InputError) as caught:
        tensor_file.load(f"file:{path}", 32, 33)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_the_name_of_a_tensor_becomes_neither_code_nor_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    name = "=cmd|<script>alert(1)</script>\n# ../../../x"
    save_file({name: np.ones((64, 64), np.float32)}, tmp_path / "f.safetensors")
    with pytest.raises(SystemExit) as ended:
        cli.main(["quality", str(tmp_path / "f.safetensors"), "--no-pictures", "per_tensor",
                  "--out", str(tmp_path / "out")])  # fmt: skip
    assert ended.value.code == Exit.CLEAN
    assert {path.name for path in tmp_path.iterdir()} == {"f.safetensors", "out"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"quality.md", "quality.csv"}
    assert "<script" not in (tmp_path / "out" / "quality.md").read_text()
    assert ',"=cmd' not in (tmp_path / "out" / "quality.csv").read_text()


# Loaders

MAY_UNPICKLE = {
    "ptx_emulator/stored.py": "an unpickler that calls nothing; tests/ptx_emulator/test_stored.py",
    "ptx_emulator/compiled/jit.py": "what this user kept, by a key of the folder; tests/attacks/test_caches.py",
    "harness/bench/ahead.py": "files that a process forked from this one wrote in a folder that is this user's alone",
    "harness/subjects/messages.py": "requests of ours to a subject's process; its answers are JSON",
}
# The user's own program, which stands in a folder that the command line names, and what a comment says.
MAY_RUN = {
    "harness/oracles/by_recipe.py": {"exec", "compile"},
    "ptx_emulator/compiled/lanes.py": {"exec"},  # of the forms that stand in ptx_emulator/arithmetic
    "ptx_emulator/approximate/measured.py": {"np.load"},  # with allow_pickle=False, which is looked at below
}
UNSAFE = {"pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "np.load", "numpy.load"}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.slow
def test_nothing_that_is_read_can_be_run():
    for path in sorted(
        path for tree in ("harness", "ptx_emulator", "evidence") for path in (ROOT / tree).rglob("*.py")
    ):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            unsafe = UNSAFE - ({"pickle"} if str(path.relative_to(ROOT)) in MAY_UNPICKLE else set())
            # Its events alone, none of PyYAML's constructors.
            unsafe -= {"yaml"} if str(path.relative_to(ROOT)) == "harness/ground/yaml_lines.py" else set()
            assert not {name.split(".")[0] for name in names} & unsafe, f"{path}:{node.lineno}"
        for name, call in calls(tree):
            words = {word.arg: word.value for word in call.keywords}
            allowed = MAY_RUN.get(str(path.relative_to(ROOT)), set())
            assert name not in CALLS - allowed, f"{path}:{call.lineno}: {name} runs or unpickles what it is given"
            if name == "YAML":
                assert ast.literal_eval(words["typ"]) == "safe" and ast.literal_eval(words["pure"]) is True
            if name in ("np.load", "numpy.load"):
                assert "allow_pickle" in words, f"{path}:{call.lineno}"
            for word in ("allow_pickle", "shell"):
                assert word not in words or ast.literal_eval(words[word]) is False, f"{path}:{call.lineno}"
