"""The start of a `wgmma`'s reads of a matrix in shared memory: checks first, then tags.

The rules are those of `ptx_emulator.races.wgmma_reads`, whose tags these functions read and write, and of
`ptx_emulator.instructions.wgmma_descriptors`.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled.jit import entry, part
from ptx_emulator.compiled.shared_access import ACCESS_SHIFT, AGENT_MASK, EPOCH_SHIFT, IN_ONE_WARP, IN_SEVERAL_WARPS
from ptx_emulator.memory import SHARED_BASE
from ptx_emulator.registers import WARP, WARPGROUP

CHUNK, DEPTH = 16, 16  # bytes, and elements along K
ALL_WRITTEN = np.uint64(0x0101010101010101)


@part
def _field(described, low):
    return np.int64(described >> np.uint64(low) & np.uint64(0x3FFF)) << 4


@part
def _find(described, across, size, start, chunks):
    """Set the chunks of a matrix, numbered in shared memory; False if the layout or the address is not plainly fine."""
    first, leading, stride = _field(described, 0), _field(described, 16), _field(described, 32)
    mode = np.int64(described >> np.uint64(62))
    pitch = 256 >> mode
    width = pitch // CHUNK  # chunks in a row of the pattern
    taken = min(chunks.size // DEPTH, width) if across else 2
    if described >> np.uint64(49) & np.uint64(7) or (mode and first % pitch > pitch - taken * CHUNK):
        return False
    for i in range(chunks.size):
        if across:
            eight, k = i // DEPTH, i % DEPTH
            if mode:
                address = first + eight // width * leading + eight % width * CHUNK + (k >> 3) * stride + (k & 7) * pitch
            else:
                address = first + eight * stride + (k >> 3) * leading + (k & 7) * CHUNK
        else:
            row, half = i >> 1, i & 1
            address = first + (row >> 3) * stride
            address += (row & 7) * pitch + half * CHUNK if mode else (row & 7) * CHUNK + half * leading
        if mode:
            address ^= (address >> 7 & (width - 1)) << 4
        offset = address - SHARED_BASE
        if offset < 0 or offset > size - CHUNK:
            return False
        chunks[i] = (start + offset) // CHUNK
    return True


@part
def _earliest(seen, first):
    earliest = seen[first]
    for i in range(first, first + WARPGROUP):
        earliest = min(earliest, seen[i])
    return earliest


@part
def _known(known, warp, agent):
    """The epoch that all warps of a warpgroup know of a thread's warp; 0 for an agent of several threads."""
    epoch = np.uint64(0)
    if agent < IN_ONE_WARP:
        epoch = known[warp, np.int64(agent >> np.uint64(5))]
        for i in range(warp, warp + WARPGROUP // WARP):
            epoch = min(epoch, known[i, np.int64(agent >> np.uint64(5))])
    return epoch


@part
def _ordered(chunks, tags, width, known, warp, seen, fenced):
    """Whether all accesses to these cells came before a barrier, and a proxy fence."""
    for i in range(chunks.size):
        for k in range(chunks[i] * width, chunks[i] * width + width):
            epoch, who = tags[k] >> EPOCH_SHIFT, tags[k] & AGENT_MASK
            if tags[k] != 0 and epoch >= _known(known, warp, who):
                return False
            if epoch >= seen and who < np.uint64(fenced.size) and epoch >= fenced[np.int64(who)]:
                return False
    return True


@entry(
    "boolean(uint64[::1], boolean, int64[::1], int64, int64, uint64[:, ::1], uint64[::1], uint64[::1], boolean, "
    "uint64[::1], int64, uint64[::1], uint64[:, :, ::1], uint64[:, ::1], uint64[:, ::1], int64, int64[:, ::1])"
)
def start(described, across, first, size, stride, written, writes, updates, has_updates, reads, cell, epochs, known,
          fenced, seen, access, chunks):  # fmt: skip
    """Set the chunks (n, count) that warpgroups read, and tag them; False, without tags, if not plainly fine.

    described: (n,) descriptors; across: whether a chunk is 8 rows of one k; first: (n,), each warpgroup's first lane
    The others are those of `WgmmaShadow`.
    """
    threads, width = fenced.shape[1], CHUNK // cell
    for n in range(first.size):
        block, thread = first[n] // threads, first[n] % threads
        mine = chunks[n]
        if not _find(described[n], across, size, block * stride, mine):
            return False
        for i in range(mine.size):
            if written[mine[i], 0] != ALL_WRITTEN or written[mine[i], 1] != ALL_WRITTEN:
                return False
        earliest = _earliest(seen[block], thread)
        warp = thread // WARP
        if not _ordered(mine, writes, width, known[block], warp, earliest, fenced[block]):
            return False
        if has_updates and not _ordered(mine, updates, width, known[block], warp, earliest, fenced[block]):
            return False
    for n in range(first.size):
        tag = epochs[first[n] // threads] << EPOCH_SHIFT | np.uint64(access) << ACCESS_SHIFT | IN_SEVERAL_WARPS
        for i in range(chunks.shape[1]):
            for k in range(chunks[n, i] * width, chunks[n, i] * width + width):
                reads[k] = tag
    return True
