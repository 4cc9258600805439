"""What `races.async_shadow` checks and keeps, for accesses and copies that are plainly fine.

Each entry checks first, and then keeps. Where one returns False, nothing has changed, and NumPy does it again: it names
the fault, or settles what these functions leave to it (copies that read the same bytes at once).

Arrays are those of `AsyncShadow` and of `AsyncOrder` (clock, now, floor), by their names there. cells: the first cell
of each access, and `width` how many it has; where: (n, 2), cluster and row of each thread.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.compiled.jit import entry, part

READS, WRITES, UPDATES = 0, 1, 2
_ORDER = "uint32[:, :, ::1], uint32[::1], uint32[::1]"
_CELLS = "uint32[::1], uint32[::1], uint32[::1], int64[::1], int64[::1], boolean[::1]"
_READERS = "uint32[:, ::1], uint32[:, ::1], uint32[::1]"
_SHADOW = f"{_ORDER}, {_CELLS}, {_READERS}, {_READERS}, boolean, int64[::1], uint32[::1], boolean[::1]"


@part
def _written_before(known, floor, own, cell, writer, epoch):
    """Whether the last writer of a cell is this thread, or one that it knows of."""
    by = np.int64(writer[cell]) - 1
    return by < 0 or by == own or epoch[cell] < floor or known[by] > epoch[cell]


@part
def _complete(known, number, counters, numbers, several):
    """Whether a thread knows that a copy is complete, and it took no other's place."""
    return number == 0 or (known[counters[number]] > numbers[number] and not several[number])


@part
def _knows(known, own, lanes, warp, epoch):
    """Whether a thread knows of these lanes of a warp, but for itself."""
    reader = np.int64(32) * warp
    while lanes:
        if lanes & np.uint32(1) and reader != own and known[reader] <= epoch:
            return False
        lanes >>= np.uint32(1)
        reader += 1
    return True


@part
def _read_before(known, floor, own, cell, lanes, epoch):
    """Whether a thread knows of all readers of a cell."""
    for warp in range(lanes.shape[0]):
        bits = lanes[warp, cell]
        if bits and epoch[warp, cell] >= floor and not _knows(known, own, bits, warp, epoch[warp, cell]):
            return False
    return True


@part
def _forget(cell, writer, copy_writes, copy_reads, read_lanes, update_lanes, updated):
    writer[cell], copy_writes[cell], copy_reads[cell] = 0, 0, 0
    for warp in range(read_lanes.shape[0]):
        read_lanes[warp, cell] = 0
        if updated:
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
def _add_apart(first, last, number, where, cells, width, clock, now, lanes, epoch, access):
    """Threads first to last, of one warp, read cells that are each one thread's."""
    warp, time = where[first, 1] >> 5, now[where[first, 0]]
    for i in range(first, last):
        known, bit = clock[where[i, 0], where[i, 1]], np.uint32(1) << np.uint32(where[i, 1] & 31)
        for cell in range(cells[i], cells[i] + width):
            earlier = lanes[warp, cell] & ~bit
            if earlier and not _knows(known, -1, earlier, warp, epoch[warp, cell]):
                lanes[warp, cell] |= bit
            else:
                lanes[warp, cell], epoch[warp, cell] = bit, time
            access[cell] = number


@part
def _add_together(first, last, number, where, cells, width, clock, now, lanes, epoch, access, fresh, late):
    """Threads first to last, of one warp, read cells. fresh, late: (cells,), zero before and after"""
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
def _add(number, where, cells, width, clock, now, lanes, epoch, access, fresh, late):
    """All threads read, or update, their cells: a warp at a time."""
    first, n = 0, len(cells)
    for i in range(1, n + 1):
        if i < n and where[i, 0] == where[first, 0] and where[i, 1] >> 5 == where[first, 1] >> 5:
            continue
        if _apart(first, i, cells, width):
            _add_apart(first, i, number, where, cells, width, clock, now, lanes, epoch, access)
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
        for cell in range(cells[i], cells[i] + width):
            if not _written_before(known, least, own, cell, writer, epoch):
                return False
            if not _complete(known, copy_writes[cell], counters, numbers, several):
                return False
            if updated and kind != UPDATES and not _read_before(known, least, own, cell, update_lanes, update_epoch):
                return False
            if kind != READS:
                if not _complete(known, copy_reads[cell], counters, numbers, several):
                    return False
                if not _read_before(known, least, own, cell, read_lanes, read_epoch):
                    return False
            if kind == WRITES:
                if mbarriers[cell] or (claimed[cell] >> 24 == serial and claimed[cell] & 0xFFFFFF != i):
                    return False
                claimed[cell] = serial << 24 | i
    if kind == READS:
        _add(number, where, cells, width, clock, now, read_lanes, read_epoch, read_access, fresh, late)
    elif kind == UPDATES:
        _add(number, where, cells, width, clock, now, update_lanes, update_epoch, update_access, fresh, late)
    else:
        for i in range(len(cells)):
            for cell in range(cells[i], cells[i] + width):
                _forget(cell, writer, copy_writes, copy_reads, read_lanes, update_lanes, updated)
                writer[cell], access[cell], epoch[cell] = where[i, 1] + 1, number, now[where[i, 0]]
    return True


@entry(f"boolean(int64, boolean, boolean, int64, int64, int64[::1], {_SHADOW})")
def start_copy(number, reads, fenced, cluster, row, cells, clock, now, floor, writer, epoch, access, copy_writes,
               copy_reads, mbarriers, read_lanes, read_epoch, read_access, update_lanes, update_epoch, update_access,
               updated, counters, numbers, several):  # fmt: skip
    """A copy, by one thread, of cells that are each there once. number: of the copy; fenced: needs no proxy fence"""
    known, rows, least = clock[cluster, row], np.int64(32) * read_lanes.shape[0], floor[cluster]
    for i in range(len(cells)):
        cell = cells[i]
        by = np.int64(writer[cell]) - 1
        if not _written_before(known, least, row, cell, writer, epoch):
            return False
        if by >= 0 and not fenced and known[rows + by] <= epoch[cell]:
            return False
        if not _complete(known, copy_writes[cell], counters, numbers, several):
            return False
        if not _complete(known, copy_reads[cell], counters, numbers, several):
            return False  # of one that reads, too, which then has to be remembered beside it
        if updated and not _read_before(known, least, row, cell, update_lanes, update_epoch):
            return False
        if not reads and not _read_before(known, least, row, cell, read_lanes, read_epoch):
            return False
    for i in range(len(cells)):
        if reads:
            copy_reads[cells[i]] = number
        else:
            _forget(cells[i], writer, copy_writes, copy_reads, read_lanes, update_lanes, updated)
            copy_writes[cells[i]] = number
    return True
