"""`make tables`: every committed table, in parts, of one state."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from processes import LONGEST, wait_until
from timed_runs import HEADER, record

import evidence.__main__
import harness.cli
from evidence.commands import tables as command
from evidence.committed import catalogue, install, make, parts
from evidence.committed.state import sources, state
from harness.errors import Exit, StorageError, UsageError
from harness.files import RESULTS, ROOT
from harness.ground.ending import end_with_parent
from harness.records.run_folder import RUNS
from harness.report.tables import write_jsonl, write_times

GPU = "nvidia-h200"
TABLES, BY_HAND = catalogue.load()


def test_every_committed_file_is_made_by_a_table_or_says_why_not():
    gpus = [GPU, *json.loads((RESULTS / parts.FILE).read_text()).get("others", ())]
    made = {target.format(gpu=gpu) for gpu in gpus for table in TABLES.values() for target in table.files}
    others = {path.format(gpu=GPU) for path in BY_HAND}
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True)
    committed = {line.removeprefix("results/") for line in listed.stdout.splitlines()}
    assert {name for name in committed - made if not any(name.startswith(other) for other in others)} == set()
    assert made <= committed  # nothing new appears unseen
    assert all(any(name.startswith(other) for name in [*committed, parts.FILE]) for other in others)
    own = sum(len(table.files) for table in TABLES.values() if table.of_a_gpu)
    assert len(made) == sum(len(table.files) for table in TABLES.values()) + own * (len(gpus) - 1)


@pytest.mark.parametrize("words", [words for table in TABLES.values() for words in table.commands])
def test_the_commands_are_ones_that_the_harness_takes(words: str, tmp_path: Path):
    name, *rest = shlex.split(words.format(out=tmp_path, parts=tmp_path, gpu=GPU))
    groups = (harness.cli.cli, evidence.__main__.cli)
    found = [group.get_command(click.Context(group), name) for group in groups if name in group.list_commands(None)]
    assert len(found) == 1
    found[0].make_context(name, rest)


# States


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in {
        "harness/a.py": "1", "suites/a.yaml": "2", "Makefile": "3", ".gitlab-ci.yml": "4", "results/a.md": "5",
        "docs/a.md": "before\n<!-- rendered targets -->\n12 us\n<!-- end -->\nafter", "build/site/a.html": "6",
        ".git/HEAD": "7", ".venv/a.py": "8", "harness/__pycache__/a.pyc": "9", ".github/workflows/ci.yml": "10",
    }.items():  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("harness/a.py", "x", False),
        ("suites/b.yaml", "", False),
        ("Makefile", "x", False),
        (".gitlab-ci.yml", "x", False),
        (".github/workflows/ci.yml", "x", False),
        ("docs/a.md", "after\n<!-- rendered targets -->\n12 us\n<!-- end -->\nafter", False),
        ("docs/a.md", "before\n<!-- rendered targets -->\n13 us\n<!-- end -->\nafter", True),
        ("results/a.md", "x", True),
        ("results/runs/b/c.md", "x", True),
        ("build/site/a.html", "x", True),
        (".git/HEAD", "x", True),
        ("harness/__pycache__/a.pyc", "x", True),
    ],
)
def test_a_state_is_of_all_but_results_and_rendered_figures(checkout: Path, name: str, text: str, same: bool):
    before = state(checkout)
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert (state(checkout) == before) is same


def test_a_renamed_file_is_another_state(checkout: Path):
    before = state(checkout)
    (checkout / "harness" / "a.py").rename(checkout / "harness" / "b.py")
    assert state(checkout) != before


def test_the_state_of_this_tree_is_of_what_git_has():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    ours = {str(path.relative_to(ROOT)) for path in sources(ROOT)}
    others = {name for name in listed.stdout.splitlines() if not name.startswith(("results/", "."))}
    assert others - ours == set()


# Making


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Commands that write their files at once, a state that may be set, and `results/` in another place."""
    ran: list[list[str]] = []
    tree = {"state": "a" * 64, "gpu": True, "ends": {}, "name": GPU}
    for module in (install, make, parts):
        monkeypatch.setattr(module, "state", lambda: tree["state"])
    monkeypatch.setattr("evidence.committed.state.state", lambda: tree["state"])
    monkeypatch.setattr("harness.device.capability.gpu_count", lambda: int(tree["gpu"]))
    monkeypatch.setattr(command, "_gpu", lambda before: tree["name"])
    monkeypatch.setattr(command, "_render", lambda: None)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    real_install = install.install
    monkeypatch.setattr(install, "install", lambda making: real_install(making, tmp_path / "results"))

    def run(words: list[str], out: Path, seconds: float) -> Exit | None:
        ran.append(words)
        name = out.name
        if name in tree["ends"]:
            (out / "journal.jsonl").write_text("begun")
            ends = tree["ends"].pop(name)
            if ends is KeyboardInterrupt:
                raise KeyboardInterrupt
            return ends
        for source in TABLES[name].files_of(tree["name"]).values():
            path = out / source
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"made by {name} in {out}, from {out}/run")
        if name == "bench":
            cases = [
                case for each in TABLES.values() for case in (f"{r}/default/16x16/normal/graph" for r in each.recipes)
            ]
            (out / "run").mkdir(exist_ok=True)
            write_jsonl(out / "run" / "bench.jsonl", HEADER, [record(case) for case in cases])
        return Exit.CLEAN

    monkeypatch.setattr(make, "_run", run)

    def tables(*words: str) -> tuple[int, Path]:
        with pytest.raises(SystemExit) as ended:
            evidence.__main__.main(["tables", "--into", str(tmp_path / "parts"), *words])
        return ended.value.code, tmp_path / "results"

    return tables, tree, ran


