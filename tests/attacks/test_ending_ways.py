"""Ways to keep a run from ending, or to have it end in a traceback; and trees whose files lie elsewhere."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import LONGEST, python_path
from suite_files import SUITE
from ways import Command, StillGreenError, must_be_red, must_be_refused, still_green_if

from harness.commands import _suites
from harness.device.gpu_account import gpu_lock
from harness.gate.baseline import lock_of
from harness.ground import locks
from harness.records import seal
from harness.runner import supervisor
from harness.runner.request import Request
from harness.verify import room as host_room_module
from harness.verify.room import host_room

try:
    from harness.runner import below_supervisor
except ImportError:  # before it was a module of its own
    below_supervisor = supervisor


class BegunError(Exception):
    """Nothing was refused."""


def begins(*_: object, **__: object) -> None:
    raise BegunError


def test_a_parent_that_ignores_its_children(tmp_path: Path):
    """The supervisor waits for a signal that the kernel never sends."""
    (tmp_path / "late.py").write_text("import time\ntime.sleep(5)\n")  # when the supervisor waits already
    environment = {**os.environ, "PYTHONPATH": python_path(tmp_path)}
    words = [sys.executable, "-m", "harness", "verify", "casts", "--case", "nonsense", "-p", "late"]

    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # `trap '' CHLD` does not in every shell

    try:
        done = subprocess.run(
            words, env=environment, preexec_fn=ignore, capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        raise StillGreenError("the run does not end") from None
    must_be_red(done, "'nonsense' is not a case id", code=64)


@pytest.mark.parametrize("command", ["harness list", "evidence coverage"])
def test_a_folder_that_is_gone(tmp_path: Path, command: str):
    words = f"cd {tmp_path} && rmdir {tmp_path} && exec {sys.executable} -m {command}"
    environment = {**os.environ, "PYTHONPATH": python_path(seal.ROOT)}
    done = subprocess.run(["sh", "-c", words], env=environment, capture_output=True, text=True, timeout=LONGEST)
    still_green_if("Traceback" in done.stderr, f"it ends in a traceback:\n{done.stderr}")
    must_be_red(done, "error: the current folder: No such file or directory", code=64)


@pytest.fixture
def below_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is what a supervisor starts, and process 1 has started it."""
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(below_supervisor, "_runs_child", lambda pid: pid == os.getpid(), raising=False)
    monkeypatch.setattr(below_supervisor, "_parent", lambda pid: 1 if pid == os.getpid() else 0)
    monkeypatch.setattr(below_supervisor, "_program", lambda pid: "python")


