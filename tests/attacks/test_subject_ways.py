"""Ways to green of a subject that does no work and goes for what would say so."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from processes import LONGEST, python_path
from ways import StillGreenError, must_be_red

from harness.device.emulator import EmulatorDevice
from harness.errors import Exit, UsageError
from harness.files import ROOT
from harness.subjects import subject
from harness.subjects.audit.verify import audit
from harness.subjects.device import with_subject
from harness.suite.suite import find_case

try:
    from harness.subjects import process
except ImportError:
    process = None

Judge = Callable[..., CompletedProcess[str]]

CASE = "swizzle/default/16x16/normal/eager"
HANGING = {"deadlock", "stops"}

# How it is done where subjects have no process of their own, so that the one that judges is at risk.
JUDGE = f"""
import os, sys
from harness.device.emulator import EmulatorDevice
from harness.subjects.audit.verify import audit
from harness.subjects.device import with_subject
from harness.subjects.subject import load
from harness.suite.suite import find_case
here = os.getcwd()
result = audit(find_case("{CASE}"), with_subject(EmulatorDevice(), load("mine:quantize")))
print(result.verdict, result.reason)
sys.exit(int(result.verdict.exit_code) if os.getcwd() == here else 0)
"""

# name → what it does, the offence, and the lines of `quantize(case, inputs, outputs)`
WAYS = {
    "leaves": ("ends its process with exit code 0", "leaves", "os._exit(0)"),
    "exits": ("calls sys.exit(0)", "raises", "sys.exit(0)"),
    "execs": ("becomes another program, which ends with 0", "leaves", "os.execv('/bin/true', ['true'])"),
    "forks": ("forks, and ends the process that is judged", "leaves|skips_work", "if os.fork(): os._exit(0)"),
    "crashes": ("reads address 0", "leaves", "ctypes.string_at(0)"),
    "kills": ("kills its process", "leaves", "os.kill(os.getpid(), signal.SIGKILL)"),
    "at_exit": ("has Python end with exit code 0, whatever was found", "skips_work", "atexit.register(os._exit, 0)"),
    "thread": (
        "has a thread end the process with 0 a moment later", "leaves|skips_work",
        "threading.Thread(target=lambda: (time.sleep(0.02), os._exit(0)), daemon=True).start()",
    ),
    "alarm": (
        "has a signal end the process with 0 a moment later", "leaves|skips_work",
        "signal.signal(signal.SIGALRM, lambda *_: os._exit(0)); signal.setitimer(signal.ITIMER_REAL, 0.02)",
    ),
    "exit_codes": (
        "makes every verdict's exit code 0", "skips_work",
        "from harness.verdict import Verdict; Verdict.exit_code = property(lambda verdict: 0)",
    ),
    "rightness": (
        "makes every verdict right", "skips_work",
        "from harness.verdict import Verdict; Verdict.right = Verdict.exit_code = property(lambda verdict: 0)",
    ),
    "findings": (
        "has nothing found of what it did", "reads_oracle|skips_work",
        "from harness.subjects.audit import verify; verify.find = lambda *_: None; verify._wrong = lambda *_: None",
    ),
    "comparison": (
        "has the device accept any bytes", "skips_work",
        "from harness.device.emulator import EmulatorDevice; EmulatorDevice.accepts = lambda *_: True",
    ),
    "sys_exit": ("replaces sys.exit by one that ends with 0", "skips_work", "sys.exit = lambda *_: os._exit(0)"),
    "printing": ("prints as if the harness had, and ends", "leaves", "print('PASS', flush=True); os._exit(0)"),
    "files": ("closes every file, and ends", "leaves", "os.closerange(0, 4096); os._exit(0)"),
    "folder": ("goes to another folder", "skips_work", "os.chdir('/')"),
    "oracle": (
        "asks the oracle of the recipe",
        "reads_oracle",
        """
        from harness.oracles import swizzle
        found = swizzle.numpy_oracle(case, {name: np.asarray(value) for name, value in inputs.items()})
        for name, value in outputs.items():
            value[...] = found[name]
        """,
    ),
    "deadlock": ("waits for itself", "hangs", "lock = threading.Lock(); lock.acquire(); lock.acquire()"),
    "stops": ("stops its process", "hangs", "os.kill(os.getpid(), signal.SIGSTOP)"),
    "memory": ("wants more memory than there is", "raises", "bytearray(1 << 46)"),
    "shortens": (
        "cuts off the memory that it shares, so that reading it would kill the harness",
        "raises|skips_work",
        "[os.truncate(f'/proc/self/fd/{n}', 0) for n in os.listdir('/proc/self/fd')"
        " if 'memfd' in os.readlink(f'/proc/self/fd/{n}')]",
    ),
    "forges": (
        "answers in the place of the process that called it",
        "forges_answers|raises",
        "from harness.subjects import messages;"
        "[messages.send_answer(each, {'ok': {}}) for each in gc.get_objects() if isinstance(each, socket.socket)]",
    ),
    "endless": (
        "sends an answer of a terabyte", "forges_answers|skips_work",
        "[each.sendall(b'\\0\\0\\0\\0\\0\\1\\0\\0') for each in gc.get_objects() if isinstance(each, socket.socket)]",
    ),
}  # fmt: skip
HEAD = "import atexit, ctypes, gc, os, signal, socket, sys, threading, time\nimport numpy as np\n"


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Judge:
    """Has the subject `quantize` of a module judged, from a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def judge(module: str, patience: float = LONGEST, to_load: float = LONGEST) -> CompletedProcess[str]:
        Path("mine.py").write_text(HEAD + module)
        done = _in_its_process(patience, to_load) if process else _in_one_process()
        printed = capfd.readouterr().out
        if "PASS" in printed + done.stdout:
            raise StillGreenError(f"the subject printed a verdict of its own, or got one:\n{printed}{done.stdout}")
        return done

    return judge


