"""`wgmma` of warpgroups: its sums, and the start of its reads of matrices in shared memory.

Sums are exact, of exact products, where float64 holds them, or in Hopper's order; others are left to NumPy. A read is
checked first, and then leaves tags. See `ptx_emulator.instructions.wgmma` for the fragments, `descriptors` there for
the layouts, `ptx_emulator.races.wgmma_reads` for the tags, and `product` for `mma`.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled.jit import as_float, entry, part
from ptx_emulator.compiled.lanes import odd_sum
from ptx_emulator.compiled.product import DEPTH, add_row, cut_pattern, exponents, fits, span, value_of
from ptx_emulator.compiled.shared_access import ACCESS_SHIFT, AGENT_MASK, EPOCH_SHIFT, IN_ONE_WARP, IN_SEVERAL_WARPS
from ptx_emulator.memory import SHARED_BASE
from ptx_emulator.registers import WARP, WARPGROUP

ROWS, MOST_COLUMNS, CHUNK_ELEMENTS = 64, 256, 8  # of the matrices; elements of 16 bytes
ROOM = ROWS * DEPTH + DEPTH * MOST_COLUMNS + 2 * MOST_COLUMNS  # float64: A, B, a row of the result and of C


@part
def _load_registers(is_half, sign, narrow, fragments, first, left, limits):
    """A from registers, whose layout is that of `mma` for each of the four warps."""
    for k in range(4):
        row = narrow[fragments[k]]
        for lane in range(2 * ROWS):
            register = row[first + lane]
            at = (16 * (lane >> 5) + 8 * (k & 1) + (lane >> 2 & 7)) * DEPTH + 8 * (k >> 1) + 2 * (lane & 3)
            low = value_of((register & np.uint32(0xFFFF)) ^ sign, is_half)
            high = value_of(np.uint32(register >> np.uint32(16)) ^ sign, is_half)
            left[at], left[at + 1] = low, high
            if not (span(low, limits) and span(high, limits)):
                return False
    return True


@part
def _load_chunks(is_half, sign, across, shared, index, out, row_step, depth_step, limits):
    """A matrix from shared memory.

    index: two chunks of each row, halves of the depth, or if it lies across, a chunk of 8 rows for each k
    """
    step = row_step if across else depth_step
    for i in range(index.size):
        chunk = shared[index[i]]
        if across:
            at = CHUNK_ELEMENTS * (i // DEPTH) * row_step + i % DEPTH * depth_step
        else:
            at = (i >> 1) * row_step + CHUNK_ELEMENTS * (i & 1) * depth_step
        for k in range(CHUNK_ELEMENTS):
            value = value_of(np.uint32(chunk[k]) ^ sign, is_half)
            out[at + k * step] = value
            if not span(value, limits):
                return False
    return True


@part
def _row(left, right, columns, out):
    """Products of a row of A with all columns of B."""
    for j in range(columns):
        out[j] = 0.0
    for k in range(0, DEPTH, 4):
        a, b, c, d = left[k], left[k + 1], left[k + 2], left[k + 3]
        first, second = right[k * columns : (k + 1) * columns], right[(k + 1) * columns : (k + 2) * columns]
        third, fourth = right[(k + 2) * columns : (k + 3) * columns], right[(k + 3) * columns : (k + 4) * columns]
        for j in range(columns):
            out[j] += a * first[j] + b * second[j] + c * third[j] + d * fourth[j]


@entry(
    "int64(boolean, boolean, uint32[:, :, ::1], uint16[:, ::1], int64[::1], int32[::1], int32[::1], int64[:, ::1], "
    "int64[:, ::1], boolean[::1], uint32, uint32, boolean, boolean, float64[::1])"
)
def multiply(
    is_half, as_hopper, registers, shared, first, targets, fragments, a_index, b_index, added, sign_a, sign_b, a_across,
    b_across, room,
):  # fmt: skip
    """Set the accumulators of warpgroups until one has a sum that might not be exact; returns its number, or n.

    as_hopper: sum in the order of Hopper's matrix unit, until one has a factor that is infinite or a NaN
    first: (n,), each warpgroup's first lane; targets: rows of its accumulators; fragments: of A, or empty
    a_index, b_index: (n, chunks) of shared memory; added: (n,), whether the accumulator is
    a_across, b_across: whether a chunk is 8 rows of one k
    """
    threads, columns = registers.shape[2], b_index.shape[1] // 2
    left, right = room[: ROWS * DEPTH], room[ROWS * DEPTH : ROWS * DEPTH + DEPTH * columns]
    total, addend = room[-2 * MOST_COLUMNS : -MOST_COLUMNS][:columns], room[-MOST_COLUMNS:][:columns]
    limits = np.empty(4, np.int64)
    of_left, of_right = np.empty(ROWS * DEPTH, np.int64), np.empty(DEPTH * columns, np.int64)
    highest = np.empty(columns, np.int64)
    for n in range(first.size):
        narrow, lane = registers[first[n] // threads], first[n] % threads
        limits[0], limits[1], limits[2], limits[3] = -4000, 4000, -4000, 4000
        if fragments.size:
            known = _load_registers(is_half, sign_a, narrow, fragments, lane, left, limits)
        else:
            known = _load_chunks(is_half, sign_a, a_across, shared, a_index[n], left, DEPTH, 1, limits)
        known = known and _load_chunks(is_half, sign_b, b_across, shared, b_index[n], right, 1, columns, limits[2:])
        if as_hopper:
            known = known and exponents(left, of_left) and exponents(right, of_right)
        elif known:
            known = fits(limits)
        if not known:
            return n
        for row in range(ROWS):
            of_row = slice(row * DEPTH, (row + 1) * DEPTH)
            at = lane + 32 * (row >> 4) + 4 * (row & 7)
            below = 2 * (row >> 3 & 1)
            for j in range(columns):
                register = targets[4 * (j >> 3) + below + (j & 1)]
                old = narrow[register, at + (j >> 1 & 3)]
                addend[j] = np.float64(as_float(old)) if added[n] else 0.0
            if as_hopper:
                add_row(left[of_row], of_left[of_row], right, of_right, addend, highest, total)
            else:
                _row(left[of_row], right, columns, total)
                for j in range(columns):
                    total[j] = np.float64(np.float32(odd_sum(total[j], addend[j]) + 0.0))
            for j in range(columns):
                register = targets[4 * (j >> 3) + below + (j & 1)]
                narrow[register, at + (j >> 1 & 3)] = cut_pattern(total[j])
    return first.size


# ---- reads of matrices in shared memory -----------------------------------------------------------------------------


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
