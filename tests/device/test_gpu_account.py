"""The account of a GPU's memory, between real processes on a memory that is none: files that say who uses how much."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import LONGEST, wait_until

from harness.files import ROOT

UUID = bytes(range(16))
GIB = 1 << 30
TOTAL = 80 * GIB
WORKER = """
import os, sys
from contextlib import ExitStack
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from harness.device import gpu_account as module
from harness.ground.seconds import WAITS
module.PATIENCE, module.FIRST_PAUSE, module.PAUSE = 0.2, 0.01, 0.02

class Memory:
    def use(self, what, size):
        (used / f"{os.getpid()}-{what}").write_text(str(size))
    def free(self):
        return total - sum(int(p.read_text() or 0) for p in used.iterdir() if alive(p.name.partition("-")[0]))
    def clear(self):
        self.use("pool", 0)
    def release(self):
        self.use("case", 0)
        self.use("pool", 0)

def alive(pid):
    return pid == "foreign" or os.path.exists(f"/proc/{pid}")

memory, held = Memory(), ExitStack()
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "open":
        folder, total, share, context = Path(numbers[0]), *map(int, numbers[1:])
        used = folder / "used"
        memory.use("context", context)
        account = module.GpuAccount(bytes(range(16)), total, folder)
        account.join(share)
        print("open", flush=True)
    elif word == "keep":
        memory.use("pool", int(numbers[0]))
        print("kept", flush=True)
    elif word == "hold":
        wants, least, alone = map(int, numbers)
        try:
            held.enter_context(account.hold("a case", wants, least, memory, bool(alone)))
        except module.NoDevice as error:
            print(error, flush=True)
            continue
        memory.use("case", account.holds)
        if memory.free() < 0:
            (used.parent / "too much").touch()
        print(f"holds {account.holds} after {WAITS.total:.2f}", flush=True)
    elif word == "leave":
        held.close()
        print("left", flush=True)
"""


class Worker:
    """A process that holds memory as it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

        self.answers: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line.strip())

    def say(self, *words: object) -> None:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        return self.answers.get(timeout=LONGEST)  # queue.Empty: it waits without an end

    def asked(self, *words: object) -> str:
        self.say(*words)
        return self.answer()

    def hold(self, gib: float, least: float | None = None, alone: bool = False) -> str:
        self.wait_for(gib, least, alone)
        return self.answer()

    def wait_for(self, gib: float, least: float | None = None, alone: bool = False) -> None:
        self.say("hold", int(gib * GIB), int((gib if least is None else least) * GIB), int(alone))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Gpu:
    """A folder in which up to four processes share a GPU of 80 GiB."""

    def __init__(self, folder: Path, workers: list[Worker]):
        self.folder, self.workers = folder, workers
        (folder / "used").mkdir()

    def processes(self, count: int, share: float = 0.25, context: float = 0.5) -> list[Worker]:
        while len(self.workers) < count:
            self.workers.append(Worker())
        for worker in self.workers[:count]:
            worker.asked("open", self.folder, TOTAL, int(share * GIB), int(context * GIB))
        return self.workers[:count]

    def foreign(self, gib: float) -> None:
        (self.folder / "used" / "foreign-0").write_text(str(int(gib * GIB)))

    def entries(self) -> list[dict[str, int]]:
        texts = [path.read_text() for path in self.folder.glob("*.account/*.json")]
        return [json.loads(text) for text in texts if text.endswith("}")]

    def queued(self, worker: Worker) -> bool:
        return any(entry["pid"] == worker.process.pid and entry["ticket"] for entry in self.entries())


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    found: list[Worker] = []
    yield found
    for worker in found:
        worker.end()


@pytest.fixture
def gpu(tmp_path: Path, workers: list[Worker]) -> Iterator[Gpu]:
    yield Gpu(tmp_path, workers)
    for worker in workers:
        worker.asked("leave")


def test_two_that_fit_do_not_wait(gpu: Gpu):
    one, two = gpu.processes(2)
    assert one.hold(32).startswith(f"holds {32 * GIB}")
    assert two.hold(32).startswith(f"holds {32 * GIB}")


def test_one_that_does_not_fit_waits_and_that_is_counted(gpu: Gpu):
    one, two = gpu.processes(2)
    one.hold(65)
    two.wait_for(32)
    wait_until(lambda: gpu.queued(two))
    time.sleep(0.3)  # longer than the patience with others
    assert gpu.queued(two)
    one.asked("leave")
    after = float(two.answer().rpartition(" ")[2])
    assert after >= 0.3


def test_first_come_first_served(gpu: Gpu):
    """A small one that would fit does not overtake the large one that waits."""
    one, large, small = gpu.processes(3)
    one.hold(40)
    large.wait_for(65)
    wait_until(lambda: gpu.queued(large))
    small.wait_for(20)
    wait_until(lambda: gpu.queued(small))
    time.sleep(0.1)
    assert gpu.queued(small)
    one.asked("leave")
    assert large.answer().startswith(f"holds {65 * GIB}")
    assert gpu.queued(small)
    large.asked("leave")
    assert small.answer().startswith(f"holds {20 * GIB}")