def test_a_supervisor_that_is_process_1(below_1: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(below_supervisor.SUPERVISOR, "1")
    still_green_if(not below_supervisor.supervised(), "a run below process 1 is supervised twice")


@pytest.mark.parametrize("above", ["2", "0"])
def test_a_supervisor_that_is_another_process(below_1: None, monkeypatch: pytest.MonkeyPatch, above: str):
    """No way to green: process 1 is no supervisor where another one is named."""
    monkeypatch.setenv(below_supervisor.SUPERVISOR, above)
    assert not below_supervisor.supervised()


PROCESS_1 = "unshare --user --map-root-user --pid --fork --mount-proc"


@pytest.mark.slow
def test_a_supervisor_that_is_the_first_process_of_a_container():
    if subprocess.run([*PROCESS_1.split(), "true"], capture_output=True).returncode:
        pytest.skip("this machine lets no process have process ids of its own")
    words = [*PROCESS_1.split(), sys.executable, "-m", "harness", "verify", "casts", "--device", "cuda"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LONGEST)
    must_be_red(done, "error: device 'cuda'", code=4)  # a second supervisor would read its child's code as pytest's


# ---- locks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Like /tmp, which every user may write to; the folder of locks."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        monkeypatch.setattr(tempfile, "gettempdir", lambda: name)
        yield Path(name)


@contextmanager
def a_large_case() -> Iterator[None]:
    with host_room(SimpleNamespace(elements=host_room_module.LARGE)):
        yield


LOCKS = {
    "GPU": lambda folder: gpu_lock(b"gpu", folder),
    "memory": lambda folder: a_large_case(),
    "baseline": lambda folder: lock_of(Path("bench.jsonl")),
}


@contextmanager
def in_its_place(path: Path, way: str) -> Iterator[None]:
    path.unlink(missing_ok=True)
    user = os.geteuid()
    if way == "folder":
        path.mkdir()
    elif way in ("link", "link to itself"):
        path.symlink_to(path if way == "link to itself" else path.parent / "elsewhere")
    elif way == "socket":
        with socket.socket(socket.AF_UNIX) as each:
            each.bind(str(path))
    else:  # another user's, which this one cannot open
        path.touch()
        path.chmod(0)
        if user == 0:
            os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        path.rmdir() if way == "folder" else path.unlink()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_that_cannot_be_opened_is_named(open_folder: Path, lock: str):
    with LOCKS[lock](open_folder):
        path = min(open_folder.glob("*.lock"))
    for way in ("folder", "link", "link to itself", "socket", "another user's"):
        with in_its_place(path, way):
            must_be_refused(
                LOCKS[lock](open_folder).__enter__, rf"^{path} cannot be opened: [A-Z][\w ]+; .*ask its owner to remove"
            )


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_of_another_is_not_waited_for_silently(
    open_folder: Path, lock: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Held by another thread, until the waiting one has said so three times."""
    for module, name in ((locks, "_TELL_AFTER"), (locks, "_TELL_EVERY"), (host_room_module, "TELL_EVERY")):
        monkeypatch.setattr(module, name, 0.02)
    monkeypatch.setattr(host_room_module, "PAUSE", 0.01)
    monkeypatch.setattr(host_room_module, "AT_A_TIME", 2)
    told, enough = [], threading.Event()
    say = locks.tell_waiting

    def tell(since: float, *paths: Path) -> None:
        say(since, *paths)
        told.append(paths)
        if len(told) == 3:
            enough.set()

    monkeypatch.setattr(locks, "tell_waiting", tell)
    monkeypatch.setattr(host_room_module, "tell_waiting", tell)

    def hold() -> None:
        with ExitStack() as held:
            for _ in range(2 if lock == "memory" else 1):
                held.enter_context(LOCKS[lock](open_folder))
            holding.set()
            enough.wait(LONGEST)

    holding = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    assert holding.wait(LONGEST)
    with LOCKS[lock](open_folder):
        assert enough.is_set()
    holder.join()
    path = re.escape(str(min(open_folder.glob("*.lock"))))
    assert re.search(rf"waiting for {path}.*, for \d+ s by now: held by (another process|process \d+ of )",
                     capsys.readouterr().err)  # fmt: skip


def test_the_kernel_s_table_says_who_holds_a_lock(tmp_path: Path):
    path, table = tmp_path / "a.lock", tmp_path / "locks"
    path.touch()
    row = "1: {} ADVISORY WRITE {} 08:01:{} 0 EOF\n"
    me, inode = os.getpid(), path.stat().st_ino
    table.write_text(row.format("FLOCK", 1, inode + 1) + row.format("FLOCK", me, inode))
    assert locks.holder(path, table) == f"process {me} of {pwd.getpwuid(os.geteuid()).pw_name}"
    for text in ("", "\n", "1: FLOCK\n", row.format("POSIX", me, inode), row.format("FLOCK", "x", inode)):
        table.write_text(text)
        assert locks.holder(path, table) == "another process"
    assert locks.holder(path, tmp_path / "none") == "another process"


# ---- links ----------------------------------------------------------------------------------------------------------


def suites_in(tmp_path: Path, way: str) -> Path:
    """A folder of suites, of which a part lies elsewhere."""
    elsewhere, suites = tmp_path / "elsewhere", tmp_path / "suites"
    (elsewhere / "data").mkdir(parents=True)
    (elsewhere / "x.yaml").write_text("")
    if way == "all":
        suites.symlink_to(elsewhere)
    else:
        suites.mkdir()
        name = {"suite": "x.yaml", "tensors": "data", "counts": "compared.csv"}.get(way)
        if name:
            (suites / name).symlink_to(elsewhere / name)
    return suites


@pytest.mark.parametrize("way", ["suite", "tensors", "counts", "all"])
def test_a_suite_that_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], way: str
):
    suites = suites_in(tmp_path, way)
    monkeypatch.setattr(seal, "SUITES", suites)
    monkeypatch.setattr(seal, "seal", begins)  # what every run does first
    try:
        code = supervisor.supervise([str(suites)], tmp_path, tmp_path, tmp_path / "runs")
    except BegunError:
        raise StillGreenError("a run begins") from None
    assert code == 64 and " is a link to " in capsys.readouterr().err


def test_a_suite_that_lies_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No way to green: nothing is a link."""
    suites = suites_in(tmp_path, "none")
    (suites / "toy.yaml").write_text(SUITE)
    monkeypatch.setattr(seal, "SUITES", suites)
    monkeypatch.setattr(seal, "seal", begins)
    with pytest.raises(BegunError):
        supervisor.supervise([str(suites)], tmp_path, tmp_path, tmp_path / "runs")


@pytest.mark.parametrize(
    "words",
    [["verify", "casts"], ["bench", "casts"], ["gate"], ["gate", "--base", "HEAD"], ["gate", "--save"]],
    ids=" ".join,
)  # fmt: skip
def test_a_command_on_suites_that_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, words: list[str]
):
    suites = tmp_path / "suites"
    suites.symlink_to(seal.SUITES)
    monkeypatch.setattr(seal, "SUITES", suites)
    for begin in ("_against_revision", "newest_run"):
        monkeypatch.setattr(f"harness.commands.gate.{begin}", begins)
    monkeypatch.setattr(_suites, "leave", sys.exit)  # and not this process at once
    try:
        must_be_red(command(*words), "is a link to", code=64)
    except BegunError:
        raise StillGreenError("a gate begins") from None


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with suites that nobody named, beside another with the same."""
    for name in ("elsewhere", "another"):
        (tmp_path / name / "suites").mkdir(parents=True)
        shutil.copy(seal.SUITES / "casts.yaml", tmp_path / name / "suites")
    return tmp_path / "elsewhere"


def linked(into: Path, elsewhere: Path) -> dict[Path, str]:
    """Links to the suites: of the file, of its folder, and of the folder above; and a word for the suite in each."""
    (into / "suites").mkdir(parents=True)
    (into / "one").mkdir()
    links = {into / "suites" / "casts.yaml": "suites/casts.yaml", into / "one" / "suites": "one/suites",
             into / "two": "two/suites/casts.yaml::casts/default/32x64/midpoints/eager"}  # fmt: skip
    for link, target in zip(links, ("suites/casts.yaml", "suites", "."), strict=True):
        link.symlink_to(elsewhere / target)
    return {link: str(into / word) for link, word in links.items()}


def asked(word: str) -> Request:
    return Request.of([word], Path("/"), Path("/"))


def test_a_suite_that_is_named_by_a_link_of_the_tree(tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    words = linked(tmp_path / "tree", elsewhere)
    more = (str(tmp_path / "tree"), str(tmp_path / "tree" / "two" / ".." / "another" / "suites"))
    monkeypatch.setattr(seal, "ROOT", tmp_path / "tree")
    for word in (*words.values(), *more):
        must_be_refused(
            lambda word=word: asked(word).suites, "is a link to .*; what verdicts depend on lies in the tree"
        )
    (tmp_path / "tree" / "three").mkdir()
    shutil.copytree(elsewhere / "suites", tmp_path / "tree" / "three" / "suites")
    assert len(asked(str(tmp_path / "tree" / "three")).suites) == 1
    (tmp_path / "outside").symlink_to(tmp_path / "tree" / "three")  # where a checkout lies is not its own choice
    assert len(asked(str(tmp_path / "outside")).suites) == 1


def test_a_suite_of_a_user_s_own_is_followed_and_sealed(tmp_path: Path, elsewhere: Path):
    """What a link leads to is changed, and a link is turned, during a run or before --resume."""
    for link, word in linked(tmp_path / "own", elsewhere).items():
        begun = asked(word).selected()
        sealed = supervisor._sealed(begun)
        text = (elsewhere / "suites" / "casts.yaml").read_text()
        assert str(elsewhere / "suites" / "casts.yaml") in sealed and not begun.leads_elsewhere()
        (elsewhere / "suites" / "casts.yaml").write_text(f"{text}\n# later\n")
        still_green_if(not seal.changed(sealed, supervisor._sealed(begun)), "the content is another")
        (elsewhere / "suites" / "casts.yaml").write_text(text)
        assert not seal.changed(sealed, supervisor._sealed(asked(word).selected()))
        turned = link.readlink()
        for target in (tmp_path / "another" / turned.relative_to(elsewhere), link, None):
            link.unlink(missing_ok=True)
            if target:
                link.symlink_to(target)
            still_green_if(not begun.leads_elsewhere(), f"the link leads to {target}")
        link.symlink_to(tmp_path / "another" / turned.relative_to(elsewhere))
        if not seal.changed(sealed, supervisor._sealed(asked(word).selected())):
            raise StillGreenError("resumed with another suite")
        link.unlink()
        link.symlink_to(turned)
