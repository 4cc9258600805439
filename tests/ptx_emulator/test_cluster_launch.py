"""`clusterlaunchcontrol`: every cluster of a grid runs or is taken over, once; what PTX leaves undefined is a fault.

From the PTX ISA, "clusterlaunchcontrol.try_cancel" and "clusterlaunchcontrol.query_cancel".
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cuda_source import ptx

from ptx_emulator.errors import Fault, NotOnTarget
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

pytestmark = pytest.mark.covers("clusterlaunchcontrol.", "fence.proxy.async::generic.")

EXHIBITS = Path(__file__).parents[2] / "evidence" / "museum" / "exhibits"
ORDERS = [ASCENDING, DESCENDING, Schedule(seed=1), Schedule(seed=2)]
NAMES = ["ascending", "descending", "drawn", "drawn again"]

# Thread 0 of each block asks for the next one, and all take its answer. A pair differs by `@{bug||mend}@` in one place.
LOOP = r"""#include "cluster_launch.cuh"
extern "C" __global__ void k(u32* out) {
  __shared__ Answer answer, other;
  __shared__ u64 full;
  const u32 t = threadIdx.x, linear = gridDim.x * gridDim.y;
  if (!t) init(full, 1);
  __syncthreads();
  Next now = {1, blockIdx.x, blockIdx.y, blockIdx.z};
  for (u32 parity = 0; now.there; parity ^= 1) {
    if (!t) {
      EXPECT
      request(answer, full);  // asked
    }
    out[(now.x + gridDim.x * now.y + linear * now.z) * 64 + t] += 1;
    WAIT
    now = query(answer);  // learnt
    ASM("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;");
    BEHIND
    ASM("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;");
  }
  AT_END
}"""
HOLES = {
    "EXPECT": "expect(full, 16);", "WAIT": "wait(full, parity);", "BEHIND": "__syncthreads();", "AT_END": "",
}  # fmt: skip
ASKS_AGAIN = "if (!t) { expect(full, 16); request(answer, full); wait(full, 0); }"
# What a thread asks of bytes that are no answer to a request that succeeded.
BLOCK_OF = r"""asm volatile("{\n .reg .b128 all; .reg .u32 x;\n ld.shared.b128 all, [%0];\n"
  " clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 x, all;\n}" :: "r"(at(&answer)) : "memory");  // x"""
PAIRS = {
    "the answer is read before the mbarrier is waited for": (
        "WAIT", "@{now = query(answer);  // early\n  ||}@ wait(full, parity);", "race", "early", "asked"),
    "one thread waits": ("WAIT", "if (@{!t||t < 64}@) wait(full, parity);", "race", "learnt", "asked"),
    "no byte is expected": ("EXPECT", "@{arrive(full);||expect(full, 16);}@", "race", "learnt", "asked"),
    "too many bytes are expected": ("EXPECT", "expect(full, @{32||16}@);", "mbarrier", None, "asked"),
    "the next answer comes while the last is read": ("BEHIND", "@{||__syncthreads();}@", "race", "asked", "learnt"),
    "a request after one failed": ("AT_END", "@{" + ASKS_AGAIN + "  // again||}@", "cluster_launch", "again", "learnt"),
    "the block of a request that failed": ("AT_END", "@{" + BLOCK_OF + "\n||}@", "cluster_launch", "x", "asked"),
    "no answer": (
        "AT_END", "if (!t) other = Answer{{1, 2, 3, 4}};\n  __syncthreads(); @{query(other);  // strange\n||}@",
        "cluster_launch", "strange", None),
    "bytes that nothing wrote": ("AT_END", "@{query(other);  // strange\n||}@", "unwritten_read", "strange", None),
}  # fmt: skip


def source(mended: bool = True, **holes: str) -> str:
    text = LOOP
    for name, value in (HOLES | holes).items():
        text = re.sub(rf"\b{name}\b", lambda _, value=value: value, text)
    return re.sub(r"@\{(.*?)\|\|(.*?)\}@", r"\2" if mended else r"\1", text, flags=re.DOTALL)


def run(text: str, grid: tuple[int, int, int] = (23, 1, 1), **options) -> np.ndarray:
    """How often each thread of each block was played, (blocks, 64)."""
    out = np.zeros((grid[0] * grid[1] * grid[2], 64), np.uint32)
    found = Module(ptx(text, "sm_100a", (EXHIBITS,)), name="kernel.cu")
    launch(found, "k", grid, (64, 1, 1), [Buffer("out", out.view(np.uint8).reshape(-1))], **options)
    return out


def line_of(text: str, marker: str) -> str:
    return f"kernel.cu:{next(i for i, line in enumerate(text.splitlines(), 1) if f'// {marker}' in line)}"


@pytest.mark.sweep
@pytest.mark.parametrize("order", ORDERS, ids=NAMES)
@pytest.mark.parametrize("grid", [(23, 1, 1), (1, 1, 1), (5, 3, 2), (300, 1, 1)], ids=str)
def test_every_block_is_played_once(grid: tuple[int, int, int], order: Schedule) -> None:
    assert (run(source(), grid, schedule=order) == 1).all()


