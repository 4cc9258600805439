"""What the CUDA driver is given of a card, read back from the call, because no GPU is here to be asked."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver

from harness.bench.timed import WrongBytesError
from harness.device import cuda_code, cuda_program
from harness.device.cuda_program import CudaProgram
from harness.device.device import Outcome
from harness.errors import DeviceUnavailable, SuiteError
from harness.expected.expected import expect
from harness.subjects.card.bench import TimedCard
from harness.subjects.card.card import read_card
from harness.subjects.card.code import runs_on
from harness.subjects.card.device import with_card
from harness.subjects.card.forms import CardForms
from harness.subjects.card.launches import card_launches
from harness.subjects.card.schema import ArrayForm
from harness.suite.suite import find_case

CARD = """\
code: own.cu
recipe: swizzle
launches:
  - kernel: k<3>
    grid: [rows, 2]
    block: [cols, 3]
    cluster: 2
    shared: 4 * cols
    early: true
    arguments: [{array: scale_inv, offset: 16}, {i32: -2}, {f32: 1.5}, {struct: [{u8: 7}, {array: swizzled_scale_inv}]}]
"""
SOURCE = (
    "struct S { char a; void* b; };\ntemplate <int n> __global__ void k(char* in, int i, float f, S s) { *in = n; }\n"
)
OK, FUNCTION = driver.CUresult.CUDA_SUCCESS, 0x7000


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    monkeypatch.chdir(tmp_path)
    Path("own.cu").write_text(SOURCE)
    Path("card.yaml").write_text(CARD)
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=77))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    made: list[tuple] = []
    cuda_code._function.cache_clear(), cuda_code._loaded.cache_clear()

    def answer(name: str, value: object = None):
        return lambda *words: (made.append((name, *words)), (OK, value))[1]

    for name, value in (("cuModuleLoadData", "module"), ("cuModuleGetFunction", FUNCTION)):
        monkeypatch.setattr(driver, name, answer(name, value))

    class Launched:
        """In place of `DriverLaunch`, whose own test reads what the driver is handed."""

        def __init__(self, *words: object):
            made.append(("launch", *words))

    monkeypatch.setattr(cuda_program, "DriverLaunch", Launched)
    yield made
    cuda_code._function.cache_clear(), cuda_code._loaded.cache_clear()


def launched(case: str = "swizzle/default/48x80/normal/eager", program: bool = False, **numbers: int) -> list:
    """The calls of the card of this folder, or its program, with arrays at addresses of no GPU.

    numbers: in place of the case's
    """
    whole = program
    card, case = read_card("card.yaml"), find_case(case)
    if numbers:
        vars(card)["numbers"] = lambda case: numbers
    program = object.__new__(CudaProgram)
    program.launches = card_launches(card, case, card.code_for("sm_90a"))
    places = {"scale_inv": 0x1000, "swizzled_scale_inv": 0x2000}
    program.memory = SimpleNamespace(
        inputs={name: SimpleNamespace(data=SimpleNamespace(ptr=place)) for name, place in places.items()}, outputs={}
    )
    program.workspace = program.scratch = {}
    program._bind()
    return program if whole else program.calls


def test_the_driver_gets_the_launch_and_its_arguments(calls: list[tuple]):
    assert len(launched(rows=10, cols=32)) == 1
    said = {name: words for name, *words in calls}
    assert said["cuModuleLoadData"][0].startswith(b"//") and b".target sm_90a" in said["cuModuleLoadData"][0]
    assert said["cuModuleGetFunction"] == ["module", b"_Z1kILi3EEvPcif1S"]
    function, launch, grid, parts = said["launch"]
    assert (function, grid, launch.block) == (FUNCTION, (10, 2, 1), (32, 3, 1))
    assert (launch.shared, launch.cluster, launch.early) == (128, (2, 1, 1), True)
    assert launch.where == "card.yaml:4"
    assert parts[0] == (0x1010).to_bytes(8, "little")
    assert parts[1:3] == (b"\xfe\xff\xff\xff", b"\x00\x00\xc0\x3f")
    assert parts[3] == b"\x07" + bytes(7) + (0x2000).to_bytes(8, "little")


@pytest.mark.parametrize(("size", "found", "says"), [
    (12, OK, ""), (16, OK, "card.yaml:4: 'shape' has 16 bytes, and the card gives 12"),
    (0, driver.CUresult.CUDA_ERROR_NOT_FOUND, "card.yaml:4: the code has no variable 'shape': CUDA_ERROR_NOT_FOUND"),
])  # fmt: skip
def test_constants_are_copied_into_a_module_of_the_program_s_own(calls: list[tuple], monkeypatch, size, found, says):
    Path("own.cu").write_text(
        "__constant__ struct { int rows; const char* in; } unused;\n__constant__ int shape[3];\n"
        'extern "C" __global__ void k(char* in, char* out) { *out = in[shape[2]]; }\n'
        'extern "C" __global__ void two(char* out) { *out = shape[1]; }\n'
    )
    Path("card.yaml").write_text(
        "code: own.cu\nrecipe: swizzle\nconstants:\n  shape: {i32: [rows, -2, 3]}\nlaunches: [{kernel: k, arguments: "
        "[{array: scale_inv}, {array: swizzled_scale_inv}]}, {kernel: two, arguments: [{array: swizzled_scale_inv}]}]\n"
    )
    held = np.zeros(12, np.uint8)

    def into(address: int, content: int, count: int) -> tuple:
        held[:] = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(content))
        return (OK,)

    def out_of(target: int, address: object, count: int) -> tuple:
        ctypes.memmove(target, held.ctypes.data, count)
        return (OK,)

    asked: list[tuple] = []
    monkeypatch.setattr(driver, "cuModuleGetGlobal", lambda *words: (asked.append(words), (found, 0x8000, size))[1])
    for name, answer in (("cuMemcpyHtoD", into), ("cuMemcpyDtoH", out_of), ("cuCtxSynchronize", lambda: (OK,))):
        monkeypatch.setattr(driver, name, answer)
    if says:
        with pytest.raises(SuiteError, match=says):
            launched(rows=10, cols=32)
        return
    program = launched(rows=10, cols=32, program=True)
    assert asked == [("module", b"shape")] and held.view(np.int32).tolist() == [10, -2, 3]
    assert [name for name, *_ in calls].count("cuModuleLoadData") == 1, "both kernels share the variable"
    launched(rows=11, cols=32)
    assert [name for name, *_ in calls].count("cuModuleLoadData") == 2, "another case has another value"
    vars(program.memory)["trespass"] = lambda poison: ""
    assert (
        program._trespass(0)
        == "'shape', set at card.yaml:4, has changed after the last launch, so a second run would differ"
    )
    held.view(np.int32)[0] = 10
    assert program._trespass(0) == ""


def test_the_pointers_to_the_tensors_of_a_group_are_put_into_memory(calls: list[tuple]):
    Path("own.cu").write_text('extern "C" __global__ void k(const char* const* in, char* const* out) {}\n')
    Path("card.yaml").write_text(
        "code: own.cu\nrecipe: swizzle_grouped\nlaunches: [{kernel: k, arguments: [{tensors: scale_inv}, "
        "{tensors: swizzled_scale_inv}]}]\n"
    )
    tables: list[bytes] = []

    def asarray(content: np.ndarray) -> SimpleNamespace:
        tables.append(content.tobytes())
        return SimpleNamespace(data=SimpleNamespace(ptr=0x9000 * len(tables)))

    sys.modules["cupy"].asarray = asarray
    launched("swizzle_grouped/default/0+128+0+256x144/normal/eager")
    parts = calls[-1][-1]
    assert [int.from_bytes(part, "little") for part in parts] == [0x9000, 0x12000]
    starts = np.array([0, 0, 128 * 12, 128 * 12], np.uint64)  # of scales of no rows, 128, none and 256
    assert tables == [(starts + first).tobytes() for first in (0x1000, 0x2000)]


def test_the_driver_gets_no_launch_without_blocks_of_a_case_without_elements(calls: list[tuple]):
    assert len(launched(rows=0, cols=32)) == 1
    assert launched("row_scaled/default/0x80/normal/eager", rows=0, cols=32) == ()


@pytest.mark.parametrize(
    ("target", "gpu", "runs"),
    [
        ("sm_90a", "sm_90a", True),
        ("sm_90", "sm_90a", True),
        ("sm_90", "sm_100a", True),
        ("sm_80", "sm_90a", True),
        ("sm_90a", "sm_100a", False),
        ("sm_100a", "sm_90a", False),
        ("sm_100a", "sm_103a", False),
        ("sm_100f", "sm_103a", True),
        ("sm_103f", "sm_100a", False),
        ("sm_100f", "sm_120a", False),
        ("sm_120", "sm_90a", False),
    ],
)
def test_ptx_runs_on_the_gpus_of_its_target(target: str, gpu: str, runs: bool):
    assert runs_on(target, gpu) == runs


def test_ptx_of_another_gpu_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("own.ptx").write_text(".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n")
    launches = "launches: [{kernel: k, grid: [1], block: 1, arguments: []}]\n"
    Path("card.yaml").write_text("code: own.ptx\nrecipe: swizzle\n" + launches)
    gpu = SimpleNamespace(name="cuda", targets=("sm_90a",), modes=("eager",))
    with pytest.raises(DeviceUnavailable, match="own.ptx is for sm_100a, which this GPU, an sm_90a, does not run"):
        with_card(gpu, read_card("card.yaml"))
    gpu.targets = ("sm_100a",)
    assert with_card(gpu, read_card("card.yaml")).targets == ("sm_100a",)


class Copies:
    """Copies of a card's memory after rounds in which it wrote `written`."""

    def __init__(self, written: dict[str, np.ndarray]):
        self.written = written

    def outcomes(self, poison: int, order: object) -> list[tuple[str, Outcome]]:
        return [("copy 1 of 1", Outcome(self.written))]


