"""Command lines and files that are wrong: each ends with one sentence and its exit code, and never with a traceback.

A line of `TRIES` is an exit code, 64 or 4 where a device lacks something, and a command line; `{ID}` is a case.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click
import numpy as np
import pytest

from harness import cli, files
from harness.oracles import by_recipe

ID = "per_tensor/default/16x16/normal/eager"
TRIES = """
64 nope
64 verfy
64 --nope
64 list extra
64 list --set
64 list --set nope
64 list --flag rht
64 list per_tensor --flag rht=maybe
64 list per_tensor --flag =
64 list per_tensor --flag rht=
64 list --shape x
64 list --shape 0x0
64 list --shape -1x5
64 list --shape 99999999999999999999999x16
64 list --shape 16
64 list --input
64 list --input nope
64 list -k
64 list -k zzzzzz
64 list nope.yaml
64 list bad.yaml
64 list empty.yaml
64 list binary.yaml
64 list .
64 list --recipe-dir nope
64 list --recipe-dir empty
64 list --recipe-dir a.txt
64 list --recipe-dir taken
64 list --recipe-dir broken
64 list --set bench --shape 1x1
64 list --recipe-dir loop
64 list --recipe-dir odd/bomb
64 list --recipe-dir odd/deep
64 list --recipe-dir odd/twice
64 list --recipe-dir odd/documents
64 list --recipe-dir odd/latin
64 list --recipe-dir odd/code
64 list --recipe-dir odd/folder
64 list ""
64 list PER_TENSOR
64 list per_tensor --shape ١٦x١٦
64 trace
64 trace nope
64 trace a/b/c/d/e
64 trace per_tensor/rht=2/16x16/normal/eager
64 trace per_tensor/default/16x17/normal/eager
64 trace per_tensor/default/0x16/normal/eager
64 trace per_tensor/default/16x16/nope/eager
64 trace per_tensor/default/16x16/normal/slow
64 trace per_tensor/rht=true,rht=false/16x16/normal/eager
64 trace per_tensor//16x16/normal/eager
64 trace per_tensor/rht/16x16/normal/eager
64 trace per_tensor/rht=true,dtype=fp32/16x16/normal/eager
64 trace per_tensor/default/16x16/file:nope.npy/eager
64 trace per_tensor/default/16x16/file:/eager
64 trace "per_tensor/default/16x16/file:;file:/eager"
64 trace "gemm/default/16x16x16/file:{HERE}/n.npy;normal/eager"
64 trace per_tensor/default/16x16/file:{HERE}/text.npy/eager
64 trace "per_tensor/default/16x16/file:{HERE}/n.npy;file:{HERE}/n.npy/eager"
64 trace {ID} --at 3
64 trace {ID} --at -1,0
64 trace {ID} --at 99,0
64 trace {ID} --at 0,99
64 trace {ID} --at a,b
64 trace {ID} --at 999999999999999999999,0
64 trace {ID} --field nope
64 trace {ID} --tensor 5
64 trace {ID} --tensor x
64 trace {ID} --device gpu
4 trace {ID} --device cuda
64 trace {ID} --target sm_1
64 trace {ID} extra
64 trace {ID} --thread
64 trace {ID} --thread x,y
64 trace {ID} --thread 10000,0
64 trace {ID} --thread 0,0 --at 5,5
64 trace {ID} --thread 0,0 --field rowwise_data
64 run
64 run nope
64 run per_tensor
64 run {ID} --by jax
64 run {ID} --out x.npz
64 run {ID} --out empty
64 run {ID} --out a.txt/x.safetensors
64 run {ID} --flag a=b
64 run {ID} --shape 16x17
64 run {ID} --input n.npy --shape 64x64
64 run per_tensor -i nope.npy
64 run per_tensor -i text.npy
64 run per_tensor -i text.safetensors#x
64 run per_tensor -i a.txt
64 run per_tensor -i one.npy
64 run per_tensor -i integers.npy
64 run per_tensor -i objects.npy
64 run per_tensor -i empty
64 run per_tensor -i n.npy#x
64 run per_tensor -i n.npy --shape 64x64
64 run per_tensor -i n.npy --shape
64 run per_tensor -i n.npy --flag rht
64 run per_tensor -i n.npy --flag dtype=bf17
64 run per_tensor -i n.npy --flag stage=amax --flag rounding=sr
64 run per_tensor -i n.npy -i n.npy
64 run local_1x64 -i n.npy
64 run gemm -i n.npy
64 run per_tensor -i "n.npy;n.npy"
64 run per_tensor -i loop
64 run per_tensor -i loop/x.npy
64 run per_tensor -i dangling.npy
64 run per_tensor -i cut.npy
64 run per_tensor -i /dev/zero
64 run per_tensor -i ""
64 run per_tensor -i n.npy --flag rht=true --flag rht=false
64 run per_tensor -i n.npy --flag rht=true --flag rht=true
64 run per_tensor -i n.npy --by numpy --target sm_90a
64 run per_tensor -i n.npy --out /dev/null/x.safetensors
64 run per_tensor -i n.npy --out loop/x.safetensors
64 run per_tensor -i n.npy --out folder.safetensors
64 run per_tensor/default/65536x16777216/normal/eager --by numpy
64 run per_tensor/default/65536x16777216/normal/eager --by torch
64 trace per_tensor/default/65536x16777216/normal/eager
64 run gemm -i n.npy -i n.npy -i n.npy
64 run forward -i n.npy
4 run casts/default/32x64/midpoints/eager --device cuda
4 run swizzle/default/8192x8192/normal/eager --device emulator
64 new
64 new A
64 new per_tensor
64 new x y
64 new x --into a.txt
64 new x/y
64 verify nope
64 verify per_tensor nope
64 verify --jobs x
64 verify --jobs ""
64 verify --jobs ٣
64 verify --jobs 1e3
64 verify loop/own.yaml
64 verify --jobs -3
64 verify --device tpu
64 verify --recipe-dir nope
64 verify --recipe-dir empty
64 verify --recipe-dir broken
64 verify --case
64 verify --set
64 verify --run-dir
64 verify --shard
64 verify --run-dir run
64 bench nope
64 bench --device tpu
64 bench --set
64 shrink
64 shrink nope
64 shrink {ID} --device tpu
64 shrink {ID} --tries 0
64 shrink {ID} --seconds x
64 shrink {ID} --into run
64 shrink {ID} --kernels nope
64 gate nope
64 gate run
64 gate empty
64 gate --effect 2
64 gate --effect x
64 gate --effect nan
64 gate --baseline nope run
64 gate --base nope
64 gate --base
64 gate --case x
64 gate --all
64 gate --save --base HEAD
64 report
64 report nope
64 report run
64 report empty
64 report times.jsonl
64 report nothing.jsonl
64 report a.txt
64 doctor extra
64 quality nope.npy
64 quality text.npy
64 quality a.txt
64 quality one.npy
64 quality n.npy --tensor x
64 quality --input nope
64 quality --shape 5
64 quality --shape 1e9x16
64 quality --recipe nope
64 quality --recipe per_tensor/rht=2
64 quality --dtype int8
64 quality --scope x
64 quality --input normal --scope all
64 recipes x
64 check nope
64 check per_tensor nope
64 compile --arch sm_10
64 compile --set nope
64 compile per_tensr
64 compile --jobs x
64 compile --jobs 0
64 compile --digests empty
64 conversions --set nope
64 conversions --jobs 0
64 coverage nope
64 schema empty
64 schema a.txt/x
64 compared x
64 merge
64 merge nope --into m
64 merge run --into m
64 merge empty empty --into m
64 merge run
64 size x
64 agree nope nope
64 agree run run
64 agree run
64 attack x
64 exhaustive x
64 fuzz
64 fuzz nope
64 fuzz ptx --count 0
64 fuzz ptx --from -1
64 fuzz ptx --seed x
64 mutants --name zzzzzzz
64 mutants --jobs 0
64 mutants --catalogue nope
64 mutants --catalogue bad.yaml
64 mutants --catalogue a.txt
64 mutants --catalogue binary.yaml
64 mutants --set nope
64 mutants --seed 1
64 mutants --device x
64 opcodes --set nope
64 opcodes --jobs x
64 peers --shape x
64 peers --seconds x
64 products --shape 1x1
64 products --shape 16x16x17
64 products --input nope
64 prove
64 prove --into x --times 0
64 prove --into x --percent 101
64 roofline --times nope
64 roofline --times a.txt
64 roofline --times nothing.jsonl
64 list --refused -k 16x16
64 list casts --refused --flag dtype=fp32
64 quality --out a.txt/x
64 coverage --out a.txt/x
64 conversions --out a.txt/x
64 merge --into a.txt/x run
64 prove --into a.txt/x
64 tables --into a.txt/x
64 vectors --out a.txt/x
64 report ""
64 gate ""
64 merge --into "" run
64 merge --into x ""
64 quality --out ""
64 verify casts --run-dir ""
64 bench casts --run-dir ""
64 verify casts --recipe-dir ""
64 roofline --times gate.jsonl
64 roofline nope
64 steps gate.jsonl
64 verify -k X casts
64 verify -x casts
64 bench --lf casts
64 sanitize --tool x
64 sanitize --jobs x
64 sanitize --jobs 0
64 sanitize --jobs 300000
64 sanitize nonsense
64 sanitize --set nonsense
64 sanitize -k "16x16 and ("
64 sanitize -k nothing_is_called_so
64 speed --row nope
64 speed --ratio x
64 speed --ratio nan
64 sr --alpha nan
64 thresholds nope
64 thresholds --set nope
64 thresholds --jobs 0
64 thresholds --check casts
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
LINES = [line.partition(" ") for line in TRIES.strip().splitlines()]


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


