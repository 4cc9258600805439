"""Every mnemonic that the emulator executes; `ld.global` stands for all its widths, vectors and cache hints."""

from __future__ import annotations

from ptx_emulator.arithmetic.atomics import ATOMICS, VECTORS
from ptx_emulator.arithmetic.warp import REDUCTIONS
from ptx_emulator.instructions import (
    arithmetic,
    bulk_copy,
    cluster,
    cluster_launch,
    mbarrier,
    mma,
    moves,
    tcgen05,
    tensormap,
    wgmma,
    wmma,
)

SPACES = ("global", "shared", "local", "param", "const")
CONTROL = ("bra", "brx.idx", "ret", "exit", "trap", "bar.sync", "barrier.sync", "bar.arrive", "bar.warp.sync")
ORDER = ("membar.gl", "membar.cta", "membar.sys", "fence.acq_rel.gpu", "fence.sc.gpu", "fence.acq_rel.sys")
ORDER += ("fence.proxy.async", "fence.proxy.async.shared::cta", "fence.proxy.async.global")
ORDER += ("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",)
ORDER += ("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",)
IGNORED = (
    "prefetch.global.L2",
    "applypriority.global.L2::evict_normal",
    "nanosleep.u32",
    "griddepcontrol.wait",
    "griddepcontrol.launch_dependents",
)
COPIES = ("cp.async.ca.shared.global", "cp.async.cg.shared.global", "cp.async.commit_group")
COPIES += ("cp.async.wait_group", "cp.async.wait_all")


def mnemonics() -> set[str]:
    """All mnemonics; `/3` marks the form with a third operand."""
    names = {
        *arithmetic.ARITHMETIC, *arithmetic.mnemonics(), *moves.mnemonics(), *mma.mnemonics(), *wgmma.mnemonics(),
        *wmma.mnemonics(), *mbarrier.mnemonics(), *bulk_copy.mnemonics(), *cluster.mnemonics(), *tensormap.mnemonics(),
        *tcgen05.mnemonics(), *cluster_launch.mnemonics(), *CONTROL, *ORDER, *IGNORED, *COPIES,
    }  # fmt: skip
    names |= {"activemask.b32", "elect.sync", "call.uni"}
    names |= {f"ld.{space}" for space in SPACES} | {"st.global", "st.shared", "st.local", "ld", "st"}
    names |= {f"{head}.{name}" for head in ("atom", "red") for name in ATOMICS if head == "atom" or _reduces(name)}
    names |= {f"{head}.{name}" for head in ("atom", "red") for name in VECTORS}
    names |= {f"shfl.sync.{mode}.b32" for mode in ("up", "down", "bfly", "idx")}
    names |= {"vote.sync.all.pred", "vote.sync.any.pred", "vote.sync.uni.pred", "vote.sync.ballot.b32"}
    names |= {f"redux.sync.{name}" for name in REDUCTIONS}
    names |= {f"redux.sync.{name}{mode}.f32" for name in ("min", "max") for mode in ("", ".abs", ".NaN", ".abs.NaN")}
    names |= {f"match.{mode}.sync.{kind}" for mode in ("any", "all") for kind in ("b32", "b64")}
    return names | {f"bar.red.{name}" for name in ("popc.u32", "and.pred", "or.pred")}


def _reduces(name: str) -> bool:
    return not name.startswith(("exch", "cas"))