@pytest.mark.parametrize("to", ["", ".multicast::cluster::all"], ids=["one", "all"])
@pytest.mark.parametrize("axis", "xyz")
def test_generic_addresses_and_one_axis(to: str, axis: str) -> None:
    request = f'asm volatile("clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes{to}.b128 [%0], [%1];"'
    ask = request + ' :: "l"(&answer), "l"(&full) : "memory");'
    take = f"get_first_ctaid::{axis}.b32.b128 %0, all;"
    read = r'asm volatile("{\n .reg .b128 all;\n ld.shared.b128 all, [%1];\n clusterlaunchcontrol.query_cancel.'
    read += take + r'\n}" : "=r"(now.' + axis + ') : "r"(at(&answer)) : "memory");'
    text = source(BEHIND=f"if (now.there) {{ now.{axis} = 99; {read} }} __syncthreads();")
    text = text.replace("request(answer, full);", ask)
    assert (run(text, (5, 3, 2)) == 1).all()


def test_without_the_sanitizer() -> None:
    assert (run(source(), sanitize=False) == 1).all()


def test_only_some_clusters_run() -> None:
    played = run(source(), only=(2, 11, 22))
    assert np.flatnonzero(played[:, 0]).tolist() == [2, 11, 22]


def begun(order: Schedule, blocks: int, **options) -> int:
    """How many of these blocks begin themselves; the others are taken over."""
    marked = source().replace("+= 1", "+= now.x == blockIdx.x ? 1 : 2")
    played = run(marked, (blocks, 1, 1), schedule=order, **options)[:, 0]
    assert set(played.tolist()) == {1, 2}
    return int((played == 1).sum())


def test_requests_fail_by_chance_in_a_drawn_order_and_where_a_batch_has_done_much() -> None:
    assert [begun(order, 64) for order in (ASCENDING, DESCENDING)] == [32, 32]
    assert 32 < begun(Schedule(seed=1), 64) < 64
    assert (begun(ASCENDING, 512), begun(ASCENDING, 512, budget=6000) > 32) == (32, True)


@pytest.mark.parametrize("order", ORDERS, ids=NAMES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_bug_is_a_fault_and_its_mend_is_none(name: str, order: Schedule) -> None:
    hole, text, kind, at, other = PAIRS[name]
    bug, mend = (source(mended, **{hole: text}) for mended in (False, True))
    assert (run(mend, schedule=order) == 1).all()
    with pytest.raises(Fault) as found:
        run(bug, schedule=order)
    assert found.value.kind == kind
    places = f"{found.value.where} {found.value.sentence}"
    assert all(line_of(bug, each) in places for each in (at, other) if each), places


CLUSTER = r"""#include "cluster_launch.cuh"
extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ Answer answer;
  __shared__ u64 full;
  const u32 t = threadIdx.x;
  if (!t) init(full, 1);
  meet();
  u32 x = blockIdx.x;
  for (u32 parity = 0;; parity ^= 1) {
    if (!t) expect(full, 16);
    MEET
    if (!t && rank() == ASKS) request_for_all(answer, full);  // asked
    out[64 * x + t] += 1;
    wait(full, parity);
    const Next next = query(answer);
    fence();
    meet();
    if (!next.there) break;
    x = next.x + rank();
  }
}"""


@pytest.mark.sweep
@pytest.mark.parametrize("order", ORDERS, ids=NAMES)
@pytest.mark.parametrize("asks", [0, 1])
def test_an_answer_to_every_block_of_a_cluster(order: Schedule, asks: int) -> None:
    text = CLUSTER.replace("ASKS", str(asks)).replace("MEET", "")
    assert (run(text, (30, 1, 1), schedule=order) == 1).all()


def test_an_answer_to_a_block_that_has_exited() -> None:
    text = CLUSTER.replace("ASKS", "0").replace("MEET", "if (rank() == 1) return;")
    with pytest.raises(Fault, match="asks for an answer in every block of the cluster, of which block") as found:
        run(text, (30, 1, 1))
    assert found.value.kind == "cluster_launch"


@pytest.mark.parametrize("where", ["answer", "full"])
def test_an_answer_in_another_block(where: str) -> None:
    call = 'asm volatile(REQUEST("") :: "r"(at(&answer)), "r"(at(&full)) : "memory");  // asked'
    call = call.replace(f"at(&{where})", f"in_block(&{where}, 1)")
    text = CLUSTER.replace("request_for_all(answer, full);  // asked", call).replace("ASKS", "0").replace("MEET", "")
    with pytest.raises(Fault, match="in shared memory of another block of the cluster, which PTX leaves undefined"):
        run(text, (30, 1, 1))


def test_targets() -> None:
    old = ptx(source(), "sm_100a", (EXHIBITS,)).replace(".target sm_100a", ".target sm_90a")
    with pytest.raises(NotOnTarget, match=r"clusterlaunchcontrol.* needs sm_100 or newer"):
        launch(Module(old), "k", (2, 1, 1), (64, 1, 1), [Buffer("out", np.zeros(512, np.uint8))])