def test_a_holder_that_is_killed_holds_nothing(gpu: Gpu):
    one, two = gpu.processes(2)
    one.hold(65)
    two.wait_for(32)
    wait_until(lambda: gpu.queued(two))
    one.end()
    gpu.workers.remove(one)
    assert two.answer().startswith(f"holds {32 * GIB}")
    assert [entry["pid"] for entry in gpu.entries()] == [two.process.pid]


def test_a_waiter_that_is_killed_keeps_nobody_waiting(gpu: Gpu):
    one, two, three = gpu.processes(3)
    one.hold(40)
    two.wait_for(65)
    wait_until(lambda: gpu.queued(two))
    three.wait_for(20)
    wait_until(lambda: gpu.queued(three))
    two.end()
    gpu.workers.remove(two)
    assert three.answer().startswith(f"holds {20 * GIB}")


def test_a_process_frees_what_it_keeps_before_it_waits(gpu: Gpu):
    one, two = gpu.processes(2)
    two.asked("keep", 30 * GIB)
    one.hold(40)
    two.wait_for(70)
    wait_until(lambda: gpu.queued(two))
    assert (gpu.folder / "used" / f"{two.process.pid}-pool").read_text() == "0"
    one.asked("leave")
    two.answer()


def test_two_runs_of_two_processes_never_promise_more_than_there_is(gpu: Gpu):
    of_one, of_other = [65, 20, 1, 40], [32, 32, 65, 5]
    four = gpu.processes(4)
    for worker, sizes in zip(four, (of_one, of_one[::-1], of_other, of_other[::-1]), strict=True):
        for size in sizes:
            worker.wait_for(size)
            worker.say("leave")
    for worker in four:
        told = [worker.answer() for _ in range(8)]
        assert [line.split()[0] for line in told] == ["holds", "left"] * 4
    assert not (gpu.folder / "too much").exists()


def test_foreign_memory_is_blamed_on_others_with_its_size(gpu: Gpu):
    one, _ = gpu.processes(2)
    gpu.foreign(60)
    says = one.hold(32)
    assert "needs about 32 GiB of GPU memory, and 19 GiB of 80 GiB are free" in says
    assert "about 58 GiB are held by programs that are not the harness's" in says  # 61, less what contexts may take
    assert "end what else uses the GPU" in says


def test_foreign_memory_that_leaves_room_is_left_alone(gpu: Gpu):
    one, two = gpu.processes(2)
    gpu.foreign(40)
    assert one.hold(20).startswith(f"holds {20 * GIB}")
    two.wait_for(25)  # promised memory and foreign memory are both counted
    wait_until(lambda: gpu.queued(two))
    time.sleep(0.1)
    assert gpu.queued(two)
    one.asked("leave")
    assert two.answer().startswith(f"holds {25 * GIB}")


def test_its_own_processes_are_not_called_others(gpu: Gpu):
    """What they leave is tried, because needs are estimates; if it was not enough, they are named."""
    one, *others = gpu.processes(3, share=6, context=0.75)
    for other in others:
        other.asked("keep", 6 * GIB)
    assert one.hold(70).startswith(f"holds {int(65.75 * GIB)}")
    one.asked("leave")
    says = one.hold(70, alone=True)
    assert "3 processes of the harness on this GPU keep up to 15 GiB" in says
    assert "run it again with fewer" in says and "else uses" not in says


def test_what_is_free_is_taken_where_the_estimate_is_not_and_the_least_is(gpu: Gpu):
    one, two = gpu.processes(2, share=10)
    two.asked("keep", 10 * GIB)
    assert one.hold(68).startswith(f"holds {68 * GIB}")  # the 10 GiB are in use, and not to be counted once more
    one.asked("leave")
    assert one.hold(75, least=60).startswith(f"holds {69 * GIB}")


def test_alone_is_without_any_reservation_of_others(gpu: Gpu):
    one, two = gpu.processes(2)
    one.hold(1)
    two.wait_for(1, alone=True)
    wait_until(lambda: gpu.queued(two))
    time.sleep(0.1)
    assert gpu.queued(two)
    one.asked("leave")
    assert two.answer().startswith(f"holds {GIB}")


def test_the_entries_of_strangers_are_not_believed(gpu: Gpu):
    """A file that nobody keeps locked, and one that is no entry, hold nothing; a link is not followed."""
    (one,) = gpu.processes(1)
    folder = next(gpu.folder.glob("*.account"))
    dead = json.dumps({"pid": 1, "share": 0, "ticket": 1, "holds": 70 * GIB})
    (folder / "1-dead.json").write_text(dead)
    (folder / "2-none.json").write_text("[]")
    (gpu.folder / "kept").write_text(dead)
    (folder / "3-link.json").symlink_to(gpu.folder / "kept")
    assert one.hold(65).startswith(f"holds {65 * GIB}")
    assert (gpu.folder / "kept").read_text() == dead


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path):
    from harness.device.gpu_account import GpuAccount
    from harness.errors import StorageError

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"nvfp4-harness-gpu-{UUID.hex()}.account").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="link"):
        GpuAccount(UUID, TOTAL, tmp_path).join(1)
    assert not any((tmp_path / "elsewhere").iterdir())
