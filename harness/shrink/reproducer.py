"""A shrunk case as files: a test for pytest, a block of a suite, and the kernel inputs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from harness.contract.case import Case
from harness.device.select import select
from harness.errors import InputError, SuiteError
from harness.expected.expected import high_precision, oracle_of
from harness.files import KERNELS, recipe_dir, storage, write_text
from harness.ground.yaml_lines import read
from harness.shrink.shrinker import Shrunk, describe
from harness.suite.schema import Block
from harness.suite.suite import suite_of
from harness.suite.suite_file import use_recipe_dir
from harness.verdict import Result
from harness.verify.verify import verify

CASE, TENSORS, STORY = "case.yaml", "tensors.safetensors", "story.txt"

_TEST = '''"""Left by `harness shrink` of

    {original}

which was {failure}. `python -m pytest` in this folder runs what is left: {values} of {of} values of
{shape} are not zero. case.yaml says which case it is, tensors.safetensors has what its kernels read.
"""

from pathlib import Path

import pytest

from harness.shrink.reproducer import replay


def test_every_byte_is_as_expected():
    result = replay(Path(__file__).parent)
    if result.verdict != "PASS":
        pytest.fail("\\n" + (result.story or result.reason), pytrace=False)
'''


class Reproducer(BaseModel):
    """The content of `case.yaml`.

    case: a block of a set that makes one case; seed_of: the `data_id` whose seed it has
    device: where it failed; kernels: the folder of the `.cu` files, if it is not the harness's
    recipe_dir: the folder of the recipe, if it is the user's
    found: verdict and cause, for the reader
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: str
    case: Block
    seed_of: str
    device: str
    kernels: str | None = None
    recipe_dir: str | None = None
    found: dict[str, str] = {}


def write(shrunk: Shrunk, folder: Path, kernels: Path | None = None) -> Path:
    """Write the folder, made if absent. Returns the path of its test."""
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in shrunk.inputs.items()}, folder / TENSORS)
    write_text(folder / CASE, _yaml(shrunk, kernels))
    write_text(folder / STORY, describe(shrunk.result, shrunk.cause) + "\n")
    digest = hashlib.sha256(f"{shrunk.before.case_id} {shrunk.case.id}".encode()).hexdigest()[:8]
    test = folder / f"test_{shrunk.case.recipe}_{digest}.py"  # pytest needs a unique name for each module
    values = {"values": shrunk.left, "of": shrunk.of, "shape": shrunk.case.shape}
    write_text(test, _TEST.format(original=shrunk.before.case_id, failure=shrunk.failure, **values))
    return test


def replay(folder: Path) -> Result:
    """Verify a shrunk case on the device it failed on. Raises InputError or SuiteError if the folder is damaged."""
    written, case = _read(folder)
    chosen = select(written.device, kernels=Path(written.kernels) if written.kernels else KERNELS)
    result = verify(case, chosen, inputs=_tensors(folder / TENSORS, case))
    return replace(result, story=describe(result, written.found.get("cause", "")) if result.story else "")


def _yaml(shrunk: Shrunk, kernels: Path | None) -> str:
    case = shrunk.case
    flags = {flag: value for flag, value in case.flags.items() if case.defaults[flag] != value}
    shape = case.shape if case.is_group else [int(extent) for extent in case.shape.split("x")]
    seed_of, own = case.seed_name, recipe_dir(case.recipe)
    found = {
        "verdict": str(shrunk.result.verdict),
        "where": shrunk.failure.where,
        "cause": shrunk.cause,
        "search": f"{shrunk.tries} tries, {shrunk.seconds} s: {shrunk.stopped}",
    }
    lines = [
        f"# Left by `harness shrink` of {shrunk.before.case_id}",
        f"recipe: {case.recipe}",
        f"case: # as a block of a set in suites/{case.recipe}.yaml; with these inputs it draws other values",
        f"  axes: {json.dumps({**flags, 'others': 'default'}) if flags else 'default'}",
        f"  shapes: [{json.dumps(shape)}]",
        f"  inputs: [{json.dumps(case.input)}] # what the contract takes the values in {TENSORS} for",
        f"  modes: [{case.mode}]",
        f"seed_of: {json.dumps(seed_of)} # whose seed is {case.seed:#018x}",
        f"device: {shrunk.result.device}",
        *([f"kernels: {json.dumps(str(kernels.resolve()))}"] if kernels else []),
        *([f"recipe_dir: {json.dumps(str(own))}"] if own else []),
        "found:",
        *(f"  {name}: {json.dumps(text, ensure_ascii=False)}" for name, text in found.items()),
    ]
    return "\n".join(lines) + "\n"


def _read(folder: Path) -> tuple[Reproducer, Case]:
    document = read(folder / CASE, f"{folder.name}/{CASE}")
    try:
        written = Reproducer.model_validate(document.data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise SuiteError(document.where(), f"{place or 'the file'}: {first['msg'].lower()}") from None
    if written.recipe_dir:
        use_recipe_dir(Path(written.recipe_dir))
    return written, suite_of(written.recipe).only(written.case, document.where("case"), written.seed_of)


def _tensors(path: Path, case: Case) -> dict[str, np.ndarray]:
    """The kernel inputs. Raises InputError unless names, dtypes and shapes are those of the case."""
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path.name} beside {CASE} is not a readable .safetensors file: {error}") from None
    drawn = oracle_of(case.recipe).inputs(case, **high_precision(case))
    actual, expected = ({n: f"{a.dtype.name}{a.shape}" for n, a in sorted(x.items())} for x in (found, drawn))
    if actual != expected:
        raise InputError(f"{path.name} holds {actual}; the kernels of {case.id} read {expected}")
    return found
