"""Misuse of `tcgen05` by a pair of blocks, `cta_group::2`: each is a fault, and its mend is none.

From the PTX ISA, "CTA Pair", "Issue Granularity" and "tcgen05.alloc", and NVIDIA/cutlass#3316 and #3435.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_source import buffer, line_of, module, ptx
from tcgen05_source import OF_PAIR, instruction, matrix

from ptx_emulator.errors import Fault
from ptx_emulator.launches import Module, launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

pytestmark = pytest.mark.covers("tcgen05.")

ORDERS = (ASCENDING, DESCENDING, Schedule(seed=1))

# A pair differs by `@{bug||mend}@` in one place.
PAIRED = (
    OF_PAIR
    + r"""
extern "C" __global__ void __cluster_dims__(2) k(u32* out) {
  __shared__ alignas(1024) u16 s[128 * 64];
  __shared__ u64 done; __shared__ u32 where;
  const u32 t = threadIdx.x, mine = t / 32 << 21;
  if (!t) { init(done, 1); where = 0; }
  for (int i = t; i < 128 * 64; i += 128) s[i] = 0;  // filled
  fence();
  ASM("fence.mbarrier_init.release.cluster;");
  TO_BEGIN
  if (t < 32 && WHO) allocate(&where, COUNT);  // got
  AFTER_ALLOC
  meet();
  BEFORE_MULTIPLY
  if (!t && ISSUES) {
    multiply(where, MATRIX + in(s), MATRIX + in(s), WHICH, 0);  // product
    COMMIT
  }
  WAIT wait(done, 0);
  AFTER_WAIT
  const u32 value = tensor_load(where + mine);  // read
  wait_ld();
  out[128 * blockIdx.x + t] = value;
  AT_END
  if (t < 32 && WHO) deallocate(where, 64);  // freed
  LAST
}
"""
)
PLACES = {
    "TO_BEGIN": "meet();", "WHO": "true", "COUNT": "64", "AFTER_ALLOC": "if (t < 32) relinquish();  // given\n",
    "BEFORE_MULTIPLY": "", "ISSUES": "!rank()", "MATRIX": f"{matrix(0, 0, 1024, 1):#x}ull",
    "WHICH": f"{instruction(256, 16):#x}", "COMMIT": "arrive_in(done, 3);", "WAIT": "", "AFTER_WAIT": "",
    "AT_END": "meet();", "LAST": "",
}  # fmt: skip
BUGS = {
    "the peer may not have begun": (
        "TO_BEGIN", "@{||meet();}@", "race", "got", None, "may not have begun: no barrier.cluster"),
    "one block alone allocates": (
        "WHO", "@{!rank()||true}@", "tensor_memory", "given", "got",
        "its peer, .*, executes tcgen05.alloc of 64 columns"),
    "two numbers of columns": (
        "COUNT", "@{64 << rank()||64}@", "tensor_memory", "got", "got",
        "its peer, .*, executes tcgen05.alloc of 64 columns"),
    "one block alone gives up the right to allocate": (
        "LAST", "if (t < 32 && @{rank()||true}@) relinquish();  // alone\n", "deadlock", "alone", None,
        r"tcgen05.relinquish_alloc_permit waits for ever for its peer, block \(0, 0, 0\), which exits"),
    "one gives it up behind what the other does later": (
        "AFTER_ALLOC", "@{if (rank()) meet();||}@ if (t < 32) relinquish();  // given up\n @{if (!rank()) meet();||}@",
        "deadlock", "given up", "given up", "does behind its own"),
    "both blocks issue the product": (
        "ISSUES", "@{true||rank()}@", "race", "product", "product", "the tcgen05.mma of .* may still use"),
    "the peer's matrix is not there yet": (
        "BEFORE_MULTIPLY", "if (t == 1 && rank()) s[0] = 0;  // late\n @{||fence(); meet();}@", "race", "product",
        "late",
        r"copies from shared bytes that thread .* of block \(1, 0, 0\) wrote"),
    "the peer reads before the product is done": (
        "WAIT", "if (@{!rank()||true}@)", "race", "read", "product", "the tcgen05.mma of .* may still use"),
    "one block frees while its peer reads": (
        "AT_END", "@{||meet();}@", "race", "freed", "read", "frees lane .* that the tcgen05.ld .* may still read"),
    "the peer reads what is free": (
        "AFTER_WAIT",
        "@{meet(); if (!rank()) { if (t < 32) deallocate(where, 64); meet(); return; }  // early\n meet();||}@",
        "out_of_bounds", "read", "early", "which the pair's other block freed"),
    "one block frees before the other has allocated": (
        "LAST", "__syncthreads(); if (t < 32) allocate(&where, 64);  // again\n __syncwarp(); @{||meet();}@\n"
        "if (t < 32) deallocate(where, 64);  // soon\n", "race", "soon", "again", "may not have allocated yet"),
    "nobody frees": ("AT_END", "meet(); @{return;||}@", "tensor_memory", "got", None, "without a tcgen05.dealloc"),
    "the peer has exited": (
        "LAST", "if (rank()) return; meet(); @{if (!t) arrive_when_done(done);  // alone\n||}@", "tensor_memory",
        "alone", None, r"its peer, block \(1, 0, 0\), has exited"),
}  # fmt: skip


def paired(mended: bool, **places: str) -> str:
    text, often = PAIRED, "allocate" in places.get("LAST", "")
    for name, value in (PLACES | {"AFTER_ALLOC": "" if often else PLACES["AFTER_ALLOC"]} | places).items():
        text = re.sub(rf"\b{name}\b", lambda _, value=value: value, text)
    return re.sub(r"@\{(.*?)\|\|(.*?)\}@", r"\2" if mended else r"\1", text, flags=re.DOTALL)


def run_paired(source: str, blocks: int = 2, **options) -> np.ndarray:
    out = np.full(128 * blocks, 7, np.uint32)
    launch(module(source, "sm_100a"), "k", (blocks, 1, 1), (128, 1, 1), [buffer("out", out)], **options)
    return out


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_a_fault_and_its_mend_is_none(name: str) -> None:
    place, text, kind, at, other, says = BUGS[name]
    bug, mend = (paired(mended, **{place: text}) for mended in (False, True))
    for order in ORDERS:
        assert (run_paired(mend, schedule=order) == 0).all()
        with pytest.raises(Fault, match=says) as found:
            run_paired(bug, schedule=order)
        assert found.value.kind == kind
        assert line_of(bug, f"// {at}") in str(found.value)
        assert other is None or line_of(bug, f"// {other}") in found.value.sentence


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_cluster_of_an_odd_number_of_blocks_has_no_pairs(blocks: int) -> None:
    source = paired(True).replace("__cluster_dims__(2)", f"__cluster_dims__({blocks})")
    with pytest.raises(Fault, match=f"is for a pair of blocks, and the cluster has {blocks}, which is odd") as found:
        run_paired(source, blocks)
    assert found.value.kind == "tensor_memory"


def test_one_group_for_all_instructions_of_a_kernel() -> None:
    """ptxas demands it, too, so the PTX is changed behind it."""
    text = ptx(paired(True), "sm_100a").replace("tcgen05.commit.cta_group::2", "tcgen05.commit.cta_group::1")
    with pytest.raises(Fault, match=r"all tcgen05 instructions of a kernel have to name the same") as found:
        launch(Module(text), "k", (2, 1, 1), (128, 1, 1), [buffer("out", np.zeros(256, np.uint32))])
    assert found.value.kind == "tensor_memory"
    assert line_of(paired(True), "// got") in found.value.sentence
