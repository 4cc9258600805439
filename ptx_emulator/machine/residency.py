"""How many CTAs of a launch a GPU holds at once.

From the table "Technical Specifications per Compute Capability" of the CUDA programming guide, and, for each target,
the most multiprocessors that a part sold has, or for sm_100 and sm_103 the whole chip: 160 in NVIDIA's "Inside NVIDIA
Blackwell Ultra", of which a B200 has 148. Threads, shared memory and the limit of CTAs count; registers do not,
because PTX does not say how many ptxas will take, so a GPU may hold fewer.
"""

from __future__ import annotations

from typing import NamedTuple

from ptx_emulator.ptx.targets import parsed
from ptx_emulator.registers import WARP

_OWN = 1 << 10  # bytes of shared memory that the system takes for each CTA


class Part(NamedTuple):
    """A GPU. shared: KiB of shared memory of a multiprocessor; ctas, threads: that it holds at most"""

    multiprocessors: int
    threads: int
    ctas: int
    shared: int


_PARTS = {
    75: Part(72, 1024, 16, 64),
    80: Part(108, 2048, 32, 164),
    86: Part(84, 1536, 16, 100),
    87: Part(16, 1536, 16, 164),
    89: Part(142, 1536, 24, 100),
    90: Part(132, 2048, 32, 228),
    100: Part(160, 2048, 32, 228),
    103: Part(160, 2048, 32, 228),
    110: Part(20, 1536, 24, 228),
    120: Part(188, 1536, 24, 100),
    121: Part(48, 1536, 24, 100),
}
_LARGEST = Part(*(max(each) for each in zip(*_PARTS.values(), strict=True)))


class Residency(NamedTuple):
    """ctas: how many a GPU holds at once, whole clusters; words: why no more"""

    ctas: int
    words: str


def residency(target: str, threads: int, shared: int, cluster: int) -> Residency:
    """What a GPU of a target holds of a launch. threads, shared: of a CTA, shared in bytes; cluster: CTAs of one

    A target that the table lacks counts as the largest GPU there is.
    """
    known = parsed(target)
    part = _PARTS.get(known.number, _LARGEST) if known else _LARGEST
    limits = {
        "by threads": part.threads // (-(-threads // WARP) * WARP),
        "by shared memory": (part.shared << 10) // (shared + _OWN),
        "as many as it has places": part.ctas,
    }
    why, each = min(limits.items(), key=lambda item: item[1])
    each = max(1, each)  # a launch that is allowed fits once
    ctas = max(cluster, part.multiprocessors * each // cluster * cluster)
    words = f"a GPU of {target or 'any target'} holds at most {ctas:,} at once "
    words += f"({part.multiprocessors} SMs, {each} CTA{'s' * (each > 1)} each {why})"
    return Residency(ctas, words)
