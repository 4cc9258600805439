"""What docs/stability.md promises: files beside this one are of 1.0, and 1.x takes them, and answers as it did.

A promise is widened by a new line in its file, and never changed by a changed one.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click import Context
from click.testing import CliRunner
from own_recipe import in_use
from vector_sets import VectorSet, in_python

import harness
from harness.cli import cli
from harness.commands.handshake import command as handshake
from harness.commands.report import command as report
from harness.device.emulator import EmulatorDevice
from harness.errors import SEVERITY, Exit
from harness.files import ROOT
from harness.records.run_folder import read_bench, read_run
from harness.runner.request import OPTIONS
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case
from harness.verdict import Performance, Verdict

PROMISED = Path(__file__).parent / "stability"
FACE: dict[str, Any] = json.loads((PROMISED / "face.json").read_text())
IDS = [line.split() for line in (PROMISED / "ids.txt").read_text().splitlines()]

Parameters = list[list[str]]


def parameters(function: Any) -> Parameters:
    """Name, kind and default of each parameter, as text; the default is `-` without one."""
    return [[one.name, one.kind.name, _shown(one.default)] for one in inspect.signature(function).parameters.values()]


def _shown(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "-"
    return repr(default) if default is None or isinstance(default, str | int | float | tuple) else "an object"


def broken(promised: Parameters, now: Parameters) -> str:
    """The first call that worked and no longer does, as a sentence; empty if there is none."""
    by_name = {name: (kind, default) for name, kind, default in now}
    for name, kind, default in promised:
        if name not in by_name:
            return f"{name} is gone"
        if by_name[name] != (kind, default):
            return f"{name} was {kind} with {default}, and is {' with '.join(by_name[name])}"
    for name in by_name.keys() - {name for name, *_ in promised}:
        if by_name[name][1] == "-" and "VAR" not in by_name[name][0]:
            return f"{name} is new and has no default"
    by_place = [name for name, kind, _ in now if kind.startswith("POSITIONAL")]
    promised_by_place = [name for name, kind, _ in promised if kind.startswith("POSITIONAL")]
    return "" if by_place[: len(promised_by_place)] == promised_by_place else f"the order was {promised_by_place}"


def public(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("name", FACE["functions"])
def test_a_call_that_worked_works(name: str):
    assert broken(FACE["functions"][name], parameters(public(name))) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda now: now[1:], "x is gone"),
        (lambda now: [*now, ["new", "KEYWORD_ONLY", "-"]], "new is new and has no default"),
        (lambda now: [*now, ["new", "KEYWORD_ONLY", "None"]], ""),
        (
            lambda now: [now[0], ["recipe", "POSITIONAL_ONLY", "'per_token'"], *now[2:]],
            "recipe was POSITIONAL_ONLY with",
        ),
        (lambda now: [now[1], now[0], *now[2:]], "the order was"),
    ],
)
def test_a_call_that_no_longer_works_is_noticed(change, said: str):
    promised = FACE["functions"]["harness.quantize"]
    found = broken(promised, change(promised))
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize("name", FACE["attributes"])
def test_what_was_there_to_read_is_there(name: str):
    kept = vars(public(name)).keys() | {field for base in public(name).__mro__ for field in vars(base)}
    kept |= getattr(public(name), "__dataclass_fields__", {}).keys()
    assert set(FACE["attributes"][name]) <= kept


def test_no_name_leaves_the_two_packages():
    for name in [*FACE["functions"], *FACE["attributes"]]:
        module = importlib.import_module(name.rpartition(".")[0])
        assert name.rpartition(".")[2] in getattr(module, "__all__", dir(module)), name
    new = {f"harness.{name}" for name in harness.__all__} - FACE["functions"].keys() - FACE["attributes"].keys()
    assert not new, f"{new} would be promised from now on: write them into {PROMISED.name}/face.json"


@pytest.mark.parametrize("verb", FACE["verbs"])
def test_a_command_line_of_1_0_is_understood(verb: str):
    command = cli.get_command(Context(cli), verb)
    options = {word for one in command.params for word in (*one.opts, *one.secondary_opts)}
    assert set(FACE["verbs"][verb]) <= options


def test_a_run_takes_the_options_of_1_0():
    assert set(FACE["options_of_a_run"]) <= OPTIONS.keys()


def test_verdicts_exit_codes_and_their_order_are_those_of_1_0():
    assert FACE["exit_codes"].items() <= {each.name: int(each) for each in Exit}.items()
    assert [each for each in map(int, SEVERITY) if each in FACE["severity"]] == FACE["severity"]
    assert FACE["verdicts"].items() <= {each.value: int(each.exit_code) for each in Verdict}.items()
    assert set(FACE["performance"]) <= {each.value for each in Performance}


@pytest.mark.parametrize(("case_id", "seed", "offset", "digest"), IDS, ids=[line[0] for line in IDS])
def test_a_case_id_names_the_same_bytes(case_id: str, seed: str, offset: str, digest: str):
    case = find_case(case_id)
    assert (case.id, case.seed, case.offset) == (case_id, int(seed), int(offset))
    assert digest_of(harness.make_inputs(case)) == digest


def digest_of(arrays: Mapping[str, Any]) -> str:
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()[:16]


def test_a_journal_of_1_0_is_read(tmp_path: Path):
    shutil.copytree(PROMISED / "run", tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert [record["verdict"] for record in run.records] == ["PASS", "EXCLUDED", "MISMATCH"]
    assert CliRunner().invoke(report, [str(tmp_path / "run")], standalone_mode=False).exception is None
    assert "MISMATCH" in (tmp_path / "run/verify.md").read_text()


def test_times_of_1_0_are_a_baseline():
    header, records = read_bench(PROMISED / "bench.jsonl")
    assert header["machine"]["gpu"] == "NVIDIA H200" and records[0]["times"]["median_us"] > 0


def test_a_card_of_1_0_judges_its_kernel():
    result = verify_card(
        find_case("swizzle/default/48x80/normal/eager"),
        with_card(EmulatorDevice(), read_card(str(PROMISED / "card.yaml"))),
    )
    assert result.verdict is Verdict.PASS, result.story


def test_a_recipe_of_1_0_passes():
    with in_use(PROMISED / "kept"):
        result = harness.verify_case("kept/default/48x80/normal/eager", "emulator")
    assert result.verdict is Verdict.PASS, result.story


def test_a_handshake_of_1_0_is_taken():
    done = CliRunner().invoke(handshake, [str(PROMISED / "pair.yaml"), "--device", "emulator"], standalone_mode=False)
    assert done.exception is None and done.return_value == Exit.CLEAN, done.output


def test_vectors_of_1_0_are_checked(tmp_path: Path):
    made = VectorSet(PROMISED / "vectors")
    case_id = "per_tensor/outputs=rowwise/48x80/ties/eager"
    said = in_python(made.folder, case_id, made.write(tmp_path / "answer.safetensors", made.answer(case_id)))
    assert said.code == 0 and "bytes compared" in said.out


def test_the_page_names_every_promise():
    page = (ROOT / "docs/stability.md").read_text().lower()
    for words in (
        "case ids",
        "seeds",
        "exit codes",
        "verdicts",
        "journal",
        "baseline",
        "card",
        "handshake",
        "recipe",
        "vectors",
        "ptx_emulator",
    ):
        assert words in page, words
