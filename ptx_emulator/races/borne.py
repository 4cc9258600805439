"""What PTX forbids or leaves open, compilers and vendors' libraries emit, and every GPU bears.

The emulator does not report it, whoever made the PTX, unless `launch` is given its name in `strict`. An entry stands
here only if no byte can differ for it on a GPU, or if vendors' own code relies on it; `docs/emulator.md` shows it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Borne(NamedTuple):
    """what: is not reported; reason: why GPUs bear it; source: who emits it or says so; beside: what stays a fault"""

    name: str
    what: str
    reason: str
    source: str
    beside: str

    @property
    def row(self) -> str:
        """Its row of the table in `docs/emulator.md`."""
        return f"| `{self.name}` | {self.what} | {self.reason} | {self.source} | {self.beside} |"


EQUAL_STORES = "equal_stores"
DEAD_READS = "dead_reads"
INIT_FENCE = "init_fence"
ALLOC_FENCE = "alloc_fence"
NO_INVAL = "no_inval"
REINIT = "reinit"
TWO_PLACES = "two_places"

LIST = (
    Borne(
        EQUAL_STORES,
        "Threads of a block store equal bytes to one place by one instruction, or bulk copies of a block do so in "
        "global memory.",
        "One of the stores is last, and it is not defined which; the bytes are the same.",
        "CUDA C++ Programming Guide, 'SIMT Architecture'; Triton's layouts repeat elements in lanes and warps, and on "
        "sm_90a two warpgroups store one tile of 64 rows",
        "bytes that differ; two instructions of threads; two blocks",
    ),
    Borne(
        DEAD_READS,
        "Threads of a block read global bytes that one of these readers then writes, and what the others read reaches "
        "no byte of memory.",
        "The kernel is run again, in which the others read what was written later: all of memory has to be the same.",
        "Triton has all threads load what one of them stores, and predicates the rest off",
        "a value that is used; shared memory; two blocks",
    ),
    Borne(
        INIT_FENCE,
        "A copy or a tcgen05 of a block uses an mbarrier of this block that was initialised with a barrier, and no "
        "fence.proxy.async or fence.mbarrier_init, between.",
        "It was asked of hardware, and libcu++'s barriers and Triton's kernels work without.",
        "facebookexperimental/triton#1553; libcu++ `cuda::barrier` and `cuda::memcpy_async`; Triton 3.7",
        "no barrier between; an mbarrier of another block of the cluster",
    ),
    Borne(
        ALLOC_FENCE,
        "A copy overwrites the shared memory to which tcgen05.alloc wrote its address, with a barrier, and no "
        "fence.proxy.async, between.",
        "It was asked of hardware.",
        "facebookexperimental/triton#1553; Triton 3.7 on sm_100a",
        "no barrier between; what an ordinary store wrote",
    ),
    Borne(
        NO_INVAL,
        "A block exits with an mbarrier that no mbarrier.inval ended.",
        "Shared memory ends with its block, and the next one initialises its own.",
        "CUTLASS's pipelines, DeepGEMM and libcu++ have no inval",
        "a second init, or a store, where an mbarrier is",
    ),
    Borne(
        REINIT,
        "An mbarrier at which nobody has arrived or waited is initialised again, with no mbarrier.inval between.",
        "The second init leaves what it would leave alone. A barrier, or one thread, has to order the two.",
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
)

ALL = frozenset(each.name for each in LIST)


def chosen(strict: bool | Collection[str]) -> frozenset[str]:
    """The names of what is reported. Raises ValueError for a name that the list does not have."""
    if isinstance(strict, bool):
        return ALL if strict else frozenset()
    if unknown := sorted(set(strict) - ALL):
        raise ValueError(f"no entry of the list is {unknown[0]!r}; it has {', '.join(sorted(ALL))}")
    return frozenset(strict)
