"""Ways to a green run by leaving cases out: as impossible once a kernel or a subject has run, or by having fewer."""

from __future__ import annotations

import shutil
import sys
import unittest
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from ways import StillGreenError, must_be_red, must_be_refused, still_green_if

from evidence.cheating.tools import work
from harness import errors, files
from harness.cli import cli
from harness.device import cuda, emulator
from harness.device.cuda import CudaDevice
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.errors import Exit, HarnessError, NotCapable
from harness.subjects.audit.verify import audit
from harness.subjects.device import with_subject
from harness.subjects.subject import Subject
from harness.suite.suite import find_case
from harness.verdict import Result
from harness.verify.verify import verify

try:
    from harness.device import gpu_account
except ImportError:  # before processes shared a GPU's memory
    gpu_account = None

try:
    from in_process import in_process
except ImportError:  # before subjects had a process of their own

    def in_process(subject: Subject) -> Subject:
        return subject


SMALL, LARGER = (find_case(f"swizzle/default/{shape}/normal/eager") for shape in ("16x16", "128x128"))


def must_be_wrong(call: Callable[[], Result], because: str) -> None:
    """A verification must end with a verdict that is red. because: part of its reason"""
    try:
        result = call()
    except (pytest.skip.Exception, pytest.xfail.Exception) as skip:
        raise StillGreenError(f"pytest reports the case as skipped: {skip}") from None
    still_green_if(result.verdict.exit_code is Exit.CLEAN, f"{result.verdict}: {result.reason}")
    assert because in result.reason


# A kernel of ours


@pytest.mark.parametrize("instruction", ["pmevent 1;", "vadd.u32.u32.u32 %0, %0, %0;"])
def test_a_kernel_with_an_instruction_that_the_emulator_lacks(tmp_path: Path, instruction: str):
    """A kernel of ours is edited to hold an instruction that the emulator lacks, so that its cases are left out."""
    must_be_wrong(lambda: verify(SMALL, spoiled(tmp_path, instruction)), "not emulated")


def test_a_kernel_whose_ptx_cannot_be_parsed(tmp_path: Path):
    """A kernel of ours is edited so that the emulator cannot read its PTX, and its cases are left out."""
    must_be_wrong(lambda: verify(SMALL, spoiled(tmp_path, "@@ this is no PTX at all;")), "not emulated")


def spoiled(folder: Path, instruction: str) -> EmulatorDevice:
    copy = shutil.copytree(files.KERNELS, folder / "kernels")
    before = "  patch.load_compact(scale_inv);\n"
    text = (copy / "swizzle.cu").read_text()
    assert before in text
    spoil = f'  unsigned spoil = patch.block;\n  asm volatile("{instruction}" : "+r"(spoil));\n'
    (copy / "swizzle.cu").write_text(text.replace(before, spoil + before))
    return EmulatorDevice(kernels=copy)


# A device


def incapable(*_) -> None:
    raise NotCapable("capability: not today")


@pytest.mark.parametrize("method", ["prepare", "reserve", "accepts"])
def test_a_device_that_calls_itself_incapable_after_it_admitted_the_case(monkeypatch: pytest.MonkeyPatch, method: str):
    """A device admits a case, and calls itself incapable when it is to prepare, run or compare it."""
    monkeypatch.setattr(EmulatorDevice, method, incapable)
    must_be_wrong(lambda: verify(SMALL, EmulatorDevice()), "no excuse")


def test_a_program_that_calls_itself_incapable(monkeypatch: pytest.MonkeyPatch):
    """A program runs its kernel twice and then says that its device cannot."""
    run = EmulatedProgram.run
    monkeypatch.setattr(
        EmulatedProgram, "run", lambda self, poison, repeat: incapable() if repeat == 2 else run(self, poison, repeat)
    )
    must_be_wrong(lambda: verify(SMALL, EmulatorDevice()), "no excuse")


def test_a_gpu_whose_memory_others_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Another process holds the GPU's memory, so that large cases are left out though the GPU is large enough."""

    class Gpu(CudaDevice):
        def __init__(self) -> None:
            self.index, self.memory, self.targets = 0, 40 << 30, ("sm_90a",)
            self.properties = {"totalGlobalMem": self.memory, "uuid": bytes(16)}
            self.release = lambda: None

    runtime = SimpleNamespace(memGetInfo=lambda: (1 << 20, 40 << 30))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    if gpu_account is None:
        monkeypatch.setattr("harness.device.cuda.gpu_lock", lambda uuid: nullcontext(), raising=False)
    else:
        account = gpu_account.GpuAccount(bytes(16), 40 << 30, tmp_path)
        monkeypatch.setattr("harness.device.cuda.account_of", lambda *_: account)
        monkeypatch.setattr(gpu_account, "PATIENCE", 0.1)
    monkeypatch.setattr("harness.verify.verify.make_inputs", lambda case: {})
    monkeypatch.setattr("harness.verify.verify.host_room", lambda case: nullcontext())
    large = find_case("swizzle/default/65552x32784/normal/eager")
    must_be_wrong(lambda: verify(large, Gpu()), "are free")


