"""Ways of a subject that goes for its judge's processes and files: it outlives, stops, rewrites and writes late."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from processes import LONGEST, lives, wait_until
from ways import StillGreenError, still_green_if

from harness.device.emulator import EmulatorDevice
from harness.errors import UsageError
from harness.records.imported_files import imported_files
from harness.records.journal import FILE, Journal
from harness.records.seal import selection_digest
from harness.subjects.audit.verify import audit
from harness.subjects.device import SubjectDevice, with_subject
from harness.subjects.process import Child
from harness.subjects.subject import start
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict

CASE, OTHER = "swizzle/default/16x16/normal/eager", "swizzle/default/128x64/normal/eager"
CASES = selection_digest([CASE])
# Without it, every journal is read alike.
GUEST = {"guest": True} if "guest" in inspect.signature(Journal).parameters else {}
HEAD = """
import multiprocessing, os, signal, subprocess, sys, threading, time
started = False
def work(source, target):
    rows, cols = source.shape
    tiles = source.reshape(rows // 128, 4, 32, cols // 4, 4).transpose(0, 3, 2, 1, 4)
    target.reshape(tiles.shape)[...] = tiles
def quantize(case, inputs, outputs):
    global started
    work(inputs["scale_inv"], outputs["swizzled_scale_inv"])
    if not started:
        started = True
        act(outputs["swizzled_scale_inv"])
"""
SLEEPS = "[sys.executable, '-S', '-c', 'import time; time.sleep(60)']"
TWICE = """
    if os.fork() == 0:
        {}
        if os.fork() == 0:
            open("pid", "w").write(str(os.getpid()))
            os.closerange(0, 64)
            {}
            time.sleep(60)
        os._exit(0)
    os.wait()
    while not os.path.exists("pid") or not open("pid").read():
        time.sleep(0.01)
"""
BY_POPEN = f"""
    process = subprocess.Popen({SLEEPS}, {{}})
    open("pid", "w").write(str(process.pid))
"""
LEFT = {
    "a process": BY_POPEN.format(""),
    "one of a session of its own": BY_POPEN.format("start_new_session=True"),
    "one without any variable": BY_POPEN.format("start_new_session=True, env={}"),
    "one that is forked twice": TWICE.format("pass", "pass"),
    "a daemon": TWICE.format("os.setsid()", "pass"),
    "a daemon without any variable": TWICE.format("os.setsid()", f"os.execve(sys.executable, {SLEEPS}, {{}})"),
    "one that ignores signals": TWICE.format(
        "os.setsid()", "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 13, 15)]"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.end()


def subject(children: list[Child], act: str) -> SubjectDevice:
    Path("mine.py").write_text(f"{HEAD}\ndef act(output):\n    pass\n{act}\n")
    children.append(Child("mine:quantize", LONGEST))
    return with_subject(EmulatorDevice(), start("mine:quantize", children[-1]))


def test_processes_that_a_subject_leaves_behind(folder: Path, children: list[Child]):
    """Each kind of process that a subject may start is gone when the subject's process has been ended."""
    acts = [act.replace('"pid"', f'"pid{number}"') for number, act in enumerate(LEFT.values())]
    device = subject(children, "\n".join(acts))
    assert audit(find_case(CASE), device).verdict is Verdict.PASS
    pids = [int(Path(f"pid{number}").read_text()) for number in range(len(LEFT))]
    assert all(map(lives, pids))
    device.child.end()
    left = [name for name, pid in zip(LEFT, pids, strict=True) if lives(pid)]
    for pid in filter(lives, pids):
        os.kill(pid, signal.SIGKILL)
    still_green_if(left, f"outlive the subject: {', '.join(left)}")


def test_a_daemon_of_a_subject_that_has_left(folder: Path, children: list[Child]):
    """The subject's process ends itself, so that its daemon has lost every process above it."""
    device = subject(children, LEFT["a daemon"] + "\n    os._exit(0)")
    assert audit(find_case(CASE), device).offence == "leaves"
    pid = int(Path("pid").read_text())
    if lives(pid):
        os.kill(pid, signal.SIGKILL)
        raise StillGreenError("the daemon outlives the subject")


ORDINARY = """
    global pool
    pool = multiprocessing.get_context("fork").Pool(2)
    assert pool.map(abs, [-1, -2]) == [1, 2]
    import atexit
    atexit.register(print, "the end")
    subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""


def test_pools_threads_and_compilers_are_no_offence(folder: Path, children: list[Child]):
    """No way to green: what right subjects do, too."""
    device = subject(children, ORDINARY)
    assert audit(find_case(CASE), device).verdict is Verdict.PASS
    assert audit(find_case(OTHER), device).verdict is Verdict.PASS
    assert device.end() == ""


WRITERS = {
    "a thread": "threading.Thread(target=late, args=(output,), daemon=True).start()",
    "a forked process": "if os.fork() == 0: late(output); os._exit(0)",
    "a daemon": "if os.fork() == 0: os.setsid(); os.fork() or late(output); os._exit(0)",
}


@pytest.mark.parametrize("name", WRITERS)
def test_an_output_that_is_written_after_its_case(name: str, folder: Path, children: list[Child]):
    """The outputs are right when the case is judged, and are written again before the subject's process ends."""
    writes = "while not os.path.exists('judged'): time.sleep(0.01)\n    output[...] = 7\n    open('wrote', 'w').close()"
    device = subject(children, f"    {WRITERS[name]}\n\ndef late(output):\n    {writes}")
    assert audit(find_case(CASE), device).verdict is Verdict.PASS
    Path("judged").touch()
    wait_until(Path("wrote").exists)
    found = getattr(device, "end", device.child.end)()  # once a run only ended its process
    still_green_if(not found, "nobody reads the outputs again")
    assert found == f"writes_late: output 'swizzled_scale_inv' of {CASE} changed after that case was judged"


RECORDS = {"it ends": "", "it is killed": '{"case_id": "toy/b"'}


def header(**more: object) -> dict:
    found = {"sources": "s", "cases": CASES, "selected": 1, "selection": CASES, "set": "smoke", "shard": "1/1"}
    return found | {"sealed": {}, "device": {}, "timed": False} | more


@pytest.mark.parametrize("rest", RECORDS.values(), ids=RECORDS)
def test_a_record_that_was_written_before_a_resume_does_not_count(rest: str, folder: Path, passed: dict):
    """A record is written into the journal from outside, and the run goes on with a subject."""
    Journal(folder, header(), resume=False).close()
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(passed) + "\n" + rest)
    with closing(Journal(folder, header(), resume=True)) as journal:
        assert [each["case_id"] for each in journal.records] == [passed["case_id"]]
    with closing(Journal(folder, header(), resume=True, **GUEST)) as journal:
        still_green_if(journal.records, "the record counts")
        assert journal.changed() == "" and len((folder / FILE).read_text().splitlines()) == 1


