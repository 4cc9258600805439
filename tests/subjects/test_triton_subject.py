"""A subject that launches Triton's kernels is emulated where there is no GPU, and its faults have verdicts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from harness.errors import AccessError, LaunchError, NotEmulated
from harness.ground import strictness
from harness.subjects import caller, child, subject
from harness.subjects.process import checked
from harness.suite.suite import find_case
from ptx_emulator.schedule import Schedule

CASE = "swizzle/default/48x80/normal/eager"


def test_a_fault_that_a_process_tells_of_is_one_here():
    answer = {"token": "t", "error": ["access", "race", "mine.py:7", "writes 4 global bytes\x1b; k, block (1, 0, 0)"]}
    with pytest.raises(AccessError) as raised:
        checked("mine", answer, "t")
    assert (raised.value.kind, raised.value.where) == ("race", "mine.py:7")
    assert str(raised.value) == "mine.py:7: writes 4 global bytes?; k, block (1, 0, 0)"


def test_a_process_tells_of_a_fault():
    def raises(number: int) -> None:
        raise AccessError("unwritten_read", "mine.py:7", "reads 4 bytes")

    service = child.Service()
    service.caller = SimpleNamespace(call=raises)
    assert service.answer("call", {"number": 0}) == {
        "error": ["access", "unwritten_read", "mine.py:7", "reads 4 bytes"]
    }


def test_what_the_emulator_lacks_is_no_fault_of_the_subject():
    """It gets its own way through the socket, as it would be LAUNCH_ERROR otherwise."""

    def lacks(*_: object) -> None:
        raise NotEmulated("k: not emulated: wgmma at mine.py:7")

    made = caller.Caller(subject.Subject("mine", "", lacks))
    made._opened[0] = caller.Opened(find_case(CASE), None, [({}, {})], {})
    service = child.Service()
    service.caller = made
    answer = service.answer("call", {"number": 0, "order": Schedule()})
    assert answer == {"error": ["not_emulated", "k: not emulated: wgmma at mine.py:7"]}
    with pytest.raises(NotEmulated):
        checked("mine", {"token": "t", **answer}, "t")
    assert not issubclass(NotEmulated, LaunchError)


def test_only_subjects_of_triton_are_called_in_a_block_and_none_on_a_gpu():
    plain = subject.Subject("mine", "", lambda *_: None)
    for made in (caller.Caller(plain), object.__new__(caller.CudaCaller)):
        with made.kernels() as block:
            assert block is None


@pytest.fixture
def doubled() -> Callable[[np.ndarray], None]:
    """Doubles an array of 64 floats by a kernel of Triton, several of whose threads load each element."""
    triton = pytest.importorskip(
        "triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it"
    )
    import torch
    from triton import language as tl

    @triton.jit
    def double_in_place(x, BLOCK: tl.constexpr):  # noqa: N803
        at = tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at) * 2)

    return lambda x: double_in_place[(1,)](torch.from_numpy(x), 64)


def test_the_block_is_of_its_target(doubled):
    def double(case, inputs, outputs) -> None:
        import torch

        seen.append(torch.cuda.get_device_capability())
        doubled(outputs["x"])

    seen: list[tuple[int, int]] = []
    made = caller.Caller(subject.Subject("mine", "", double, triton_target="sm_90a"))
    x = np.ones(64, np.float32)
    made._call(caller.Opened(find_case(CASE), None, [({}, {"x": x})], {}), 0)
    assert seen == [(9, 0)] and (x == 2).all()


def test_it_is_strict_if_the_process_is(doubled, monkeypatch: pytest.MonkeyPatch):
    def double(case, inputs, outputs) -> None:
        doubled(outputs["x"])

    made = caller.Caller(subject.Subject("mine", "", double, triton_target="sm_90a"))
    opened = caller.Opened(find_case(CASE), None, [({}, {"x": np.ones(64, np.float32)})], {})
    made._call(opened, 0)
    monkeypatch.setattr(strictness, "_CHOSEN", [True])
    with pytest.raises(AccessError):
        made._call(opened, 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case_id", [
    "per_tensor/block=block_16x16,rounding=rne/64x128/heavy_tail/eager",
    "per_tensor/outputs=columnwise,scale_layout=swizzled/48x80/zero_blocks/eager",
])  # fmt: skip
def test_fouroversix(case_id: str):
    from harness.expected.expected import expect
    from harness.subjects.audit import conventions

    found, case = subject.load("fouroversix_triton"), find_case(case_id)
    if why := found.absent() or found.refuses(case):
        pytest.skip(why)
    expected = expect(case)
    written = {name: np.full(field.nbytes, 0x5A, np.uint8).view(field.dtype).reshape(field.shape)
               for name, field in expected.fields.items()}  # fmt: skip
    with caller.Caller(found).kernels() as run:
        found.quantize(case, expected.inputs, written)
    assert [each.kernel for each in run.launches] != []
    assert conventions.explain(case, expected.inputs, expected.values, written, found.conventions) is not None