def timed_card(padding: str, change: int | None) -> TimedCard:
    """A card that wrote the right bytes in every round, but for one byte."""
    case = find_case("swizzle/default/48x80/normal/eager")
    ours, kept = expect(case), ArrayForm(padding=padding)
    timed = object.__new__(TimedCard)
    timed._case, timed._ours, timed._order = case, ours, None
    timed._forms = CardForms(case, {"swizzled_scale_inv": kept}, frozenset())
    timed._expected = timed._forms.expected(ours)
    written = {name: np.array(value).reshape(-1) for name, value in timed._expected.values.items()}
    if change is not None:
        written["swizzled_scale_inv"][change] ^= 1
    timed._rotation = Copies(written)
    card = SimpleNamespace(conventions=frozenset())
    timed._card_device = SimpleNamespace(card=card, accepts=lambda one, other: (one == other.reshape(-1)).all())
    return timed


def test_the_bytes_of_timed_rounds_are_compared_where_the_card_promises_them():
    places = np.flatnonzero(expect(find_case("swizzle/default/48x80/normal/eager")).values["swizzled_scale_inv"] == 0)
    timed_card("written", None).check()
    timed_card("anything", int(places[-1])).check()
    for padding, place in (("written", int(places[-1])), ("anything", 0)):
        with pytest.raises(WrongBytesError, match="after timing, bytes differ in swizzled_scale_inv of copy 1 of 1"):
            timed_card(padding, place).check()
