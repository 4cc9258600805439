"""`harness verify --cluster`: processes of which some are killed tell what a plain run tells."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from own_recipe import NAME, written
from processes import LONGEST, python_path, wait_until

from harness.device.emulator import EmulatorDevice
from harness.errors import DeviceUnavailable, Exit, InputError, SuiteError, UsageError
from harness.files import ROOT
from harness.ground.command_lines import Asked
from harness.runner.cluster import connection, worker
from harness.runner.cluster.connection import Cluster, closed
from harness.runner.cluster.worker import Answer, Died, Ready, Work, sealed_here, state_of
from harness.suite.suite import load_suite
from harness.verify.isolation import died
from harness.verify.screen import screen

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

WORKERS = 2
SERVE = f"""
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers={WORKERS}, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""
SUITES = (ROOT / "suites" / "swizzle.yaml", ROOT / "suites" / "per_tensor.yaml")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with its workers, each a process with a nanny above it."""
    script = tmp_path_factory.mktemp("cluster") / "serve.py"
    script.write_text(SERVE)
    quiet = {"stderr": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=script.parent,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)}, **quiet,
    ) as serving:  # fmt: skip
        yield serving.stdout.readline().strip()
        with suppress(ProcessLookupError):
            os.killpg(serving.pid, signal.SIGKILL)


def pids(address: str) -> dict[str, int]:
    with distributed.Client(address, set_as_default=False) as client:
        return client.run(os.getpid)


def verifying(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "harness", "verify", *words, "--device", "emulator", "--run-dir", str(folder)]


def verify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(verifying(folder, *words), cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()[1:]]


def wait_for(journal: Path, cases: int) -> None:
    """Wait until so many cases are done."""
    wait_until(lambda: journal.exists() and len(journal.read_text().splitlines()) > cases)


def told(folder: Path) -> Mapping[str, tuple]:
    """What two runs must agree on, by case. Fails if a case stands twice."""
    found = records(folder)
    made = {
        each["case_id"]: (each["verdict"], each["reason"], each["bytes_compared"], each["targets"], each["digests"])
        for each in found
    }
    assert len(made) == len(found)
    return made


def work(**changes: object) -> Work:
    sealed = sealed_here(SUITES)
    return Work(**{"device": "emulator", "case_timeout": LONGEST, "recipe_dirs": (), "suites": SUITES, **changes,
                   "state": state_of(sealed), "tensors": {}})  # fmt: skip


@pytest.mark.slow
def test_a_cluster_whose_workers_are_killed_tells_what_a_plain_run_tells(address: str, tmp_path: Path):
    chosen = ("swizzle", "per_tensor", "-k", "swizzle or sr")
    killed = []

    def kill_twice() -> None:
        for done in (5, 25):
            wait_for(tmp_path / "there" / "journal.jsonl", done)
            victim = next(iter(pids(address).values()))
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    killing = threading.Thread(target=kill_twice)
    killing.start()
    there = verify(tmp_path / "there", *chosen, "--cluster", address)
    killing.join()
    here = verify(tmp_path / "here", *chosen, "--jobs", "0")
    assert len({*killed}) == 2
    assert (there.returncode, here.returncode) == (Exit.CLEAN, Exit.CLEAN), there.stdout + there.stderr
    assert f"cluster {address}, " in there.stdout
    assert told(tmp_path / "there") == told(tmp_path / "here")
    assert there.stdout.splitlines()[-1] == here.stdout.splitlines()[-1]
    header = json.loads((tmp_path / "there" / "journal.jsonl").read_text().splitlines()[0])
    assert header["device"] == EmulatorDevice().identity()


@pytest.mark.slow
def test_wrong_cases_are_as_red_as_here_and_one_may_not_end(address: str, tmp_path: Path):
    own = written(tmp_path / "own")
    (own / f"{NAME}.cu").write_text(broken((own / f"{NAME}.cu").read_text()))
    there = verify(tmp_path / "there", "--recipe-dir", str(own), "--cluster", address, "--case-timeout", "600")
    assert there.returncode == Exit.BYTES_DIFFER, there.stdout + there.stderr
    assert {each["verdict"] for each in records(tmp_path / "there")} <= {"MISMATCH", "UNWRITTEN", "PASS"}
    assert "reproduce" in there.stdout


def broken(source: str) -> str:
    """A kernel whose threads but the first do nothing."""
    body = re.search(r"__global__[^{]*\{", source)
    return source[: body.end()] + "\n  if (blockIdx.x > 0) return;\n" + source[body.end() :]


@pytest.mark.slow
def test_a_run_that_was_ended_goes_on(address: str, tmp_path: Path):
    words = ("swizzle", "--cluster", address)
    with subprocess.Popen(
        verifying(tmp_path / "run", *words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as begun:
        wait_for(tmp_path / "run" / "journal.jsonl", 3)
        begun.send_signal(signal.SIGINT)
        printed, _ = begun.communicate()
    assert begun.returncode == Exit.INTERRUPTED, printed.decode()
    resumed = verify(tmp_path / "run", *words, "--resume")
    assert resumed.returncode == Exit.CLEAN, resumed.stdout + resumed.stderr
    assert told(tmp_path / "run")


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("--bench",), "--cluster does not go with --bench"),
        pytest.param(("--subject", "torchao"), "--cluster does not go with --subject", marks=pytest.mark.slow),
        pytest.param(("--jobs", "2"), "--cluster does not go with -n", marks=pytest.mark.slow),
    ],
)
def test_what_does_not_go_together_is_one_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str):
    done = verify(tmp_path, "swizzle", "--cluster", "tcp://127.0.0.1:1", *words)
    assert (done.returncode, done.stderr.count("\n")) == (Exit.USAGE, 1) and sentence in done.stderr


def test_an_address_where_nobody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "CONNECTING", 1.0)
    with pytest.raises(DeviceUnavailable, match="no Dask scheduler answers at tcp://127.0.0.1:1 "):
        Cluster("tcp://127.0.0.1:1", work(), sealed_here(SUITES))


@pytest.mark.parametrize("address", ["tcp://head:8786", "tcp://10.0.0.7:8786", "10.0.0.7:8786", "head:8786",
                                     "ws://head:8786", "tcp://0.0.0.0:8786", "tcp://[2001:db8::1]:8786"])  # fmt: skip
def test_a_scheduler_of_another_machine_without_tls_is_not_asked(address: str):
    assert not closed(address)
    with pytest.raises(UsageError, match="has no TLS.* --host 127.0.0.1 .*--tls-ca-file"):
        Cluster(address, work(), sealed_here(SUITES))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "127.0.0.1:8786", "localhost:1", "tcp://[::1]:8786",
                                     "tls://head:8786", "tls://10.0.0.7:8786"])  # fmt: skip
def test_what_is_closed(address: str):
    assert closed(address)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Start `dask scheduler` with some words; what it listens at."""
    started = []

    def serve(*words: str) -> str:
        file = tmp_path / "scheduler.json"
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", *words]
        started.append(subprocess.Popen(
            [*command, "--scheduler-file", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ))  # fmt: skip
        wait_until(lambda: file.exists() and file.read_text() or started[-1].poll() is not None)
        return json.loads(file.read_text())["address"]

    monkeypatch.setattr(connection, "CONNECTING", LONGEST)
    yield serve
    for each in started:
        each.kill()
        each.wait()


def test_a_scheduler_that_serves_every_network_is_refused_by_whatever_address(served: Callable[..., str]):
    port = served().rpartition(":")[2]
    with pytest.raises(UsageError, match=r"the scheduler serves tcp://.*, where anyone may run code on it"):
        Cluster(f"tcp://127.0.0.1:{port}", work(), sealed_here(SUITES))


def test_a_scheduler_of_this_machine_alone_is_asked(served: Callable[..., str]):
    with pytest.raises(DeviceUnavailable, match="no worker has joined"):
        Cluster(served("--host", "127.0.0.1"), work(), sealed_here(SUITES))


def certificate(folder: Path) -> list[str]:
    """An authority that signed itself, in the words of Dask's command line."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=harness"]
    subprocess.run([*made, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return ["--tls-ca-file", str(cert), "--tls-cert", str(cert), "--tls-key", str(key)]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_scheduler_with_tls_asks_for_a_certificate(served: Callable[..., str], tmp_path: Path):
    words = certificate(tmp_path)
    address = served(*words)
    assert address.startswith("tls://")
    with pytest.raises(UsageError, match="asks for a certificate, .* DASK_DISTRIBUTED__COMM__TLS__CA_FILE"):
        Cluster(address, work(), sealed_here(SUITES))
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other")
    for named, error, sentence in (
        (words, DeviceUnavailable, "no worker has joined"),
        (other, DeviceUnavailable, "no Dask scheduler answers"),
        ([*words[:3], "absent.pem", *words[4:]], UsageError, "certificate .* cannot be used"),
    ):
        files = {"ca-file": named[1], "client.cert": named[3], "client.key": named[5]}
        configured = dask.config.set({f"distributed.comm.tls.{key}": file for key, file in files.items()})
        with configured, pytest.raises(error, match=sentence):
            Cluster(address, work(), sealed_here(SUITES))


def test_workers_with_other_sources_are_refused_by_name(address: str):
    sealed = sealed_here(SUITES) | {"harness/verify/verify.py": "0" * 32}
    with pytest.raises(UsageError, match=r"tcp://.* has not what this machine has: harness/verify/verify\.py"):
        Cluster(address, work(), sealed)


def test_a_worker_without_the_device_says_so(address: str):
    with pytest.raises(DeviceUnavailable, match=r"^tcp://"):
        Cluster(address, work(device="cuda"), sealed_here(SUITES))


@pytest.mark.parametrize(
    "devices, sentence",
    [
        (["cuda"] * WORKERS, "does not say how many cases its GPU may run side by side"),
        (
            ["emulator"] * (WORKERS - 1) + ["cuda"],
            "runs on cuda and tcp://.* on emulator; a run has one kind of device",
        ),
        (["none"], r"cannot run cases: RuntimeError\('no'\); give it the same environment"),
    ],
)
def test_workers_that_do_not_fit(address: str, monkeypatch: pytest.MonkeyPatch, devices: list[str], sentence: str):
    sealed = sealed_here(SUITES)

    def looked_at(self: Cluster, workers: list[str]) -> Iterator[tuple[str, object]]:
        for number, name in enumerate(devices):  # of its own, because one that a test killed may not be back yet
            where = f"tcp://worker:{number}"
            yield where, RuntimeError("no") if name == "none" else Ready("a", {"device": name}, 1 << 38, sealed)

    monkeypatch.setattr(Cluster, "_looked_at", looked_at)
    with pytest.raises(UsageError, match=sentence):
        Cluster(address, work(), sealed)


def child_of(monkeypatch: pytest.MonkeyPatch, asked: Work) -> worker._Child:
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))
    return worker._child(asked)


def test_a_process_that_dies_is_told_and_replaced(monkeypatch: pytest.MonkeyPatch):
    asked, case = work(), load_suite(SUITES[0]).cases("smoke")[0]
    first = child_of(monkeypatch, asked)
    assert isinstance(first.ready, Ready) and state_of(first.ready.sealed) == asked.state
    os.kill(first._process.pid, signal.SIGKILL)
    with pytest.raises(Died, match="was ended by signal 9"):
        first.run(case)
    assert worker.run_case(asked, case).record["verdict"] == "PASS"
    second = worker._child(asked)
    assert second is not first
    second.end()


def test_a_tensor_that_is_another_file_there(monkeypatch: pytest.MonkeyPatch):
    case = next(case for case in load_suite(SUITES[1]).cases("smoke") if case.input.startswith("file:"))
    child = child_of(monkeypatch, work())
    answer = child.run(case)
    child.end()
    with pytest.raises(InputError, match="is not the same file here"):
        answer.taken()


def test_a_worker_that_came_later_with_other_sources(monkeypatch: pytest.MonkeyPatch):
    asked = Work("emulator", 60.0, (), SUITES, "another state", {})
    child_of(monkeypatch, asked)
    answer = worker.run_case(asked, load_suite(SUITES[0]).cases("smoke")[0])
    worker._child(asked).end()
    with pytest.raises(UsageError, match="came later has other sources"):
        answer.taken()


def test_an_error_keeps_its_class():
    with pytest.raises(InputError, match=r"no such tensor \(on a\)"):
        Answer(kind="InputError", sentence="no such tensor", host="a").taken()
    with pytest.raises(UsageError):
        Answer.of(SuiteError("a.yaml:3", "wrong")).taken()
    assert Answer.of(DeviceUnavailable("gone")).kind == "DeviceUnavailable"


def test_a_case_whose_processes_died_is_told_of_a_gpu_that_is_elsewhere():
    case, ready = load_suite(SUITES[0]).cases("smoke")[0], Ready("host", {"device": "cuda"}, 1 << 30, {})
    record = died(case, "it left", connection._stand_in([ready]))
    assert record.died and case.id in record.story
    asked = Asked.here(options=["--cluster", "tcp://host:1"])
    assert screen(record, asked).endswith(f"verify --cluster tcp://host:1 --device cuda --case '{case.id}'")