def _in_its_process(patience: float, to_load: float) -> CompletedProcess[str]:
    child = process.Child("mine:quantize", to_load)
    try:
        device = with_subject(EmulatorDevice(), subject.start("mine:quantize", child))
    except UsageError as error:
        return CompletedProcess([], error.exit_code, "", str(error))
    child.patience = patience
    try:
        result = audit(find_case(CASE), device)
    finally:
        child.end()
    return CompletedProcess([], result.verdict.exit_code, f"{result.verdict} {result.reason}", "")


def _in_one_process() -> CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", JUDGE],
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_subject_that(name: str, judge: Judge):
    """A subject does no work, and goes for its process, the harness or the answers in the way that `WAYS` tells."""
    does, offences, lines = WAYS[name]
    body = textwrap.indent(textwrap.dedent(lines).strip(), "    ")
    done = judge(f"def quantize(case, inputs, outputs):\n{body}\n", 1.0 if name in HANGING else LONGEST)
    must_be_red(done, code=Exit.BYTES_DIFFER)
    assert any(f"{offence}: " in done.stdout for offence in offences.split("|")), f"{does}: {done.stdout}"


AS_IT_IS_LOADED = {
    "leaves": ("os._exit(0)", Exit.USAGE, "cannot be imported: the process of mine:quantize ended with exit code 0"),
    "changes": (
        "from harness.verdict import Verdict\nVerdict.exit_code = property(lambda verdict: 0)",
        Exit.BYTES_DIFFER,
        "skips_work",
    ),
    "hangs": ("time.sleep(60)", Exit.USAGE, "cannot be imported: mine:quantize did not answer within 2 s"),
}


@pytest.mark.parametrize("name", AS_IT_IS_LOADED)
def test_a_module_that_attacks_while_it_is_imported(name: str, judge: Judge):
    """A subject's module acts when it is imported, before anything of it is called."""
    line, code, because = AS_IT_IS_LOADED[name]
    done = judge(
        f"def quantize(case, inputs, outputs):\n    pass\n{line}\n", to_load=2.0 if name == "hangs" else LONGEST
    )
    must_be_red(done, because, code=code)


def test_a_subject_that_leaves_while_it_is_asked_what_it_refuses(judge: Judge):
    """A subject ends the process with exit code 0 when it is asked whether it takes a case."""
    module = "def quantize(case, inputs, outputs):\n    pass\n\ndef refuses(case):\n    os._exit(0)\n"
    must_be_red(judge(module), "leaves: ", code=Exit.BYTES_DIFFER)


def test_a_subject_that_refuses_what_the_oracle_says_it_gets_wrong(judge: Judge):
    """A subject asks the oracle, and refuses the cases in which its own bytes would be wrong."""
    module = """
def quantize(case, inputs, outputs):
    pass

def refuses(case):
    from harness.expected.expected import expect
    return "too hard" if any(value.any() for value in expect(case).values.values()) else ""
"""
    must_be_red(judge(module), "reads_oracle: ", code=Exit.BYTES_DIFFER)
