"""Decoded kernels on disk: as good as fresh ones, and made again when a file cannot be trusted, read or written."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from both_paths import both, outcome
from cuda_source import ptx
from processes import LONGEST, python_path
from ptx_snippets import kernel
from test_compiled_launches import EXCHANGE

from ptx_emulator import decode, private_files, stored
from ptx_emulator.compiled.jit import entry
from ptx_emulator.launches import Module
from ptx_emulator.machine.basic_blocks import Origin

ARRAYS = {
    "in": np.random.default_rng(0).integers(0, 1 << 32, 512, dtype=np.uint32),
    "out": np.zeros(512, np.uint32),
    "sums": np.zeros(2, np.float32),
}


def results(module: Module) -> dict[str, np.ndarray]:
    return both(module, ARRAYS, grid=2, block=256).arrays


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.decoded"))


class Maker:
    """Counts how often it makes its value."""

    def __init__(self, value: object = ("value", 1)):
        self.value, self.calls = value, 0

    def __call__(self) -> object:
        self.calls += 1
        return self.value


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding is an error: what runs came from disk."""

    def refuse(*args: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr("ptx_emulator.launches.decode", refuse)
    monkeypatch.setattr("ptx_emulator.launches.parse", refuse)


def test_a_kernel_read_back_gives_the_same_result(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    fresh = Module(ptx(EXCHANGE), tmp_path)
    wanted = outcome(fresh, ARRAYS, 2, 256)
    assert len(files(tmp_path)) == 2  # what the module declares, and its kernel
    request.getfixturevalue("no_decoding")
    again = Module(ptx(EXCHANGE), tmp_path)
    got = outcome(again, ARRAYS, 2, 256)
    assert got.counters == wanted.counters and again.target == fresh.target == "sm_90a"
    for name, array in wanted.arrays.items():
        np.testing.assert_array_equal(got.arrays[name], array)
    results(again)  # its NumPy steps, too


def test_a_module_variable_of_a_kernel_read_back(tmp_path: Path) -> None:
    text = ptx("""
__device__ unsigned counter = 40;
extern "C" __global__ void k(unsigned* out) { out[threadIdx.x] = counter + threadIdx.x; }""")
    for _ in range(2):
        got = outcome(Module(text, tmp_path), {"out": np.zeros(32, np.uint32)}, 1, 32)
        np.testing.assert_array_equal(got.arrays["out"], 40 + np.arange(32))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[:32],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: bytes([content[0] ^ 1]) + content[1:],
    ],
    ids=["empty", "half a digest", "a digest alone", "a byte short", "a byte more", "one bit", "a bit of the digest"],
)
def test_a_damaged_file_is_made_again(tmp_path: Path, damage) -> None:
    wanted = results(Module(ptx(EXCHANGE), tmp_path))
    whole = {path: path.read_bytes() for path in files(tmp_path)}
    for path, content in whole.items():
        path.write_bytes(damage(content))
    got = results(Module(ptx(EXCHANGE), tmp_path))
    assert all((got[name] == wanted[name]).all() for name in wanted)
    for path in whole:
        pickle.loads(zlib.decompress(private_files.read(tmp_path, path.name)))
    assert files(tmp_path) == sorted(whole)


def test_what_is_stored_is_not_made_again(tmp_path: Path) -> None:
    make = Maker()
    assert [stored.stored(tmp_path, ("text",), make) for _ in range(3)] == [make.value] * 3
    assert make.calls == 1


def test_another_text_is_another_key(tmp_path: Path) -> None:
    make = Maker()
    for what in (("text",), ("text ",), ("text", "k"), ("text", "l"), ("textk",)):
        stored.stored(tmp_path, what, make)
    assert make.calls == 5 == len(files(tmp_path))


def test_another_emulator_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker()
    stored.stored(tmp_path, ("text",), make)
    own = stored.digest_of_sources()
    folder = tmp_path / "emulator"
    (folder / "machine").mkdir(parents=True)
    (folder / "own_text.py").write_text("one = 1\n")
    (folder / "machine" / "batch.py").write_text("two = 2\n")
    monkeypatch.setattr(stored, "__file__", str(folder / "own_text.py"))
    digests = {own}
    for text in ("two = 2\n", "two = 3\n"):
        (folder / "machine" / "batch.py").write_text(text)
        stored.digest_of_sources.cache_clear()
        digests.add(stored.digest_of_sources())
        stored.stored(tmp_path, ("text",), make)
    stored.digest_of_sources.cache_clear()
    assert make.calls == 3 == len(digests)


def test_machine_code_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    hits = [entry("int64(int64)")(double).stats.cache_hits.total() for _ in range(2)]
    (kept,) = tmp_path.rglob("*.machine_code")
    kept.write_bytes(kept.read_bytes()[:-1])
    hits += [entry("int64(int64)")(double).stats.cache_hits.total() for _ in range(2)]
    assert hits == [0, 1, 0, 1]


def double(x):
    return 2 * x


