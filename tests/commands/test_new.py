"""From `harness new` to a passing recipe, and the one screen that each of a beginner's mistakes gets."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_recipe import NAME, change, in_use, written

import harness
from harness.check import recipe_files
from harness.commands.new import IMPORTED
from harness.errors import Exit, UsageError
from harness.files import PACKAGE, ROOT

CARD = f"""# Somebody's kernel.
code: theirs.ptx
recipe: {NAME}
launches:
  - kernel: theirs
    arguments: [array: input]
"""
CASE = f"{NAME}/default/48x80/normal/eager"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / NAME)


def test_it_passes_as_it_is(folder):
    with in_use(folder) as names:
        assert names == (NAME,)
        assert recipe_files.errors() == []
        for case in harness.find_cases(NAME):
            result = harness.verify_case(case, "emulator")
            assert result.verdict is harness.Verdict.PASS, result.story


@pytest.mark.slow
def test_one_command_verifies_it(tmp_path):
    """In another folder, with pytest's settings of that folder, as a user has it."""
    written(tmp_path / NAME)
    words = ["verify", "--recipe-dir", NAME, "-k", "16x16", "--jobs", "0", "--device", "emulator", "--run-dir", "run"]
    done = subprocess.run([sys.executable, "-m", "harness", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == Exit.CLEAN, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "7 selected, 7 compared, 0 excluded"
    assert (tmp_path / "run" / "verify.html").exists()


def test_its_files_have_the_form_of_ours(folder, tmp_path):
    make = (ROOT / "Makefile").read_text()
    style = next(line.partition(":= ")[2] for line in make.splitlines() if line.startswith("STYLE"))
    clang = shutil.which("clang-format", path=str(Path(sys.executable).parent)) or shutil.which("clang-format")
    if clang:
        formatted = subprocess.run([clang, f"--style={style}", "--dry-run", "--Werror", str(folder / f"{NAME}.cu")])
        assert formatted.returncode == 0
    pytest.importorskip("ruff", reason="ruff is not installed; the extra [dev] has it")
    ruff = [sys.executable, "-m", "ruff"]
    config = ("--config", str(ROOT / "pyproject.toml"), str(folder))
    assert subprocess.run([*ruff, "check", "--no-cache", *config], capture_output=True).returncode == 0
    assert subprocess.run([*ruff, "format", "--no-cache", "--check", *config], capture_output=True).returncode == 0


# name: file, before, after, the verdict, and what its screen says
MISTAKES = {
    "nibble order": (
        ".cu", "e2m1(x[i] * multiplier) | e2m1(x[i + 1] * multiplier) << 4",
        "e2m1(x[i + 1] * multiplier) | e2m1(x[i] * multiplier) << 4", "MISMATCH",
        ("cause     nibble swap: the two codes of a byte changed places", "expected  0x6E = e2m1 -4, 4"),
    ),
    "dropped sync": (
        ".cu", "  __syncthreads();\n", "", "NONDETERMINISTIC",
        ("race at toy.cu:", "wrote the same shared bytes at toy.cu:35"),
    ),
    "off by one, read": (
        ".cu", "row < rows && col < cols;", "row <= rows && col < cols;", "OUT_OF_BOUNDS",
        ("reads 2 bytes at byte 7680 of buffer 'input', which has 7680 bytes", "inlined at toy.cu:35"),
    ),
    "off by one, written": (
        ".cu", "block * kBlock + i) / 2]", "block * kBlock + i) / 2 + 1]", "OUT_OF_BOUNDS",
        ("at toy.cu:55: writes 1 bytes at byte 1920 of buffer 'rowwise_data', which has 1920 bytes",),
    ),
    "off by one, too short": (
        ".cu", "for (int i = 0; i < kBlock; i += 2)", "for (int i = 0; i < kBlock - 2; i += 2)", "UNWRITTEN",
        ("cause     unwritten or stale: every wrong byte still holds the pattern from before the run",),
    ),
    "a type that is not there": (
        ".cu", "const float* x =", "const flaot* x =", "COMPILE_ERROR",
        ('toy.cu(40): error: identifier "flaot" is undefined',),
    ),
    "a semicolon missing": (
        ".cu", "  float amax = 0.0f;", "  float amax = 0.0f", "COMPILE_ERROR", ('toy.cu(47): error: expected a ";"',),
    ),
    "a brace without its other": (
        ".cu", "row, block)) return;\n\n  const", "row, block)) {\n\n  const", "COMPILE_ERROR", ("toy.cu(", "error:"),
    ),
    "a tile without columns": (
        ".cu", "{kTileRows, kTileCols, kThreads, 0,", "{kTileRows, kTileCols - 128, kThreads, 0,", "COMPILE_ERROR",
        ("toy_encode: toy_encode_launch has tile_cols 0; a tile has an element or more",),
    ),
    "more threads than the kernel's bounds": (
        ".cu", "kTileCols, kThreads, 0,", "kTileCols, kThreads + 1, 0,", "COMPILE_ERROR",
        ("toy_encode: toy_encode_launch has 129 threads; its __launch_bounds__ allow 128",),
    ),
    "no bound in the last tile": (
        ".cu", "  if (!extents.holds(row, block)) return;\n", "", "NONDETERMINISTIC",
        ("race at toy.cu:54: writes 1 global bytes while thread (8, 0, 0) writes the same",),
    ),
    "scales in the order of a transpose": (
        ".cu", "i64(row) * extents.padded_blocks + block", "i64(block) * extents.padded_rows + row", "MISMATCH",
        ("cause     output transposed: the right bytes lie in the order of the transposed array",),
    ),
    "a loop without end": (
        ".cu", "for (int i = 0; i < kBlock; ++i) amax", "for (int i = 0; i < kBlock; i += 0) amax", "LAUNCH_ERROR",
        ("toy.cu:47: no end after ", "an endless loop"),
    ),
    "oracle's value": (
        ".py", "np.float32(1 / 6)", "np.float32(1 / 5)", "SETUP_ERROR",
        ("the oracles disagree on ", "by NumPy", "by torch", "= e4m3"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_screen_with_its_cause(folder, mistake):
    suffix, before, after, verdict, says = MISTAKES[mistake]
    change(folder, suffix, before, after)
    with in_use(folder):
        result = harness.verify_case(CASE, "emulator")
    assert result.verdict == verdict
    assert [part for part in says if part not in result.story] == [], result.story
    assert len(result.story.splitlines()) <= 25
    assert f"harness verify --recipe-dir {folder} --case '{CASE}'" in result.story


# Mistakes that are seen before anything runs. name: file, before, after, and the sentence
SEEN_BEFORE = {
    "wrong dtype": (
        ".cu", "const bf16* __restrict__ input", "const fp16* __restrict__ input",
        "toy.cu:25: parameter 'input' of toy_encode is a pointer to fp16, which is float16, and the oracle has",
    ),
    "bad parameter name": (
        ".cu", "int rows, int cols) {\n  __shared__",
        "int rows, int columns) {\n  const int cols = columns;\n  __shared__",
        "toy.cu:25: nothing binds to parameter 'columns' of toy_encode; there are rows, cols, seed, offset. Did",
    ),
    "oracle typo": (
        ".py", "nvfp4.block_amax(x)", "nvfp4.block_amx(x)",
        "toy.py:39: the oracle raised AttributeError: module 'harness.oracles.nvfp4' has no attribute 'block_amx'",
    ),
    "oracle syntax": (".py", "product = x *", "product = x **** ", "toy.py:44: this is not Python: invalid syntax"),
    "no character of Python": (".py", "product = x *", "product = '\0' *", "this is not Python: source code string"),
    "oracle's name of a field": (
        ".py", '"rowwise_data": nvfp4.pack', '"rowwise_dat": nvfp4.pack',
        "toy.py:37: numpy_oracle returned rowwise_dat, rowwise_scale_inv, and `outputs` has rowwise_data, rowwise",
    ),
    "oracle's shape": (
        ".py", "nvfp4.pack(nvfp4.e2m1(product))", "nvfp4.e2m1(product)",
        "toy.py:37: numpy_oracle: 'rowwise_data' is uint8 (16, 16), and uint8 (16, 8) by `outputs`",
    ),
    "oracle's dtype": (
        ".py", "scale.view(torch.uint8), (0", "scale.view(torch.int8), (0",
        "toy.py:51: torch_oracle: 'rowwise_scale_inv' is int8 (128, 4), and uint8 (128, 4) by `outputs`",
    ),
    "an array of the other library": (
        ".py", "torch_layout.pack(codes.flatten(1))", "torch_layout.pack(codes.flatten(1)).numpy()",
        "toy.py:51: torch_oracle: 'rowwise_data' is a ndarray, and torch_oracle returns tensors of torch",
    ),
    "no return": (
        ".py", '    return {\n        "rowwise_data": nvfp4', '    {\n        "rowwise_data": nvfp4',
        "toy.py:37: numpy_oracle returned nothing and no dict; it returns arrays of NumPy by name, so its `return` is",
    ),
    "oracle's inputs": (".py", 'return {"input": x}', "return x", "toy.py:31: inputs returned a ndarray and no dict"),
    "oracle that leaves": (
        ".py", "import torch\n\n", "raise SystemExit(0)\n\n", "toy.py:52: the oracle raised SystemExit: 0",
    ),
    "oracle that skips": (
        ".py", "import torch\n\n", "import pytest\n    pytest.skip('later')\n\n",
        "toy.py:53: the oracle raised Skipped: later: `pytest.skip('later')`",
    ),
    "oracle that leaves at once": (
        ".py", "import numpy as np", "import sys; sys.exit(0)", "the oracle raised SystemExit",
    ),
    "oracle's parameters": (
        ".py", "def numpy_oracle(case: Case, tensors:", "def numpy_oracle(tensors:",
        "toy.py:37: the oracle raised TypeError: numpy_oracle() takes 1 positional argument but 2 were given",
    ),
    "no function": (
        ".py", "def inputs(case: Case, x: np.ndarray) ->", "inputs = 3\n\n\ndef inputz(case, x) ->",
        "toy.py:1: 'inputs' is a int; it must be a function",
    ),
    "oracle's function under another name": (
        ".py", "def torch_oracle(", "def torch_orcale(", "toy.py:1: there is no function 'torch_oracle'; this oracle ",
    ),
    "parameters of inputs": (
        ".py", "def inputs(case: Case, x: np.ndarray)", "def inputs(case: Case)",
        "toy.py:31: the oracle raised TypeError: inputs() got an unexpected keyword argument 'x'",
    ),
    "a name that is a number": (
        ".py", 'return {"input": x}', "return {1: x}", "toy.py:31: inputs: the name 1 is a int, and names of paramete",
    ),
    "objects of Python": (
        ".py", 'return {"input": x}', 'return {"input": x.astype(object)}', "toy.py:31: inputs: 'input' holds objects",
    ),
    "a field's dtype": (
        ".py", '"rowwise_data": layout.data_field(case.rows, case.cols, layout.ROWWISE)',
        '"rowwise_data": Field((8, 8), "uint7")', "toy.py:22: outputs: 'rowwise_data' has the dtype 'uint7', which Nu",
    ),
    "a field's format": (
        ".py", '"rowwise_data": layout.data_field(case.rows, case.cols, layout.ROWWISE)',
        '"rowwise_data": Field((8, 8), "uint8", format="e4m4")',
        "a uint8 field has the format 'e4m4'; one of uint8 has e2m1x2, e4m3, e5m2, e8m0, ue5m3, or none",
    ),
    "a mistake of no function": (
        ".py", "def refuse(", 'MISTAKES = {"upside down": {"refuze": abs}}\n\n\ndef refuse(',
        "toy.py:1: MISTAKES has 'upside down' by 'refuze', which is no function there; did you mean 'refuse'?",
    ),
    "mistakes of another form": (
        ".py", "def refuse(", "MISTAKES = {1: abs}\n\n\ndef refuse(", "toy.py:1: MISTAKES has no form {",
    ),
    "a field's shape": (
        ".py", '"rowwise_data": layout.data_field(case.rows, case.cols, layout.ROWWISE)',
        '"rowwise_data": Field((8, case.cols / 2), "uint8")', "toy.py:22: outputs: 'rowwise_data' has the shape (8, 8",
    ),
    "oracle's import": (
        ".py", "import numpy as np", "import numpi as np", "toy.py:10: the oracle raised ModuleNotFoundError: No modu",
    ),
    "tabs in Python": (".py", '    return {"input"', '\treturn {"input"', "toy.py:34: this is not Python: inconsiste"),
    "template parameter without a flag": (
        ".cu", "__global__ void __l", "template <bool fast>\n__global__ void __l",
        "toy.cu:26: template parameter 'fast' names no flag of ",
    ),
    "no parameters": (".cu", "int cols) {\n  __sh", "int cols {\n  __sh", "toy.yaml:11: toy.cu has no kernel 'toy_en"),
    "a header that is not there": (".cu", "numerics/e4m3", "numerics/e4m4", "toy.cu:11: no file 'numerics/e4m4.cuh'"),
    "wrong stem": (".yaml", "recipe: toy", "recipe: toi", "toy.yaml:1: recipe is 'toi' in a file named toy.yaml; both"),
    "flag of a launch": (
        ".yaml", "- kernel: toy_encode", "- kernel: toy_encode\n    when: {rht: true}",
        "toy.yaml:12: toy has no flag 'rht'; choose dtype",
    ),
    "flag of a set": (
        ".yaml", "    - shapes: [[128, 256]]", "    - axes: {rht: true}\n      shapes: [[128, 256]]", "no flag 'rht';",
    ),
    "a key twice": (".yaml", "launches:", "sets: {}\nlaunches:", "toy.yaml:14: key 'sets' appears twice; the first i"),
    "a tab in YAML": (".yaml", "  dtype:", "\tdtype:", "toy.yaml:4: this is not valid YAML: found character that can"),
    "an input": (".yaml", "signed_zero", "sgined_zero", "toy.yaml:16: there is no input 'sgined_zero'; did you mean "),
    "no geometry": (
        ".cu", "Launch toy_encode_launch", "Launch toy_encod_launch",
        "toy.cu:25: there is no geometry of toy_encode: `__constant__ Launch toy_encode_launch = {rows, cols, threads",
    ),
    "no such kernel": (".yaml", "kernel: toy_encode", "kernel: toy_encod", "did you mean 'toy_encode'?"),
    "no such key": (".yaml", "launches:", "lunches:", "toy.yaml:10: unknown key 'lunches'; did you mean 'launches'?"),
}  # fmt: skip


def refused(command, folder: Path) -> str:
    """The one sentence by which the recipe of a folder is refused before anything runs."""
    with in_use(folder):
        done = command("verify", "--recipe-dir", folder)
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("mistake", SEEN_BEFORE)
def test_a_mistake_is_one_sentence_before_anything_runs(folder, mistake, command):
    suffix, before, after, says = SEEN_BEFORE[mistake]
    change(folder, suffix, before, after)
    assert says in refused(command, folder)


@pytest.mark.parametrize("suffix", [".cu", ".py"])
@pytest.mark.parametrize("there", ["nothing", "a folder", "a link to nothing"])
def test_a_file_that_is_missing_is_one_sentence(folder, suffix, there, command):
    path = folder / f"toy{suffix}"
    path.unlink()
    if there == "a folder":
        path.mkdir()
    elif there != "nothing":
        path.symlink_to("nowhere")
    says = f"there is no {path}" if there == "nothing" else f"{path} is no file"
    assert f"{folder}/toy.yaml:1: {says}" in refused(command, folder)


@pytest.mark.parametrize("name", ["toy.cu", "mine.cuh"])
def test_a_source_that_is_no_utf8_is_one_sentence_with_its_line(folder, name, command):
    change(folder, ".cu", "#include", '#include "mine.cuh"\n#include', first=True)
    (folder / "mine.cuh").write_text("// a header\n")
    source = folder / name
    source.write_bytes(source.read_bytes() + "// gr\u00f6\u00dfer\n".encode("latin1"))
    line = source.read_bytes().count(b"\n")
    said = refused(command, folder)
    assert f"{name}:{line}: byte " in said and "0xf6, is no UTF-8; save the file as UTF-8" in said


def test_a_byte_order_mark_is_no_mistake(folder):
    for path in folder.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    with in_use(folder):
        assert not recipe_files.errors(["toy"])
        assert harness.verify_case(CASE, "emulator").verdict is harness.Verdict.PASS


def test_an_oracle_that_writes_over_its_inputs_harms_only_itself(folder):
    change(folder, ".py", "    blocks = tensors", '    tensors["input"].mul_(2)\n    blocks = tensors')
    with in_use(folder):
        story = harness.verify_case(CASE, "emulator").story
    assert "the oracles disagree on " in story  # and no kernel was given other bytes than NumPy


def test_an_oracle_may_be_edited_while_the_process_goes_on(folder):
    with in_use(folder):
        assert harness.verify_case(CASE, "emulator").verdict is harness.Verdict.PASS
        change(folder, ".py", "nvfp4.block_amax(x)", "nvfp4.block_amx(x)")
        result = harness.verify_case(CASE, "emulator")
        assert result.verdict is harness.Verdict.SETUP_ERROR
        assert result.reason.startswith("toy.py:39: the oracle raised AttributeError")
        change(folder, ".py", "nvfp4.block_amx(x)", "nvfp4.block_amax(x)")
        assert harness.verify_case(CASE, "emulator").verdict is harness.Verdict.PASS


@pytest.mark.parametrize("command", ["check", "verify"])
def test_an_oracle_that_ends_the_process_is_told(folder, command: str):
    path = folder / "toy.py"
    path.write_text(path.read_text() + "\nimport os\nos._exit(0)\n")
    words = [sys.executable, "-m", "harness", command, "--recipe-dir", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert (
        "toy.py:1: asked for its fields, it ended its process, or did not answer in 600 s; its functions must return"
        in done.stderr
    )


def test_headers_of_the_toolkit_can_be_included(folder):
    from harness.jit.cuda_headers import folder_with

    if folder_with("cuda_bf16.h") is None:
        pytest.skip("no CUDA toolkit here")
    change(folder, ".cu", '#include "scheduler', '#include <cuda_bf16.h>\n#include "scheduler')
    change(folder, ".cu", "const bf16* __restrict__ input", "const __nv_bfloat16* __restrict__ input")
    with in_use(folder):
        assert recipe_files.errors() == []
        assert harness.verify_case(CASE, "emulator").verdict is harness.Verdict.PASS


def test_a_kernel_may_have_clusters(folder):
    """The case has one column of tiles, which does not fill a cluster."""
    alone = '  u32 size;\n  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));\n  if (size != 4) return;\n'
    change(folder, ".cu", "  const TileOrigin origin", alone + "  const TileOrigin origin")
    with in_use(folder):
        assert harness.verify_case(CASE, "emulator").verdict is harness.Verdict.UNWRITTEN
    change(folder, ".cu", "void __launch_bounds__", "void __cluster_dims__(2, 2, 1) __launch_bounds__")
    with in_use(folder):
        assert recipe_files.errors() == []
        assert harness.verify_case(CASE, "emulator").verdict is harness.Verdict.PASS


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["Toy"], "'Toy' is no name of a recipe; one is made of a-z, 0-9 and _"),
        (["my-recipe"], "'my-recipe' is no name of a recipe"),
        (["../up"], "is no name of a recipe"),
        (["class"], "'class' is no name of a recipe"),
        (["per_tensor"], "there is a recipe 'per_tensor' in the harness; choose another name"),
        (["nvfp4"], "there is a recipe 'nvfp4' in the harness"),
        (["cupy"], "'cupy' is the name of a Python module that the harness imports; choose another name"),
        (["random"], "'random' is the name of a Python module that the harness imports"),
        ([], "Missing argument 'NAME'"),
        (["per_tensor", "--in-tree"], "there is a recipe 'per_tensor' in the harness"),
        (
            ["mine", "--in-tree", "--into", "there"],
            "--into names a folder of yours, and --in-tree is the tree; give one",
        ),
    ],
)
def test_a_name_that_cannot_be_is_refused(words, says, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command("new", *words)
    assert done.returncode == Exit.USAGE and says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_all_that_the_harness_imports_is_refused():
    nodes = [node for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    modules = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} - IMPORTED == {"_pytest"}  # which no recipe can be called


def test_nothing_is_overwritten(folder, command):
    done = command("new", NAME, "--into", folder)
    assert done.returncode == Exit.USAGE and "toy.cu is there already" in done.stderr


def test_a_folder_without_recipes_and_a_taken_name_are_refused(tmp_path):
    with pytest.raises(UsageError, match="has no suite S.yaml beside S.cu and S.py; `harness new NAME` writes"):
        harness.use_recipe_dir(tmp_path)
    with pytest.raises(UsageError, match="there is no folder .*nowhere with recipes"):
        harness.use_recipe_dir(tmp_path / "nowhere")
    (tmp_path / "casts.yaml").write_text("recipe: casts\n")
    with pytest.raises(UsageError, match="the name 'casts' is taken by a file of the harness; choose another"):
        harness.use_recipe_dir(tmp_path)


@pytest.mark.parametrize("text", [CARD, CARD.replace("recipe:", "recpie: ["), "\ufeff" + CARD])
def test_a_card_may_lie_beside_the_recipe_and_is_no_suite(folder, command, text):
    """Also one with a mistake in it, which is told where it is run as a card."""
    card = folder / "theirs.yaml"
    card.write_text(text)
    with in_use(folder) as names:
        assert names == (NAME,) and recipe_files.errors() == []
        path = str(card)
        for words in (["list", "theirs"], ["check", "theirs"], ["verify", "theirs"], ["run", "theirs"], ["run", path],
                      ["verify", path], ["bench", path]):  # fmt: skip
            done = command(*words)
            assert done.returncode == Exit.USAGE
            says = f"{card}: this is a card, which launches compiled kernels, and no suite; run it by `harness verify"
            assert says in done.stderr and done.stderr.count("\n") == 1
    alone = folder / "cards"
    alone.mkdir()
    card.rename(alone / "theirs.yaml")
    with pytest.raises(UsageError, match="cards has no suite; theirs.yaml: this is a card, .* --subject .*theirs.yaml"):
        harness.use_recipe_dir(alone)


WITHOUT_ITS_FOLDER = "no recipe 'mine' in the harness, and one in a folder here: add --recipe-dir mine, if"
BY_ITS_FILE = "a recipe is a name, as in `harness verify mine --recipe-dir mine`"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        *((words, BY_ITS_FILE) for words in ("verify mine/mine.yaml", "run mine/mine.yaml")),
        *((words, WITHOUT_ITS_FOLDER) for words in (
            "verify mine", "list mine", "trace mine/default/48x80/normal/eager", "run mine"
        )),
    ],
)  # fmt: skip
def test_a_recipe_that_is_named_otherwise_is_told_of_its_folder(tmp_path, monkeypatch, command, words, says):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "mine", "mine")
    done = command(*words.split())
    assert done.returncode == Exit.USAGE
    assert says in done.stderr
