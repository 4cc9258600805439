"""Code that PTX forbids or leaves open, compilers and vendors' libraries emit, and every GPU bears.

The emulator does not report it, whoever made the PTX, unless `launch` is given its name in `strict`. An entry stands
here only if no byte can differ for it on a GPU, or if vendors' own code relies on it. `docs/emulator_checks.md` has the
list without the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from ptx_emulator.errors import Fault, LaunchError, NotEmulated
from ptx_emulator.memory import Access, Buffer, Resolved, Storage
from ptx_emulator.ptx.targets import parsed


class Borne(NamedTuple):
    """what: is not reported; reason: why GPUs bear it; source: who emits it or says so; beside: what stays a fault

    since: the number of the first sm_* for which it is borne
    """

    name: str
    what: str
    reason: str
    source: str
    beside: str
    since: int = 0

    @property
    def row(self) -> str:
        """Its row of the table in `docs/emulator_checks.md`."""
        return f"| `{self.name}` | {self.what} | {self.reason} | {self.beside} |"


EQUAL_STORES = "equal_stores"
DEAD_READS = "dead_reads"
INIT_FENCE = "init_fence"
ALLOC_FENCE = "alloc_fence"
NO_INVAL = "no_inval"
REINIT = "reinit"
TWO_PLACES = "two_places"
DEFAULT_SCOPE = "default_scope"
LATE_COMMIT = "late_commit"
EXIT_READS = "exit_reads"

LIST = (
    Borne(
        EQUAL_STORES,
        "Threads of a block store equal bytes to one place by one instruction, or its bulk copies do in global memory.",
        "It is not defined which store is last; the bytes are the same.",
        "CUDA C++ Programming Guide, 'SIMT Architecture'; Triton's layouts repeat elements in lanes and warps, and on "
        "sm_90a two warpgroups store one tile of 64 rows",
        "bytes that differ; two instructions of threads; two blocks",
    ),
    Borne(
        DEAD_READS,
        "Threads of a block read global bytes that one of them then writes, and what the others read reaches no byte "
        "of memory.",
        "The kernel runs again with these reads late: all memory has to be the same.",
        "Triton has all threads load what one of them stores, and predicates the rest off",
        "a value that is used; shared memory; two blocks",
    ),
    Borne(
        INIT_FENCE,
        "A copy or a tcgen05 of a block uses an mbarrier of this block that was initialised with a barrier, and no "
        "fence.proxy.async or fence.mbarrier_init, between.",
        "Hardware was tested, and libcu++'s barriers and Triton's kernels work without.",
        "facebookexperimental/triton#1553; libcu++ `cuda::barrier` and `cuda::memcpy_async`; Triton 3.7",
        "no barrier between; an mbarrier of another block of the cluster",
    ),
    Borne(
        ALLOC_FENCE,
        "A copy overwrites the shared memory to which tcgen05.alloc wrote its address, with a barrier, and no "
        "fence.proxy.async, between.",
        "Hardware was tested.",
        "facebookexperimental/triton#1553; Triton 3.7 on sm_100a",
        "no barrier between; what an ordinary store wrote",
    ),
    Borne(
        NO_INVAL,
        "A block exits with an mbarrier that no mbarrier.inval ended.",
        "Shared memory ends with its block.",
        "CUTLASS's pipelines, DeepGEMM and libcu++ have no inval",
        "a second init, or a store, where an mbarrier is",
    ),
    Borne(
        REINIT,
        "An mbarrier at which nobody has arrived or waited is initialised again, with no mbarrier.inval between.",
        "Two inits leave what one leaves, if a barrier or one thread orders them.",
        "Triton 3.7, `warp_specialize` on sm_90a; facebookexperimental/triton#462",
        "an mbarrier that was used",
    ),
    Borne(
        TWO_PLACES,
        "Whole warps meet at one aligned barrier of all threads from several places, as in "
        "`if (warp == 0) __syncthreads(); else __syncthreads();`.",
        "A barrier is its number; a GPU counts warps.",
        "PTX ISA, 'bar, barrier': `.aligned` means one instruction for the block, and its own example has warps meet "
        "at bar.arrive and bar.sync; NVIDIA's CUTLASS meets at bar.sync from every role of a kernel",
        "lanes of one warp at several aligned barriers; threads that pass more barriers than others",
    ),
    Borne(
        DEFAULT_SCOPE,
        "An arrival or a wait at an mbarrier that names no scope orders threads of other blocks of the cluster.",
        "PTX takes it as `.cta`; multicast rings rely on it on every Hopper.",
        "CUTLASS's `ClusterBarrier`, `arrive(cta_id)` and `wait`, on which DeepGEMM builds; TileLang; Triton before "
        "triton-lang/triton#10922",
        "an explicit `.cta`, at either end",
    ),
    Borne(
        LATE_COMMIT,
        "An mbarrier ends while the arrival of a tcgen05.commit for which nobody waits may still come.",
        "What lies in its stage next is written much later.",
        "Triton 3.7, `warp_specialize` on sm_100a",
        "a copy that may still come; a thread that may still arrive, test or wait",
    ),
    Borne(
        EXIT_READS,
        "From sm_100 on, a block exits while its bulk copies may still read.",
        "CUTLASS's products end so there.",
        "CUTLASS 7107b0553, `store_tail` of epilogue/collective/sm100_epilogue_tma_warpspecialized.hpp, where that of "
        "Hopper waits; NVIDIA/cutlass#2002 asks",
        "sm_90; a write there before",
        since=100,
    ),
)

ALL = frozenset(each.name for each in LIST)


def chosen(strict: bool | Collection[str], target: str = "") -> frozenset[str]:
    """The names of what is reported of code for a target, such as `sm_90a`, which may not bear all of the list.

    Raises ValueError for a name that the list does not have.
    """
    found = parsed(target)
    never = {each.name for each in LIST if found and found.number < each.since}
    if isinstance(strict, bool):
        return ALL if strict else frozenset(never)
    if unknown := sorted(set(strict) - ALL):
        raise ValueError(f"no entry of the list is {unknown[0]!r}; it has {', '.join(sorted(ALL))}")
    return frozenset(strict) | never


class EqualStores:
    """Stores by several threads to one place by one instruction, which are borne if their bytes are equal.

    Notes the rows of the current store that share a place with others, by storage, until their values are known. A row
    is behind another if that thread came earlier and nothing orders them: it has to find its own bytes there.
    """

    def __init__(self) -> None:
        self._behind: dict[int, np.ndarray | None] = {}

    def add(self, storage: Storage | None, behind: np.ndarray | None) -> None:
        """Note a store whose rows share places, or that are behind others: (rows,) bool, None for none."""
        before = self._behind.get(id(storage))
        both = before is not None and behind is not None
        self._behind[id(storage)] = before | behind if both else before if behind is None else behind

    def clear(self) -> None:
        """Forget what was noted of an access that stores nothing now."""
        self._behind.clear()

    def disagreeing(
        self, storage: Storage | None, elements: np.ndarray, index: np.ndarray, values: np.ndarray
    ) -> np.ndarray | None:
        """Store values at rows of a storage; the rows whose bytes differ from another's, (rows,) bool, or None."""
        if id(storage) not in self._behind:
            elements[index] = values
            return None
        behind = self._behind.pop(id(storage))
        wrong = np.zeros(len(index), bool) if behind is None else behind & _differ(elements[index], values)
        elements[index] = values
        return wrong | _differ(elements[index], values)


