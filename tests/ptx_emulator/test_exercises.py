"""The exercises on the emulator: what they write is what their models say, with no fault, in three orders and for every
target from Hopper on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from arithmetic_exercises import ARITHMETIC, arithmetic
from async_source import PRELUDE
from cuda_source import buffer, module
from exercises import ALL, BEFORE, Exercise, Tensor, product

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

ORDERS = (ASCENDING, DESCENDING, Schedule(seed=1))


def emulated(each: Exercise, arch: str = "sm_90a", **options) -> dict[str, np.ndarray]:
    """The arrays after a launch on the emulator."""
    arrays = {name: array.copy() for name, array in each.arrays.items()}
    buffers = {name: buffer(name, array) for name, array in arrays.items()}

    def argument(given: str | Tensor | int) -> object:
        if isinstance(given, Tensor):
            return replace(given.map, address=buffers[given.array].address).encode()
        return buffers[given] if isinstance(given, str) else given

    arguments = [argument(given) for given in each.arguments]
    memory = list(buffers.values())
    launch(module(each.source, arch), "k", (each.grid, 1, 1), (each.block, 1, 1), arguments, each.shared,
           memory=memory, **options)  # fmt: skip
    return arrays


def check(each: Exercise, found: dict[str, np.ndarray]) -> None:
    wanted = each.wanted(each.arrays)
    for name, array in each.arrays.items():
        right = wanted.get(name, array)
        if right is not None:
            np.testing.assert_array_equal(found[name], right, err_msg=f"{name} of {each.name}")


@pytest.mark.parametrize(
    "each", [pytest.param(each, marks=pytest.mark.covers(*each.covers), id=each.name) for each in ALL]
)
def test_writes_what_its_model_says(each: Exercise) -> None:
    """In one of the orders, each third in the same."""
    check(each, emulated(each, schedule=ORDERS[ALL.index(each) % len(ORDERS)]))


@pytest.mark.slow
@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in ALL])
def test_writes_it_in_every_order(each: Exercise) -> None:
    for order in ORDERS:
        check(each, emulated(each, schedule=order))


LONG = ("arithmetic.rounded", "arithmetic.in_parts")


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in ARITHMETIC]
)
def test_arithmetic_that_a_gpu_is_asked_about(name: str) -> None:
    each = arithmetic(name)
    check(each, emulated(each))


HOPPER_ALONE = ("wgmma.",)  # ptxas refuses them for later targets


@pytest.mark.sweep
@pytest.mark.parametrize(
    "arch",  # two of each family, which the compiler gives nearly the same PTX
    [
        "sm_100a",
        pytest.param("sm_103a", marks=pytest.mark.slow),
        "sm_120a",
        pytest.param("sm_121a", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in ALL if each.covers != HOPPER_ALONE])
def test_runs_as_on_hopper(each: Exercise, arch: str) -> None:
    check(each, emulated(each, arch))


def test_what_hopper_alone_has_is_refused_by_the_compiler() -> None:
    (product,) = (each for each in ALL if each.covers == HOPPER_ALONE)
    with pytest.raises(ValueError, match="not supported on .target 'sm_120a'"):
        emulated(product, "sm_120a")


@pytest.mark.parametrize("each", BEFORE, ids=[each.name for each in BEFORE])
def test_a_store_that_begins_before_the_tensor_is_a_fault(each: Exercise) -> None:
    with pytest.raises(Fault, match="stores a box at coordinates .* for a store a GPU raises an illegal instruction"):
        emulated(each)


def test_a_store_into_the_end_of_a_row_needs_a_buffer_that_has_it() -> None:
    """The last row of 97 bytes ends with the buffer, and a GPU writes 15 bytes behind it."""
    (each,) = (each for each in ALL if each.name == "store.2d.odd")
    short = {**each.arrays, "tensor": each.arrays["tensor"][: 19 * 112 + 97].copy()}
    with pytest.raises(Fault, match=r"within 16 bytes, of which a GPU writes all: byte 2239 .* which has 2225 bytes"):
        emulated(replace(each, arrays=short))


def test_without_the_sanitizer() -> None:
    ring = ALL[0]
    assert (emulated(ring, sanitize=False)["out"] == ring.wanted(ring.arrays)["out"]).all()


(RING,) = (
    each for each in ALL if each.name == "cluster.ring"
)  # of loads: every synchronisation that it lacks is missed
MUTANTS = {
    "each block is told of its own reads alone": (
        ("init(empty[i], 4)", "init(empty[i], 2)"), ("if (t % 32 < 2)", "if (t % 32 == me)"),
    ),
    "no wait for the slot": (("if (turn >= 2) wait(empty[slot], turn / 2 - 1 & 1);", ""),),
    "the parity of the turn": (("turn / 2 - 1 & 1", "turn & 1"),),
    "half of the bytes": (("expect(full[slot], 512)", "expect(full[slot], 256)"),),
    "no __syncwarp before the arrival": (("    __syncwarp();\n", ""),),
    "read too early": (("    wait(full[slot], turn / 2 & 1);\n", ""),),
    "no fence of the init": (('    ASM("fence.mbarrier_init.release.cluster;");\n', ""),),
    "no barrier behind the init": (("  }\n  meet();", "  }\n  __syncthreads();"),),
    "no barrier at the end": (("= sum;\n  meet();", "= sum;"),),
    "a relaxed arrival": (("arrive.release.cluster", "arrive.relaxed.cluster"),),
}  # fmt: skip


@pytest.mark.parametrize("changes", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_a_ring_that_two_blocks_share_is_caught(changes: tuple[tuple[str, str], ...]) -> None:
    source = RING.source
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    with pytest.raises(Fault):
        emulated(replace(RING, source=source))


# A warpgroup multiplies what bulk copies bring: neither may come too early.
(PRODUCT,) = (each for each in ALL if each.name == "product")


def caught(**parts: str) -> str:
    with pytest.raises(Fault) as found:
        emulated(replace(PRODUCT, source=PRELUDE + product(**parts)))
    assert found.value.kind == "race"
    return found.value.sentence


def test_multiplied_before_the_copy_is_complete() -> None:
    assert "reads shared bytes that the copy of thread" in caught(full="")


def test_one_thread_of_the_warpgroup_waits() -> None:
    assert "may still write" in caught(full="if (t == 0) wait(full[slot], step / 2 & 1);")


def test_a_slot_is_handed_back_before_the_product_is_waited_for() -> None:
    sentence = caught(early="arrive(empty[slot]);", late="")
    assert "copies to shared bytes that the copy of thread" in sentence
    assert "no wgmma.wait_group of its warpgroup" in sentence