def test_torch_is_gone_halfway(monkeypatch: pytest.MonkeyPatch):
    """The second oracle is uninstalled in the middle of a run, and the cases that are left count as excluded."""
    case = find_case("swizzle/direction=columnwise/16x16/normal/eager")
    monkeypatch.setitem(sys.modules, "torch", None)
    must_be_refused(lambda: verify(case, EmulatorDevice()).verdict, "torch is not installed")


@pytest.mark.parametrize("error", [*HarnessError.__subclasses__(), *errors.CaseError.__subclasses__()])
def test_a_command_that_fails_and_exits_with_0(error: type[HarnessError]):
    """A command ends with an error whose exit code is that of a clean run, as `opcodes` did for unknown PTX."""
    still_green_if(error.exit_code is Exit.CLEAN, f"a command that ends with {error.__name__} exits with 0")


# A subject


class Excuse(BaseException):
    """An error that is not an Exception and that pytest does not know."""


@pytest.mark.parametrize(
    "error",
    [
        NotCapable("not for me"), NotImplementedError("not for me"), unittest.SkipTest("not for me"),
        pytest.skip.Exception("not for me"), pytest.xfail.Exception("not for me"), SystemExit(0), GeneratorExit(),
        Excuse("not for me"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_subject_that_declines_after_it_saw_data(error: BaseException):
    """A subject looks at its data and raises what says "not me"."""

    def quantize(case, inputs, outputs) -> None:
        raise error

    must_be_wrong(lambda: audit(SMALL, against(quantize)), "not for me" if error.args == ("not for me",) else "raised")


def test_a_subject_that_declines_its_second_call():
    """A subject does its work once and declines from the second call on."""
    calls = []

    def quantize(case, inputs, outputs) -> None:
        calls.append(1)
        if len(calls) > 1:
            pytest.skip("not for me")
        honest(case, inputs, outputs)

    must_be_wrong(lambda: audit(SMALL, against(quantize)), "declines_late")


def test_a_subject_that_refuses_once_it_has_seen_data():
    """A subject takes one easy case, and refuses every case that comes after it."""
    calls = []

    def quantize(case, inputs, outputs) -> None:
        calls.append(1)
        honest(case, inputs, outputs)

    device = against(quantize, lambda case: "enough for today" if calls else "")
    assert audit(SMALL, device).verdict.right or calls
    must_be_wrong(lambda: audit(LARGER, device), "declines_late")


def test_a_subject_that_changes_its_mind():
    """A subject takes a case when it is first asked, and refuses it when it is asked again."""
    asked = []

    def refuses(case) -> str:
        asked.append(1)
        return "no longer" if len(asked) > 1 else ""

    device = against(honest, refuses)
    first = audit(SMALL, device)
    must_be_wrong(lambda: first if first.verdict.exit_code is not Exit.CLEAN else audit(SMALL, device), "declines_late")


@pytest.mark.parametrize("answer", [True, 1, ["no"], NotCapable("no")], ids=repr)
def test_a_subject_that_refuses_without_a_sentence(answer: object):
    """A subject refuses by something that is true and no sentence."""
    must_be_wrong(lambda: audit(SMALL, against(honest, lambda case: answer)), "must return a str")


@pytest.mark.parametrize(
    "error", [NotCapable("no"), pytest.skip.Exception("no")], ids=lambda error: type(error).__name__
)
def test_a_subject_that_raises_where_it_is_asked(error: BaseException):
    """A subject raises where it is asked what it refuses, in place of an answer."""

    def refuses(case) -> str:
        raise error

    must_be_wrong(lambda: audit(SMALL, against(honest, refuses)), "raises")


def honest(case, inputs, outputs) -> None:
    work(inputs["scale_inv"], outputs["swizzled_scale_inv"])


def against(quantize: Callable, refuses: Callable = lambda case: ""):
    return with_subject(EmulatorDevice(), in_process(Subject("mine:quantize", "source 0", quantize, refuses=refuses)))


# Fewer cases than before


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the suites, which commands read in place of the tree's."""
    copy = shutil.copytree(files.SUITES, tmp_path / "suites")
    for name, module in list(sys.modules.items()):
        if name.startswith("harness.") and getattr(module, "SUITES", None) == files.SUITES and module is not files:
            monkeypatch.setattr(module, "SUITES", copy)
    monkeypatch.setattr(files, "SUITES", copy)
    return copy


BLOCK = """\
    - axes: {direction: columnwise, to: compact}
      shapes: [[48, 80]]
      inputs: [normal]
"""


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[[], CompletedProcess[str]]:
    """`harness check swizzle`, in this process."""

    def run() -> CompletedProcess[str]:
        try:
            code = cli.main(["check", "swizzle"], standalone_mode=False)
        except HarnessError as error:
            return CompletedProcess([], error.exit_code, "", str(error))
        return CompletedProcess([], int(code), *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    "old, new",
    [
        ("[16, 16], [16, 128], [32, 128], ", "[16, 16], "),
        ("inputs: [normal, scale_edges]\n      modes: [eager, graph]", "inputs: [normal]\n      modes: [eager, graph]"),
        ("modes: [eager, graph]", "modes: [graph]"),
        (BLOCK, ""),
    ],
    ids=["shapes", "inputs", "modes", "block"],
)
def test_a_suite_with_fewer_cases(suites: Path, check: Callable, old: str, new: str):
    """A suite is edited so that a set has fewer cases."""
    edit(suites / "swizzle.yaml", old, new)
    must_be_red(check(), "must be")


@pytest.mark.parametrize(
    "where, name, value",
    [
        (EmulatorDevice, "modes", frozenset()),
        (CudaDevice, "modes", frozenset({"eager"})),
        (emulator, "LARGEST", 256),
        (sys.modules.get("harness.device.capability", cuda), "BYTES_PER_ELEMENT", 1 << 20),
        (EmulatorDevice, "admit", lambda self, case: incapable()),
        (CudaDevice, "admit", lambda self, case: incapable()),
    ],
    ids=["emulator modes", "GPU modes", "emulator size", "GPU size", "emulator", "GPU"],
)
def test_a_device_that_can_do_less(suites: Path, check: Callable, monkeypatch: pytest.MonkeyPatch, where, name, value):
    """A device is edited so that it calls itself incapable of more cases."""
    monkeypatch.setattr(where, name, value)
    must_be_red(check(), "must be")


@pytest.mark.parametrize(
    "old, new",
    [
        ("swizzle,full,emulator,56,88", "swizzle,full,emulator,55,89"),
        ("swizzle,full,emulator,56,88", "swizzle,full,emulator,9,88"),
        ("swizzle,smoke,cuda 6 GiB,22,0,\n", ""),
        ("swizzle,full,emulator,56,88", "swizzle,full,emulator,-56,88"),
        ("swizzle,full,emulator,56,88", "swizzle,full,emulator,56,88,"),
        ("swizzle,smoke,emulator", "swizzle,smoke,emulator,13,1,1\nswizzle,smoke,emulator"),
    ],
    ids=["less", "less compared", "a device's line", "negative", "more columns", "twice"],
)
def test_a_number_lowered_by_hand(suites: Path, check: Callable, old: str, new: str):
    """The committed numbers are edited, so that a later fall would not show."""
    edit(suites / "compared.csv", old, new)
    must_be_red(check(), "compared.csv")


@pytest.mark.parametrize("way", ["deleted", "emptied", "headless", "shortened", "without a set"])
def test_the_numbers_are_deleted(suites: Path, check: Callable, way: str):
    """Committed numbers are deleted, so that nothing holds the tree, or a run of it, to them."""
    from harness.check.compared import shortfalls  # is younger than the attacks above

    path = suites / "compared.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.unlink()
    if way != "deleted":
        kept = {"emptied": [], "headless": lines[1:], "shortened": lines[:3],
                "without a set": [line for line in lines if not line.startswith("swizzle,smoke")]}  # fmt: skip
        path.write_text("".join(kept[way]))
    must_be_red(check(), "compared.csv")
    if not shortfalls([{"case_id": SMALL.id, "verdict": "PASS"}], [suites / "swizzle.yaml"], "smoke", EmulatorDevice()):
        raise StillGreenError("a run that may have compared fewer cases")


def test_a_run_that_compared_fewer_cases_than_committed(suites: Path):
    """A run of a whole set ends without some of its records, or with some of them excluded."""
    from harness.check.compared import shortfalls  # is younger than the attacks above

    records = [{"case_id": SMALL.id, "verdict": "PASS", "bytes_compared": 512}] * 8
    for few in (records, [{**records[0], "case_id": f"swizzle/{n}", "verdict": "EXCLUDED"} for n in range(9)], []):
        still_green_if(not shortfalls(few, [suites / "swizzle.yaml"], "smoke", EmulatorDevice()), f"accepted: {few}")
