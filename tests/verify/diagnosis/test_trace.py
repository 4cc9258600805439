"""One block, step by step: what it prints, the first step that parts, and the block where oracles disagree."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import own_recipe
import pytest
from click.testing import CliRunner

from harness.commands.trace import command
from harness.contract.case import Case, Flags
from harness.contract.problem import Dense
from harness.device.emulator import EmulatorDevice
from harness.errors import Exit, UsageError
from harness.expected.expected import make_inputs, oracle_of
from harness.oracles import dequantize, nvfp4, per_tensor, swizzle
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.diagnosis.trace import trace
from harness.verify.verify import verify

FLAGS = dict(suite_of("per_tensor").defaults)


def tensor(rows: int, cols: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    return rng.standard_normal((rows, cols)).astype(ml_dtypes.bfloat16)


def traced(case: Case, field: str | None, at: tuple[int, int], edit=None) -> str:
    """The trace of a case on a normal tensor, beside a kernel that wrote the oracle's bytes after `edit`."""
    inputs = per_tensor.inputs(case, tensor(case.rows, case.cols))
    kernel = per_tensor.numpy_oracle(case, inputs)
    if edit is not None:
        edit(kernel)
    return trace(case, field, at, kernel, inputs)


@pytest.mark.parametrize("side", ["rowwise", "columnwise"])
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"rht": True, "rounding": "sr"},
        {"block": "block_16x16", "scale_layout": "swizzled"},
        {"fast_math": True},
        {"stage": "encode"},
        {"stage": "amax"},
    ],
    ids=str,
)
def test_all_agree_where_nothing_is_wrong(flags, side):
    case = Case("per_tensor", Flags({**FLAGS, **flags}), Dense(48, 80))
    kind = "amax" if flags.get("stage") == "amax" else "data"
    text = traced(case, f"{side}_{kind}", (37, 65))
    assert "all agree on this block" in text
    assert "<-" not in text
    line, block = (37, 4) if side == "rowwise" else (65, 2)
    assert f"block {block} of line {line}" in text


def test_every_value_of_the_block_is_there():
    case = Case("per_tensor", Flags({**FLAGS, "rht": True, "rounding": "sr"}), Dense(48, 80))
    text = traced(case, "columnwise_data", (37, 65))
    x = tensor(48, 80)
    written = per_tensor.numpy_oracle(case, {"input": x})
    rotated = nvfp4.rht(x[:, 65:66].astype(np.float32).T.copy(), 0xD7E8)[0, 32:48]
    codes = nvfp4.unpack(written["columnwise_data"])[65, 32:48]
    assert f"{written['columnwise_amax'][0]:.9g}" in text
    assert f"0x{written['columnwise_scale_inv'][65, 2]:02X}" in text
    rows = text.splitlines()
    for i in range(16):
        row = next(row for row in rows if row.split()[:2] == [str(i), f"{float(x[32 + i, 65]):.9g}"])
        assert f"{rotated[i]:.9g}" in row
        assert row.count(f"{codes[i]:X} {nvfp4.E2M1_VALUES[codes[i]]:g}") == 4


def test_the_first_step_that_parts_is_marked():
    case = Case("per_tensor", Flags(FLAGS), Dense(48, 80))

    def edit(kernel):
        kernel["rowwise_scale_inv"][37, 4] += 1
        kernel["rowwise_data"][37, 33] ^= 0x11

    text = traced(case, "rowwise_data", (37, 65), edit)
    marked = [row for row in text.splitlines() if "<-" in row]
    assert len(marked) == 3
    assert marked[0].split()[:2] == ["2.4", "scale_inv"] and "<- first" in marked[0]
    assert all("first" not in row for row in marked[1:])
    assert [row.split()[0] for row in marked[1:]] == ["2", "3"]
    assert "first difference from the steps: kernel at 2.4 scale_inv" in text
    assert "all agree" in traced(case, "rowwise_data", (36, 65), edit)


def test_an_oracle_that_parts_is_named(monkeypatch):
    case = Case("per_tensor", Flags(FLAGS), Dense(48, 80))
    inputs = per_tensor.inputs(case, tensor(48, 80))
    monkeypatch.setattr(nvfp4, "pack", lambda codes: codes[..., 1::2] | codes[..., 0::2] << 4)
    text = trace(case, "rowwise_data", (0, 0), None, inputs)
    assert "first difference from the steps: numpy at" in text and "kernel" not in text


