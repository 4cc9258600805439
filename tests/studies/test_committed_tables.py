"""`make tables`: every committed table, in parts, of one state."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from timed_runs import HEADER, record

from harness import cli
from harness.commands import tables as command
from harness.errors import Exit, UsageError
from harness.files import RESULTS, ROOT
from harness.report.tables import write_jsonl
from harness.studies.committed import catalogue, make
from harness.studies.committed.state import sources, state
from harness.suite.ending import end_with_parent

GPU = "nvidia-h200"
TABLES, BY_HAND = catalogue.load()


def test_every_committed_file_is_made_by_a_table_or_says_why_not():
    made = {target.format(gpu=GPU) for table in TABLES.values() for target in table.files}
    others = {path.format(gpu=GPU) for path in BY_HAND}
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True)
    committed = {line.removeprefix("results/") for line in listed.stdout.splitlines()}
    assert {name for name in committed - made if not any(name.startswith(other) for other in others)} == set()
    assert made <= committed  # nothing new appears unseen
    assert all(any(name.startswith(other) for name in [*committed, make.FILE]) for other in others)
    assert len(made) == sum(len(table.files) for table in TABLES.values())


@pytest.mark.parametrize("words", [words for table in TABLES.values() for words in table.commands])
def test_the_commands_are_ones_that_the_harness_takes(words: str, tmp_path: Path):
    name, *rest = shlex.split(words.format(out=tmp_path, gpu=GPU))
    found = cli.cli.get_command(click.Context(cli.cli), name)
    found.make_context(name, rest)


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
    tree = {"state": "a" * 64, "gpu": True, "ends": {}}
    monkeypatch.setattr(make, "state", lambda: tree["state"])
    monkeypatch.setattr("harness.studies.committed.state.state", lambda: tree["state"])
    monkeypatch.setattr("harness.runner.process.gpu_count", lambda: int(tree["gpu"]))
    monkeypatch.setattr(command, "_gpu", lambda before: GPU)
    monkeypatch.setattr(command, "_render", lambda: None)
    real_install = make.install
    monkeypatch.setattr(make, "install", lambda making: real_install(making, tmp_path / "results"))

    def run(words: list[str], out: Path, seconds: float) -> Exit:
        ran.append(words)
        name = out.name
        if name in tree["ends"]:
            (out / "journal.jsonl").write_text("begun")
            return tree["ends"].pop(name)
        for source in make._files(TABLES[name], GPU).values():
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
            cli.main(["tables", "--into", str(tmp_path / "parts"), *words])
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
    tree["ends"] = {"mutants": Exit.INTERRUPTED, "peers": Exit.INTERRUPTED}
    assert tables()[0] == Exit.INTERRUPTED
    assert "peers was cut off after 540 s and begins anew" in capsys.readouterr().out
    assert tables()[0] == Exit.INTERRUPTED
    said = capsys.readouterr().out
    assert "mutants was cut off" not in said and "the same command goes on" in said
    assert tables()[0] == Exit.CLEAN
    assert (tmp_path / "parts" / "peers.cut-1" / "journal.jsonl").exists()
    assert not (tmp_path / "parts" / "mutants.cut-1").exists()


def test_a_bench_goes_on_from_its_journal(tmp_path: Path):
    words = "bench --device cuda --run-dir {out}/run"
    assert "--resume" not in make._words(words, tmp_path, GPU)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("")
    assert make._words(words, tmp_path, GPU)[-1] == "--resume"


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
    assert make._run([], tmp_path, 0.1) is Exit.INTERRUPTED


def test_a_command_ends_with_what_began_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(make.shlex, "join", lambda words: "")
    real, given = subprocess.Popen, []
    monkeypatch.setattr(make.subprocess, "Popen", lambda command, **rest: given.append(rest) or real(["true"], **rest))
    assert make._run([], tmp_path, 20) is Exit.CLEAN
    assert given[0]["preexec_fn"] is end_with_parent


def test_the_list_tells_of_which_state_the_tables_are(made, tmp_path: Path, monkeypatch, capsys):
    tables, tree, _ = made
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    assert tables("--list")[0] == Exit.CLEAN
    assert "results: no tables.json, so of no one state" in capsys.readouterr().out
    assert tables()[0] == Exit.CLEAN
    tree["state"] = "b" * 64
    assert tables("--list")[0] == Exit.CLEAN
    assert f"results: {len(TABLES)} tables of state aaaaaaaaaaaa" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--only", "cover"), ("--seconds", "0")])
def test_a_wrong_word_is_said(made, words: tuple[str, str]):
    assert made[0](*words)[0] == Exit.USAGE


@pytest.mark.parametrize("words", [(), ("--list",)])
@pytest.mark.parametrize(
    "text", [b"{", b"{}", b"[]", b"\xff\xfe", b'{"state": "a", "commit": 1, "gpu": "", "tables": {"bench": 2}}']
)
def test_a_damaged_folder_is_said(made, tmp_path: Path, capsys, text: bytes, words: tuple[str, ...]):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tables.json").write_bytes(text)
    assert made[0](*words)[0] == Exit.USAGE
    assert "is not what `harness tables` writes" in capsys.readouterr().err


def test_the_parts_are_of_one_kind_of_gpu(monkeypatch):
    monkeypatch.setattr(
        "harness.device.cuda.CudaDevice", lambda: SimpleNamespace(identity=lambda: {"gpu": "NVIDIA H200"})
    )
    assert command._gpu("") == command._gpu(GPU) == GPU
    with pytest.raises(UsageError, match="the parts are of nvidia-a100, and this GPU is nvidia-h200"):
        command._gpu("nvidia-a100")


def test_install_refuses_what_is_not_of_this_state(tmp_path: Path):
    with pytest.raises(UsageError, match="the sources changed"):
        make.install(make.Making(tmp_path, "a", "b", GPU, dict.fromkeys(TABLES, {})), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_install_refuses_what_is_not_whole(tmp_path: Path):
    with pytest.raises(UsageError, match="not made yet"):
        make.install(make.Making(tmp_path, "a", "b"), RESULTS)
