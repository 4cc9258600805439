"""`harness run`: cases, and recipes on tensors of one's own, into a file."""

from __future__ import annotations

import shlex
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import harness
from harness.errors import Exit
from harness.ground.command_lines import this_harness

ID = "swizzle/direction=columnwise/48x80/normal/eager"
RNG = np.random.default_rng(0)
OWN = {
    "a": RNG.normal(size=(32, 64)).astype(ml_dtypes.bfloat16),
    "w": RNG.normal(size=(48, 64)).astype(np.float32),
    "wt": RNG.normal(size=(64, 48)).astype(np.float16),
    "odd": RNG.normal(size=(50, 70)).astype(np.float16),
    "vector": np.zeros(16, np.float32),
    "integers": np.zeros((16, 16), np.int32),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_file(OWN, tmp_path / "own.safetensors")
    np.save(tmp_path / "x.npy", OWN["wt"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(command):
    def ran(*words: str) -> tuple[int, str, str]:
        done = command("run", *words, "--device", "emulator")
        return done.returncode, done.stdout, done.stderr

    return ran


def test_every_field_of_a_case_is_written(run, here):
    assert run(ID, "--out", "x.safetensors")[0] == Exit.CLEAN
    found = load_file(here / "x.safetensors")
    right = harness.ask_oracle(ID)
    assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in right.items()}
    with safe_open(here / "x.safetensors", framework="np") as file:
        assert file.metadata() == {"case": ID, "by": "kernel"}


@pytest.mark.parametrize(
    ("words", "tensor", "flags"),
    [
        (("-i", "own.safetensors#a"), "a", {}),
        (("-i", "file:own.safetensors#a", "--flag", "rht=true"), "a", {"rht": True}),
        (("-i", "own.safetensors#w"), "w", {}),
        (("-i", "x.npy", "--by", "torch"), "wt", {}),
    ],
)
def test_an_own_tensor_needs_no_extents(run, here, words, tensor, flags):
    code, out, err = run("per_tensor", *words, "--out", "y.safetensors")
    assert code == Exit.CLEAN, err
    case = harness.find_case(out.splitlines()[0])
    right = harness.quantize(OWN[tensor], "per_tensor", seed=case.seed, **flags)
    found = load_file(here / "y.safetensors")
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in right.fields.items()
    }


def test_a_product_takes_a_tensor_for_each_operand(run, here):
    code, out, _ = run("gemm", "-i", "own.safetensors#a", "-i", "own.safetensors#w", "--out", "d.safetensors")
    assert code == Exit.CLEAN and "/32x64x48/" in out.splitlines()[0]
    product = OWN["a"].astype(np.float32) @ OWN["w"].T
    found = load_file(here / "d.safetensors")["output"].astype(np.float32)
    assert np.square(found - product).sum() < 0.05 * np.square(product).sum()
    code, other, _ = run("gemm", "-i", "own.safetensors#a", "-i", "own.safetensors#wt", "--flag", "layout=nn")
    assert code == Exit.CLEAN and "/layout=nn/32x64x48/" in other.splitlines()[0]


def test_the_last_line_verifies_the_same_case(run, here):
    _, out, _ = run("gemm", "-i", "own.safetensors#a", "-i", "own.safetensors#w", "--by", "numpy")
    words = shlex.split(out.splitlines()[-1])
    program, case_id = this_harness(Path.cwd()), words[-1]
    assert words[: len(program) + 1] == [*program, "verify"]
    assert words[-2:] == ["--case", out.splitlines()[0]]
    case = harness.find_case(case_id)
    assert harness.verify_case(case, "emulator").verdict is harness.Verdict.PASS
    drawn = harness.make_inputs(case)
    assert drawn["a_data"].shape == (32, 32) and drawn["b_data"].shape == (48, 32)


def test_a_pipeline_takes_a_tensor_for_each_stage():
    sample = "file:suites/data/minilm_sample.safetensors"
    pair = f"{sample}#ffn_up.input;{sample}#ffn_up.weight"
    case = harness.find_case(f"forward/default/128x128x128/{pair}/eager")
    drawn = harness.make_inputs(case)
    assert not np.array_equal(drawn["x"], drawn["w"])
    one = harness.make_inputs(harness.find_case(f"forward/default/128x128x128/{pair.partition(';')[0]}/eager"))
    assert np.array_equal(one["x"], drawn["x"]) and np.array_equal(one["x"], one["w"])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("per_tensor",), Exit.USAGE, "per_tensor alone is no case; name a tensor with --input FILE#NAME"),
        (("per_tenser", "-i", "x.npy"), Exit.USAGE, "did you mean 'per_tensor'?"),
        (("per_tensor", "-i", "nope.npy"), Exit.USAGE, "nope.npy: there is no file"),
        (("per_tensor", "-i", "own.safetensors#aa"), Exit.USAGE, "own.safetensors has no tensor 'aa'; it has a, "),
        (("per_tensor", "-i", "own.safetensors"), Exit.USAGE, "has no tensor ''"),
        (("per_tensor", "-i", "x.npy#x"), Exit.USAGE, "a .npy file holds one array without a name; leave out #x"),
        (("per_tensor", "-i", "own.safetensors#vector"), Exit.USAGE, "must have two dimensions, rows and cols"),
        (("per_tensor", "-i", "own.safetensors#integers"), Exit.USAGE, "is I32; it must be BF16, F16 or F32"),
        (("per_tensor", "-i", "own.safetensors#odd"), Exit.USAGE, "--shape takes the top left corner of a tensor"),
        (
            ("per_tensor", "-i", "x.npy", "--shape", "128x128"),
            Exit.USAGE,
            "the tensor is 64x48, smaller than the 128x128",
        ),
        (("per_tensor", "-i", "x.npy", "--shape", "ab"), Exit.USAGE, "'ab' is not a shape"),
        (("per_tensor", "-i", "x.npy", "--flag", "rht"), Exit.USAGE, "--flag rht is not flag=value"),
        (("per_tensor", "-i", "x.npy", "--flag", "rth=true"), Exit.USAGE, "did you mean 'rht'?"),
        (("per_tensor", "-i", "x.npy", "-i", "x.npy"), Exit.USAGE, "--input is given 2 times; per_tensor takes one"),
        (("gemm", "-i", "x.npy"), Exit.USAGE, "gemm multiplies two tensors; give --input twice"),
        (
            ("gemm", "-i", "own.safetensors#a", "-i", "x.npy"),
            Exit.USAGE,
            "cols of A and the cols of B are K, and they are 64 and 48",
        ),
        (("forward", "-i", "x.npy"), Exit.USAGE, "--shape is needed: the extents of forward do not follow"),
        (("grouped", "-i", "x.npy"), Exit.USAGE, "--shape is needed"),
        ((ID, "--flag", "a=b"), Exit.USAGE, "--flag goes with the name of a recipe; an id has its flags"),
        ((ID, "--out", "x.npz"), Exit.USAGE, "--out x.npz must end in .safetensors"),
        ((ID, "--out", "no/such/folder/../x.safetensors/y.safetensors"), Exit.CLEAN, ""),
        ((ID, "--target", "sm_75"), Exit.USAGE, "has no target 'sm_75'"),
        (("swizzle/default/8192x8192/normal/eager",), Exit.NO_DEVICE, "--by numpy computes what the contract says"),
        (("a/b",), Exit.USAGE, "'a/b' is not a case id"),
    ],
)
def test_a_mistake_is_one_sentence(run, here, words, code, says):
    ended, _, err = run(*words)
    assert ended == code and says in err, err
    assert err.count("\n") == (0 if code == Exit.CLEAN else 1)