def test_all_tables_are_made_and_come_to_results_together(made, capsys: pytest.CaptureFixture[str]):
    tables, tree, ran = made
    code, results = tables()
    assert code == Exit.CLEAN
    assert f"{len(TABLES)} tables of state aaaaaaaaaaaa; all are whole" in capsys.readouterr().out
    about = json.loads((results / "tables.json").read_text())
    assert (about["state"], about["gpu"], list(about["tables"])) == ("a" * 64, GPU, [*about["tables"]])
    assert {*about["tables"]} == {*TABLES}
    for name, table in TABLES.items():
        for target in table.files:
            path = results / target.format(gpu=GPU)
            assert path.is_file(), name
    parts = results.parent / "parts"
    said = f"made by coverage in results, from {parts}/coverage/run"
    assert (results / "coverage.md").read_text() == said
    lines = (results / "tables" / GPU / "gemm.jsonl").read_text().splitlines()
    assert [json.loads(line)["recipe"] for line in lines[1:]] == ["gemm"]
    assert ran[0][0] == "bench"  # what needs a GPU comes first


H100 = "nvidia-h100"


def test_a_second_kind_of_gpu_makes_its_own_tables_alone(made, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tables, tree, ran = made
    _, results = tables()
    first = json.loads((results / "tables.json").read_text())
    ran.clear()
    tree["name"] = H100
    assert tables("--into", str(tmp_path / "there"))[0] == Exit.CLEAN
    own = {name for name, table in TABLES.items() if table.of_a_gpu}
    assert {words[0] for words in ran} == {words.split()[0] for name in own for words in TABLES[name].commands}
    about = json.loads((results / "tables.json").read_text())
    assert (about["gpu"], {*about["tables"]}) == (H100, {*TABLES})
    assert {*about["others"]} == {GPU} and {*about["others"][GPU]["tables"]} == own
    assert all(about["tables"][name] == first["tables"][name] for name in {*TABLES} - own)
    for gpu in (GPU, H100):
        assert all((results / path).is_file() for name in own for path in TABLES[name].files_of(gpu))
    (results / "tables" / GPU / "steps.csv").write_text("of another bench")
    capsys.readouterr()
    tables("--list")
    said = capsys.readouterr().out
    assert f"of {GPU}, {len(own) - 1} tables of this state" in said and f"steps of {GPU} is of no state" in said
    # The first one again, of another state: all is made anew, and the second kind's tables stay, with theirs.
    tree |= {"name": GPU, "state": "b" * 64}
    assert tables("--into", str(tmp_path / "later"))[0] == Exit.CLEAN
    assert f"those of {H100} are of state aaaaaaaaaaaa; the same command there makes" in capsys.readouterr().out
    about = json.loads((results / "tables.json").read_text())
    assert about["gpu"] == GPU and about["others"].keys() == {H100} and "kept" not in about


def test_a_second_kind_makes_what_is_not_as_the_first_left_it(made, tmp_path: Path, monkeypatch):
    tables, tree, ran = made
    _, results = tables()
    (results / "rings.md").write_text("edited")
    tree["name"] = H100
    ran.clear()
    whole = install.write_text
    monkeypatch.setattr(install, "write_text", lambda *_: (_ for _ in ()).throw(StorageError("the disk is full")))
    assert tables("--into", str(tmp_path / "there"))[0] == Exit.USAGE and not (results / "tables.json").exists()
    assert "rings" in {words[0] for words in ran} and "coverage" not in {words[0] for words in ran}
    monkeypatch.setattr(install, "write_text", whole)
    assert tables("--into", str(tmp_path / "there"))[0] == Exit.CLEAN
    about = json.loads((results / "tables.json").read_text())
    assert {*about["tables"]} == {*TABLES} and {*about["others"]} == {GPU}


def test_without_a_gpu_the_rest_is_made_and_nothing_comes_to_results(made, capsys: pytest.CaptureFixture[str]):
    tables, tree, ran = made
    tree["gpu"] = False
    code, results = tables()
    assert code == Exit.NO_DEVICE and not results.exists()
    assert "left: bench, per_token_and_grouped" in capsys.readouterr().out
    count = len(ran)
    tree["gpu"] = True
    assert tables()[0] == Exit.CLEAN
    assert not {words[0] for words in ran[count:]} & {"coverage", "quality", "mutants"}  # made before


def test_what_was_cut_off_goes_on_and_what_cannot_begins_anew(made, tmp_path: Path, capsys):
    tables, tree, ran = made
    tree["ends"] = {"mutants": None, "peers": None}
    assert tables()[0] == Exit.INTERRUPTED
    assert re.search("peers was cut off after 5[34][0-9] s and begins anew", capsys.readouterr().out)
    assert tables()[0] == Exit.INTERRUPTED
    said = capsys.readouterr().out
    assert "mutants was cut off" not in said and "the same command goes on" in said
    assert tables()[0] == Exit.CLEAN
    assert (tmp_path / "parts" / "peers.cut-1" / "journal.jsonl").exists()
    assert not (tmp_path / "parts" / "mutants.cut-1").exists()


def test_an_interruption_is_not_told_as_the_time_limit(made, capsys):
    tables, tree, _ = made
    tree["ends"] = {"conversions": KeyboardInterrupt}
    assert tables("--only", "conversions")[0] == Exit.INTERRUPTED
    said = capsys.readouterr().out
    assert said.startswith(f"interrupted; {len(TABLES)} tables are left: ") and "the same command goes on" in said
    assert "time ran out" not in said and "cut off" not in said


def test_a_command_that_was_ended_by_others_is_told_as_its_own_end(made, capsys):
    tables, tree, _ = made
    tree["ends"] = {"conversions": Exit.INTERRUPTED}
    assert tables("--only", "conversions")[0] == Exit.INTERRUPTED
    said = capsys.readouterr().out
    assert "conversions: exit 130 (interrupted); " in said and "time ran out" not in said


@pytest.mark.parametrize(
    ("names", "gpu", "code", "said"),
    [
        (["bench"], False, Exit.NO_DEVICE, "a GPU is needed for bench, "),
        (["gemm"], False, Exit.NO_DEVICE, "a GPU is needed for bench, "),
        (["coverage", "bench"], False, Exit.NO_DEVICE, "coverage: "),
        (["coverage"], False, Exit.CLEAN, "coverage: "),
        (["gemm"], True, Exit.USAGE, "gemm is cut out of the run of bench, which is not made yet; add --only bench"),
        (["gemm", "bench"], True, Exit.CLEAN, "gemm: "),
    ],
)
def test_what_was_asked_for_is_made_or_the_code_says_why_not(made, capsys, names, gpu: bool, code: Exit, said: str):
    tables, tree, _ = made
    tree["gpu"] = gpu
    assert tables(*(word for name in names for word in ("--only", name)))[0] == code
    assert said in "".join(capsys.readouterr())


def test_a_bench_goes_on_from_its_journal(tmp_path: Path):
    words = "bench --device cuda --run-dir {out}/run"
    assert "--resume" not in make._words(words, tmp_path, GPU)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("")
    assert make._words(words, tmp_path, GPU)[-1] == "--resume"


def test_a_bench_of_several_gpus_goes_on_after_it_was_merged(tmp_path: Path):
    """`harness bench --gpus` merges its shards into a folder without a run."""
    for folder in (tmp_path / "run", tmp_path / "run" / "gpu1"):
        folder.mkdir()
        (folder / "journal.jsonl").write_text("")
    assert make._words("bench --device cuda --run-dir {out}/run", tmp_path, GPU)[-1] == "--resume"
    assert [path.parent.name for path in tmp_path.rglob("journal.jsonl")] == ["gpu1"]


def test_tables_of_two_states_are_not_mixed(made, capsys: pytest.CaptureFixture[str]):
    tables, tree, _ = made
    assert tables("--only", "coverage")[0] == Exit.CLEAN
    tree["state"] = "b" * 64
    code, results = tables()
    assert code == Exit.USAGE and not results.exists()
    said = capsys.readouterr().err
    assert "holds 1 tables of state aaaaaaaaaaaa" in said and "this tree is of bbbbbbbbbbbb" in said


def test_a_table_during_which_the_sources_changed_does_not_count(made, monkeypatch, tmp_path: Path, capsys):
    tables, tree, _ = made
    run = make._run

    def edited(*arguments):
        tree["state"] = "c" * 64
        return run(*arguments)

    monkeypatch.setattr(make, "_run", edited)
    assert tables("--only", "coverage")[0] == Exit.USAGE
    assert "the sources changed while coverage was made" in capsys.readouterr().err
    assert json.loads((tmp_path / "parts" / "tables.json").read_text())["tables"] == {}


def test_a_command_that_fails_ends_the_making_with_its_code(made, capsys):
    tables, tree, _ = made
    tree["ends"] = {"products": Exit.BYTES_DIFFER}
    assert tables("--only", "products")[0] == Exit.BYTES_DIFFER
    assert "products: exit 1 (bytes differ); " in capsys.readouterr().out


def test_a_figure_that_is_missed_is_a_whole_table(made, monkeypatch):
    tables, _, _ = made
    run = make._run
    monkeypatch.setattr(make, "_run", lambda *arguments: run(*arguments) or Exit.SLOWER)
    assert tables("--only", "roofline")[0] == Exit.CLEAN
    assert tables("--only", "coverage")[0] == Exit.SLOWER


def test_a_command_that_leaves_no_file_made_no_table(made, monkeypatch, capsys):
    monkeypatch.setattr(make, "_run", lambda *_: Exit.CLEAN)
    assert made[0]("--only", "coverage")[0] == Exit.USAGE
    assert "its commands ended and left no coverage.md" in capsys.readouterr().err


def test_a_command_is_ended_when_its_time_is_over(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(make, "LAST", 0.1)
    monkeypatch.setattr(make.sys, "executable", "/bin/sleep")
    monkeypatch.setattr(make.shlex, "join", lambda words: "")
    real = subprocess.Popen
    monkeypatch.setattr(make.subprocess, "Popen", lambda command, **rest: real(["/bin/sleep", "30"], **rest))
    assert make._run(["bench"], tmp_path, 0.1) is None


def test_a_command_is_ended_when_its_caller_is(tmp_path: Path, monkeypatch):
    """By SIGTERM, which `harness` takes as Ctrl-C; it is no end of its time."""
    began = tmp_path / "began"
    code = f"""
from pathlib import Path
from evidence.committed import make
from harness.ground.ending import interrupt_by_signals
import subprocess
real = subprocess.Popen
make.subprocess.Popen = lambda command, **rest: real(["sh", "-c", "echo $$ > {began}; exec sleep 60"], **rest)
interrupt_by_signals()
try:
    make._run(["bench"], Path({str(tmp_path)!r}), 100)
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    wait_until(lambda: began.exists() and began.read_text().strip())
    process.terminate()
    assert process.communicate(timeout=LONGEST)[0] == "interrupted\n"
    assert not Path(f"/proc/{began.read_text().strip()}").exists()


def test_a_command_ends_with_what_began_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(make.shlex, "join", lambda words: "")
    real, given = subprocess.Popen, []
    monkeypatch.setattr(make.subprocess, "Popen", lambda command, **rest: given.append(rest) or real(["true"], **rest))
    assert make._run(["bench"], tmp_path, 20) is Exit.CLEAN
    ending = given[0]["preexec_fn"]
    assert (ending.func, ending.args) == (end_with_parent, (os.getpid(),))


def test_the_list_tells_of_which_state_the_tables_are(made, tmp_path: Path, monkeypatch, capsys):
    tables, tree, _ = made
    assert tables("--list")[0] == Exit.CLEAN
    assert "results: no tables.json, so of no one state" in capsys.readouterr().out
    assert tables()[0] == Exit.CLEAN
    tree["state"] = "b" * 64
    assert tables("--list")[0] == Exit.CLEAN
    assert f"results: {len(TABLES)} tables of state aaaaaaaaaaaa" in capsys.readouterr().out


def test_the_list_names_what_is_not_as_it_was_made(made, tmp_path: Path, capsys):
    tables, _, _ = made
    _, results = tables()
    (results / "attacks.md").unlink()
    (results / "tables" / GPU / "steps.csv").write_text("of another bench")
    (tmp_path / "parts" / "rings" / "rings.md").write_text("edited")
    capsys.readouterr()
    assert tables("--list")[0] == Exit.CLEAN
    said = capsys.readouterr().out
    assert f"results: {len(TABLES) - 2} tables of this state" in said
    assert f"attacks is of no state: {results}/attacks.md is missing\n" in said
    assert (
        f"steps is of no state: {results}/tables/{GPU}/steps.csv is not what it was when its table was made\n" in said
    )
    assert f"parts: {len(TABLES) - 1} tables of this state" in said and "rings is of no state" in said


@pytest.mark.parametrize("words", [("--only", "cover"), ("--seconds", "0")])
def test_a_wrong_word_is_said(made, words: tuple[str, str]):
    assert made[0](*words)[0] == Exit.USAGE


@pytest.mark.parametrize("words", [(), ("--list",)])
@pytest.mark.parametrize(
    "text",
    [
        b"{", b"{}", b"[]", b"\xff\xfe",
        *(
            b'{"state": "a", "commit": "1", "gpu": "", "tables": {"bench": ' + entry + b"}}"
            for entry in (b"2", b"[]", b'""', b'[["files", {}]]', b'{"files": []}', b'{"files": {"a": 1}}')
        ),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_said(made, tmp_path: Path, capsys, text: bytes, words: tuple[str, ...]):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tables.json").write_bytes(text)
    assert made[0](*words)[0] == Exit.USAGE
    assert "is not what `python -m evidence tables` writes" in capsys.readouterr().err


def test_a_table_that_the_catalogue_has_not_is_refused(made, tmp_path: Path, capsys):
    about = {"state": "a" * 64, "commit": "x", "gpu": GPU, "tables": {"covarage": {}}}
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tables.json").write_text(json.dumps(about))
    assert made[0]("--list")[0] == Exit.USAGE
    assert "names the table 'covarage', which" in capsys.readouterr().err


def test_the_parts_are_of_one_kind_of_gpu(monkeypatch):
    monkeypatch.setattr(
        "harness.device.cuda.CudaDevice", lambda: SimpleNamespace(identity=lambda: {"gpu": "NVIDIA H200"})
    )
    assert command._gpu("") == command._gpu(GPU) == GPU
    with pytest.raises(UsageError, match="the parts are of nvidia-a100, and this GPU is nvidia-h200"):
        command._gpu("nvidia-a100")


# Two processes in one folder


def test_what_two_processes_make_is_in_one_list(made, tmp_path: Path):
    one, other = parts.begin(tmp_path / "d"), parts.begin(tmp_path / "d")
    one.save()
    other.gpu = GPU
    other.save()
    assert make.make(one, "coverage", 100) is Exit.CLEAN
    assert make.make(other, "conversions", 100) is Exit.CLEAN
    found = parts.read(tmp_path / "d")
    assert [*found.made] == ["coverage", "conversions"] and found.gpu == GPU
    assert [*other.made] == [*found.made]


def test_what_another_process_made_is_not_made_again(made, tmp_path: Path):
    _, _, ran = made
    one, other = parts.begin(tmp_path / "d"), parts.begin(tmp_path / "d")
    assert make.make(one, "coverage", 100) is make.make(other, "coverage", 100) is Exit.CLEAN
    assert len(ran) == 1 and other.made == one.made


def test_two_processes_do_not_make_one_table_at_once(made, tmp_path: Path, capsys):
    tables, _, ran = made
    with parts.held(tmp_path / "parts" / "coverage"):
        assert tables("--only", "coverage")[0] == Exit.USAGE
        assert "coverage is being made in" in capsys.readouterr().err and not ran
        assert tables("--only", "conversions")[0] == Exit.CLEAN
    assert tables("--only", "coverage")[0] == Exit.CLEAN


def test_a_folder_that_another_process_began_anew_is_not_written(made, tmp_path: Path):
    _, tree, _ = made
    one = parts.begin(tmp_path / "d")
    tree["state"] = "b" * 64
    parts.begin(tmp_path / "d").save()
    with pytest.raises(UsageError, match="became one of state bbbbbbbbbbbb while tables of aaaaaaaaaaaa were made"):
        one.save({"coverage": {}})
    tree["state"] = "a" * 64
    parts.Making(tmp_path / "e", "a", "x", GPU).save()
    with pytest.raises(UsageError, match="the parts are of nvidia-h200, and this GPU is nvidia-a100"):
        parts.Making(tmp_path / "e", "a", "x", "nvidia-a100").save()


# Putting them into results/


@pytest.fixture
def whole(made, tmp_path: Path):
    """All tables but the last, and the call that makes that and installs all."""
    tables, tree, ran = made
    last = [*TABLES][-1]
    assert tables(*(word for name in TABLES if name != last for word in ("--only", name)))[0] == Exit.CLEAN
    results = tmp_path / "results"
    results.mkdir()
    (results / "tables.json").write_text(before := '{"state": "b"}')
    (results / "coverage.md").write_text("of b")

    def untouched() -> bool:
        names = sorted(path.name for path in results.iterdir())
        return names == ["coverage.md", "tables.json"] and (results / "tables.json").read_text() == before

    return tables, tmp_path / "parts", untouched


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize(("name", "again"), [("steps", "steps"), ("bench", "bench, per_token_and_grouped")])
def test_a_file_that_is_not_as_it_was_made_keeps_all_from_results(whole, capsys, name: str, again: str, missing: bool):
    tables, folder, untouched = whole
    file = folder / name / [*TABLES[name].files.values()][-1]
    file.unlink() if missing else file.write_text("of another state")
    code, results = tables()
    assert code == Exit.USAGE and untouched()
    said = capsys.readouterr().err
    assert f"{file} is {'missing' if missing else 'not what it was when its table was made'}; nothing" in said
    assert f"take {again}" in said
    about = json.loads((folder / "tables.json").read_text())
    for each in TABLES:
        if each == name or TABLES[each].part_of == name:
            del about["tables"][each]
    (folder / "tables.json").write_text(json.dumps(about))
    assert tables()[0] == Exit.CLEAN and not untouched()


def test_no_table_is_cut_out_of_a_run_that_is_not_as_it_was_made(made, tmp_path: Path, capsys):
    tables, tree, ran = made
    assert tables("--only", "bench")[0] == Exit.CLEAN
    path = tmp_path / "parts" / "bench" / "run" / "bench.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert tables("--only", "gemm")[0] == Exit.USAGE
    assert f"gemm: {path} is not what it was when its table was made; make bench again" in capsys.readouterr().err


def test_parts_of_before_there_were_digests_are_taken_as_they_are(whole, capsys):
    tables, folder, untouched = whole
    about = json.loads((folder / "tables.json").read_text())
    for entry in about["tables"].values():
        del entry["files"]
    (folder / "tables.json").write_text(json.dumps(about))
    (folder / "steps" / "steps.md").unlink()
    assert tables()[0] == Exit.USAGE and untouched()
    (folder / "steps" / "steps.md").write_text("other")
    assert tables()[0] == Exit.CLEAN


def test_results_that_were_put_there_in_part_are_of_no_state(whole, monkeypatch, capsys):
    tables, _, _ = whole
    real, count = install.write_bytes, []

    def full(path: Path, content: bytes) -> None:
        count.append(path)
        if len(count) == 3:
            raise StorageError("the disk is full")
        real(path, content)

    monkeypatch.setattr(install, "write_bytes", full)
    code, results = tables()
    assert code == Exit.USAGE and not (results / "tables.json").exists()
    monkeypatch.setattr(install, "write_bytes", real)
    assert tables()[0] == Exit.CLEAN
    about = json.loads((results / "tables.json").read_text())
    put = {path: known for entry in about["tables"].values() for path, known in entry["files"].items()}
    assert sorted(put) == sorted(target.format(gpu=GPU) for table in TABLES.values() for target in table.files)
    assert all(parts.digest((results / path).read_bytes()) == known for path, known in put.items())


def test_a_page_names_commands_that_can_be_run(tmp_path: Path, monkeypatch):
    """Called from elsewhere, too: the commands run in the checkout."""
    monkeypatch.chdir(tmp_path)
    there = RUNS / "tables_of_a_test"

    def page(name: str, number: int = -1) -> str:
        words = shlex.join(make._words(TABLES[name].commands[number], there / name, GPU))
        return install._moved(words.encode(), there / name, Path("tables")).decode()

    assert page("coverage") == "coverage --out results/tables"
    parts_of = "results/runs/tables_of_a_test"
    assert page("steps") == f"steps {parts_of}/steps/run {parts_of}/bench/bench.jsonl --out results/tables"
    below = f"{parts_of}/emulator"
    assert page("emulator") == f"agree {below}/emulator {below}/gpu --out results/tables"
    assert page("bench", 0) == f"bench --device cuda --gpus all --run-dir {parts_of}/bench/run"


def test_the_page_of_a_bench_is_that_of_its_samples(tmp_path: Path):
    """The page is `harness report`'s of the samples beside it, and installing it changes no path in it."""
    words = make._words(TABLES["bench"].commands[0], RUNS / "tables_of_a_test" / "bench", GPU)
    header = HEADER | {"command": shlex.join(words)}
    write_times(tmp_path, "bench", header, [record("swizzle/default/16x16/normal/graph")])
    page = (tmp_path / "bench.md").read_bytes()
    assert b"results/runs/tables_of_a_test/bench/run" in page
    assert install._moved(page, RUNS / "tables_of_a_test" / "bench", Path("baselines") / GPU) == page


def test_install_refuses_what_is_not_of_this_state(tmp_path: Path):
    with pytest.raises(UsageError, match="the sources changed"):
        install.install(parts.Making(tmp_path, "a", "b", GPU, dict.fromkeys(TABLES, {})), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_install_refuses_what_is_not_whole(tmp_path: Path):
    with pytest.raises(UsageError, match="not made yet"):
        install.install(parts.Making(tmp_path, "a", "b"), RESULTS)
