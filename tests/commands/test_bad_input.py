"""Command lines and files that are wrong: each ends with one sentence and its exit code, and never with a traceback.

A line of `TRIES` has an exit code, 64 or 4 where a device lacks something, a verb and some words for it, each to be
tried alone; `{ID}` is a case. A verb that the harness lacks is one of the evidence.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click
import numpy as np
import pytest

import evidence.__main__ as evidence
from harness import cli, files
from harness.commands import _shared
from harness.errors import Exit
from harness.oracles import by_recipe

ID = "per_tensor/default/16x16/normal/eager"
TRIES = """
64 - nope | verfy | --nope
64 list extra | --set | --set nope | --flag rht | per_tensor --flag rht=maybe | per_tensor --flag =
64 list per_tensor --flag rht= | --shape x | --shape 0x0 | --shape -1x5 | --shape 99999999999999999999999x16
64 list --shape 16 | --input | --input nope | -k | -k zzzzzz | nope.yaml | bad.yaml | empty.yaml | binary.yaml | .
64 list --recipe-dir nope | --recipe-dir empty | --recipe-dir a.txt | --recipe-dir taken | --recipe-dir broken
64 list --set bench --shape 1x1 | --recipe-dir loop | --recipe-dir odd/bomb | --recipe-dir odd/deep
64 list --recipe-dir odd/twice | --recipe-dir odd/documents | --recipe-dir odd/latin | --recipe-dir odd/code
64 list --recipe-dir odd/folder | "" | PER_TENSOR | per_tensor --shape ١٦x١٦ | --refused -k 16x16
64 list casts --refused --flag dtype=fp32
64 trace | nope | a/b/c/d/e | per_tensor/rht=2/16x16/normal/eager | per_tensor/default/16x17/normal/eager
64 trace per_tensor/default/0x16/normal/eager | per_tensor/default/16x16/nope/eager
64 trace per_tensor/default/16x16/normal/slow | per_tensor/rht=true,rht=false/16x16/normal/eager
64 trace per_tensor//16x16/normal/eager | per_tensor/rht/16x16/normal/eager
64 trace per_tensor/rht=true,dtype=fp32/16x16/normal/eager | per_tensor/default/16x16/file:nope.npy/eager
64 trace per_tensor/default/16x16/file:/eager | "per_tensor/default/16x16/file:;file:/eager"
64 trace "gemm/default/16x16x16/file:{HERE}/n.npy;normal/eager" | per_tensor/default/16x16/file:{HERE}/text.npy/eager
64 trace "per_tensor/default/16x16/file:{HERE}/n.npy;file:{HERE}/n.npy/eager" | {ID} --at 3 | {ID} --at -1,0
64 trace {ID} --at 99,0 | {ID} --at 0,99 | {ID} --at a,b | {ID} --at 999999999999999999999,0 | {ID} --field nope
64 trace {ID} --tensor 5 | {ID} --tensor x | {ID} --device gpu | {ID} --target sm_1 | {ID} extra | {ID} --thread
64 trace {ID} --thread x,y | {ID} --thread 0@10000 | {ID} --thread 0,0 --at 5,5 | {ID} --thread 0 --kernel x
64 trace {ID} --thread 0,0 --field rowwise_data | per_tensor/default/65536x16777216/normal/eager
4 trace {ID} --device cuda
64 run | nope | per_tensor | {ID} --by jax | {ID} --out x.npz | {ID} --out empty | {ID} --out a.txt/x.safetensors
64 run {ID} --flag a=b | {ID} --shape 16x17 | {ID} --input n.npy --shape 64x64 | per_tensor -i nope.npy
64 run per_tensor -i text.npy | per_tensor -i text.safetensors#x | per_tensor -i a.txt | per_tensor -i one.npy
64 run per_tensor -i integers.npy | per_tensor -i objects.npy | per_tensor -i empty | per_tensor -i n.npy#x
64 run per_tensor -i n.npy --shape 64x64 | per_tensor -i n.npy --shape | per_tensor -i n.npy --flag rht
64 run per_tensor -i n.npy --flag dtype=bf17 | per_tensor -i n.npy --flag stage=amax --flag rounding=sr
64 run per_tensor -i n.npy -i n.npy | local_1x64 -i n.npy | gemm -i n.npy | per_tensor -i "n.npy;n.npy"
64 run per_tensor -i loop | per_tensor -i loop/x.npy | per_tensor -i dangling.npy | per_tensor -i cut.npy
64 run per_tensor -i /dev/zero | per_tensor -i "" | per_tensor -i n.npy --flag rht=true --flag rht=false
64 run per_tensor -i n.npy --flag rht=true --flag rht=true | per_tensor -i n.npy --by numpy --target sm_90a
64 run per_tensor -i n.npy --out /dev/null/x.safetensors | per_tensor -i n.npy --out loop/x.safetensors
64 run per_tensor -i n.npy --out folder.safetensors | per_tensor/default/65536x16777216/normal/eager --by numpy
64 run per_tensor/default/65536x16777216/normal/eager --by torch | gemm -i n.npy -i n.npy -i n.npy | forward -i n.npy
4 run casts/default/32x64/midpoints/eager --device cuda | swizzle/default/8192x8192/normal/eager --device emulator
64 new | A | per_tensor | x y | x --into a.txt | x/y
64 verify nope | per_tensor nope | --jobs x | --jobs "" | --jobs ٣ | --jobs 1e3 | loop/own.yaml | --jobs -3
64 verify --device tpu | --recipe-dir nope | --recipe-dir empty | --recipe-dir broken | --case | --set | --run-dir
64 verify --shard | --run-dir run | casts --run-dir "" | casts --recipe-dir "" | -k X casts | -x casts
64 verify casts -k dtype=bf16 | --flag dtype=bf17 | --flag dtyp=bf16 | casts --flag dtype | casts --shape 1x1
64 verify casts --shape 32by64 | --case {ID} --flag rht=true | casts --flag dtype=bf16 --flag dtype=fp32
64 verify --recipe casts | casts -xk "a=b" | --case nope | --case nope/default/16x16/normal/eager
64 verify casts --unknown | casts --junitxml x.xml --unknow | --recipe-dri x | casts --tb shor --unknown
64 bench casts --flag dtype=bf16 | --function m:f | --function m:f --shape 3x3 | --function m:f --shape 16x16 --set full
64 bench --function m:f --shape 16x16 --flag rht | casts swizzle --function m:f --shape 16x64 | --gpus x | --gpus ""
64 bench casts --function m:f --shape 16x64 -x | --unknown
4 bench casts | casts --device emulator | casts --device cuda | per_tensor --shape 8192x4096 | --gpus 2
4 bench --function m:f --shape 16x16 | casts --function m:f --shape 16x64 --device emulator
64 run per_tensor --flag rht=maybe | per_tensor --shape 16x17 | per_tensor --flag a=b | per_tensor --shape "" | -R casts
64 bench nope | --device tpu | --set | casts --run-dir "" | --lf casts
64 shrink | nope | {ID} --device tpu | {ID} --tries 0 | {ID} --seconds x | {ID} --into run | {ID} --kernels nope
64 gate swizzle casts nope | run empty | --recipe casts | casts -R casts
64 gate nope | run | empty | --effect 2 | --effect x | --effect nan | --baseline nope run | --base nope | --base
64 gate --case x | --all | --save --base HEAD | ""
64 report nope | run | empty | times.jsonl | nothing.jsonl | a.txt | ""
64 doctor extra
64 quality nope.npy | text.npy | a.txt | one.npy | n.npy --tensor x | --input nope | --shape 5 | --shape 1e9x16
64 quality nope | per_tensor/rht=2 | --dtype int8 | --scope x | --input normal --scope all
64 quality --out a.txt/x | --out ""
64 recipes x
64 check nope | per_tensor nope
64 compile --arch sm_10 | --set nope | per_tensr | --jobs x | --jobs 0 | --digests empty
64 conversions --set nope | --jobs 0 | --out a.txt/x
64 coverage nope | --out a.txt/x
64 schema empty | a.txt/x
64 compared x
64 merge | nope --into m | run --into m | empty empty --into m | run | --into a.txt/x run | --into "" run
64 merge --into x ""
64 size x
64 agree nope nope | run run | run
64 attack x
64 exhaustive x
64 fuzz | nope | ptx --count 0 | ptx --from -1 | ptx --seed x
64 mutants --name zzzzzzz | --jobs 0 | --catalogue nope | --catalogue bad.yaml | --catalogue a.txt
64 mutants --catalogue binary.yaml | --set nope | --seed 1 | --device x
64 opcodes --set nope | --jobs x
64 peers --shape x | --seconds x
64 products --shape 1x1 | --shape 16x16x17 | --input nope
64 prove | --into x --times 0 | --into x --percent 101 | --into a.txt/x
64 roofline --times nope | --times a.txt | --times nothing.jsonl | --times gate.jsonl | nope
64 tables --into a.txt/x
64 vectors --out a.txt/x
64 steps gate.jsonl
64 sanitize --tool x | --jobs x | --jobs 0 | --jobs 300000 | nonsense | --set nonsense | -k "16x16 and ("
64 sanitize -k nothing_is_called_so
64 speed --row nope | --ratio x | --ratio nan
64 sr --alpha nan
64 thresholds nope | --set nope | --jobs 0 | --check casts
"""
_BOMB = "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True))
ODD = {
    "bomb": f"a: &a [x]\n{_BOMB}recipe: own\n".encode(),
    "deep": b"recipe: " + b"[" * 5000 + b"]" * 5000,
    "twice": b"recipe: own\nrecipe: own\n",
    "documents": b"recipe: own\n---\nrecipe: own\n",
    "latin": "recipe: \xf3wn\n".encode("latin1"),
    "code": b'recipe: !!python/object/apply:os.system ["touch here"]\n',
}
LINES = [
    (int(code), f"{verb.strip('-')} {words.strip()}".strip())
    for code, verb, rest in (line.split(" ", 2) for line in TRIES.strip().splitlines())
    for words in rest.split("|")
]
VERBS = {
    name: main
    for group, main in ((evidence.cli, evidence.main), (cli.cli, cli.main))
    for name in group.list_commands(None)
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and folders of the wrong kind."""
    here = tmp_path_factory.mktemp("bad")
    for name in ("empty", "run", "taken", "broken"):
        (here / name).mkdir()
    for name in ("a.txt", "text.npy", "text.safetensors"):
        (here / name).write_text("text")
    (here / "bad.yaml").write_text("recipe: [\n")
    (here / "broken" / "own.yaml").write_text("recipe: own\nlaunches: 3\n")
    (here / "taken" / "casts.yaml").write_text("recipe: casts\n")
    (here / "empty.yaml").write_text("")
    (here / "binary.yaml").write_bytes(bytes(range(256)))
    (here / "run" / "journal.jsonl").write_text("nonsense\n")
    (here / "times.jsonl").write_text("{}\n")
    (here / "nothing.jsonl").write_text("")
    shutil.copy(files.RESULTS / "gate" / "planted" / "gate.jsonl", here)
    (here / "loop").symlink_to("loop")
    (here / "dangling.npy").symlink_to("nowhere")
    (here / "folder.safetensors").mkdir()
    for name, suite in ODD.items():
        (here / "odd" / name).mkdir(parents=True)
        (here / "odd" / name / "own.yaml").write_bytes(suite)
    (here / "odd" / "folder" / "own.yaml").mkdir(parents=True)
    np.save(here / "cut.npy", np.zeros((32, 32), np.float32))
    (here / "cut.npy").write_bytes((here / "cut.npy").read_bytes()[:900])
    np.save(here / "one.npy", np.zeros(5, np.float32))
    np.save(here / "integers.npy", np.zeros((16, 16), np.int8))
    np.save(here / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(here / "n.npy", np.zeros((32, 32), np.float32))
    return here


class Began(Exception):
    """A suite run would have begun."""


@pytest.mark.sweep
@pytest.mark.parametrize(("code", "line"), LINES, ids=[line for _, line in LINES])
def test_it_ends_with_one_sentence(folder, capsys, monkeypatch, code, line):
    def child(*words):
        raise Began

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr("harness.runner.supervisor._Child", child)
    monkeypatch.setattr("harness.commands._suites.leave", leave)
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    words = shlex.split(line.replace("{ID}", ID).replace("{HERE}", str(folder)))
    try:
        with pytest.raises(SystemExit) as caught:
            VERBS.get(words[0], cli.main)(words)
    finally:
        files.RECIPE_DIRS.clear()
        by_recipe.forget()
    printed = capsys.readouterr()
    assert caught.value.code == code, printed
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1, printed
    assert "Traceback" not in printed.err + printed.out
    assert len(printed.err) > 20 and printed.err.rstrip()[-1] not in ":,"
    assert sorted(folder.rglob("*")) == before, "something was written"


def test_there_are_many():
    assert len(LINES) >= 200


NUMBERS = [
    (name, parameter.opts[0])
    for group in (cli.cli, evidence.cli)
    for name in group.list_commands(None)
    for parameter in group.get_command(None, name).params
    if isinstance(parameter.type, click.types.FloatParamType)
]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of a command line that is wrong."""
    with pytest.raises(SystemExit) as caught:
        VERBS[words[0]](words)
    printed = capsys.readouterr()
    assert caught.value.code == 64
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1 and not printed.out
    return printed.err


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_no_number_of_any_command_is_nan_or_infinite(name, option, value, capsys):
    said = refused(capsys, name, option, value)
    assert option in said and value in said


@pytest.mark.parametrize("name", sorted(VERBS))
def test_an_unknown_option_is_one_sentence_of_every_command(name, capsys):
    begins = "there is no option" if name in ("verify", "bench") else "No such option"
    assert refused(capsys, name, "--no-such-option").startswith(f"error: {begins} '--no-such-option'")


# Each option of each verb

BASE = {  # verb → the words that it needs besides the option
    "card": "--from own.ptx",
    "handshake": "pair.yaml",
    "merge": "--into new run",
    "new": "mine",
    "report": "run",
    "run": ID,
    "shrink": ID,
    "trace": ID,
    "vectors": "--out new",
}
WORDS = {"verify": "casts", "bench": "casts"}
ONLY_A_RUN_CAN_TELL = {"--cluster"}  # whether anybody listens at the address


def wrong(option: click.Option) -> list[str]:
    """Words that the option cannot take, by its type and what its help calls its value."""
    if isinstance(option.type, click.Choice | click.types._NumberParamTypeBase):
        return ["x", ""]
    if isinstance(option.type, _shared.WrittenPath):
        return ["a.txt/x", ""]
    if isinstance(option.type, click.Path):
        return [""]
    return {"NAME=VALUE": ["rht", "rth=true", "dtype=bf17", "="], "RxC": ["5", "1by2", "x", ""]}.get(
        option.metavar, ["no/such:thing"]
    )


def given(verb: str, option: str, value: str) -> str:
    base = shlex.split(BASE.get(verb, WORDS.get(verb, "")))
    if option in base:  # the wrong value in place of the right one
        base[base.index(option) : base.index(option) + 2] = []
    return shlex.join([verb, *base, option, value])


EACH_OPTION = [
    (verb, option)
    for verb in cli.cli.list_commands(None)
    for option in cli.cli.get_command(None, verb).params
    if isinstance(option, click.Option) and not option.is_flag and not option.hidden
]
WRONG = [
    given(verb, option.opts[0], value)
    for verb, option in EACH_OPTION
    if option.opts[0] not in ONLY_A_RUN_CAN_TELL
    for value in wrong(option)
]
WITHOUT_A_VALUE = [f"{verb} {option.opts[0]}" for verb, option in EACH_OPTION]


@pytest.mark.sweep
@pytest.mark.parametrize("line", [*WRONG, *WITHOUT_A_VALUE])
def test_no_option_of_any_verb_takes_what_it_cannot(folder, capsys, monkeypatch, line):
    test_it_ends_with_one_sentence(folder, capsys, monkeypatch, Exit.USAGE, line)


def test_every_verb_has_its_options_tried():
    assert len(WRONG) > 120 and {line.split()[0] for line in WRONG} >= {*cli.GROUPS["First"]}