def other_than_now(places: np.ndarray, threads: np.ndarray, now: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Mask of earlier stores by threads at places, whose threads do not store there now, too. now, by: who does

    A thread that does is compared by what it stores now, as the last of its own stores.
    """
    width = np.int64(1 << 20)  # more than threads of a cluster
    keys = (each.astype(np.int64) * width + who.astype(np.int64) for each, who in ((places, threads), (now, by)))
    return ~np.isin(*keys)


def _differ(found: np.ndarray, values: np.ndarray) -> np.ndarray:
    return (found != values).reshape(len(found), -1).any(axis=1)


MOST_BYTES = 1 << 27  # of memory that is kept to run again; beyond, such a race is reported at once


class Raced(NamedTuple):
    """Bytes that a thread wrote while others of its block may still read them, (n,), and the thread."""

    bytes_: np.ndarray
    thread: np.ndarray


class LateReads:
    """The reads of one launch that raced with a write by another reader: does any byte depend on them?

    A compiler that repeats an element in several threads has all of them load it, and one of them store it back.
    Another may then read too late. That is borne if what it read reaches no byte: the kernel is run again, in which
    these threads read what was written later, and all memory has to be as it was.

    fault: what is reported if a byte depends on them
    """

    def __init__(self, memory: Sequence[Buffer]):
        self.memory = [buffer for buffer in memory if buffer.writable]
        self._before = self._kept()
        self._after: list[tuple[np.ndarray, np.ndarray | None]] = []
        self._raced: dict[tuple[int, int, int], list[Raced]] = {}  # number of the read, window, block
        self.fault: Fault | None = None

    @classmethod
    def of(cls, memory: Sequence[Buffer]) -> LateReads | None:
        """None where there is too much memory to keep."""
        return cls(memory) if sum(len(each.data) for each in memory if each.writable) <= MOST_BYTES else None

    def _kept(self) -> list[tuple[np.ndarray, np.ndarray | None]]:
        return [(each.data.copy(), None if each.written is None else each.written.copy()) for each in self.memory]

    def _put(self, kept: list[tuple[np.ndarray, np.ndarray | None]]) -> None:
        for buffer, (data, written) in zip(self.memory, kept, strict=True):
            buffer.data[...] = data
            if written is not None:
                buffer.written[...] = written

    def add(self, number: int, buffer: Buffer, block: int, bytes_: np.ndarray, thread: np.ndarray) -> None:
        """Record bytes that threads of a block wrote while others may still read them by access `number`."""
        self._raced.setdefault((number, buffer.window, block), []).append(Raced(bytes_, thread))

    def require_dead(self, run: Callable[[], object]) -> None:
        """Raise the fault unless all memory is the same after a run in which these reads are late. run: launches again

        Memory is then as the first run left it.
        """
        self._after = self._kept()
        self._put(self._before)
        try:
            run()
            same = all((buffer.data == data).all() for buffer, (data, _) in zip(self.memory, self._after, strict=True))
        except (Fault, LaunchError, NotEmulated):
            same = False
        self._put(self._after)
        if not same:
            raise self.fault

    def patched(self, access: Access, resolved: Resolved, found: np.ndarray, place: np.ndarray, thread: np.ndarray,
                ) -> np.ndarray:  # fmt: skip
        """The values that threads read, with later ones where they raced. found: by row; place, thread: of each row"""
        buffer = resolved.storage
        numbers = {key[2] for key in self._raced if key[:2] == (access.number, getattr(buffer, "window", -1))}
        if not numbers:
            return found
        after = next(data for each, (data, _) in zip(self.memory, self._after, strict=True) if each is buffer)
        starts = np.broadcast_to(resolved.index, place.shape).reshape(-1).astype(np.int64) * access.bytes
        out = np.broadcast_to(found, (*place.shape, *found.shape[resolved.index.ndim :])).copy()
        raw = out.reshape(len(starts), -1).view(np.uint8)
        for block in numbers:
            raced = self._raced[access.number, buffer.window, block]
            bytes_, by = (np.concatenate([each[i] for each in raced]) for i in range(2))
            order = np.argsort(bytes_, kind="stable")
            bytes_, by = bytes_[order], by[order]
            rows = np.flatnonzero(place.reshape(-1) == block)
            at = starts[rows, None] + np.arange(access.bytes)
            where = np.minimum(np.searchsorted(bytes_, at), len(bytes_) - 1)
            late = (bytes_[where] == at) & (by[where] != thread.reshape(-1)[rows, None])
            raw[rows] = np.where(late, after[at], raw[rows])
        return out
