"""The checks and notes of `races.async_shadow`, for accesses and copies that are plainly fine.

Each entry checks first, and then keeps. Where one returns False, nothing has changed, and NumPy does it again: it names
the fault, or settles what these functions leave to it (copies that read the same bytes at once).

Cells that lie side by side mostly have the same past, so what was found of one is not looked up again for the next.

Arrays are those of `AsyncShadow` and of `AsyncOrder` (clock, now, floor), by their names there. cells: the first cell
of each access, and `width` how many it has; where: (n, 2), cluster and row of each thread.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled.jit import entry, part

READS, WRITES, UPDATES = 0, 1, 2
_ORDER = "uint32[:, :, ::1], uint32[::1], uint32[::1]"
_CELLS = "uint32[::1], uint32[::1], uint32[::1], uint32[::1], uint32[::1], boolean[::1]"
_READERS = "uint32[:, ::1], uint32[:, ::1], uint32[::1]"
_SHADOW = f"{_ORDER}, {_CELLS}, {_READERS}, {_READERS}, boolean, int64[::1], uint32[::1], boolean[::1]"


@part
def _written_before(known, floor, own, cells, writer, epoch):
    """Whether the last writer of each of these cells is this thread, or one that it knows of."""
    last, when = np.uint32(0), np.uint32(0)
    for cell in cells:
        by = writer[cell]
        if by == 0 or (by == last and epoch[cell] == when):
            continue
        last, when = by, epoch[cell]
        if np.int64(by) - 1 != own and when >= floor and known[np.int64(by) - 1] <= when:
            return False
    return True


@part
def _fenced(known, rows, cells, writer, epoch):
    """Whether a thread knows of a proxy fence behind the last write of each of these cells."""
    last, when = np.uint32(0), np.uint32(0)
    for cell in cells:
        by = writer[cell]
        if by == 0 or (by == last and epoch[cell] == when):
            continue
        last, when = by, epoch[cell]
        if known[rows + np.int64(by) - 1] <= when:
            return False
    return True


@part
def _complete(known, cells, copies, counters, numbers, several):
    """Whether a thread knows that the copies of these cells are complete, and none of them stands for others."""
    last = np.uint32(0)
    for cell in cells:
        number = copies[cell]
        if number != last and number != 0:
            if known[counters[number]] <= numbers[number] or several[number]:
                return False
            last = number
    return True


@part
def _knows(known, own, lanes, warp, epoch):
    """Whether a thread knows what these lanes of a warp did, itself left out."""
    reader = np.int64(32) * warp
    while lanes:
        if lanes & np.uint32(1) and reader != own and known[reader] <= epoch:
            return False
        lanes >>= np.uint32(1)
        reader += 1
    return True


@part
def _read_before(known, floor, own, cells, lanes, epoch):
    """Whether a thread knows of all readers of these cells."""
    for warp in range(lanes.shape[0]):
        last, when = np.uint32(0), np.uint32(0)
        for cell in cells:
            bits = lanes[warp, cell]
            if bits == 0 or (bits == last and epoch[warp, cell] == when):
                continue
            last, when = bits, epoch[warp, cell]
            if when >= floor and not _knows(known, own, bits, warp, when):
                return False
    return True


@part
def _forget(cells, copy_writes, copy_reads, read_lanes, update_lanes, updated):
    """Drop who read or updated these cells, and the copies of them."""
    for cell in cells:
        copy_writes[cell], copy_reads[cell] = 0, 0
    for warp in range(read_lanes.shape[0]):
        for cell in cells:
            read_lanes[warp, cell] = 0
        if updated:
            for cell in cells:
                update_lanes[warp, cell] = 0


@part
def _apart(first, last, cells, width):
    """Whether no two of these accesses share a cell."""
    near = False
    for i in range(first + 1, last):
        for j in range(first, i):
            near |= abs(cells[i] - cells[j]) < width
    return not near


@part
def _add_apart(first, last, number, where, cells, width, clock, now, floor, lanes, epoch, access):
    """Note that threads first to last of one warp read cells, where no two threads share a cell."""
    warp, time, least = where[first, 1] >> 5, now[where[first, 0]], floor[where[first, 0]]
    for i in range(first, last):
        known, bit = clock[where[i, 0], where[i, 1]], np.uint32(1) << np.uint32(where[i, 1] & 31)
        past, when, joins = np.uint32(0), np.uint32(0), False
        for cell in range(cells[i], cells[i] + width):
            earlier = lanes[warp, cell] & ~bit
            if earlier != past or (earlier and epoch[warp, cell] != when):
                past, when = earlier, epoch[warp, cell]
                joins = past != 0 and when >= least and not _knows(known, -1, past, warp, when)
            if joins:
                lanes[warp, cell] |= bit
            else:
                lanes[warp, cell], epoch[warp, cell] = bit, time
            access[cell] = number


@part
def _add_together(first, last, number, where, cells, width, clock, now, lanes, epoch, access, fresh, late):
    """Note that threads first to last of one warp read cells that they may share.

    fresh, late: (cells,), zero before and after
    """
    for i in range(first, last):
        for cell in range(cells[i], cells[i] + width):
            fresh[cell] |= np.uint32(1) << np.uint32(where[i, 1] & 31)
    warp, time = where[first, 1] >> 5, now[where[first, 0]]
    for i in range(first, last):
        known = clock[where[i, 0], where[i, 1]]
        for cell in range(cells[i], cells[i] + width):
            # A thread that reads again now is remembered by this read, so the earlier one is dropped.
            if not _knows(known, -1, lanes[warp, cell] & ~fresh[cell], warp, epoch[warp, cell]):
                late[cell] = True
    for i in range(first, last):
        for cell in range(cells[i], cells[i] + width):
            if late[cell]:
                lanes[warp, cell] |= fresh[cell]
            elif fresh[cell]:
                lanes[warp, cell], epoch[warp, cell] = fresh[cell], time
            access[cell], fresh[cell], late[cell] = number, 0, False


@part
def _add(number, where, cells, width, clock, now, floor, lanes, epoch, access, fresh, late):
    """Note that all threads read, or update, their cells, one warp after another."""
    first, n = 0, len(cells)
    for i in range(1, n + 1):
        if i < n and where[i, 0] == where[first, 0] and where[i, 1] >> 5 == where[first, 1] >> 5:
            continue
        if _apart(first, i, cells, width):
            _add_apart(first, i, number, where, cells, width, clock, now, floor, lanes, epoch, access)
        else:
            _add_together(first, i, number, where, cells, width, clock, now, lanes, epoch, access, fresh, late)
        first = i


@entry(
    f"boolean(int64, int64, int64, int64[:, ::1], int64[::1], int64, int64[::1], uint32[::1], boolean[::1], {_SHADOW})"
)
def record(kind, number, serial, where, cells, width, claimed, fresh, late, clock, now, floor, writer, epoch, access,
           copy_writes, copy_reads, mbarriers, read_lanes, read_epoch, read_access, update_lanes, update_epoch,
           update_access, updated, counters, numbers, several):  # fmt: skip
    """An access of threads, those of a warp together. kind: READS, WRITES or UPDATES; number: of the access

    serial: another for each call; claimed, fresh, late: (cells,), of its own; the last two are zero between calls
    updated: whether anything was updated before
    """
    for i in range(len(cells)):
        own, known, least = where[i, 1], clock[where[i, 0], where[i, 1]], floor[where[i, 0]]
        mine = range(cells[i], cells[i] + width)
        if not _written_before(known, least, own, mine, writer, epoch):
            return False
        if not _complete(known, mine, copy_writes, counters, numbers, several):
            return False
        if updated and kind != UPDATES and not _read_before(known, least, own, mine, update_lanes, update_epoch):
            return False
        if kind != READS:
            if not _complete(known, mine, copy_reads, counters, numbers, several):
                return False
            if not _read_before(known, least, own, mine, read_lanes, read_epoch):
                return False
        if kind == WRITES:
            for cell in mine:
                if mbarriers[cell] or (claimed[cell] >> 24 == serial and claimed[cell] & 0xFFFFFF != i):
                    return False
                claimed[cell] = serial << 24 | i
    if kind == READS:
        _add(number, where, cells, width, clock, now, floor, read_lanes, read_epoch, read_access, fresh, late)
    elif kind == UPDATES:
        _add(number, where, cells, width, clock, now, floor, update_lanes, update_epoch, update_access, fresh, late)
    else:
        for i in range(len(cells)):
            mine = range(cells[i], cells[i] + width)
            _forget(mine, copy_writes, copy_reads, read_lanes, update_lanes, updated)
            for cell in mine:
                writer[cell], access[cell], epoch[cell] = where[i, 1] + 1, number, now[where[i, 0]]
    return True


@entry(f"boolean(int64, boolean, boolean, int64, int64, int64[::1], {_SHADOW})")
def start_copy(number, reads, fenced, cluster, row, cells, clock, now, floor, writer, epoch, access, copy_writes,
               copy_reads, mbarriers, read_lanes, read_epoch, read_access, update_lanes, update_epoch, update_access,
               updated, counters, numbers, several):  # fmt: skip
    """A copy, by one thread, of cells that are each there once. number: of the copy; fenced: needs no proxy fence"""
    known, rows, least = clock[cluster, row], np.int64(32) * read_lanes.shape[0], floor[cluster]
    if not _written_before(known, least, row, cells, writer, epoch):
        return False
    if not fenced and not _fenced(known, rows, cells, writer, epoch):
        return False
    if not _complete(known, cells, copy_writes, counters, numbers, several):
        return False
    if not _complete(known, cells, copy_reads, counters, numbers, several):
        return False  # another copy may read these cells, and must then be remembered beside this one
    if updated and not _read_before(known, least, row, cells, update_lanes, update_epoch):
        return False
    if not reads and not _read_before(known, least, row, cells, read_lanes, read_epoch):
        return False
    if reads:
        for cell in cells:
            copy_reads[cell] = number
        return True
    _forget(cells, copy_writes, copy_reads, read_lanes, update_lanes, updated)
    for cell in cells:
        writer[cell], copy_writes[cell] = 0, number
    return True