@pytest.fixture
def passed() -> dict:
    case = find_case(CASE)
    return Result(
        case.id, case.recipe, Verdict.PASS, "", "", case.input, "emulator", ("sm_90a",), (), ("numpy",), 512, 0.5,
        subject="mine:quantize (no source)",
    ).to_record()  # fmt: skip


def test_a_process_that_goes_on_keeps_what_its_supervisor_saw(
    folder: Path, passed: dict, monkeypatch: pytest.MonkeyPatch
):
    from harness.records.journal import GOES_ON, digest

    first = Journal(folder, header(), resume=False, guest=True)
    first.append(passed)
    first.close()
    monkeypatch.setenv(GOES_ON, digest(folder))
    with closing(Journal(folder, header(), resume=True, guest=True)) as second:
        assert len(second.records) == 1 and second.changed() == ""
    (folder / FILE).write_text((folder / FILE).read_text().replace(": 0.5", ": 0.6"))
    with pytest.raises(UsageError, match="was changed by another process while the run went on"):
        Journal(folder, header(), resume=True, guest=True)


REWRITES = {
    "appends": lambda path: path.write_text(path.read_text() + "\n"),
    "changes": lambda path: path.write_text(path.read_text().replace("smoke", "bench")),
    "replaces": lambda path: (path.rename(path.with_name("old")), path.write_text("")),
    "removes": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_journal_that_is_rewritten_while_the_run_goes_on(name: str, folder: Path):
    with closing(Journal(folder, header(), resume=False)) as journal:
        assert journal.changed() == ""
        REWRITES[name](folder / FILE)
        still_green_if(not journal.changed(), "the journal counts as its own")


HELPERS = {
    "in a folder of sys.path": ("from lib.helper import f", "lib/helper.py"),
    "in a folder that it puts on sys.path": ("sys.path.insert(0, 'lib')\ndef g():\n    import helper", "lib/helper.py"),
    "beside its folder": ("sys.path.append(Path(__file__).parents[1] / 'other')\nimport helper", "../other/helper.py"),
    "by a computed name on PYTHONPATH": ("import importlib\nimportlib.import_module('hel' + name)", "path/helper.py"),
    "by its path": ("import runpy\nrunpy.run_path(where)", "path/helper.py"),
    "of a helper": ("import first", "lib/helper.py"),
}  # fmt: skip


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_that_a_subject_imports_is_sealed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    code, where = HELPERS[name]
    here = folder / "here"
    (here / "lib").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", str(here / "path"))
    Path(where).parent.mkdir(exist_ok=True)
    Path(where).write_text("f = 1\n")
    Path("mine.py").write_text(f"import sys\nfrom pathlib import Path\n{code}\n")
    Path("first.py").write_text("import sys\nsys.path.insert(0, 'lib')\nimport helper\n")
    still_green_if(Path(where).resolve() not in imported_files("mine")[0], f"{where} may change")


def test_files_that_no_subject_imports_are_not_sealed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """No way to green: such files may change."""
    for name in ("path", "data", "mine"):
        Path(name).mkdir()
        Path(name, "notes.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(folder / "path"))
    Path("mine/mine.py").write_text("import json\nwhere = 'data'\n")
    assert {path.name for path in imported_files("mine.mine")[0]} == {"mine.py", "notes.py"}
    assert {path.parent.name for path in imported_files("mine.mine")[0]} == {"mine"}


def test_a_module_beside_what_pip_put_into_a_folder_is_sealed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """`pip install --target` leaves a folder of any name, on PYTHONPATH; what pip did not put there may be anyone's."""
    target = folder / "target"
    (target / "packed").mkdir(parents=True)
    (target / "packed-1.dist-info").mkdir()
    (target / "packed-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: packed\nVersion: 1\n")
    (target / "packed-1.dist-info" / "RECORD").write_text("packed/__init__.py,,\n../../bin/packed,,\n")
    (target / "packed" / "__init__.py").write_text("import inner\n")
    (target / "loose.py").write_text("f = 1\n")
    monkeypatch.syspath_prepend(str(target))
    Path("mine.py").write_text("import packed\nimport loose\n")
    files, packages = imported_files("mine")
    still_green_if((target / "loose.py").resolve() not in files, "loose.py may change")
    assert not any("packed" in path.parts for path in files) and packages == {"packed"}


JUDGE = """
import sys
from pathlib import Path
from harness.runner import supervisor
try:
    from harness.runner import guarding
    guarding.LOOK = supervisor.LOOK = 0.1
except ImportError:  # before anybody looked
    guarding = None
for name in sys.argv[1:]:
    supervisor.CHILD = supervisor._CHILD = Path(name)
    guards = [guarding.Guard(True)] if guarding else []
    with supervisor._Child([], Path.cwd(), ["typed"], *guards) as child:
        code = child.wait()
    for guard in guards:
        guard.end_strays()
    print(f"ended {code}", file=sys.stderr, flush=True)
"""
STOPS = {
    "the judge": ("os.kill(judge, signal.SIGSTOP)", 5, "was stopped, as by SIGSTOP of its subject; it is continued"),
    "a worker": ("os.kill(worker, signal.SIGSTOP)", 5, "was stopped, as by SIGSTOP of its subject; it is continued"),
    "the supervisor": ("os.kill(os.getppid(), signal.SIGSTOP)", 5, "the supervisor of this run, was stopped"),
    "again and again": (
        "subprocess.Popen([sys.executable, '-S', '-c', f'import os, time\\nwhile True: os.kill({judge}, 19)"
        "; time.sleep(.02)'])\ntime.sleep(600)",
        -9,
        "was stopped again and again",
    ),
    "and leaves a daemon": (
        "daemon = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'], env={})\n"
        "open('pid', 'w').write(str(daemon.pid))\nos.kill(judge, signal.SIGSTOP)",
        5,
        "it is continued",
    ),
    "nothing": ("pass", 5, ""),
}
CHILD = """
import os, signal, subprocess, sys, time
try:
    from harness.runner.guarding import continue_supervisor
except ImportError:
    continue_supervisor = lambda: None
judge = os.getpid()
process = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1)'])
worker = process.pid
{}
time.sleep(0.3)
continue_supervisor()
process.wait()
os._exit(5)
"""


def test_a_subject_that_stops_a_process_of_its_run(folder: Path):
    """What runs in the judge stops a process of the run; the supervisor or the judge continues it, or ends it."""
    for number, (act, _, _) in enumerate(STOPS.values()):
        Path(f"{number}.py").write_text(CHILD.format(act))
    words = [sys.executable, "-c", JUDGE, *(f"{number}.py" for number in range(len(STOPS)))]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST, start_new_session=True)
    except subprocess.TimeoutExpired as error:
        raise StillGreenError(f"the run does not end: {error.stderr}") from None
    printed = done.stderr.split("ended ")
    for (name, (_, code, because)), before, after in zip(STOPS.items(), printed[:-1], printed[1:], strict=True):
        assert after.partition("\n")[0] == str(code), f"{name}: {done.stderr}"
        warned = before.partition("\n")[2] if before is not printed[0] else before
        assert because in warned if because else not warned, f"{name}: {done.stderr}"
    still_green_if(Path("pid").exists() and lives(int(Path("pid").read_text())), "a daemon outlives the run")


STOPS_ITS_SUPERVISOR = """
    pid = os.getppid()
    while "verify" not in (words := open(f"/proc/{pid}/cmdline").read().split("\\0")) or "-m" not in words:
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGSTOP)
"""


@pytest.mark.slow
def test_a_whole_run_whose_supervisor_is_stopped(folder: Path):
    """Only the judge can continue it, and it is heard although pytest keeps what a case prints."""
    Path("mine.py").write_text(f"{HEAD}\ndef act(output):\n{STOPS_ITS_SUPERVISOR}")
    words = ["verify", "swizzle", "--case", CASE, "--subject", "mine:quantize", "--run-dir", "run"]
    with subprocess.Popen(
        [sys.executable, "-m", "harness", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed = process.communicate(timeout=LONGEST)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise StillGreenError("the run does not end") from None
    assert process.returncode == 0 and printed.splitlines()[-1].startswith("1 selected, 1 compared"), printed
    assert f"process {process.pid}, the supervisor of this run, was stopped" in printed