@pytest.mark.parametrize(("code", "line"), [(code, line) for code, _, line in LINES], ids=[line for *_, line in LINES])
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
            cli.main(words)
    finally:
        files.RECIPE_DIRS.clear()
        by_recipe.forget()
    printed = capsys.readouterr()
    assert caught.value.code == int(code), printed
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1, printed
    assert "Traceback" not in printed.err + printed.out
    assert len(printed.err) > 20 and printed.err.rstrip()[-1] not in ":,"
    assert sorted(folder.rglob("*")) == before, "something was written"


def test_there_are_many():
    assert len(LINES) >= 200


NUMBERS = [
    (name, parameter.opts[0])
    for name in cli.cli.list_commands(None)
    for parameter in cli.cli.get_command(None, name).params
    if isinstance(parameter.type, click.types.FloatParamType)
]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_no_number_of_any_command_is_nan_or_infinite(name, option, value, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([name, option, value])
    printed = capsys.readouterr()
    assert caught.value.code == 64
    assert printed.err.startswith("error: ") and option in printed.err and value in printed.err
    assert printed.err.count("\n") == 1 and not printed.out


@pytest.mark.parametrize("name", sorted({*cli.cli.list_commands(None)} - {"verify", "bench"}))  # whose rest is pytest's
def test_an_unknown_option_is_one_sentence_of_every_command(name, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--no-such-option"])
    printed = capsys.readouterr()
    assert caught.value.code == 64
    assert printed.err.startswith("error: No such option '--no-such-option'") and printed.err.count("\n") == 1
