"""The interpreter's input by position: the columns of an instruction, of a buffer, and of the context.

The context is one array of integers: numbers, and addresses of arrays that Python keeps alive. Passing one array costs
a call less than passing thirty.
"""

from __future__ import annotations

# An instruction: operands are rows of a block's registers, or ~n for constant n.
(
    OPCODE, TARGET, X, Y, Z, WIDE, GUARD, NEGATED, IMMEDIATE, ACCESS, SIZE, COUNT, HAZARD, DATA,
) = range(14)  # fmt: skip
COLUMNS = DATA + 14  # registers of a vector, or of an `mma`: four results, four of A, two of B, four of C
# Bits of WIDE: they say which of target, x, y and z are 64-bit registers.
TARGET_WIDE, X_WIDE, Y_WIDE, Z_WIDE = 1, 2, 4, 8

# A step's use of registers that any `wgmma` uses: whether it is a move, how many it reads and writes, and which ones.
COPIES, READ_COUNT, WRITTEN_COUNT, USED = range(4)
# How a `wgmma` in flight holds a register.
ACCUMULATOR, FRAGMENT = 1, 2

# A buffer in global memory. From WRITES on, its shadow: tags by kind of access, the numbers of these accesses, whether
# there are any, which readers each reader's tag replaced, and what was read as constant (0 if nothing).
(
    WINDOW, BASE, BYTES, LENGTH, READABLE, WRITABLE, WRITTEN_MAP, WRITES, READS, UPDATES, WRITE_NUMBERS, READ_NUMBERS,
    UPDATE_NUMBERS, HAS_WRITES, HAS_READS, HAS_UPDATES, EARLIER, CONSTANT,
) = range(18)  # fmt: skip
BUFFER_COLUMNS = 18
# Readers that later ones replaced: address and length of the rows, which of them is free. A row has these columns.
READERS, READERS_LENGTH, READERS_FREE = range(3)
READER_TAG, READER_NUMBER, READER_EARLIER = range(3)

(
    CODE, INSTRUCTIONS, CONSTANTS, CONSTANT_COUNT, NARROW_ROWS, NARROW_COUNT, WIDE_ROWS, WIDE_COUNT, BLOCKS, THREADS,
    LANES, WHOLE, PARAMETERS, BUFFERS, BUFFER_COUNT, SHARED, SHARED_SIZE, SHARED_STRIDE, SHARED_WRITTEN,
    SHADOW, SHADOW_WRITES, SHADOW_READS, SHADOW_UPDATES, SHADOW_WGMMA, SHADOW_CELL, HAS_SHARED_UPDATES, EPOCHS,
    KNOWN, COMMON, AGENT_WARPS, GLOBAL_SHADOW, GLOBAL_CELL, GLOBAL_READERS, FIRST_BLOCK, TRAFFIC, COUNTED, SCRATCH,
    HAZARDS, HAZARD_COUNT, HAZARD_WIDTH, WGMMA_WRITERS, WGMMA_HELD, WGMMA_REGISTERS,
) = range(43)  # fmt: skip
CONTEXT_SIZE = 43

# Traffic, in the order of `Traffic`'s fields.
READ_BYTES, WRITTEN_BYTES, GLOBAL_REQUESTS, GLOBAL_SECTORS, SHARED_REQUESTS, SHARED_WAVEFRONTS, SHARED_CONFLICTS = (
    range(7)
)

# Bytes of scratch memory: a block's offsets and guarded lanes, the words of each bank, an `mma`'s operands and limits.
OFFSETS, GUARDED, BANKS, OPERANDS, LIMITS, SCRATCH_SIZE = 0, 8 << 10, 9 << 10, 18 << 10, 22 << 10, 23 << 10

# Tags of shared memory: epoch, access, agent. Of global memory: epoch, block + 1, agent.
AGENT_BITS, ACCESS_BITS = 12, 20
GLOBAL_BLOCK_BITS = 24
# Agents beside the threads of a block: several of one warp, plus its number, or of any warps; then of sets of warps.
IN_ONE_WARP, IN_SEVERAL_WARPS = 1024, 1024 + 32

SCRATCH_ROWS = 4  # rows behind a block's registers: three constants, and a result before it is merged
