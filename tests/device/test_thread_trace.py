"""One thread of a kernel, instruction by instruction: values, names, lines of the `.cu`, up to a fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from own_recipe import NAME, change, in_use, written

from harness import cli
from harness.errors import Exit

CASE = f"{NAME}/default/16x16/normal/eager"
FOLDED = "grid (1, 4, 2) of blocks of (128, 1, 1)"


@pytest.fixture
def traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = written(tmp_path / NAME)

    def run(*words: str, edit: tuple[str, str] | None = None) -> tuple[int, str, str]:
        if edit:
            change(folder, ".cu", *edit)
        with in_use(folder), pytest.raises(SystemExit) as caught:
            cli.main(["trace", "--recipe-dir", str(folder), CASE, *words])
        return caught.value.code, *capsys.readouterr()

    return run


def test_every_instruction_has_its_line_and_values(traced):
    code, out, err = traced("--thread", "3", "--lines", "5000")
    assert (code, err) == (Exit.CLEAN, "")
    lines = out.splitlines()
    assert lines[0] == f"compute_90a {NAME}_encode, grid (1, 8, 1), block (0, 0, 0), thread (3, 0, 0)"
    assert re.search(r"ld\.param\.u64 %rd\d+, \[input\] +%rd\d+ = input byte 0, the parameter input", out)
    assert re.search(r"ld\.param\.u32 %r\d+, \[rows\] +%r\d+ = 16, the parameter rows", out)
    assert re.search(r"mov\.u32 %r\d+, %tid\.x +%r\d+ = 3", out)
    assert any(re.fullmatch(r"toy\.cu:32  for \(int i = threadIdx\.x; .*", line) for line in lines)
    assert "types.cuh:" in out and ", inlined at toy.cu:35" in out
    assert re.search(r"bar\.sync", out) and re.search(r"ret", lines[-2] + lines[-3])


def test_another_thread_goes_another_way(traced):
    _, one, _ = traced("--thread", "0,0", "--lines", "9999")
    _, other, _ = traced("--thread", "127@0,1", "--lines", "9999", "--target", "sm_100a")
    assert "st.global" in one and "rowwise_data byte 0" in one
    assert "block (0, 1, 0), thread (127, 0, 0)" in other
    assert not re.search(r"st\.global.*rowwise_data", other)  # its rows are padding


def test_a_block_of_the_folded_grid_is_followed_there(traced):
    _, out, _ = traced("--thread", "5@0,1,1", "--lines", "9999")
    assert out.splitlines()[0] == f"compute_90a {NAME}_encode, grid (1, 4, 2), block (0, 1, 1), thread (5, 0, 0)"


def test_a_kernel_is_chosen_where_a_case_launches_several(capsys: pytest.CaptureFixture[str]):
    case, kernel = "per_tensor/outputs=rowwise/16x16/normal/eager", "per_tensor_encode_rowwise"

    def run(name: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(["trace", case, "--thread", "1", "--lines", "9999", "--kernel", name])
        return caught.value.code, *capsys.readouterr()

    code, out, _ = run(kernel)
    heads = [line for line in out.splitlines() if ", grid (" in line]
    assert code == Exit.CLEAN and len(heads) == 1 and heads[0].startswith(f"compute_90a {kernel}<")
    code, _, err = run("per_tensor_encode")
    assert code == Exit.USAGE and f"launches per_tensor_amax, {kernel}; name one of its kernels" in err


def test_a_trace_ends_where_the_kernel_is_stopped(traced):
    code, out, err = traced(
        "--thread", "0,0,0@0,1,0", "--lines", "9999", edit=("row < rows && col", "row <= rows && col")
    )
    assert code == Exit.BYTES_DIFFER
    assert "reads 2 bytes at byte 512 of buffer 'input'" in err
    assert "ld.global" in out.splitlines()[-2]


def test_long_traces_are_cut(traced):
    _, out, _ = traced("--thread", "0,0", "--lines", "7")
    assert len(out.splitlines()) == 8 and re.fullmatch(
        r"\.\.\. [\d,]+ lines more; --lines shows them", out.splitlines()[-1]
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--thread", "x"), "--thread 'x' is no thread; write its x,y,z, and behind @ those of its block"),
        (("--thread", "-1,0"), "is no thread"),
        (("--thread", "0,0,0,0"), "is no thread"),
        (("--thread", "0@1,"), "is no thread"),
        (
            ("--thread", "0@0,8"),
            f"launches grid (1, 8, 1) of blocks of (128, 1, 1), or {FOLDED}; the first thread is 0,0",
        ),
        (("--thread", "128"), "--thread 128,0,0@0,0,0: "),
        (("--thread", "0,1"), "launches grid (1, 8, 1) of blocks of (128, 1, 1)"),
        (("--thread", "0", "--kernel", "toy"), f"--kernel 'toy': {CASE} launches {NAME}_encode; name"),
        (("--thread", "0", "--kernel", ""), "--kernel is empty"),
        (("--kernel", f"{NAME}_encode"), "--kernel chooses among what --thread shows"),
        (("--thread", "0,0", "--device", "cuda"), "leave out --device cuda"),
        (("--thread", "0,0", "--target", "sm_80"), "has no target 'sm_80'"),
        (("--thread", "0,0", "--lines", "0"), "0 is not in the range"),
    ],
)
def test_a_mistake_is_one_sentence(traced, words, says):
    code, _, err = traced(*words)
    assert code == Exit.USAGE and says in err and err.count("\n") == 1