def test_no_folder_keeps_nothing(tmp_path: Path) -> None:
    make = Maker()
    assert [stored.stored(None, ("text",), make) for _ in range(2)] == [make.value] * 2
    assert make.calls == 2


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """A file stands where the folder should be, which refuses a privileged user, too."""
    (tmp_path / "taken").write_text("")
    make = Maker()
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        assert [stored.stored(folder, ("text",), make) for _ in range(2)] == [make.value] * 2
    assert make.calls == 4
    wanted = results(Module(ptx(EXCHANGE)))
    got = results(Module(ptx(EXCHANGE), tmp_path / "taken"))
    assert all((got[name] == wanted[name]).all() for name in wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


RACER = """
import sys
from pathlib import Path
import numpy as np
from ptx_emulator import stored

folder = Path(sys.argv[1])
print(flush=True)
sys.stdin.read()
for i in range(200):
    value = np.full(5000, i)
    found = stored.stored(folder, (str(i),), lambda: value)
    assert (found == i).all()
"""


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Both write the same files at the same time, and neither ever reads half of one."""
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": python_path(Path(decode.__file__).parents[2])}
    running = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    for process in running:
        process.stdout.readline()
    for process in running:
        process.stdin.close()
    for process in running:
        process.stdin = None
        _, errors = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, errors
    assert len(files(tmp_path)) == 200
    assert len(list(tmp_path.iterdir())) == 201  # the key, and no temporary file


def slots_of(step: object) -> list[object]:
    """The values in a step's closures that say where it reads and writes, collected depth first."""
    found: list[object] = []
    for cell in getattr(step, "__closure__", None) or ():
        value = cell.cell_contents
        if callable(value):
            found += slots_of(value)
        elif isinstance(value, int | tuple | list | frozenset):
            found.append(value)
        elif hasattr(value, "number") and hasattr(value, "bytes"):
            found.append(("access", value.number, value.space, value.kind, value.size, value.count))
    return found


# Instructions with steps before and after them, for operands and results of other widths, and several accesses.
CONVERSIONS = """ .shared .align 4 .b8 s[256]; .reg .b8 byte; mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0];
 add.u32 %rd1, %r0, %r0; and.b32 %r1, %rd1, %rd0; ld.global.u8 %r2, [%rd0]; ld.global.s8 %rd2, [%rd0+1];
 mov.pred %p0, 1; mov.pred %p1, !%p0; @%p1 st.global.u16 [%rd0], %r2; red.global.add.u32 [%rd0], %r2;
 mov.b64 {%r3, _}, %rd2; cvt.s8.s32 %rs1, %r1; shfl.sync.bfly.b32 %rd3|%p2, %r1, %rd2, 31, -1;
 ld.volatile.global.v2.u8 {%r4, %rs2}, [%rd0+4]; bar.red.popc.u32 %r5, 0, %p0; atom.shared.add.u32 %r6, [s], 1;
"""


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", ["exchange", "conversions"])
def test_an_instruction_decoded_again_has_the_slots_it_had(
    name: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: dict[Origin, list[object]] = {}
    instruction = decode._instruction

    def noted(emitter, number, *rest):
        decoded = instruction(emitter, number, *rest)
        for i, step in enumerate(decoded.steps):
            first.setdefault(Origin(number, i), slots_of(step.run))
        return decoded

    with monkeypatch.context() as patch:
        patch.setattr(decode, "_instruction", noted)
        code = Module(ptx(EXCHANGE) if name == "exchange" else kernel(CONVERSIONS, 1)).code("k")
    kinds, accesses = len(code.resources.kinds), len(code.resources.accesses)
    for _ in range(rounds):
        code = pickle.loads(pickle.dumps(code))
        # Out of order, because a launch asks for the instructions that it cannot run.
        for origin in sorted(first, reverse=True):
            assert slots_of(code.step(origin)) == first[origin], code.instruction(origin.instruction)
    assert len(first) > 20
    assert (len(code.resources.kinds), len(code.resources.accesses)) == (kinds, accesses)
    assert len(code.emitter.kinds) == kinds


class Runs:
    def __reduce__(self) -> tuple:
        return print, ("this ran",)


@pytest.mark.parametrize("value", [Runs(), [Runs()], stored.stored], ids=["call", "inside", "own function"])
def test_a_file_that_would_run_code_is_refused(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(pickle.UnpicklingError, match="no data of the emulator"):
        stored.unpack(zlib.compress(pickle.dumps(value)))
    assert not capsys.readouterr().out


@pytest.mark.parametrize("name", ["Path", "io.FileIO", "pickle.Unpickler", "contextlib.suppress"])
def test_what_a_module_of_the_emulator_imports_is_refused(name: str) -> None:
    words = [b"\x8c%c%s" % (len(word), word.encode()) for word in ("ptx_emulator.stored", name)]
    with pytest.raises(pickle.UnpicklingError, match="no data of the emulator"):
        stored.unpack(zlib.compress(b"\x80\x04" + b"".join(words) + b"\x93."))