@pytest.mark.parametrize(
    "scale_layout, dtype, outputs, place",
    [("compact", "bf16", "rowwise", "5"), ("swizzled", "fp32", "rowwise", "5"), ("compact", "fp16", "columnwise", "8")],
)
def test_dequantize(scale_layout, dtype, outputs, place):
    base = {"dtype": dtype, "scale_layout": scale_layout, "block": "block_1x16", "granularity": "tensor"}
    case = Case("dequantize", Flags({**base, "outputs": outputs, "e4m3_max": 448}), Dense(48, 80))
    inputs = dequantize.inputs(case, tensor(48, 80))
    kernel = dequantize.numpy_oracle(case, inputs)
    assert "all agree" in trace(case, "output", (40, 20), kernel, inputs)
    kernel["output"][40, 21] = 9
    text = trace(case, None, (40, 21), kernel, inputs)
    assert [row.split()[0] for row in text.splitlines() if "<- first" in row] == [place]
    assert "…" not in text


def test_a_recipe_without_steps_shows_its_entry():
    case = Case("swizzle", Flags({"direction": "columnwise", "to": "swizzled"}), Dense(48, 80))
    inputs = swizzle.inputs(case, tensor(48, 80))
    kernel = swizzle.numpy_oracle(case, inputs)
    text = trace(case, None, (40, 65), kernel, inputs)
    assert "[65, 2]" in text and text.count(f"0x{inputs['scale_inv'][65, 2]:02X}") == 3
    kernel["swizzled_scale_inv"][:] += 1
    assert "first difference from numpy: kernel at" in trace(case, None, (40, 65), kernel, inputs)


@pytest.mark.parametrize("field, at, word", [("output", (0, 0), "no output 'output'"), (None, (48, 0), "outside")])
def test_usage(field, at, word):
    case = Case("per_tensor", Flags(FLAGS), Dense(48, 80))
    with pytest.raises(UsageError, match=word):
        traced(case, field, at)


def test_lines_fit_a_terminal():
    case = Case("per_tensor", Flags({**FLAGS, "rht": True, "rounding": "sr", "dtype": "bf16"}), Dense(48, 80))
    lines = traced(case, "columnwise_data", (0, 0)).splitlines()
    assert all(len(line) <= 120 or case.id in line for line in lines) and len(lines) <= 40


@pytest.mark.parametrize("entry", [32, 39])
def test_a_recipe_without_steps_shows_every_entry_of_the_block(entry: int):
    """Else a block would agree whose entry was not looked at."""
    case = find_case("casts/default/48x80/normal/eager")
    inputs = make_inputs(case)
    kernel = {name: array.copy() for name, array in oracle_of("casts").numpy_oracle(case, dict(inputs)).items()}
    assert "all agree on this block" in trace(case, "e2m1_data", (3, 70), kernel, inputs)
    kernel["e2m1_data"][3, entry] ^= 1
    text = trace(case, "e2m1_data", (3, 70), kernel, inputs)
    assert "[3, 39]" in text and f"kernel at e2m1_data [3, {entry}]" in text


CASE = f"{own_recipe.NAME}/default/48x80/normal/eager"
# a mistake in torch's half of the recipe, and the field that shows it
MISTAKES = [
    ("blocks.float() * multiplier.unsqueeze(2)", "blocks.float() / value.unsqueeze(2)", "rowwise_data"),
    ("amax * torch.tensor(1 / 6,", "amax * torch.tensor(1 / 7,", "rowwise_scale_inv"),
]


@pytest.mark.parametrize(("right", "wrong", "field"), MISTAKES)
def test_the_trace_shows_both_oracles(tmp_path: Path, right: str, wrong: str, field: str):
    folder = own_recipe.written(tmp_path / own_recipe.NAME)
    own_recipe.change(folder, ".py", right, wrong)
    with own_recipe.in_use(folder):
        result = verify(find_case(CASE), EmulatorDevice())
        assert result.verdict not in (Verdict.PASS, Verdict.EXCLUDED)
        assert result.reason.startswith("the oracles disagree on ") and "\n" not in result.reason
        assert result.verdict is Verdict.SETUP_ERROR
        assert result.trace[::2] == ("--field", "--at") and result.trace[1] == field
        words = (CASE, *result.trace, "--device", "emulator")
        shown = CliRunner().invoke(command, words, standalone_mode=False)
        assert shown.exception is None and shown.return_value == Exit.CLEAN
        assert re.search(r"^first difference from numpy: torch at ", shown.output, re.MULTILINE)
        values = re.search(r"is (0x..) = .* by NumPy, (0x..) = .* by torch", result.reason)
        if field == "rowwise_scale_inv":
            assert all(value in shown.output for value in values.groups())
        row, col = map(int, result.trace[3].split(","))
        assert f"block {col // 16} of line {row}" in shown.output and "block amax of x" in shown.output


def test_oracles_that_agree_name_none(tmp_path: Path):
    with own_recipe.in_use(own_recipe.written(tmp_path / own_recipe.NAME)):
        result = verify(find_case(CASE), EmulatorDevice())
    assert result.verdict is Verdict.PASS and "trace" not in result.story
